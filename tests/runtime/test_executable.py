"""Executables: shapes, types, batches, and how often they trace."""

from __future__ import annotations

import dataclasses
import re
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import chex
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from oracle.wide import operations_of_64_bits

import tosajax
from tosajax import Builder, DType, Graph, Tensor, TosaError, validation
from tosajax.graph import model
from tosajax.runtime.compiled import persistent_cache
from tosajax.runtime.inputs import accept


def add_graph(dtype: DType = DType.INT32, shape: tuple[int, ...] = (1, 3)) -> Graph:
    b = Builder()
    x, y = b.input("x", dtype, shape), b.input("y", dtype, shape)
    return b.graph(outputs=[b.op("ADD", x, y, shape=shape, name="sum")])


def identity_graph(dtype: DType, shape: tuple[int, ...]) -> Graph:
    b = Builder()
    return b.graph(outputs=[b.op("IDENTITY", b.input("x", dtype, shape), shape=shape)])


def test_runs_numpy_and_jax_arrays():
    run = tosajax.compile(add_graph())
    x = np.array([[1, 2, 3]], np.int32)
    (y,) = run(x, x)
    assert isinstance(y, jax.Array)
    np.testing.assert_array_equal(y, 2 * x)
    (y,) = run(jnp.asarray(x), x)
    np.testing.assert_array_equal(y, 2 * x)


def test_callers_may_write_to_their_arrays_at_once(tmp_path):
    """While the program still runs; memory as JAX shares it, where it may."""
    b = Builder()
    x = b.input("x", DType.FP32, (1, 200_000))
    y = x
    for _ in range(10):
        y = b.op("SIN", y, shape=x.shape)
    run = tosajax.compile(b.graph(outputs=[y]))
    run.save(tmp_path / "sines.tjx")
    memory = np.zeros(4 * 200_000 + 64, np.uint8)
    begin = -memory.ctypes.data % 64
    array = memory[begin : begin + 4 * 200_000].view(np.float32).reshape(1, -1)
    for program in (run, tosajax.load_executable(tmp_path / "sines.tjx")):
        array[:] = 1
        (wanted,) = program(array.copy())
        for _ in range(5):
            array[:] = 1
            (found,) = program(array)
            array[:] = 7
            np.testing.assert_array_equal(found, wanted)


def test_traces_once_for_a_shape(monkeypatch):
    monkeypatch.setattr(tosajax.ops, "add", chex.assert_max_traces(tosajax.ops.add, n=1))
    run = tosajax.compile(add_graph())
    x = np.ones((1, 3), np.int32)
    for _ in range(3):
        run(x, x)


def test_traces_once_for_each_shape_of_an_open_graph(monkeypatch):
    count = 0
    kernel = tosajax.ops.add

    def counted(*args):
        nonlocal count
        count += 1
        return kernel(*args)

    monkeypatch.setattr(tosajax.ops, "add", counted)
    run = tosajax.compile(add_graph(shape=(-1, 3)))
    for batch in (2, 5, 2, 5):
        x = np.ones((batch, 3), np.int32)
        (y,) = run(x, x)
        assert y.shape == (batch, 3)
    assert count == 2


@pytest.mark.parametrize("batch", [1, 7, 64])
@pytest.mark.parametrize("first", [1, -1], ids=["fixed", "open"])
def test_batch(batch, first):
    run = tosajax.compile(add_graph(shape=(first, 3)), batch=batch)
    x = np.arange(batch * 3, dtype=np.int32).reshape(batch, 3)
    (y,) = run(x, x)
    np.testing.assert_array_equal(y, 2 * x)


def test_examples_of_a_fixed_graph_do_not_mix():
    b = Builder()
    x = b.input("x", DType.INT32, (1, 4))
    total = b.op("REDUCE_SUM", b.op("REDUCE_SUM", x, axis=0), axis=1)
    run = tosajax.compile(b.graph(outputs=[total]), batch=5)
    x = np.arange(20, dtype=np.int32).reshape(5, 4)
    np.testing.assert_array_equal(run(x)[0], x.sum(axis=1, keepdims=True))


