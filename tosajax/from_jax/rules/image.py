"""`jax.image.resize` ("Image Operators", RESIZE, TOSA 1.0.1)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core

from tosajax import ops
from tosajax.builder import Builder
from tosajax.from_jax.evaluation import known_results
from tosajax.from_jax.rules._wide import has_type
from tosajax.from_jax.step import Step
from tosajax.from_jax.values import Value
from tosajax.report import Verdict
from tosajax.spec import ResizeMode
from tosajax.validation import validate

FUNCTION = "_resize"  # the name of what `jax.image.resize` compiles
_NEAR = 1e-5  # of normal numbers, in float32
# Of a function that only moves and sums elements; indices are constant.
_LINEAR = ("dot_general", "gather", "reshape", "transpose")


class _Images(NamedTuple):
    """An array as images [N, rows, columns, C], and the samples that RESIZE takes of them.

    Args:
      order: the axes of the array in the order of those of the images.
      shape: of the images.
      result: the shape of resized images.
      moved: the shape of the result in this order.
      scale: of RESIZE, with samples between the centers of others.
      offset: of RESIZE; the border is its negative.
    """

    order: tuple[int, ...]
    shape: tuple[int, ...]
    result: tuple[int, ...]
    moved: tuple[int, ...]
    scale: tuple[int, int, int, int]
    offset: tuple[int, int]

    @property
    def border(self) -> tuple[int, int]:
        return -self.offset[0], -self.offset[1]


def resize(step: Step, jaxpr: core.ClosedJaxpr, x: Value) -> Value | None:
    """RESIZE along one or two axes; None where it computes something else, as cubic samples.

    A linear function of random numbers tells which mode it is, if any. NaN and infinities spread to
    their neighbours; of a product with a matrix, as JAX has it, along the whole axis.
    """
    if len(step.outs) != 1 or len(step.out.shape) != x.rank or not _is_linear(jaxpr):
        return None
    images = _images(x.shape, step.out.shape)
    if images is None or x.dtype != step.out.dtype or not has_type(step, "RESIZE", x):
        return None
    modes = [mode for mode in ResizeMode if _is_legal(step, x, images, mode)]
    mode = next((mode for mode in modes if _computes(step, jaxpr, x, images, mode)), None)
    if mode is None:
        return None
    resized = step.op(
        "RESIZE",
        step.jax(lambda v: jnp.transpose(v, images.order).reshape(images.shape), x),
        images.scale,
        images.offset,
        images.border,
        mode=mode,
        dtype=x.dtype,
    )
    back = np.argsort(images.order).tolist()
    return step.jax(lambda v: jnp.transpose(v.reshape(images.moved), back), resized)


def _is_linear(jaxpr: core.ClosedJaxpr) -> bool:
    """Whether a function of one array only moves and sums elements, with constant weights."""
    changing = set(jaxpr.jaxpr.invars)
    for eqn in jaxpr.jaxpr.eqns:
        inputs = [atom for atom in eqn.invars if not isinstance(atom, core.Literal)]
        if changing.intersection(inputs):
            if eqn.primitive.name not in _LINEAR:
                return False
            changing.update(eqn.outvars)
    return True


def _images(shape: Sequence[int], wanted: Sequence[int]) -> _Images | None:
    """The images of an array: C is the last axis, if that keeps its size."""
    axes = [axis for axis in range(len(shape)) if shape[axis] != wanted[axis]]
    if not 1 <= len(axes) <= 2:
        return None
    others = [axis for axis in range(len(shape)) if axis not in axes]
    split = len(others) - 1 if others and others[-1] == len(shape) - 1 else len(others[:1])
    order = (*others[:split], *axes, *others[split:])
    batch, channels = (
        math.prod(shape[n] for n in part) for part in (others[:split], others[split:])
    )
    sizes = [[of[axis] for axis in axes] + [1] * (2 - len(axes)) for of in (shape, wanted)]
    before, after = ((batch, *pair, channels) for pair in sizes)
    (scale_y, offset_y), (scale_x, offset_x) = map(_samples, *sizes)
    moved = tuple(wanted[axis] for axis in order)
    return _Images(order, before, after, moved, (*scale_y, *scale_x), (offset_y, offset_x))


def _samples(size: int, wanted: int) -> tuple[tuple[int, int], int]:
    """The scale and the offset of an axis, whose samples lie between the centers of others."""
    common = math.gcd(size, wanted)
    n, d = wanted // common, size // common
    if (d - n) % 2:  # centers lie at halves
        n, d = 2 * n, 2 * d
    return (n, d), (d - n) // 2


def _is_legal(step: Step, x: Value, images: _Images, mode: ResizeMode) -> bool:
    """Whether the export's target has such a RESIZE."""
    b, dtype = Builder(), step.tosa_type(x.dtype)
    shapes = [b.const_shape(each) for each in (images.scale, images.offset, images.border)]
    source = b.input("x", dtype, images.shape)
    y = b.op("RESIZE", source, *shapes, mode=mode, dtype=dtype, shape=images.result)
    return validate(b.graph([y]), step.scope.options.target).verdict is Verdict.VALID


def _computes(
    step: Step, jaxpr: core.ClosedJaxpr, x: Value, images: _Images, mode: ResizeMode
) -> bool:
    """Whether RESIZE in a mode is a function."""
    is_nearest = mode is ResizeMode.NEAREST_NEIGHBOR
    if not (is_nearest or x.dtype == np.float32):
        return False
    numbers = np.random.default_rng(0).normal(0, 1 if x.dtype == np.float32 else 20, x.shape)
    numbers = numbers.astype(x.dtype)
    (wanted,) = known_results(jaxpr, [numbers])
    source = np.transpose(numbers, images.order).reshape(images.shape)
    wanted = np.transpose(np.asarray(wanted), images.order).reshape(images.result)
    with jax.ensure_compile_time_eval():
        found = ops.resize(
            *(jnp.asarray(source), images.scale, images.offset, images.border),
            mode=mode,
            out_type=step.tosa_type(x.dtype),
        )
    off = np.abs(np.asarray(found, np.float64) - np.asarray(wanted, np.float64))
    return bool(off.max(initial=0) <= (0 if is_nearest else _NEAR))
