"""Native convolutions equal their definition, on real and emulated instruction sets."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import native_calls
import native_sums
import numpy as np
import pytest
from native_calls import Pool
from native_cases import GEOMETRIES, ONE, Case
from native_sets import SETS, USABLE

pytest.importorskip("llvmlite")

from tosajax.native import call, tiling
from tosajax.native.codegen import isa
from tosajax.native.codegen.isa import InstructionSet
from tosajax.native.codegen.requantize import UPPER_SHIFT

pytestmark = pytest.mark.usefixtures("quick")
EXTREMES = np.array([-128, -128, -127, -1, 0, 1, 126, 127, 127], np.int8)


CASES = {**GEOMETRIES}
CASES |= {
    f"{name}, int16": dataclasses.replace(case, is_int16=True) for name, case in CASES.items()
}
WIDE = [
    "a product", "many pixels, in place", "many pixels, copied", "all lanes", "some lanes",
    "dilated", "depthwise", "depthwise, odd", "depthwise of few channels", "depthwise, wide",
]  # fmt: skip
CASES |= {
    f"{name}{kind}, wide weights": dataclasses.replace(CASES[f"{name}{kind}"], is_wide=True)
    for name in WIDE
    for kind in ("", ", int16")
}
CASES["segments that are cut, int16"] = Case((1, 2, 5, 1021), 9, is_int16=True)
CASES["a round that is left, int16"] = Case((1, 5, 4, 64), 9, (3, 3), pad=ONE, is_int16=True)


# Cases that run as programs of XLA's as well; others run outside of XLA only.
PROGRAMS = ["a product", "many pixels, copied", "some lanes", "depthwise, odd"]
PROGRAMS += [f"{name}, int16" for name in PROGRAMS]
PROGRAMS += [f"{name}, wide weights" for name in PROGRAMS]


@dataclasses.dataclass(frozen=True)
class Operands:
    """Operands of a case; see `call.Operands`."""

    x: np.ndarray
    weight: np.ndarray
    bias: np.ndarray
    x_zp: np.ndarray

    def sums(self, case: Case) -> np.ndarray:
        """The accumulators by definition, int64."""
        x = self.x.astype(np.int64) - int(self.x_zp[0])
        padded = np.pad(x, ((0, 0), *case.pad, (0, 0)))
        height, width = case.window.out(self.x.shape)
        total = 0
        for ky, kx in itertools.product(*map(range, case.size)):
            rows = slice(ky * case.dilation[0], None, case.stride[0])
            columns = slice(kx * case.dilation[1], None, case.stride[1])
            taps = padded[:, rows, columns][:, :height, :width]
            if case.depthwise:
                products = taps[..., None] * self.weight[ky, kx].astype(np.int64)
                total = total + products.reshape(*taps.shape[:3], -1)
            else:
                total = total + taps @ self.weight[:, ky, kx].astype(np.int64).T
        return total + self.bias.astype(np.int64)


def drawn(case: Case, seed: int, *, extreme: bool = False) -> Operands:
    rng = np.random.default_rng(seed)

    def ints(dtype: Any, *shape: int) -> np.ndarray:
        of = np.iinfo(dtype)
        if extreme:
            return rng.choice([of.min, of.min, *EXTREMES, of.max, of.max], shape).astype(dtype)
        return rng.integers(of.min, of.max + 1, shape).astype(dtype)

    shape = (case.out, *case.size, case.x[3])
    channels = case.out
    if case.depthwise:
        shape, channels = (*case.size, case.x[3], case.out), case.x[3] * case.out
    weight = ints(np.int8, *shape)
    if case.is_wide:
        zero_point = -128 if extreme else 127
        weight = weight.astype(np.int16) - np.int16(zero_point)
    if case.is_int16:
        bias = rng.integers(-(2**46), 2**46, channels)
        return Operands(ints(np.int16, *case.x), weight, bias, np.zeros(1, np.int16))
    x_zp = np.array([rng.choice([-128, 127, 0, 5])], np.int8)
    bias = rng.integers(-(2**24), 2**24, channels).astype(np.int32)
    return Operands(ints(np.int8, *case.x), weight, bias, x_zp)


@pytest.mark.parametrize("is_wide", [False, True])
@pytest.mark.parametrize("s", SETS)
def test_the_largest_sums_of_int16(s: InstructionSet, is_wide: bool):
    """Where all products are as large as can be, parts of the sums just fit int32."""
    case = Case((1, 1, 2, 1021), 3, (2, 1), pad=((1, 0), (0, 0)), is_int16=True, is_wide=is_wide)
    largest = np.int16(-255) if is_wide else np.int8(-128)
    weight = np.full((3, 2, 1, 1021), largest)
    weight[1] = -(largest + 1)
    x = np.full(case.x, -32768, np.int16)
    o = Operands(x, weight, np.zeros(3, np.int64), np.zeros(1, np.int16))
    np.testing.assert_array_equal(native_calls.call(prepared(s, case, o)), o.sums(case))


def prepared(
    s: InstructionSet, case: Case, o: Operands, epilogue: call.Epilogue | None = None
) -> call.KernelCall:
    make = call.convolve_depthwise if case.depthwise else call.convolve
    operands = call.Operands(o.x, o.weight, o.bias, o.x_zp)
    return make(s, operands, case.window, epilogue)


def ran(
    s: InstructionSet, case: Case, o: Operands, epilogue: call.Epilogue | None = None
) -> np.ndarray:
    """The result of a program of constants."""
    return np.asarray(jax.jit(lambda: call.run(prepared(s, case, o, epilogue)))())


EDGES = [(2**31 - 1, 62), (2**30, 2), (1, 31), (0, 32), (2**31 - 1, 33), (2**30, 30), (1, 34)]


def epilogue_of(
    channels: int, seed: int, *, double: bool, per_channel: bool, upper: bool = False
) -> call.Epilogue:
    """Scales of all sizes, or only those for upper words; largest and least included."""
    rng = np.random.default_rng(seed)
    count = channels if per_channel else 1
    multiplier = rng.integers(2**30, 2**31, count)
    shift = rng.integers(UPPER_SHIFT if upper else 28, 50, count)
    edges = [edge for edge in EDGES if not upper or edge[1] >= UPPER_SHIFT]
    for at, (m, s) in zip(range(0, count, 3) if per_channel else (), edges, strict=False):
        multiplier[at], shift[at] = m, s
    low, high = sorted(rng.integers(-128, 128, 2).tolist())
    zero_point = np.int32(rng.integers(-128, 128))
    return call.Epilogue(
        multiplier.astype(np.int32), shift.astype(np.int8), zero_point, low, high, double
    )


INT16_EDGES = [(2**15 - 1, 62), (2**14, 2), (1, 31), (0, 32), (2**15 - 1, 16), (1, 47), (2**14, 33)]


def epilogue_of_int16(channels: int, seed: int, out: str) -> call.Epilogue:
    """Scales of int48 accumulators; largest and least included."""
    rng = np.random.default_rng(seed)
    count = channels if seed % 2 else 1
    multiplier, shift = rng.integers(2**14, 2**15, count), rng.integers(20, 48, count)
    for at, edge in zip(range(0, count, 2) if count > 1 else (), INT16_EDGES, strict=False):
        multiplier[at], shift[at] = edge
    half = 2 ** (int(out[1:]) - 1)
    low, high = sorted(rng.integers(-half, half, 2).tolist())
    zero_point = np.int32(rng.integers(-128, 128) if out == "i8" else 0)
    scale = multiplier.astype(np.int16), shift.astype(np.int8)
    return call.Epilogue(*scale, zero_point, low, high, False, out)


def scaled(sums: np.ndarray, e: call.Epilogue) -> np.ndarray:
    """RESCALE and CLAMP by definition, in Python's integers; beyond 32 bits results wrap."""
    value, multiplier, shift = (np.asarray(v).astype(object) for v in (sums, *e[:2]))
    total = value * multiplier
    if e.double:
        away = np.where(value >= 0, 1, -1) * np.where(shift > 31, 2**30, 0)
        total = total + away.astype(object)
    half = np.asarray([1 << (int(s) - 1) for s in shift.ravel()], object)
    total = ((total + half) >> shift) + int(e.zero_point)
    result = (total + 2**31) % 2**32 - 2**31
    return np.clip(result, int(e.least), int(e.largest)).astype(f"int{e.out[1:]}")


