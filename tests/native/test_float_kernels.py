"""Native convolutions of float32 add products one after another, each rounded once with its sum."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import native_calls
import numpy as np
import pytest
from native_cases import GEOMETRIES, Case
from native_sets import SETS, USABLE

pytest.importorskip("llvmlite")

from tosajax.native import call
from tosajax.native.codegen import isa
from tosajax.native.codegen.isa import InstructionSet
from tosajax.native.kernels.epilogue import FloatEpilogue

pytestmark = pytest.mark.usefixtures("quick")
CASES = {
    **GEOMETRIES,
    "depthwise, more positions than one loop": Case(
        (1, 3, 23, 17), 1, (3, 3), pad=((1, 1), (1, 1)), depthwise=True
    ),
    "depthwise, strided and dilated": Case(
        (2, 9, 14, 20), 1, (3, 2), (2, 3), ((1, 2), (2, 1)), (2, 2), depthwise=True
    ),
    "depthwise, few channels, strided": Case(
        (1, 6, 8, 4), 1, (3, 3), (2, 2), ((1, 1), (1, 1)), depthwise=True
    ),
}


def f32(values: Sequence[float]) -> np.ndarray:
    return np.asarray(values, np.float32)


def multiplied_add(x: np.ndarray, y: np.ndarray, total: np.ndarray) -> np.ndarray:
    """x * y + total of float32, rounded once.

    A product of two float32 is exact in float64. The sum is rounded to odd there, after which
    rounding to float32 is what rounding the exact sum would be.
    """
    product, addend = x.astype(np.float64) * y, total.astype(np.float64)
    whole = product + addend
    back = whole - product
    error = (product - (whole - back)) + (addend - back)
    is_even = (whole.view(np.int64) & 1) == 0
    towards = np.where(error > 0, np.inf, -np.inf)
    odd = np.where((error != 0) & is_even, np.nextafter(whole, towards), whole)
    return odd.astype(np.float32)


class Operands:
    """Operands of a case: its floats have many bits, of sizes that differ.

    Args:
      case: the convolution.
      seed: of the numbers.
    """

    def __init__(self, case: Case, seed: int) -> None:
        rng = np.random.default_rng(seed)

        def floats(*shape: int) -> np.ndarray:
            sizes = 2.0 ** rng.integers(-12, 4, shape)
            return (rng.normal(size=shape) * sizes).astype(np.float32)

        shape, channels = (case.out, *case.size, case.x[3]), case.out
        if case.depthwise:
            shape, channels = (*case.size, case.x[3], case.out), case.x[3] * case.out
        self.case, self.x, self.weight = case, floats(*case.x), floats(*shape)
        self.bias, self.slope = floats(channels), floats(channels)
        self.other = floats(case.x[0], *case.window.out(case.x), channels)

    def sums(self) -> np.ndarray:
        """The sums, of the window's rows, taps and channels in this order."""
        case = self.case
        padded = np.pad(self.x, ((0, 0), *case.pad, (0, 0)))
        height, width = case.window.out(self.x.shape)
        total = np.broadcast_to(self.bias, (case.x[0], height, width, self.bias.size))
        for ky, kx in itertools.product(*map(range, case.size)):
            rows = slice(ky * case.dilation[0], None, case.stride[0])
            columns = slice(kx * case.dilation[1], None, case.stride[1])
            taps = padded[:, rows, columns][:, :height, :width]
            if case.depthwise:
                repeated = np.repeat(taps, case.out, axis=-1)
                total = multiplied_add(repeated, self.weight[ky, kx].reshape(-1), total)
            else:
                for channel in range(case.x[3]):
                    of_all = self.weight[:, ky, kx, channel]
                    total = multiplied_add(taps[..., channel, None], of_all, total)
        return total

    def kernel(self, s: InstructionSet, steps: call.FloatSteps | None = None) -> call.KernelCall:
        make = call.convolve_depthwise if self.case.depthwise else call.convolve
        operands = call.Operands(self.x, self.weight, self.bias, np.zeros(1, np.float32))
        return make(s, operands, self.case.window, steps)


