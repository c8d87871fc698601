"""Run-time rules of elementwise and activation operators against Python integers."""

from __future__ import annotations

from itertools import product

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from oracle.required import any_of, check, fits

from tosajax.checks.require import activation, elementwise_binary, elementwise_unary
from tosajax.spec import NanMode

INT32 = (-(2**31), -(2**31) + 1, -(2**30), -(2**16), -2, -1, 0, 1, 2, 2**16, 2**30, 2**31 - 1)
SHIFTS = (-128, -1, 0, 61, 62, 63, 64, 127)
RNG = np.random.default_rng(0)


def _pairs(values=INT32, dtype=np.int32):
    """Every pair of the values, and random ones: arrays [B, 1]."""
    info = np.iinfo(dtype)
    pairs = np.array(list(product(values, repeat=2)), np.int64)
    random = RNG.integers(info.min, info.max, (100, 2), endpoint=True)
    both = np.concatenate([pairs, random]).astype(dtype)
    return both[:, :1], both[:, 1:]


def _check(require, a, b, row, **attributes):
    """Compares pairs [B, 1] one by one, then all in one example, then crossed by broadcasting."""
    rows = [row(x, y) for x, y in zip(a.ravel().tolist(), b.ravel().tolist(), strict=True)]
    check(require, (a, b), rows, **attributes)
    check(require, (a[None], b[None]), [any_of(rows)], **attributes)
    first, second = a[:20], b[-20:]
    crossed = [row(x, y) for x, y in product(first.ravel().tolist(), second.ravel().tolist())]
    check(require, (first[None], second.T[None]), [any_of(crossed)], **attributes)


def _add(a, b):
    return {"r1": not fits(a + b, 32)}


def _sub(a, b):
    return {"r1": not fits(a - b, 32)}


def _intdiv(a, b):
    quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1) if b else 0
    return {"r1": b == 0, "r2": not fits(quotient, 32)}


@pytest.mark.parametrize(
    ("require", "row"),
    [
        (elementwise_binary.add_require, _add),
        (elementwise_binary.sub_require, _sub),
        (elementwise_binary.intdiv_require, _intdiv),
    ],
)
def test_int32_arithmetic(require, row):
    _check(require, *_pairs(), row)


@pytest.mark.parametrize("name", ["add", "sub"])
def test_floats_have_no_overflow(name):
    x = jnp.full(1, 3e38, jnp.float32)
    assert getattr(elementwise_binary, f"{name}_require")(x, -x) == {}


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32])
@pytest.mark.parametrize("name", ["arithmetic_right", "logical_left", "logical_right"])
def test_shifts(name, dtype):
    info = np.iinfo(dtype)
    bits = info.bits
    shift = np.array([info.min, -1, 0, 1, bits - 1, bits, bits + 1, info.max], dtype)[:, None]
    value = np.ones_like(shift)
    attributes = {"round": True} if name == "arithmetic_right" else {}
    require = getattr(elementwise_binary, f"{name}_shift_require")
    _check(require, value, shift, lambda _, s: {"r1": not 0 <= s < bits}, **attributes)


def _mul(a, b, shift):
    illegal = not 0 <= shift <= 63
    lost = False
    if 0 < shift <= 63:
        # At 63 the specification's own 64 bits are too few, and the product fits either way.
        lost = not fits((a * b + (1 << (shift - 1))) >> shift, 32)
    return {"r1": illegal, "r3": lost}