# All cases run outside of XLA, below.
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("s", USABLE)
def test_sums(s: InstructionSet, name: str):
    case = CASES[name]
    for seed, extreme in ((1, False), (2, True)):
        o = drawn(case, seed, extreme=extreme)
        np.testing.assert_array_equal(ran(s, case, o), o.sums(case))


@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("name", ["some lanes", "depthwise, odd", "all lanes"])
@pytest.mark.parametrize("s", USABLE)
def test_scaled_sums(s: InstructionSet, name: str, double: bool, per_channel: bool, upper: bool):
    case = CASES[name]
    o = drawn(case, 3)
    for seed in range(3):
        how = {"double": double, "per_channel": per_channel, "upper": upper}
        e = epilogue_of(o.bias.size, seed, **how)
        found = ran(s, case, o, e)
        assert found.dtype == np.int8
        np.testing.assert_array_equal(found, scaled(o.sums(case), e))


@pytest.mark.parametrize("out", ["i8", "i16"])
@pytest.mark.parametrize("name", ["some lanes", "depthwise, odd", "all lanes"])
@pytest.mark.parametrize("s", USABLE)
def test_scaled_sums_of_int16(s: InstructionSet, name: str, out: str):
    case = CASES[f"{name}, int16"]
    o = drawn(case, 3)
    for seed in range(4):
        e = epilogue_of_int16(o.bias.size, seed, out)
        found = ran(s, case, o, e)
        wanted = scaled(o.sums(case), e)
        assert found.dtype == wanted.dtype == f"int{out[1:]}"
        np.testing.assert_array_equal(found, wanted)


