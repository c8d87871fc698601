"""FFT2D and RFFT2D as sums of products, in float64."""

from __future__ import annotations

import numpy as np


def coefficients(height: int, width: int, *, inverse: bool = False) -> np.ndarray:
    """Complex [OH, OW, H, W]: the weight of each input element in each output element."""
    # Whole turns drop out first, which keeps the angles as exact as possible.
    y = np.outer(np.arange(height), np.arange(height)) % height / height
    x = np.outer(np.arange(width), np.arange(width)) % width / width
    turns = y[:, None, :, None] + x[None, :, None, :]
    cosine, sine = np.cos(2 * np.pi * turns), np.sin(2 * np.pi * turns)
    # Quarter turns: pi is not exact.
    cosine, sine = (np.where(np.abs(part) < 1e-12, 0.0, part) for part in (cosine, sine))
    return cosine + 1j * sine if inverse else cosine - 1j * sine


def transform(real, imag, *, inverse: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """The real and imaginary part of the transform of [N, H, W]."""
    planes = real.astype(np.float64) + 1j * imag.astype(np.float64)
    factors = coefficients(*planes.shape[1:], inverse=inverse)
    out = np.einsum("yxhw,nhw->nyx", factors, planes)
    return out.real, out.imag


def transform_of_magnitudes(real, imag, tiny: float) -> tuple[np.ndarray, np.ndarray]:
    """Both parts, every operand replaced by its magnitude, at least `tiny`."""
    factors = coefficients(*real.shape[1:])
    cosine, sine = (np.maximum(np.abs(f), tiny) for f in (factors.real, factors.imag))
    first, second = (np.maximum(np.abs(v.astype(np.float64)), tiny) for v in (real, imag))

    def total(factor, values):
        return np.einsum("yxhw,nhw->nyx", factor, values)

    return (
        total(cosine, first) + total(sine, second),
        total(sine, first) + total(cosine, second),
    )
