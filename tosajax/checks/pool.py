"""Rules of "Tensor Operators", pooling (TOSA 1.0.1)."""

from __future__ import annotations

from collections.abc import Iterator

from tosajax.checks._common import (
    Shapes,
    limits,
    minimum_errors,
    window_errors,
    window_size,
)
from tosajax.checks.call import Call, Problem
from tosajax.checks.values import ValueRule, constant_problems, zero_point
from tosajax.spec import Level


def max_pool2d_shape(c: Call) -> Shapes:
    n, *_, channels = c.input.shape
    (span_y, span_x), (stride_y, stride_x) = _spans(c), c.stride
    return ((n, window_size(span_y, stride_y), window_size(span_x, stride_x), channels),)


def max_pool2d_errors(c: Call) -> Iterator[Problem]:
    return _window_errors(c, first=1)


def avg_pool2d_zero_points(c: Call) -> Iterator[ValueRule]:
    yield from zero_point(c, "e1", "input_zp")
    yield from zero_point(c, "e2", "output_zp")


def avg_pool2d_errors(c: Call) -> Iterator[Problem]:
    yield from constant_problems(c, avg_pool2d_zero_points(c))
    yield from _window_errors(c, first=3)


def max_pool2d_levels(c: Call, level: Level) -> Iterator[Problem]:
    kernel_y, kernel_x = c.kernel
    stride_y, stride_x = c.stride
    top, bottom, left, right = c.pad
    return limits(
        c,
        level,
        ("kernel_y", kernel_y, "MAX_KERNEL"),
        ("kernel_x", kernel_x, "MAX_KERNEL"),
        ("stride_y", stride_y, "MAX_STRIDE"),
        ("stride_x", stride_x, "MAX_STRIDE"),
        ("pad_top", top, "MAX_KERNEL"),
        ("pad_bottom", bottom, "MAX_KERNEL"),
        ("pad_left", left, "MAX_KERNEL"),
        ("pad_right", right, "MAX_KERNEL"),
    )


avg_pool2d_shape = max_pool2d_shape
avg_pool2d_levels = max_pool2d_levels


def _spans(c: Call) -> tuple[int, int]:
    """Rows and columns from the first window position to the last."""
    _, height, width, _ = c.input.shape
    kernel_y, kernel_x = c.kernel
    top, bottom, left, right = c.pad
    return height + top + bottom - kernel_y, width + left + right - kernel_x


def _window_errors(c: Call, first: int) -> Iterator[Problem]:
    kernel, stride, pad, pad_x, pad_y, rows, columns = (f"e{first + i}" for i in range(7))
    illegal = [
        *minimum_errors(c, kernel, "kernel", 1),
        *minimum_errors(c, stride, "stride", 1),
        *minimum_errors(c, pad, "pad", 0),
    ]
    yield from illegal
    if illegal:
        return
    kernel_y, kernel_x = c.kernel
    top, bottom, left, right = c.pad
    # A window entirely in the padding would have no elements to average.
    if max(left, right) >= kernel_x:
        yield c.problem(
            pad_x, f"pad is {left} left and {right} right, expected less than kernel_x {kernel_x}"
        )
    if max(top, bottom) >= kernel_y:
        yield c.problem(
            pad_y, f"pad is {top} top and {bottom} bottom, expected less than kernel_y {kernel_y}"
        )
    (span_y, span_x), (stride_y, stride_x) = _spans(c), c.stride
    yield from window_errors(c, rows, "OH", span_y, "stride_y", stride_y)
    yield from window_errors(c, columns, "OW", span_x, "stride_x", stride_x)
