"""Pooling of one image ("Pooling Kernels", guide 3.4).

Images are cubes: DWH is [height, width, channels], WHD [channels, height, width]; the result has
the same format. `padding` applies to the top and the left; at the bottom and the right an image is
extended, or cropped, to the end of the last window of `out_size`.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tosajax import ops
from tosajax.fixedpoint import qformat
from tosajax.hifi.kernels import _q31
from tosajax.hifi.kernels._check import check, check_array, check_in, pairs
from tosajax.hifi.kernels._geometry import FORMATS, check_window, geometry_of
from tosajax.hifi.kernels._precision import Array
from tosajax.ops import _window
from tosajax.ops.pool import sweep
from tosajax.ops.recording import recorded_as

POOL = ("8", "16", "f32", "asym8u")

_DTYPE = {"8": np.int8, "16": np.int16, "f32": np.float32, "asym8u": np.uint8}
# The largest height and width of windows of integers.
_LONGEST = 256


def avgpool(
    inp: Array,
    *,
    precision: str = "8",
    kernel: Sequence[int],
    strides: Sequence[int] = (1, 1),
    padding: Sequence[int] = (0, 0),
    out_size: Sequence[int],
    data_format: str = "DWH",
) -> jax.Array:
    """Averages the image elements in each window (xa_nn_avgpool_*, guide 3.4.1).

    Integer sums are multiplied by a Q31 reciprocal with 24 significant bits, and rounded half away
    from zero. Windows outside the image give 0.

    Args:
      inp: int8, int16, float32 or uint8, by `precision`; [height, width, channels], or
        channels first by `data_format`.
      precision: one of POOL.
      kernel: height and width of the window, at most the image's, and at most 256 for integers.
      strides: y, x; elements.
      padding: top, left; elements.
      out_size: height and width of the output.
      data_format: the format of the image and of the output.

    Returns:
      The type of `inp`, [out_height, out_width, channels], or channels first by `data_format`.

    Raises:
      NNLibParamError: the library rejects a parameter.
      TypeError: an argument has the wrong type.

    Example:
      >>> import numpy as np
      >>> from tosajax.hifi import kernels
      >>> x = np.int8([1, 3, 5, 8]).reshape(1, 4, 1)
      >>> kernels.avgpool(x, kernel=(1, 2), strides=(1, 2), out_size=(1, 2)).tolist()
      [[[2], [7]]]
    """
    name = f"avgpool {precision}"
    image = _image(name, inp, precision, data_format)
    window = pairs(name, kernel=kernel, strides=strides, padding=padding, out_size=out_size)
    longest = image.shape[1:3]
    if precision != "f32":
        longest = [min(length, _LONGEST) for length in longest]
    shape = _window_of(name, image, longest, *window)
    rows, columns = _extents(shape, image.shape)
    if precision == "f32":
        total = sweep(image, shape, 0, lax.add, jnp.float32)
        # The sum is 0 where the count is 0.
        count = np.maximum(rows[:, None] * columns, 1)
        result = total / jnp.asarray(count[None, ..., None], jnp.float32)
    else:
        total = sweep(image, shape, 0, lax.add, jnp.int32)
        share = jnp.asarray(_reciprocals(rows, columns)[None, ..., None])
        result = qformat.saturate_to(_q31.multiply_half_away(total, share), inp.dtype)
    return _cube(result, data_format)


@recorded_as("hifi.kernels.maxpool")
def maxpool(
    inp: Array,
    *,
    precision: str = "8",
    kernel: Sequence[int],
    strides: Sequence[int] = (1, 1),
    padding: Sequence[int] = (0, 0),
    out_size: Sequence[int],
    data_format: str = "DWH",
) -> jax.Array:
    """Takes the maximum of windows (xa_nn_maxpool_*, guide 3.4.2), as MAX_POOL2D of TOSA does.

    Windows outside the image give the minimum of the type, for floats minus infinity.

    Args:
      inp: int8, int16, float32 or uint8, by `precision`; [height, width, channels], or
        channels first by `data_format`.
      precision: one of POOL.
      kernel: height and width of the window. The guide limits them to the image's; the library
        does not.
      strides: y, x; elements.
      padding: top, left; elements.
      out_size: height and width of the output.
      data_format: the format of the image and of the output.

    Returns:
      The type of `inp`, [out_height, out_width, channels], or channels first by `data_format`.

    Raises:
      NNLibParamError: the library rejects a parameter.
      TypeError: an argument has the wrong type.

    Example:
      >>> import numpy as np
      >>> from tosajax.hifi import kernels
      >>> x = np.int8([1, 3, 5, 8]).reshape(1, 4, 1)
      >>> kernels.maxpool(x, kernel=(1, 2), strides=(1, 2), out_size=(1, 2)).tolist()
      [[[3], [8]]]
    """
    name = f"maxpool {precision}"
    image = _image(name, inp, precision, data_format)
    window = pairs(name, kernel=kernel, strides=strides, padding=padding, out_size=out_size)
    shape = _window_of(name, image, window[0], *window)
    pad = [length for pair in shape.pad for length in pair]
    result = ops.max_pool2d(image, kernel=shape.size, stride=shape.stride, pad=pad)
    return _cube(result, data_format)


def _image(name: str, inp: Array, precision: str, data_format: str) -> jax.Array:
    """Reshapes a cube to [N, H, W, C]; for WHD, planes become images of one channel."""
    check_in(name, "precision", precision, POOL)
    check_in(name, "inp_data_format", data_format, FORMATS)
    check_array(name, "p_inp", inp, _DTYPE[precision], (-1, -1, -1))
    inp = jnp.asarray(inp)
    return inp[None] if data_format == "DWH" else inp[..., None]


def _cube(image: jax.Array, data_format: str) -> jax.Array:
    """Reshapes to a cube, the inverse of `_image`."""
    return image[0] if data_format == "DWH" else image[..., 0]


def _window_of(
    name: str,
    image: jax.Array,
    longest: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    padding: Sequence[int],
    out_size: Sequence[int],
) -> _window.Window:
    for length, axis in zip(kernel, ("height", "width"), strict=True):
        check(length >= 1, name, f"kernel_{axis}", length, "at least 1")
    check_window(name, longest, kernel, strides, padding, out_size)
    geometry = geometry_of(image.shape[1:3], kernel, strides, padding, out_size)
    return _window.window(kernel, geometry.strides, (1, 1), geometry.pad)


def _extents(shape: _window.Window, lengths: Sequence[int]) -> list[np.ndarray]:
    """The numbers of image rows [OH], and of image columns [OW], that windows cover."""
    extents = []
    for length, n, size, stride, (low, _) in zip(
        lengths[1:3], shape.out(lengths), shape.size, shape.stride, shape.pad, strict=True
    ):
        first = np.arange(n) * stride - low
        within = np.minimum(first + size, length) - np.maximum(first, 0)
        extents.append(np.maximum(within, 0))
    return extents


def _reciprocals(rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Computes 1 / (rows * columns) in Q31 as int32, 0 where either is 0; [OH, OW]."""
    table = np.zeros(_LONGEST + 1, np.uint64)
    counts = np.arange(1, _LONGEST + 1, dtype=np.float32)
    # Quotients are rounded to float32; the results are integers.
    table[1:] = (np.float32(2**31) / counts).astype(np.uint64)
    share = (table[rows][:, None] * table[columns]) >> np.uint64(31)
    return np.minimum(share, np.uint64(2**31 - 1)).astype(np.int32)
