"""Convolutions that tests of native kernels compute."""

from __future__ import annotations

import dataclasses

from tosajax.ops._window import Window


@dataclasses.dataclass(frozen=True)
class Case:
    """A convolution.

    Args:
      x: shape of the input, [N, H, W, C].
      out: output channels; if it is depthwise, output channels for each input channel.
      size: of the window.
      stride: of the window.
      pad: of the window.
      dilation: of the window.
      depthwise: whether it is depthwise.
      is_int16: whether the input is int16.
      is_wide: whether weights less their zero point have 9 bits.
    """

    x: tuple[int, int, int, int]
    out: int
    size: tuple[int, int] = (1, 1)
    stride: tuple[int, int] = (1, 1)
    pad: tuple[tuple[int, int], tuple[int, int]] = ((0, 0), (0, 0))
    dilation: tuple[int, int] = (1, 1)
    depthwise: bool = False
    is_int16: bool = False
    is_wide: bool = False

    @property
    def window(self) -> Window:
        return Window(self.size, self.stride, self.dilation, self.pad)


ONE = ((1, 1), (1, 1))
GEOMETRIES = {
    "a product": Case((1, 1, 1, 7), 3),
    "a long product": Case((1, 3, 1, 1000), 17),
    "pixels in one row": Case((3, 5, 7, 24), 33),
    "many pixels, in place": Case((2, 40, 40, 36), 33),
    "many pixels, copied": Case((2, 40, 40, 31), 33),
    "pixels a power of two apart": Case((1, 5, 6, 512), 20),
    "one tap, padded": Case((2, 4, 5, 6), 9, pad=ONE),
    "all lanes": Case((2, 8, 8, 16), 64, (3, 3), pad=ONE),
    "vectors that are left": Case((1, 6, 2, 8), 80, (2, 2)),
    "some lanes": Case((3, 7, 9, 5), 37, (3, 3), (2, 1), ((1, 1), (0, 2))),
    "three channels": Case((2, 9, 11, 3), 16, (5, 3), (2, 2), ((2, 2), (1, 1))),
    "a row of a tile and a part": Case((1, 3, 23, 8), 16, (3, 3), pad=ONE),
    "dilated": Case((2, 9, 8, 6), 10, (3, 2), pad=((2, 2), (0, 3)), dilation=(2, 3)),
    "more padding than image": Case((1, 2, 2, 4), 8, (5, 6), pad=((2, 3), (4, 4))),
    "stride beyond the window": Case((1, 7, 10, 4), 20, (1, 1), (3, 3)),
    "a column": Case((2, 6, 1, 9), 130, (3, 1), pad=((1, 1), (0, 0))),
    "a column with padded sides": Case((1, 6, 1, 5), 7, (3, 1), pad=((1, 1), (1, 0))),
    "large": Case((2, 40, 40, 32), 48, (3, 3), pad=ONE),
    "depthwise": Case((2, 8, 8, 32), 1, (3, 3), pad=ONE, depthwise=True),
    "depthwise of few channels": Case((2, 8, 8, 4), 1, (3, 3), pad=ONE, depthwise=True),
    "depthwise, odd": Case((3, 7, 5, 21), 1, (3, 2), (2, 1), ((1, 1), (1, 0)), depthwise=True),
    "depthwise, dilated": Case((1, 9, 9, 19), 1, (2, 5), (1, 1), ONE, (3, 2), depthwise=True),
    "depthwise, repeated": Case((2, 5, 6, 5), 3, (3, 3), pad=ONE, depthwise=True),
    "depthwise, wide": Case((1, 3, 9, 8), 1, (1, 9), pad=((0, 0), (4, 4)), depthwise=True),
    "depthwise, a column": Case(
        (2, 11, 1, 6), 1, (4, 1), (2, 1), ((2, 1), (0, 0)), (2, 1), depthwise=True
    ),
    "depthwise, large": Case((2, 56, 56, 48), 1, (3, 3), (2, 2), ((0, 1), (0, 1)), depthwise=True),
}
