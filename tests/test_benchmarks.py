"""The benchmarks measure the same work, notice wrong outputs, and report their findings."""

from __future__ import annotations

import argparse
import copy
import dataclasses
import functools
import importlib.util
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from paths import ROOT

import tosajax

sys.path.insert(0, str(ROOT))

from benchmarks import (
    child,
    contenders,
    float_jax,
    machine,
    networks,
    operators,
    ours,
    plain,
    report,
    run,
    setting,
    targets,
    timing,
    tosa_form,
    works,
)
from benchmarks.layers import Network
from benchmarks.peers import litert, ort
from benchmarks.results import Measured, Measurement, Results
from benchmarks.work import Disagreement, Work
from benchmarks.zoo import report as zoo_report
from tosajax.spec import ResizeMode

BATCH = 3
FLOATS = tosajax.Target(profiles=frozenset({"PRO-FP"}), extensions=frozenset())
INTEGERS = tosajax.Target(profiles=frozenset({"PRO-INT"}), extensions=frozenset())


@pytest.fixture(scope="module")
def tiny() -> dict[str, Network]:
    return {
        "resnet8": networks.resnet8(8),
        "mobilenet": networks.mobilenet(16, ((16, 1), (32, 2))),
        "residual": networks.residual(1, size=6, channels=4),
        "transformer": networks.transformer(6, 2, 8),
    }


@pytest.fixture(scope="module")
def outputs_of(tiny) -> Callable[[str], tuple[Work, list[np.ndarray]]]:
    """By name of a network: the work with every int8 tensor as an output, and our outputs."""

    @functools.cache
    def compute(name: str) -> tuple[Work, list[np.ndarray]]:
        work = all_values(works.network_work(tiny[name], name, BATCH))
        return work, [np.asarray(y) for y in ours.prepare(work)()]

    return compute


TINY = ("resnet8", "mobilenet", "residual", "transformer")


def all_values(work: Work) -> Work:
    """The work with every int8 tensor as an output."""
    tensors = work.graph.tensors
    names = [
        name
        for node in work.graph.nodes
        for name in node.outputs
        if node.inputs and tensors[name].dtype is tosajax.DType.INT8
    ]
    graph = dataclasses.replace(work.graph, outputs=tuple(names))
    return dataclasses.replace(work, graph=graph)


# Generated networks.


@pytest.mark.parametrize("name", TINY)
def test_network_is_legal_and_plain_agrees(outputs_of, name):
    work, found = outputs_of(name)
    assert not tosajax.validate(work.whole_graph, INTEGERS).findings
    for values, wanted in zip(found, plain.prepare(work)(), strict=True):
        np.testing.assert_array_equal(values, wanted)
    for name, values in zip(work.graph.outputs, found, strict=True):
        assert (values == 127).mean() < 0.2, f"{name} saturates"
        assert values.size < 500 or len(np.unique(values)) > 40, f"{name} is all but constant"


@pytest.mark.parametrize("name", TINY)
def test_float_network_is_the_same_network(outputs_of, name):
    work, outputs = outputs_of(name)
    (real,) = float_jax.reals(work, outputs[-1:])
    (found,) = float_jax.prepare(work)()
    assert np.corrcoef(real.ravel(), np.asarray(found).ravel())[0, 1] > 0.98


@pytest.mark.parametrize("name", TINY)
def test_float_form_as_a_graph(tiny, name):
    work = works.network_work(tiny[name], f"{name}-f32", BATCH, is_float=True)
    assert not tosajax.validate(work.whole_graph, FLOATS).findings
    (found,) = ours.prepare(work)()
    (wanted,) = float_jax.prepare(work)()
    scale = np.abs(np.asarray(wanted)).max()
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5 * scale)


def test_depthwise_forms_are_one(tiny):
    work = works.network_work(tiny["mobilenet"], "mobilenet", BATCH)
    shifted, grouped = (float_jax.prepare(work, grouped=g)()[0] for g in (False, True))
    np.testing.assert_allclose(shifted, grouped, rtol=1e-4, atol=1e-5)


def test_zero_points_are_not_zero(tiny):
    for network in tiny.values():
        assert all(quant.zero_point for quant in network.quants)
        rectified = [layer for layer in network.layers if getattr(layer, "relu", False)]
        assert all(layer.out.zero_point == -128 for layer in rectified)


