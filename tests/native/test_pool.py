"""Native pools equal their definition, on each instruction set here."""

from __future__ import annotations

import functools
import itertools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import native_calls
import numpy as np
import pytest
from native_calls import Pool

pytest.importorskip("llvmlite")

from tosajax.native import call, tiling
from tosajax.native.codegen import isa
from tosajax.native.codegen.isa import InstructionSet
from tosajax.ops._window import Window, window

pytestmark = pytest.mark.usefixtures("quick")
SETS = [pytest.param(s, id=s.name) for s in isa.usable()]
OPERATORS = ["AVG_POOL2D", "MAX_POOL2D"]
TYPES = [pytest.param(t, id=t.__name__) for t in (np.int8, np.int16, np.float32)]


class Case(NamedTuple):
    x: tuple[int, ...]
    kernel: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    pad: tuple[int, int, int, int] = (0, 0, 0, 0)

    @property
    def window(self) -> Window:
        return window(self.kernel, self.stride, (1, 1), self.pad)


CASES = {
    "all": Case((2, 8, 8, 64), (8, 8)),
    "one element": Case((1, 1, 1, 1), (1, 1)),
    "one channel": Case((1, 6, 7, 1), (2, 3), (2, 1)),
    "an odd number": Case((2, 7, 9, 3), (3, 2), (2, 1), (1, 1, 0, 1)),
    "padding on all sides": Case((1, 5, 5, 17), (3, 3), (1, 1), (2, 2, 2, 2)),
    "many channels": Case((3, 6, 4, 130), (2, 2), (2, 2)),
    "gaps": Case((1, 9, 8, 33), (2, 1), (3, 3)),
    "long": Case((1, 3, 70, 5), (2, 65), (1, 2), (1, 0, 4, 3)),
}


def pooled(op: str, x: np.ndarray, of: Window, zero_points: tuple[int, int]) -> np.ndarray:
    """The pool by definition, in Python's integers; or in float32, element by element."""
    n, height, width, channels = x.shape
    out = np.zeros((n, *of.out(x.shape), channels), x.dtype)
    for row, column in itertools.product(*map(range, out.shape[1:3])):
        y, left = (
            i * stride - low
            for i, stride, (low, _) in zip((row, column), of.stride, of.pad, strict=True)
        )
        rows, columns = range(y, y + of.size[0]), range(left, left + of.size[1])
        inside = [
            x[:, i, j]
            for i, j in itertools.product(rows, columns)
            if 0 <= i < height and 0 <= j < width
        ]
        if x.dtype == np.float32:
            combine = np.add if op == "AVG_POOL2D" else np.maximum
            with np.errstate(invalid="ignore", over="ignore"):
                total = functools.reduce(combine, inside)
                count = np.float32(len(inside))
                out[:, row, column] = total / count if op == "AVG_POOL2D" else total
            continue
        inside, ends = [each.astype(object) for each in inside], np.iinfo(x.dtype)
        result: Any = np.max(inside, axis=0)
        if op == "AVG_POOL2D":
            count, bits = len(inside), (len(inside) - 1).bit_length()
            multiplier = ((2**30 + 1) << bits) // count
            total = np.sum(inside, axis=0) - zero_points[0] * count
            result = ((total * multiplier + (1 << (29 + bits))) >> (30 + bits)) + zero_points[1]
        out[:, row, column] = np.clip(result, ends.min, ends.max).astype(x.dtype)
    return out


def drawn(case: Case, dtype: type, seed: int) -> np.ndarray:
    """Random values, and the bounds of the type; of float32, NaN, infinities and zeros."""
    rng = np.random.default_rng(seed)
    if dtype is np.float32:
        x = rng.normal(size=case.x) * 2.0 ** rng.integers(-9, 9, case.x)
        specials = [np.nan, np.inf, -np.inf, 0.0, 1e-30, 3.4e38]
        x[rng.random(x.shape) < seed % 3 / 20] = specials[seed % len(specials)]
        return x.astype(np.float32)
    ends = np.iinfo(dtype)
    x = rng.integers(ends.min, int(ends.max) + 1, case.x)
    for image, end in zip(x, (ends.min, ends.max), strict=False):
        image[rng.random(image.shape) < seed % 3 / 2] = end
    return x.astype(dtype)


