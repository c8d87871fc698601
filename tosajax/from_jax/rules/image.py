"""`jax.image.resize` ("Image Operators", RESIZE, TOSA 1.0.1)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.extend import core

from tosajax.from_jax.evaluation import known_results
from tosajax.from_jax.rules._wide import has_type
from tosajax.from_jax.step import Step
from tosajax.from_jax.values import Value
from tosajax.spec import ResizeMode

FUNCTION = "_resize"  # the name of what `jax.image.resize` compiles
_LARGEST_N, _LARGEST_RATIO, _LARGEST_SIZE = 1 << 11, 16, 1 << 14  # limits of RESIZE
_NEAR = 1e-5  # of normal numbers, in float32
# Of a function that only moves and sums elements; indices are constant.
_LINEAR = ("dot_general", "gather", "reshape", "transpose")


class _Samples(NamedTuple):
    """The samples of an axis between the centers of others, as RESIZE has them.

    Args:
      scale: samples for each of the input, as a fraction.
      offset: the place of the first, in units of 1 / scale[0].
    """

    scale: tuple[int, int]
    offset: int

    @property
    def is_legal(self) -> bool:
        n, d = self.scale
        return n <= _LARGEST_N and max(n, d) < _LARGEST_RATIO * min(n, d)

    def of(self, x: np.ndarray, axis: int, size: int, mode: ResizeMode) -> np.ndarray:
        """So many samples of an array along an axis."""
        n, d = self.scale
        before, part = np.divmod(np.arange(size) * d + self.offset, n)
        low, high = (
            np.take(x, np.clip(at, 0, x.shape[axis] - 1), axis) for at in (before, before + 1)
        )
        along = [1] * x.ndim
        along[axis] = -1
        part = part.reshape(along)
        if mode is ResizeMode.NEAREST_NEIGHBOR:
            return np.where(2 * part >= n, high, low)
        return low + (high - low) * (part / n)


def resize(step: Step, jaxpr: core.ClosedJaxpr, x: Value) -> Value | None:
    """RESIZE along one or two axes; None where it computes something else, as cubic samples.

    A linear function of random numbers tells which mode it is, if any. NaN and infinities spread to
    their neighbours; of a product with a matrix, as JAX has it, along the whole axis.
    """
    if len(step.outs) != 1 or len(step.out.shape) != x.rank or not _is_linear(jaxpr):
        return None
    shape, wanted = x.shape, step.out.shape
    axes = [axis for axis in range(len(shape)) if shape[axis] != wanted[axis]]
    is_known = x.dtype == step.out.dtype and has_type(step, "RESIZE", x)
    if not (1 <= len(axes) <= 2 and is_known and max(shape + wanted) < _LARGEST_SIZE):
        return None
    samples = [_samples(shape[axis], wanted[axis]) for axis in axes]
    if not all(each.is_legal for each in samples):
        return None
    mode = _mode(jaxpr, shape, x.dtype, dict(zip(axes, samples, strict=True)))
    return None if mode is None else _resized(step, x, axes, samples, mode)


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


def _samples(size: int, wanted: int) -> _Samples:
    common = math.gcd(size, wanted)
    n, d = wanted // common, size // common
    if (d - n) % 2:  # centers lie at halves
        n, d = 2 * n, 2 * d
    return _Samples((n, d), (d - n) // 2)


def _mode(
    jaxpr: core.ClosedJaxpr, shape: Sequence[int], dtype: np.dtype, samples: dict[int, _Samples]
) -> ResizeMode | None:
    """The mode in which RESIZE computes a function."""
    x = np.random.default_rng(0).normal(size=shape)
    x = (x if jnp.issubdtype(dtype, jnp.floating) else x * 20).astype(dtype)
    (found,) = (np.asarray(y, np.float64) for y in known_results(jaxpr, [x]))
    for mode in ResizeMode:
        y = x.astype(np.float64)
        for axis, own in samples.items():
            y = own.of(y, axis, found.shape[axis], mode)
        off = np.abs(y - found).max(initial=0)
        is_nearest = mode is ResizeMode.NEAREST_NEIGHBOR
        if off == 0 if is_nearest else off < _NEAR and dtype == np.float32:
            return mode
    return None


def _resized(
    step: Step, x: Value, axes: Sequence[int], samples: Sequence[_Samples], mode: ResizeMode
) -> Value:
    """RESIZE of images [N, rows, columns, C]: C is the last axis, if that keeps its size."""
    shape, wanted = x.shape, step.out.shape
    others = [axis for axis in range(len(shape)) if axis not in axes]
    split = len(others) - 1 if others and others[-1] == len(shape) - 1 else len(others[:1])
    order = (*others[:split], *axes, *others[split:])
    batch, channels = (
        math.prod(shape[axis] for axis in part) for part in (others[:split], others[split:])
    )

    def sizes(of: Sequence[int]) -> list[int]:
        rows, columns = [of[axis] for axis in axes] + [1] * (2 - len(axes))
        return [batch, rows, columns, channels]

    rows, columns = (*samples, _Samples((1, 1), 0))[:2]
    images = step.jax(lambda v: jnp.transpose(v, order).reshape(sizes(shape)), x)
    resized = step.op(
        "RESIZE",
        images,
        (*rows.scale, *columns.scale),
        (rows.offset, columns.offset),
        (-rows.offset, -columns.offset),
        mode=mode,
        dtype=x.dtype,
    )
    moved = [wanted[axis] for axis in order]
    back = np.argsort(order).tolist()
    return step.jax(lambda v: jnp.transpose(v.reshape(moved), back), resized)
