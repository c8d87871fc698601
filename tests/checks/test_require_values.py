"""Run-time rules of GATHER, SCATTER, CAST and RESCALE against Python integers."""

from __future__ import annotations

from itertools import product

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from oracle.required import any_of, check, fits, wrap

from tosajax.checks.require import scatter_gather, type_conversion
from tosajax.dtypes import DType
from tosajax.spec import RoundingMode

RNG = np.random.default_rng(2)


def _indices(count, width):
    """Random [B, 2, width] in [-1, count], mostly within [0, count), some without repetition."""
    indices = RNG.integers(0, count, (60, 2, width))
    for batch in indices[::2]:
        batch[:] = [RNG.permutation(count)[:width] for _ in batch]
    edges = np.array([-(2**31), -1, 0, count - 1, count, 2**31 - 1])
    for batch, index in zip(indices[::3], np.resize(edges, 20), strict=True):
        batch[RNG.integers(2), RNG.integers(width)] = index
    return indices.astype(np.int32)


def _out_of_range(example, count):
    return any(not 0 <= index < count for index in example.ravel().tolist())


@pytest.mark.parametrize(("count", "width"), [(1, 1), (4, 3), (5, 5), (3, 7)])
def test_gather(count, width):
    indices = _indices(count, min(width, count))
    wanted = [{"r1": _out_of_range(example, count)} for example in indices]
    assert {w["r1"] for w in wanted} == {False, True}
    values = np.zeros((2, count, 2), np.int8)
    check(scatter_gather.gather_require, (values, indices), wanted, shared=(0,))


@pytest.mark.parametrize(("count", "width"), [(2, 1), (4, 3), (5, 5), (9, 2)])
def test_scatter(count, width):
    indices = _indices(count, width)
    # One index in two batches is not a repetition; two that are out of range write nothing.
    for at, rows in enumerate(([[0] * width] * 2, [[-1] * width, [count] * width])):
        indices[at] = rows
    wanted = []
    for example in indices:
        inside = [[k for k in row if 0 <= k < count] for row in example.tolist()]
        repeated = any(len(set(row)) < len(row) for row in inside)
        wanted.append({"r1": _out_of_range(example, count), "r2": repeated})
    assert {w["r2"] for w in wanted} == ({False, True} if width > 1 else {False})
    values, rows = np.zeros((2, count, 3), np.float32), np.zeros((2, width, 3), np.float32)
    inputs = values, indices, rows
    check(scatter_gather.scatter_require, inputs, wanted, shared=(0, 2))


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("out_type", [DType.INT8, DType.INT16, DType.INT32])
def test_cast_of_nan(dtype, out_type):
    x = np.array([[0, 1], [np.inf, -np.inf], [np.nan, 0], [-3, -np.nan]], dtype)
    wanted = [{"r1": bool(np.isnan(row).any())} for row in x]
    check(type_conversion.cast_require, (x,), wanted, out_type=out_type)


@pytest.mark.parametrize(
    ("dtype", "out_type"),
    [
        (jnp.float32, DType.FP16),
        (jnp.float32, DType.BF16),
        (jnp.int32, DType.INT8),
        (jnp.bool_, DType.INT8),
        (jnp.int32, DType.FP32),
    ],
)
def test_other_casts_have_none(dtype, out_type):
    assert type_conversion.cast_require(jnp.ones(2, dtype), out_type=out_type) == {}


SHIFTS = (-128, -1, 0, 1, 2, 3, 8, 15, 16, 17, 30, 31, 32, 33, 61, 62, 63, 64, 127)
INTEGERS = {"int8": 8, "int16": 16, "int32": 32, "int48": 48}


def _rescale(value, multiplier, shift, zero_in, zero_out, scale32, bits):
    """One element; zero points and values as they are read, signed or unsigned."""
    r1, r2 = multiplier < 0, not 2 <= shift <= 62
    value -= zero_in
    flags = {"r1": r1, "r2": r2}
    if scale32:
        limit = 0 if r1 or r2 else 1 << (shift - 1)
        flags["r3"] = not (r1 or r2) and not -limit <= value < limit
    elif bits >= 32:
        scaled = 0 if r1 or r2 else (value * multiplier + (1 << (shift - 1))) >> shift
        flags["r3"] = not fits(scaled, 32)
        flags["r4"] = not (r1 or r2) and not fits(wrap(scaled, 32) + zero_out, 32)
    return flags


def _range(bits, unsigned):
    return (0, 2**bits - 1) if unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def _values(bits, unsigned):
    low, high = _range(bits, unsigned)
    steps = [s * 2**n + d for n in (0, 7, 14, 15, 16, 29, 30, 31) for s in (-1, 1) for d in (-1, 0)]
    return [v for v in (low, low + 1, *steps, high - 1, high) if low <= v <= high]


def _zero_points(bits, unsigned):
    if bits == 8:
        low, high = _range(8, unsigned)
        return [low, 0, 1, high]
    return [0, 32768] if bits == 16 and unsigned else [0]


