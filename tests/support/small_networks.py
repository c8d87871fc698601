"""Networks of a few nodes that compile in a moment, with source locations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tosajax import Builder, DType, Graph, Tensor
from tosajax.spec import NanMode, RoundingMode

SHAPE = (1, 4, 4, 2)
LOCATIONS = ('loc("first;conv"("net.tflite":0:0))', 'loc("second/conv"("net.tflite":0:0))')


def two_layers(
    *,
    rounding: RoundingMode = RoundingMode.SINGLE_ROUND,
    names: Sequence[str] = ("acc1", "act1", "relu1", "acc2", "out"),
    batch: int = 1,
    weights: int = 0,
) -> Graph:
    """Two convolutions on int8, the first with a CLAMP.

    Args:
      rounding: of both RESCALEs.
      names: of the five tensors.
      batch: first dimension of the input; -1 leaves it open.
      weights: the seed of the weights.
    """
    generator = np.random.default_rng(weights)
    b = Builder()
    x = b.input("x", DType.INT8, (batch, *SHAPE[1:]))
    acc = conv(b, x, 3, generator, name=names[0], input_zp=-3, location=LOCATIONS[0])
    act = rescale(
        b, acc, (1 << 30, (1 << 30) + 12345, (1 << 31) - 1), (36, 37, 37), DType.INT8,
        name=names[1], output_zp=5, rounding=rounding, location=LOCATIONS[0],
    )  # fmt: skip
    relu = b.op(
        "CLAMP", act, min_val=np.int8(5), max_val=np.int8(100), nan_mode=NanMode.PROPAGATE,
        name=names[2], location=LOCATIONS[0],
    )  # fmt: skip
    acc = conv(b, relu, 2, generator, name=names[3], input_zp=5, location=LOCATIONS[1])
    out = rescale(
        b, acc, (1518500250,), (38,), DType.INT8,
        name=names[4], output_zp=-7, rounding=rounding, location=LOCATIONS[1],
    )  # fmt: skip
    return b.graph([out])


def conv(
    b: Builder,
    x: Tensor,
    channels: int,
    generator: np.random.Generator,
    *,
    name: str,
    input_zp: int,
    location: str | None = None,
) -> Tensor:
    """CONV2D of 3x3 with random weights and a bias."""
    depth = (x.shape or (1,))[-1]
    weight = generator.integers(-127, 128, (channels, 3, 3, depth))
    bias = generator.integers(-2000, 2000, (channels,))
    return b.op(
        "CONV2D", x, b.const(weight, DType.INT8, name=f"{name}/weight"),
        b.const(bias, DType.INT32), b.const([input_zp], DType.INT8), b.const([0], DType.INT8),
        pad=(1, 1, 1, 1), stride=(1, 1), dilation=(1, 1), acc_type=DType.INT32,
        name=name, location=location,
    )  # fmt: skip


def rescale(
    b: Builder,
    x: Tensor,
    multipliers: Sequence[int],
    shifts: Sequence[int],
    dtype: DType,
    *,
    name: str = "rescaled",
    input_zp: int = 0,
    output_zp: int = 0,
    rounding: RoundingMode = RoundingMode.SINGLE_ROUND,
    scale32: bool = True,
    location: str | None = None,
) -> Tensor:
    """RESCALE, per channel if there are several multipliers."""
    return b.op(
        "RESCALE", x, b.const(multipliers, DType.INT32 if scale32 else DType.INT16),
        b.const(shifts, DType.INT8), b.const([input_zp], x.dtype), b.const([output_zp], dtype),
        dtype=dtype, scale32=scale32, rounding_mode=rounding, per_channel=len(multipliers) > 1,
        input_unsigned=False, output_unsigned=False, name=name, location=location,
    )  # fmt: skip


def images(count: int, seed: int = 0) -> np.ndarray:
    """Random inputs of `two_layers`, (count, 4, 4, 2), with both ends of int8."""
    found = np.random.default_rng(seed).integers(-128, 128, (count, *SHAPE[1:])).astype(np.int8)
    found.reshape(-1)[:2] = (-128, 127)
    return found
