"""Graphs on Arm's reference model: every tensor the same as here, and errors that say which."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import os
import subprocess
from pathlib import Path
from typing import Any

import jax
import networks
import numpy as np
import programs
import pytest

import tosajax
from tosajax import Builder, DType, Graph, Tensor, reference_model
from tosajax.spec import CONSTANT_OPERATORS

INT32 = DType.INT32
MOST = 2**31 - 1
ZEROS = np.zeros(4, np.int32)

needs_model = pytest.mark.skipif(
    not reference_model.is_installed(), reason="tosa-tools is not installed"
)


def network(data: Path, name: str) -> tuple[Graph, np.ndarray]:
    """A graph of one input, and its examples."""
    found = next(n for n in networks.find(data) if n.name == name)
    return tosajax.load(found.model), found.inputs[0]


def computed(graph: Graph) -> list[str]:
    return [x for n in graph.nodes if n.op not in CONSTANT_OPERATORS for x in n.outputs]


def ours(graph: Graph, *inputs: np.ndarray, tensors: list[str]) -> dict[str, np.ndarray]:
    """The tensors of one example as tosajax computes them."""
    fn, params = tosajax.lower(dataclasses.replace(graph, outputs=tuple(tensors)))
    return dict(zip(tensors, map(np.asarray, jax.jit(fn)(params, *inputs)), strict=True))


def assert_same(found: dict[str, np.ndarray], wanted: dict[str, np.ndarray]) -> None:
    """Equal in names and their order, type, shape and every bit."""
    assert list(found) == list(wanted)
    for name, values in wanted.items():
        assert found[name].dtype == values.dtype, name
        assert found[name].shape == values.shape, name
        assert found[name].tobytes() == values.tobytes(), name


def identity(dtype: DType, shape: tuple[int, ...]) -> Graph:
    b = Builder()
    return b.graph([b.op("IDENTITY", b.input("x", dtype, shape), name="y")])


def doubled(shape: tuple[int, ...] = (4,)) -> Graph:
    """x + x, which must not overflow."""
    b = Builder()
    x = b.input("x", INT32, shape)
    return b.graph([b.op("ADD", x, x, name="y")])


def gather() -> Graph:
    """Rows of a table, which an index beyond its three ends Arm's model with."""
    b = Builder()
    table = b.const([[[10, 11], [20, 21], [30, 31]]], DType.INT8, name="table")
    return b.graph([b.op("GATHER", table, b.input("i", INT32, (1, 2)), name="y")])


def wide(graph: Graph) -> Graph:
    """The same with an int48 output beside, which only the executable gives."""
    b = Builder()
    extra = b.op("IDENTITY", b.const([1 << 40], DType.INT48, name="c48"), name="y48")
    other = b.graph([extra])
    return dataclasses.replace(
        graph,
        outputs=(*graph.outputs, *other.outputs),
        tensors={**graph.tensors, **other.tensors},
        nodes=(*graph.nodes, *other.nodes),
    )


each_form = pytest.mark.parametrize("form", [lambda g: g, wide], ids=["binding", "executable"])


