"""Pooling as TOSA graphs."""

from __future__ import annotations

from collections.abc import Sequence

from tosajax.builder import Builder
from tosajax.graph import Tensor
from tosajax.hifi import kernels
from tosajax.hifi.kernels._geometry import geometry_of
from tosajax.hifi.to_tosa._nodes import (
    check,
    crop,
    image_of,
    reshape,
    shape_of,
)
from tosajax.report import UnsupportedError


def maxpool(
    b: Builder,
    inp: Tensor,
    *,
    precision: str = "8",
    kernel: Sequence[int],
    strides: Sequence[int] = (1, 1),
    padding: Sequence[int] = (0, 0),
    out_size: Sequence[int],
    data_format: str = "DWH",
) -> Tensor:
    """Adds xa_nn_maxpool_8 or _16, as MAX_POOL2D.

    Args:
      b: the Builder to which nodes are added.
      inp: INT8 or INT16, by `precision`; [height, width, channels], or channels first by
        `data_format`.
      precision: "8" or "16".
      kernel: height and width of the window.
      strides: y, x; elements.
      padding: top, left; elements. On all four sides, padding must be less than `kernel`.
      out_size: height and width of the output.
      data_format: the format of the image and of the output.

    Returns:
      The type of `inp`, [out_height, out_width, channels], or channels first by `data_format`.

    Raises:
      NNLibParamError: the library rejects a parameter.
      TypeError: an argument has the wrong type.
      UnsupportedError: TOSA cannot express the call.

    Example:
      >>> import jax
      >>> import numpy as np
      >>> from tosajax.hifi import to_tosa
      >>> image = jax.ShapeDtypeStruct((4, 4, 2), np.int8)
      >>> window = {"kernel": (2, 2), "strides": (2, 2), "out_size": (2, 2)}
      >>> to_tosa.to_graph(to_tosa.maxpool, image, **window)
      Graph('main', (inp: INT8[4,4,2]) -> (reshape_5: INT8[2,2,2]), 5 nodes)
    """
    window = {"strides": strides, "padding": padding, "out_size": out_size}
    common = {"precision": precision, "data_format": data_format}
    check(kernels.maxpool, ("8", "16"), (), b, inp, kernel=kernel, **window, **common)
    # For WHD, planes become images of one channel.
    image = image_of(b, inp) if data_format == "DWH" else reshape(b, inp, (*shape_of(inp), 1))
    geometry = geometry_of(shape_of(image)[1:3], kernel, **window)
    pad = geometry.pad
    if max(pad[:2]) >= kernel[0] or max(pad[2:]) >= kernel[1]:
        raise UnsupportedError(f"maxpool {precision}: a window is outside the image")
    cropped, pad = crop(b, image, pad)
    out = b.op("MAX_POOL2D", cropped, kernel=tuple(kernel), stride=geometry.strides, pad=pad)
    shape = shape_of(out)
    return reshape(b, out, shape[1:] if data_format == "DWH" else shape[:3])