def test_inputs_without_a_batch_are_shared_and_outputs_without_one_are_stacked():
    b = Builder()
    x, y = b.input("x", DType.INT32, (1, 4)), b.input("y", DType.INT32, (2, 4))
    graph = b.graph(outputs=[b.op("ADD", x, y)])
    run = tosajax.compile(graph, batch=3)
    x, y = np.arange(12, dtype=np.int32).reshape(3, 4), np.ones((2, 4), np.int32)
    (z,) = run(x, y)
    np.testing.assert_array_equal(z, x[:, None] + y)


def test_no_input_can_carry_the_batch():
    with pytest.raises(ValueError, match=r"x: INT32\[2,3\]"):
        tosajax.compile(add_graph(shape=(2, 3)), batch=4)


@pytest.mark.parametrize("batch", [0, -3])
def test_batch_below_one(batch):
    with pytest.raises(ValueError, match=f"batch is {batch}"):
        tosajax.compile(add_graph(), batch=batch)


def test_wrong_number_of_inputs():
    with pytest.raises(TypeError, match=r"1 inputs, expected 2 \(x, y\)"):
        tosajax.compile(add_graph())(np.zeros((1, 3), np.int32))


def test_wrong_type():
    x = np.zeros((1, 3), np.int64)
    with pytest.raises(TypeError, match=r"'x' has type int64, expected int32 \(INT32\)"):
        tosajax.compile(add_graph())(x, x)


@pytest.mark.parametrize(
    ("dtype", "given", "hint"),
    [(DType.BF16, np.uint16, "bfloat16"), (DType.INT8, np.uint8, "int8")],
)
def test_same_bits_in_another_type(dtype, given, hint):
    run = tosajax.compile(identity_graph(dtype, (2,)))
    with pytest.raises(TypeError, match=rf"\.view\({hint}\)"):
        run(np.zeros(2, given))


@pytest.mark.parametrize(
    ("dtype", "given", "hint"),
    [
        (DType.FP32, np.float64, "use .astype(float32) if its values fit"),
        (DType.FP16, ml_dtypes.bfloat16, "use .astype(float16) if its values fit"),
        (DType.INT8, np.int64, "use .astype(int8) if its values fit"),
        (DType.INT32, np.uint8, "use .astype(int32) if its values fit"),
        (DType.INT4, np.uint8, "use .astype(int8) if its values fit"),
        (DType.FP8E5M2, np.uint8, "use .view(float8_e5m2) if it holds the same bits"),
        (DType.BF16, "V2", "use .view(bfloat16) if it holds the same bits"),
        (DType.FP32, np.uint32, "use .view(float32) if it holds the same bits"),
        (DType.FP32, np.int32, None),
        (DType.INT8, np.float32, None),
        (DType.BOOL, np.uint8, None),
        (DType.INT8, object, None),
    ],
)
def test_the_advice_of_a_wrong_type_works(dtype, given, hint):
    """A view is advised only where it keeps the shape."""
    values = np.zeros(2, given)
    tensor = Tensor("x", dtype, (2,))
    with pytest.raises(TypeError, match="input 'x' has type") as caught:
        accept([tensor], [(2,)], [values])
    message = str(caught.value)
    assert (f"; {hint}" in message) if hint else message.endswith(f"({dtype.name})")
    if hint:
        name = hint.split("(")[1].split(")")[0]
        converted = getattr(values, hint[5:].split("(")[0])(np.dtype(name))
        accept([tensor], [(2,)], [converted])


