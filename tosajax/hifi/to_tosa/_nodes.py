"""Adds the nodes common to the graphs of kernels: products, scales and shapes."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from tosajax.builder import Builder
from tosajax.dtypes import DType
from tosajax.graph import Tensor
from tosajax.hifi.errors import wrong_type
from tosajax.hifi.kernels import Quant
from tosajax.hifi.kernels._check import check_type
from tosajax.hifi.kernels._geometry import Geometry
from tosajax.report import UnsupportedError
from tosajax.spec import RoundingMode

# The smallest shift of RESCALE, whose multipliers are in Q31 as the library's.
_LEAST_SHIFT = 2
HALF_Q31 = 1 << 30


def check(
    kernel: Callable[..., jax.Array],
    precisions: Sequence[str],
    constants: Sequence[str],
    b: Builder,
    /,
    *operands: Tensor | np.ndarray | None,
    **parameters: Any,
) -> None:
    """Checks a call by evaluating the kernel's shape, which checks operands and parameters.

    Args:
      kernel: the kernel of `tosajax.hifi.kernels`.
      precisions: the precisions that TOSA can express.
      constants: the names of the operands that are arrays; all others are Tensors.
      b: the Builder.
      operands: the operands of the kernel.
      parameters: the keywords of the kernel.

    Raises:
      NNLibParamError: the library rejects a parameter.
      TypeError: an argument has the wrong type.
      UnsupportedError: TOSA cannot express the precision.
    """
    function = kernel.__name__
    check_type(function, "b", b, Builder)
    by_name = dict(zip(inspect.signature(kernel).parameters, operands, strict=False))
    for name, x in by_name.items():
        if name not in constants:
            check_type(function, name, x, Tensor)
    precision = parameters.get("precision")
    if precision not in precisions and precision is not None:
        name, wanted = parameters.get("kind", function), ", ".join(precisions)
        raise UnsupportedError(f"{name}: precision is {precision!r}, expected one of {wanted}")
    abstract = [_abstract(function, *at) for at in by_name.items()]
    jax.eval_shape(functools.partial(kernel, **parameters), *abstract)


def _abstract(function: str, argument: str, x: Any) -> jax.ShapeDtypeStruct | None:
    if x is None:
        return None
    if isinstance(x, Tensor):
        return x.dtype.struct(x.shape or ())
    if not isinstance(x, np.ndarray | jax.Array):
        raise wrong_type(function, argument, x, "a Tensor or a NumPy array")
    return jax.ShapeDtypeStruct(x.shape, x.dtype)


def shape_of(x: Tensor) -> tuple[int, ...]:
    if x.shape is None:
        raise ValueError(f"{x} has no shape")
    return x.shape


def rows(b: Builder, matrix: np.ndarray, x: Tensor, bias: np.ndarray, quant: Quant) -> Tensor:
    """Multiplies a matrix [N, K] by rows [M, K] or a vector [K]; INT8 [1, M, 1, N]."""
    columns = matrix.shape[1]
    image = reshape(b, x, (1, math.prod(shape_of(x)) // columns, 1, columns))
    geometry = Geometry((1, 1), (0, 0, 0, 0))
    return convolve(b, "CONV2D", image, matrix[:, None, None], bias, quant, geometry)


def convolve(
    b: Builder,
    op: str,
    image: Tensor,
    weight: np.ndarray,
    bias: np.ndarray,
    quant: Quant,
    geometry: Geometry,
) -> Tensor:
    """Convolves an image [1, H, W, C] with int8 weights, scaled to INT8."""
    image, pad = crop(b, image, geometry.pad)
    acc = b.op(
        op,
        image,
        b.const(weight, DType.INT8),
        b.const(bias, DType.INT32),
        b.const([-int(quant.input_zero_bias)], DType.INT8),
        b.const([0], DType.INT8),
        pad=pad,
        stride=geometry.strides,
        dilation=(1, 1),
        acc_type=DType.INT32,
    )
    scale = quant.out_multiplier, quant.out_shift
    return rescale(b, acc, *scale, DType.INT8, output_zp=quant.out_zero_bias)


def crop(b: Builder, image: Tensor, pad: Sequence[int]) -> tuple[Tensor, tuple[int, ...]]:
    """Crops the rows and columns that no window reads; returns the image and the padding."""
    top, bottom, left, right = pad
    n, height, width, channels = shape_of(image)
    size = n, height + min(bottom, 0), width + min(right, 0), channels
    if min(size) < 1:
        raise UnsupportedError(f"no window reads the image {list(shape_of(image))}")
    if size != shape_of(image):
        image = b.op("SLICE", image, b.const_shape((0, 0, 0, 0)), b.const_shape(size))
    return image, (top, max(bottom, 0), left, max(right, 0))


def rescale(
    b: Builder,
    x: Tensor,
    multiplier: Any,
    shift: Any,
    dtype: DType,
    *,
    input_zp: int = 0,
    output_zp: Any = 0,
) -> Tensor:
    """Adds RESCALE: (x - input_zp) * multiplier / 2**31 * 2**shift + output_zp.

    The multiplier and shift are scalars or per channel.
    """
    multiplier, shift = np.broadcast_arrays(np.asarray(multiplier), np.asarray(shift))
    amount = 31 - shift.astype(np.int32).reshape(-1)
    if amount.min() < _LEAST_SHIFT:
        limit = 31 - _LEAST_SHIFT
        raise UnsupportedError(f"a shift is {shift.max()}, expected at most {limit} by RESCALE")
    # Shifts of up to 31 bits round once, and do not need EXT-DOUBLEROUND.
    twice = amount.max() > 31
    return b.op(
        "RESCALE",
        x,
        b.const(multiplier.reshape(-1), DType.INT32),
        b.const(amount, DType.INT8),
        b.const([input_zp], x.dtype),
        b.const([int(output_zp)], dtype),
        dtype=dtype,
        scale32=True,
        rounding_mode=RoundingMode.DOUBLE_ROUND if twice else RoundingMode.SINGLE_ROUND,
        per_channel=shift.ndim > 0,
        input_unsigned=False,
        output_unsigned=False,
    )


def multiply(b: Builder, x: Tensor, y: Tensor) -> Tensor:
    return b.op("MUL", x, y, b.const([0], DType.INT8))


def clamp(b: Builder, x: Tensor, low: int, high: int) -> Tensor:
    return b.op("CLAMP", x, min_val=low, max_val=high)


def filled(b: Builder, value: int, like: Tensor) -> Tensor:
    """Adds a constant of the type and rank of a tensor, which broadcasts with it."""
    return b.const(np.full((1,) * len(shape_of(like)), value), like.dtype)


def image_of(b: Builder, x: Tensor) -> Tensor:
    return reshape(b, x, (1, *shape_of(x)))


def reshape(b: Builder, x: Tensor, shape: Sequence[int]) -> Tensor:
    return b.op("RESHAPE", x, b.const_shape(shape))
