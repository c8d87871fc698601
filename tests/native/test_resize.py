"""The native kernel of RESIZE equals the operator, on each instruction set here."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import native_calls
import numpy as np
import pytest
from native_sets import SETS

pytest.importorskip("llvmlite")

from tosajax import ops
from tosajax.dtypes import DType
from tosajax.native.codegen.isa import InstructionSet
from tosajax.native.codegen.steps import ELEMENT, RESIZED, Step
from tosajax.native.elementwise import Operand, compute, grid_of
from tosajax.ops.image import samples_of
from tosajax.spec import ResizeMode

pytestmark = pytest.mark.usefixtures("quick")
TYPES = {"i8": DType.INT8, "i16": DType.INT16, "float": DType.FP32}


class Case(NamedTuple):
    """A RESIZE; see `tosajax.ops.resize`."""

    shape: tuple[int, int, int, int]
    scale: tuple[int, int, int, int]
    offset: tuple[int, int] = (0, 0)
    border: tuple[int, int] = (0, 0)


CASES = {
    "twice": Case((2, 3, 4, 16), (4, 2, 4, 2), (-1, -1), (1, 1)),
    "corners aligned": Case((1, 5, 7, 21), (16, 4, 12, 6)),
    "fewer pixels": Case((2, 8, 9, 5), (2, 4, 1, 3), (1, 0), (-1, 1)),
    "samples far outside": Case((1, 2, 2, 17), (6, 1, 4, 1), (-15, -9), (14, 9)),
    "one pixel": Case((3, 1, 1, 37), (1, 1, 1, 1), (0, 0), (2, 3)),
    "one row": Case((1, 1, 6, 33), (1, 1, 8, 3), (0, 2), (0, 4)),
}
MODES = [
    ("i8", "i32", ResizeMode.BILINEAR),
    ("float", "float", ResizeMode.BILINEAR),
    *((t, t, ResizeMode.NEAREST_NEIGHBOR) for t in TYPES),
]


def drawn(element: str, shape: tuple[int, ...]) -> np.ndarray:
    rng = np.random.default_rng(shape)
    if element == "float":
        return rng.normal(size=shape).astype(np.float32)
    ends = np.iinfo(TYPES[element].storage)
    values = rng.integers(ends.min, ends.max + 1, shape)
    return np.where(rng.integers(0, 3, shape), values, ends.min).astype(ends.dtype)


def resized(case: Case, x: np.ndarray, mode: ResizeMode, out: DType) -> np.ndarray:
    result = ops.resize(jnp.asarray(x), case.scale, case.offset, case.border, mode=mode,
        out_type=out)  # fmt: skip
    return np.asarray(result)


def operand(case: Case, x: np.ndarray, element: str, *, is_bilinear: bool) -> Operand:
    axes = zip(x.shape[1:3], case.scale[::2], case.scale[1::2], case.offset, case.border,
        strict=True)  # fmt: skip
    rows, columns = (samples_of(*axis) for axis in axes)
    grid = grid_of(rows, columns, x.shape, is_bilinear=is_bilinear, element=element)
    return Operand(RESIZED, x, element, grid=grid)


@pytest.mark.parametrize(("source", "element", "mode"), MODES)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("s", SETS)
def test_alone(s: InstructionSet, name: str, source: str, element: str, mode: ResizeMode):
    """In guarded memory."""
    case, bilinear = CASES[name], mode == ResizeMode.BILINEAR
    x = drawn(source, case.shape)
    wanted = resized(case, x, mode, DType.INT32 if element == "i32" else TYPES[element])
    step = Step("RESIZE", (0,), source, element, (bilinear,))
    kernel = compute(s, wanted.shape, [operand(case, x, source, is_bilinear=bilinear)], [step])
    for at_end in (False, True):
        found = native_calls.call(kernel, at_end=at_end)
        assert found.dtype == wanted.dtype
        if element == "float":
            np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=2e-7)
        else:
            np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("s", SETS)
def test_with_other_operators(s: InstructionSet):
    """The sum with another image, which is larger, of threads that share rows."""
    case = Case((3, 20, 30, 19), (4, 2, 4, 2), (-1, -1), (1, 1))
    x = drawn("i8", case.shape)
    wide = resized(case, x, ResizeMode.BILINEAR, DType.INT32)
    other: Any = np.random.default_rng(1).integers(-9, 9, wide.shape, np.int32)
    operands = [operand(case, x, "i8", is_bilinear=True), Operand(ELEMENT, other, "i32")]
    steps = [
        Step("RESIZE", (0,), "i8", "i32", (True,)),
        Step("SUB", (2, 1), "i32", "i32"),
        Step("REDUCE_MAX", (3,), "i32", "i32", is_row=True),
        Step("SUB", (3, 4), "i32", "i32"),
    ]
    less = wide - other
    kernel = compute(s, wide.shape, operands, steps)
    found = native_calls.call(kernel, pool=native_calls.Pool(3))
    np.testing.assert_array_equal(found, less - less.max(-1, keepdims=True))
