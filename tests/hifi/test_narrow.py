"""64-bit arithmetic in 32 bits, beside Python's integers; no step of it overflows."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tosajax
from tosajax import UnsupportedError, reference_model
from tosajax.hifi.kernels import _narrow
from tosajax.hifi.kernels._narrow import Wide
from tosajax.ops.recording import recording

pytestmark = pytest.mark.usefixtures("quick")

MIN, MAX = -(2**31), 2**31 - 1
RNG = np.random.default_rng(5)
EDGES = sorted(
    {MIN, MIN + 1, -(2**30) - 1, -(2**30), -(2**30) + 1, -(2**16) - 1, -(2**16), -65535, -3, -1}
    | {0, 1, 3, 2**15 - 1, 2**15, 2**16 - 1, 2**16, 2**30 - 1, 2**30, 2**30 + 1, MAX - 1, MAX}
)
PAIRS = np.asarray([*itertools.product(EDGES, EDGES), *RNG.integers(MIN, MAX, (400, 2))]).T
# Products of which half a unit is left over: of odd multiples of 2**15 by those of 2**15.
TIES = np.asarray([[a << 15, b << 15] for a in (-5, -1, 1, 3, 65535) for b in (-7, -3, 1, 5)]).T


def int32(values: Any) -> np.ndarray:
    return np.asarray(values, np.int32)


def in_graph(function: Callable[..., Any], *arrays: np.ndarray) -> list[np.ndarray]:
    """The results in Arm's model, which refuses a graph with a sum or a product that overflows."""
    with recording():
        graph = tosajax.export(function, *arrays)
    return list(map(np.asarray, reference_model.run(graph, *arrays).values()))


def saturated(value: int) -> int:
    return min(max(value, MIN), MAX)


def half_up(value: int, bits: int) -> int:
    return (value + (1 << bits >> 1)) >> bits


def half_away(value: int, bits: int) -> int:
    return half_up(abs(value), bits) * (1 if value >= 0 else -1)


def of_pairs(function: Callable[[int, int], int], pairs: np.ndarray) -> list[int]:
    return [function(int(a), int(b)) for a, b in pairs.T]


def check(function: Callable[..., Any], wanted: Sequence[int], *arrays: np.ndarray) -> None:
    (found,) = in_graph(function, *arrays)
    np.testing.assert_array_equal(found, int32(wanted))


BUT_MINIMA = PAIRS[:, ~((PAIRS[0] == MIN) & (PAIRS[1] == MIN))]


def test_multiply_floor():
    wanted = of_pairs(lambda a, b: a * b >> 31, BUT_MINIMA)
    check(_narrow.multiply_floor, wanted, *map(int32, BUT_MINIMA))


@pytest.mark.parametrize("b", [MIN + 1, -(2**30) - 1, -(2**30), -1, 0, 774541002, 1549082005, MAX])
def test_multiply_floor_by_a_number(b: int):
    a = int32(EDGES)
    check(lambda a: _narrow.multiply_floor(a, np.int32(b)), [int(x) * b >> 31 for x in a], a)


def test_multiply_half_up():
    pairs = np.concatenate([PAIRS, TIES], axis=1)
    wanted = of_pairs(lambda a, b: saturated(half_up(a * b, 31)), pairs)
    check(_narrow.multiply_q31_half_up, wanted, *map(int32, pairs))


def test_multiply_half_away():
    pairs = np.concatenate([PAIRS, TIES], axis=1)
    wanted = of_pairs(lambda a, b: saturated(half_away(a * b, 31)), pairs)
    check(_narrow.multiply_q31_half_away, wanted, *map(int32, pairs))


@pytest.mark.parametrize("c", [MIN, -1488361146, -1, 0, 1, 2147483647])
def test_multiply_add(c: int):
    a, b = map(int32, BUT_MINIMA)
    wanted = of_pairs(lambda a, b: saturated(half_up(a * b, 31) + c), BUT_MINIMA)
    check(lambda a, b: _narrow.multiply_add(a, b, np.int32(c)), wanted, a, b)
    check(_narrow.multiply_add, wanted, a, b, np.full_like(a, c))


def test_saturating_add():
    wanted = of_pairs(lambda a, b: saturated(a + b), PAIRS)
    check(_narrow.saturating_add, wanted, *map(int32, PAIRS))
    for b in (MIN, -1, 0, MAX):
        a = int32(EDGES)
        numbered = [saturated(int(x) + b) for x in a]
        check(lambda a, b=b: _narrow.saturating_add(a, b), numbered, a)


# Sums.

EXTREMES = {
    np.int16: [-(2**15), 2**15 - 1, 2**15 - 128, 128, 127, -129, 0, 255, 256, -1],
    np.int8: [-128, 127, 0, -1],
}


