"""Native MATMUL equals its definition, on real and emulated instruction sets."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import native_calls
import numpy as np
import pytest
from native_calls import Pool
from native_sets import EMULATED, SETS, SETS_OF_INT16, USABLE

pytest.importorskip("llvmlite")

from tosajax.native import call, tiling
from tosajax.native.codegen import isa
from tosajax.native.codegen.isa import InstructionSet
from tosajax.native.codegen.requantize import UPPER_SHIFT

pytestmark = pytest.mark.usefixtures("quick")
EXTREMES = np.array([-128, -128, -127, -1, 0, 1, 126, 127, 127])
# [N, H, C, W].
CASES = {
    "one product": (1, 1, 1, 1),
    "a row": (2, 1, 37, 19),
    "a column": (2, 9, 12, 1),
    "whole vectors": (3, 16, 64, 64),
    "vectors that are left": (1, 7, 8, 80),
    "some lanes": (2, 5, 131, 29),
    "terms that are left": (3, 14, 6, 33),
    "two terms": (1, 3, 2, 16),
    "one term that is left": (1, 15, 65, 130),
    "large": (2, 130, 260, 200),
    "many rows": (1, 700, 129, 10),
    "a tile that is left": (1, 37, 8, 80),
    "groups of blocks": (1, 100, 64, 160),
    "rows a power of two apart": (1, 20, 1024, 24),
}
ZERO_POINTS = [(0, 0), (-128, 0), (0, 127), (3, -128), (127, 5)]
Pair = tuple[np.ndarray, np.ndarray]


def drawn(
    sizes: tuple[int, ...], seed: int, *, extreme: bool = False, dtype: type = np.int8
) -> Pair:
    rng, of = np.random.default_rng(seed), np.iinfo(dtype)
    count, height, depth, width = sizes

    def ints(*shape: int) -> np.ndarray:
        if extreme:
            of_int16 = [*[of.min] * 3, of.min + 1, -256, 255, of.max] if dtype is np.int16 else []
            return rng.choice([*EXTREMES, *of_int16], shape).astype(dtype)
        return rng.integers(of.min, of.max + 1, shape).astype(dtype)

    return ints(count, height, depth), ints(count, depth, width)


def bytes_of(*values: int) -> Pair:
    one, other = (np.array([value], np.int8) for value in values)
    return one, other


def product(inputs: Pair, zero_points: Pair) -> np.ndarray:
    a, b = (x.astype(np.int64) - int(z[0]) for x, z in zip(inputs, zero_points, strict=True))
    return a @ b


def epilogue_of(width: int, seed: int, *, double: bool, upper: bool) -> call.Epilogue:
    """One scale, or one for each column, by the seed."""
    rng = np.random.default_rng(seed)
    count = width if seed % 2 else 1
    shift = rng.integers(UPPER_SHIFT if upper else 28, 46, count)
    shift[0] = UPPER_SHIFT if upper else 30
    multiplier = rng.integers(2**30, 2**31, count)
    low, high = sorted(rng.integers(-128, 128, 2).tolist())
    zero_point = np.int8(rng.integers(-128, 128))
    return call.Epilogue(
        multiplier.astype(np.int32), shift.astype(np.int8), zero_point, low, high, double
    )


def scaled(sums: np.ndarray, e: call.Epilogue) -> np.ndarray:
    """RESCALE and CLAMP by definition, in Python's integers; beyond 32 bits results wrap."""
    value, multiplier, shift = (np.asarray(v).astype(object) for v in (sums, *e[:2]))
    half = np.asarray([1 << (int(s) - 1) for s in shift.ravel()], object)
    total = value * multiplier + half
    if e.double:
        away = np.where(value >= 0, 1, -1) * np.where(shift > 31, 2**30, 0)
        total = total + away.astype(object)
    total = (total >> shift) + int(e.zero_point)
    total = (total + 2**31) % 2**32 - 2**31
    return np.clip(total, int(e.least), int(e.largest)).astype(f"int{e.out[1:]}")


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("s", USABLE)
def test_sums(s: InstructionSet, name: str):
    for seed, (zero_points, extreme) in enumerate(itertools.product(ZERO_POINTS, [False, True])):
        inputs, zps = drawn(CASES[name], seed, extreme=extreme), bytes_of(*zero_points)
        found = jax.jit(lambda *xs, z=zps: call.run(call.multiply(s, xs, z)))(*inputs)
        np.testing.assert_array_equal(found, product(inputs, zps))


@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("name", ["some lanes", "whole vectors"])
@pytest.mark.parametrize("s", USABLE)
def test_scaled_sums(s: InstructionSet, name: str, double: bool, upper: bool):
    inputs, zps = drawn(CASES[name], 3), bytes_of(-7, 9)
    for seed in range(4):
        e = epilogue_of(CASES[name][-1], seed, double=double, upper=upper)
        found = jax.jit(lambda *xs, e=e: call.run(call.multiply(s, xs, zps, e)))(*inputs)
        assert found.dtype == np.int8
        np.testing.assert_array_equal(found, scaled(product(inputs, zps), e))


ZEROS = np.zeros(1, np.int16), np.zeros(1, np.int16)


