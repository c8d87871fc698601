"""CAST and RESCALE against Python integers and exact rounding."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import oracle.type_conversion_oracle as oracle
import pytest
from oracle import float_bounds
from oracle.elementwise_oracle import over, wrap
from oracle.table_rows import boundaries, integers, row_id, rows, type_rows
from oracle.transforms import assert_identical, assert_transforms
from oracle.wide import operations_of_64_bits

from tosajax.dtypes import DType
from tosajax.fixedpoint import _x64
from tosajax.ops.type_conversion import cast, rescale
from tosajax.spec.enums import RoundingMode

FLOAT_TO_FLOAT = rows("CAST", where=lambda t: t["in_t"].is_float and t["out_t"].is_float)
FLOAT_TO_INT = rows("CAST", where=lambda t: t["in_t"].is_float and t["out_t"].is_integer)
INT_TO_FLOAT = rows("CAST", where=lambda t: t["in_t"].is_integer and t["out_t"].is_float)
INT_TO_INT = rows("CAST", where=lambda t: not t["in_t"].is_float and not t["out_t"].is_float)


@pytest.fixture
def rng():
    return np.random.default_rng(79)


def convert(x, types):
    return np.asarray(jax.jit(lambda x: cast(x, out_type=types["out_t"]))(x))


def float_values(dtype, rng):
    """All values of narrow types; of float32 random ones and all around those of narrow types."""
    if dtype.itemsize <= 2:
        return float_bounds.every_value(dtype)
    chosen = [float_bounds.samples(dtype, 300_000, rng, 600.0)]
    chosen += [float_bounds.samples(dtype, 50_000, rng, spread) for spread in (1e-3, 4e4, 3e9)]
    for narrow in (float_bounds.FLOATS["FP16"], float_bounds.FLOATS["BF16"]):
        exact = float_bounds.widen(float_bounds.every_value(narrow))
        exact = exact[np.isfinite(exact)].astype(np.float32)
        half_step = np.abs(exact) * np.float32(2.0 ** -(1 + float_bounds.fraction_bits(narrow)))
        for near in (exact, exact + half_step):  # narrow values, and ties between two of them
            chosen += [np.nextafter(near, np.float32(n)) for n in (-9e9, 9e9)] + [near]
    return np.concatenate(chosen)


@pytest.mark.parametrize(("name", "types"), FLOAT_TO_FLOAT)
def test_float_to_float_rounds_once(name, types, rng):
    source, target = types["in_t"].storage, types["out_t"].storage
    with np.errstate(all="ignore"):
        x = float_values(source, rng)
        expected, flushed = (
            float_bounds.round_to(float_bounds.widen(v), target) for v in (x, float_bounds.flush(x))
        )
        if not float_bounds.may_flush(source):
            flushed = expected
        if float_bounds.may_flush(target):
            flushed = float_bounds.flush(flushed)
        result = convert(x, types)
        expected = np.where(float_bounds.widen(result) == flushed, flushed, expected)
    assert_identical(result, expected)


def test_float_to_fp8_does_not_saturate():
    x = jnp.array([448, 463.9, 464, 464.1, 480, np.inf, -np.inf], jnp.float32)
    expected = np.array([448, 448, 448, np.nan, np.nan, np.nan, np.nan], np.float32)
    result = cast(x, out_type=DType.FP8E4M3)
    assert_identical(result, expected.astype(DType.FP8E4M3.storage))
    x = jnp.array([57344, 61439, 61440, 1e6, -np.inf], jnp.float32)
    expected = np.array([57344, 57344, np.inf, np.inf, -np.inf], np.float32)
    result = cast(x, out_type=DType.FP8E5M2)
    assert_identical(result, expected.astype(DType.FP8E5M2.storage))


@pytest.mark.parametrize(("name", "types"), FLOAT_TO_INT)
def test_float_to_int_rounds_half_to_even_and_saturates(name, types, rng):
    source, target = types["in_t"].storage, types["out_t"].storage
    halves = (np.arange(-600, 600) / 2).astype(source)
    limits = [s * 2.0**n + d for n in (7, 15, 31) for s in (1, -1) for d in (-1, -0.5, 0, 0.5, 1)]
    around = np.array(limits, np.float32)
    around = [around, np.nextafter(around, np.float32(0)), np.nextafter(around, np.float32(9e9))]
    with np.errstate(over="ignore"):
        around = np.concatenate(around).astype(source)
    x = np.concatenate([halves, around, rng.choice(float_values(source, rng), 20_000)])
    x = x[~np.isnan(float_bounds.widen(x))]
    bits = np.iinfo(target).bits
    expected = np.array([oracle.to_integer(float(v), bits) for v in x], target)
    assert_identical(convert(x, types), expected)


@pytest.mark.parametrize(("name", "types"), FLOAT_TO_INT)
def test_nan_to_int_is_some_integer(name, types):
    x = jnp.full(3, np.nan, types["in_t"].storage)
    assert convert(x, types).dtype == types["out_t"].storage


@pytest.mark.parametrize(("name", "types"), INT_TO_FLOAT)
def test_int_to_float_rounds_once(name, types, rng):
    source, target = types["in_t"].storage, types["out_t"].storage
    x = integers(source, 70_000, rng)
    if source == np.int32:
        # Just beside the middle of two narrow values, where rounding twice goes wrong.
        kept = rng.integers(2**8, 2**12, 20_000) << rng.integers(0, 19, 20_000)
        near = (kept + rng.integers(-1, 2, kept.size)) * rng.choice([-1, 1], kept.size)
        x = np.concatenate([x, near.astype(np.int32)])
        wide = (rng.integers(2**7, 2**8, 20_000) * 2 + 1) << 22  # ties of bfloat16
        wide = (wide + rng.integers(-2, 3, wide.size)) * rng.choice([-1, 1], wide.size)
        x = np.concatenate([x, wide.astype(np.int32)])
    with np.errstate(over="ignore"):
        expected = float_bounds.round_to(x.astype(np.float64), target)
    assert_identical(convert(x, types), expected)


@pytest.mark.parametrize(("name", "types"), INT_TO_INT)
def test_int_to_int_keeps_the_low_bits(name, types, rng):
    source, target = types["in_t"].storage, types["out_t"].storage
    if source == np.bool_:
        x = np.array([False, True])
    else:
        x = integers(source, 70_000, rng)
    if target == np.bool_:
        expected = np.array([int(v) != 0 for v in x])
    else:
        expected = over(lambda v: wrap(v, np.iinfo(target).bits), target, x)
    assert_identical(convert(x, types), expected)


MULTIPLIERS = {
    True: [0, 1, 3, 2**30 - 1, 2**30, 2**30 + 1, 1_394_827_001, 2**31 - 1],
    False: [0, 1, 3, 2**14 - 1, 2**14, 2**14 + 1, 21_283, 2**15 - 1],
}
SHIFTS = [2, 3, 8, 14, 15, 16, 29, 30, 31, 32, 33, 34, 46, 47, 61, 62]
# INEXACT_ROUND has a test of its own.
ROUNDINGS = {
    True: [RoundingMode.SINGLE_ROUND, RoundingMode.DOUBLE_ROUND],
    False: [RoundingMode.SINGLE_ROUND],
}


def is_legal(source, target, scale32, input_unsigned, output_unsigned):
    narrow = (DType.INT8, DType.INT16)
    return not (
        (scale32 and source is DType.INT48)
        or (input_unsigned and output_unsigned)
        or (input_unsigned and (source not in narrow or target is DType.INT32))
        or (output_unsigned and (target not in narrow or source not in narrow))
    )


RESCALES = [
    pytest.param(
        {**types, "scale32": scale32, "rounding_mode": rounding, "signs": signs},
        id="-".join(
            [row_id(name, types), "32" if scale32 else "16", rounding.name, *names]
        ).lower(),
    )
    for name, types in type_rows("RESCALE")
    for scale32 in (True, False)
    for rounding in ROUNDINGS[scale32]
    for signs, names in [
        ((False, False), []),
        ((True, False), ["unsigned_in"]),
        ((False, True), ["unsigned_out"]),
    ]
    if is_legal(types["in_t"], types["out_t"], scale32, *signs)
]


def zero_points(dtype, unsigned):
    """Its limits, zero and values between, as numbers."""
    if dtype is DType.INT8:
        return [0, 1, 128, 255] if unsigned else [0, -1, -128, 127]
    return [0, 32768] if dtype is DType.INT16 and unsigned else [0]


def input_values(dtype, rng):
    """Patterns of the type: all of int8, else boundaries and random values of every length."""
    if dtype is DType.INT8:
        return np.arange(-128, 128, dtype=np.int8)
    if dtype is DType.INT48:
        near = [s * 2**k + d for k in range(47) for s in (1, -1) for d in (-1, 0, 1)]
        random = rng.integers(-(2**47), 2**47, 60) >> rng.integers(0, 40, 60)
        return np.concatenate([np.array([*near, -(2**47)]), random])
    random = integers(dtype.storage, 400, rng)[-60:] >> rng.integers(0, 12, 60).astype(
        dtype.storage
    )
    return np.concatenate([boundaries(dtype.storage), random])


def on_device(values, dtype):
    return (
        _x64.from_numpy(values)
        if dtype is DType.INT48
        else jax.device_put(np.asarray(values, dtype.storage))
    )


def as_pattern(number, dtype):
    return wrap(number, dtype.bits)


@pytest.mark.parametrize("case", RESCALES)
def test_rescale(case, rng):
    source, target, scale32 = case["in_t"], case["out_t"], case["scale32"]
    input_unsigned, output_unsigned = case["signs"]
    combinations = [(m, s) for m in MULTIPLIERS[scale32] for s in SHIFTS]
    multiplier = np.array([m for m, _ in combinations], np.int32 if scale32 else np.int16)
    shift = np.array([s for _, s in combinations], np.int8)
    patterns = input_values(source, rng)
    numbers = [int(v) % (1 << source.bits) if input_unsigned else int(v) for v in patterns]
    attributes = {"scale32": scale32, "rounding_mode": case["rounding_mode"]}
    attributes |= {"input_unsigned": input_unsigned, "output_unsigned": output_unsigned}
    one = len(combinations) // 2 + 7

    @jax.jit
    def run(x, multiplier, shift, *zps):
        """Per channel, and one channel by itself."""
        alone = x[:, one], multiplier[one : one + 1], shift[one : one + 1]
        return (
            rescale(x, multiplier, shift, *zps, per_channel=True, **attributes),
            rescale(*alone, *zps, per_channel=False, **attributes),
        )

    x = on_device(np.repeat(patterns[:, None], len(combinations), 1), source)
    rule = functools.partial(
        oracle.rescale,
        scale32=scale32,
        double_round=case["rounding_mode"] is RoundingMode.DOUBLE_ROUND,
        bits=target.bits,
        unsigned=output_unsigned,
    )
    defined = 0
    pairs = [
        (i, o)
        for i in zero_points(source, input_unsigned)
        for o in zero_points(target, output_unsigned)
    ]
    for input_zp, output_zp in {pairs[0], pairs[len(pairs) // 3], pairs[-1]}:
        zps = [
            on_device(np.array([as_pattern(z, t)]), t)
            for z, t in ((input_zp, source), (output_zp, target))
        ]
        result, single = map(np.asarray, run(x, multiplier, shift, *zps))
        assert result.dtype == target.storage
        expected = [[rule(v, m, s, input_zp, output_zp) for m, s in combinations] for v in numbers]
        known = np.array([[e is not None for e in row] for row in expected])
        wanted = np.array([[e or 0 for e in row] for row in expected], target.storage)
        np.testing.assert_array_equal(result[known], wanted[known])
        defined += known.mean()
        np.testing.assert_array_equal(single, result[:, one])
    assert defined > 0.5


def test_inexact_round_stays_within_its_range(rng):
    values = integers(np.int32, 2000, rng) >> rng.integers(0, 24, 2000).astype(np.int32)
    multiplier, shift, output_zp = 1_394_827_001, 38, -7
    result = rescale(
        jax.device_put(values),
        jnp.array([multiplier], jnp.int32),
        jnp.array([shift], jnp.int8),
        jnp.zeros(1, jnp.int32),
        jnp.array([output_zp], jnp.int8),
        scale32=True,
        rounding_mode=RoundingMode.INEXACT_ROUND,
        per_channel=False,
        input_unsigned=False,
        output_unsigned=False,
    )
    for value, found in zip(values, np.asarray(result), strict=True):
        low, high = oracle.inexact_range(int(value), multiplier, shift, output_zp, 8, False)
        assert low <= found <= high


def some_rescale(source, target, *, per_channel, **changes):
    options = {
        "scale32": source is not DType.INT48,
        "rounding_mode": RoundingMode.DOUBLE_ROUND
        if source is not DType.INT48
        else RoundingMode.SINGLE_ROUND,
        "input_unsigned": False,
        "output_unsigned": False,
    }
    return functools.partial(rescale, per_channel=per_channel, **(options | changes))


@pytest.mark.parametrize(
    ("source", "target", "per_channel"),
    [(DType.INT32, DType.INT8, True), (DType.INT8, DType.INT32, False)],
)
def test_transforms_of_rescale_over_every_input(source, target, per_channel, rng):
    kernel = some_rescale(source, target, per_channel=per_channel)
    x = jax.device_put(integers(source.storage, 24, rng).reshape(2, 3, 4))
    count = 4 if per_channel else 1
    multiplier = jax.device_put(rng.integers(2**30, 2**31, count).astype(np.int32))
    shift = jax.device_put(np.array([33, 40, 36, 44][:count], np.int8))
    zps = [jnp.zeros(1, t.storage) for t in (source, target)]
    assert_transforms(kernel, x, multiplier, shift, *zps)


@pytest.mark.parametrize("axes", [(0, None, None), (None, 0, 0), (0, 0, 0)])
@pytest.mark.parametrize("target", [DType.INT8, DType.INT16, DType.INT32])
def test_int48_is_right_under_every_order_of_transforms(target, axes, rng):
    kernel = some_rescale(DType.INT48, target, per_channel=True)
    values = rng.integers(-(2**47), 2**47, (3, 2, 4))
    multiplier = rng.integers(2**14, 2**15, (3, 4)).astype(np.int16)
    shift = np.array([[33, 40, 36, 44], [30, 31, 32, 62], [45, 47, 46, 48]], np.int8)
    zps = [on_device(np.zeros(1, np.int64), DType.INT48), jnp.zeros(1, target.storage)]

    def call(x, m, s):
        return kernel(x, m, s, *zps)

    x = on_device(values, DType.INT48)
    if axes[0] is None:
        x = on_device(values[0], DType.INT48)
    m, s = (a if axes[1] == 0 else a[0] for a in (multiplier, shift))
    rule = functools.partial(oracle.rescale, scale32=False, double_round=False, unsigned=False)
    expected, known = np.zeros((3, 2, 4), target.storage), np.zeros((3, 2, 4), bool)
    for n, i, c in np.ndindex(3, 2, 4):
        b, p = (n if a == 0 else 0 for a in axes[:2])
        scaled = rule(
            int(values[b, i, c]), int(multiplier[p, c]), int(shift[p, c]), 0, 0, bits=target.bits
        )
        known[n, i, c] = scaled is not None
        expected[n, i, c] = scaled or 0
    assert known.any()
    for function in (
        jax.vmap(call, axes),
        jax.jit(jax.vmap(call, axes)),
        jax.vmap(jax.jit(call), axes),
    ):
        result = np.asarray(function(x, m, s))
        assert result.dtype == target.storage
        np.testing.assert_array_equal(result[known], expected[known])


@pytest.mark.parametrize("source", [DType.INT8, DType.INT16, DType.INT32])
def test_narrow_rescale_scales_products_in_64_bits_and_has_no_gather(source):
    kernel = some_rescale(source, DType.INT8, per_channel=True)
    shapes = [(2, 4), (4,), (4,), (1,), (1,)]
    types = [source.storage, np.int32, np.int8, source.storage, np.int8]
    inputs = [jax.ShapeDtypeStruct(s, t) for s, t in zip(shapes, types, strict=True)]
    text = jax.jit(kernel).lower(*inputs).as_text()
    assert not operations_of_64_bits(text)
    assert not any(word in text for word in ("f64>", "f32>", "gather"))


def test_rank_zero():
    kernel = some_rescale(DType.INT32, DType.INT8, per_channel=False)
    one, thirty = jnp.array([2**30], jnp.int32), jnp.array([30], jnp.int8)
    result = kernel(jnp.int32(5), one, thirty, jnp.zeros(1, jnp.int32), jnp.array([3], jnp.int8))
    assert_identical(result, np.int8(8))
