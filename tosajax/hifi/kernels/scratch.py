"""Sizes of scratch memory, for programs that allocate it as the library requires.

tosajax does not use scratch memory. `conv1d_std_getsize` returns the library's number; all others
return bounds: 4 bytes for each element that a kernel reads, including padding.
"""

from __future__ import annotations

from collections.abc import Collection

from tosajax.hifi.kernels._check import check, check_integers
from tosajax.hifi.kernels._padding import padded, round_up

# Bytes of an element by precision: bits, or -1 for float32, -3 for asym8u, -4 for asym8s.
_BYTES = {8: 1, 16: 2, -1: 4, -3: 1, -4: 1}
_ALIGNMENT = 16


def conv1d_std_getsize(
    kernel_height: int, input_width: int, input_channels: int, input_precision: int
) -> int:
    """The bytes of scratch memory that conv1d_std needs (xa_nn_conv1d_std_getsize, guide 3.2.2).

    Args:
      kernel_height: elements.
      input_width: elements.
      input_channels: elements.
      input_precision: 8, 16, or -1 for float32.

    Returns:
      Bytes, the library's number.

    Raises:
      TypeError: an argument is not an integer.
      NNLibParamError: the precision is unknown.

    Example:
      >>> from tosajax.hifi import kernels
      >>> kernels.conv1d_std_getsize(3, 8, 4, 16)
      227
    """
    check_integers("conv1d_std_getsize", locals())
    _check_precision("conv1d_std_getsize", "input_precision", input_precision, (8, 16, -1))
    row = padded(input_width * input_channels, is_float=input_precision == -1)
    return 19 + kernel_height * row * _BYTES[input_precision] + _ALIGNMENT


def conv2d_std_getsize(
    input_height: int,
    input_channels: int,
    kernel_height: int,
    kernel_width: int,
    y_stride: int,
    y_padding: int,
    out_height: int,
    input_precision: int,
) -> int:
    """The bytes for the columns under a kernel (xa_nn_conv2d_std_getsize, guide 3.2.1).

    Args:
      input_height: elements.
      input_channels: elements.
      kernel_height: elements.
      kernel_width: elements.
      y_stride: elements.
      y_padding: elements.
      out_height: elements.
      input_precision: 8, 16, -1 for float32, -3 for asym8u or -4 for asym8s.

    Returns:
      Bytes, a bound.

    Raises:
      TypeError: an argument is not an integer.
      NNLibParamError: the precision is unknown.

    Example:
      >>> from tosajax.hifi import kernels
      >>> kernels.conv2d_std_getsize(8, 4, 3, 3, 1, 1, 8, 16)
      496
    """
    check_integers("conv2d_std_getsize", locals())
    _check_precision("conv2d_std_getsize", "input_precision", input_precision, _BYTES)
    height = extent(input_height, kernel_height, y_stride, y_padding, out_height)
    return _bound(height * kernel_width * round_up(input_channels, 4))


def conv2d_depthwise_getsize(
    input_height: int,
    input_width: int,
    input_channels: int,
    kernel_height: int,
    kernel_width: int,
    channels_multiplier: int,
    x_stride: int,
    y_stride: int,
    x_padding: int,
    y_padding: int,
    output_height: int,
    output_width: int,
    circ_buf_precision: int,
    inp_data_format: int,
) -> int:
    """The bytes for the image and the kernel (xa_nn_conv2d_depthwise_getsize, guide 3.2.3.1).

    Args:
      input_height: elements.
      input_width: elements.
      input_channels: elements.
      kernel_height: elements.
      kernel_width: elements.
      channels_multiplier: kernels for each channel.
      x_stride: elements.
      y_stride: elements.
      x_padding: elements.
      y_padding: elements.
      output_height: elements.
      output_width: elements.
      circ_buf_precision: 8, 16, -1 for float32, -3 for asym8u or -4 for asym8s.
      inp_data_format: 0 for DWH, 1 for WHD.

    Returns:
      Bytes, a bound.

    Raises:
      TypeError: an argument is not an integer.
      NNLibParamError: the precision or format is unknown.

    Example:
      >>> from tosajax.hifi import kernels
      >>> kernels.conv2d_depthwise_getsize(8, 8, 4, 3, 3, 1, 1, 1, 1, 1, 8, 8, 16, 0)
      2128
    """
    check_integers("conv2d_depthwise_getsize", locals())
    name = "conv2d_depthwise_getsize"
    _check_precision(name, "circ_buf_precision", circ_buf_precision, _BYTES)
    check(inp_data_format in (0, 1), name, "inp_data_format", inp_data_format, "0 or 1")
    height = extent(input_height, kernel_height, y_stride, y_padding, output_height)
    width = extent(input_width, kernel_width, x_stride, x_padding, output_width)
    kernel = kernel_height * round_up(kernel_width, 4) * channels_multiplier
    return _bound((height * round_up(width, 4) + kernel) * round_up(input_channels, 4))


def pool_getsize(
    input_channels: int,
    inp_precision: int,
    out_precision: int,
    input_height: int,
    input_width: int,
    kernel_height: int,
    kernel_width: int,
    x_stride: int,
    y_stride: int,
    x_padding: int,
    y_padding: int,
    out_height: int,
    out_width: int,
    inp_data_format: int,
    out_data_format: int,
) -> int:
    """The bytes for an image (xa_nn_avgpool_getsize and xa_nn_maxpool_getsize, guide 3.4).

    Args:
      input_channels: elements.
      inp_precision: 8, 16, -1 for float32 or -3 for asym8u.
      out_precision: equal to inp_precision.
      input_height: elements.
      input_width: elements.
      kernel_height: elements.
      kernel_width: elements.
      x_stride: elements.
      y_stride: elements.
      x_padding: elements.
      y_padding: elements.
      out_height: elements.
      out_width: elements.
      inp_data_format: 0 for DWH, 1 for WHD.
      out_data_format: equal to inp_data_format.

    Returns:
      Bytes, a bound.

    Raises:
      TypeError: an argument is not an integer.
      NNLibParamError: a precision or format is unknown, or differs between input and output.

    Example:
      >>> from tosajax.hifi import kernels
      >>> kernels.pool_getsize(4, 8, 8, 8, 8, 2, 2, 2, 2, 0, 0, 4, 4, 0, 0)
      1040
    """
    check_integers("pool_getsize", locals())
    name = "pool_getsize"
    _check_precision(name, "inp_precision", inp_precision, (8, 16, -1, -3))
    _check_precision(name, "out_precision", out_precision, (inp_precision,))
    check(inp_data_format in (0, 1), name, "inp_data_format", inp_data_format, "0 or 1")
    same = out_data_format == inp_data_format
    check(same, name, "out_data_format", out_data_format, f"that of the input, {inp_data_format}")
    height = extent(input_height, kernel_height, y_stride, y_padding, out_height)
    width = extent(input_width, kernel_width, x_stride, x_padding, out_width)
    return _bound(height * round_up(width, 4) * round_up(input_channels, 4))


def extent(length: int, kernel: int, stride: int, padding: int, out: int) -> int:
    """The length of an axis with its padding, up to the end of the last window."""
    return max(padding + length, kernel + (out - 1) * stride)


def _check_precision(name: str, argument: str, value: int, precisions: Collection[int]) -> None:
    check(value in precisions, name, argument, value, f"one of {', '.join(map(str, precisions))}")


def _bound(elements: int) -> int:
    return 4 * elements + _ALIGNMENT