def bits(dtype: DType) -> np.ndarray:
    """Two examples of (2, 3): the ends of the type, what is near them, and zero."""
    if dtype is DType.BOOL:
        values: Any = [True, False, False, True, True, False, False, False, True, True, False, True]
    elif dtype.is_integer:
        low, high = dtype.minimum, dtype.maximum
        values = [low, low + 1, -1, 0, 1, 2, high, high - 1, high // 2, low // 2, -2, 3]
    else:
        top = float(np.finfo(np.float32).max) if dtype is DType.FP32 else 448.0
        values = [0.0, -0.0, 1.0, -1.5, top, -top, 0.5, 2.0, 0.25, 3.0, -4.0, 0.015625]
    return np.asarray(values).astype(dtype.storage).reshape(2, 2, 3)


@needs_model
def test_every_tensor_of_an_int8_network(data: Path):
    graph, examples = network(data, "et_digits_cnn_a8w8")
    tensors = computed(graph)
    assert len(tensors) == 25
    found = reference_model.run(graph, examples[0], tensors=tensors)
    assert_same(found, ours(graph, examples[0], tensors=tensors))


@needs_model
def test_every_tensor_of_a_network_with_int48_accumulators(data: Path):
    graph, examples = network(data, "et_digits_cnn_a16w8")
    tensors = computed(graph)
    assert sum(graph.tensors[n].dtype is DType.INT48 for n in tensors) == 5
    found = reference_model.run(graph, examples[:2], tensors=tensors, processes=2)
    for i in range(2):
        wanted = ours(graph, examples[i], tensors=tensors)
        assert_same({name: x[i] for name, x in found.items()}, wanted)


@needs_model
@pytest.mark.parametrize("processes", [1, 2, 5])
def test_examples_equal_a_loop(processes: int, data: Path):
    graph, examples = network(data, "et_digits_cnn_a8w8")
    assert len({x.tobytes() for x in examples[:3]}) == 3
    tensors = [*computed(graph)[-3:], *computed(graph)[:1]]
    found = reference_model.run(graph, examples[:3], tensors=tensors, processes=processes)
    for i in range(3):
        one = reference_model.run(graph, examples[i], tensors=tensors)
        assert_same({name: x[i] for name, x in found.items()}, one)


@needs_model
def test_outputs_are_those_of_the_graph_by_default(data: Path):
    found = next(n for n in networks.find(data) if n.name == "et_digits_cnn_a8w8")
    graph = tosajax.load(found.model)
    results = reference_model.run(graph, *found.inputs)
    assert_same(results, dict(zip(graph.outputs, found.expected, strict=True)))


@needs_model
def test_floats_are_within_their_bound(data: Path):
    """Not bit for bit: the model adds up in another order."""
    graph, examples = network(data, "et_digits_cnn_bf16")
    image = examples[0].view(DType.BF16.storage)
    found = reference_model.run(graph, image)
    wanted = ours(graph, image, tensors=list(graph.outputs))
    for name, values in wanted.items():
        assert found[name].dtype == values.dtype
        assert networks.ulps(found[name], values) <= networks.FLOAT_LIMIT


@needs_model
@pytest.mark.parametrize("dtype", [d for d in DType if d is not DType.SHAPE], ids=lambda d: d.name)
@pytest.mark.parametrize("form", [lambda g: g, wide], ids=["alone", "beside-int48"])
def test_types(dtype: DType, form):
    graph, values = form(identity(dtype, (2, 3))), bits(dtype)
    results = reference_model.run(graph, values)
    assert_same({"y": results["y"]}, {"y": values})
    assert_same({"y": reference_model.run(graph, values[1])["y"]}, {"y": values[1]})


@needs_model
@pytest.mark.parametrize("dtype", [DType.BOOL, DType.BF16, DType.INT48], ids=lambda d: d.name)
def test_rank_0(dtype: DType):
    graph, values = identity(dtype, ()), bits(dtype).reshape(-1)
    one = reference_model.run(graph, values[3])
    assert isinstance(one["y"], np.ndarray)
    assert_same(one, {"y": values[3].reshape(())})
    assert_same(reference_model.run(graph, values), {"y": values})


@needs_model
def test_arrays_in_any_order_of_memory():
    values = np.arange(24, dtype=np.int32).reshape(2, 3, 4)
    graph = doubled((3, 4))
    wanted = {"y": values * np.int32(2)}
    assert_same(reference_model.run(graph, np.asfortranarray(values)), wanted)
    assert_same(reference_model.run(graph, np.flip(values, 2)), {"y": np.flip(wanted["y"], 2)})
    # A file keeps the order.
    found = reference_model.run(wide(graph), np.asfortranarray(values[0]))
    assert_same({"y": found["y"]}, {"y": wanted["y"][0]})


@needs_model
def test_an_input_without_examples_is_the_same_for_all():
    b = Builder()
    x, y = b.input("x", INT32, (2,)), b.input("y", INT32, (2,))
    graph = b.graph([b.op("SUB", x, y, name="z")])
    xs, one = np.array([[1, 2], [3, 4], [5, 6]], np.int32), np.array([1, -1], np.int32)
    found = reference_model.run(graph, xs, one, tensors=["z", "y"])
    wanted = np.array([[0, 3], [2, 5], [4, 7]], np.int32)
    assert_same(found, {"z": wanted, "y": np.stack([one] * 3)})


@needs_model
def test_inputs_and_constants_come_back_as_they_are():
    b = Builder()
    x = b.input("x", INT32, (2,))
    c = b.const([1 << 40], DType.INT48, name="c")
    s = b.const_shape([2, 1], name="s")
    graph = b.graph([b.op("RESHAPE", x, s, name="y"), b.op("IDENTITY", c, name="z")])
    values = np.array([[7, -8], [9, 10]], np.int32)
    shape, constant = np.array([2, 1], np.int64), np.array([1 << 40], np.int64)
    one = reference_model.run(graph, values[0], tensors=["c", "y", "x", "s", "y"])
    assert_same(one, {"c": constant, "y": values[0].reshape(2, 1), "x": values[0], "s": shape})
    both = reference_model.run(graph, values, tensors=["s", "x", "c"])
    wanted = {"s": np.stack([shape] * 2), "x": values, "c": np.stack([constant] * 2)}
    assert_same(both, wanted)
    # The binding gives no shapes.
    found = reference_model.run(graph, values[0], tensors=["x", "s"])
    assert_same(found, {"x": values[0], "s": shape})
    wide_values = bits(DType.INT48)
    found = reference_model.run(identity(DType.INT48, (2, 3)), wide_values, tensors=["x"])
    assert_same(found, {"x": wide_values})


@pytest.mark.usefixtures("nothing_starts")
def test_no_examples():
    empty = np.zeros((0, 4), np.int32)
    assert_same(reference_model.run(doubled(), empty), {"y": empty})


@needs_model
def test_each_example_starts_from_the_initial_values():
    graph = programs.accumulator([5, 6, 7])
    x = np.array([1, -2, 100], np.int8)
    found = reference_model.run(graph, np.stack([x, x]))
    wanted = (np.array([5, 6, 7]) + x).astype(np.int8)
    assert_same(found, {graph.outputs[0]: np.stack([wanted, wanted])})


@needs_model
def test_control_flow():
    graph = programs.loop(programs.below(3), programs.doubled())
    steps, x = np.array([[0], [2], [5]], np.int32), np.array([1, -2, 3], np.int32)
    found = reference_model.run(graph, steps, x)
    left, result = (found[name] for name in graph.outputs)
    np.testing.assert_array_equal(left, [[3], [3], [5]])
    np.testing.assert_array_equal(result, [8 * x, 2 * x, x])


@needs_model
@each_form
def test_graphs_beyond_level_8k(form):
    b = Builder()
    x = b.input("x", DType.INT8, (1, 1, 8200, 1))
    whole = {"kernel": (1, 8200), "stride": (1, 1), "pad": (0, 0, 0, 0)}
    graph = form(b.graph([b.op("MAX_POOL2D", x, name="y", **whole)]))
    assert tosajax.validate(graph, tosajax.Target.everything("8K")).findings
    values = np.full((1, 1, 8200, 1), -5, np.int8)
    assert_same({"y": reference_model.run(graph, values)["y"]}, {"y": values[:, :, :1]})


@needs_model
def test_nothing_is_printed(capfd: pytest.CaptureFixture[str]):
    reference_model.run(doubled(), ZEROS)
    reference_model.run(wide(doubled()), ZEROS)
    assert capfd.readouterr() == ("", "")


@needs_model
@each_form
def test_unpredictable(form):
    values = np.zeros((5, 4), np.int32)
    values[3, 1] = MOST
    values[4, 2] = -MOST
    values[2] = MOST // 2
    with pytest.raises(
        ValueError, match=r"example 3: .* UNPREDICTABLE: (?s:.*)positive over"
    ) as caught:
        reference_model.run(form(doubled()), values)
    assert "serializer" not in str(caught.value)
    assert "negative" not in str(caught.value)  # that of the example after it
    with pytest.raises(ValueError, match="example 3"):
        reference_model.run(form(doubled()), values, processes=2)
    assert_same(
        reference_model.run(form(doubled()), values[:3], tensors=["y"]), {"y": values[:3] * 2}
    )


@needs_model
@each_form
def test_messages_are_short(form):
    """The model names each element that overflows."""
    with pytest.raises(ValueError, match="overflow") as caught:
        reference_model.run(form(doubled((2000,))), np.full((1, 2000), MOST, np.int32))
    assert len(str(caught.value).splitlines()) <= 8


@needs_model
@each_form
def test_illegal(form):
    graph = doubled()
    tensors = {**graph.tensors, "y": dataclasses.replace(graph.tensors["y"], shape=(5,))}
    illegal = form(dataclasses.replace(graph, tensors=tensors))
    with pytest.raises(ValueError, match=r"example 0: Arm's model gave ERROR: .*ADD.* must match"):
        reference_model.run(illegal, np.zeros((2, 4), np.int32))


@needs_model
@each_form
def test_a_tensor_that_no_node_makes(form):
    graph = doubled()
    tensors = {**graph.tensors, "z": Tensor("z", INT32, (4,))}
    illegal = form(dataclasses.replace(graph, tensors=tensors))
    with pytest.raises(ValueError, match=r"example 0: .* ERROR: (?s:.*)z has no producers"):
        reference_model.run(illegal, ZEROS, tensors=["z", *illegal.outputs])


@needs_model
@each_form
def test_crash(form):
    indices = np.array([[[0, 2]], [[1, 1]], [[0, 3]], [[2, 2]]], np.int32)
    with pytest.raises(RuntimeError, match=r"example 2: .* ended with SIGABRT: (?s:.*)index"):
        reference_model.run(form(gather()), indices)
    found = reference_model.run(form(gather()), indices[:2], tensors=["y"])
    wanted = np.array([[[[10, 11], [30, 31]]], [[[20, 21], [20, 21]]]], np.int8)
    assert_same(found, {"y": wanted})


@needs_model
def test_a_worker_that_cannot_start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """And that sees the modules of tosajax by their whole names only."""
    (tmp_path / "tosa_reference_model.py").write_text("import dtypes")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(RuntimeError, match="exit status 1: No module named 'dtypes'"):
        reference_model.run(doubled(), ZEROS)


@needs_model
@each_form
def test_no_debugger_starts(form, monkeypatch: pytest.MonkeyPatch):
    """The model would start it by its name."""
    environments = []

    def recorded(*_: object, env: dict[str, str], **__: object):
        environments.append(env)
        raise OSError("not started")

    monkeypatch.delenv("TOSA_MODEL_NO_BACKTRACE", raising=False)
    monkeypatch.setattr(subprocess, "run", recorded)
    with pytest.raises(OSError, match="not started"):
        reference_model.run(form(doubled()), ZEROS)
    assert environments == [{**os.environ, "TOSA_MODEL_NO_BACKTRACE": "1"}]


MISUSE = {
    "few": (doubled(), (), {}, TypeError, r"0 inputs, expected 1 \(x\)"),
    "many": (doubled(), (ZEROS, ZEROS), {}, TypeError, r"2 inputs, expected 1 \(x\)"),
    "type": (doubled(), (ZEROS.astype(np.int16),), {}, TypeError, "'x' has type int16, .* int32"),
    "bits": (
        identity(DType.BF16, (4,)), (ZEROS.astype(np.uint16),), {}, TypeError, "expected bfloat16"
    ),
    "shape": (doubled(), (ZEROS[:3],), {}, ValueError, r"\(3,\), expected \(4,\) or \(examples, 4"),
    "rank": (doubled(), (ZEROS[None, None],), {}, ValueError, r"'x' has shape \(1, 1, 4\)"),
    "scalar": (doubled(), (ZEROS[0],), {}, ValueError, r"'x' has shape \(\)"),
    "inner": (
        doubled((1, 4)), (np.zeros((7, 4), np.int32),), {}, ValueError, r"or \(examples, 1, 4\)"
    ),
    "range": (
        identity(DType.INT48, (1,)), (np.array([1 << 47]),), {}, ValueError, "'x': .* fit INT48"
    ),
    "name": (doubled(), (ZEROS,), {"tensors": ["y", "q"]}, ValueError, "no tensor 'q'"),
    "variable": (
        programs.accumulator([0, 0, 0]), (np.zeros(3, np.int8),), {"tensors": ["variable_1"]},
        ValueError, "stands for variable 'sum'",
    ),
    "processes": (doubled(), (ZEROS,), {"processes": 0}, ValueError, "processes is 0"),
    "open": (doubled((-1,)), (ZEROS,), {}, ValueError, "open dimensions"),
}  # fmt: skip


@pytest.fixture
def nothing_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arm's model counts as installed, and may not be started."""

    def started(*_: object, **__: object):
        raise AssertionError("a process was started")

    monkeypatch.setattr("tosajax.reference_model.model.is_installed", lambda: True)
    monkeypatch.setattr(subprocess, "run", started)


@pytest.mark.usefixtures("nothing_starts")
@pytest.mark.parametrize("case", MISUSE)
def test_misuse(case: str):
    graph, inputs, options, error, message = MISUSE[case]
    with pytest.raises(error, match=message):
        reference_model.run(graph, *inputs, **options)


@pytest.mark.usefixtures("nothing_starts")
def test_different_numbers_of_examples():
    b = Builder()
    graph = b.graph([b.op("ADD", b.input("x", INT32, (4,)), b.input("y", INT32, (4,)))])
    two, three = np.zeros((2, 4), np.int32), np.zeros((3, 4), np.int32)
    with pytest.raises(ValueError, match=r"different numbers of examples: {'x': 2, 'y': 3}"):
        reference_model.run(graph, two, three)


def test_without_tosa_tools(monkeypatch: pytest.MonkeyPatch):
    def missing(name: str):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "distribution", missing)
    assert not reference_model.is_installed()
    with pytest.raises(ImportError, match=r"pip install 'tosajax\[reference\]'"):
        reference_model.run(doubled(), ZEROS)
