"""Rules of "Tensor Operators", Fourier transforms (TOSA 1.0.1)."""

from __future__ import annotations

from collections.abc import Iterator

from tosajax.checks._common import Shapes, limits
from tosajax.checks.call import Call, Problem
from tosajax.spec import Level


def fft2d_shape(c: Call) -> Shapes:
    return c.input_real.shape, c.input_real.shape


def fft2d_errors(c: Call) -> Iterator[Problem]:
    _, *sizes = c.input_real.shape
    for rule, name, size in zip(("e1", "e2"), "HW", sizes, strict=True):
        if size.bit_count() != 1:
            yield c.problem(rule, f"input_real has {name} {size}, expected a power of two")


def fft2d_levels(c: Call, level: Level) -> Iterator[Problem]:
    _, height, width = c.input_real.shape
    return limits(c, level, ("H", height, "MAX_KERNEL"), ("W", width, "MAX_KERNEL"))


def rfft2d_shape(c: Call) -> Shapes:
    n, height, width = c.input_real.shape
    half = n, height, width // 2 + 1
    return half, half


def rfft2d_errors(c: Call) -> Iterator[Problem]:
    yield from fft2d_errors(c)
    for output, wanted in zip(("output_real", "output_imag"), rfft2d_shape(c), strict=True):
        shape = getattr(c, output).shape
        if shape not in (None, wanted):
            yield c.problem("arguments", f"{output} has shape {shape}, expected {wanted}")


rfft2d_levels = fft2d_levels