def test_macs():
    int8 = tosajax.DType.INT8
    for work, macs in (
        (works.network_work(networks.resnet8(), "resnet8", 2), 2 * 12_501_632),
        (operators.matmul("matmul", 2, 3, 5), 2 * 3 * 5),
        (operators.conv("conv", (1, 6, 6, 2), 5, (3, 3), stride=2), 3 * 3 * 5 * 9 * 2),
        (operators.conv("conv3d", (1, 2, 3, 4, 5), 6, (1, 3, 3)), 2 * 3 * 4 * 6 * 9 * 5),
        (operators.depthwise("depthwise", (2, 4, 5, 3), 3), 2 * 4 * 5 * 3 * 9),
        (operators.transpose_conv("transpose", (1, 4, 5, 2), 3, 4, 2), 4 * 5 * 2 * 3 * 16),
        (operators.table("table", (4,), int8), 0),
    ):
        assert work.macs == macs, work.name


@pytest.mark.parametrize("scale", [1.0, 0.75, 2.0**-30, 1 - 2.0**-40, 100.0])
def test_multiplier(scale):
    multiplier, shift = tosa_form.multiplier_of(scale)
    assert 1 << 30 <= multiplier < 1 << 31
    assert 2 <= shift <= 62
    assert abs(multiplier / 2**shift - scale) <= scale * 2.0**-31


def test_plain_operators_agree():
    """Each kernel that no network uses."""
    nearest, bilinear = ResizeMode
    int16 = tosajax.DType.INT16
    shape = (2, 6, 5, 3)
    for work in (
        operators.conv("conv3d", (1, 3, 4, 5, 2), 3, (3, 1, 3)),
        operators.conv("stride", (1, 6, 6, 3), 3, (3, 3), stride=2, dtype=int16),
        operators.transpose_conv("transpose", shape, 4, 3, 2),
        operators.pool("max", "MAX_POOL2D", shape, 3, 1),
        operators.pool("avg", "AVG_POOL2D", shape, 3, 1),
        operators.table("table", shape, int16),
        operators.resize("nearest", shape, 2, nearest),
        operators.resize("bilinear", shape, 3, bilinear),
        operators.reduction("argmax", "ARGMAX", shape, tosajax.DType.INT8),
    ):
        for found, wanted in zip(ours.prepare(work)(), plain.prepare(work)(), strict=True):
            np.testing.assert_array_equal(np.asarray(found), np.asarray(wanted), work.name)


# Contenders.


def exact_contender() -> contenders.Contender:
    return next(c for c in contenders.everyone() if c.name == "plain")


def test_one_wrong_bit_is_a_disagreement():
    work = operators.matmul("product", 2, 8, 3)
    (wanted,) = (np.asarray(y) for y in ours.prepare(work)())
    assert contenders.agreement(work, exact_contender(), [wanted], [wanted]) == "same bits"
    wrong = wanted.copy()
    wrong[0, 1, 2] ^= 1
    with pytest.raises(Disagreement, match=r"plain and tosajax differ in 1 of 6 .*\(0, 1, 2\)"):
        contenders.agreement(work, exact_contender(), [wrong], [wanted])


def test_other_shape_is_a_disagreement():
    work = operators.matmul("product", 2, 8, 3)
    (wanted,) = (np.asarray(y) for y in ours.prepare(work)())
    with pytest.raises(Disagreement, match="shape"):
        contenders.agreement(work, exact_contender(), [wanted[:, :1]], [wanted])


def test_examples_that_run_alone_are_compared_as_a_batch():
    x, table = np.arange(6, dtype=np.int8).reshape(3, 2), np.arange(-128, 128)
    builder = tosajax.Builder()
    source = builder.input("x", tosajax.DType.INT8, (1, 2))
    y = builder.op("TABLE", source, builder.const(table, tosajax.DType.INT8))
    work = Work("alone", "files", builder.graph([y]), (x,), batch=3)
    (wanted,) = (np.asarray(y) for y in ours.prepare(work)())
    found = plain.prepare(work)()
    assert found[0].shape != wanted.shape
    assert contenders.agreement(work, exact_contender(), found, [wanted]) == "same bits"


def test_closeness_is_relative():
    work = operators.depthwise("floats", (1, 4, 4, 2), 3, dtype=tosajax.DType.FP32)
    (wanted,) = (np.asarray(y) for y in ours.prepare(work)())
    found = contenders.agreement(work, exact_contender(), [wanted[0] * 1.25], [wanted])
    assert found == "error 2.5e-01"


def test_disagreement_ends_the_run(monkeypatch, capsys):
    wrong = contenders.Contender(
        "plain", lambda _: lambda: (np.zeros((1, 1, 1000), np.int32),), contenders.Kind.EXACT
    )
    first = contenders.everyone()[0]
    monkeypatch.setattr(contenders, "everyone", lambda: [first, wrong])
    monkeypatch.setattr(machine, "limits", dict)
    assert run.main(["--quick", "--only", "matmul-m1"]) == 3
    assert "plain and tosajax differ" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["resnet8", "mobilenet", "residual"])
