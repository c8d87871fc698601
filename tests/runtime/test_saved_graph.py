"""Native kernels of executables in files: made again where they are loaded, if they can be."""

from __future__ import annotations

import dataclasses
import json
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tosajax
from tosajax import Builder, DType, FormatError, Graph, io, native
from tosajax.runtime import saved_file, saved_graph
from tosajax.runtime.saved_graph import NativeCall

pytest.importorskip("llvmlite")
pytestmark = pytest.mark.usefixtures("native_kernels")

RNG = np.random.default_rng(8)
IMAGES = RNG.integers(-128, 128, (7, 5 * 5 * 6)).astype(np.int8)


def graph_of(
    name: str = "y", *, kind: DType = DType.INT8, channels: int = 9, shared: bool = False
) -> Graph:
    """A convolution of an example, a row; its bias may be an input, of all examples."""
    b = Builder()
    x = b.input("x", kind, (1, 5 * 5 * 6))
    acc = DType.INT32 if kind is DType.INT8 else DType.INT48
    if kind.is_float:
        return b.graph([b.op("TANH", x, name=name)])
    weight = b.const(RNG.integers(-99, 99, (channels, 3, 3, 6)).astype(np.int8), DType.INT8)
    zps = b.const([5 if kind is DType.INT8 else 0], kind), b.const([0], DType.INT8)
    bias = b.input("bias", acc, (channels,)) if shared else b.const([7], acc)
    image = b.op("RESHAPE", x, b.const_shape([1, 5, 5, 6]))
    y = b.op("CONV2D", image, weight, bias, *zps, pad=(1, 1, 1, 1), stride=(1, 1),
        dilation=(1, 1), acc_type=acc, name=name)  # fmt: skip
    return b.graph([y])


def loaded(path: Path, **options: Any) -> tuple[tosajax.SavedExecutable, bool]:
    """An executable, and whether it runs native kernels."""
    found = tosajax.load_executable(path, **options)
    return found, isinstance(found._call, NativeCall)


@pytest.mark.parametrize("kind", [DType.INT8, DType.INT16])
@pytest.mark.parametrize("way", ["whole", "batch", "micro-batches", "open"])
def test_the_same_bits(way: str, kind: DType, tmp_path: Path):
    graph = graph_of(kind=kind)
    x = (IMAGES.astype(np.int16) * 255).astype(graph.input_tensors[0].dtype.storage)
    options: dict[str, dict[str, Any]] = {
        "whole": {},
        "batch": {"batch": 7},
        "micro-batches": {"batch": 7, "micro_batch": 3},
        "open": {"batch": 1, "micro_batch": 3},
    }
    x = x[:1] if way == "whole" else x
    run = tosajax.compile(graph, **options[way])
    run.save(tmp_path / "a.tjx", open_batch=way == "open")
    again, is_native = loaded(tmp_path / "a.tjx")
    program, is_other = loaded(tmp_path / "a.tjx", native=False)
    assert (is_native, is_other) == (True, False)
    for count in (len(x), 2, 1) if way == "open" else (len(x),):
        np.testing.assert_array_equal(again(x[:count])[0], program(x[:count])[0])


def test_a_graph_of_a_pool(tmp_path: Path):
    b = Builder()
    x = b.input("x", DType.INT8, (1, 5, 5, 6))
    y = b.op("MAX_POOL2D", x, kernel=(2, 2), stride=(1, 1), pad=(0, 0, 0, 0))
    run = tosajax.compile(b.graph([y]))
    run.save(tmp_path / "a.tjx")
    again, is_native = loaded(tmp_path / "a.tjx")
    assert is_native
    image = IMAGES[:1].reshape(1, 5, 5, 6)
    np.testing.assert_array_equal(again(image)[0], run(image)[0])


def test_a_graph_of_two_matrices(tmp_path: Path):
    b = Builder()
    x, zero = b.input("x", DType.INT8, (2, 3, 25)), b.const([0], DType.INT8)
    run = tosajax.compile(
        b.graph([b.op("MATMUL", x, b.op("TRANSPOSE", x, perms=(0, 2, 1)), zero, zero)])
    )
    run.save(tmp_path / "a.tjx")
    again, is_native = loaded(tmp_path / "a.tjx")
    assert is_native
    two = IMAGES[0].reshape(2, 3, 25)
    np.testing.assert_array_equal(again(two)[0], run(two)[0])


def test_variables(tmp_path: Path):
    b = Builder()
    x = b.input("x", DType.INT8, (1, 4, 3))
    b.variable("last", DType.INT8, (1, 4, 3), initial_value=np.full((1, 4, 3), 5))
    zero = b.const([0], DType.INT8)
    last = b.read("last", DType.INT8, (1, 4, 3))
    product = b.op("MATMUL", last, b.op("TRANSPOSE", x, perms=(0, 2, 1)), zero, zero)
    b.write("last", x)
    graph = b.graph([product])
    inputs = [x[None, :12].reshape(1, 4, 3) for x in IMAGES]
    run = tosajax.compile(graph, native=False)
    run(inputs[0])
    tosajax.compile(graph, state=dict(run.state)).save(tmp_path / "a.tjx")
    again, is_native = loaded(tmp_path / "a.tjx")
    assert is_native
    for x in inputs[1:4]:
        np.testing.assert_array_equal(again(x)[0], run(x)[0])


