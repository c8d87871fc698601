"""Elementwise kernels, dot products ("Basic Operations and Miscellaneous Kernels", guide 3.6)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer

from tosajax import ops
from tosajax.fixedpoint import _x64, qformat
from tosajax.hifi.errors import NNLibParamError
from tosajax.hifi.kernels import _q15
from tosajax.hifi.kernels._check import (
    check,
    check_array,
    check_dtype,
    check_in,
    check_multiple,
    check_not_empty,
    check_range,
    check_shift,
    check_type,
)
from tosajax.hifi.kernels._precision import Array, Integers, Quant, as_int32
from tosajax.hifi.kernels._sums import finish_quantized
from tosajax.ops.recording import recorded_as
from tosajax.ops.routes.float_dot import sum_last

DOT_PROD = ("f32xf32_f32", "16x16_asym8s")
ELM_QUANTIZE = ("asym16s_asym8s",)
ELM_FLOOR = ("f32_f32",)
# asym8u is not in the guide.
ELM_ADD = ELM_MUL = ("asym8sxasym8s_asym8s", "asym8uxasym8u_asym8u")

_ONE_Q15 = 0x7FFF
_TYPES = {"asym8sxasym8s_asym8s": np.int8, "asym8uxasym8u_asym8u": np.uint8}


@recorded_as("hifi.kernels.interpolation_q15")
def interpolation_q15(ifact: Array, inp1: Array, inp2: Array) -> jax.Array:
    """Interpolates: ifact * inp1 + (1 - ifact) * inp2 in Q15 (xa_nn_vec_interpolation_q15).

    1 is 0x7FFF. Each product is rounded down and saturated to 16 bits ("Interpolation Kernel",
    guide 3.6.1). The library also overwrites inp1 with the result.

    Args:
      ifact: int16 in Q15, not negative, [num_elements], a multiple of 4. If it is negative, the
        factor of inp2 saturates at 0x7FFF.
      inp1: int16, the shape of `ifact`.
      inp2: int16, the shape of `ifact`.

    Returns:
      int16, the shape of `ifact`; saturated.

    Raises:
      NNLibParamError: the library rejects a parameter.
      TypeError: an argument has the wrong type.

    Example:
      >>> import numpy as np
      >>> from tosajax.hifi import kernels
      >>> a, b = np.full(4, 1000, np.int16), np.full(4, 2000, np.int16)
      >>> kernels.interpolation_q15(np.full(4, 2**14, np.int16), a, b).tolist()
      [1499, 1499, 1499, 1499]
    """
    name = "interpolation_q15"
    check_array(name, "p_ifact", ifact, np.int16, (-1,))
    check_multiple(name, "num_elements", ifact.shape[0], 4)
    check_array(name, "p_inp1", inp1, np.int16, ifact.shape)
    check_array(name, "p_inp2", inp2, np.int16, ifact.shape)
    factor, first, second = (jnp.asarray(x).astype(jnp.int32) for x in (ifact, inp1, inp2))
    rest = jnp.minimum(jnp.int32(_ONE_Q15) - factor, jnp.int32(_ONE_Q15))
    total = _q15.multiply_floor(factor, first) + _q15.multiply_floor(rest, second)
    return qformat.saturate_to(total, np.int16)


def dot_prod(
    inp1: Array,
    inp2: Array,
    bias: Array | None = None,
    *,
    precision: str = "f32xf32_f32",
    quant: Quant | None = None,
    overflow: str = "saturate",
) -> jax.Array:
    """Computes the dot products of pairs of vectors (xa_nn_dot_prod_*, guide 3.6.2).

    Args:
      inp1: float32, or int16; [num_vecs, vec_length].
      inp2: the type and shape of `inp1`.
      bias: int32, [num_vecs], for 16x16_asym8s, or None.
      precision: one of DOT_PROD.
      quant: for 16x16_asym8s; zero biases of operands must be 0.
      overflow: for sums beyond int32 with 16x16_asym8s: "saturate", as the library does for the
        sum of products and again after adding the bias, or "wrap", as SVDF of TFLite Micro does.

    Returns:
      float32 or int8, [num_vecs].

    Raises:
      NNLibParamError: the library rejects a parameter.
      TypeError: an argument has the wrong type.

    Example:
      >>> import numpy as np
      >>> from tosajax.hifi import kernels
      >>> kernels.dot_prod(np.float32([[1, 2]]), np.float32([[3, 4]])).tolist()
      [11.0]
    """
    name = f"dot_prod {precision}"
    check_in(name, "precision", precision, DOT_PROD)
    is_float = precision == "f32xf32_f32"
    dtype = np.float32 if is_float else np.int16
    check_array(name, "p_inp1", inp1, dtype, (-1, -1))
    check_array(name, "p_inp2", inp2, dtype, inp1.shape)
    check_in(name, "overflow", overflow, ("saturate", "wrap"))
    inp1, inp2 = jnp.asarray(inp1), jnp.asarray(inp2)
    if is_float:
        is_given = bias is not None or quant is not None
        check(not is_given, name, "bias or quant", "given", "None for floats")
        return sum_last(inp1 * inp2)[:, 0]
    if quant is None:
        raise NNLibParamError(name, "quant", quant, "a Quant")
    check_type(name, "quant", quant, Quant)
    for field in ("input_zero_bias", "weight_zero_bias", "input2_zero_bias", "weight2_zero_bias"):
        check_range(name, field, getattr(quant, field), 0, 0)
    _check_output(name, np.int8, quant)
    if bias is None:
        bias = jnp.zeros(inp1.shape[:1], jnp.int32)
    check_array(name, "bias_ptr", bias, np.int32, inp1.shape[:1])
    if overflow == "wrap":
        products = inp1.astype(jnp.int32) * inp2.astype(jnp.int32)
        total = lax.reduce_sum(products, (1,)) + jnp.asarray(bias)
    else:
        total = qformat.add_shifted(_saturated_dot(inp1, inp2), jnp.asarray(bias), 0)
        total = qformat.saturate_to(total, np.int32)
    return finish_quantized(total, quant, np.int8)


@recorded_as("hifi.kernels.elm_quantize")
def elm_quantize(
    inp: Array,
    *,
    precision: str = "asym16s_asym8s",
    inp_zero_bias: Integers,
    out_zero_bias: Integers,
    out_shift: Integers,
    out_multiplier: Integers,
) -> jax.Array:
    """Requantizes int16 to int8 (xa_nn_elm_quantize_asym16s_asym8s, guide 3.6.3).

    Args:
      inp: int16, any nonempty shape.
      precision: the only one of ELM_QUANTIZE.
      inp_zero_bias: the zero point of the input, which this kernel subtracts; [-32768, 32767].
      out_zero_bias: the zero point of the output, [-128, 127].
      out_shift: bits in [-31, 31], positive to the left.
      out_multiplier: Q31, above 0.

    Returns:
      int8, the shape of `inp`.

    Raises:
      NNLibParamError: the library rejects a parameter.
      TypeError: an argument has the wrong type.

    Example:
      >>> import numpy as np
      >>> from tosajax.hifi import kernels
      >>> kernels.elm_quantize(
      ...     np.int16([100, 1000]),
      ...     inp_zero_bias=0, out_zero_bias=0, out_shift=0, out_multiplier=2**30,
      ... ).tolist()
      [50, 127]
    """
    name = f"elm_quantize {precision}"
    check_in(name, "precision", precision, ELM_QUANTIZE)
    check_not_empty(name, "p_inp", inp, np.int16)
    check_range(name, "inp_zero_bias", inp_zero_bias, -(2**15), 2**15 - 1)
    quant = Quant(0, 0, out_multiplier, out_shift, out_zero_bias)
    _check_output(name, np.int8, quant)
    return finish_quantized(_plus(inp, -as_int32(inp_zero_bias)), quant, np.int8)


def elm_floor(inp: Array, *, precision: str = "f32_f32") -> jax.Array:
    """Rounds down to integers (xa_nn_elm_floor_f32_f32, guide 3.6.4).

    Args:
      inp: float32, any shape.
      precision: the only one of ELM_FLOOR.

    Returns:
      float32, the shape of `inp`.

    Raises:
      NNLibParamError: the library rejects a parameter.
      TypeError: an argument has the wrong type.

    Example:
      >>> import numpy as np
      >>> from tosajax.hifi import kernels
      >>> kernels.elm_floor(np.float32([-1.5, 1.5])).tolist()
      [-2.0, 1.0]
    """
    name = f"elm_floor {precision}"
    check_in(name, "precision", precision, ELM_FLOOR)
    check_dtype(name, "p_inp", inp, np.float32)
    return ops.floor(jnp.asarray(inp))


@recorded_as("hifi.kernels.elm_add")
def elm_add(
    inp1: Array,
    inp2: Array,
    *,
    precision: str = "asym8sxasym8s_asym8s",
    out_zero_bias: Integers,
    out_shift: Integers,
    out_multiplier: Integers,
    out_activation_min: Integers,
    out_activation_max: Integers,
    inp1_zero_bias: Integers,
    inp1_shift: Integers,
    inp1_multiplier: Integers,
    inp2_zero_bias: Integers,
    inp2_shift: Integers,
    inp2_multiplier: Integers,
    left_shift: Integers,
) -> jax.Array:
    """Adds quantized vectors, as ADD of TFLite does (xa_nn_elm_add_*, guide 3.6.4).

    Each input plus its zero bias is shifted and scaled; the sum is scaled again.

    Args:
      inp1: int8 or uint8, by `precision`; any nonempty shape.
      inp2: the type and shape of `inp1`.
      precision: one of ELM_ADD.
      out_zero_bias: the zero point of the output, in its range.
      out_shift: bits in [-31, 31], positive to the left.
      out_multiplier: Q31, above 0.
      out_activation_min: the smallest result, in the range of the output.
      out_activation_max: the largest result, above out_activation_min.
      inp1_zero_bias: minus a zero point, [-127, 128], or [-255, 0] for uint8.
      inp1_shift: shift of the first input; see out_shift.
      inp1_multiplier: multiplier of the first input; see out_multiplier.
      inp2_zero_bias: see inp1_zero_bias.
      inp2_shift: shift of the second input; see out_shift.
      inp2_multiplier: multiplier of the second input; see out_multiplier.
      left_shift: left shift of both inputs before scaling; bits in [0, 31].

    Returns:
      The type and shape of `inp1`.

    Raises:
      NNLibParamError: the library rejects a parameter.
      TypeError: an argument has the wrong type.

    Example:
      >>> import numpy as np
      >>> from tosajax.hifi import kernels
      >>> y = kernels.elm_add(
      ...     np.int8([1, 100]), np.int8([2, 100]),
      ...     out_zero_bias=0, out_shift=1, out_multiplier=2**30,
      ...     out_activation_min=-128, out_activation_max=127,
      ...     inp1_zero_bias=0, inp1_shift=1, inp1_multiplier=2**30,
      ...     inp2_zero_bias=0, inp2_shift=1, inp2_multiplier=2**30, left_shift=0,
      ... )
      >>> y.tolist()
      [3, 127]
    """
    name = f"elm_add {precision}"
    quant = Quant(0, 0, out_multiplier, out_shift, out_zero_bias)
    bounds = out_activation_min, out_activation_max
    dtype = _check_operands(name, precision, inp1, inp2, quant, bounds)
    check_range(name, "left_shift", left_shift, 0, 31)
    scaled = []
    for at, inp, zero_bias, shift, multiplier in (
        ("inp1", inp1, inp1_zero_bias, inp1_shift, inp1_multiplier),
        ("inp2", inp2, inp2_zero_bias, inp2_shift, inp2_multiplier),
    ):
        _check_zero_bias(name, f"{at}_zero_bias", zero_bias, dtype)
        _check_scale(name, at, shift, multiplier)
        wide = qformat.saturating_shift(_plus(inp, as_int32(zero_bias)), as_int32(left_shift))
        scaled.append(qformat.requantize(wide, as_int32(multiplier), as_int32(shift)))
    return _limit(finish_quantized(scaled[0] + scaled[1], quant, dtype), bounds)


@recorded_as("hifi.kernels.elm_mul")
def elm_mul(
    inp1: Array,
    inp2: Array,
    *,
    precision: str = "asym8sxasym8s_asym8s",
    out_zero_bias: Integers,
    out_shift: Integers,
    out_multiplier: Integers,
    out_activation_min: Integers,
    out_activation_max: Integers,
    inp1_zero_bias: Integers,
    inp2_zero_bias: Integers,
) -> jax.Array:
    """Multiplies quantized vectors, as MUL of TFLite does (xa_nn_elm_mul_*, guide 3.6.4).

    Args:
      inp1: int8 or uint8, by `precision`; any nonempty shape.
      inp2: the type and shape of `inp1`.
      precision: one of ELM_MUL.
      out_zero_bias: the zero point of the output, in its range.
      out_shift: bits in [-31, 31], positive to the left.
      out_multiplier: Q31, above 0.
      out_activation_min: the smallest result, in the range of the output.
      out_activation_max: the largest result, above out_activation_min.
      inp1_zero_bias: minus a zero point, [-127, 128], or [-255, 0] for uint8.
      inp2_zero_bias: see inp1_zero_bias.

    Returns:
      The type and shape of `inp1`.

    Raises:
      NNLibParamError: the library rejects a parameter.
      TypeError: an argument has the wrong type.

    Example:
      >>> import numpy as np
      >>> from tosajax.hifi import kernels
      >>> y = kernels.elm_mul(
      ...     np.int8([3, 100]), np.int8([2, 100]), out_zero_bias=0, out_shift=1,
      ...     out_multiplier=2**30, out_activation_min=-128, out_activation_max=127,
      ...     inp1_zero_bias=0, inp2_zero_bias=0,
      ... )
      >>> y.tolist()
      [6, 127]
    """
    name = f"elm_mul {precision}"
    quant = Quant(0, 0, out_multiplier, out_shift, out_zero_bias)
    bounds = out_activation_min, out_activation_max
    dtype = _check_operands(name, precision, inp1, inp2, quant, bounds)
    _check_zero_bias(name, "inp1_zero_bias", inp1_zero_bias, dtype)
    _check_zero_bias(name, "inp2_zero_bias", inp2_zero_bias, dtype)
    product = _plus(inp1, as_int32(inp1_zero_bias)) * _plus(inp2, as_int32(inp2_zero_bias))
    return _limit(finish_quantized(product, quant, dtype), bounds)


def _saturated_dot(inp1: jax.Array, inp2: jax.Array) -> jax.Array:
    """Computes exact dot products of int16 rows, saturated to int32."""
    products = inp1.astype(jnp.int32) * inp2.astype(jnp.int32)
    with _x64.scope():
        total = lax.reduce_sum(_x64.widen(products), (1,))
    return qformat.saturate_to(total, np.int32)


def _plus(inp: Array, zero_bias: Array) -> jax.Array:
    return jnp.asarray(inp).astype(jnp.int32) + jnp.asarray(zero_bias)


def _limit(result: jax.Array, bounds: tuple[Integers, Integers]) -> jax.Array:
    low, high = (jnp.asarray(bound).astype(result.dtype) for bound in bounds)
    return ops.clamp(result, min_val=low, max_val=high)


def _check_operands(
    name: str,
    precision: str,
    inp1: Array,
    inp2: Array,
    quant: Quant,
    bounds: tuple[Integers, Integers],
) -> type:
    """Checks two inputs and the output's parameters; returns their common type."""
    check_in(name, "precision", precision, _TYPES)
    dtype = _TYPES[precision]
    check_not_empty(name, "p_inp1", inp1, dtype)
    check_array(name, "p_inp2", inp2, dtype, inp1.shape)
    _check_output(name, dtype, quant)
    info = np.iinfo(dtype)
    for end, bound in zip(("min", "max"), bounds, strict=True):
        check_range(name, f"out_activation_{end}", bound, info.min, info.max)
    if not any(isinstance(bound, Tracer) for bound in bounds):
        low, high = (int(bound) for bound in bounds)
        check(low < high, name, "out_activation_max", high, f"above {low}")
    return dtype


def _check_output(name: str, dtype: type, quant: Quant) -> None:
    info = np.iinfo(dtype)
    check_range(name, "out_zero_bias", quant.out_zero_bias, info.min, info.max)
    _check_scale(name, "out", quant.out_shift, quant.out_multiplier)


def _check_scale(name: str, of: str, shift: Integers, multiplier: Integers) -> None:
    check_shift(name, f"{of}_shift", shift)
    check_range(name, f"{of}_multiplier", multiplier, 1, 2**31 - 1)


def _check_zero_bias(name: str, argument: str, zero_bias: Integers, dtype: type) -> None:
    info = np.iinfo(dtype)
    # The negatives of the zero points that the guide allows.
    low, high = (-127, 128) if info.min else (-255, 0)
    check_range(name, argument, zero_bias, low, high)
