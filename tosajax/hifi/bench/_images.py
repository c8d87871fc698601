"""Windows over images, as options describe them."""

from __future__ import annotations

from types import SimpleNamespace

from tosajax.hifi.bench._options import Option, size
from tosajax.hifi.kernels.scratch import extent

OPTIONS: tuple[Option, ...] = (
    size("input_height", 16, "elements"),
    size("input_width", 16, "elements"),
    size("input_channels", 4, "elements"),
    size("kernel_height", 3, "elements"),
    size("kernel_width", 3, "elements"),
    size("x_stride", 2, "elements"),
    size("y_stride", 2, "elements"),
    size("x_padding", 2, "elements on the left", least=0),
    size("y_padding", 2, "elements at the top", least=0),
    size("out_height", 16, "elements"),
    size("out_width", 16, "elements"),
)


def room_of(options: SimpleNamespace) -> int:
    """Elements of an image with its padding and of all its windows, for each channel."""
    o = options
    height = extent(o.input_height, o.kernel_height, o.y_stride, o.y_padding, o.out_height)
    width = extent(o.input_width, o.kernel_width, o.x_stride, o.x_padding, o.out_width)
    return height * width + o.kernel_height * o.kernel_width * o.out_height * o.out_width