@pytest.mark.parametrize(
    ("module", "prepare"),
    [
        ("ai_edge_litert", lambda work: litert.prepare(work, threads=1)),
        ("onnxruntime", ort.prepare),
    ],
    ids=["litert", "onnxruntime"],
)
def test_peers_run_the_same_network(outputs_of, name, module, prepare):
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is not installed")
    work, outputs = outputs_of(name)
    wanted = outputs[-1].astype(np.int32)
    (found,) = (np.asarray(y, np.int32) for y in prepare(work)())
    assert found.shape == wanted.shape
    assert np.abs(found - wanted).max() <= 4


def test_works_that_are_not_there():
    with pytest.raises(ValueError, match="no work is named 'conv-9x9'; there are matmul-1024"):
        works.select(quick=False, only=["conv-9x9"])
    assert set(works.select(quick=True, only=())) < set(works.everything())
    assert set(works.select(quick=True, only=["table-*"])) == {"table-int8", "table-int16"}


def test_accelerators_have_larger_works(monkeypatch):
    before = set(works.everything())
    monkeypatch.setattr(works.jax, "default_backend", lambda: "gpu")
    assert set(works.everything()) - before == {
        "matmul-8192",
        "resnet8-b4096",
        "mobilenet-b4096",
    }
    assert "JAX bf16" in {c.name for c in contenders.everyone()}


@pytest.mark.parametrize("name", ["resnet8-b1", "matmul-256"])
def test_bfloat16_is_near(name):
    work = works.select(quick=False, only=[name])[name]()
    (found,) = float_jax.prepare(work, dtype=jnp.bfloat16)()
    assert found.dtype in (jnp.bfloat16, np.float32)
    (exact,) = ours.prepare(work)()
    (wanted,) = float_jax.reals(work, [exact])
    error = np.asarray(found, np.float64).reshape(wanted.shape) - wanted
    assert np.linalg.norm(error) < 0.05 * np.linalg.norm(wanted)


# Times.


def test_slow_contenders_have_fewer_rounds():
    effort = timing.Effort(rounds=6, visit=0.002, budget=0.01)
    runs = {"quick": lambda: (), "slow": lambda: (time.sleep(0.005),)}
    samples = timing.measure(runs, effort)
    assert len(samples["quick"]) == 6
    assert len(samples["slow"]) == 3
    found = timing.summary(samples["slow"], samples["quick"])
    low, middle, high = found["ratio"]
    assert 1 < low <= middle <= high
    assert found["rounds"] == 3


def test_ratios_are_of_one_round():
    slow = [timing.Sample(wall, 1.0) for wall in (2.0, 40.0, 6.0)]
    first = [timing.Sample(wall, 0.5) for wall in (1.0, 10.0, 2.0, 99.0)]
    found = timing.summary(slow, first)
    assert found["ratio"] == [2.5, 3.0, 3.5]
    assert found["seconds"] == 6.0
    assert found["cpu_ratio"] == 2.0


def test_another_setting_compiles_nothing(tiny):
    found = setting.measure(tiny["residual"])
    assert found["compilations_first"] >= 1
    assert found["compilations_more"] == 0
    assert found["changed"]


# Targets and the page.


def timed(seconds: float) -> Measured:
    return {
        "seconds": seconds,
        "ratio": [seconds * 0.9, seconds, seconds * 1.1],
        "cpu_ratio": 1.0,
        "rounds": 5,
        "compile": 1.0,
        "agreement": "same bits",
    }