def _products(shift: int) -> list[tuple[int, int]]:
    """Pairs with products at and near the limits of a shift, and anywhere."""
    pairs = [(a, b) for a, b in np.concatenate(_pairs(), axis=1).tolist()]
    # The two that meet the limits: 2**(shift - 1) times 2**32 - 1, the first that is too large, and
    # times -2**32 - 1, the last that is not too small.
    limit = ((1 << 32) - 1 << max(shift, 1)) >> 1
    for v in RNG.integers(2**15, 2**31, 50).tolist():
        pairs += [(s * v, limit // v + d) for s in (-1, 1) for d in (-1, 0, 1)]
    for i in range(16):
        pairs += [(65535 << i, 65537 << max(shift - 1 - i, 0))]
        pairs += [(-641 << i, 6700417 << max(shift - 1 - i, 0))]
    return [pair for pair in pairs if all(fits(v, 32) for v in pair)]


def test_mul_int32():
    triples = [(*pair, s) for s in (*SHIFTS, 1, 2, 15, 29, 30, 31, 32, 33) for pair in _products(s)]
    a, b, shift = np.array(triples, np.int64).T[..., None]
    rows = [_mul(a, b, s) for a, b, s in triples]
    inputs = a.astype(np.int32), b.astype(np.int32), shift.astype(np.int8)
    check(elementwise_binary.mul_require, inputs, rows)
    broken = {s for (*_, s), row in zip(triples, rows, strict=True) if row["r3"]}
    assert broken == {1, 2, 15, 29, 30, 31}


def test_mul_int32_of_many_elements():
    pairs = [(a, b, _mul(a, b, 20)) for a, b in _products(20)]
    legal = [pair for pair in pairs if not pair[2]["r3"]]
    assert len(legal) < len(pairs)
    for some in (pairs, legal):
        a, b = np.array([pair[:2] for pair in some], np.int32).T
        shift = np.array([[20]], np.int8)
        wanted = any_of([row for *_, row in some])
        check(elementwise_binary.mul_require, (a[None], b[None], shift), [wanted])


def test_mul_int32_every_shift():
    shifts = np.arange(-128, 128).astype(np.int8)[:, None]
    least = np.full_like(shifts, -(2**31), np.int32)
    rows = [_mul(-(2**31), -(2**31), s) for s in shifts.ravel().tolist()]
    check(elementwise_binary.mul_require, (least, least, shifts), rows)
    assert [r["r3"] for r in rows[128:]] == [False] + 31 * [True] + 96 * [False]


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.float32, np.float16, ml_dtypes.bfloat16])
def test_mul_of_other_types(dtype):
    shifts = np.array([*SHIFTS, 1], np.int8)[:, None]
    x = np.full(shifts.shape, 100).astype(dtype)
    wanted = [{"r1": not 0 <= int(s) <= 63, "r2": int(s) != 0} for s in shifts.ravel()]
    check(elementwise_binary.mul_require, (x, x, shifts), wanted)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_pow(dtype):
    info = ml_dtypes.finfo(dtype)
    sizes = [0, info.smallest_subnormal, info.tiny, 0.5, 1, 2, info.max, np.inf]
    values = np.array([s * float(v) for v in sizes for s in (1, -1)] + [np.nan], dtype)
    assert 0 < float(values[2]) < float(info.tiny)
    pairs = np.array(list(product(values, repeat=2)))[..., None]
    exact = pairs.astype(np.float64)
    wanted = [
        {
            "r1": not x >= 0,
            "r2": not (x > 0 or y > 0),
            "r3": bool(np.isnan(x) or np.isnan(y)),
            "r4": not (np.isfinite(x) and np.isfinite(y)),
        }
        for x, y in exact[..., 0].tolist()
    ]
    check(elementwise_binary.pow_require, (pairs[:, 0], pairs[:, 1]), wanted)


def _table(values, table):
    index = (values.astype(np.int64) + 32768) // 128
    steps = [int(table[i + 1]) - int(table[i]) for i in index.ravel()]
    return {"r1": not all(fits(step, 16) for step in steps)}


