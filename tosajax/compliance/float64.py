"""Float64 implementations of the operators that are dot products, one function per operator.

With `bound`, a function computes the sum of absolute values that bounds the error, from inputs that
are absolute values. It then multiplies padding as well, so that a NaN weight makes the bound NaN,
and uses absolute values of the coefficients of Fourier transforms.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

Array = np.ndarray
Sizes = Sequence[int]


def conv2d(
    input: Array, weight: Array, bias: Array, *, pad: Sizes, stride: Sizes, dilation: Sizes,
    bound: bool, held: Array | None = None,
) -> Array:  # fmt: skip
    """Convolves [N, ..., IC] with [OC, ..., IC]; `held` is False at zeros that are not input."""
    total = np.zeros(())
    for taps, values, inside in _taps(input, held, weight.shape[1:-1], pad, stride, dilation):
        product = values @ weight[(slice(None), *taps)].T
        total = total + np.where(inside[..., None] | bound, product, 0.0)
    return total + bias


conv3d = conv2d


def depthwise_conv2d(
    input: Array, weight: Array, bias: Array, *, pad: Sizes, stride: Sizes, dilation: Sizes,
    bound: bool,
) -> Array:  # fmt: skip
    total = np.zeros(())
    for taps, values, inside in _taps(input, None, weight.shape[:2], pad, stride, dilation):
        product = values[..., None] * weight[taps]
        total = total + np.where(inside[..., None, None] | bound, product, 0.0)
    return total.reshape(*total.shape[:-2], -1) + bias


def transpose_conv2d(
    input: Array, weight: Array, bias: Array, *, out_pad: Sizes, stride: Sizes, bound: bool
) -> Array:
    """Convolves the input, dilated by the stride, with the flipped weights."""
    n, ih, iw, ic = input.shape
    spread = np.zeros((n, (ih - 1) * stride[0] + 1, (iw - 1) * stride[1] + 1, ic))
    held = np.zeros(spread.shape[:-1], bool)
    spread[:, :: stride[0], :: stride[1]] = input
    held[:, :: stride[0], :: stride[1]] = True
    kh, kw = weight.shape[1:3]
    margin = [p + size - 1 for p, size in zip(out_pad, (kh, kh, kw, kw), strict=True)]
    same = {"pad": margin, "stride": (1, 1), "dilation": (1, 1)}
    return conv2d(spread, weight[:, ::-1, ::-1], bias, **same, bound=bound, held=held)


def matmul(a: Array, b: Array, *, bound: bool) -> Array:
    return a @ b


def matmul_t(a: Array, b: Array, *, bound: bool) -> Array:
    return a @ b.swapaxes(1, 2)


def avg_pool2d(input: Array, *, kernel: Sizes, stride: Sizes, pad: Sizes, bound: bool) -> Array:
    total = count = np.zeros(())
    for _, values, inside in _taps(input, None, kernel, pad, stride, (1, 1)):
        total = total + np.where(inside[..., None], values, 0.0)
        count = count + inside[..., None]
    return total / count


def reduce_sum(input: Array, *, axis: int, bound: bool) -> Array:
    return np.sum(input, axis=axis, keepdims=True)


def fft2d(
    input_real: Array, input_imag: Array, *, inverse: bool, bound: bool
) -> tuple[Array, Array]:
    sign = -1.0 if inverse else 1.0
    rows = []
    _, height, width = input_real.shape
    for down, across in _turns(height, width, width):
        angle = 2 * np.pi * (down + across)
        cos, sin = np.cos(sign * angle), np.sin(sign * angle)
        if bound:
            cos, sin = _magnitude(cos), _magnitude(sin)
        real = _transform(input_real, cos) + _transform(input_imag, sin)
        imag = _transform(input_real, sin if bound else -sin) + _transform(input_imag, cos)
        rows.append((real, imag))
    return _stack(rows)


def rfft2d(input_real: Array, *, bound: bool) -> tuple[Array, Array]:
    _, height, width = input_real.shape
    rows = []
    for down, across in _turns(height, width, width // 2 + 1):
        angle = 2 * np.pi * (down + across)
        kept = (2 * down % 1 > 0) | (2 * across % 1 > 0)
        cos, sin = np.cos(angle), np.where(kept, np.sin(angle), 0.0)
        if bound:
            real, imag = (_transform(input_real, _magnitude(part)) for part in (cos, sin))
        else:
            real = _transform(input_real, cos)
            # Products with the sine of 0 or pi are omitted, even for infinities.
            imag = np.where(kept, -input_real[..., None] * sin, 0.0).sum(axis=(1, 2))
        rows.append((real, imag))
    return _stack(rows)


def _turns(height: int, width: int, columns: int) -> Iterator[tuple[Array, Array]]:
    """Yields, for each output row, the angles' parts [H, 1, 1] and [W, columns], in turns."""
    across = np.outer(np.arange(width), np.arange(columns)) % width / width
    for row in range(height):
        down = np.arange(height) * row % height / height
        yield down[:, None, None], across


def _magnitude(coefficients: Array) -> Array:
    """Absolute values, raised to at least the smallest normal fp32, the only type of transforms."""
    return np.maximum(np.abs(coefficients), np.finfo(np.float32).smallest_normal)


def _transform(values: Array, coefficients: Array) -> Array:
    """Computes one row of a transform: [N, H, W] times [H, W, columns] to [N, columns]."""
    return np.tensordot(values, coefficients, axes=2)


def _stack(rows: list[tuple[Array, Array]]) -> tuple[Array, Array]:
    real, imag = zip(*rows, strict=True)
    return np.stack(real, axis=1), np.stack(imag, axis=1)


def _taps(
    input: Array, held: Array | None, kernel: Sizes, pad: Sizes, stride: Sizes, dilation: Sizes
) -> Iterator[tuple[tuple[int, ...], Array, Array]]:
    """Yields, for each kernel position, the input values that it multiplies.

    Yields:
      The position, the values [N, ..., C] with the spatial dimensions of the output, and bool
      [N, ...], False where a value is padding or not `held`.
    """
    margin = [(0, 0), *zip(pad[::2], pad[1::2], strict=True)]
    held = np.ones(input.shape[:-1], bool) if held is None else held
    wide, inside = np.pad(input, [*margin, (0, 0)]), np.pad(held, margin)
    spans = [
        (n - (k - 1) * d - 1) // s * s + 1
        for n, k, s, d in zip(wide.shape[1:-1], kernel, stride, dilation, strict=True)
    ]
    for taps in itertools.product(*map(range, kernel)):
        window = tuple(
            slice(t * d, t * d + span, s)
            for t, d, span, s in zip(taps, dilation, spans, stride, strict=True)
        )
        yield taps, wide[:, *window], inside[:, *window]
