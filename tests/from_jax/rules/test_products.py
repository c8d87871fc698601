"""dot_general against JAX: any axes, any types, constant weights."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from exports import agrees, operators
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

import tosajax
from tosajax.from_jax.export import export
from tosajax.report import UnsupportedError

pytestmark = pytest.mark.usefixtures("quick")

_INTEGERS = (np.int8, np.int16, np.int32)
_FP8 = (ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2)
_FLOATS = (np.float32, np.float16, ml_dtypes.bfloat16, *_FP8)


def _array(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Random elements, with the extremes of integers among them."""
    dtype = np.dtype(dtype)
    if dtype == np.bool_:
        return rng.integers(0, 2, shape).astype(dtype)
    if not jnp.issubdtype(dtype, np.integer):
        return rng.standard_normal(shape).astype(np.float32).astype(dtype)
    info = np.iinfo(dtype)
    numbers = rng.integers(info.min, info.max, shape, endpoint=True)
    edges = rng.choice([info.min, info.max, -1, 0, 128, 255, -129], shape)
    edges = np.clip(edges, info.min, info.max)
    return np.where(rng.random(shape) < 0.5, edges, numbers).astype(dtype)


def _random_product(rng: np.random.Generator) -> tuple[Any, tuple[tuple[int, ...], ...]]:
    """dot_general of random axes, and the shapes of its operands."""
    batch, summed, left, right = (
        [int(n) for n in rng.integers(1, 5, rng.integers(0, 3))] for _ in range(4)
    )
    shapes, places = [], []
    for free in (left, right):
        order = rng.permutation(len(batch) + len(summed) + len(free))
        dims = [*batch, *summed, *free]
        shapes.append(tuple(dims[i] for i in order))
        places.append([int(i) for i in np.argsort(order)])
    (a, b), nb, ns = places, len(batch), len(summed)
    dims = ((a[nb : nb + ns], b[nb : nb + ns]), (a[:nb], b[:nb]))
    return dims, tuple(shapes)


@settings(max_examples=3, deadline=None, derandomize=True)
@given(st.integers(0, 2**32))
@pytest.mark.parametrize("dtype", [np.float32, *_INTEGERS], ids=lambda d: np.dtype(d).name)
def test_dot_general_of_any_axes(dtype: Any, seed: int) -> None:
    rng = np.random.default_rng(seed)
    cases = [_random_product(rng) for _ in range(4)]
    constants = [[_array(rng, shape, dtype) for shape in shapes] for _, shapes in cases]

    def function(arguments: list[Any]) -> list[Any]:
        found = []
        for which, ((dims, _), (a, b), (x, y)) in enumerate(
            zip(cases, constants, arguments, strict=True)
        ):
            # One of the operands is a constant in two cases of four.
            x, y = (a if which == 1 else x), (b if which == 2 else y)
            found.append(lax.dot_general(x, y, dims))
        return found

    arguments = [[_array(rng, shape, dtype) for shape in shapes] for _, shapes in cases]
    # Arm's model refuses sums beyond int32, which wrap in JAX.
    agrees(function, arguments, ulp=4, model=dtype != np.int32, check=False)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (np.bool_, np.bool_),
        (np.bool_, np.int16),
        (np.int8, np.bool_),
        (np.int8, np.int8),
        (np.int8, np.int16),
        (np.int16, np.int16),
        (np.int32, np.int8),
        (np.int32, np.int32),
    ],
    ids=lambda d: np.dtype(d).name,
)
def test_integers_wrap_as_in_jax(left: Any, right: Any) -> None:
    rng = np.random.default_rng(1)
    x, y, weights = _array(rng, (5, 70), left), _array(rng, (70, 300), right), None
    weights = _array(rng, (70, 3), right)

    def function(x: Any, y: Any) -> list[Any]:
        wide = lax.dot(x, y, preferred_element_type=jnp.int32)
        return [wide, lax.dot(x, y), lax.dot(x, weights), lax.dot(x[:2], y[:, :2])]

    agrees(function, x, y, model=np.int32 not in (left, right), check=False)


def test_int8_to_int32_is_exact_for_all_sizes() -> None:
    """The route by ONNX and torch-mlir casts these to int8 on the way."""
    sizes = (1, 2, 255, 131071)

    def function(*pairs: Any) -> list[Any]:
        return [lax.dot(x, y, preferred_element_type=jnp.int32) for x, y in pairs]

    pairs = []
    for size, (low, high) in itertools.product(sizes, ((-128, -128), (-128, 127), (127, 127))):
        pairs.append((np.full((1, size), low, np.int8), np.full((size, 1), high, np.int8)))
    graph = agrees(function, *pairs, model=True)
    assert set(operators(graph)) <= {"MATMUL", "MUL", "RESHAPE"}
    wanted = [int(x[0, 0]) * int(y[0, 0]) * x.size for x, y in pairs]
    assert [int(y[0, 0]) for y in function(*pairs)] == wanted


