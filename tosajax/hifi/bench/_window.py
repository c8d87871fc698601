"""Windows over images, as options describe them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import NamedTuple


class Axis(NamedTuple):
    """How windows lie on the height or the width of an image; elements.

    Args:
      length: of the image.
      kernel: of a window.
      stride: from one window to the next.
      padding: before the image.
      outputs: how many windows there are.
    """

    length: int
    kernel: int
    stride: int
    padding: int
    outputs: int

    @property
    def reach(self) -> int:
        """The length of the image with its padding, and of what all windows cover."""
        return max(self.padding + self.length, self.kernel + (self.outputs - 1) * self.stride)


Axes = tuple[Axis, Axis]


def axes_of(a: SimpleNamespace, *, is_1d: bool = False) -> Axes:
    """Height and width; in one dimension the rows of an image are single elements."""
    y = Axis(a.input_height, a.kernel_height, a.y_stride, a.y_padding, a.out_height)
    if is_1d:
        return y, Axis(1, 1, 1, 0, 1)
    return y, Axis(a.input_width, a.kernel_width, a.x_stride, a.x_padding, a.out_width)


def room_of(axes: Axes) -> int:
    """Elements that an image with its padding and all its windows have, for each channel."""
    y, x = axes
    return y.reach * x.reach + y.kernel * x.kernel * y.outputs * x.outputs