@pytest.mark.parametrize("batch", [None, 7])
def test_an_input_of_all_examples(batch: int | None, tmp_path: Path):
    graph = graph_of(shared=True)
    run = tosajax.compile(graph, batch=batch)
    run.save(tmp_path / "a.tjx")
    again, is_native = loaded(tmp_path / "a.tjx")
    assert is_native
    x, bias = IMAGES[: batch or 1], np.arange(9, dtype=np.int32)
    np.testing.assert_array_equal(again(x, bias)[0], run(x, bias)[0])
    with_graph(tmp_path / "a.tjx", io.to_bytes(graph_of()))
    with pytest.raises(FormatError, match="its graph has 1 inputs, expected 2"):
        tosajax.load_executable(tmp_path / "a.tjx")


def test_each_shape_is_traced_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    tosajax.compile(graph_of(), batch=1, micro_batch=3).save(tmp_path / "a.tjx", open_batch=True)
    again, _ = loaded(tmp_path / "a.tjx")
    shapes, trace = [], saved_graph.trace

    def noted(function: Any, params: Any, state: Any, x: Any) -> Any:
        shapes.append(x.shape[0])
        return trace(function, params, state, x)

    monkeypatch.setattr(saved_graph, "trace", noted)
    for count in (7, 2, 3, 2):
        again(IMAGES[:count])
    assert shapes == [3, 2]


@pytest.mark.parametrize("way", ["argument", "environment", "not installed", "other processor"])
def test_without(way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    run = tosajax.compile(graph_of(), batch=7)
    run.save(tmp_path / "a.tjx")
    wanted = run(IMAGES)[0]
    options: dict[str, Any] = {"native": False} if way == "argument" else {}
    if way == "environment":
        monkeypatch.setenv("TOSAJAX_NATIVE", "0")
    if way == "not installed":
        monkeypatch.delenv("TOSAJAX_NATIVE")
        monkeypatch.setattr(native.importlib.util, "find_spec", lambda name: None)
        monkeypatch.setitem(sys.modules, "tosajax.native.codegen.isa", None)
    if way == "other processor":
        monkeypatch.delenv("TOSAJAX_NATIVE")
        monkeypatch.setattr("tosajax.native.codegen.isa.chosen", lambda native: None)
    again, is_native = loaded(tmp_path / "a.tjx", **options)
    assert not is_native
    np.testing.assert_array_equal(again(IMAGES)[0], wanted)


def test_what_cannot_be_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    tosajax.compile(graph_of()).save(tmp_path / "a.tjx")
    monkeypatch.setattr(native.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"need llvmlite: pip install \"tosajax\[native\]\""):
        tosajax.load_executable(tmp_path / "a.tjx", native=True)
    with pytest.raises(TypeError, match=r"native is 1 .int., expected True, False or None"):
        tosajax.load_executable(tmp_path / "a.tjx", native=1)  # type: ignore[arg-type]


def size_of_graph(path: Path) -> int:
    with zipfile.ZipFile(path) as archive:
        return archive.getinfo("graph.tosa").file_size


def test_files_without_a_graph(tmp_path: Path):
    """It would be of no use, or is not wanted."""
    path = tmp_path / "a.tjx"
    graph = graph_of()
    tosajax.compile(graph).save(path)
    assert size_of_graph(path) > 500
    tosajax.compile(graph, native=False).save(path)
    assert size_of_graph(path) == 0
    tosajax.compile(graph, report_unpredictable=True).save(path)
    assert size_of_graph(path) == 0
    tosajax.compile(graph).save(path, platforms=["cuda"])
    assert size_of_graph(path) == 0
    tosajax.compile(graph_of(kind=DType.FP32)).save(path)
    assert size_of_graph(path) == 0


def with_graph(path: Path, graph: bytes) -> None:
    manifest, contents = saved_file.read(path)
    saved_file.write(path, manifest, contents._replace(graph=graph))


def illegal() -> bytes:
    graph = graph_of()
    (node,) = (n for n in graph.nodes if n.op == "CONV2D")
    wrong = dataclasses.replace(node, attributes={**node.attributes, "stride": (0, 1)})
    nodes = tuple(wrong if n is node else n for n in graph.nodes)
    return io.to_bytes(dataclasses.replace(graph, nodes=nodes))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (lambda: b"x" * 99, "its graph: "),
        (lambda: io.to_bytes(graph_of())[:-200], "its graph: "),
        (illegal, "its graph: CONV2D .*stride"),
        (lambda: io.to_bytes(graph_of("z")), "its graph takes and returns "),
        (lambda: io.to_bytes(graph_of(channels=8)), "its graph takes and returns "),
        (lambda: io.to_bytes(graph_of(kind=DType.INT16)), "its graph takes and returns "),
    ],
)
def test_graphs_that_do_not_fit(content: Any, message: str, tmp_path: Path):
    path = tmp_path / "a.tjx"
    tosajax.compile(graph_of(), batch=7).save(path)
    with_graph(path, content())
    with pytest.raises(FormatError, match=f"a.tjx: {message}"):
        tosajax.load_executable(path)
    assert json.loads(zipfile.ZipFile(path).read("manifest.json"))["version"] == 4