@pytest.mark.parametrize("dtype", [DType.INT8, DType.INT16])
def test_unsigned_integers_of_a_signed_input_have_two_ways_out(dtype):
    storage = dtype.storage
    middle = 1 << (dtype.bits - 1)
    values = np.array([0, middle - 1, middle, 2 * middle - 1], f"u{storage.name}")
    with pytest.raises(TypeError, match=f"expected {storage.name}") as caught:
        tosajax.compile(identity_graph(dtype, (4,)))(values)
    same, moved = str(caught.value).split("; use ")[1].split(", or ")
    assert same == f".view({storage.name}) if it holds the same bits"
    assert moved == f"(x ^ {middle}).view({storage.name}) if its 0 stands for -{middle}"
    found = (values ^ middle).view(storage)
    np.testing.assert_array_equal(found, values.astype(np.int64) - middle)


def test_wrong_shape():
    run = tosajax.compile(add_graph())
    x = np.zeros((2, 3), np.int32)
    with pytest.raises(ValueError, match=r"\(2, 3\), expected \(1, 3\); compile with batch=2"):
        run(x, x)
    with pytest.raises(ValueError, match=r"\(4,\), expected \(1, 3\)$"):
        run(np.zeros(4, np.int32), x)


@pytest.mark.parametrize("dtype", [d for d in DType if d is not DType.SHAPE], ids=lambda d: d.name)
def test_every_type_goes_in_and_comes_out(dtype):
    values = np.array([0, 1, 1, 0, 1], dtype.storage)
    if dtype.is_integer:
        values = np.array([dtype.minimum, -1, 0, 1, dtype.maximum], dtype.storage)
    (y,) = tosajax.compile(identity_graph(dtype, (5,)))(values)
    assert y.dtype == dtype.storage
    np.testing.assert_array_equal(np.asarray(y), values)


@pytest.mark.parametrize(
    ("dtype", "value"), [(DType.INT4, 8), (DType.INT4, -8), (DType.INT48, 1 << 47)]
)
def test_values_out_of_range(dtype, value):
    run = tosajax.compile(identity_graph(dtype, (2,)))
    with pytest.raises(ValueError, match=f"{dtype.name} holds"):
        run(np.array([0, value], dtype.storage))


def test_int48_constants_keep_all_bits_under_the_users_own_jit():
    b = Builder()
    x = b.input("x", DType.INT16, (1, 1, 1, 1))
    bias = b.const([(1 << 47) - 1], DType.INT48)
    zero_in, zero_w = b.const([0], DType.INT16), b.const([0], DType.INT8)
    y = b.op(
        "CONV2D", x, b.const(np.ones((1, 1, 1, 1)), DType.INT8), bias, zero_in, zero_w,
        pad=(0, 0, 0, 0), stride=(1, 1), dilation=(1, 1), acc_type=DType.INT48,
    )  # fmt: skip
    fn, params = tosajax.lower(b.graph(outputs=[y]))
    (out,) = jax.jit(fn)(params, jnp.full((1, 1, 1, 1), -1, jnp.int16))
    assert np.asarray(out).item() == (1 << 47) - 2


def test_illegal_graph():
    b = Builder()
    x = b.input("x", DType.INT32, (1, 3))
    graph = b.graph(outputs=[b.op("ADD", x, x, shape=(3, 3), name="sum")])
    for entry in (tosajax.compile, tosajax.lower):
        with pytest.raises(TosaError, match="ADD 'sum'"):
            entry(graph)


def test_target_is_checked():
    with pytest.raises(TosaError, match="PRO-FP"):
        tosajax.compile(add_graph(DType.FP32), tosajax.Target.parse("PRO-INT"))


def test_open_graph_that_is_illegal_is_refused_at_its_first_call():
    b = Builder()
    x = b.input("x", DType.INT32, (-1, 3))
    graph = b.graph(outputs=[b.op("ADD", x, x, shape=(-1, 4))])
    run = tosajax.compile(graph)
    with pytest.raises(TosaError, match=r"add\.e1"):
        run(np.zeros((2, 3), np.int32))