def test_int8_weights_are_a_convolution() -> None:
    rng = np.random.default_rng(2)
    weights = _array(rng, (64, 8), np.int8)
    graph = agrees(
        lambda x: lax.dot(x, weights, preferred_element_type=jnp.int32),
        _array(rng, (4, 64), np.int8),
        model=True,
        target="PRO-INT@8K",
    )
    assert operators(graph) == ["RESHAPE", "CONV2D", "RESHAPE"]


@pytest.mark.parametrize("dtype", [np.int16, np.int32], ids=lambda d: np.dtype(d).name)
def test_wide_integers_rely_on_no_overflow(dtype: Any) -> None:
    """Sums that fit are computed by sums that fit: `check` would say what TOSA leaves open."""
    rng = np.random.default_rng(3)
    x = rng.integers(-1000, 1000, (40, 64)).astype(dtype)
    y = rng.integers(-1000, 1000, (64, 50)).astype(dtype)
    x[0], y[:, 0] = np.iinfo(dtype).min // 2**8, 1

    def function(x: Any, y: Any) -> Any:
        return lax.dot(x, y, preferred_element_type=jnp.int32)

    graph = agrees(function, x, y, check=True)
    assert operators(graph).count("MATMUL") == (4 if dtype == np.int16 else 10)


def test_constants_are_as_narrow_as_their_numbers() -> None:
    rng = np.random.default_rng(4)
    weights = rng.integers(-128, 128, (64, 50)).astype(np.int32)
    x = _array(rng, (40, 64), np.int32)
    graph = agrees(lambda x: lax.dot(x, weights), x, check=False)
    assert operators(graph).count("CONV2D") == 4


@pytest.mark.parametrize(
    ("left", "right"),
    [
        *((d, d) for d in (*_FLOATS, np.bool_, *_INTEGERS)),
        (np.float16, np.float32),
        (ml_dtypes.bfloat16, np.float16),
        (np.int8, np.bool_),
        (np.int8, ml_dtypes.bfloat16),
        _FP8,
    ],
    ids=lambda d: np.dtype(d).name,
)
def test_float_results_of_any_types(left: Any, right: Any) -> None:
    rng = np.random.default_rng(5)
    shapes = zip(((3, 6), (6, 4), (6, 2)), (left, right, right), strict=True)
    x, y, weights = (_array(rng, shape, dtype) for shape, dtype in shapes)
    # Products of large integers are infinite in most of these types.
    x, y, weights = (np.sign(v) if v.dtype.kind == "i" else v for v in (x, y, weights))

    def function(x: Any, y: Any) -> list[Any]:
        return [
            lax.dot(a, b, preferred_element_type=out)
            for out in _results(x, y)
            for a, b in ((x, y), (x, weights))
        ]

    # XLA rounds on the way where operands are narrow, the more the narrower they are.
    agrees(function, x, y, ulp=4, model=True)


def _results(x: Any, y: Any) -> list[Any]:
    """The types of floats that JAX has for the result: none narrower than the operands."""
    found = []
    for out in _FLOATS:
        try:
            jax.eval_shape(lambda x, y, out=out: lax.dot(x, y, preferred_element_type=out), x, y)
        except TypeError:
            continue
        found.append(out)
    return found


def test_floats_are_rounded_once() -> None:
    rng = np.random.default_rng(6)
    for dtype in (np.float16, ml_dtypes.bfloat16):
        x, y = _array(rng, (4, 500), dtype), _array(rng, (500, 4), dtype)
        weights = _array(rng, (500, 4), dtype)
        graph = export(lambda x, y, w=weights: [x @ y, x @ w], x, y, check=False)
        for found, factor in zip(tosajax.compile(graph)(x, y), (y, weights), strict=True):
            exact = x.astype(np.float64) @ factor.astype(np.float64)
            unit = np.abs(exact) * float(jnp.finfo(dtype).eps)
            # Half a unit, and what float32 adds to it.
            error = np.abs(np.asarray(found).astype(np.float64) - exact)
            assert (error <= 0.51 * unit + 1e-4).all()


@pytest.mark.parametrize("out", [np.int8, np.int16, np.int32, np.bool_])
def test_floats_to_integers_are_truncated(out: Any) -> None:
    x = np.array([[0.0, 1.7], [-1.7, 30.2], [0.3, 0.0]], np.float32)
    y = np.array([[1.0, 2.0, -3.5], [1.5, -0.6, 0.25]], np.float32)
    agrees(lambda x, y: lax.dot(x, y, preferred_element_type=out), x, y, model=True)


