"""Windows over images, which the library defines by the size of the output.

Images are padded by `padding` at the top and the left, and at the bottom and the right up to the
end of the last window; if that is inside the image, the image is cropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tosajax.hifi.kernels._check import check

FORMATS = ("DWH", "WHD")


def check_window(
    name: str,
    size: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    padding: Sequence[int],
    out_size: Sequence[int],
) -> None:
    """Checks a window and the size of its output; y comes before x in each pair."""
    for i, axis in enumerate(("height", "width")):
        wanted = f"at most input_{axis}, {size[i]}"
        check(kernel[i] <= size[i], name, f"kernel_{axis}", kernel[i], wanted)
        check(strides[i] >= 1, name, f"{'yx'[i]}_stride", strides[i], "at least 1")
        check(padding[i] >= 0, name, f"{'yx'[i]}_padding", padding[i], "at least 0")
        check(out_size[i] >= 1, name, f"out_{axis}", out_size[i], "at least 1")


class Geometry(NamedTuple):
    """The stride and pad attributes of TOSA's convolutions.

    Args:
      strides: y, x; elements.
      pad: top, bottom, left, right; elements, negative to crop.
    """

    strides: tuple[int, ...]
    pad: tuple[int, ...]


def geometry_of(
    size: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    padding: Sequence[int],
    out_size: Sequence[int],
) -> Geometry:
    """The geometry for `padding` at the top and the left, and the size of the output."""
    extent = [k + (n - 1) * s for k, n, s in zip(kernel, out_size, strides, strict=True)]
    after = [e - p - length for e, p, length in zip(extent, padding, size, strict=True)]
    return Geometry(tuple(strides), (padding[0], after[0], padding[1], after[1]))
