"""`tosajax quantize`: a float graph becomes a file of integers."""

from __future__ import annotations

import json
from typing import Any

import jax
import numpy as np
import pytest

import tosajax
from tosajax import DType

RNG = np.random.default_rng(3)
W = RNG.normal(size=(6, 4)).astype(np.float32)
V = RNG.normal(size=(4, 3)).astype(np.float32)
X = RNG.normal(size=(20, 6)).astype(np.float32)


def network(x: Any) -> jax.Array:
    return jax.nn.relu(x @ W) @ V


@pytest.fixture(autouse=True)
def files(folder) -> None:
    """float.tosa, f.npy (examples) and labels.npy, what the floats answer."""
    graph = tosajax.export(network, X[:1])
    tosajax.save(graph, folder / "float.tosa")
    np.save(folder / "f.npy", X)
    np.save(folder / "labels.npy", np.asarray(network(X)).argmax(1).astype(np.int32))


def quantize(command, *options: str) -> tuple[int, str, str]:
    return command("quantize", "float.tosa", "--input", "f.npy", "--seconds", "0", *options)


def test_a_file_of_integers(command, folder):
    status, out, err = quantize(command, "-o", "int8.tosa")
    assert (status, err) == (0, "")
    assert out.startswith("Auto(SQNR ")
    assert "defaults" in out
    nodes = len(tosajax.load(folder / "int8.tosa").nodes)
    assert out.endswith(f"int8.tosa: {nodes} nodes\n")
    graph = tosajax.load(folder / "int8.tosa")
    assert {tensor.dtype for tensor in graph.input_tensors} == {DType.INT8}
    (found,) = tosajax.run(graph, X, real=True)
    np.testing.assert_allclose(found.reshape(20, 3), network(X), atol=0.1)


def test_reports(command, folder):
    options = ("-o", "int8.mlir", "--json", "report.json", "--html", "page.html")
    status, _, err = quantize(command, *options, "--labels", "labels.npy")
    assert (status, err) == (0, "")
    content = json.loads((folder / "report.json").read_text())
    (first,) = content["remedies"]
    assert (first["name"], first["is_kept"]) == ("defaults", True)
    assert first["score"] >= 0.9
    assert list(content["outputs"]) == list(tosajax.load(folder / "int8.mlir").outputs)
    page = (folder / "page.html").read_text()
    assert "Quantization by quant.auto" in page
    assert "tosajax quantize float.tosa" in page


def test_remedies_within_the_time(command, folder):
    line = ("float.tosa", "--input", "f.npy", "-o", "int8.tosa", "--json", "report.json")
    status, out, _ = command("quantize", *line, "--seconds", "60")
    assert status == 0
    remedies = json.loads((folder / "report.json").read_text())["remedies"]
    names = [remedy["name"] for remedy in remedies]
    assert names[0] == "defaults"
    assert {"mse", "equalize, gptq", "gptq", "INT16"} <= set(names)
    assert all(name in out for name in names)


@pytest.mark.parametrize(
    ("options", "weight", "act"),
    [
        (("--weight", "i4"), DType.INT4, DType.INT8),
        (("--act", "i16"), DType.INT8, DType.INT16),
    ],
)
def test_types(command, folder, options, weight, act):
    status, _, err = quantize(command, *options, "-o", "out.tosa")
    assert (status, err) == (0, "")
    graph = tosajax.load(folder / "out.tosa")
    assert graph.input_tensors[0].dtype is act
    weights = [t for t in graph.tensors.values() if t.values is not None and t.values.size == 24]
    assert [t.dtype for t in weights] == [weight]


def test_a_target(command, folder):
    options = ("--target", "ethos-u85-256", "--more-cycles", "0.2", "--arena-kib", "1")
    status, out, err = quantize(command, *options, "-o", "out.tosa", "--json", "report.json")
    assert (status, err) == (0, "")
    assert " cycles of ethos-u85-256 (+0.0%)" in out
    spent = json.loads((folder / "report.json").read_text())["spent"]
    assert (spent["npu"], spent["errors"]) == ("ethos-u85-256", 0)
    assert spent["cycles"][0] == spent["cycles"][1] > 0
    status, _, err = quantize(command, "--more-cycles", "0.2", "-o", "out.tosa")
    assert (status, "there is no target" in err) == (1, True)
    status, _, err = quantize(command, "--target", "ethos", "-o", "out.tosa")
    assert (status, "expected one of ethos-u55-32, " in err) == (1, True)


def test_a_quantized_file(command, folder):
    tflite_files = pytest.importorskip("tflite_files")
    weight = np.random.default_rng(0).integers(1, 256, (4, 6)).astype(np.uint8)
    (folder / "bytes.tflite").write_bytes(tflite_files.dense_of_bytes(weight, zero_point=77))
    line = ("bytes.tflite", "--input", "f.npy", "--act", "i16", "-o", "out.tosa", "--seconds", "0")
    status, _, err = command("quantize", *line)
    assert (status, err) == (0, "")
    graph = tosajax.load(folder / "out.tosa")
    assert graph.inputs == ("x",)
    assert graph.input_tensors[0].dtype is DType.INT16


def test_several_inputs(command, folder):
    graph = tosajax.export(lambda x, y: x @ W + y, X[:1], X[:1, :4])
    tosajax.save(graph, folder / "two.tosa")
    np.save(folder / "y.npy", X[:, :4])
    line = ("two.tosa", "--input", "f.npy", "--input", "y.npy", "--seconds", "0", "-o", "out.tosa")
    status, _, err = command("quantize", *line)
    assert (status, err) == (0, "")
    np.save(folder / "y.npy", X[:7, :4])
    status, _, err = command("quantize", *line)
    assert status == 1
    assert "--input of shapes (20, 6), (7, 4), expected examples, as many of each input" in err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("-o", "out.xyz"), "out.xyz"),
        (("-o", "missing/out.tosa"), "missing"),
        (("-o", "out.tosa", "--wide-macs", "2"), "wide_macs is 2.0, expected a number in [0, 1]"),
        (
            ("-o", "out.tosa", "--labels", "f.npy"),
            "float32 of shape (20, 6), expected 20 integers",
        ),
        (
            ("-o", "out.tosa", "--labels", "few.npy"),
            "int32 of shape (19,), expected 20 integers",
        ),
        (("-o", "out.tosa", "--labels", "none.npy"), "none.npy"),
    ],
)
def test_errors_leave_no_file(command, folder, options, message):
    np.save(folder / "few.npy", np.load(folder / "labels.npy")[:-1])
    before = sorted(folder.iterdir())
    status, out, err = quantize(command, *options)
    assert (status, out) == (1, "")
    assert message in err
    assert sorted(folder.iterdir()) == before


def test_a_graph_of_integers(command):
    status, _, err = command("quantize", "model.tosa", "--input", "x.npy", "-o", "out.tosa")
    assert status == 1
    assert "is of floats" in err
