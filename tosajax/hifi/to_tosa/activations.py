"""Activations of vectors, as TOSA graphs."""

from __future__ import annotations

from tosajax.builder import Builder
from tosajax.dtypes import DType
from tosajax.graph import Tensor
from tosajax.hifi import kernels
from tosajax.hifi.to_tosa._nodes import (
    HALF_Q31,
    check,
    clamp,
    filled,
    multiply,
    rescale,
)

# The bits that Q6.25 has beyond Q16.15.
_RELU_SHIFT = 25 - 15


def relu(
    b: Builder,
    x: Tensor,
    threshold: int | None = None,
    *,
    kind: str = "relu",
    precision: str = "32_32",
) -> Tensor:
    """xa_nn_vec_relu_32_32, _16_16 and _8_8, relu1, relu6 and relu_std, by CLAMP.

    TOSA has no CLAMP of INT32; there ARITHMETIC_RIGHT_SHIFT, MINIMUM and MAXIMUM compute it.

    Args:
      b: gets the nodes.
      x: INT32 in Q6.25, INT16 or INT8, by `precision`; any shape.
      threshold: of "relu" only, in the format of the result.
      kind: "relu", "relu1", "relu6" or "relu_std".
      precision: "32_32", "16_16" or "8_8", if the library has it for `kind`.

    Returns:
      The shape of `x`: INT32 in Q16.15, else the type of `x`.

    Raises:
      NNLibParamError: a parameter that the library rejects.
      TypeError: an argument of another type.
      UnsupportedError: one that TOSA has no form for.
    """
    known = ("32_32", "16_16", "8_8")
    common = {"kind": kind, "precision": precision}
    check(kernels.relu, known, (), b, x, threshold=threshold, **common)
    if kind in ("relu1", "relu6"):
        threshold = int(kind[-1]) << 15
    limit = x.dtype.maximum if threshold is None else max(int(threshold), 0)
    if precision != "32_32":
        return clamp(b, x, 0, limit)
    shift = filled(b, _RELU_SHIFT, x)
    shifted = b.op("ARITHMETIC_RIGHT_SHIFT", x, shift, round=False)
    return b.op("MAXIMUM", b.op("MINIMUM", shifted, filled(b, limit, x)), filled(b, 0, x))


def activation_min_max(
    b: Builder,
    x: Tensor,
    activation_min: int,
    activation_max: int,
    *,
    precision: str = "16_16",
) -> Tensor:
    """xa_nn_vec_activation_min_max_16_16 and _8_8, by CLAMP.

    Args:
      b: gets the nodes.
      x: INT16 or INT8, by `precision`; any shape.
      activation_min: in the range of `x`.
      activation_max: in the range of `x`, not below activation_min.
      precision: "16_16" or "8_8".

    Returns:
      The type and shape of `x`.

    Raises:
      NNLibParamError: a parameter that the library rejects.
      TypeError: an argument of another type.
      UnsupportedError: one that TOSA has no form for.
    """
    bounds = {"activation_min": activation_min, "activation_max": activation_max}
    known = ("16_16", "8_8")
    check(kernels.activation_min_max, known, (), b, x, precision=precision, **bounds)
    return clamp(b, x, activation_min, activation_max)


def interpolation_q15(b: Builder, ifact: Tensor, inp1: Tensor, inp2: Tensor) -> Tensor:
    """xa_nn_vec_interpolation_q15, by MUL, ARITHMETIC_RIGHT_SHIFT, which rounds down, and MINIMUM.

    Args:
      b: gets the nodes.
      ifact: INT16 in Q15, [num_elements], a multiple of 4.
      inp1: INT16, the shape of `ifact`.
      inp2: INT16, the shape of `ifact`.

    Returns:
      INT16, the shape of `ifact`.

    Raises:
      NNLibParamError: a parameter that the library rejects.
      TypeError: an argument of another type.
    """
    check(kernels.interpolation_q15, (), (), b, ifact, inp1, inp2)
    factor, first, second = (b.op("CAST", x, dtype=DType.INT32) for x in (ifact, inp1, inp2))
    one, bits = filled(b, 0x7FFF, factor), filled(b, 15, factor)
    rest = b.op("MINIMUM", b.op("SUB", one, factor), one)
    products = (multiply(b, factor, first), multiply(b, rest, second))
    first, second = (b.op("ARITHMETIC_RIGHT_SHIFT", x, bits, round=False) for x in products)
    # The product of -1 and -1; the second factor of the other one is not negative.
    first = b.op("MINIMUM", first, one)
    return rescale(b, b.op("ADD", first, second), HALF_Q31, 1, DType.INT16)