def zero_points(dtype: type, seed: int) -> tuple[np.ndarray, np.ndarray]:
    pairs = [(0, 0), (-128, -128), (127, 127), (-128, 127), (127, -128), (-3, 5)]
    pair = pairs[seed % len(pairs)] if dtype is np.int8 else (0, 0)  # floats have zeros as well
    return np.array(pair[:1], dtype), np.array(pair[1:], dtype)


def prepared(s: InstructionSet, op: str, case: Case, x: Any, zps: Any) -> call.KernelCall:
    return call.combine(s, op, x, case.window, zps)


def numbers(zps: tuple[np.ndarray, np.ndarray]) -> tuple[int, int]:
    return int(zps[0][0]), int(zps[1][0])


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("op", OPERATORS)
@pytest.mark.parametrize("s", SETS)
def test_pools(s: InstructionSet, op: str, dtype: type, name: str):
    case = CASES[name]
    fn = jax.jit(lambda x, *zps: call.run(prepared(s, op, case, x, zps)))
    for seed in range(6):
        x, zps = drawn(case, dtype, seed), zero_points(dtype, seed)
        np.testing.assert_array_equal(fn(x, *zps), pooled(op, x, case.window, numbers(zps)))


@pytest.mark.parametrize("s", SETS)
def test_every_sum_of_a_few(s: InstructionSet):
    """Averages of all sums of 1 to 12 bytes round as defined."""
    for count in range(1, 13):
        sums = np.arange(-128 * count, 127 * count + 1)
        parts = [sums // count + (sums % count > i) for i in range(count)]
        x = np.stack(parts).astype(np.int8)[None, :, None]
        case = Case(x.shape, (count, 1))
        found = call.run(prepared(s, "AVG_POOL2D", case, x, zero_points(np.int8, 0)))
        np.testing.assert_array_equal(found, pooled("AVG_POOL2D", x, case.window, (0, 0)))


@pytest.mark.parametrize("at_end", [True, False])
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("op", OPERATORS)
def test_only_buffers_are_touched(op: str, dtype: type, name: str, at_end: bool):
    case, zps = CASES[name], zero_points(dtype, 5)
    x = drawn(case, dtype, 7)
    for s in isa.usable():
        found = native_calls.call(prepared(s, op, case, x, zps), at_end=at_end)
        np.testing.assert_array_equal(found, pooled(op, x, case.window, numbers(zps)))


@pytest.mark.parametrize("when", ["now", "late", "never"])
@pytest.mark.parametrize("size", [0, 2, 7])
def test_threads(size: int, when: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tiling, "threads", lambda: 4)
    case = Case((3, 23, 31, 80), (3, 3), (1, 1), (1, 1, 1, 1))
    x, zps = drawn(case, np.int8, 2), zero_points(np.int8, 5)
    kernel = prepared(isa.usable()[0], "AVG_POOL2D", case, x, zps)
    planned = kernel.plan(case.x, 4)
    assert planned.threads == 4
    assert planned.items > 4
    found = native_calls.call(kernel, pool=Pool(size, when))
    np.testing.assert_array_equal(found, pooled("AVG_POOL2D", x, case.window, numbers(zps)))


def test_examples_are_joined():
    case, zps = CASES["an odd number"], zero_points(np.int8, 5)
    images = np.stack([drawn(case, np.int8, seed) for seed in range(5)])

    def one(x: jax.Array) -> jax.Array:
        return call.run(prepared(isa.usable()[0], "AVG_POOL2D", case, x, zps))

    fn = jax.jit(jax.vmap(one))
    assert str(jax.make_jaxpr(fn)(images)).count("ffi_call[") == 1
    for x, found in zip(images, fn(jnp.asarray(images)), strict=True):
        np.testing.assert_array_equal(found, pooled("AVG_POOL2D", x, case.window, numbers(zps)))