def _linear(shape: tuple[int, ...], dims: Any, weights_first: bool = False) -> list[str]:
    """The operators of a product with constant weights."""
    rng = np.random.default_rng(7)
    weights = _array(rng, (8, 16), np.float32)

    def function(x: Any) -> Any:
        if weights_first:
            return lax.dot_general(weights, x, (((1,), (x.ndim - 1,)), ((), ())))
        return lax.dot_general(x, weights, dims)

    return operators(agrees(function, _array(rng, shape, np.float32), ulp=4, model=True))


def test_linear_layers_are_convolutions_of_1x1() -> None:
    last = (((1,), (1,)), ((), ()))
    assert _linear((4, 16), last) == ["RESHAPE", "CONV2D", "RESHAPE"]
    assert _linear((2, 5, 16), (((2,), (1,)), ((), ()))) == ["RESHAPE", "CONV2D", "RESHAPE"]
    assert _linear((2, 3, 5, 16), (((3,), (1,)), ((), ()))) == ["RESHAPE", "CONV2D", "RESHAPE"]
    assert _linear((16,), None, True) == ["RESHAPE", "CONV2D", "RESHAPE"]
    assert _linear((4, 16), None, True) == ["RESHAPE", "CONV2D", "RESHAPE", "TRANSPOSE"]
    assert _linear((16, 4), (((0,), (1,)), ((), ()))) == [
        "TRANSPOSE",
        "RESHAPE",
        "CONV2D",
        "RESHAPE",
    ]


def test_a_vectorized_layer_transposes_nothing() -> None:
    rng = np.random.default_rng(8)
    weights = _array(rng, (8, 16), np.float32)
    graph = agrees(jax.vmap(lambda x: weights @ x), _array(rng, (4, 16), np.float32), ulp=4)
    assert operators(graph) == ["RESHAPE", "CONV2D", "RESHAPE"]


def test_attention_moves_heads_once() -> None:
    rng = np.random.default_rng(9)
    q, k, v = (_array(rng, (2, n, 4, 8), np.float32) for n in (5, 7, 7))

    def attention(q: Any, k: Any, v: Any) -> Any:
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k)
        return jnp.einsum("bhqk,bkhd->bqhd", scores, v)

    found = operators(agrees(attention, q, k, v, ulp=8, model=True))
    assert found.count("MATMUL") == 2
    assert found.count("TRANSPOSE") == 4  # Of q, k, v and the result.
    assert found.count("RESHAPE") <= 6


def test_matrices_swap_places_where_that_saves_transposes() -> None:
    rng = np.random.default_rng(10)
    x, y = _array(rng, (2, 6, 5), np.float32), _array(rng, (2, 7, 6), np.float32)
    dims = (((1,), (2,)), ((0,), (0,)))
    graph = agrees(lambda x, y: lax.dot_general(x, y, dims), x, y, ulp=4, model=True)
    assert operators(graph) == ["MATMUL", "TRANSPOSE"]


def test_outer_products_are_elementwise() -> None:
    rng = np.random.default_rng(11)
    x, y = _array(rng, (3, 4), np.float32), _array(rng, (3, 5), np.float32)
    graph = agrees(lambda x, y: jnp.einsum("bi,bj->bij", x, y), x, y, model=True)
    assert operators(graph) == ["RESHAPE", "RESHAPE", "MUL"]
    many = [_array(rng, (2, 1, 2), np.float32), _array(rng, (3, 2, 1), np.float32)]
    graph = agrees(lambda x, y: lax.dot_general(x, y, (((), ()), ((), ()))), *many)
    assert operators(graph).count("MUL") == 1


def test_an_algorithm_is_noted() -> None:
    preset = lax.DotAlgorithmPreset.F32_F32_F32
    x = np.ones((2, 3), np.float32)
    graph = agrees(lambda x, y: lax.dot(x, y, precision=preset), x, x.T, ulp=4)
    assert any("algorithm" in rewrite.done for rewrite in graph.source.rewrites)
    assert not agrees(lambda x, y: lax.dot(x, y, precision="highest"), x, x.T).source.rewrites


def test_fp8_sums_are_noted() -> None:
    x = np.ones((2, 3), _FP8[0])
    graph = agrees(lambda x, y: lax.dot(x, y), x, x.T, model=True)
    assert any("float16" in rewrite.differs for rewrite in graph.source.rewrites)


def test_sums_of_nothing_are_zero() -> None:
    x = np.ones((2, 3), np.float32)
    agrees(lambda x: x @ x.T + lax.dot(x[:, :0], x.T[:0]), x)


def test_what_there_is_not() -> None:
    nibbles = jax.ShapeDtypeStruct((2, 2), jnp.int4)
    with pytest.raises(UnsupportedError, match="operands of int4"):
        export(lambda x: lax.dot(x, x), nibbles)