# Small odd sums and a factor of 1/2 make ties; the others lie around the ends of int32.
VALUES = [
    *range(-9, 10),
    *(s * 2**p + d for s in (1, -1) for p in (15, 29, 30) for d in (-1, 0, 1)),
]
VALUES += [-(2**31), 2**31 - 1]
SCALES = [(2**30, s) for s in (2, 3, 29, 30, 31, 32, 33, 34, 47, 61, 62)]
SCALES += [(2**31 - 1, s) for s in (31, 32, 33, 62)] + [(0, 40), (1, 2), (3, 33), (2**30 + 1, 31)]


@pytest.mark.parametrize("shifts", [(2, 62), (UPPER_SHIFT, 62), (2, UPPER_SHIFT - 1)])
@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("s", USABLE)
def test_scales_of_all_sizes(s: InstructionSet, double: bool, shifts: tuple[int, int]):
    """Weights are 0, so that accumulators equal the bias."""
    least, most = shifts
    pairs = [(v, *scale) for v in VALUES for scale in SCALES if least <= scale[1] <= most]
    bias, multiplier, shift = (np.asarray(column) for column in zip(*pairs, strict=True))
    case = Case((1, 1, 1, 1), len(pairs))
    one = np.ones((1, 1, 1, 1), np.int8)
    weight = np.zeros((case.out, 1, 1, 1), np.int8)
    o = Operands(one, weight, bias.astype(np.int32), np.zeros(1, np.int8))
    scale = multiplier.astype(np.int32), shift.astype(np.int8)
    e = call.Epilogue(*scale, np.int32(1), -128, 127, double)
    np.testing.assert_array_equal(ran(s, case, o, e), scaled(o.sums(case), e))


