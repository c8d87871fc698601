"""Convolutions as TOSA graphs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tosajax.builder import Builder
from tosajax.graph import Tensor
from tosajax.hifi import kernels
from tosajax.hifi.kernels import Quant
from tosajax.hifi.kernels._geometry import Geometry, geometry_of
from tosajax.hifi.to_tosa._nodes import (
    check,
    convolve,
    image_of,
    reshape,
    shape_of,
)

_PER_CHANNEL = "per_chan_sym8sxasym8s"
# The supported precisions, and the operands that are constants.
_FORMS = (_PER_CHANNEL,), ("ker", "bias")


def conv2d_std(
    b: Builder,
    inp: Tensor,
    ker: np.ndarray,
    bias: np.ndarray,
    *,
    precision: str = _PER_CHANNEL,
    strides: Sequence[int] = (1, 1),
    padding: Sequence[int] = (0, 0),
    out_size: Sequence[int],
    quant: Quant,
    out_format: str = "DWH",
) -> Tensor:
    """Adds xa_nn_conv2d_std_per_chan_sym8sxasym8s, as CONV2D and RESCALE.

    Args:
      b: the Builder to which nodes are added.
      inp: INT8, [height, width, channels].
      ker: int8, [out_channels, kernel_height, kernel_width, channels].
      bias: int32, [out_channels].
      precision: "per_chan_sym8sxasym8s".
      strides: y, x; elements.
      padding: top, left; elements.
      out_size: height and width of the output.
      quant: see `kernels.Quant`; out_shift is at most 29.
      out_format: the format of the output.

    Returns:
      INT8, [out_height, out_width, out_channels], or channels first by `out_format`.

    Raises:
      NNLibParamError: the library rejects a parameter.
      TypeError: an argument has the wrong type.
      UnsupportedError: TOSA cannot express the call.

    Example:
      >>> import jax
      >>> import numpy as np
      >>> from tosajax.hifi import kernels, to_tosa
      >>> image = jax.ShapeDtypeStruct((5, 5, 4), np.int8)
      >>> ker, bias = np.ones((8, 3, 3, 4), np.int8), np.zeros(8, np.int32)
      >>> quant = kernels.Quant(0, 0, np.full(8, 2**30, np.int32), np.zeros(8, np.int32), 0)
      >>> to_tosa.to_graph(to_tosa.conv2d_std, image, ker, bias, out_size=(3, 3), quant=quant)
      Graph('main', (inp: INT8[5,5,4]) -> (reshape_14: INT8[3,3,8]), 14 nodes)
    """
    window = {"strides": strides, "padding": padding, "out_size": out_size}
    common = {"precision": precision, "quant": quant, "out_format": out_format}
    check(kernels.conv2d_std, *_FORMS, b, inp, ker, bias, **window, **common)
    geometry = geometry_of(shape_of(inp)[:2], ker.shape[1:3], **window)
    out = convolve(b, "CONV2D", image_of(b, inp), ker, bias, quant, geometry)
    return _to_format(b, out, out_format)


def conv2d_depthwise(
    b: Builder,
    inp: Tensor,
    ker: np.ndarray,
    bias: np.ndarray,
    *,
    precision: str = _PER_CHANNEL,
    strides: Sequence[int] = (1, 1),
    padding: Sequence[int] = (0, 0),
    out_size: Sequence[int],
    quant: Quant,
    inp_format: str = "DWH",
) -> Tensor:
    """Adds xa_nn_conv2d_depthwise_per_chan_sym8sxasym8s, as DEPTHWISE_CONV2D and RESCALE.

    Args:
      b: the Builder to which nodes are added.
      inp: INT8, [height, width, channels], or [channels, height, width] for WHD.
      ker: int8, [kernel_height, kernel_width, channels * M], or
        [channels * M, kernel_height, kernel_width] for WHD.
      bias: int32, [channels * M].
      precision: "per_chan_sym8sxasym8s".
      strides: y, x; elements, at most kernel_height and kernel_width.
      padding: top, left; elements.
      out_size: height and width of the output.
      quant: see `kernels.Quant`; out_shift is at most 29.
      inp_format: the format of the input and the kernel.

    Returns:
      INT8, [out_height, out_width, channels * M].

    Raises:
      NNLibParamError: the library rejects a parameter.
      TypeError: an argument has the wrong type.
      UnsupportedError: TOSA cannot express the call.

    Example:
      >>> import jax
      >>> import numpy as np
      >>> from tosajax.hifi import kernels, to_tosa
      >>> image = jax.ShapeDtypeStruct((5, 5, 4), np.int8)
      >>> ker, bias = np.ones((3, 3, 4), np.int8), np.zeros(4, np.int32)
      >>> quant = kernels.Quant(0, 0, np.full(4, 2**30, np.int32), np.zeros(4, np.int32), 0)
      >>> to_tosa.to_graph(to_tosa.conv2d_depthwise, image, ker, bias, out_size=(3, 3), quant=quant)
      Graph('main', (inp: INT8[5,5,4]) -> (reshape_14: INT8[3,3,4]), 14 nodes)
    """
    window = {"strides": strides, "padding": padding, "out_size": out_size}
    common = {"precision": precision, "quant": quant, "inp_format": inp_format}
    check(kernels.conv2d_depthwise, *_FORMS, b, inp, ker, bias, **window, **common)
    if inp_format == "WHD":
        inp, ker = b.op("TRANSPOSE", inp, perms=(1, 2, 0)), ker.transpose(1, 2, 0)
    height, width, channels = shape_of(inp)
    geometry = geometry_of((height, width), ker.shape[:2], **window)
    weight = ker.reshape(*ker.shape[:2], channels, -1)
    out = convolve(b, "DEPTHWISE_CONV2D", image_of(b, inp), weight, bias, quant, geometry)
    return _to_format(b, out, "DWH")


def conv2d_pointwise(
    b: Builder,
    inp: Tensor,
    ker: np.ndarray,
    bias: np.ndarray,
    *,
    precision: str = _PER_CHANNEL,
    quant: Quant,
    out_format: str = "WHD",
) -> Tensor:
    """Adds xa_nn_conv2d_pointwise_per_chan_sym8sxasym8s, as CONV2D and RESCALE.

    Args:
      b: the Builder to which nodes are added.
      inp: INT8, [height, width, channels].
      ker: int8, [out_channels, channels].
      bias: int32, [out_channels].
      precision: "per_chan_sym8sxasym8s".
      quant: see `kernels.Quant`; out_shift is at most 29.
      out_format: the format of the output.

    Returns:
      INT8, [out_channels, height, width], or channels last by `out_format`.

    Raises:
      NNLibParamError: the library rejects a parameter.
      TypeError: an argument has the wrong type.
      UnsupportedError: TOSA cannot express the call.

    Example:
      >>> import jax
      >>> import numpy as np
      >>> from tosajax.hifi import kernels, to_tosa
      >>> image = jax.ShapeDtypeStruct((5, 5, 4), np.int8)
      >>> ker, bias = np.ones((8, 4), np.int8), np.zeros(8, np.int32)
      >>> quant = kernels.Quant(0, 0, np.full(8, 2**30, np.int32), np.zeros(8, np.int32), 0)
      >>> to_tosa.to_graph(to_tosa.conv2d_pointwise, image, ker, bias, quant=quant)
      Graph('main', (inp: INT8[5,5,4]) -> (transpose_15: INT8[8,5,5]), 15 nodes)
    """
    common = {"precision": precision, "quant": quant, "out_format": out_format}
    check(kernels.conv2d_pointwise, *_FORMS, b, inp, ker, bias, **common)
    geometry = Geometry((1, 1), (0, 0, 0, 0))
    weight = ker[:, None, None]
    out = convolve(b, "CONV2D", image_of(b, inp), weight, bias, quant, geometry)
    return _to_format(b, out, out_format)


def _to_format(b: Builder, image: Tensor, out_format: str) -> Tensor:
    """Converts an image [1, H, W, C] to a cube in a format."""
    cube = reshape(b, image, shape_of(image)[1:])
    return cube if out_format == "DWH" else b.op("TRANSPOSE", cube, perms=(2, 0, 1))
