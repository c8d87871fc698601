"""Reprs of objects: short in a terminal, bounded in a notebook, for any graph."""

from __future__ import annotations

import copy
import dataclasses
import html.parser
import inspect
import math
import pickle
import re
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from compared import EQUAL, measured, row

import tosajax
import tosajax.compare
import tosajax.quant.model.plan
import tosajax.sweep
from tosajax import Builder, DType, Finding, Report, Verdict
from tosajax.compare import RoundingTable
from tosajax.quant import BitExactReport, QuantReport
from tosajax.runtime.cost import Cost, Explanation, NodeCost
from tosajax.sweep import Plan, Results
from tosajax.sweep.plan import Program

LAYERS = 300
NAME = "block/" + "<b>" * 100
CHARACTERS = 800  # of a repr
BYTES = 300_000  # of HTML


def layers() -> tosajax.Graph:
    """As many nodes, inputs and outputs, with long names, and constants of a thousand values."""
    b = Builder()
    ends = []
    for k in range(LAYERS):
        x = b.input(f"{NAME}{k}/in", DType.INT8, (1, 2))
        place = f"model.py:{k} {NAME}"
        ends.append(b.op("IDENTITY", x, name=f"{NAME}{k}/out", location=place))
    b.const(np.zeros(1000), DType.INT32, name=f"{NAME}/constant")
    return b.graph(ends)


GRAPH = layers()
TENSOR = GRAPH.input_tensors[0]
COMPARISON = tosajax.compare.Comparison(
    tuple(row(f"{NAME}{k}", operator="CONV2D", location=f"{k} {NAME}") for k in range(LAYERS)), 16
)
QROW = tosajax.quant.Row(
    *(NAME, "CONV2D", NAME * 10, "INT8", 8, 40.0, 41.0, 39.0, "channel 3", 20.0),
    *(0.1, 0.2, 0.0, 0.5, 200, 256, 20),
)
DIFFERENT = tosajax.quant.Comparison(NAME, "frozen", 100, 3, 2.0, (0, 1))
FINDING = Finding(Verdict.ERROR, "conv2d.e8", f"bias of {NAME}", f"CONV2D {NAME!r}")
COST = Cost(tuple(NodeCost(f"{NAME}{k}", "INT8[1,2]", 9, 9, "", "", "slow") for k in range(300)), 9)
QPARAMS = tosajax.quant.QParams(jnp.ones((1, 512)), jnp.float32(3), jnp.float32(8))
SCALED = {
    f"{NAME}{k}": tosajax.quant.model.plan.Scaled(tosajax.quant.QSpec()) for k in range(LAYERS)
}
MODEL = tosajax.quant.PreparedModel(GRAPH, tosajax.quant.model.plan.Plan(SCALED), float_graph=GRAPH)
NONE: Any = {}
FIT_STATE = tosajax.quant.FitState(
    jnp.int32(3), {NAME: QPARAMS}, NONE, NONE, NONE, jnp.float32(0.5), jnp.int32(0), NONE
)
CHOICES = tuple(tosajax.quant.BitChoice({"x": b}, 1e3 * b, 1 / b) for b in range(2, 2 + LAYERS))
MIXED = tosajax.quant.MixedPrecision(MODEL, {}, CHOICES[1], 0.1, CHOICES)
REMEDY = tosajax.quant.Remedy("equalize", 2.5, 31.2, 30.8, score=None, is_kept=True)
RESCUE = tosajax.quant.Rescue(MODEL, {}, tuple(SCALED), 2 * LAYERS, 0.5, 0.01)
FIT = tosajax.quant.Fit(
    NONE, FIT_STATE, tuple(tosajax.quant.FitRow(k, 0.5, None) for k in range(LAYERS)), "steps"
)
ROWS = tuple({"bits": k, "name": NAME, "accuracy": 0.5, "error": None} for k in range(LAYERS))

