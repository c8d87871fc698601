"""The kernels and layers in NumPy, as their definitions read: in wide integers, or in float64.

Sums of products are int64, which holds them; what becomes of them is computed in Python integers,
as arrays of dtype object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np

from tosajax.hifi import kernels
from tosajax.hifi.bench._files import Frame
from tosajax.hifi.bench._window import Axes, Axis

SHIFTS = ("acc_shift", "bias_shift")
SCALE = ("out_multiplier", "out_shift", "out_zero_bias")


def wide(x: np.ndarray) -> np.ndarray:
    """Elements as int64 or float64."""
    return x.astype(np.float64 if x.dtype.kind == "f" else np.int64)


def dot(
    matrix: np.ndarray, vectors: np.ndarray, matrix_zero_bias: int = 0, vector_zero_bias: int = 0
) -> np.ndarray:
    """The sums of a matrix [N, K] times vectors [..., K]; [..., N]."""
    return (wide(vectors) + vector_zero_bias) @ (wide(matrix) + matrix_zero_bias).T


def finish(sums: Any, bias: Any, out: type, numbers: Mapping[str, int]) -> Any:
    """What sums [..., N] and a bias [N] become, by SHIFTS or by SCALE; floats take neither."""
    if out is np.float32:
        return sums + wide(bias)
    return (fixed if "acc_shift" in numbers else quantized)(sums, bias, out, **numbers)


def fixed(sums: Any, bias: Any, out: type, *, acc_shift: int, bias_shift: int) -> np.ndarray:
    """(sums + bias * 2**bias_shift) * 2**acc_shift, saturated.

    The bias is floored, the result rounded half away from zero, or floored in 64 bits.
    """
    total = _objects(sums) + _clip(_shifted(_objects(bias), bias_shift), np.int64)
    if out is np.int64 or acc_shift >= 0:
        return _clip(_shifted(total, acc_shift), out)
    return _clip(_rounded_half_away(total, -acc_shift), out)


def quantized(
    sums: Any, bias: Any, out: type, *, out_multiplier: int, out_shift: int, out_zero_bias: int
) -> np.ndarray:
    """(sums + bias) * out_multiplier / 2**31 * 2**out_shift + out_zero_bias, saturated."""
    total = requantized(_objects(sums) + _objects(bias), out_multiplier, out_shift)
    return _clip(total + out_zero_bias, out)


def requantized(x: Any, multiplier: int, shift: int) -> np.ndarray:
    """x * multiplier / 2**31 * 2**shift with the two roundings of TFLite."""
    left, right = max(shift, 0), max(-shift, 0)
    high = (_clip(_objects(x) << left, np.int32) * multiplier + (1 << 30)) >> 31
    return _rounded_half_away(_clip(high, np.int32), right)


def conv2d(image: np.ndarray, kernel: np.ndarray, axes: Axes) -> np.ndarray:
    """The sums of [H, W, C] by [OC, KH, KW, C], int64 or float64; [OH, OW, OC]."""
    y, x = axes
    sums = np.zeros((y.outputs, x.outputs, kernel.shape[0]), kernel.dtype)
    for at, window in _windows(image, axes):
        sums += window @ kernel[(slice(None), *at)].T
    return sums


def depthwise(image: np.ndarray, kernel: np.ndarray, axes: Axes) -> np.ndarray:
    """The sums of [H, W, C] by [KH, KW, C * M], int64 or float64; [OH, OW, C * M]."""
    multiplier = kernel.shape[2] // image.shape[2]
    y, x = axes
    sums = np.zeros((y.outputs, x.outputs, kernel.shape[2]), kernel.dtype)
    for at, window in _windows(image, axes):
        sums += np.repeat(window, multiplier, axis=2) * kernel[at]
    return sums


def maxpool(image: np.ndarray, axes: Axes) -> np.ndarray:
    """The maxima of windows of [H, W, C]; [OH, OW, C]."""
    least = -np.inf if image.dtype.kind == "f" else int(np.iinfo(image.dtype).min)
    return np.max([x for _, x in _windows(wide(image), axes, least)], axis=0)


def avgpool(image: np.ndarray, axes: Axes) -> np.ndarray:
    """The averages of what windows cover of [H, W, C]; [OH, OW, C].

    Sums of integers are multiplied by a reciprocal in Q31, rounded half away from zero.
    """
    total = np.sum([x for _, x in _windows(wide(image), axes)], axis=0)
    rows, columns = (_covered(axis) for axis in axes)
    if image.dtype.kind == "f":
        return total / np.maximum(rows[:, None] * columns, 1)[..., None]
    shares = [[_reciprocal(r) * _reciprocal(c) >> 31 for c in columns] for r in rows]
    share = np.minimum(np.array(shares, object), 2**31 - 1)[..., None]
    return _clip(_rounded_half_away(_objects(total) * share, 31), image.dtype.type)


def sigmoid(x: np.ndarray) -> np.ndarray:
    """1 / (1 + e**-x)."""
    # Of two forms the one that does not overflow.
    power = np.exp(-np.abs(x))
    return np.where(x < 0, power, 1) / (1 + power)


def from_q25(x: Any) -> np.ndarray:
    """Q6.25 as float64."""
    return np.asarray(x).astype(np.float64) * 2.0**-25


def to_q(x: np.ndarray, fraction: int, limits: type) -> np.ndarray:
    """float64 with some fraction bits, rounded to the nearest, saturated; int64."""
    info = np.iinfo(limits)
    return np.clip(np.floor(x * 2.0**fraction + 0.5), info.min, info.max).astype(np.int64)


def activation(kind: str, x: Any, dtype: type, out: type) -> np.ndarray:
    """sigmoid, tanh or softmax of float32, or of int32 in Q6.25 to int64."""
    value = wide(x) if dtype is np.float32 else from_q25(x)
    match kind:
        case "sigmoid":
            result = sigmoid(value)
        case "tanh":
            result = np.tanh(value)
        case _:
            powers = np.exp(value - value.max(axis=-1, keepdims=True))
            total = powers.sum(axis=-1, keepdims=True)
            # In fixed point the sum saturates.
            result = powers / (total if out is np.float32 else np.minimum(total, 256))
    if out is np.float32:
        return result
    return to_q(result, 7 if out is np.int8 else 15, out)


def sigmoid_asym8u(x: np.ndarray, n: SimpleNamespace) -> np.ndarray:
    """sigmoid of uint8 in units of 1 / 256; `n` has the arguments of C."""
    centred = x.astype(np.int64) - n.zero_point
    value = _scaled_input(centred, n) * 2.0**-27
    result = np.where(centred < -n.input_range_radius, 0, to_q(sigmoid(value), 8, np.uint8))
    return np.where(centred > n.input_range_radius, 255, result)


def softmax_quantized(x: np.ndarray, n: SimpleNamespace, out: type) -> np.ndarray:
    """softmax of a vector of bytes in units of 1 / 256 or 1 / 65536; `n` has the arguments of C."""
    below = x.astype(np.int64) - x.max()
    powers = np.where(below < n.diffmin, 0, np.exp(_scaled_input(below, n) * 2.0**-26))
    info = np.iinfo(out)
    # The largest share is 1, which unsigned bytes, and what is less half of the units, saturate.
    units = to_q(powers / max(powers.sum(), 2.0**-31), info.bits, np.int32) + info.min
    return np.minimum(units, info.max)


def relu(x: Any, dtype: type, threshold: float | None = None) -> np.ndarray:
    """x within [0, threshold]; int32 from Q6.25 to Q16.15, rounded down."""
    value = x >> 10 if dtype is np.int32 else x
    return np.maximum(value if threshold is None else np.minimum(value, threshold), 0)


def elm_add(a: np.ndarray, b: np.ndarray, n: Mapping[str, int]) -> np.ndarray:
    """Sums of bytes; `n` has the arguments of C."""
    total = sum(
        requantized(
            _clip(_objects(x) + n[f"{at}_zero_bias"] << n["left_shift"], np.int32),
            n[f"{at}_multiplier"],
            n[f"{at}_shift"],
        )
        for at, x in (("inp1", a), ("inp2", b))
    )
    return _limited(total, n)


def elm_mul(a: np.ndarray, b: np.ndarray, n: Mapping[str, int]) -> np.ndarray:
    """Products of bytes; `n` has the arguments of C."""
    return _limited((_objects(a) + n["inp1_zero_bias"]) * (_objects(b) + n["inp2_zero_bias"]), n)


def dot_prod(a: np.ndarray, b: np.ndarray, n: Mapping[str, int]) -> np.ndarray:
    """Scaled dot products of rows of int16, without a bias."""
    sums = (wide(a) * wide(b)).sum(1)
    return quantized(sums, 0, np.int8, **{name: n[name] for name in SCALE})


def gru(weights: Frame, h: np.ndarray, xs: Sequence[np.ndarray], coeff: int, io: int) -> Any:
    """The outputs of a GRU for inputs in Q(io), by matrices in Q(coeff).

    Activations are the library's.
    """

    def gate(name: str, x: np.ndarray, h: np.ndarray) -> np.ndarray:
        fields = [weights[f"{field}_{name}"] for field in "wub"]
        return _gate(fields, x, h, coeff, io)

    outputs = []
    for x in xs:
        z, r = (_activated(kernels.sigmoid, gate(name, x, h)) for name in "zr")
        g = _activated(kernels.tanh, gate("h", x, r * h >> 15)) >> 15 - io
        h = _integers(_clip((z * h >> 15) + ((32767 - z) * g >> 15), np.int16))
        outputs.append(h)
    return [outputs]


def lstm(
    weights: Frame, h: np.ndarray, c: np.ndarray, xs: Sequence[np.ndarray], coeff: int, io: int
) -> Any:
    """The outputs of an LSTM and its last cell, in Q6.25; else as `gru`."""

    def gate(name: str, x: np.ndarray, h: np.ndarray) -> np.ndarray:
        fields = [weights[f"{field}{name}"] for field in ("w_x", "w_h", "b_")]
        return _gate(fields, x, h, coeff, io)

    outputs = []
    for x in xs:
        f, i, o = (_activated(kernels.sigmoid, gate(name, x, h)) for name in "fio")
        candidate = _activated(kernels.tanh, gate("c", x, h))
        kept = _rounded_half_away(_integers(c) * f, 15)
        c = _integers(_clip(kept + (2 * i * candidate >> 31 - 25), np.int32))
        h = (o * _activated(kernels.tanh, c) >> 15) >> 15 - io
        outputs.append(h)
    return [outputs, [c]]


def _gate(weights: Sequence[Any], x: Any, h: Any, coeff: int, io: int) -> np.ndarray:
    """What an activation takes: w x + u h + bias, which is in Q15, in Q6.25."""
    w, u, bias = weights
    shifts = {"acc_shift": 25 - coeff - io, "bias_shift": coeff + io - 15}
    return _integers(fixed(dot(w, x) + dot(u, h), bias, np.int32, **shifts))


def _activated(function: Callable[..., Any], x: Any) -> np.ndarray:
    """A function of the library in integers, of Q6.25."""
    return _integers(jax.jit(function)(np.asarray(x, np.int32)))


def _integers(x: Any) -> np.ndarray:
    return np.asarray(x).astype(np.int64)


def _scaled_input(x: np.ndarray, n: SimpleNamespace) -> np.ndarray:
    return requantized(x, n.input_multiplier, n.input_left_shift).astype(np.float64)


def _limited(total: Any, n: Mapping[str, int]) -> np.ndarray:
    scaled = requantized(total, n["out_multiplier"], n["out_shift"]) + n["out_zero_bias"]
    return np.clip(scaled, n["out_activation_min"], n["out_activation_max"])


def _windows(
    image: np.ndarray, axes: Axes, fill: float = 0
) -> Iterator[tuple[tuple[int, int], np.ndarray]]:
    """For each element of a kernel, what it meets in all windows; [OH, OW, C]."""
    y, x = axes
    padded = np.full((y.reach, x.reach, image.shape[2]), fill, image.dtype)
    padded[y.padding :, x.padding :][: y.length, : x.length] = image
    for at in product(range(y.kernel), range(x.kernel)):
        rows = padded[at[0] :: y.stride][: y.outputs]
        yield at, rows[:, at[1] :: x.stride][:, : x.outputs]


def _covered(axis: Axis) -> np.ndarray:
    """How many elements of an image each window covers."""
    start = np.arange(axis.outputs) * axis.stride - axis.padding
    covered = np.minimum(start + axis.kernel, axis.length) - np.maximum(start, 0)
    return np.maximum(covered, 0)


def _reciprocal(n: int) -> int:
    """1 / n in Q31, of which float32 keeps 24 bits; 0 of 0."""
    return int(np.float32(2**31) / np.float32(n)) if n else 0


def _objects(x: Any) -> Any:
    """Integers of any size, an array."""
    return np.asarray(x).astype(object)


def _clip(x: Any, dtype: type) -> Any:
    info = np.iinfo(dtype)
    return np.minimum(np.maximum(x, int(info.min)), int(info.max))


def _shifted(x: Any, shift: int) -> Any:
    return x << shift if shift >= 0 else x >> -shift


def _rounded_half_away(x: Any, shift: int) -> Any:
    half = (1 << shift) >> 1
    magnitude = abs(x) + half >> shift
    return np.where(x < 0, -magnitude, magnitude)
