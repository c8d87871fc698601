"""Kernels of the HiFi 5 NN Library: their definitions, and random operands for them."""

from __future__ import annotations

import numpy as np

from tosajax.hifi.bench.definitions.arithmetic import (
    add_saturating,
    dot,
    fixed,
    integers,
    quantized,
    requantize,
    round_half_away,
    round_half_up,
    saturate,
    shift_and_round,
    shift_and_saturate,
)
from tosajax.hifi.bench.definitions.images import conv2d, depthwise

__all__ = [
    "add_saturating",
    "conv2d",
    "depthwise",
    "dot",
    "draw",
    "draw_quant",
    "fixed",
    "integers",
    "quantized",
    "requantize",
    "round_half_away",
    "round_half_up",
    "saturate",
    "shift_and_round",
    "shift_and_saturate",
]


def draw(rng, dtype, shape):
    """Random values of a type; of integers half are at the ends of the range or next to 0."""
    if dtype is np.float32:
        return (rng.uniform(-1, 1, shape) * 2.0 ** rng.integers(-4, 3, shape)).astype(dtype)
    info = np.iinfo(dtype)
    low, high = int(info.min), int(info.max)
    values = rng.integers(low, high, shape, dtype=dtype, endpoint=True)
    edges = np.array([low, low + 1, max(low, -1), 0, 1, high - 1, high], dtype)
    return np.where(rng.random(shape) < 0.5, rng.choice(edges, shape), values)


def draw_quant(rng, dtype, channels=()):
    """Zero biases of input and weight, multiplier, shift and zero point of the output; ends often.

    Scales put most results within the range of an output.
    """
    info = np.iinfo(dtype)
    low, high = (-127, 128) if dtype is np.int8 else (-255, 0)
    zero_biases = [low, low + 1, 0, high, int(rng.integers(low, high, endpoint=True))]
    weight = int(rng.choice(zero_biases)) if dtype is np.uint8 else 0
    multipliers = [1, 2**30, 2**31 - 1, *rng.integers(2**30, 2**31, 4).tolist()]
    return (
        int(rng.choice(zero_biases)),
        weight,
        rng.choice(multipliers, channels).astype(np.int32),
        rng.choice([-31, -14, -11, -10, -9, -8, -7, -6, 0, 2], channels).astype(np.int32),
        int(rng.choice([info.min, info.max, 0, 5])),
    )