@pytest.mark.parametrize("step", [-65535, -32769, -32768, -32767, 0, 32767, 32768, 65535])
def test_table(step):
    first = -32768 if step > 0 else 32767
    # A single step at the start, in the middle and at the end; values in it and beside it.
    tables, values = [], []
    for at in (0, 256, 511):
        table = np.full(513, first, np.int16)
        table[at + 1 :] = first + step
        start = at * 128 - 32768
        for value in (start - 1, start, start + 1, start + 127, start + 128):
            if fits(value, 16):
                tables.append(table)
                values.append([0 if at == 511 else -32768 if at else 32767, value])
    tables, values = np.array(tables), np.array(values, np.int16)
    wanted = [_table(v, t) for v, t in zip(values, tables, strict=True)]
    check(elementwise_binary.table_require, (values, tables), wanted)
    assert any(w["r1"] for w in wanted) == (not fits(step, 16))


def test_table_random():
    tables = RNG.integers(-32768, 32767, (30, 513), endpoint=True).astype(np.int16)
    tables[::2] //= 2
    values = RNG.integers(-32768, 32767, (30, 4), endpoint=True).astype(np.int16)
    wanted = [_table(v, t) for v, t in zip(values, tables, strict=True)]
    assert {w["r1"] for w in wanted} == {False, True}
    check(elementwise_binary.table_require, (values, tables), wanted)


def test_table_int8_has_none():
    x = jnp.zeros(3, jnp.int8)
    assert elementwise_binary.table_require(x, jnp.zeros(256, jnp.int8)) == {}


def test_abs():
    values = np.array(INT32, np.int32)[:, None]
    wanted = [{"r1": not fits(abs(int(v)), 32)} for v in values.ravel()]
    check(elementwise_unary.abs_require, (values,), wanted)
    check(elementwise_unary.abs_require, (values.T,), [any_of(wanted)])
    assert elementwise_unary.abs_require(jnp.zeros(1, jnp.float32)) == {}


def test_negate_int32():
    triples = np.array(list(product(INT32, repeat=3)), np.int32)
    value, zero_in, zero_out = (triples[:, i : i + 1] for i in range(3))

    def row(v, z, o):
        less = (v - z + 2**31) % 2**32 - 2**31
        negative = (2**31 - less) % 2**32 - 2**31
        return {
            "r1": not fits(v - z, 32),
            "r2": not fits(-less, 32),
            "r3": not fits(negative + o, 32),
        }

    wanted = [row(*map(int, t)) for t in triples]
    check(elementwise_unary.negate_require, (value, zero_in, zero_out), wanted)
    legal = [w for w, t in zip(wanted, triples, strict=True) if not t[1:].any()]
    assert [w["r2"] for w in legal] == [True] + 11 * [False]
    assert not any(w["r1"] or w["r3"] for w in legal)


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.float32])
def test_negate_of_other_types_has_none(dtype):
    x = jnp.full(1, -128, dtype)
    assert elementwise_unary.negate_require(x, x, x) == {}


@pytest.mark.parametrize("dtype", [np.int8, np.int16])
def test_clamp_integers(dtype):
    info = np.iinfo(dtype)
    pairs = np.array(list(product([info.min, -1, 0, 1, info.max], repeat=2)), dtype)
    _clamp(pairs, [{"r1": bool(low > high)} for low, high in pairs])


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_clamp_floats(dtype):
    values = np.array([-np.inf, -1, 0, 1, np.inf, np.nan], dtype)
    pairs = np.array(list(product(values, repeat=2)))
    wanted = [
        {"r1": not low <= high, "r2": bool(np.isnan(low) or np.isnan(high))}
        for low, high in pairs.astype(np.float64)
    ]
    _clamp(pairs, wanted)


def _clamp(pairs, wanted):
    def traced(x, low, high):
        return activation.clamp_require(x, min_val=low, max_val=high)

    check(traced, (np.zeros_like(pairs), pairs[:, 0], pairs[:, 1]), wanted)
    x = jnp.zeros(2, pairs.dtype)
    for (low, high), want in zip(pairs.tolist(), wanted, strict=True):
        found = activation.clamp_require(x, min_val=low, max_val=high, nan_mode=NanMode.IGNORE)
        assert {rule: bool(flag) for rule, flag in found.items()} == want
