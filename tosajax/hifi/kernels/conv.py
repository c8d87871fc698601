"""Convolutions of one image ("Convolution Kernels", guide 3.2).

Images are cubes: DWH is [height, width, channels], WHD [channels, height, width]. Images are padded
with the element that represents 0: by `padding` at the top and the left, and at the bottom and the
right as `out_size` requires; a small `out_size` crops. Sums are rescaled to outputs as in
`matxvec`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tosajax import ops
from tosajax.dtypes import DType
from tosajax.fixedpoint import _x64
from tosajax.hifi.kernels import _narrow
from tosajax.hifi.kernels._check import (
    check,
    check_array,
    check_in,
    check_multiple,
    integer,
    pairs,
)
from tosajax.hifi.kernels._geometry import FORMATS, Geometry, check_window, geometry_of
from tosajax.hifi.kernels._narrow import Wide
from tosajax.hifi.kernels._precision import (
    PRECISIONS,
    Array,
    Quant,
    Shift,
    check_outputs,
)
from tosajax.hifi.kernels._sums import as_int8, dot, finish, zero_points
from tosajax.ops.recording import is_recording, recorded_as
from tosajax.report import UnsupportedError

CONV2D = ("16x16", "8x16", "8x8", "f32", "asym8uxasym8u", "per_chan_sym8sxasym8s")
CONV1D = ("16x16", "8x16", "8x8", "f32")
_ACC_TYPES = {np.int8: DType.INT32, np.int16: DType.INT48, np.float32: DType.FP32}


@recorded_as("hifi.kernels.conv2d_std")
def conv2d_std(
    inp: Array,
    ker: Array,
    bias: Array,
    *,
    precision: str = "16x16",
    strides: Sequence[int] = (1, 1),
    padding: Sequence[int] = (0, 0),
    out_size: Sequence[int],
    acc_shift: Shift = 0,
    bias_shift: Shift = 0,
    quant: Quant | None = None,
    out_format: str = "DWH",
) -> jax.Array:
    """Convolves over height and width (xa_nn_conv2d_std_*, guide 3.2.1).

    Args:
      inp: the input type of `precision`, [height, width, channels].
      ker: the kernel type, [out_channels, kernel_height, kernel_width, channels].
      bias: [out_channels]; int16 for 16-bit inputs, int8 for 8-bit inputs, int32 quantized, or
        float32.
      precision: kernel x input, one of CONV2D; per_chan_* has a scale for each output channel.
      strides: y, x; elements. In fixed point the x stride is at most kernel_width.
      padding: top, left; elements.
      out_size: height and width of the output.
      acc_shift: shift of the sum, bits in [-31, 31], positive to the left; fixed point only.
      bias_shift: shift of the bias, bits in [-31, 31], positive to the left; fixed point only.
      quant: for quantized precisions.
      out_format: the format of the output.

    Returns:
      The input type, [out_height, out_width, out_channels], or channels first by `out_format`.

    Raises:
      NNLibParamError: the library rejects a parameter.
      TypeError: an argument has the wrong type.

    Example:
      >>> import numpy as np
      >>> from tosajax.hifi import kernels
      >>> x, ker = np.arange(9, dtype=np.int16).reshape(3, 3, 1), np.ones((1, 2, 2, 1), np.int16)
      >>> kernels.conv2d_std(x, ker, np.int16([10]), out_size=(2, 2))[:, :, 0].tolist()
      [[18, 22], [30, 34]]
    """
    name = f"conv2d_std {precision}"
    check_in(name, "precision", precision, CONV2D)
    check_in(name, "out_data_format", out_format, FORMATS)
    window = pairs(name, strides=strides, padding=padding, out_size=out_size)
    types = PRECISIONS[precision]
    check_array(name, "p_inp", inp, types.input, (-1, -1, -1))
    check_array(name, "p_ker", ker, types.weight, (-1, -1, -1, inp.shape[2]))
    out_channels, *kernel, _ = ker.shape
    check_window(name, inp.shape[:2], kernel, *window)
    if not (types.is_quantized or types.is_float):
        _check_stride(name, "x", window[0][1], kernel[1])
    check_outputs(name, precision, bias, out_channels, acc_shift, bias_shift, quant)
    geometry = geometry_of(inp.shape[:2], kernel, *window)
    acc = _convolve(inp, ker, quant, geometry)
    return _to_format(finish(acc, bias, types, acc_shift, bias_shift, quant), out_format)


def conv1d_std(
    inp: Array,
    ker: Array,
    bias: Array,
    *,
    precision: str = "16x16",
    stride: int = 1,
    padding: int = 0,
    out_height: int,
    acc_shift: Shift = 0,
    bias_shift: Shift = 0,
    out_format: str = "DWH",
) -> jax.Array:
    """Convolves over height with kernels as wide as the image (xa_nn_conv1d_std_*, guide 3.2.2).

    Args:
      inp: the input type of `precision`, [height, width, channels].
      ker: the kernel type, [out_channels, kernel_height, width, channels].
      bias: [out_channels]; int16 for 16-bit inputs, int8 for 8-bit inputs, or float32.
      precision: kernel x input, one of CONV1D.
      stride: elements, at most kernel_height.
      padding: at the top; elements.
      out_height: height of the output.
      acc_shift: shift of the sum, bits in [-31, 31], positive to the left; fixed point only.
      bias_shift: shift of the bias, bits in [-31, 31], positive to the left; fixed point only.
      out_format: "DWH" for [out_height, out_channels], "WHD" for [out_channels, out_height].

    Returns:
      The input type, in the order of `out_format`.

    Raises:
      NNLibParamError: the library rejects a parameter.
      TypeError: an argument has the wrong type.

    Example:
      >>> import numpy as np
      >>> from tosajax.hifi import kernels
      >>> x, ker = np.int16([1, 2, 3, 4]).reshape(2, 2, 1), np.ones((1, 1, 2, 1), np.int16)
      >>> kernels.conv1d_std(x, ker, np.int16([10]), out_height=2).tolist()
      [[13], [17]]
    """
    name = f"conv1d_std {precision}"
    check_in(name, "precision", precision, CONV1D)
    check_in(name, "out_data_format", out_format, FORMATS)
    window = (
        (integer(name, "stride", stride), 1),
        (integer(name, "padding", padding), 0),
        (integer(name, "out_height", out_height), 1),
    )
    types = PRECISIONS[precision]
    check_array(name, "p_inp", inp, types.input, (-1, -1, -1))
    height, width, channels = inp.shape
    check_array(name, "p_ker", ker, types.weight, (-1, -1, width, channels))
    out_channels, kernel_height = ker.shape[:2]
    kernel = kernel_height, 1
    check_window(name, (height, 1), kernel, *window)
    _check_stride(name, "y", window[0][0], kernel_height)
    check_outputs(name, precision, bias, out_channels, acc_shift, bias_shift, None)
    geometry = geometry_of((height, 1), kernel, *window)
    rows = inp.reshape(height, 1, width * channels)
    acc = _convolve(rows, ker.reshape(out_channels, kernel_height, 1, -1), None, geometry)
    out = finish(acc, bias, types, acc_shift, bias_shift, None)
    return _to_format(out[:, 0], out_format)


@recorded_as("hifi.kernels.conv2d_depthwise")
def conv2d_depthwise(
    inp: Array,
    ker: Array,
    bias: Array,
    *,
    precision: str = "16x16",
    strides: Sequence[int] = (1, 1),
    padding: Sequence[int] = (0, 0),
    out_size: Sequence[int],
    acc_shift: Shift = 0,
    bias_shift: Shift = 0,
    quant: Quant | None = None,
    inp_format: str = "DWH",
) -> jax.Array:
    """Convolves each channel separately with M kernels (xa_nn_conv2d_depthwise_*, guide 3.2.3.1).

    Args:
      inp: the input type of `precision`, [height, width, channels], or for WHD
        [channels, height, width].
      ker: the kernel type, [kernel_height, kernel_width, channels * M], or for WHD
        [channels * M, kernel_height, kernel_width]. The kernels of channel d start at d * M.
      bias: [channels * M]; int16 for 16-bit inputs, int8 for 8-bit inputs, int32 quantized, or
        float32.
      precision: kernel x input, one of CONV2D; per_chan_* has a scale for each output channel.
      strides: y, x; elements, at most kernel_height and kernel_width.
      padding: top, left; elements.
      out_size: height and width of the output.
      acc_shift: shift of the sum, bits in [-31, 31], positive to the left; fixed point only.
      bias_shift: shift of the bias, bits in [-31, 31], positive to the left; fixed point only.
      quant: for quantized precisions.
      inp_format: the format of the input and the kernel.

    Returns:
      The input type, [out_height, out_width, channels * M].

    Raises:
      NNLibParamError: the library rejects a parameter.
      TypeError: an argument has the wrong type.

    Example:
      >>> import numpy as np
      >>> from tosajax.hifi import kernels
      >>> x, ker = np.int16([1, 2, 3, 4]).reshape(1, 2, 2), np.ones((1, 2, 2), np.int16)
      >>> kernels.conv2d_depthwise(x, ker, np.int16([10, 20]), out_size=(1, 1)).tolist()
      [[[14, 26]]]
    """
    name = f"conv2d_depthwise {precision}"
    check_in(name, "precision", precision, CONV2D)
    check_in(name, "inp_data_format", inp_format, FORMATS)
    window = pairs(name, strides=strides, padding=padding, out_size=out_size)
    types = PRECISIONS[precision]
    check_array(name, "p_inp", inp, types.input, (-1, -1, -1))
    check_array(name, "p_ker", ker, types.weight, (-1, -1, -1))
    if inp_format == "WHD":
        inp, ker = inp.transpose(1, 2, 0), ker.transpose(1, 2, 0)
    channels, (*kernel, out_channels) = inp.shape[2], ker.shape
    check_multiple(name, "channels of ker", out_channels, channels)
    check_window(name, inp.shape[:2], kernel, *window)
    for axis, step, length in zip("yx", window[0], kernel, strict=True):
        _check_stride(name, axis, step, length)
    check_outputs(name, precision, bias, out_channels, acc_shift, bias_shift, quant)
    geometry = geometry_of(inp.shape[:2], kernel, *window)
    acc = _convolve_depthwise(inp, ker.reshape(*kernel, channels, -1), quant, geometry)
    return finish(acc, bias, types, acc_shift, bias_shift, quant)


@recorded_as("hifi.kernels.conv2d_pointwise")
def conv2d_pointwise(
    inp: Array,
    ker: Array,
    bias: Array,
    *,
    precision: str = "16x16",
    acc_shift: Shift = 0,
    bias_shift: Shift = 0,
    quant: Quant | None = None,
    out_format: str = "WHD",
) -> jax.Array:
    """Multiplies the channels of each pixel by a matrix (xa_nn_conv2d_pointwise_*, 3.2.3.2).

    Args:
      inp: the input type of `precision`, [height, width, channels]; channels is a multiple of 4
        for 16x16, 8x16 and f32.
      ker: the kernel type, [out_channels, channels].
      bias: [out_channels]; int16 for 16-bit inputs, int8 for 8-bit inputs, int32 quantized, or
        float32.
      precision: kernel x input, one of CONV2D; per_chan_* has a scale for each output channel.
      acc_shift: shift of the sum, bits in [-31, 31], positive to the left; fixed point only.
      bias_shift: shift of the bias, bits in [-31, 31], positive to the left; fixed point only.
      quant: for quantized precisions.
      out_format: the format of the output; WHD for 16x16, 8x16 and f32.

    Returns:
      The input type, [out_channels, height, width], or channels last by `out_format`.

    Raises:
      NNLibParamError: the library rejects a parameter.
      TypeError: an argument has the wrong type.

    Example:
      >>> import numpy as np
      >>> from tosajax.hifi import kernels
      >>> x, ker = np.int16([1, 2, 3, 4]).reshape(1, 1, 4), np.ones((1, 4), np.int16)
      >>> kernels.conv2d_pointwise(x, ker, np.int16([10])).tolist()
      [[[20]]]
    """
    name = f"conv2d_pointwise {precision}"
    check_in(name, "precision", precision, CONV2D)
    types = PRECISIONS[precision]
    by_four = types.input is np.int16 or types.is_float
    check_in(name, "out_data_format", out_format, FORMATS[1:] if by_four else FORMATS)
    check_array(name, "p_inp", inp, types.input, (-1, -1, -1))
    height, width, channels = inp.shape
    check_multiple(name, "input_channels", channels, 4 if by_four else 1)
    check_array(name, "p_ker", ker, types.weight, (-1, channels))
    check_outputs(name, precision, bias, ker.shape[0], acc_shift, bias_shift, quant)
    acc = dot(ker, inp.reshape(height * width, channels), quant)
    out = finish(acc, bias, types, acc_shift, bias_shift, quant)
    return _to_format(out.reshape(height, width, -1), out_format)


def _check_stride(name: str, axis: str, stride: int, kernel: int) -> None:
    wanted = f"at most the kernel's length, {kernel}"
    check(stride <= kernel, name, f"{axis}_stride", stride, wanted)


def _convolve(inp: Array, ker: Array, quant: Quant | None, geometry: Geometry) -> jax.Array | Wide:
    """Sums products over windows, [OH, OW, OC]; int32, int64 for int16, or float32.

    While calls are recorded, `Wide` for int16.
    """
    if inp.dtype == np.int16 and is_recording():
        count = ker[0].size
        return _products(inp, ker, count, geometry, ops.conv2d)
    if ker.dtype == np.int16:
        return _convolve_int16(inp, ker, geometry)
    return ops.conv2d(**_operands(inp, ker, quant, geometry))[0]


def _convolve_int16(inp: Array, ker: Array, geometry: Geometry) -> jax.Array:
    """Convolves int16 with int16, as one convolution of int16 with the kernel's bytes in int8.

    A weight is 256 * high + low + 128, with int8 high and low. An additional kernel of ones sums
    each window, for the term 128. Sums of n products with a byte are at most n * 2**22, and exact
    in int64; so is the total, at most n * 2**31, for any n that fits memory.
    """
    out_channels = ker.shape[0]
    xp: Any = np if isinstance(ker, np.ndarray) else jnp
    high, low = (ker >> np.int16(8)).astype(np.int8), (ker & np.int16(0xFF)) - np.int16(128)
    parts = xp.concatenate([high, low.astype(np.int8), xp.ones_like(high[:1])])
    sums: Any = _convolve(inp, parts, None, geometry)
    with _x64.scope():
        high, low = sums[..., :out_channels], sums[..., out_channels:-1]
        return high * np.int64(256) + low + sums[..., -1:] * np.int64(128)


def _convolve_depthwise(
    inp: Array, ker: Array, quant: Quant | None, geometry: Geometry
) -> jax.Array | Wide:
    """Sums products over windows of each channel, [OH, OW, C * M]; see `_convolve` for types."""
    if inp.dtype == np.int16 and is_recording():
        count = ker[:, :, 0, 0].size
        return _products(inp, ker, count, geometry, ops.depthwise_conv2d)
    if ker.dtype == np.int16:
        return _convolve_depthwise_int16(inp, ker, geometry)
    return ops.depthwise_conv2d(**_operands(inp, ker, quant, geometry))[0]


def _convolve_depthwise_int16(inp: Array, ker: Array, geometry: Geometry) -> jax.Array:
    """Convolves int16 with int16, as a convolution with 2 * M kernels: high bytes, then low bytes.

    A weight is 256 * high + low, with low in [0, 255]: no wider than int8 less a zero point,
    which DEPTHWISE_CONV2D sums exactly.
    """
    xp: Any = np if isinstance(ker, np.ndarray) else jnp
    parts = xp.concatenate([ker >> np.int16(8), ker & np.int16(0xFF)], axis=-1)
    sums = ops.depthwise_conv2d(**_operands(inp, parts, None, geometry))[0]
    height, width, _ = sums.shape
    with _x64.scope():
        split = sums.reshape(height, width, ker.shape[2], 2, ker.shape[3])
        total = split[..., 0, :] * np.int64(256) + split[..., 1, :]
        return total.reshape(height, width, -1)


def _products(
    inp: Array,
    ker: Array,
    count: int,
    geometry: Geometry,
    convolution: Callable[..., jax.Array],
) -> Wide:
    """Convolves an int16 image, with sums of `count` products, by convolutions of bytes."""

    def sums(inp: Array, ker: Array, input_zp: int, weight_zp: int) -> jax.Array:
        zero_points = np.asarray([input_zp], np.int8), np.asarray([weight_zp], np.int8)
        return convolution(**_window(inp, ker, *zero_points, geometry))[0]

    return _narrow.products(inp, ker, count, sums)


def _operands(inp: Array, ker: Array, quant: Quant | None, geometry: Geometry) -> dict[str, Any]:
    """The operands of CONV2D and DEPTHWISE_CONV2D for an image and a kernel, without a bias."""
    return _window(as_int8(inp), as_int8(ker), *zero_points(ker, inp, quant), geometry)


def _window(
    inp: Array, weight: Array, input_zp: Array, weight_zp: Array, geometry: Geometry
) -> dict[str, Any]:
    """The operands of CONV2D and DEPTHWISE_CONV2D, given zero points."""
    image, pad = _cropped(inp, geometry.pad) if is_recording() else (inp, geometry.pad)
    acc_type = _ACC_TYPES[image.dtype.type]
    return {
        "input": jnp.asarray(image)[None],
        "weight": weight,
        "bias": np.zeros(1, acc_type.storage),
        "input_zp": input_zp,
        "weight_zp": weight_zp,
        "pad": pad,
        "stride": geometry.strides,
        "dilation": (1, 1),
        "acc_type": acc_type,
    }


def _cropped(image: Array, pad: Sequence[int]) -> tuple[Array, tuple[int, ...]]:
    """Crops the rows and columns that no window reads; returns the image and nonnegative padding.

    The functions of `tosajax.ops` crop with negative padding, which TOSA does not have.
    """
    top, bottom, left, right = pad
    height, width = image.shape[0] + min(bottom, 0), image.shape[1] + min(right, 0)
    if height < 1 or width < 1:
        raise UnsupportedError(f"no window reads the image {list(image.shape)}")
    return image[:height, :width], (top, max(bottom, 0), left, max(right, 0))


def _to_format(out: jax.Array, out_format: str) -> jax.Array:
    """Converts [..., channels] to a format: unchanged for DWH, channels first for WHD."""
    if out_format == "DWH":
        return out
    return lax.transpose(out, (out.ndim - 1, *range(out.ndim - 1)))
