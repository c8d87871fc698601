"""The benchmark of network files: what it finds, compares, times and judges."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from paths import ROOT

sys.path.insert(0, str(ROOT))

import tosajax
from benchmarks import targets
from benchmarks.targets import Status
from benchmarks.zoo import __main__ as command
from benchmarks.zoo import files, peers, report, worker
from tosajax import Builder, DType, Graph


def network(dtype: DType = DType.INT8, *, weight: int = 3) -> Graph:
    """A convolution of single pixels, and a sum."""
    b = Builder()
    x, other = b.input("x", dtype, (1, 2, 2, 6)), b.input("other", dtype, (1, 2, 2, 4))
    acc = DType.INT32 if dtype is DType.INT8 else dtype
    zero = b.const([0], dtype)
    sizes = {"pad": [0] * 4, "stride": [1, 1], "dilation": [1, 1], "acc_type": acc}
    values = b.const(np.full((4, 1, 1, 6), weight), dtype), b.const(np.arange(4), acc)
    y = b.op("CONV2D", x, *values, zero, zero, **sizes)
    if dtype is DType.INT8:
        other = b.op("CAST", other, dtype=DType.INT32)
    return b.graph([b.op("ADD", y, other, name="y")])


def test_files_of_a_folder(tmp_path: Path):
    for name in ("b.tosa", "a.tflite", "README.md"):
        (tmp_path / name).touch()
    assert files.find([tmp_path]) == [tmp_path / "a.tflite", tmp_path / "b.tosa"]
    assert files.find([tmp_path / "README.md"]) == [tmp_path / "README.md"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match=r"empty has no file that ends in \.tflite, "):
        files.find([tmp_path / "empty"])
    with pytest.raises(FileNotFoundError, match="none is not there"):
        files.find([tmp_path / "none"])


def test_open_dimensions_are_closed(tmp_path: Path):
    b = Builder()
    x = b.input("x", DType.INT8, (-1, 3))
    tosajax.save(b.graph([b.op("REVERSE", x, axis=1)]), tmp_path / "open.mlir")
    assert files.load(tmp_path / "open.mlir").input_tensors[0].shape == (1, 3)


def test_examples():
    b = Builder()
    kinds = DType.INT8, DType.FP32, DType.FP16, DType.BOOL
    inputs = [b.input(kind.name, kind, (1, 50)) for kind in kinds]
    drawn = files.examples(b.graph([b.op("REVERSE", x, axis=1) for x in inputs]), 40)
    assert [(x.shape, x.dtype.name) for x in drawn] == [
        ((40, 50), name) for name in ("int8", "float32", "float16", "bool")
    ]
    assert (drawn[0].min(), drawn[0].max()) == (-128, 127)
    assert 0 <= drawn[1].min() < 0.1 < 0.9 < drawn[1].max() < 1
    assert 0 < drawn[3].mean() < 1


@pytest.mark.parametrize("dtype", [DType.INT8, DType.FP32])
def test_floats_are_networks_whose_products_are_of_floats(dtype):
    assert files.is_float(network(dtype)) == (dtype is DType.FP32)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "small.tosa"
    tosajax.save(network(), file)
    return file


def row_of(path: Path, *options: str) -> dict:
    row = path.with_name("row.json")
    worker.main([str(path), str(row), str(row.with_suffix(".npz")), "--quick", *options])
    return json.loads(row.read_text())


def test_a_network_without_a_peer(path: Path):
    pytest.importorskip("tosa_reference_model")
    row = row_of(path, "--batches", "1", "3")
    assert (row["macs"], row["is_float"], row["products"]) == (96, False, 1)
    assert (row["elements"], row["mismatches"]) == (16, 0)
    for count in (1, 3):
        assert row[f"batch {count}"]["tosajax"]["seconds"] > 0
        assert "peer" not in row[f"batch {count}"]


def other_network(path: Path, inputs: Sequence[np.ndarray], threads: int):
    """A program with other weights; it takes one example at a time."""
    del path, threads
    run = tosajax.compile(network(DType.FP32, weight=4))
    return lambda: tuple(run(*[x[:1] for x in inputs]))


def test_floats_beside_a_peer(path: Path, monkeypatch):
    file = path.with_suffix(".mlir")
    tosajax.save(network(DType.FP32), file)
    monkeypatch.setitem(peers.PEERS, ".mlir", other_network)
    row = row_of(file, "--batches", "1")
    assert row["error of outputs"][0] == pytest.approx(0.25, rel=0.2)
    timed = row["batch 1"]
    assert timed["peer"]["seconds"] / timed["tosajax"]["seconds"] > 0
    assert "mismatches" not in row


def test_integers_that_differ(path: Path, monkeypatch):
    def run(graph: Graph, *inputs: np.ndarray) -> dict[str, np.ndarray]:
        (y,) = tosajax.compile(graph)(*inputs)
        return {graph.outputs[0]: np.asarray(y) + (np.arange(16).reshape(1, 2, 2, 4) < 3)}

    monkeypatch.setattr(worker.reference_model, "run", run)
    assert row_of(path, "--batches", "1")["mismatches"] == 3


def test_an_error_is_part_of_the_row(path: Path):
    path.write_bytes(b"no network")
    assert row_of(path)["error"].startswith("FormatError: ")


def test_examples_one_by_one():
    """Where a program takes one example at a time."""
    x = np.arange(6).reshape(3, 2)
    (y,) = peers._one_by_one(lambda arrays: [arrays[0] + 1], [x], 3)()
    np.testing.assert_array_equal(y, x + 1)


@pytest.mark.parametrize("suffix", [".tflite", ".onnx"])
def test_a_program_that_is_missing_is_named(suffix: str, path: Path, monkeypatch):
    """A peer that is not installed is an error of the row, not a ratio that is left out."""
    module = {"tflite": "ai_edge_litert", "onnx": "onnxruntime"}[suffix[1:]]
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setitem(sys.modules, f"{module}.interpreter", None)
    with pytest.raises(ImportError, match=module):
        peers.PEERS[suffix](path, [np.zeros((1, 2), np.int8)], 1)


def timed(ratio: float) -> dict:
    ours = {"seconds": 0.002, "ratio": [1.0, 1.0, 1.0]}
    return {"tosajax": ours, "peer": {"seconds": 0.002 * ratio, "ratio": [ratio] * 3}}


def row(one: float, many: float, **more: object) -> dict:
    counts = {"is_float": False, "products": 3, "native": 2}
    return {**counts, "batch 1": timed(one), "batch 16": timed(many), **more}


def test_table():
    rows = {
        "a": row(0.5, 2.0, mismatches=0, first={"tosajax": 1.25, "peer": 0.5}),
        "b": row(1.0, 1.0, is_float=True, **{"error of outputs": [1e-6, 2e-5]}),
        "c": {"error": "ValueError: no"},
    }
    lines = report.table(rows, [1, 16]).splitlines()
    assert lines[0].startswith("| network | type | bits | native products | 1 image | ratio | 16 i")
    assert lines[2] == (
        "| a | integer | same bits | 2/3 | 2 ms | 0.50 (0.50-0.50) | 2 ms | 2.00 (2.00-2.00) "
        "| 1.2 s, 0.5 s |"
    )
    assert lines[3].startswith("| b | float | error 2e-05 | 2/3 | 2 ms | 1.00 ")
    assert len(lines) == 4
    assert report.line("c", rows["c"]) == "c: ValueError: no"
    assert report.line("a", rows["a"]).startswith("a: same bits; 2 of 3 products native; batch 1: ")
    assert report._bits({"mismatches": 7}) == "7 differ"


def test_targets(monkeypatch):
    monkeypatch.setattr(report.machine, "kind", lambda _: "VNNI")
    rows = {"a": row(0.9, 1.1, mismatches=0), "b": row(1.6, 2.0, mismatches=1)}
    verdicts = {verdict.target.name: verdict for verdict in report.judge(rows)}
    assert verdicts["integers, 1 image, the least"].found == 0.9
    assert verdicts["integers, 1 image, mean"].found == pytest.approx((0.9 * 1.6) ** 0.5)
    assert verdicts["integers, 16 images, the least"].status is Status.PASS
    assert verdicts["integers that differ from Arm's"].status is Status.MISS
    assert verdicts["floats, 1 image, mean"].status is Status.NOT_MEASURED
    assert targets.exit_status(list(verdicts.values())) == 1
    rows["b"]["error"] = "ended"
    failed = report.judge(rows)[0]
    assert (failed.found, failed.status) == (1, Status.MISS)


def test_the_command(path: Path, capsys):
    pytest.importorskip("tosa_reference_model")
    results = path.with_name("results.json")
    arguments = [str(path), "--batches", "1", "--quick", "--json", str(results), "--check"]
    assert command.main(arguments) == 2  # no peer
    out = capsys.readouterr().out
    assert "small.tosa: same bits; " in out
    assert "\n| small.tosa | integer | same bits | " in out
    assert json.loads(results.read_text())["small.tosa"]["mismatches"] == 0


def test_the_first_result(path: Path, monkeypatch):
    """Of one example, in a process of its own; a peer reads the inputs, and converts nothing."""
    inputs = path.with_suffix(".npz")
    np.savez(inputs, *files.examples(network(), 1))
    seen: list[np.ndarray] = []

    def prepare(path: Path, inputs: Sequence[np.ndarray], threads: int):
        del path, threads
        return lambda: (seen.extend(inputs), ())[1]

    monkeypatch.setitem(peers.PEERS, ".tosa", prepare)
    monkeypatch.setattr(files, "load", lambda _: pytest.fail("converted"))
    row = path.with_name("row.json")
    worker.main([str(path), str(row), str(inputs), "--first", "peer"])
    assert json.loads(row.read_text()) == {}
    assert [x.shape for x in seen] == [(1, 2, 2, 6), (1, 2, 2, 4)]