def epilogue_of_int16(width: int, seed: int, out: str) -> call.Epilogue:
    rng = np.random.default_rng(seed)
    count = width if seed % 2 else 1
    scale = rng.integers(2**14, 2**15, count).astype(np.int16), rng.integers(28, 46, count)
    half = 2 ** (int(out[1:]) - 1)
    low, high = sorted(rng.integers(-half, half, 2).tolist())
    zero_point = np.int32(rng.integers(-128, 128) if out == "i8" else 0)
    return call.Epilogue(scale[0], scale[1].astype(np.int8), zero_point, low, high, False, out)


@pytest.mark.parametrize("at_end", [True, False])
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("s", SETS_OF_INT16)
def test_int16(s: InstructionSet, name: str, at_end: bool):
    """Random and extreme values, in guarded memory."""
    for seed, out in enumerate((None, "i8", "i16", None)):
        inputs = drawn(CASES[name], seed, extreme=seed > 1, dtype=np.int16)
        wanted = product(inputs, ZEROS)
        e = out and epilogue_of_int16(CASES[name][-1], seed, out)
        found = native_calls.call(call.multiply(s, inputs, ZEROS, e or None), at_end=at_end)
        wanted = scaled(wanted, e) if e else wanted
        assert found.dtype == wanted.dtype
        np.testing.assert_array_equal(found, wanted)


def test_the_largest_sums_of_int16():
    """int32 holds 256 products of -2**15 and a lower byte of 255, and no more."""
    for depth, right in itertools.product((255, 256, 257, 511, 513), (-1, 255, -(2**15))):
        a = np.full((1, 3, depth), -(2**15), np.int16)
        b = np.full((1, depth, 40), right, np.int16)
        found = native_calls.call(call.multiply(isa.usable()[0], (a, b), ZEROS))
        assert (found == -(2**15) * right * depth).all()


def test_int16_is_multiplied_by_a_set_of_16_bits():
    for s in (*isa.SETS, *EMULATED):
        kernel = call.multiply(s, drawn((1, 2, 3, 4), 1, dtype=np.int16), ZEROS)
        assert kernel.plan((1, 2, 3), 1).key.isa.element_bytes == 2


@pytest.mark.parametrize("at_end", [True, False])
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("s", SETS)
def test_only_buffers_are_touched(s: InstructionSet, name: str, at_end: bool):
    inputs, zps = drawn(CASES[name], 4, extreme=at_end), bytes_of(5, -3)
    wanted = product(inputs, zps)
    found = native_calls.call(call.multiply(s, inputs, zps), at_end=at_end)
    np.testing.assert_array_equal(found, wanted)
    e = epilogue_of(CASES[name][-1], 5, double=False, upper=True)
    found = native_calls.call(call.multiply(s, inputs, zps, e), at_end=at_end)
    np.testing.assert_array_equal(found, scaled(wanted, e))


@pytest.mark.parametrize("when", ["now", "late", "never"])
@pytest.mark.parametrize("size", [0, 2, 7])
@pytest.mark.parametrize("name", ["large", "many rows"])
def test_threads(name: str, size: int, when: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tiling, "threads", lambda: 4)
    inputs, zps = drawn(CASES[name], 6), bytes_of(5, -3)
    kernel = call.multiply(isa.usable()[0], inputs, zps)
    assert kernel.plan(inputs[0].shape, 4).threads == 4
    found = native_calls.call(kernel, pool=Pool(size, when))
    np.testing.assert_array_equal(found, product(inputs, zps))


@pytest.mark.parametrize("shared", [(), (0,), (1,)])
def test_examples_are_joined(shared: tuple[int, ...]):
    """`vmap` over both operands, or over one of them, makes one call."""
    a, b = drawn((6, 9, 7, 5), 7)
    given = [x[:1] if i in shared else x[:, None] for i, x in enumerate((a, b))]
    axes = tuple(None if i in shared else 0 for i in range(2))
    zps = bytes_of(5, -3)

    def one(*xs: jax.Array) -> jax.Array:
        return call.run(call.multiply(isa.usable()[0], (xs[0], xs[1]), zps))

    fn = jax.jit(jax.vmap(one, axes))
    assert str(jax.make_jaxpr(fn)(*given)).count("ffi_call[") == 1
    a, b = (x[:1] if i in shared else x for i, x in enumerate((a, b)))
    found = fn(*map(jnp.asarray, given))
    np.testing.assert_array_equal(found[:, 0], product((a, b), zps))


def test_zero_points_and_scales_may_be_traced():
    """Each example has zero points and scales of its own."""
    s, (a, b) = isa.usable()[0], drawn((3, 9, 13, 21), 8)
    zero_points = [bytes_of(i - 5, 7 * i) for i in range(3)]
    ends = [epilogue_of(21, 2 * i + 1, double=True, upper=False) for i in range(3)]

    def one(a: jax.Array, b: jax.Array, zps: Pair, *e: jax.Array) -> jax.Array:
        return call.run(call.multiply(s, (a, b), zps, call.Epilogue(*e, double=True)))

    columns = [
        jnp.stack(list(map(jnp.asarray, c))) for c in zip(*(e[:5] for e in ends), strict=True)
    ]
    zps = tuple(np.stack(c) for c in zip(*zero_points, strict=True))
    found = jax.jit(jax.vmap(one))(a[:, None], b[:, None], zps, *columns)
    for i, (z, e) in enumerate(zip(zero_points, ends, strict=True)):
        wanted = scaled(product((a[i : i + 1], b[i : i + 1]), z), e)
        np.testing.assert_array_equal(found[i], wanted)
