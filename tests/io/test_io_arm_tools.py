"""Arm's tools and ours read the same graphs from the same files, and from files that we write."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from paths import CORPUS, DATA, SAMPLES

from tosajax import dtypes, io, spec
from tosajax.dtypes import DType
from tosajax.graph import Graph, Node, Tensor
from tosajax.io import schema

_LARGEST = 60_000  # bytes; Arm's binding gives data as lists of integers
_MXFP = "et_digits_vit_mxfp8_e4m3"  # of TOSA 1.1


def _models() -> list[Path]:
    found = [*DATA.glob("*/*.tosa"), *CORPUS.glob("*/*.tosa")]
    small = (p for p in found if p.parent.name != _MXFP and p.stat().st_size < _LARGEST)
    # The corpus has all models of tests/data again.
    return sorted({(p.parent.name, p.name): p for p in small}.values())


_MODELS = _models() or [
    pytest.param(None, marks=pytest.mark.skip(reason="no models in tests/data or the corpus"))
]


def _python(script: str, *arguments: object) -> str:
    """Runs Arm's bindings in a process of their own, which they may crash."""
    command = [sys.executable, "-c", script, *map(str, arguments)]
    environment = {**os.environ, "TOSA_MODEL_NO_BACKTRACE": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


# Read by tosa_serializer.

_DUMP = """
import json, sys
import tosa_serializer as ts

def plain(value):
    if isinstance(value, (str, bool)):
        return value
    return [int(v) for v in value] if hasattr(value, "__iter__") else int(value)

serializer = ts.TosaSerializer("")
assert serializer.loadTosaFlatbuffer(sys.argv[1])
wanted = json.loads(sys.argv[2])
regions = []
for region in serializer.regions:
    (block,) = region.basicBlocks
    tensors = [block.tensors[name] for name in block.tensors]
    shapes = [block.shapes[name] for name in block.shapes]
    regions.append(dict(
        name=region.name,
        inputs=list(block.inputs),
        outputs=list(block.outputs),
        tensors={t.name: [list(t.shape), t.dtype.name, list(t.data or [])] for t in tensors},
        shapes={s.name: [s.rank, list(s.data or [])] for s in shapes},
        operators=[
            [o.op.name, list(o.inputs), list(o.outputs),
             {n: plain(getattr(o.attributes, n)) for n in wanted.get(o.op.name, [])}]
            for o in block.operators
        ],
    ))
print(json.dumps(regions))
"""


def _arm_reads(path: Path) -> list[dict[str, Any]]:
    names = {o.name: [a.name for a in schema.file_attributes(o)] for o in spec.OPERATORS.values()}
    return json.loads(_python(_DUMP, path, json.dumps(names)).splitlines()[-1])


def _number(value: Any, argument: spec.Argument, dtype: DType) -> Any:
    """An attribute of a graph as Arm's binding gives it."""
    if isinstance(argument.dtype, str) and argument.form is spec.Form.SCALAR:
        return list(dtypes.pack(np.asarray([value]), dtype))
    if isinstance(value, DType):
        return schema.DTYPE.numbers[value.name]
    return list(value) if isinstance(value, tuple | bytes) else value


def _compare(graph: Graph, region: dict[str, Any]) -> None:
    assert list(graph.inputs) == region["inputs"]
    assert list(graph.outputs) == region["outputs"]
    assert graph.tensors.keys() == region["tensors"].keys() | region["shapes"].keys()
    for name, (shape, dtype, data) in region["tensors"].items():
        tensor = graph.tensors[name]
        assert (list(tensor.shape or ()), tensor.dtype.name) == (shape, dtype)
        _compare_data(tensor, data)
    for name, (rank, data) in region["shapes"].items():
        assert (graph.tensors[name].shape, graph.tensors[name].dtype) == ((rank,), DType.SHAPE)
        _compare_data(graph.tensors[name], data)
    assert len(graph.nodes) == len(region["operators"])
    for node, (op, inputs, outputs, attributes) in zip(
        graph.nodes, region["operators"], strict=True
    ):
        assert (node.op, list(node.inputs), list(node.outputs)) == (op, inputs, outputs)
        dtype = graph.tensors[(*node.inputs, *node.outputs)[0]].dtype
        stated = schema.file_attributes(spec.OPERATORS[op])
        ours = {a.name: _number(node.attributes[a.name], a, dtype) for a in stated}
        for name, value in attributes.items():
            assert value[: len(ours[name])] == ours[name] if isinstance(value, list) else True
            assert isinstance(value, list) or value == ours[name], name


def _compare_data(tensor, data: list[int]) -> None:
    packed = [] if tensor.values is None else list(dtypes.pack(tensor.values, tensor.dtype))
    assert data[: len(packed)] == packed
    assert not any(data[len(packed) :])


def _ours(path: Path, folder: Path) -> Path:
    """A file that we wrote of what we read in another."""
    written = folder / "written.tosa"
    io.save(io.load(path), written)
    return written


@pytest.mark.parametrize("path", _MODELS, ids=lambda p: f"{p.parent.name}-{p.stem}")
def test_serializer_reads_the_same(path, tosa_tools, tmp_path):
    graph = io.load(path)
    for file in (path, _ours(path, tmp_path)):
        (region,) = _arm_reads(file)
        _compare(graph, region)


# Read by tosa-opt.


@pytest.fixture(scope="module")
def deserialized(tosa_tools, tmp_path_factory) -> Callable[[Path], str]:
    """The MLIR text that tosa-opt makes of a file, without its version."""
    empty = tmp_path_factory.mktemp("mlir") / "empty.mlir"
    empty.write_text("module {}")
    opt, fbs = tosa_tools("bin/tosa-opt"), tosa_tools("bin/tosa.fbs")

    def run(path: Path) -> str:
        options = f"tosa-flatbuffer-filename={path}"
        name = "--tosa-deserialize"
        if path.suffix == ".json":
            name, options = f"{name}-json", f"{options} tosa-flatbuffer-schema={fbs}"
        command = [str(opt), f"{name}={options}", str(empty)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
        lines = [
            line
            for line in done.stdout.strip().splitlines()
            if not line.startswith(("WARNING:", "INFO:"))
        ]
        assert lines[0].startswith("module")
        return "\n".join(lines[1:]).strip()

    return run


@pytest.mark.parametrize("path", _MODELS, ids=lambda p: f"{p.parent.name}-{p.stem}")
def test_optimizer_reads_the_same(path, deserialized, tmp_path):
    text = deserialized(path)
    assert deserialized(_ours(path, tmp_path)) == text
    io.save(io.load(path), tmp_path / "written.json")
    assert deserialized(tmp_path / "written.json") == text


def _unpadded(regions: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Regions by name, all lists without zeros at their end: data and CLAMP's bounds are padded."""

    def strip(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: strip(v) for k, v in value.items()}
        if isinstance(value, list):
            kept = len(value)
            while kept and value[kept - 1] == 0:
                kept -= 1
            return [strip(v) for v in value[:kept]]
        return value

    return {region["name"]: strip(region) for region in regions}


@pytest.mark.parametrize("form", ["tosa", "json"])
@pytest.mark.parametrize("name", ["allops", "extra"])
def test_optimizers_own_files_of_all_operators(name, form, tosa_tools, tmp_path):
    """Nearly all operators, control flow and a variable, as tosa-opt writes them."""
    source = SAMPLES / f"{name}.mlir"
    if not source.exists():
        pytest.skip(f"no sample {source}")
    opt, fbs = tosa_tools("bin/tosa-opt"), tosa_tools("bin/tosa.fbs")
    target = "--tosa-attach-target=specification_version=1.0 profiles=pro_int,pro_fp"
    outputs = {end: tmp_path / f"{name}.{end}" for end in ("tosa", "json")}
    more = {"tosa": "", "json": f" tosa-flatbuffer-schema={fbs}"}
    for end, kind in (("tosa", ""), ("json", "-json")):
        options = f"tosa-flatbuffer-filename={outputs[end]}{more[end]}"
        command = [opt, source, "-o", os.devnull, target, f"--tosa-serialize{kind}={options}"]
        subprocess.run(command, check=True, capture_output=True)
    graph = io.load(outputs[form])
    assert (graph.source.version, graph.source.producer) == ("1.0.0", "2026.8.0")
    wanted = _unpadded(_arm_reads(outputs["tosa"]))
    assert _unpadded(_arm_reads(_ours(outputs[form], tmp_path))) == wanted


def test_flatc_reads_our_json(small_graph, tosa_tools, tmp_path):
    io.save(small_graph, tmp_path / "graph.json")
    flatc, fbs = tosa_tools("bin/flatc"), tosa_tools("bin/tosa.fbs")
    subprocess.run([flatc, "-b", "-o", tmp_path, fbs, tmp_path / "graph.json"], check=True)
    assert io.load(tmp_path / "graph.tosa") == small_graph


def test_flatc_writes_json_we_read(small_graph, tosa_tools, tmp_path):
    io.save(small_graph, tmp_path / "graph.tosa")
    flatc, fbs = tosa_tools("bin/flatc"), tosa_tools("bin/tosa.fbs")
    form = ["--json", "--strict-json", "--raw-binary"]
    command = [flatc, *form, "-o", tmp_path, fbs, "--", tmp_path / "graph.tosa"]
    subprocess.run(command, check=True)
    assert io.load(tmp_path / "graph.json") == small_graph


# Computed by the reference model.

_RUN = """
import sys
import numpy as np
import tosa_reference_model as model

inputs = [a.view(sys.argv[4]) if sys.argv[4] != "-" else a for a in map(np.load, sys.argv[5:])]
outputs, status = model.run(open(sys.argv[1], "rb").read(), inputs)
assert status == model.GraphStatus.TOSA_VALID, status
for index, output in enumerate(outputs):
    np.save(f"{sys.argv[2]}/{sys.argv[3]}_{index}.npy", np.atleast_1d(output).view(np.uint8))
"""


def _runs(path: Path, inputs: list[Path], form: str, folder: Path, name: str) -> list[np.ndarray]:
    _python(_RUN, path, folder, name, form, *inputs)
    return [np.load(p) for p in sorted(folder.glob(f"{name}_*.npy"))]


@pytest.mark.parametrize("path", _MODELS, ids=lambda p: f"{p.parent.name}-{p.stem}")
def test_reference_model_computes_the_same(path, tosa_tools, tmp_path):
    graph = io.load(path)
    stacked = sorted(path.parent.glob("inputs_*.npy"))
    if graph.is_dynamic or len(stacked) != len(graph.inputs):
        pytest.skip("the model has a dynamic dimension, or comes without inputs")
    inputs = []
    for file, tensor in zip(stacked, graph.input_tensors, strict=True):
        case = np.load(file)[0]
        inputs.append(tmp_path / file.name)
        np.save(inputs[-1], case.reshape(tensor.shape))
    form = "V2" if any(t.dtype is DType.BF16 for t in graph.input_tensors) else "-"
    wanted = _runs(path, inputs, form, tmp_path, "theirs")
    found = _runs(_ours(path, tmp_path), inputs, form, tmp_path, "ours")
    assert len(wanted) == len(found) == len(graph.outputs)
    for theirs, ours in zip(wanted, found, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_reference_model_runs_variables(small_graph, tosa_tools, tmp_path):
    """Reads before writes: the first run returns the initial value where the flag is not set."""
    flag = dataclasses.replace(small_graph.tensors["flag"], values=np.array([False]))
    rest = ("MAXIMUM", "CLAMP", "CUSTOM")  # none of them for int8 in Arm's model, or custom
    nodes = [n for n in small_graph.nodes if n.op not in rest]
    nodes = [
        dataclasses.replace(n, inputs=tuple("x" if i == "clamped" else i for i in n.inputs))
        for n in nodes
    ]
    kept = {t for n in nodes for t in (*n.inputs, *n.outputs)}
    tensors = {n: t for n, t in small_graph.tensors.items() if n in kept} | {"flag": flag}
    graph = dataclasses.replace(small_graph, tensors=tensors, nodes=tuple(nodes), outputs=("y",))
    io.save(graph, tmp_path / "graph.tosa")
    np.save(tmp_path / "x.npy", np.full((2, 3), 3, np.int8))
    (found,) = _runs(tmp_path / "graph.tosa", [tmp_path / "x.npy"], "-", tmp_path, "out")
    np.testing.assert_array_equal(found.view(np.int8), [7] * 6)


_PACKED = [d for d in DType if d not in (DType.SHAPE, DType.BOOL)]


@pytest.mark.parametrize("dtype", _PACKED, ids=lambda d: d.name)
def test_constants_of_every_type(dtype, deserialized, tmp_path):
    """Arm's tools unpack what we pack, at sizes that leave padding."""
    values = np.array([-1, 2, -3, 1, 0], np.float32).astype(dtype.storage)
    graph = Graph((), ("c",), {"c": Tensor("c", dtype, (5,), values)}, (Node("CONST", (), ("c",)),))
    io.save(graph, tmp_path / "graph.tosa")
    text = deserialized(tmp_path / "graph.tosa")
    wanted = np.array([-1, 2, -3, 1, 0], np.float64)
    shown = text[text.index("dense<[") + 7 : text.index("]>")].split(", ")
    np.testing.assert_array_equal([float(v) for v in shown], wanted)
