"""Activations of vectors ("Activation Kernels", guide 3.3).

Fixed-point sigmoid, tanh and softmax read Q6.25. The guide states their formats but not their
coefficients, so `activation` selects the method: "fixed", with integers only; "ideal", the exact
result correctly rounded, from float64; or user-defined `ActivationCoefficients` with the method of
"fixed". The coefficients of "fixed" are tosajax's own: results may differ from the library's.

Over all 2**32 inputs, sigmoid and tanh in "fixed" are monotonic, and differ from "ideal" by one
unit for at most 0.4 % of the inputs within [-12, 12]; elsewhere they are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer

from tosajax import ops
from tosajax.fixedpoint import _x64, qformat
from tosajax.fixedpoint.scale import apply_scale_32
from tosajax.hifi.kernels import _gemmlowp, _q31
from tosajax.hifi.kernels._check import (
    INT32,
    check,
    check_dtype,
    check_in,
    check_not_empty,
    check_number,
    check_range,
    check_shift,
    check_type,
)
from tosajax.hifi.kernels._precision import Array, Integers, Reals
from tosajax.ops.recording import is_recording, recorded_as
from tosajax.ops.routes.float_dot import sum_last
from tosajax.report import UnsupportedError

SIGMOID = ("32_32", "32_16", "32_8", "f32_f32", "asym8u_asym8u")
TANH = ("32_32", "32_16", "32_8", "f32_f32")
SOFTMAX = ("32_32", "f32_f32", "asym8u_asym8u", "asym8s_asym8s", "asym8s_16")
RELU = {
    "relu": ("32_32", "f32_f32", "16_16", "8_8"),
    "relu1": ("32_32", "f32_f32"),
    "relu6": ("32_32", "f32_f32"),
    "relu_std": ("32_32", "f32_f32", "16_16", "8_8"),
}
ACTIVATION_MIN_MAX = ("f32_f32", "asym8u_asym8u", "16_16", "8_8")

_INPUT = {
    "32_32": np.int32,
    "32_16": np.int32,
    "32_8": np.int32,
    "f32_f32": np.float32,
    "16_16": np.int16,
    "8_8": np.int8,
    "asym8u_asym8u": np.uint8,
    "asym8s_asym8s": np.int8,
    "asym8s_16": np.int8,
}
_OUTPUT = {"32_32": np.int32, "32_16": np.int16, "32_8": np.int8}
# 32_32 has the range of 32_16: the largest result is also 0x7FFF.
_RANGE = {**_OUTPUT, "32_32": np.int16}
_FRACTION = {"32_32": 15, "32_16": 15, "32_8": 7}
_INPUT_UNIT = 2.0**-25
_MAXIMUM = 2**31 - 1
# Sums of exponentials are in Q8.23.
_SUM_SHIFT = 31 - 23


class ActivationCoefficients(NamedTuple):
    """The coefficients of fixed-point sigmoid, tanh and softmax, int32 in Q31; all may be traced.

    exp(-x) is computed as 2**-(n + f) with an integer n and a fraction f, where a polynomial
    approximates 2**-f. Sigmoid is 1 / (1 + t) for t = exp(-x), tanh is (1 - t) / (1 + t) for
    t = exp(-2x). Two steps of Newton's method compute the reciprocal. Products are rounded half up
    and saturated after each step.

    Args:
      sigmoid_scale: log2(e) / 4, scales x in Q6.25 to n + f in Q23; also used by softmax.
      tanh_scale: log2(e) / 2, scales x in Q6.25 to n + f in Q23 for 2x.
      exponential: a polynomial for 2**-f, f in [0, 1); highest power first.
      reciprocal: a polynomial for 1 / (1 + t), t in [0, 1], the initial value of Newton's method;
        highest power first.

    Example:
      >>> import jax
      >>> import numpy as np
      >>> from tosajax.hifi import kernels
      >>> own = kernels.ActivationCoefficients(
      ...     sigmoid_scale=774541002,
      ...     tanh_scale=1549082005,
      ...     exponential=(14712409, -114409613, 514316526, -1488361146, 2147483647),
      ...     reciprocal=(694136129, -1735340322, 2125791894),
      ... )
      >>> sigmoid = jax.jit(lambda x: kernels.sigmoid(x, activation=own))
      >>> sigmoid(np.int32([0, 1 << 25])).tolist()  # of 0 and 1, in Q15
      [16384, 23955]
    """

    sigmoid_scale: Integers
    tanh_scale: Integers
    exponential: Sequence[Integers] | Array
    reciprocal: Sequence[Integers] | Array


# From tools/derive_activations.py. The errors are at most 2**-18.7 for the exponential, and 1 / 99
# for the reciprocal before Newton's method.
FIXED = ActivationCoefficients(
    sigmoid_scale=774541002,
    tanh_scale=1549082005,
    exponential=(14712409, -114409613, 514316526, -1488361146, 2147483647),
    reciprocal=(694136129, -1735340322, 2125791894),
)


class SigmoidQuant(NamedTuple):
    """The input quantization parameters of asym8u sigmoid; all may be traced.

    Args:
      zero_point: zero point of the input, in [0, 255].
      input_range_radius: distance from the zero point beyond which the result is 0 or 255; in
        [0, 255].
      input_multiplier: Q31, not negative; scales, with the shift, the input to Q4.27.
      input_left_shift: bits in [-31, 31].

    Example:
      >>> import numpy as np
      >>> from tosajax.hifi import kernels
      >>> quant = kernels.SigmoidQuant(128, 100, input_multiplier=2**30, input_left_shift=20)
      >>> kernels.sigmoid(np.uint8([0, 128, 255]), precision="asym8u_asym8u", quant=quant).tolist()
      [0, 128, 255]
    """

    zero_point: Integers
    input_range_radius: Integers
    input_multiplier: Integers
    input_left_shift: Integers


class SoftmaxQuant(NamedTuple):
    """The input quantization parameters of quantized softmax; all may be traced.

    Args:
      diffmin: negative; an exponential counts as 0 if the element less the maximum is below this.
      input_left_shift: bits in [-31, 31].
      input_multiplier: Q31, not negative; scales, with the shift, the input to Q5.26.

    Example:
      >>> import numpy as np
      >>> from tosajax.hifi import kernels
      >>> quant = kernels.SoftmaxQuant(diffmin=-100, input_left_shift=20, input_multiplier=2**30)
      >>> kernels.softmax(np.int8([5, 5]), precision="asym8s_asym8s", quant=quant).tolist()
      [0, 0]
    """

    diffmin: Integers
    input_left_shift: Integers
    input_multiplier: Integers


def sigmoid(
    x: Array,
    *,
    precision: str = "32_16",
    activation: str | ActivationCoefficients = "fixed",
    quant: SigmoidQuant | None = None,
) -> jax.Array:
    """Computes 1 / (1 + e**-x) (xa_nn_vec_sigmoid_*, guide 3.3.1).

    Args:
      x: int32 in Q6.25, float32 or uint8, by `precision`; any nonempty shape.
      precision: input _ output, one of SIGMOID.
      activation: "fixed", "ideal" or coefficients; fixed point only.
      quant: for asym8u_asym8u.

    Returns:
      The shape of `x`: int32 in Q16.15, int16 in Q15, int8 in Q7, float32, or uint8 in units of
      1/256. The largest result in Q16.15 is 0x7FFF, as in Q15.

    Raises:
      NNLibParamError: the library rejects a parameter.
      TypeError: an argument has the wrong type.

    Example:
      >>> import numpy as np
      >>> from tosajax.hifi import kernels
      >>> kernels.sigmoid(np.float32([0]), precision="f32_f32").tolist()
      [0.5]
    """
    name = f"sigmoid {precision}"
    x = _checked(name, x, precision, SIGMOID)
    coefficients = _coefficients(name, activation)
    _check_quant(name, precision, quant, SigmoidQuant)
    if quant is not None:
        return _sigmoid_asym8u(name, x, quant)
    if precision == "f32_f32":
        return ops.sigmoid(x)
    if coefficients is None:
        return _ideal(lax.logistic, x, precision)
    return _from_q31(_sigmoid_q31(x, coefficients), precision)


def tanh(
    x: Array,
    *,
    precision: str = "32_16",
    activation: str | ActivationCoefficients = "fixed",
) -> jax.Array:
    """Computes the hyperbolic tangent (xa_nn_vec_tanh_*, guide 3.3.2).

    Args:
      x: int32 in Q6.25, or float32; any nonempty shape.
      precision: input _ output, one of TANH.
      activation: "fixed", "ideal" or coefficients; fixed point only.

    Returns:
      The shape of `x`: int32 in Q16.15, int16 in Q15, int8 in Q7, or float32. The largest result in
      Q16.15 is 0x7FFF, as in Q15.

    Raises:
      NNLibParamError: the library rejects a parameter.
      TypeError: an argument has the wrong type.

    Example:
      >>> import numpy as np
      >>> from tosajax.hifi import kernels
      >>> kernels.tanh(np.float32([0]), precision="f32_f32").tolist()
      [0.0]
    """
    name = f"tanh {precision}"
    x = _checked(name, x, precision, TANH)
    coefficients = _coefficients(name, activation)
    if precision == "f32_f32":
        return ops.tanh(x)
    if coefficients is None:
        return _ideal(lax.tanh, x, precision)
    return _from_q31(_tanh_q31(x, coefficients), precision)


def softmax(
    x: Array,
    *,
    precision: str = "32_32",
    activation: str | ActivationCoefficients = "fixed",
    quant: SoftmaxQuant | None = None,
) -> jax.Array:
    """Computes softmax over the last axis (xa_nn_vec_softmax_*, guide 3.3.4).

    In "fixed" the sum of exponentials, the largest of which is 1, saturates at 256: 300 equal
    inputs give 1/256 each. Unless the sum saturates, results differ from "ideal" by at most one
    unit.

    Args:
      x: int32 in Q6.25, float32, uint8 or int8, by `precision`; [..., vec_length].
      precision: input _ output, one of SOFTMAX.
      activation: "fixed", "ideal" or coefficients; 32_32 only.
      quant: for quantized precisions.

    Returns:
      The shape of `x`: int32 in Q16.15, float32, uint8 in units of 1/256, int8 in units of 1/256
      minus 128, or int16 in units of 1/65536 minus 32768.

    Raises:
      NNLibParamError: the library rejects a parameter.
      TypeError: an argument has the wrong type.

    Example:
      >>> import numpy as np
      >>> from tosajax.hifi import kernels
      >>> kernels.softmax(np.float32([1, 1]), precision="f32_f32").tolist()
      [0.5, 0.5]
    """
    name = f"softmax {precision}"
    x = _checked(name, x, precision, SOFTMAX)
    check(x.ndim > 0, name, "p_vec", "a scalar", "a vector")
    coefficients = _coefficients(name, activation)
    _check_quant(name, precision, quant, SoftmaxQuant)
    if quant is not None:
        return _softmax_quantized(name, x, quant, precision)
    if precision == "f32_f32":
        powers = lax.exp(x - jnp.max(x, axis=-1, keepdims=True))
        return powers / sum_last(powers)
    # Differences are at most 0; positive values have wrapped.
    below = x - jnp.max(x, axis=-1, keepdims=True)
    below = jnp.where(below > 0, jnp.int32(-(2**31)), below)
    if coefficients is None:
        return _softmax_ideal(below)
    return _softmax_fixed(below, coefficients)


@recorded_as("hifi.kernels.relu")
def relu(
    x: Array, threshold: Reals | None = None, *, kind: str = "relu", precision: str = "32_32"
) -> jax.Array:
    """Limits to [0, threshold] (xa_nn_vec_relu_*, relu1, relu6 and relu_std, guide 3.3.3).

    Args:
      x: int32 in Q6.25, float32, int16 or int8, by `precision`; any shape.
      threshold: for "relu" only, a scalar in the format of the result; if negative, all results
        are 0.
      kind: a key of RELU: "relu1" and "relu6" have the thresholds 1 and 6, "relu_std" none.
      precision: input _ output, one of RELU[kind].

    Returns:
      The shape of `x`: int32 in Q16.15, rounded down, for 32_32, else the type of `x`.

    Raises:
      NNLibParamError: the library rejects a parameter.
      TypeError: an argument has the wrong type.

    Example:
      >>> import numpy as np
      >>> from tosajax.hifi import kernels
      >>> kernels.relu(np.float32([-1, 2, 9]), 6.0, precision="f32_f32").tolist()
      [0.0, 2.0, 6.0]
    """
    check_in("relu", "kind", kind, RELU)
    name = f"{kind} {precision}"
    check_in(name, "precision", precision, RELU[kind])
    check((threshold is not None) == (kind == "relu"), name, "threshold", threshold, "one of relu")
    check_dtype(name, "p_vec", x, _INPUT[precision])
    x = jnp.asarray(x)
    is_wide = precision == "32_32"
    if is_wide:
        x = qformat.saturating_shift(x, 15 - 25)
    if kind in ("relu1", "relu6"):
        threshold = int(kind[-1]) << 15 if is_wide else float(kind[-1])
    if threshold is not None:
        x = jnp.minimum(x, _as_type_of(x, name, "threshold", threshold))
    return jnp.maximum(x, jnp.zeros((), x.dtype))


@recorded_as("hifi.kernels.activation_min_max")
def activation_min_max(
    x: Array, activation_min: Reals, activation_max: Reals, *, precision: str = "16_16"
) -> jax.Array:
    """Limits to [activation_min, activation_max] (xa_nn_vec_activation_min_max_*, guide 3.3.5).

    Args:
      x: float32, uint8, int16 or int8, by `precision`; any nonempty shape.
      activation_min: a scalar in the range of `x`.
      activation_max: a scalar in the range of `x`, not below activation_min.
      precision: input _ output, one of ACTIVATION_MIN_MAX.

    Returns:
      The type and shape of `x`.

    Raises:
      NNLibParamError: the library rejects a parameter.
      TypeError: an argument has the wrong type.

    Example:
      >>> import numpy as np
      >>> from tosajax.hifi import kernels
      >>> kernels.activation_min_max(np.int16([-9, 0, 9]), -5, 5).tolist()
      [-5, 0, 5]
    """
    name = f"activation_min_max {precision}"
    x = _checked(name, x, precision, ACTIVATION_MIN_MAX)
    low = _as_type_of(x, name, "activation_min", activation_min)
    high = _as_type_of(x, name, "activation_max", activation_max)
    if not isinstance(activation_min, Tracer) and not isinstance(activation_max, Tracer):
        holds = bool(np.asarray(activation_min) <= np.asarray(activation_max))
        check(holds, name, "activation_max", activation_max, f"at least {activation_min}")
    return ops.clamp(x, min_val=low, max_val=high)


def _checked(name: str, x: Array, precision: str, precisions: tuple[str, ...]) -> jax.Array:
    check_in(name, "precision", precision, precisions)
    check_not_empty(name, "p_vec", x, _INPUT[precision])
    return jnp.asarray(x)


def _check_quant(name: str, precision: str, quant: object, kind: type) -> None:
    is_quantized = precision.startswith("asym")
    wanted = "given" if is_quantized else "None, as nothing is quantized"
    check((quant is not None) == is_quantized, name, "quant", quant, wanted)
    if is_quantized:
        check_type(name, "quant", quant, kind)


def _as_type_of(x: jax.Array, name: str, argument: str, value: Reals) -> jax.Array:
    """Checks a scalar, and converts it to the type of `x`."""
    if x.dtype == np.float32:
        check_number(name, argument, value)
    else:
        info = np.iinfo(x.dtype)
        check_range(name, argument, value, info.min, info.max)
    return jnp.asarray(value).astype(x.dtype)


def _coefficients(
    name: str, activation: str | ActivationCoefficients
) -> ActivationCoefficients | None:
    """The coefficients of integer activations; None for "ideal"."""
    if isinstance(activation, ActivationCoefficients):
        for field, value in activation._asdict().items():
            check_range(name, field, value, *INT32)
        return activation
    check_in(name, "activation", activation, ("fixed", "ideal"))
    return FIXED if activation == "fixed" else None


def _ideal(function: Callable[[Any], Any], x: jax.Array, precision: str) -> jax.Array:
    """Computes a function of Q6.25, correctly rounded.

    For every int32 except 0, the exact value is at least 3e-11 units from the midpoint of two
    results. The error of float64 is smaller, so it rounds as the exact value does.
    """
    _check_not_recorded()
    info = np.iinfo(_RANGE[precision])
    with _x64.scope():
        value = function(_real(x)) * np.float64(2.0 ** _FRACTION[precision])
        value = lax.floor(value + np.float64(0.5))
        value = lax.clamp(np.float64(info.min), value, np.float64(info.max))
        return lax.convert_element_type(value, _OUTPUT[precision])


def _check_not_recorded() -> None:
    if is_recording():
        wanted = "'fixed' or coefficients; or leave a layer as CUSTOM"
        raise UnsupportedError(f"activation 'ideal' takes float64, expected {wanted}")


def _real(x: jax.Array) -> jax.Array:
    """Converts Q6.25 to float64; call it inside `_x64.scope()`."""
    return lax.convert_element_type(x, np.float64) * np.float64(_INPUT_UNIT)


def _exponential(
    x: jax.Array, scale: Integers, coefficients: Sequence[Integers] | Array
) -> jax.Array:
    """Computes 2**-|x * scale| in Q31, where x * scale is in Q23."""
    exponent = lax.abs(_q31.multiply_floor(x, jnp.asarray(scale, jnp.int32)))
    fraction = (exponent & jnp.int32((1 << 23) - 1)) << jnp.int32(31 - 23)
    power = _q31.polynomial(coefficients, fraction)
    return qformat.shift_right_half_up(power, exponent >> jnp.int32(23))


def _sigmoid_q31(x: jax.Array, coefficients: ActivationCoefficients) -> jax.Array:
    t = _exponential(x, coefficients.sigmoid_scale, coefficients.exponential)
    upper = _q31.reciprocal_of_one_plus(t, coefficients.reciprocal)
    return jnp.where(x < 0, _q31.one_less(upper), upper)


def _tanh_q31(x: jax.Array, coefficients: ActivationCoefficients) -> jax.Array:
    t = _exponential(x, coefficients.tanh_scale, coefficients.exponential)
    reciprocal = _q31.reciprocal_of_one_plus(t, coefficients.reciprocal)
    upper = _q31.multiply_half_up(jnp.int32(_MAXIMUM) - t, reciprocal)
    return jnp.where(x < 0, -upper, upper)


def _from_q31(value: jax.Array, precision: str) -> jax.Array:
    rounded = qformat.shift_right_half_up(value, 31 - _FRACTION[precision])
    return qformat.saturate_to(rounded, _RANGE[precision]).astype(_OUTPUT[precision])


def _softmax_ideal(below: jax.Array) -> jax.Array:
    """Computes softmax in Q16.15 from Q6.25 values <= 0, in float64."""
    _check_not_recorded()
    last = below.ndim - 1
    with _x64.scope():
        powers = lax.exp(_real(below))
        total = lax.expand_dims(lax.reduce_sum(powers, (last,)), (last,))
        share = powers / total * np.float64(2.0**15)
        return lax.convert_element_type(lax.floor(share + np.float64(0.5)), np.int32)


def _softmax_fixed(below: jax.Array, coefficients: ActivationCoefficients) -> jax.Array:
    """Computes softmax in Q16.15 from Q6.25 values <= 0, in integers."""
    last = below.ndim - 1
    powers = _exponential(below, coefficients.sigmoid_scale, coefficients.exponential)
    with _x64.scope():
        total = lax.expand_dims(lax.reduce_sum(_x64.widen(powers), (last,)), (last,))
    total = qformat.shift_right_half_up(total, _SUM_SHIFT)
    total = qformat.saturate_to(total, np.int32)
    # total is (1 + t) * 2**(31 - zeros), and the shift keeps t.
    zeros = lax.clz(total)
    t = (total << zeros) & jnp.int32(_MAXIMUM)
    reciprocal = _q31.reciprocal_of_one_plus(t, coefficients.reciprocal)
    shift = jnp.int32(31 + 31 - 15 + _SUM_SHIFT) - zeros
    return apply_scale_32(powers, reciprocal, shift.astype(jnp.int8))


def _sigmoid_asym8u(name: str, x: jax.Array, quant: SigmoidQuant) -> jax.Array:
    check_range(name, "zero_point", quant.zero_point, 0, 255)
    check_range(name, "input_range_radius", quant.input_range_radius, 0, 255)
    check_range(name, "input_multiplier", quant.input_multiplier, 0, _MAXIMUM)
    check_shift(name, "input_left_shift", quant.input_left_shift)
    centred = x.astype(jnp.int32) - _int32(quant.zero_point)
    multiplier, shift = _int32(quant.input_multiplier), _int32(quant.input_left_shift)
    value = _gemmlowp.logistic(qformat.requantize(centred, multiplier, shift))
    # 256 does not fit uint8.
    result = jnp.minimum(qformat.shift_right_half_away(value, 31 - 8), jnp.int32(255))
    radius = _int32(quant.input_range_radius)
    result = jnp.where(centred < -radius, jnp.int32(0), result)
    return jnp.where(centred > radius, jnp.int32(255), result).astype(jnp.uint8)


def _softmax_quantized(name: str, x: jax.Array, quant: SoftmaxQuant, precision: str) -> jax.Array:
    check_range(name, "diffmin", quant.diffmin, *INT32)
    check_range(name, "input_multiplier", quant.input_multiplier, 0, _MAXIMUM)
    check_shift(name, "input_left_shift", quant.input_left_shift)
    out, bits = (np.int16, 16) if precision == "asym8s_16" else (x.dtype, 8)
    wide = x.astype(jnp.int32)
    below = wide - jnp.max(wide, axis=-1, keepdims=True)
    multiplier, shift = _int32(quant.input_multiplier), _int32(quant.input_left_shift)
    scaled = qformat.requantize(below, multiplier, shift)
    counts = below >= _int32(quant.diffmin)
    powers = jnp.where(counts, _gemmlowp.exp_of_negative(scaled, integer_bits=5), jnp.int32(0))
    # Q12.19: sums of up to 4096 elements fit, as unsigned integers up to 8192.
    terms = qformat.shift_right_half_away(powers, 12)
    total = jnp.sum(terms, axis=-1, keepdims=True, dtype=jnp.int32)
    # total is (1 + t) * 2**(31 - zeros), and the shift keeps t.
    zeros = lax.clz(total)
    reciprocal = _gemmlowp.one_over_one_plus((total << zeros) & jnp.int32(_MAXIMUM))
    share = _q31.multiply_half_up(powers, reciprocal)
    share = qformat.shift_right_half_away(share, jnp.int32(12 + 31 - bits) - zeros)
    least = np.iinfo(out).min
    return qformat.saturate_to(share + jnp.int32(least), out)


def _int32(value: Integers) -> jax.Array:
    return jnp.asarray(value).astype(jnp.int32)