def _at_the_limits(bits, zero_outs):
    """Cases whose scaled value, or that plus the output's zero point, is near a limit of int32."""
    low, high = _range(bits, unsigned=False)
    for multiplier, shift in ((32767, 2), (32767, 14), (1, 2), (16384, 15), (12345, 17)):
        for zero_out, limit, step in product(zero_outs, (2**31 - 1, -(2**31)), range(-2, 3)):
            for target in (limit + step, limit - zero_out + step):
                value = (target << shift) // multiplier
                for v in (value - 1, value, value + 1):
                    if low <= v <= high:
                        yield v, multiplier, shift, 0, zero_out


# Type of the input, scale32, unsigned side, bits of the output.
RESCALES = [
    *product(("int8", "int16", "int32"), (False, True), ("",), (8, 32)),
    *product(("int48",), (False,), ("",), (8, 16)),
    *product(("int8", "int16"), (False, True), ("input", "output"), (8, 16)),
]


@pytest.mark.parametrize(("name", "scale32", "unsigned", "out_bits"), RESCALES)
def test_rescale(name, scale32, unsigned, out_bits):
    bits, input_unsigned, output_unsigned = (
        INTEGERS[name],
        unsigned == "input",
        unsigned == "output",
    )
    zero_outs = _zero_points(out_bits, output_unsigned)
    zero_points = list(product(_zero_points(bits, input_unsigned), zero_outs))
    most = 2**31 - 1 if scale32 else 2**15 - 1
    multipliers = -most - 1, -1, 0, 1, most // 2 + 1, most
    cases: list[tuple[int, ...]] = [
        (*case, *zero_points[i % len(zero_points)])
        for i, case in enumerate(product(_values(bits, input_unsigned), multipliers, SHIFTS))
    ]
    if bits >= 32:
        cases += _at_the_limits(bits, zero_outs)
    rows = [_rescale(v, m, s, zi, zo, scale32, bits) for v, m, s, zi, zo in cases]
    value, multiplier, shift, zero_in, zero_out = np.array(cases, np.int64).T[..., None]
    held = np.int64 if bits == 48 else name
    inputs = (
        value.astype(held),
        multiplier.astype(np.int32 if scale32 else np.int16),
        shift.astype(np.int8),
        zero_in.astype(held),
        zero_out.astype(f"int{out_bits}"),
    )
    attributes = {
        "scale32": scale32,
        "rounding_mode": RoundingMode.SINGLE_ROUND,
        "per_channel": False,
        "input_unsigned": input_unsigned,
        "output_unsigned": output_unsigned,
    }
    check(type_conversion.rescale_require, inputs, rows, **attributes)
    for rule in rows[0]:
        # Nothing is added where the output has no zero point.
        possible = {False} if rule == "r4" and zero_outs == [0] else {False, True}
        assert {row[rule] for row in rows} == possible, rule


@pytest.mark.parametrize(
    ("dtype", "scale32"), [(np.int32, True), (np.int32, False), (np.int64, False)]
)
def test_rescale_per_channel(dtype, scale32):
    """Each channel with its own multiplier and shift, over many elements."""
    channels, examples = 3, 60
    bits = 48 if dtype == np.int64 else 32
    half = 2**20 if scale32 else 2 ** (bits - 1)
    value = RNG.integers(-half, half, (examples, 2, 4, channels)).astype(dtype)
    multiplier = RNG.integers(2**14 - 5, 2**15, (examples, channels)).astype(np.int16)
    # The first channel of some examples, the last of others, is at the edge of the legal range.
    shift = np.full((examples, channels), 40 if bits == 48 else 25, np.int8)
    shift[::3, 0] = RNG.integers(19, 23, 20) if scale32 else bits - 32 + 15 - RNG.integers(0, 2, 20)
    shift[::7, 2] = RNG.choice([1, 63], 9)
    multiplier[::11, 1] = -1
    zero_in, zero_out = np.zeros(1, dtype), np.full(1, 127, np.int8)
    wanted = [
        any_of(
            [
                _rescale(int(v), int(m), int(s), 0, 127, scale32, bits)
                for row in v2.reshape(-1, channels)
                for v, m, s in zip(row, m1, s1, strict=True)
            ]
        )
        for v2, m1, s1 in zip(value, multiplier, shift, strict=True)
    ]
    for rule in ("r1", "r2", "r3"):
        assert {w[rule] for w in wanted} == {False, True}, rule
    inputs = value, multiplier.astype(np.int32 if scale32 else np.int16), shift, zero_in, zero_out
    check(
        type_conversion.rescale_require,
        inputs,
        wanted,
        shared=(3, 4),
        scale32=scale32,
        rounding_mode=RoundingMode.DOUBLE_ROUND if scale32 else RoundingMode.SINGLE_ROUND,
        per_channel=True,
        input_unsigned=False,
        output_unsigned=False,
    )