@pytest.fixture
def results() -> Results:
    """Results that meet every target, ours taking 1 s."""
    peers = {"JAX f32": 9.0, "IREE": 9.0, "Arm": 300.0, "LiteRT 2 threads": 2.0, "onnxruntime": 2.0}
    networks = [f"{name}-b{count}" for name in ("resnet8", "mobilenet") for count in (1, 32, 256)]
    names = [*networks, "matmul-1024"]
    work: Measurement = {
        "group": "networks",
        "batch": 32,
        "macs": 64,
        "bytes": 32,
        "is_exact": True,
        "left_out": {},
        "contenders": {"tosajax": timed(1.0)} | {n: timed(s) for n, s in peers.items()},
    }
    found = {name: copy.deepcopy(work) for name in names}
    for count in (17, 65):
        found[f"residual-{count}-b8"] = {**work, "contenders": {"tosajax": timed(count * 1e-3)}}
    floats = {"tosajax": 1.0, "JAX f32": 1.0, "JAX f32, XLA depthwise": 5.0}
    for name in ("resnet8-f32-b32", "mobilenet-f32-b32"):
        found[name] = {**work, "contenders": {n: timed(s) for n, s in floats.items()}}
    return {
        "date": "2026-01-02",
        "quick": False,
        "interrupted": False,
        "missing": [],
        "left_out": {},
        "machine": {
            "cpu": "A processor",
            "cores": 2,
            "flags": ["avx2"],
            "memory_gib": 4.0,
            "system": "Linux",
            "python": "3.11",
            "backend": "cpu",
            "packages": {"jax": "1"},
        },
        "limits": {"int8": 1e12, "float32": 1e11, "copy": 1e10},
        "works": found,
        "sweep": {
            "compilations_first": 1,
            "compilations_more": 0,
            "seconds_first": 1.0,
            "seconds_more": 0.1,
            "changed": True,
        },
        "starts": {"resnet8-b32": {"tosajax": {"seconds": 2.0, "peak_mib": 300.0}}},
    }


def status_of(results: Results, tmp_path: Path) -> int:
    path = tmp_path / "results.json"
    path.write_text(json.dumps(results))
    return run.main(["--check", "--from", str(path), "-o", str(tmp_path / "page.md")])


@pytest.mark.parametrize("kind", targets.KINDS)
def test_targets_met(results, tmp_path, kind):
    flags = {"AVX2": [], "VNNI": ["avx512_vnni"], "AMX": ["avx512_vnni", "amx_int8"]}
    results["machine"]["flags"] += flags[kind]
    assert machine.kind(results["machine"]) == kind
    assert status_of(results, tmp_path) == 0
    assert {v.status for v in targets.judge(results)} == {targets.Status.PASS}
    results["works"]["resnet8-b32"]["contenders"]["LiteRT 2 threads"] = timed(1.1)
    assert status_of(results, tmp_path) == (0 if kind == "AMX" else 1)


def test_target_missed(results, tmp_path, capsys):
    results["works"]["resnet8-b32"]["contenders"]["JAX f32"] = timed(2.19)
    results["works"]["matmul-1024"]["contenders"].pop("onnxruntime")
    assert status_of(results, tmp_path) == 1
    lines = capsys.readouterr().out.splitlines()
    (missed,) = (line for line in lines if line.startswith("miss"))
    assert "resnet8-b32 against JAX f32: 2.19 x, wanted at least 2.2 x" in missed


def test_peer_that_is_not_installed(results, tmp_path, capsys):
    for work in results["works"].values():
        work["contenders"].pop("IREE", None)
    assert status_of(results, tmp_path) == 2
    assert capsys.readouterr().out.count("not measured") == 2


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (lambda r: r["sweep"].update(compilations_more=1), "one more setting of a sweep"),
        (lambda r: _deep(r).update(compile=1.6), "residual-65-b8, compiled"),
        (lambda r: _deep(r).update(seconds=0.1), "a convolution of residual-65 against one"),
    ],
    ids=["sweep", "compile", "depth"],
)
def test_limits_from_above(results, change, name):
    change(results)
    (missed,) = (v for v in targets.judge(results) if v.status is targets.Status.MISS)
    assert missed.target.name.startswith(name)


def _deep(results: Results) -> Measured:
    results["works"]["residual-65-b8"]["contenders"]["tosajax"] = timed(65e-3)
    return results["works"]["residual-65-b8"]["contenders"]["tosajax"]


def page_of(results: Results) -> str:
    return report.page(results, {"AVX2": report.judged(results)})


def test_page_follows_from_results(results):
    page = page_of(results)
    assert page == page_of(json.loads(json.dumps(results)))
    assert "- kind, by the fastest products of int8: AVX2" in page
    assert "| resnet8-b32 | tosajax | 1 s | 32/s | 0.0% of dot |" in page
    assert "- AVX2: A processor, 2 cores, 2026-01-02" in page
    assert "| resnet8-b32 against JAX f32 | 9.00 x, at least 2.2 x: pass |" in page
    assert "9.00 (8.10-9.90)" in page


def test_other_kinds_stay_on_the_page(results, tmp_path):
    page = tmp_path / "page.md"
    assert status_of(results, tmp_path) == 0
    results["machine"]["flags"] += ["avx512_vnni"]
    results["works"]["resnet8-b32"]["contenders"]["LiteRT 2 threads"] = timed(1.1)
    results["date"] = "2026-07-02"
    assert status_of(results, tmp_path) == 1
    text = page.read_text()
    assert "- VNNI: A processor, 2 cores, 2026-07-02" in text
    assert "| target | AVX2 | VNNI |" in text
    both = "2.00 x, at least 1.2 x: pass | 1.10 x, at least 1.2 x: miss"
    assert f"| resnet8-b32 against LiteRT 2 threads | {both} |" in text


