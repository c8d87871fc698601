"""Fixed-point helpers against Python integers."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracle.wide import operations_of_64_bits

from tosajax.fixedpoint import (
    _x64,
    apply_lookup,
    apply_scale_16,
    apply_scale_32,
    reciprocal_scale,
    saturate,
)
from tosajax.fixedpoint.scale import multiply_and_shift

INT32 = np.iinfo(np.int32)


def near_powers(bits: int) -> list[int]:
    """-1, 0, 1, and every power of two below 2**bits with its neighbours, in both signs."""
    values = {0, *(s * (1 << k) + d for k in range(bits) for s in (1, -1) for d in (-1, 0, 1))}
    return sorted(v for v in values if -(1 << bits) <= v < 1 << bits)


MULTIPLIERS_32 = [0, 1, 2, 3, 2**15, 2**16 - 1, 2**16, 2**30 - 1, 2**30, 2**30 + 1, 2**31 - 1]
MULTIPLIERS_16 = [0, 1, 2, 3, 255, 256, 2**14 - 1, 2**14, 2**14 + 1, 2**15 - 1]


def scale_32(value: int, multiplier: int, shift: int, double_round: bool) -> int:
    rounding = 1 << (shift - 1)
    if double_round and shift > 31:
        rounding += (1 << 30) if value >= 0 else -(1 << 30)
    return (value * multiplier + rounding) >> shift


def scale_16(value: int, multiplier: int, shift: int) -> int:
    return (value * multiplier + (1 << (shift - 1))) >> shift


def cases_32(shift: int) -> tuple[np.ndarray, np.ndarray]:
    """Boundary values times boundary multipliers, and random ones, all in the defined range."""
    rng = np.random.default_rng(shift)
    limit = min(1 << (shift - 1), 1 << 31)
    random = rng.integers(-limit, limit, 40).tolist()
    values = [v for v in [*near_powers(31), -limit, limit - 1, *random] if -limit <= v < limit]
    multipliers = MULTIPLIERS_32 + rng.integers(2**30, 2**31, 4).tolist()
    grid = np.array([(v, m) for v in values for m in multipliers], np.int64)
    # Products that end close to a tie of this shift.
    ties = []
    for m in multipliers[1:]:
        for v in (((1 << (shift - 1)) // m), -((1 << (shift - 1)) // m)):
            ties += [(v + d, m) for d in (-1, 0, 1) if -limit <= v + d < limit]
    grid = np.concatenate([grid, np.array(ties, np.int64).reshape(-1, 2)])
    return grid[:, 0].astype(np.int32), grid[:, 1].astype(np.int32)


@pytest.mark.parametrize("double_round", [False, True], ids=["single", "double"])
def test_apply_scale_32_every_shift(double_round):
    function = jax.jit(functools.partial(apply_scale_32, double_round=double_round))
    values, multipliers, shifts = [], [], []
    for shift in range(2, 63):
        value, multiplier = cases_32(shift)
        values.append(value)
        multipliers.append(multiplier)
        shifts.append(np.full(value.shape, shift, np.int8))
    value, multiplier, shift = map(np.concatenate, (values, multipliers, shifts))
    expected = [
        scale_32(v, m, s, double_round)
        for v, m, s in zip(value.tolist(), multiplier.tolist(), shift.tolist(), strict=True)
    ]
    result = function(*map(jax.device_put, (value, multiplier, shift)))
    assert result.dtype == np.int32
    np.testing.assert_array_equal(np.asarray(result, np.int64), expected)


@pytest.mark.parametrize("double_round", [False, True], ids=["single", "double"])
@pytest.mark.parametrize("lowest", [2, 31, 32, 33, 62])
def test_apply_scale_32_constant_shifts(lowest, double_round):
    columns = [(*cases_32(s), s) for s in range(lowest, 63)]
    value, multiplier = (np.concatenate([c[i] for c in columns]) for i in (0, 1))
    shift = np.concatenate([np.full(c[0].shape, c[2], np.int8) for c in columns])
    function = functools.partial(apply_scale_32, shift=shift, double_round=double_round)
    expected = [
        scale_32(v, m, s, double_round)
        for v, m, s in zip(value.tolist(), multiplier.tolist(), shift.tolist(), strict=True)
    ]
    for call in (function, jax.jit(function)):
        result = call(jax.device_put(value), jax.device_put(multiplier))
        np.testing.assert_array_equal(np.asarray(result, np.int64), expected)


@pytest.mark.parametrize("double_round", [False, True], ids=["single", "double"])
@pytest.mark.parametrize("shift", [32, 33, 34, 62])
def test_apply_scale_32_constant_shift_beyond_the_defined_range(shift, double_round):
    """Constant or traced, a shift gives the same bits even where the specification gives none."""
    value = jax.device_put(
        np.asarray([INT32.min, INT32.min + 1, -1, 0, 1, INT32.max - 1, INT32.max], jnp.int32)
    )
    multiplier, amount = (
        jax.device_put(np.asarray([[0], [1], [2**30], [2**31 - 1]], jnp.int32)),
        np.array([[shift]], np.int8),
    )
    scale = functools.partial(apply_scale_32, value[None], multiplier, double_round=double_round)
    np.testing.assert_array_equal(scale(shift=amount), scale(shift=jax.device_put(amount)))


def test_apply_scale_32_broadcasts():
    value = np.array([[-100, 7, 90], [5, -6, 127]], np.int32)
    multiplier, shift = np.array([[2**30, 2**31 - 1, 3]], np.int32), np.array([[30], [40]], np.int8)
    result = apply_scale_32(*map(jax.device_put, (value, multiplier, shift)))
    grid = np.broadcast_arrays(value, multiplier, shift)
    expected = [
        scale_32(v, m, s, False)
        for v, m, s in zip(*(g.ravel().tolist() for g in grid), strict=True)
    ]
    np.testing.assert_array_equal(result, np.reshape(expected, value.shape))


@pytest.mark.parametrize("bits", [32, 48])
def test_apply_scale_16_every_shift(bits):
    rng = np.random.default_rng(bits)
    random = rng.integers(-(1 << (bits - 1)), 1 << (bits - 1), 60).tolist()
    multipliers = MULTIPLIERS_16 + rng.integers(2**14, 2**15, 4).tolist()
    cases = [
        (v, m, s)
        for v in [*near_powers(bits - 1), *random]
        for m in multipliers
        for s in range(2, 63)
        if INT32.min <= scale_16(v, m, s) <= INT32.max
    ]
    value, multiplier, shift = (np.array(column) for column in zip(*cases, strict=True))
    wide = _x64.from_numpy(value) if bits == 48 else jax.device_put(np.asarray(value, jnp.int32))
    inputs = (
        wide,
        jax.device_put(np.asarray(multiplier, jnp.int16)),
        jax.device_put(np.asarray(shift, jnp.int8)),
    )
    expected = [scale_16(*case) for case in cases]
    for function in (apply_scale_16, jax.jit(apply_scale_16)):
        result = function(*inputs)
        assert result.dtype == np.int32
        np.testing.assert_array_equal(np.asarray(result, np.int64), expected)


def test_multiply_and_shift_every_shift():
    values = [*near_powers(31)[::3], INT32.min, INT32.max]
    cases = [
        (v, other, shift)
        for shift in range(64)
        for v in values
        for other in (INT32.min, -65537, -65536, -2, -1, 0, 1, 2, 65535, 65537, INT32.max)
        if v * other + (1 << shift >> 1) < 1 << 63
    ]
    exact = [(v * other + (1 << shift >> 1)) >> shift for v, other, shift in cases]
    expected = [(e + (1 << 31)) % (1 << 32) - (1 << 31) for e in exact]
    value, other, shift = (np.array(column) for column in zip(*cases, strict=True))
    inputs = value.astype(np.int32), other.astype(np.int32), shift.astype(np.int8)
    for function in (multiply_and_shift, jax.jit(multiply_and_shift)):
        result = function(*map(jax.device_put, inputs))
        assert result.dtype == np.int32
        np.testing.assert_array_equal(np.asarray(result, np.int64), expected)


def _reciprocal(value: int) -> tuple[int, int]:
    k = (value - 1).bit_length()
    return (((1 << 30) + 1) << k) // value, 30 + k


def test_reciprocal_scale():
    near = {v for v in near_powers(31) if v > 0}
    # 2**30 + 1 is the one value below 2**31 whose multiplier, 2**31, is not an int32.
    values = sorted({*range(1, 100_001), *near, 2**31 - 1} - {2**30 + 1})
    multiplier, shift = reciprocal_scale(np.array(values))
    assert (multiplier.dtype, shift.dtype) == (np.int32, np.int8)
    expected = np.array([_reciprocal(v) for v in values])
    np.testing.assert_array_equal(multiplier, expected[:, 0])
    np.testing.assert_array_equal(shift, expected[:, 1])
    assert multiplier.min() >= 2**30
    assert reciprocal_scale(np.full((2, 3), 9))[0].shape == (2, 3)


@pytest.mark.parametrize(
    ("dtype", "unsigned"),
    # No operator narrows to unsigned 32 bits.
    [(np.int8, False), (np.int8, True), (np.int16, False), (np.int16, True), (np.int32, False)],
)
def test_saturate(dtype, unsigned):
    bits = np.iinfo(dtype).bits
    low, high = (0, (1 << bits) - 1) if unsigned else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
    values = [v + d for v in near_powers(31) for d in (-2, 0, 2)]
    values = np.array(sorted({v for v in values if INT32.min <= v <= INT32.max}), np.int32)
    clipped = np.array([min(max(v, low), high) for v in values.tolist()])
    expected = clipped.astype(f"u{bits // 8}").view(dtype) if unsigned else clipped.astype(dtype)
    function = functools.partial(saturate, dtype=dtype, unsigned=unsigned)
    for result in (function(jax.device_put(values)), jax.jit(function)(jax.device_put(values))):
        assert result.dtype == dtype
        np.testing.assert_array_equal(result, expected)


def test_apply_lookup_every_int16():
    rng = np.random.default_rng(0)
    steps = np.concatenate([[-32768], rng.integers(-900, 901, 512)])
    gentle = np.clip(np.cumsum(steps), -32768, 32767)
    edges = np.tile([-32768, -1, 32766, 0, 32767], 103)[:513]
    value = np.arange(-32768, 32768)
    index, fraction = (value + 32768) >> 7, value & 0x7F
    for table in (gentle, edges, np.full(513, 32767), np.arange(513) * 127 - 32768):
        expected = (table[index] << 7) + (table[index + 1] - table[index]) * fraction
        inputs = (
            jax.device_put(np.asarray(table, jnp.int16)),
            jax.device_put(np.asarray(value, jnp.int16)),
        )
        for function in (apply_lookup, jax.jit(apply_lookup)):
            result = function(*inputs)
            assert result.dtype == np.int32
            np.testing.assert_array_equal(result, expected)


def _inputs(name):
    value = np.array([[-(2**20), 77, 0], [2**20 - 1, -77, -1], [1, 12345, -54321]])
    multiplier = np.array([[2**14], [2**15 - 1], [3]])
    shift = np.array([[20], [25], [40]])
    if name == "apply_lookup":
        table = np.arange(513) * 3 - 700
        return jax.device_put(
            np.asarray(np.stack([table, -table, table[::-1]]), jnp.int16)
        ), jax.device_put(np.asarray(value % 65536 - 32768, jnp.int16))
    if name == "saturate":
        return (jax.device_put(np.asarray(value, jnp.int32)),)
    wide = (
        _x64.from_numpy(value << 20)
        if name.endswith("48")
        else jax.device_put(np.asarray(value, jnp.int32))
    )
    narrow = jnp.int32 if name.startswith("apply_scale_32") else jnp.int16
    return (
        wide,
        jax.device_put(np.asarray(multiplier, narrow)),
        jax.device_put(np.asarray(shift, jnp.int8)),
    )


FUNCTIONS = {
    "apply_scale_32": apply_scale_32,
    "apply_scale_32-double": functools.partial(apply_scale_32, double_round=True),
    "apply_scale_16": apply_scale_16,
    "apply_scale_16-int48": apply_scale_16,
    "apply_lookup": apply_lookup,
    "saturate": functools.partial(saturate, dtype=np.int8),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_transforms(name):
    function, inputs = FUNCTIONS[name], _inputs(name)
    expected = np.stack([np.asarray(function(*(x[i] for x in inputs))) for i in range(3)])
    for result in (
        jax.vmap(function)(*inputs),
        jax.vmap(jax.jit(function))(*inputs),
        jax.jit(jax.vmap(function))(*inputs),
        jax.lax.scan(lambda carry, xs: (carry, function(*xs)), 0, inputs)[1],
        jax.jit(lambda *xs: jax.lax.map(lambda x: function(*x), xs))(*inputs),
    ):
        assert result.dtype == expected.dtype
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("name", [n for n in FUNCTIONS if not n.endswith("48")])
def test_64_bit_types_scale_products(name):
    text = jax.jit(jax.vmap(FUNCTIONS[name])).lower(*_inputs(name)).as_text()
    assert not operations_of_64_bits(text)
