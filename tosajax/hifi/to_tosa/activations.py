"""Activations of vectors as TOSA graphs."""

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

# The right shift from Q6.25 to Q16.15.
_RELU_SHIFT = 25 - 15


def relu(
    b: Builder,
    x: Tensor,
    threshold: int | None = None,
    *,
    kind: str = "relu",
    precision: str = "32_32",
) -> Tensor:
    """Adds xa_nn_vec_relu_32_32, _16_16 or _8_8, relu1, relu6 or relu_std, as CLAMP.

    TOSA does not have CLAMP of INT32; ARITHMETIC_RIGHT_SHIFT, MINIMUM and MAXIMUM compute 32_32.

    Args:
      b: the Builder to which nodes are added.
      x: INT32 in Q6.25, INT16 or INT8, by `precision`; any shape.
      threshold: for "relu" only, in the format of the result.
      kind: "relu", "relu1", "relu6" or "relu_std".
      precision: "32_32", "16_16" or "8_8", if the library has it for `kind`.

    Returns:
      The shape of `x`: INT32 in Q16.15 for 32_32, else the type of `x`.

    Raises:
      NNLibParamError: the library rejects a parameter.
      TypeError: an argument has the wrong type.
      UnsupportedError: TOSA cannot express the call.

    Example:
      >>> import jax
      >>> import numpy as np
      >>> from tosajax.hifi import to_tosa
      >>> x = jax.ShapeDtypeStruct((4,), np.int8)
      >>> graph = to_tosa.to_graph(to_tosa.relu, x, threshold=100, precision="8_8")
      >>> [node.op for node in graph.nodes]
      ['CLAMP']
    """
    precisions = ("32_32", "16_16", "8_8")
    common = {"kind": kind, "precision": precision}
    check(kernels.relu, precisions, (), b, x, threshold=threshold, **common)
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
    """Adds xa_nn_vec_activation_min_max_16_16 or _8_8, as CLAMP.

    Args:
      b: the Builder to which nodes are added.
      x: INT16 or INT8, by `precision`; any shape.
      activation_min: in the range of `x`.
      activation_max: in the range of `x`, not below activation_min.
      precision: "16_16" or "8_8".

    Returns:
      The type and shape of `x`.

    Raises:
      NNLibParamError: the library rejects a parameter.
      TypeError: an argument has the wrong type.
      UnsupportedError: TOSA cannot express the call.

    Example:
      >>> import jax
      >>> import numpy as np
      >>> from tosajax.hifi import to_tosa
      >>> x = jax.ShapeDtypeStruct((4,), np.int16)
      >>> to_tosa.to_graph(to_tosa.activation_min_max, x, -5, 5)
      Graph('main', (x: INT16[4]) -> (clamp_1: INT16[4]), 1 node)
    """
    bounds = {"activation_min": activation_min, "activation_max": activation_max}
    precisions = ("16_16", "8_8")
    check(kernels.activation_min_max, precisions, (), b, x, precision=precision, **bounds)
    return clamp(b, x, activation_min, activation_max)


def interpolation_q15(b: Builder, ifact: Tensor, inp1: Tensor, inp2: Tensor) -> Tensor:
    """Adds xa_nn_vec_interpolation_q15, as MUL, ARITHMETIC_RIGHT_SHIFT and MINIMUM.

    ARITHMETIC_RIGHT_SHIFT rounds down, as the kernel does.

    Args:
      b: the Builder to which nodes are added.
      ifact: INT16 in Q15, [num_elements], a multiple of 4.
      inp1: INT16, the shape of `ifact`.
      inp2: INT16, the shape of `ifact`.

    Returns:
      INT16, the shape of `ifact`.

    Raises:
      NNLibParamError: the library rejects a parameter.
      TypeError: an argument has the wrong type.

    Example:
      >>> import jax
      >>> import numpy as np
      >>> from tosajax.hifi import to_tosa
      >>> x = jax.ShapeDtypeStruct((4,), np.int16)
      >>> graph = to_tosa.to_graph(to_tosa.interpolation_q15, x, x, x)
      >>> graph.inputs, str(graph.output_tensors[0])
      (('ifact', 'inp1', 'inp2'), 'INT16[4]')
    """
    check(kernels.interpolation_q15, (), (), b, ifact, inp1, inp2)
    factor, first, second = (b.op("CAST", x, dtype=DType.INT32) for x in (ifact, inp1, inp2))
    most, bits = filled(b, 0x7FFF, factor), filled(b, 15, factor)
    rest = b.op("MINIMUM", b.op("SUB", most, factor), most)
    products = (multiply(b, factor, first), multiply(b, rest, second))
    first, second = (b.op("ARITHMETIC_RIGHT_SHIFT", x, bits, round=False) for x in products)
    # Saturates -1 times -1, which only the first product can be: `rest` is not negative.
    first = b.op("MINIMUM", first, most)
    return rescale(b, b.op("ADD", first, second), HALF_Q31, 1, DType.INT16)