@pytest.mark.parametrize("option", ["--json", "--from"])
def test_results_are_not_what_a_page_keeps_of_others(option, tmp_path, capsys):
    kept = tmp_path / "page.json"
    with pytest.raises(SystemExit):
        run.main(["-o", str(tmp_path / "page.md"), option, str(kept)])
    assert f"{kept} has the targets of each kind of processor" in capsys.readouterr().err
    assert not kept.exists()


def test_page_of_nothing(results):
    results.update(works={}, sweep=None, starts={}, limits={}, interrupted=True)
    page = page_of(results)
    assert "interrupted" in page
    assert page.count("not measured") == len(targets.of_kind("AVX2"))


def test_machine_is_described_and_not_named():
    text = json.dumps(machine.describe())
    assert "cores" in text
    assert str(ROOT) not in text


# The program.


def test_interrupted_run_keeps_what_it_has(monkeypatch, tmp_path):
    measured: list[str] = []

    def measure(work: Work, effort: timing.Effort) -> dict[str, Any]:
        measured.append(work.name)
        if len(measured) == 2:
            raise KeyboardInterrupt
        return {"group": work.group, "contenders": {}, "left_out": {}}

    monkeypatch.setattr(run, "measure", measure)
    monkeypatch.setattr(machine, "limits", dict)
    path = tmp_path / "results.json"
    options = argparse.Namespace(quick=True, only=["matmul-m1", "argmax"], json=path)
    assert run.collect(options)["interrupted"]
    stored = json.loads(path.read_text())
    assert list(stored["works"]) == ["matmul-m1"]
    assert stored["interrupted"]
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("message", "line"),
    [
        (f"{ROOT}/tests/data/a/model.tosa: region 'main': no such operator", "model.tosa: region"),
        ("cannot read '/srv/some where/x/model.tosa'", "cannot read '"),
        ("two: /a/b/c.npy and /d/e.npy", "two: c.npy and e.npy"),
        (
            "a ratio of 3/4, input/output, https://host/path/x",
            "a ratio of 3/4, input/output, https",
        ),
        ("\n\nsecond line", "second line"),
    ],
)
def test_reasons_name_no_folder_of_the_machine(message, line):
    found = run._line(ValueError(message))
    assert found.startswith(line)
    assert str(ROOT) not in found
    assert "/srv" not in found
    assert ("https" not in message) or found == message


def test_the_page_names_no_folder_of_a_machine():
    page = (ROOT / "docs" / "performance.md").read_text()
    assert run._FOLDERS.findall(page) == []


def test_child_measures_a_start(tiny):
    found = child.measure(tiny["residual"], 2, [ours.FIRST])
    assert list(found) == [child.NOTHING, ours.FIRST]
    assert found[ours.FIRST]["seconds"] > 0


def test_program(tmp_path):
    files = ["--json", str(tmp_path / "r.json"), "-o", str(tmp_path / "p.md")]
    command = [sys.executable, "-m", "benchmarks.run", "--quick", "--check", *files]
    done = subprocess.run(
        [*command, "--only", "matmul-m1"], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.returncode == 2, done.stderr  # no target was measured
    results = json.loads((tmp_path / "r.json").read_text())
    assert results["works"]["matmul-m1"]["contenders"]["plain"]["agreement"] == "same bits"
    runs = json.loads((tmp_path / "p.json").read_text())
    assert (tmp_path / "p.md").read_text() == report.page(results, runs)


def test_page_of_networks_of_others():
    ratio = {"ratio": [0.9, 1.25, 1.3]}
    row = {
        "is_float": True, "products": 3, "native": 2, "error of outputs": [2e-6],
        "batch 1": {"tosajax": {"seconds": 0.002}, "peer": ratio},
    }  # fmt: skip
    rows = {"a.tflite": row, "b.onnx": {"error": "no such operator"}}
    verdicts = zoo_report.judge(rows)
    text = zoo_report.page(rows, [1], verdicts)
    assert "| a.tflite | float | error 2e-06 | 2/3 | 2 ms | 1.25 (0.90-1.30) |" in text
    assert "\nb.onnx: no such operator\n" in text
    assert "| networks that failed | 1.00 , at most 0 : miss |" in text
    assert "| floats, 1 image, mean | 1.25 x, at least 1 x: pass |" in text
    assert "| integers, 1 image, mean | not measured |" in text
