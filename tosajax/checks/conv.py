"""Rules of "Tensor Operators", convolutions (TOSA 1.0.1).

CONV2D, CONV3D and DEPTHWISE_CONV2D share their rules: `kernel` is the size of the kernel, one
number for each spatial dimension, and `channels` the number of output channels.
"""

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

# Names in the messages of a 3D operator; a 2D operator uses them without the depth.
_OUTPUT = ("OD", "OH", "OW")
_KERNEL = ("dilation_d * KD", "dilation_y * KH", "dilation_x * KW")
_PAD = ("pad_d0", "pad_d1", "pad_top", "pad_bottom", "pad_left", "pad_right")
_STRIDE = ("stride_d", "stride_y", "stride_x")


def conv2d_shape(c: Call) -> Shapes:
    channels, *kernel, _ = c.weight.shape
    return _shape(c, kernel, channels)


def conv2d_zero_points(c: Call) -> Iterator[ValueRule]:
    yield from zero_point(c, "e1", "input_zp")
    yield from zero_point(c, "e2", "weight_zp")


conv3d_zero_points = depthwise_conv2d_zero_points = conv2d_zero_points
transpose_conv2d_zero_points = conv2d_zero_points


def conv2d_errors(c: Call) -> Iterator[Problem]:
    channels, *kernel, _ = c.weight.shape
    return _errors(c, kernel, channels)


def conv2d_levels(c: Call, level: Level) -> Iterator[Problem]:
    _, *kernel, _ = c.weight.shape
    return _levels(c, level, kernel)


conv3d_shape = conv2d_shape
conv3d_errors = conv2d_errors
conv3d_levels = conv2d_levels


def depthwise_conv2d_shape(c: Call) -> Shapes:
    *kernel, channels, multiplier = c.weight.shape
    return _shape(c, kernel, channels * multiplier)


def depthwise_conv2d_errors(c: Call) -> Iterator[Problem]:
    *kernel, channels, multiplier = c.weight.shape
    wanted = channels * multiplier
    yield from _errors(c, kernel, wanted)
    size = wanted if c.output.shape is None else c.output.shape[-1]
    if size != wanted:
        yield c.problem("arguments", f"output has {size} channels, expected {wanted}, C * M")


def depthwise_conv2d_levels(c: Call, level: Level) -> Iterator[Problem]:
    *kernel, _, _ = c.weight.shape
    return _levels(c, level, kernel)


def transpose_conv2d_shape(c: Call) -> Shapes:
    n, height, width, _ = c.input.shape
    channels, kernel_y, kernel_x, _ = c.weight.shape
    stride_y, stride_x = c.stride
    top, bottom, left, right = c.out_pad
    rows = (height - 1) * stride_y + top + bottom + kernel_y
    columns = (width - 1) * stride_x + left + right + kernel_x
    return ((n, rows, columns, channels),)


def transpose_conv2d_errors(c: Call) -> Iterator[Problem]:
    channels, kernel_y, kernel_x, _ = c.weight.shape
    top, bottom, left, right = c.out_pad
    yield from constant_problems(c, conv2d_zero_points(c))
    illegal = list(minimum_errors(c, "e5", "stride", 1))
    if min(top, bottom) <= -kernel_y:
        message = f"out_pad is {top} top and {bottom} bottom"
        illegal.append(c.problem("e3", f"{message}, expected more than {-kernel_y}, minus KH"))
    if min(left, right) <= -kernel_x:
        message = f"out_pad is {left} left and {right} right"
        illegal.append(c.problem("e4", f"{message}, expected more than {-kernel_x}, minus KW"))
    yield from illegal
    if not illegal and c.output.shape is not None:
        _, *sizes, _ = c.output.shape
        ((_, *wanted, _),) = transpose_conv2d_shape(c)
        for i, rule in enumerate(("e6", "e7")):
            if sizes[i] != wanted[i]:
                name = _OUTPUT[1 + i]
                yield c.problem(rule, f"output has {name} {sizes[i]}, expected {wanted[i]}")
    yield from _bias_errors(c, "e8", channels)


def transpose_conv2d_levels(c: Call, level: Level) -> Iterator[Problem]:
    _, kernel_y, kernel_x, _ = c.weight.shape
    stride_y, stride_x = c.stride
    top, bottom, left, right = c.out_pad
    return limits(
        c,
        level,
        ("weight's KH", kernel_y, "MAX_KERNEL"),
        ("weight's KW", kernel_x, "MAX_KERNEL"),
        ("out_pad_top", top, "MAX_KERNEL"),
        ("out_pad_bottom", bottom, "MAX_KERNEL"),
        ("out_pad_left", left, "MAX_KERNEL"),
        ("out_pad_right", right, "MAX_KERNEL"),
        ("stride_y", stride_y, "MAX_STRIDE"),
        ("stride_x", stride_x, "MAX_STRIDE"),
    )


def _spans(c: Call, kernel: list[int]) -> list[int]:
    """Elements from the first window position to the last, for each spatial dimension."""
    _, *sizes, _ = c.input.shape
    before, after = c.pad[0::2], c.pad[1::2]
    dims = zip(sizes, before, after, kernel, c.dilation, strict=True)
    return [size - 1 + b + a - (k - 1) * dilation for size, b, a, k, dilation in dims]


def _shape(c: Call, kernel: list[int], channels: int) -> Shapes:
    spans = zip(_spans(c, kernel), c.stride, strict=True)
    return ((c.input.shape[0], *(window_size(*span) for span in spans), channels),)


def _errors(c: Call, kernel: list[int], channels: int) -> Iterator[Problem]:
    yield from constant_problems(c, conv2d_zero_points(c))
    illegal = [
        *minimum_errors(c, "e3", "pad", 0),
        *minimum_errors(c, "e4", "stride", 1),
        *minimum_errors(c, "e5", "dilation", 1),
    ]
    yield from illegal
    count = len(kernel)
    if not illegal:
        names = zip(_OUTPUT[-count:], _spans(c, kernel), _STRIDE[-count:], c.stride, strict=True)
        for number, (name, span, step, stride) in enumerate(names, 6):
            yield from window_errors(c, f"e{number}", name, span, step, stride)
    yield from _bias_errors(c, f"e{6 + count}", channels)


def _bias_errors(c: Call, rule: str, channels: int) -> Iterator[Problem]:
    (size,) = c.bias.shape
    if size not in (1, channels):
        yield c.problem(rule, f"bias has {size} channels, expected 1 or {channels}")


def _levels(c: Call, level: Level, kernel: list[int]) -> Iterator[Problem]:
    count = len(kernel)
    extents = [k * dilation for k, dilation in zip(kernel, c.dilation, strict=True)]
    *depth, y, x = zip(_STRIDE[-count:], c.stride, strict=True)
    return limits(
        c,
        level,
        *((name, k, "MAX_KERNEL") for name, k in zip(_KERNEL[-count:], extents, strict=True)),
        *((name, pad, "MAX_KERNEL") for name, pad in zip(_PAD[-2 * count :], c.pad, strict=True)),
        # The depth's stride comes after all other limits.
        *((name, stride, "MAX_STRIDE") for name, stride in (y, x, *depth)),
    )