@functools.cache  # for all instruction sets
def summed(name: str) -> tuple[Operands, np.ndarray]:
    o = Operands(CASES[name], 3)
    return o, o.sums()


def same_bits(found: np.ndarray, wanted: np.ndarray) -> None:
    """Asserts equal bits, but that any NaN is as good as another."""
    found, wanted = (np.where(np.isnan(x), np.float32(np.nan), x) for x in (found, wanted))
    np.testing.assert_array_equal(found.view(np.int32), wanted.view(np.int32))


def clamp(least: Any, largest: Any) -> call.FloatSteps:
    key = FloatEpilogue(("scalar", "scalar"), (("CLAMP", (0, 1, 2)),))
    return call.FloatSteps(key, (least, largest))


def slope_of(slope: Any, other: Any = None) -> call.FloatSteps:
    """A slope of negative values, of the sums or of these and others."""
    if other is None:
        steps = ("GREATER_EQUAL", (0, 1)), ("MUL", (2, 0)), ("SELECT", (3, 0, 4))
        return call.FloatSteps(FloatEpilogue(("scalar", "channel"), steps), (0.0, slope))
    steps = (
        ("ADD", (3, 0)),
        ("GREATER_EQUAL", (4, 1)),
        ("MUL", (2, 4)),
        ("SELECT", (5, 4, 6)),
    )
    key = FloatEpilogue(("scalar", "channel", "element"), steps)
    return call.FloatSteps(key, (0.0, slope, other))


def sloped(values: np.ndarray, slope: np.ndarray) -> np.ndarray:
    return np.where(values >= 0, values, values * slope)


@pytest.mark.parametrize("at_end", [True, False])
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("s", SETS)
def test_sums_and_what_follows(s: InstructionSet, name: str, at_end: bool):
    """In guarded memory: only buffers are read and written."""
    o, sums = summed(name)
    added = call.FloatSteps(FloatEpilogue(("element",), (("ADD", (0, 1)),)), (o.other,))
    for steps, wanted in (
        (None, sums),
        (added, sums + o.other),
        (clamp(-0.5, 1.25), np.clip(sums, -0.5, 1.25)),
        (slope_of(o.slope), sloped(sums, o.slope)),
        (slope_of(o.slope, o.other), sloped(sums + o.other, o.slope)),
    ):
        same_bits(native_calls.call(o.kernel(s, steps), at_end=at_end), wanted)