def test_lowered_function_under_transformations():
    fn, params = tosajax.lower(add_graph(DType.FP32))
    x = jnp.ones((1, 3), jnp.float32)
    (y,) = jax.jit(fn)(params, x, x)
    np.testing.assert_array_equal(y, 2 * x)
    (y,) = jax.vmap(fn, in_axes=(None, 0, None))(params, jnp.stack([x, 2 * x]), x)
    np.testing.assert_array_equal(y, jnp.stack([2 * x, 3 * x]))
    gradient = jax.grad(lambda x: fn(params, x, x)[0].sum())(x)
    np.testing.assert_array_equal(gradient, 2 * x)


def test_undeclared_input_of_a_graph():
    graph = dataclasses.replace(add_graph(), inputs=("x", "lost"))
    with pytest.raises(TosaError, match="graph input 'lost' is not declared"):
        tosajax.compile(graph)


def residual(blocks: int) -> Graph:
    """Each block reads the tensor before it twice."""
    b = Builder()
    x = b.input("x", DType.INT32, (64,))
    for _ in range(blocks):
        x = b.op("ADD", x, b.op("BITWISE_NOT", b.op("INTDIV", x, x)))
    return b.graph(outputs=[x])


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="looks into the program of XLA:CPU")
@pytest.mark.parametrize("report", [False, True])
def test_tensors_that_several_nodes_read_are_computed_once(report):
    """The program grows with the depth of a residual network, not with its square.

    Flags also read tensors.
    """
    texts = [
        tosajax.compile(residual(blocks), report_unpredictable=report).hlo() for blocks in (4, 16)
    ]
    divisions = [text.count(" divide(") for text in texts]
    assert divisions == [4, 16]


def test_bfloat16_output_type():
    run = tosajax.compile(add_graph(DType.BF16))
    x = np.ones((1, 3), ml_dtypes.bfloat16)
    assert run(x, x)[0].dtype == ml_dtypes.bfloat16


def test_64_bit_types_of_an_integer_graph_scale_products(data):
    graph = tosajax.load(data / "et_digits_cnn_a8w8" / "model.tosa")
    fn, params = tosajax.lower(graph)
    text = jax.jit(fn).lower(params, jnp.zeros((1, 8, 8, 1), jnp.int8)).as_text()
    assert not operations_of_64_bits(text)


def test_xla_computes_nothing_of_constants_while_it_compiles():
    """XLA miscomputes some constants: bits of floats, and leading zeros of negative numbers."""
    b = Builder()
    zeros = b.op("CLZ", b.const(np.int32(-5), DType.INT32))
    tiny = np.array([1e-45, -1e-45, 1e-40], np.float32)
    floats = [
        b.op(op, b.const(values, DType.FP32))
        for op in ("EXP", "TANH", "ERF", "SIN", "RSQRT")
        for values in (tiny, np.linspace(0.1, 3, 40), np.float32(0.7))
    ]
    graph = b.graph([zeros, *floats])
    program = tosajax.compile(graph).hlo()
    assert not re.search(r"= \S+ constant\((-32|\{.*\.)", program)
    fn, params = tosajax.lower(graph)
    for found, expected in zip(tosajax.compile(graph)(), jax.jit(fn)(params), strict=True):
        assert np.asarray(found).tobytes() == np.asarray(expected).tobytes()


OPTIONS = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs")


def test_programs_are_kept_in_a_folder(tmp_path, data, jax_cache):
    graph = tosajax.load(data / "et_digits_cnn_a8w8" / "model.tosa")
    before = [getattr(jax.config, name) for name in OPTIONS]
    images = np.zeros((3, 8, 8, 1), np.int8)
    expected = tosajax.compile(graph, batch=3)(images)[0]
    found = []
    for _ in range(2):
        run = tosajax.compile(graph, batch=3, cache_dir=tmp_path)
        for _ in range(2):
            np.testing.assert_array_equal(run(images)[0], expected)
        found.append(sorted(p.name for p in tmp_path.iterdir() if p.name.endswith("-cache")))
    assert len(found[0]) >= 1
    assert found[1] == found[0]
    assert [getattr(jax.config, name) for name in OPTIONS] == before


