"""Functions of graphs check their arguments while they are traced, with the words of Executable."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import programs
import pytest

import tosajax
from tosajax import Builder, DType, Tensor
from tosajax.fixedpoint import _x64
from tosajax.grad import QTensor
from tosajax.grad.qtensor import payload
from tosajax.lowering.inputs import check_shape

SHAPE = (1, 2, 4, 3)
IMAGE = np.arange(24, dtype=np.int8).reshape(SHAPE)
LOWERINGS: dict[str, Callable[..., Any]] = {
    "lower": tosajax.lower,
    "differentiable": tosajax.differentiable,
}
ZERO = QTensor.of(np.zeros(SHAPE, np.int8))


def beside(dtype: DType = DType.INT8, shape: tuple[int, ...] = SHAPE) -> tosajax.Graph:
    """An input, and a constant beside it."""
    b = Builder()
    unit = b.const(np.ones(shape, dtype.storage), dtype, name="unit")
    return b.graph([b.op("IDENTITY", t) for t in (b.input("x", dtype, shape), unit)])


@pytest.fixture(params=LOWERINGS)
def lowering(request) -> Callable[..., Any]:
    return LOWERINGS[request.param]


# Arguments, from fn's params, and the error.
WRONG: dict[str, tuple[Callable[[Any], tuple[Any, ...]], type[Exception], str]] = {
    "float images": (
        lambda p: (p, IMAGE.astype(np.float32)),
        TypeError,
        "input 'x' has type float32, expected int8 (INT8)",
    ),
    "wider integers": (
        lambda p: (p, IMAGE.astype(np.int32)),
        TypeError,
        "input 'x' has type int32, expected int8 (INT8); use .astype(int8) if its values fit",
    ),
    "bytes": (
        lambda p: (p, IMAGE.view(np.uint8)),
        TypeError,
        "input 'x' has type uint8, expected int8 (INT8); use .view(int8) if it holds the same bits"
        ", or (x ^ 128).view(int8) if its 0 stands for -128",
    ),
    "bool": (
        lambda p: (p, IMAGE > 0),
        TypeError,
        "input 'x' has type bool, expected int8 (INT8)",
    ),
    "another size": (
        lambda p: (p, np.zeros((1, 2, 5, 3), np.int8)),
        ValueError,
        "input 'x' has shape (1, 2, 5, 3), expected (1, 2, 4, 3)",
    ),
    "channels first": (
        lambda p: (p, IMAGE.transpose(0, 3, 1, 2)),
        ValueError,
        "input 'x' has shape (1, 3, 2, 4), expected (1, 2, 4, 3); use .transpose(0, 2, 3, 1)",
    ),
    "a batch": (
        lambda p: (p, np.zeros((16, 2, 4, 3), np.int8)),
        ValueError,
        "input 'x' has shape (16, 2, 4, 3), expected (1, 2, 4, 3); run examples side by side with "
        "jax.vmap, or compile with batch=16",
    ),
    "a batch with channels first": (
        lambda p: (p, np.zeros((16, 3, 2, 4), np.int8)),
        ValueError,
        "input 'x' has shape (16, 3, 2, 4), expected (1, 2, 4, 3); use .transpose(0, 2, 3, 1); run "
        "examples side by side with jax.vmap, or compile with batch=16",
    ),
    "an image": (
        lambda p: (p, IMAGE[0]),
        ValueError,
        "input 'x' has shape (2, 4, 3), expected (1, 2, 4, 3); add a first dimension, x[None]",
    ),
    "an image with channels first": (
        lambda p: (p, IMAGE[0].transpose(2, 0, 1)),
        ValueError,
        "input 'x' has shape (3, 2, 4), expected (1, 2, 4, 3); add a first dimension, x[None]; "
        "use .transpose(0, 2, 3, 1)",
    ),
    "no examples": (
        lambda p: (p, np.zeros((0, 2, 4, 3), np.int8)),
        ValueError,
        "input 'x' has shape (0, 2, 4, 3), expected (1, 2, 4, 3)",
    ),
    "twice": (lambda p: (p, IMAGE, IMAGE), TypeError, "2 inputs, expected 1 (x)"),
    "none": (lambda p: (p,), TypeError, "0 inputs, expected 1 (x)"),
    "the other way round": (
        lambda p: (IMAGE, p),
        TypeError,
        "params is an array, int8[1, 2, 4, 3], expected the dict that came with the function; it "
        "stands before the inputs",
    ),
    "without params": (
        lambda p: (IMAGE,),
        TypeError,
        "params is an array, int8[1, 2, 4, 3], expected the dict that came with the function; it "
        "stands before the inputs",
    ),
    "params twice": (
        lambda p: (p, {}),
        TypeError,
        "input 'x' is {} (dict), expected an array",
    ),
    "a list": (
        lambda p: (p, [[1, 2], [3]]),
        TypeError,
        "input 'x' is [[1, 2], [3]] (list), expected an array",
    ),
    "no params": (lambda p: ({}, IMAGE), ValueError, "params lacks 'unit'"),
    "params of floats": (
        lambda p: ({"unit": np.ones(SHAPE, np.float32)}, IMAGE),
        TypeError,
        "params['unit'] has type float32, expected int8",
    ),
    "params of another shape": (
        lambda p: ({"unit": np.ones(SHAPE[1:], np.int8)}, IMAGE),
        ValueError,
        "params['unit'] has shape (2, 4, 3), expected (1, 2, 4, 3)",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_arguments(case, lowering):
    arguments, error, message = WRONG[case]
    fn, params = lowering(beside())
    with pytest.raises(error, match=f"^{re.escape(message)}$"):
        fn(*arguments(params))


@pytest.mark.parametrize("case", ["float images", "another size", "a batch", "twice"])
@pytest.mark.parametrize("traced_by", ["jit", "eval_shape", "make_jaxpr", "scan", "cond"])
def test_wrong_arguments_of_a_traced_function(case, traced_by, lowering):
    arguments, error, message = WRONG[case]
    fn, params = lowering(beside())
    _, *inputs = arguments(params)
    calls = {
        "jit": lambda: jax.jit(fn)(params, *inputs),
        "eval_shape": lambda: jax.eval_shape(fn, params, *inputs),
        "make_jaxpr": lambda: jax.make_jaxpr(fn)(params, *inputs),
        "scan": lambda: jax.lax.map(lambda xs: fn(params, *xs), [x[None] for x in inputs]),
        "cond": lambda: jax.lax.cond(
            jnp.asarray(True), lambda *xs: fn(params, *xs), lambda *xs: fn(params, *xs), *inputs
        ),
    }
    with pytest.raises(error, match=re.escape(message)):
        calls[traced_by]()


def test_shapes_under_vmap_are_those_of_an_example(lowering):
    fn, params = lowering(beside())
    images = np.stack([IMAGE, -IMAGE])
    mapped = jax.jit(jax.vmap(fn, in_axes=(None, 0)))
    found = payload(mapped(params, images)[0])
    np.testing.assert_array_equal(found, images)
    with pytest.raises(ValueError, match="add a first dimension"):
        mapped(params, images[:, 0])
    with pytest.raises(TypeError, match="'x' has type float32, expected int8"):
        mapped(params, images.astype(np.float32) / 255)


def test_exported_functions_check_shapes_and_keep_an_open_batch():
    fn, params = tosajax.lower(beside())
    (batch,) = jax.export.symbolic_shape("b")

    def avals(*shape: Any):
        exported = jax.export.export(jax.jit(jax.vmap(lambda x: fn(params, x)[0])))
        return exported(jax.ShapeDtypeStruct(shape, np.int8)).out_avals

    assert str(avals(batch, *SHAPE)) == "(ShapedArray(int8[b,1,2,4,3]),)"
    with pytest.raises(ValueError, match=re.escape("shape (b, 2, 4, 3), expected (1, 2, 4, 3)")):
        avals(1, batch, *SHAPE[1:])


def test_checks_leave_nothing_in_the_program():
    """A program of the function is that of its operators, whatever is checked."""
    b = Builder()
    fn, params = tosajax.lower(b.graph([b.op("ABS", b.input("x", DType.INT32, SHAPE))]))
    steps = jax.make_jaxpr(fn)(params, np.ones(SHAPE, np.int32)).jaxpr.eqns
    assert [step.primitive.name for step in steps] == ["abs"]


@pytest.mark.parametrize("dtype", [d for d in DType if d is not DType.SHAPE], ids=lambda d: d.name)
def test_every_type_goes_in_and_no_other(dtype, lowering):
    others = [np.int8, np.int16, np.int32, np.float32, np.float16, np.bool_, ml_dtypes.bfloat16]
    fn, params = lowering(beside(dtype))
    good = np.ones(SHAPE, dtype.storage)
    good = _x64.from_numpy(good) if dtype is DType.INT48 else jnp.asarray(good)
    fn(params, good)
    for other in others:
        if dtype.storage != other:
            with pytest.raises(TypeError, match="input 'x' has type"):
                fn(params, np.ones(SHAPE, other))


@pytest.mark.parametrize(
    ("dtype", "limit"), [(DType.INT4, 7), (DType.INT48, (1 << 47) - 1)], ids=["int4", "int48"]
)
def test_values_of_numpy_arrays_that_a_type_lacks(dtype, limit, lowering):
    fn, params = lowering(beside(dtype, (1,)))
    for value in (limit, dtype.minimum):
        array = np.array([value], dtype.storage)
        for y in fn({"unit": array}, array):
            assert np.asarray(payload(y)).tobytes() == array.tobytes()
    for value in (limit + 1, dtype.minimum - 1):
        with pytest.raises(ValueError, match=rf"'x' has values in \[{value}, {value}\]"):
            fn(params, np.array([value], dtype.storage))


def test_int48_that_jax_has_narrowed():
    fn, params = tosajax.lower(beside(DType.INT48))
    with pytest.raises(TypeError, match=r"expected int64 .INT48.; JAX narrows int64 to int32"):
        jax.jit(fn)(params, np.ones(SHAPE, np.int64))
    with pytest.raises(TypeError, match=r"expected int64 .INT48.; use .astype\(int64\)"):
        fn(params, np.ones(SHAPE, np.int16))


@pytest.mark.parametrize(
    ("given", "wanted", "axes"),
    [
        ((1, 3, 8, 8), (1, 8, 8, 3), (0, 2, 3, 1)),
        ((1, 8, 8, 3), (1, 3, 8, 8), (0, 3, 1, 2)),
        ((2, 3, 5, 8, 8), (2, 5, 8, 8, 3), (0, 2, 3, 4, 1)),
        ((1, 1, 28, 28), (1, 28, 28, 1), (0, 2, 3, 1)),
        ((4, 3, 8, 8), (-1, 8, 8, 3), (0, 2, 3, 1)),
        ((8, 3), (3, 8), (1, 0)),
        ((1, 3, 8, 9), (1, 8, 8, 3), None),
        ((1, 3, 8), (1, 8, 8, 3), None),
        ((3,), (4,), None),
        ((8,), (8, 1), None),  # a first dimension would not do
        ((), (4,), None),
        ((2,) + (1,) * 6, (1,) * 6 + (2,), None),  # beyond the ranks of any level
    ],
)
def test_transposition_that_an_error_advises(given, wanted, axes):
    array = np.zeros(given)
    with pytest.raises(ValueError, match="expected") as caught:
        check_shape(Tensor("x", DType.FP32, wanted), wanted, array, "")
    assert str(caught.value).partition("; ")[2] == (f"use .transpose{axes}" if axes else "")
    if axes:
        check_shape(Tensor("x", DType.FP32, wanted), wanted, array.transpose(axes), "")


def test_executables_give_the_same_advice():
    run = tosajax.compile(beside())
    with pytest.raises(ValueError, match=re.escape("(1, 2, 4, 3); use .transpose(0, 2, 3, 1)")):
        run(IMAGE.transpose(0, 3, 1, 2))
    with pytest.raises(ValueError, match=re.escape("add a first dimension, x[None]")):
        run(IMAGE[0])
    wanted = "(1, 2, 4, 3); use .transpose(0, 2, 3, 1); compile with batch=5"
    with pytest.raises(ValueError, match=f"{re.escape(wanted)}$"):
        run(np.zeros((5, 3, 2, 4), np.int8))
    with pytest.raises(TypeError, match=re.escape("input 'x' is {} (dict), expected an array")):
        run({})  # pyright: ignore[reportArgumentType]


def test_qtensors_are_checked_by_their_integers():
    fn, params = tosajax.differentiable(beside())
    np.testing.assert_array_equal(fn(params, ZERO)[0].q, ZERO.q)
    gradient = jax.grad(lambda shadow: fn(params, QTensor(ZERO.q, shadow))[0].shadow.sum())
    np.testing.assert_array_equal(gradient(ZERO.shadow), np.ones(SHAPE))
    with pytest.raises(TypeError, match="input 'x' has type int16, expected int8"):
        fn(params, QTensor.of(np.zeros(SHAPE, np.int16)))
    with pytest.raises(ValueError, match=r"has shape \(2, 4, 3\), expected \(1, 2, 4, 3\)"):
        fn(params, QTensor.of(IMAGE[0]))
    with pytest.raises(ValueError, match=r"a shadow of shape \(3,\), expected that of its q"):
        fn(params, QTensor(ZERO.q, jnp.zeros(3)))
    with pytest.raises(TypeError, match=r"params\['unit'\] has type int32, expected int8"):
        fn({"unit": QTensor.of(np.ones(SHAPE, np.int32))}, ZERO)
    plain, constants = tosajax.lower(beside())
    with pytest.raises(TypeError, match=r"input 'x' is QTensor\(int8.* expected an array"):
        plain(constants, ZERO)


def test_gradients_of_floats(lowering):
    fn, params = lowering(beside(DType.FP32))
    x = jnp.ones(SHAPE, jnp.float32)
    np.testing.assert_array_equal(jax.grad(lambda x: fn(params, x)[0].sum())(x), x)
    with pytest.raises(ValueError, match="has shape"):
        jax.grad(lambda x: fn(params, x)[0].sum())(x[0])


X = np.array([1, -2, 100], np.int8)


def test_state_is_checked(lowering):
    graph = programs.accumulator([5, 6, 7])
    fn, params = lowering(graph)
    state = tosajax.initial_state(graph)
    fn(params, state, X)
    (kept,) = state.values()
    wrong: list[tuple[tuple[Any, ...], type[Exception], str]] = [
        ((params, X), TypeError, r"state is an array, int8\[3\], expected the dict of variables"),
        ((params, None, X), TypeError, "state is None .NoneType., expected the dict"),
        ((params, {}, X), TypeError, r"state\['sum'\] is None .*, expected a Variable"),
        ((params, {"sum": X}, X), TypeError, r"state\['sum'\] is an array.*, expected a Variable"),
        (
            (params, {"sum": kept._replace(value=jnp.zeros(3))}, X),
            TypeError,
            r"state\['sum'\].value has type float32, expected int8",
        ),
        (
            (params, {"sum": kept._replace(value=jnp.zeros(4, jnp.int8))}, X),
            ValueError,
            r"state\['sum'\].value has shape \(4,\), expected \(3,\)",
        ),
        (
            (params, {"sum": kept._replace(written=jnp.zeros(4, bool))}, X),
            ValueError,
            r"state\['sum'\].written has shape \(4,\), expected \(\)",
        ),
        ((params, state, X[:2]), ValueError, r"input 'x' has shape \(2,\), expected \(3,\)"),
    ]
    for arguments, error, message in wrong:
        with pytest.raises(error, match=message):
            fn(*arguments)