def integer_of(value: Wide) -> np.ndarray:
    assert (np.asarray(value.low) >= 0).all()
    assert (np.asarray(value.low) < 2**16).all()
    return np.asarray(value.high).astype(np.int64) * 2**16 + np.asarray(value.low)


@pytest.mark.parametrize("types", [(np.int16, np.int16), (np.int8, np.int16)])
def test_rows(types: tuple[type, type]):
    weight, x = (RNG.choice(EXTREMES[t], (6, 50)).astype(t) for t in types)
    (high, low) = in_graph(lambda x: _narrow.rows(weight, x), x)
    wanted = x.astype(np.int64) @ weight.astype(np.int64).T
    np.testing.assert_array_equal(integer_of(Wide(jnp.asarray(high), jnp.asarray(low))), wanted)


@pytest.mark.parametrize("ends", [(-(2**15), -(2**15)), (-1, -1), (2**15 - 1, -1), (-(2**15), -1)])
def test_the_most_products(ends: tuple[int, int]):
    """The largest sums of each pair of bytes."""
    x, weight = (np.full((1, _narrow.MOST_PRODUCTS), end, np.int16) for end in ends)
    (high, low) = in_graph(lambda x, w: _narrow.rows(w, x), x, weight)
    wanted = ends[0] * ends[1] * _narrow.MOST_PRODUCTS
    assert int(high[0, 0]) * 2**16 + int(low[0, 0]) == wanted


def test_more_products():
    x = np.zeros((1, _narrow.MOST_PRODUCTS + 1), np.int16)
    with pytest.raises(UnsupportedError, match="sums of 32769 products of int16, expected at most"):
        _narrow.rows(x, x)


# From the least sum to the largest, and around the ends of each shift.
POWERS = [s * 2**p + d for s in (1, -1) for p in (0, 4, 15, 16, 30, 31, 32, 44) for d in (-1, 0, 1)]
SUMS = [*POWERS, *(3 << 4, -(3 << 4), 5 << 15, -(5 << 15)), *RNG.integers(-(2**45), 2**45, 40)]


def parts_of(values: Sequence[Any]) -> list[np.ndarray]:
    """High and low words."""
    return [int32([int(v) >> 16 for v in values]), int32([int(v) & 0xFFFF for v in values])]


@pytest.mark.parametrize("shift", range(-31, 32))
def test_finish_fixed(shift: int):
    """All shifts of a sum, each with some shifts of a bias."""
    total = Wide(*map(jnp.asarray, parts_of(SUMS)))
    bias = RNG.choice(EXTREMES[np.int16], len(SUMS)).astype(np.int16)
    for out, of_bias in itertools.product((np.int8, np.int16, np.int32), (-31, -3, 0, 15, 16, 31)):
        info = np.iinfo(out)
        sums = [int(v) + (int(b) << of_bias if of_bias >= 0 else int(b) >> -of_bias)
                for v, b in zip(SUMS, bias, strict=True)]  # fmt: skip
        scaled = [v << shift if shift >= 0 else half_away(v, -shift) for v in sums]
        found = _narrow.finish_fixed(total, bias, shift, of_bias, out)
        assert found.dtype == out
        np.testing.assert_array_equal(
            found, np.clip(np.asarray(scaled, object), info.min, info.max)
        )


def test_finish_fixed_in_a_graph():
    """Where nothing may overflow."""
    high, low = parts_of(SUMS)
    bias = RNG.choice(EXTREMES[np.int16], len(SUMS)).astype(np.int16)

    def function(high: Any, low: Any, bias: Any) -> list[jax.Array]:
        total = Wide(high, low)
        shifts = itertools.product((-31, -17, -16, -15, -1, 0, 1, 31), (-1, 15, 31))
        return [_narrow.finish_fixed(total, bias, acc, own, np.int32) for acc, own in shifts]

    for found, wanted in zip(
        in_graph(function, high, low, bias), function(high, low, bias), strict=True
    ):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(
    ("bias", "out", "message"),
    [
        (np.int32, np.int16, "a bias of int32 and results of int16, expected a bias of int8 or"),
        (np.int16, np.int64, "a bias of int16 and results of int64"),
    ],
)
def test_types_without_a_form(bias: type, out: type, message: str):
    with pytest.raises(UnsupportedError, match=message):
        _narrow.finish_fixed(jnp.int32(1), np.zeros(1, bias), 0, 0, out)


def test_a_shift_that_is_computed():
    def function(x: jax.Array, shift: jax.Array) -> jax.Array:
        return _narrow.finish_fixed(x, np.zeros(1, np.int16), shift, 0, np.int16)

    with pytest.raises(UnsupportedError, match="acc_shift is computed, expected a constant"):
        tosajax.export(function, int32([4]), np.int32(3))
