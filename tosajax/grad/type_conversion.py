"""Gradients of conversions."""

from __future__ import annotations

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tosajax import ops
from tosajax.dtypes import DType
from tosajax.grad._exact import exact
from tosajax.grad._range import power_of_two, range_of
from tosajax.grad.estimators import Estimator, clipped_ste, ste
from tosajax.grad.once import gradient_once, once
from tosajax.grad.qtensor import Multiplier, QTensor, Value, follow, payload, tie


def cast(input: Value, *, out_type: DType, estimate: Estimator = clipped_ste) -> Any:
    """1 where the value is kept; to integers the estimator; 0 to and from bool."""
    result = ops.cast(payload(input), out_type=out_type)
    if out_type is DType.BOOL:
        return result
    if not isinstance(input, QTensor) and input.dtype == jnp.bool_:
        return QTensor.of(result) if out_type.is_integer else result
    value = tie(input)
    if out_type.is_float:
        is_kept = jnp.isfinite(result)
        return follow(result, jnp.where(is_kept, value, lax.stop_gradient(value)))
    if not isinstance(input, QTensor):
        wide = value.astype(jnp.float32)
        return QTensor(result, estimate(wide, *range_of(out_type.storage)))
    # Narrowing keeps the low bits: values out of range are lost.
    is_kept = result.astype(input.dtype) == input.q
    source = jnp.where(is_kept, value, lax.stop_gradient(value))
    return QTensor(result, follow(result.astype(jnp.float32), source))


@functools.wraps(ops.rescale)
def _rescale(*operands: jax.Array, **attributes: Any) -> jax.Array:
    result = ops.rescale(*operands, **attributes)
    return once(result) if result.dtype.itemsize <= 2 else result


@exact(_rescale, estimates=True)
def rescale(
    input: QTensor,
    multiplier: QTensor,
    shift: QTensor,
    input_zp: QTensor,
    output_zp: QTensor,
    *,
    per_channel: bool,
    input_unsigned: bool,
    output_unsigned: bool,
    estimate: Estimator,
    **attributes: Any,
) -> jax.Array:
    """(x - input_zp) * scale + output_zp, and the estimator."""
    del attributes
    scale = _scale(multiplier, shift)
    scale = scale.reshape((1,) * (len(input.shape) - 1) + (-1,) if per_channel else ())
    value = _read(input, input_unsigned) - _read(input_zp, input_unsigned).reshape(())
    value = value * scale + _read(output_zp, output_unsigned).reshape(())
    # int32 does not saturate: a scaled value out of its range is undefined.
    is_wide = output_zp.dtype == np.int32
    ends = (-math.inf, math.inf) if is_wide else range_of(output_zp.dtype, unsigned=output_unsigned)
    result = estimate(value, *ends)
    return result if estimate is ste else gradient_once(result)


def rescale_before_clamp(*operands: Any, **attributes: Any) -> Any:
    """RESCALE with the default estimator, if its only reader is a CLAMP.

    The bounds of the CLAMP lie within the type, so it stops every gradient that saturation stops.
    """
    # CLAMP has signed bounds: it does not limit the range of unsigned values.
    estimate = clipped_ste if attributes["output_unsigned"] else ste
    return rescale(*operands, estimate=estimate, **attributes)


def _scale(multiplier: QTensor, shift: QTensor) -> jax.Array:
    """multiplier / 2**shift, with the gradient of the multiplier's shadow."""
    if isinstance(multiplier, Multiplier):
        return multiplier.shadow
    scale = multiplier.q.astype(jnp.float32) * power_of_two(-shift.q.astype(jnp.int32))
    return follow(once(scale), multiplier.shadow)


def _read(x: QTensor, unsigned: bool) -> jax.Array:
    """The values of the bits, read as signed or unsigned."""
    if not unsigned:
        return tie(x)
    return tie(x) + jnp.where(x.q < 0, jnp.float32(2 ** (8 * x.dtype.itemsize)), jnp.float32(0))