def test_folders_of_several_threads(tmp_path, jax_cache):
    """Each folder has its programs, and the options are restored when all threads are done."""
    before = [getattr(jax.config, name) for name in OPTIONS]
    x = np.ones((1, 3), np.int32)

    def run(n: int) -> int:
        b = Builder()
        y = b.op("ADD", b.input("x", DType.INT32, (1, 3)), b.const(np.full((1, 3), n), DType.INT32))
        run = tosajax.compile(b.graph([y]), cache_dir=tmp_path / str(n % 2))
        assert "add" in run.hlo()
        return int(run(x)[0][0, 0])

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(run, range(6))) == [1, 2, 3, 4, 5, 6]
    assert [getattr(jax.config, name) for name in OPTIONS] == before
    for folder in ("0", "1"):
        assert any(p.name.endswith("-cache") for p in (tmp_path / folder).iterdir())


def test_threads_take_turns_with_jaxs_options(tmp_path):
    before = [getattr(jax.config, name) for name in OPTIONS]
    inside, seen = threading.Event(), []

    def second() -> None:
        inside.wait(timeout=60)
        with persistent_cache(tmp_path / "b"):
            seen.append(getattr(jax.config, OPTIONS[0]))

    thread = threading.Thread(target=second)
    thread.start()
    with persistent_cache(tmp_path / "a"):
        inside.set()
        thread.join(timeout=0.2)
        assert not seen
        with persistent_cache(tmp_path / "c"):  # of the same thread
            assert getattr(jax.config, OPTIONS[0]) == str(tmp_path / "c")
        assert getattr(jax.config, OPTIONS[0]) == str(tmp_path / "a")
    thread.join(timeout=60)
    assert seen == [str(tmp_path / "b")]
    assert [getattr(jax.config, name) for name in OPTIONS] == before


def test_the_users_options_come_back_after_an_error(tmp_path):
    before = [getattr(jax.config, name) for name in OPTIONS]
    with pytest.raises(RuntimeError), persistent_cache(tmp_path):  # noqa: PT012
        assert getattr(jax.config, OPTIONS[0]) == str(tmp_path)
        raise RuntimeError
    assert [getattr(jax.config, name) for name in OPTIONS] == before


@pytest.mark.parametrize("shape", [(-1, 4), (1, 4)])
def test_a_graph_is_checked_and_sorted_once(shape, monkeypatch):
    calls: Counter[str] = Counter()

    def counted(module: Any, name: str) -> None:
        function = getattr(module, name)

        def call(*args: Any) -> Any:
            calls[name] += 1
            return function(*args)

        monkeypatch.setattr(module, name, call)

    b = Builder()
    x = b.input("x", DType.INT32, shape)
    y = b.op("ADD", b.op("MUL", x, x, b.const([0], DType.INT8)), x)
    graph = b.graph([y])
    backwards = dataclasses.replace(graph, nodes=graph.nodes[::-1])
    counted(validation, "structure_findings")
    counted(validation, "form_findings")
    counted(model, "_sorted")
    (y,) = tosajax.compile(backwards, batch=3)(np.full((3, 4), 5, np.int32))
    np.testing.assert_array_equal(y, np.full((3, 4), 30))
    assert calls == {"structure_findings": 1, "form_findings": len(graph.nodes), "_sorted": 1}


@pytest.mark.parametrize("make", [tosajax.compile, tosajax.Executable])
@pytest.mark.parametrize("shape", [(-1, 4), (1, 4)])
def test_an_executable_is_checked_however_it_is_made(make, shape):
    b = Builder()
    graph = b.graph([b.op("ABS", b.input("x", DType.INT32, shape))])
    nodes = (*graph.nodes, graph.nodes[0])
    with pytest.raises(TosaError, match="has two origins"):
        make(dataclasses.replace(graph, nodes=nodes), batch=2)
    with pytest.raises(ValueError, match="no input has a first dimension of 1 or -1"):
        make(add_graph(shape=(3, 4)), batch=2)
