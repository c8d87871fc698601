"""Elementwise primitives of one operand, beside JAX."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from elements import EIGHT_BITS, FLOATS, INTEGERS, run, same, values
from exports import agrees, operators
from jax import lax

from tosajax import UnsupportedError
from tosajax.from_jax.export import export

# The primitives of one operator; by how many ulp it may differ, and in Arm's model.
OPERATORS = {
    lax.ceil: (0, 0),
    lax.floor: (0, 0),
    lax.cos: (0, 4),
    lax.sin: (0, 4),
    lax.exp: (0, 64),
    lax.log: (0, 4),
    lax.logistic: (2, 64),
    lax.rsqrt: (1, 8),
    lax.tanh: (0, None),
    lax.erf: (8, 8),
    lax.neg: (0, 0),
    lax.abs: (0, 0),
    lax.sign: (0, 0),
}
SEVERAL = {
    lax.acos: 6,
    lax.acosh: 7,
    lax.asin: 6,
    lax.asinh: 7,
    lax.atan: 4,
    lax.cbrt: 3,
    lax.cosh: 64,
    lax.erf_inv: 128,
    lax.exp2: 128,
    lax.expm1: 12,
    lax.sinh: 64,
    lax.sqrt: 3,
    lax.tan: 4,
}
EVEN, AWAY = lax.RoundingMethod.TO_NEAREST_EVEN, lax.RoundingMethod.AWAY_FROM_ZERO


BOUNDS = sorted({*OPERATORS.values()}, key=str)


def _of_all(*fns):
    return lambda *xs: [fn(x) for x in xs for fn in fns]


@pytest.mark.parametrize("bounds", BOUNDS, ids=str)
def test_operators(bounds):
    ulp, model = bounds
    fns = [fn for fn, found in OPERATORS.items() if found == bounds]
    graph = same(_of_all(*fns), *map(values, FLOATS), ulp=ulp, model=model)
    assert not graph.source.rewrites


@pytest.mark.parametrize("fn", SEVERAL, ids=lambda fn: fn.__name__)
def test_compositions(fn):
    same(_of_all(fn), *map(values, FLOATS), ulp=SEVERAL[fn], model=max(SEVERAL[fn], 128))


def test_tanh_in_arms_model_is_close():
    x = values(np.dtype(np.float32))
    agrees(lax.tanh, x, ulp=8, model=True)


@pytest.mark.parametrize("fn", [lax.log1p, lax.atanh], ids=lambda fn: fn.__name__)
def test_sums_that_lose_the_sign_of_zero(fn):
    graph = same(_of_all(fn), *map(values, FLOATS), ulp=4, model=64, zeros=False)
    assert "-0.0 gives 0.0" in str(graph.source.rewrites)
    assert not np.signbit(
        run(export(fn, np.array([-0.0], np.float32), check=False), np.array([-0.0], np.float32))
    )


def test_erfc_loses_its_tail_and_says_so():
    x = values(np.dtype(np.float32))
    graph = agrees(lax.erfc, x, ulp=2, model=True)
    assert operators(graph) == ["ERF", "SUB"]
    assert "2**-22" in str(graph.source.rewrites)


@pytest.mark.parametrize(
    "fn",
    [lax.neg, lax.abs, lax.sign, lax.floor, lax.square, lax.is_finite, lax.sqrt],
    ids=lambda fn: fn.__name__,
)
def test_floats_of_8_bits(fn):
    every = [np.arange(256, dtype=np.uint8).view(dtype) for dtype in EIGHT_BITS]
    same(_of_all(fn), *every, model=0)


def test_floats_of_8_bits_are_rounded_once():
    """XLA rounds to float16 before."""
    every = [np.arange(256, dtype=np.uint8).view(dtype) for dtype in EIGHT_BITS]
    same(_of_all(lax.exp), *every, ulp=1, model=1)


@pytest.mark.parametrize(
    "fn",
    [lax.neg, lax.abs, lax.sign, lax.bitwise_not, lax.square, lax.population_count, lax.clz],
    ids=lambda fn: fn.__name__,
)
def test_integers(fn):
    every = [np.arange(-(2**15), 2**15).astype(np.int16), np.arange(-128, 128).astype(np.int8)]
    same(_of_all(fn), values(np.dtype(np.int32), 4096), *every, model=0)


def test_integers_become_few_operators():
    def found(fn, dtype):
        return operators(export(fn, jax.ShapeDtypeStruct((4,), dtype)))

    assert found(lax.population_count, np.int8) == found(lax.clz, np.int8) == ["TABLE"]
    assert found(lax.sign, np.int8) == ["CLAMP"]
    assert found(lax.neg, np.int32) == ["MUL"]
    assert found(lax.square, np.int8) == ["MUL", "CAST"]
    assert found(lax.clz, np.int32) == ["CLZ"]


@pytest.mark.parametrize("shift", range(0, 32, 5))
def test_bits_are_counted_wherever_they_are(shift):
    x = (np.arange(256, dtype=np.uint32) << shift).view(np.int32)
    same(lambda x: (lax.population_count(x), lax.clz(x)), x)


def test_not_of_bool():
    assert operators(same(lax.bitwise_not, values(np.dtype(bool)), model=0)) == ["LOGICAL_NOT"]


def _ties(dtype):
    halves = np.arange(-40, 41) / 2
    return np.concatenate([values(dtype), halves.astype(dtype)])


@pytest.mark.parametrize("method", [EVEN, AWAY], ids=["even", "away"])
def test_round(method):
    floats = [*map(_ties, FLOATS), *(np.arange(256, dtype=np.uint8).view(d) for d in EIGHT_BITS)]
    graph = same(_of_all(lambda x: lax.round(x, method)), *floats, model=0, zeros=False)
    assert "-0.0 gives 0.0" in str(graph.source.rewrites)


def test_round_is_five_operators():
    graph = export(jnp.round, np.array([1.5], np.float32))
    assert operators(graph) == ["CLAMP", "CAST", "CAST", "EQUAL", "SELECT"]


def test_is_finite():
    assert len(operators(same(lax.is_finite, values(np.dtype(np.float32)), model=0))) == 2
    same(_of_all(lax.is_finite), *map(values, FLOATS), model=0)


@pytest.mark.parametrize("power", [0, 1, 2, 3, 4, 7, 12, -1, -2, -3, -5])
def test_integer_powers_of_floats(power):
    same(_of_all(lambda x: lax.integer_pow(x, power)), *map(values, FLOATS), model=1)


@pytest.mark.parametrize("power", [0, 1, 2, 3, 5, 8, 31])
def test_integer_powers_of_integers_wrap(power):
    same(_of_all(lambda x: lax.integer_pow(x, power)), *map(values, INTEGERS), model=0)


def test_integer_powers_take_the_fewest_products():
    for power, count in ((1, 0), (2, 1), (3, 2), (4, 2), (8, 3), (15, 6), (-2, 2), (-1, 1)):
        found = operators(
            export(lambda x, n=power: lax.integer_pow(x, n), np.array([2], np.float32))
        )
        assert len([op for op in found if op != "IDENTITY"]) == count


def _layer_norm(x, scale, bias):
    centred = x - x.mean(-1, keepdims=True)
    variance = (centred**2).mean(-1, keepdims=True)
    return centred * lax.rsqrt(variance + 1e-5) * scale[None] + bias[None]


def test_layer_norm_is_short():
    shapes = (jax.ShapeDtypeStruct(shape, np.float32) for shape in ((2, 8), (8,), (8,)))
    found = operators(export(_layer_norm, *shapes))
    moment = ["REDUCE_SUM", "MUL"]
    rest = ["SUB", "MUL", "ADD", "RSQRT", "MUL", "MUL", "ADD"]
    assert sorted(found) == sorted([*moment, *moment, *rest, "RESHAPE", "RESHAPE"])


def test_stop_gradient_leaves_nothing():
    graph = export(lambda x: lax.stop_gradient(x) + 1, np.array([2], np.float32))
    assert operators(graph) == ["ADD"]


def test_subnormal_numbers_are_kept_or_flushed():
    x = np.array([1e-40, -1e-40], np.float32)
    fns = lax.neg, lax.abs, lax.floor, lax.exp, lax.tanh, lax.sign, lax.expm1, lax.asin, lax.asinh
    graph = export(lambda x: jnp.concatenate([fn(x)[None] for fn in fns]), x, check=False)
    exact = [fn(np.float64(x)) for fn in (np.negative, np.abs, np.floor, np.exp, *_SMALL)]
    of_zero = [fn(0 * x) for fn in (np.negative, np.abs, np.floor, np.exp, *_SMALL)]
    found = run(graph, x)
    assert ((abs(found - exact) < 1e-37) | (abs(found - of_zero) < 1e-37)).all()


# Of small numbers.
_SMALL = np.tanh, np.sign, np.expm1, np.arcsin, np.arcsinh


# The functions that networks use.


@pytest.mark.parametrize(
    ("fn", "wanted"),
    [
        (jax.nn.relu, ["CLAMP"]),
        (jax.nn.silu, ["SIGMOID", "MUL"]),
        (jax.nn.gelu, ["MUL", "MUL", "MUL", "ADD", "MUL", "TANH", "ADD", "MUL", "MUL"]),
        (
            functools.partial(jax.nn.gelu, approximate=False),
            ["MUL", "NEGATE", "MUL", "ERF", "SUB", "MUL"],
        ),
        (jax.nn.leaky_relu, ["GREATER_EQUAL", "MUL", "SELECT"]),
        (jax.nn.sigmoid, ["SIGMOID"]),
        (jnp.sqrt, ["RSQRT", "RECIPROCAL"]),
        (jax.nn.softmax, ["REDUCE_MAX", "SUB", "EXP", "REDUCE_SUM", "RECIPROCAL", "MUL"]),
    ],
    ids=["relu", "silu", "gelu", "gelu-erf", "leaky-relu", "sigmoid", "sqrt", "softmax"],
)
def test_functions_of_networks_are_short(fn, wanted):
    graph = export(fn, jax.ShapeDtypeStruct((2, 3), np.float32))
    assert operators(graph) == wanted


@pytest.mark.parametrize(
    ("fn", "dtype", "message"),
    [
        (lax.lgamma, np.float32, "lgamma.*table"),
        (lax.digamma, np.float32, "digamma.*table"),
        (lax.neg, np.uint8, "an array of uint8"),
        (lax.sign, jnp.int4, "int4"),
        (lax.real, np.complex64, "complex64"),
    ],
    ids=["lgamma", "digamma", "uint8", "int4", "complex"],
)
def test_what_is_missing_says_what_to_do(fn, dtype, message):
    with pytest.raises(UnsupportedError, match=message):
        export(fn, jax.ShapeDtypeStruct((2,), dtype))
