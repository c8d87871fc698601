"""Resampling of images (TOSA 1.0.1, "Image Operators")."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tosajax.dtypes import DType
from tosajax.fixedpoint import _x64
from tosajax.ops.recording import recorded
from tosajax.spec.enums import ResizeMode


@recorded
def resize(
    input: jax.Array,
    scale: tuple[int, int, int, int],
    offset: tuple[int, int],
    border: tuple[int, int],
    *,
    mode: ResizeMode,
    out_type: DType,
) -> jax.Array:
    """Samples an image on another grid, nearest or bilinear (TOSA 1.0.1, "RESIZE").

    Args:
      input: int8, int16, float32, float16 or bfloat16; (N, IH, IW, C).
      scale: static, output samples per input sample as fractions:
        (scale_y_n, scale_y_d, scale_x_n, scale_x_d).
      offset: static, (offset_y, offset_x), position of the first output sample in 1/scale_n.
      border: static, (border_y, border_x), how far the last one lies beyond the input.
      mode: NEAREST_NEIGHBOR or BILINEAR.
      out_type: the type of `input`; for bilinear integers INT32 of int8 and INT48 of int16.

    Returns:
      `out_type`, (N, OH, OW, C); bilinear integers are scaled by scale_y_n * scale_x_n.

    Example:
      >>> import jax.numpy as jnp
      >>> import tosajax
      >>> from tosajax.spec import ResizeMode
      >>> y = tosajax.ops.resize(
      ...     jnp.int8([10, 20]).reshape(1, 1, 2, 1), (1, 1, 2, 1), (0, 0), (0, 0),
      ...     mode=ResizeMode.BILINEAR, out_type=tosajax.DType.INT32,
      ... )
      >>> y[0, 0, :, 0].tolist()
      [20, 30, 40]
    """
    _, height, width, _ = input.shape
    rows = samples_of(height, scale[0], scale[1], offset[0], border[0])
    columns = samples_of(width, scale[2], scale[3], offset[1], border[1])
    if mode == ResizeMode.NEAREST_NEIGHBOR:
        return _take(_take(input, rows.nearest, 1), columns.nearest, 2)
    if not out_type.is_float:
        # At most 15 + 11 bits along a row; then, along the columns, only int16 needs more than 32.
        across = _interpolate(input.astype(jnp.int32), columns, 2)
        if out_type is not DType.INT48:
            return _interpolate(across, rows, 1)
        with _x64.scope():
            return _interpolate(_x64.widen(across), rows, 1)
    across = _interpolate(input.astype(jnp.float32), columns, 2)
    return _interpolate(across, rows, 1).astype(out_type.storage)


class Samples(NamedTuple):
    """For each output index of an axis: two input indices and the fraction between, in 1/unit."""

    before: np.ndarray
    after: np.ndarray
    part: np.ndarray
    unit: int

    @property
    def nearest(self) -> np.ndarray:
        return np.where(2 * self.part >= self.unit, self.after, self.before)


def samples_of(size: int, unit: int, step: int, offset: int, border: int) -> Samples:
    """The samples of an axis of RESIZE.

    Args:
      size: length of the axis.
      unit: scale_n.
      step: scale_d.
      offset: position of the first sample, in 1 / unit.
      border: how far the last sample lies beyond the input.
    """
    count = ((size - 1) * unit - offset + border) // step + 1
    position = np.arange(count) * step + offset
    index, part = position // unit, position % unit
    before, after = (np.clip(i, 0, size - 1).astype(np.int32) for i in (index, index + 1))
    return Samples(before, after, part, unit)


def _take(value: jax.Array, indices: np.ndarray, axis: int) -> jax.Array:
    return jnp.take(value, jnp.asarray(indices, jnp.int32), axis, mode="clip")


def _interpolate(value: jax.Array, samples: Samples, axis: int) -> jax.Array:
    """Weights the two neighbours of each sample: integers by `part`, floats by `part / unit`."""
    unit = samples.unit if jnp.issubdtype(value.dtype, jnp.integer) else 1
    part = (samples.part * unit / samples.unit).astype(value.dtype)
    shape = [1] * value.ndim
    shape[axis] = part.size
    weight = lax.convert_element_type(part.reshape(shape), value.dtype)
    rest = lax.convert_element_type((unit - part).reshape(shape), value.dtype)
    before, after = (_take(value, i, axis) for i in (samples.before, samples.after))
    return before * rest + after * weight
