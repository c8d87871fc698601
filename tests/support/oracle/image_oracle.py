"""RESIZE one sample at a time, with Python integers and fractions ("RESIZE", TOSA 1.0.1)."""

from __future__ import annotations

from fractions import Fraction

import numpy as np


def output_size(size: int, unit: int, step: int, offset: int, border: int) -> int:
    span = (size - 1) * unit - offset + border
    if span % step:
        raise ValueError("the output has no whole number of samples")
    return span // step + 1


def resize(values: np.ndarray, scale, offset, border, *, bilinear: bool) -> np.ndarray:
    """Elements are Python integers, or float64; bilinear integers stay scaled up."""
    whole = values.dtype.kind == "i"
    values = values.astype(object if whole else np.float64)
    batch, height, width, channels = values.shape
    rows = output_size(height, scale[0], scale[1], offset[0], border[0])
    columns = output_size(width, scale[2], scale[3], offset[1], border[1])
    output = np.zeros((batch, rows, columns, channels), values.dtype)
    for row in range(rows):
        y0, y1, dy = _neighbours(row, height, scale[0], scale[1], offset[0])
        for column in range(columns):
            x0, x1, dx = _neighbours(column, width, scale[2], scale[3], offset[1])
            if not bilinear:
                y, x = (y1 if 2 * dy >= 1 else y0), (x1 if 2 * dx >= 1 else x0)
                output[:, row, column] = values[:, y, x]
                continue
            unit_y, unit_x = (scale[0], scale[2]) if whole else (1, 1)
            kind = int if whole else float
            weight_y, weight_x = kind(dy * unit_y), kind(dx * unit_x)
            output[:, row, column] = (
                values[:, y0, x0] * (unit_y - weight_y) * (unit_x - weight_x)
                + values[:, y0, x1] * (unit_y - weight_y) * weight_x
                + values[:, y1, x0] * weight_y * (unit_x - weight_x)
                + values[:, y1, x1] * weight_y * weight_x
            )
    return output


def _neighbours(index: int, size: int, unit: int, step: int, offset: int):
    position = Fraction(index * step + offset, unit)
    below = position.__floor__()
    return max(below, 0), min(below + 1, size - 1), position - below