# Each public type that holds what was found, of so many layers.
SHOWN: dict[str, Any] = {
    "tosajax.Agreement": tosajax.Agreement("y", 0.5),
    "tosajax.Executable": tosajax.compile(GRAPH),
    "tosajax.Finding": FINDING,
    "tosajax.Graph": GRAPH,
    "tosajax.Node": GRAPH.nodes[0],
    "tosajax.Quantization": tosajax.Quantization((0.5,) * 512, axes=(0,)),
    "tosajax.Report": Report((FINDING,) * LAYERS),
    "tosajax.SavedExecutable": None,  # made of a file, below
    "tosajax.Rewrite": tosajax.Rewrite("MUL 'y'", "kept", "the shift is an input"),
    "tosajax.Source": GRAPH.source,
    "tosajax.Target": tosajax.Target.everything(),
    "tosajax.Tensor": GRAPH.tensors[f"{NAME}/constant"],
    "tosajax.compare.Comparison": COMPARISON,
    "tosajax.compare.Histogram": COMPARISON.rows[0].total.values_a,
    "tosajax.compare.Measured": COMPARISON.rows[0].total,
    "tosajax.compare.RoundingTable": RoundingTable(
        {("single", f"{NAME}{k}"): dataclasses.replace(COMPARISON, rows=()) for k in range(9)}
    ),
    "tosajax.compare.Row": COMPARISON.rows[0],
    "tosajax.compare.TFLite": tosajax.compare.tflite("model.tflite"),
    "tosajax.quant.BitExactReport": BitExactReport((DIFFERENT,) * LAYERS),
    "tosajax.quant.Comparison": DIFFERENT,
    "tosajax.quant.Fit": FIT,
    "tosajax.quant.FitRow": FIT.history[0],
    "tosajax.quant.FitState": FIT.state,
    "tosajax.quant.RelativeState": tosajax.quant.RelativeState(
        {"qparams": {NAME: QPARAMS}}, QPARAMS
    ),
    "tosajax.quant.Norm": tosajax.quant.Norm(*4 * [jnp.ones(3)]),
    "tosajax.quant.Auto": tosajax.quant.Auto(
        MODEL, {}, GRAPH, (REMEDY,) * LAYERS, {"y": (30.0, 40.0)}, tuple(SCALED), 0.05
    ),
    "tosajax.quant.Budget": tosajax.quant.Budget(),
    "tosajax.quant.Rates": tosajax.quant.Rates(32, 8, 4),
    "tosajax.quant.Remedy": REMEDY,
    "tosajax.quant.Rescue": RESCUE,
    "tosajax.quant.BitChoice": CHOICES[0],
    "tosajax.quant.MixedPrecision": MIXED,
    "tosajax.quant.Spent": tosajax.quant.Spent((1, 2), (3, 4), "ethos-u85-256"),
    "tosajax.quant.Schedule": tosajax.quant.Schedule(),
    "tosajax.quant.Observed": tosajax.quant.Observed(
        {f"{NAME}{k}": jnp.ones(9) for k in range(LAYERS)}, {}
    ),
    "tosajax.quant.LiftedModel": tosajax.quant.LiftedModel(GRAPH, MODEL.plan),
    "tosajax.quant.PreparedModel": MODEL,
    "tosajax.quant.QParams": QPARAMS,
    "tosajax.quant.QSpec": tosajax.quant.QSpec(),
    "tosajax.quant.QuantReport": QuantReport((QROW,) * LAYERS),
    "tosajax.quant.Row": QROW,
    "tosajax.sweep.Plan": Plan(
        LAYERS, 0, dict.fromkeys(range(LAYERS), NAME), {k: {"graph": NAME} for k in range(LAYERS)},
        (Program(1, {"graph": (NAME,)}),) * LAYERS, "loop", 1, 1, 1, 1, 1,
    ),
    "tosajax.sweep.Results": Results(ROWS, ("accuracy",)),
    "tosajax.sweep.Space": tosajax.sweep.grid(bits=list(range(2, 9))) * tosajax.sweep.grid(k=[1]),
    "cost": COST,
    "explain": Explanation.of(COST),
}  # fmt: skip
# Given by users, or a few numbers: nothing here grows with a graph.
GIVEN = {
    *("Builder", "DType", "Verdict", "FormatError", "TosaError", "UnsupportedError", "Variable"),
    *("Data", "Examples", "Greatest", "Grid", "Metric", "Observer", "Rule", "Sweep", "Tolerance"),
    *("OperandStorage", "QModel", "Storage", "Total", "integers", "uniform"),
}
RICH = {
    *("tosajax.Executable", "tosajax.Graph", "tosajax.Report", "tosajax.compare.Comparison"),
    *(
        "tosajax.quant.Fit",
        "tosajax.quant.LiftedModel",
        "tosajax.quant.PreparedModel",
        "tosajax.quant.QuantReport",
        "tosajax.quant.MixedPrecision",
        "tosajax.quant.Auto",
        "tosajax.quant.Rescue",
    ),
    "tosajax.sweep.Results",
    *("cost", "explain"),
}


def test_no_type_is_forgotten():
    modules = (tosajax, tosajax.compare, tosajax.quant, tosajax.sweep)
    public = {
        f"{module.__name__}.{name}"
        for module in modules
        for name in module.__all__
        if inspect.isclass(getattr(module, name)) and name not in GIVEN
    }
    assert public == {name for name in SHOWN if "." in name}
    assert {name for name, x in SHOWN.items() if hasattr(x, "_repr_html_")} == RICH


@pytest.fixture
def made(tmp_path) -> Callable[[str], Any]:
    def make(name: str) -> Any:
        if name == "tosajax.SavedExecutable":
            SHOWN["tosajax.Executable"].save(tmp_path / "a.tjx")
            return tosajax.load_executable(tmp_path / "a.tjx")
        return SHOWN[name]

    return make