@functools.cache  # for all instruction sets
def summed(name: str, seed: int, *, extreme: bool) -> tuple[Operands, np.ndarray]:
    """Operands of a case, and their accumulators by definition."""
    o = drawn(CASES[name], seed, extreme=extreme)
    return o, o.sums(CASES[name])


@pytest.mark.parametrize("at_end", [True, False])
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("s", SETS)
def test_only_buffers_are_touched(s: InstructionSet, name: str, at_end: bool):
    case = CASES[name]
    o, sums = summed(name, 4, extreme=at_end)
    found = native_calls.call(prepared(s, case, o), at_end=at_end)
    np.testing.assert_array_equal(found, sums)
    e = epilogue_of(o.bias.size, 5, double=False, per_channel=True)
    if case.is_int16:
        e = epilogue_of_int16(o.bias.size, 5, "i16")
    found = native_calls.call(prepared(s, case, o, e), at_end=at_end)
    np.testing.assert_array_equal(found, scaled(sums, e))


SUMS = ["all lanes", "some lanes", "three channels"]
SUMS += ["a round that is left, int16"]


def joined(
    s: InstructionSet, name: str, seed: int, op: str, *, is_right: bool
) -> tuple[call.KernelCall, np.ndarray]:
    """A convolution with a fused addition, and its expected result."""
    case = CASES[name]
    o = drawn(case, seed)
    if case.is_int16:
        e = epilogue_of_int16(o.bias.size, seed, "i8")
    else:
        how = {"double": seed == 2, "per_channel": seed > 0, "upper": seed == 1}
        e = epilogue_of(o.bias.size, seed, **how)
    own = scaled(o.sums(case), e)
    other = native_sums.images(seed, *own.shape)[0]
    scales, end = native_sums.drawn(seed)
    adding = call.Adding(op, other, is_right, scales, end)
    operands = call.Operands(o.x, o.weight, o.bias, o.x_zp)
    inputs = (other, own) if is_right else (own, other)
    kernel = call.convolve(s, operands, case.window, e, adding)
    return kernel, native_sums.added(op, inputs, scales, end)


@pytest.mark.parametrize(("op", "is_right"), [("ADD", False), ("SUB", True)])
@pytest.mark.parametrize("name", SUMS)
@pytest.mark.parametrize("s", SETS)
def test_fused_addition(s: InstructionSet, name: str, op: str, is_right: bool):
    """Fused additions, with all scales and in guarded memory."""
    for seed in range(3):
        kernel, wanted = joined(s, name, seed, op, is_right=is_right)
        found = native_calls.call(kernel, at_end=seed == 1)
        np.testing.assert_array_equal(found, wanted)


def test_examples_of_a_fused_addition_are_joined():
    case, s = CASES["some lanes"], isa.usable()[0]
    o, (scales, end) = drawn(case, 1), native_sums.drawn(2)
    e = epilogue_of(o.bias.size, 1, double=False, per_channel=True)
    own = scaled(o.sums(case), e)
    others = np.stack([native_sums.images(seed, *own.shape)[0] for seed in range(3)])

    def one(x: jax.Array, other: jax.Array) -> jax.Array:
        adding = call.Adding("SUB", other, False, scales, end)
        operands = call.Operands(x, o.weight, o.bias, o.x_zp)
        return call.run(call.convolve(s, operands, case.window, e, adding))

    fn = jax.jit(jax.vmap(one, (None, 0)))
    assert str(jax.make_jaxpr(fn)(o.x, others)).count("ffi_call[") == 1
    for found, other in zip(fn(o.x, others), others, strict=True):
        wanted = native_sums.added("SUB", (own, other), scales, end)
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("when", ["now", "late", "never"])
@pytest.mark.parametrize("size", [0, 1, 2, 7])
@pytest.mark.parametrize("name", ["large", "depthwise, large"])
def test_threads(name: str, size: int, when: str, monkeypatch):
    """Tasks run beside the call, after it, or are refused."""
    monkeypatch.setattr(tiling, "threads", lambda: 4)
    case = CASES[name]
    o, pool = drawn(case, 6), Pool(size, when)
    kernel = prepared(isa.usable()[0], case, o)
    found = native_calls.call(kernel, pool=pool)
    np.testing.assert_array_equal(found, o.sums(case))
    wanted = kernel.plan(case.x, 4).threads
    assert wanted > 2
    scheduled = max(0, min(size, wanted) - 1)
    assert pool.destroyed == (1 if size == 0 else scheduled if when == "never" else 0)