@pytest.mark.parametrize("at_end", [True, False])
@pytest.mark.parametrize(
    "name", ["some lanes", "vectors that are left", "a row of a tile and a part"]
)
@pytest.mark.parametrize("s", SETS)
def test_channels_that_are_padded(s: InstructionSet, name: str, at_end: bool):
    """Of an input with fewer channels no others are read; the rest are zeros."""
    o, sums = summed(name)
    channels = o.bias.size
    key = FloatEpilogue(("padded", "padded"), (("ADD", (0, 1)), ("SUB", (3, 2))))
    for count in (1, channels // 2, channels - 1, channels):
        few, more = o.other[..., :count].copy(), o.other[..., 1 : 1 + count // 2].copy()
        wanted = sums.copy()
        wanted[..., :count] += few
        wanted[..., : more.shape[-1]] -= more
        if more.size:
            steps = call.FloatSteps(key, (few, more))
            same_bits(native_calls.call(o.kernel(s, steps), at_end=at_end), wanted + 0)


@pytest.mark.parametrize("s", SETS)
def test_products_are_not_rounded(s: InstructionSet):
    """(1 + 2**-12)**2 - 1 - 2**-11 is 2**-24, which a product rounded by itself has not."""
    o = Operands(Case((1, 1, 1, 1), 1), 0)
    o.x[:] = o.weight[:] = 1 + 2**-12
    o.bias[:] = -1 - 2**-11
    assert native_calls.call(o.kernel(s)).item() == 2**-24


@pytest.mark.parametrize("s", SETS)
def test_special_values(s: InstructionSet):
    """NaN stays NaN, infinities stay, and zeros keep their signs."""
    values = f32([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-45, -1e-45, 3.4e38, -3.4e38])
    o = Operands(Case((1, 1, values.size, 1), 2), 0)
    o.x[0, 0, :, 0] = values
    o.weight[:] = 1
    o.bias[:] = -0.0
    sums = np.repeat(values[:, None], 2, axis=1)[None, None]
    same_bits(native_calls.call(o.kernel(s)), sums)
    slope = f32([0.25, -2])
    with np.errstate(over="ignore"):
        wanted = sloped(sums, slope)
    same_bits(native_calls.call(o.kernel(s, slope_of(slope))), wanted)
    for bounds in ((-1.0, 1.0), (0.0, np.inf), (-np.inf, np.inf)):
        found = native_calls.call(o.kernel(s, clamp(*bounds)))
        least, largest = f32(bounds)
        wanted = np.where(sums < least, least, np.where(sums > largest, largest, sums))
        same_bits(found, wanted)


@pytest.mark.parametrize("name", ["some lanes", "depthwise, odd", "depthwise, repeated"])
@pytest.mark.parametrize("s", USABLE)
def test_a_program_with_all_operands_traced(s: InstructionSet, name: str):
    """`vmap` joins examples of inputs alone in one call, whose bits are those of each alone."""
    o, sums = summed(name)
    wanted = sloped(sums + o.other, o.slope)

    def run(x, weight, bias, other, slope):
        operands = call.Operands(x, weight, bias, np.zeros(1, np.float32))
        make = call.convolve_depthwise if o.case.depthwise else call.convolve
        return call.run(make(s, operands, o.case.window, slope_of(slope, other)))

    given = tuple(map(jnp.asarray, (o.x, o.weight, o.bias, o.other, o.slope)))
    same_bits(np.asarray(jax.jit(run)(*given)), wanted)
    fn = jax.jit(jax.vmap(run, (0, None, None, 0, None)))
    pair = [jnp.stack([each, each]) if n in (0, 3) else each for n, each in enumerate(given)]
    assert str(jax.make_jaxpr(fn)(*pair)).count("ffi_call[") == 1
    for each in fn(*pair):
        same_bits(np.asarray(each), wanted)
    for each in jax.jit(jax.vmap(run))(*(jnp.stack([x, x]) for x in given)):
        same_bits(np.asarray(each), wanted)


@pytest.mark.parametrize("depthwise", [False, True])
def test_a_column_is_computed_as_a_row(depthwise: bool):
    """Tiles of one pixel would read all weights for each."""
    case = Case((1, 70, 1, 16), 1 if depthwise else 32, (5, 1), depthwise=depthwise)
    kernel = Operands(case, 0).kernel(isa.usable()[0])
    key: Any = kernel.plan(case.x, 1).key
    assert (key.positions if depthwise else key.pixels) > 4


def test_depthwise_has_a_kernel_of_its_own_unless_channels_repeat():
    for name, prefix in (("depthwise", "depthwise_float"), ("depthwise, repeated", "depthwise")):
        kernel = Operands(CASES[name], 0).kernel(isa.usable()[0])
        assert kernel.module_of.__module__.endswith(f".{prefix}")


def test_traced_bounds():
    s = isa.usable()[0]
    o, sums = summed("some lanes")

    def run(least, largest):
        return call.run(o.kernel(s, clamp(least, largest)))

    found = jax.jit(run)(jnp.float32(-1), jnp.float32(0.5))
    same_bits(np.asarray(found), np.clip(sums, -1, 0.5))