@pytest.mark.parametrize("name", sorted(SHOWN.keys() - {"explain"}))
def test_reprs_are_short(name: str, made: Callable[[str], Any]):
    text = repr(made(name))
    assert len(text) <= CHARACTERS
    assert "\n" not in text
    assert not re.search(r" object at 0x", text)


class Fragment(html.parser.HTMLParser):
    """Reads HTML; every element has to end where it should."""

    def __init__(self, content: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.feed(content)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag != "wbr":  # has no end
            self.open.append(tag)
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.parametrize("name", sorted(RICH))
def test_notebooks_show_what_is_there(name: str):
    content = SHOWN[name]._repr_html_()
    assert len(content) <= BYTES
    read = Fragment(content)
    assert not {"b", "script", "svg"} & set(read.tags)
    assert read.tags.count("tr") == 1 + LAYERS
    assert read.tags.count("table") == 1
    assert "overflow:auto;max-height" in content
    assert "http" not in content
    # The colours of the notebook come before those of the system.
    for name in ("--jp-layout-color0", "--vscode-editor-background", "--colab-primary-surface"):
        assert content.index(name) < content.index("prefers-color-scheme:dark")


def test_a_notebook_has_a_summary():
    assert "<dd>300 of 300 tensors differ</dd>" in COMPARISON._repr_html_()
    graph = GRAPH._repr_html_()
    assert "<dd>301: 300 IDENTITY, 1 CONST</dd>" in graph
    assert "<dd>4,000 bytes</dd>" in graph
    assert "296 more" in graph
    report = SHOWN["tosajax.Report"]._repr_html_()
    assert "<dd>ERROR</dd>" in report
    assert "<dd>300 findings</dd>" in report
    assert "<dd>VALID</dd>" in Report((), ("PRO-INT",))._repr_html_()
    assert "<table" not in Report()._repr_html_()
    assert "<dd>300 of 8-bit INT8</dd>" in MODEL._repr_html_()
    assert "<dt>target</dt>" in SHOWN["tosajax.Executable"]._repr_html_()
    assert (
        "outputs 39.0 dB by it alone; channel 3: 20.0 dB by itself"
        in SHOWN["tosajax.quant.QuantReport"]._repr_html_()
    )
    assert "<dt>warnings</dt><dd>300</dd>" in COST._repr_html_()


def test_reprs_say_the_most_important():
    few = tosajax.compare.Comparison((row("a", EQUAL), row("b")), 7)
    assert repr(few) == (
        "Comparison(1 of 2 tensors differ, 1 beyond tolerance, 7 examples, first: RESCALE 'b')"
    )
    assert str(few).splitlines()[0].startswith("tensor ")
    assert repr(few.rows[1]).startswith("Row(RESCALE 'b', INT8, 3 of 100 elements differ, by up to")
    assert "nan" in repr(row(total=measured(math.nan, max_error=math.nan)))
    assert repr(Report()) == "Report(VALID, 0 findings)"
    assert repr(TENSOR).endswith("/in', INT8[1,2])")
    scalar = dataclasses.replace(QPARAMS, scale=jnp.float32(0.5), symmetric=True)
    assert repr(scalar) == "QParams(INT8, scale=0.5, zero_point=3, bits=8, symmetric)"
    assert "scale=float32[1, 512]" in repr(QPARAMS)


def test_an_explanation_is_text():
    found: Explanation = SHOWN["explain"]
    assert isinstance(found, str)
    assert found == str(COST)
    assert f"{found}" == str(COST)
    copies: list[Explanation] = [copy.copy(found), pickle.loads(pickle.dumps(found))]
    for copied in copies:
        assert copied == found
        assert copied._repr_html_() == COST._repr_html_()
    lines = repr(found).splitlines()
    assert len(lines) == 41
    assert lines[-1].startswith("and ")
    assert max(map(len, lines)) <= 200
    short = Explanation.of(Cost((), 0))
    assert repr(short) == str(short)


def test_a_notebook_has_no_constants_and_locations_in_words(data):
    graph = tosajax.load(data / "et_digits_cnn_a8w8" / "model.tosa")
    content = graph._repr_html_()
    assert "<td>CONST" not in content
    assert "<dd>100: 74 CONST, 13 RESCALE" in content.replace("<wbr>", "")
    assert "<td>et_models.py:22 x = F.relu(s.b1(s.c1(x))) [c1]</td>" in content
    assert "torch_info" not in content
    assert "<td>tosa_rescale_default_2, tosa_rescale_default_5</td>" in content  # of ADD
    row = next(part for part in content.split("<tr>") if "<td>CONV2D</td>" in part)
    assert "<td>tosa_rescale_default_3</td>" in row  # not its weights and zero points