@pytest.mark.parametrize("when", ["now", "never"])
def test_nothing_stays_on_the_heap(when: str, monkeypatch):
    monkeypatch.setattr(tiling, "threads", lambda: 4)
    case, pool = CASES["large"], Pool(3, when)
    kernel = prepared(isa.usable()[0], case, drawn(case, 6))
    planned = kernel.plan(case.x, 4)
    light = kernel._replace(plan=lambda of, workers: planned._replace(items=3))
    with native_calls.Calls(light, pool=pool) as calls:
        native_calls.assert_nothing_stays(calls, 200)


def test_many_callers():
    """Threads may call one program at the same time."""
    from concurrent.futures import ThreadPoolExecutor

    case = CASES["large"]
    o = drawn(case, 7)
    fn = jax.jit(lambda x: call.run(prepared(isa.usable()[0], case, dataclasses.replace(o, x=x))))
    images = [np.roll(o.x, i) for i in range(100)]
    with ThreadPoolExecutor(100) as threads:
        results = list(threads.map(lambda x: np.asarray(fn(x)), images))
    for x, found in zip(images[::9], results[::9], strict=True):
        np.testing.assert_array_equal(found, dataclasses.replace(o, x=x).sums(case))


@pytest.mark.parametrize("name", ["some lanes", "depthwise, odd", "a product"])
def test_examples_are_joined(name: str):
    case, s = CASES[name], isa.usable()[0]
    o = drawn(case, 8)
    images = np.stack([np.roll(o.x, i) for i in range(5)])

    def one(x: jax.Array) -> jax.Array:
        return call.run(prepared(s, case, dataclasses.replace(o, x=x)))

    fn = jax.jit(jax.vmap(jax.vmap(one)))
    pairs = np.stack([images, images[::-1]])
    assert str(jax.make_jaxpr(fn)(pairs)).count("ffi_call[") == 1
    for row, found in zip(pairs, fn(pairs), strict=True):
        for x, each in zip(row, found, strict=True):
            np.testing.assert_array_equal(each, dataclasses.replace(o, x=x).sums(case))


@pytest.mark.parametrize("out", ["i8", "i16"])
@pytest.mark.parametrize("name", ["some lanes", "depthwise, odd"])
def test_all_may_be_traced(name: str, out: str):
    """Each example has operands and scales of its own."""
    is_int16 = out == "i16"
    case, s = CASES[f"{name}, int16" if is_int16 else name], isa.usable()[0]
    every = [drawn(case, seed) for seed in range(3)]
    channels = every[0].bias.size
    ends = [epilogue_of(channels, seed, double=True, per_channel=True) for seed in range(3)]
    if is_int16:
        ends = [epilogue_of_int16(channels, seed, out) for seed in (1, 3, 5)]

    def one(o: tuple[Any, ...], e: tuple[Any, ...]) -> jax.Array:
        end = call.Epilogue(*e, double=not is_int16, out=out)
        return call.run(prepared(s, case, Operands(*o), end))

    given = [dataclasses.astuple(o) for o in every], [tuple(e)[:5] for e in ends]
    with jax.enable_x64(True):
        stacked = [jax.tree.map(lambda *xs: jnp.asarray(np.stack(xs)), *part) for part in given]
    found = jax.jit(jax.vmap(one))(*stacked)
    for o, e, each in zip(every, ends, found, strict=True):
        np.testing.assert_array_equal(each, scaled(o.sums(case), e))
