"""Conversions of dtype ("Type Conversion", TOSA 1.0.1)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np

from tosajax import spec
from tosajax.dtypes import DType
from tosajax.from_jax.step import Step
from tosajax.from_jax.values import ARRAY_TYPES, Value
from tosajax.spec import NanMode


def convert_element_type(step: Step, x: Value) -> Value:
    """CAST, through float32 if TOSA lacks the pair, after operators for JAX's semantics.

    Floats are truncated to integers, NaN becomes 0, and bool is true for numbers other than 0.
    """
    source, target = step.tosa_type(x.dtype), step.tosa_type(step.out.dtype)
    if source is target:
        return x
    if target is DType.INT48:
        raise step.unsupported_type(step.out.dtype)
    from_float, to_float = _is_float(x.dtype), _is_float(step.out.dtype)
    if source is DType.BOOL and to_float:
        return _from_bool(step, x)
    if from_float and target is DType.BOOL:
        return step.jax(lambda x: x != jnp.zeros((), x.dtype), x)
    if from_float and not to_float:
        return step.cast(_truncated(step, x), step.out.dtype)
    return _cast(step, x, source, target)


def _is_float(dtype: np.dtype) -> bool:
    return jnp.issubdtype(dtype, np.floating)


def _from_bool(step: Step, x: Value) -> Value:
    """bool as 1 or 0."""
    one, zero = (np.asarray(n, step.out.dtype) for n in (1, 0))
    return step.jax(lambda x: jnp.where(x, one, zero), x)


def _truncated(step: Step, x: Value) -> Value:
    """The truncated float: FLOOR of its positive part plus CEIL of its negative; 0 for NaN."""
    x = _cast(step, x, step.tosa_type(x.dtype), DType.FP32) if x.dtype.itemsize == 1 else x
    zero, infinity = x.dtype.type(0), x.dtype.type(np.inf)
    ignore = NanMode.IGNORE
    above = step.op("CLAMP", x, min_val=zero, max_val=infinity, nan_mode=ignore)
    below = step.op("MINIMUM", x, step.like(0, x), nan_mode=ignore)
    return step.op("ADD", step.op("FLOOR", above), step.op("CEIL", below))


def _cast(step: Step, x: Value, source: DType, target: DType) -> Value:
    """One CAST, or two through float32."""
    for way in ((target,), (DType.FP32, target)):
        pairs = zip((source, *way), way, strict=False)
        if all(pair in _casts() for pair in pairs):
            for dtype in way:
                x = step.cast(x, ARRAY_TYPES[dtype])
            return x
    is_wide = source is DType.INT48
    instead = "tosajax.ops.rescale narrows int48" if is_wide else _INSTEAD
    raise step.unsupported(
        f"a conversion of {x.dtype} to {step.out.dtype}", "types that CAST has", instead
    )


_INSTEAD = "convert constants outside of the function"


def _casts() -> set[tuple[DType | None, DType | None]]:
    """The pairs of types that CAST supports."""
    cast = spec.OPERATORS["CAST"]
    return {(r.type_of(cast.inputs[0]), r.type_of(cast.outputs[0])) for r in cast.types}


def reduce_precision(step: Step, x: Value) -> Value:
    """CAST to a narrower float and back; subnormals of that type become 0, as in XLA."""
    bits = step.params["exponent_bits"], step.params["mantissa_bits"]
    own = jnp.finfo(x.dtype)
    if bits[0] >= own.nexp and bits[1] >= own.nmant:
        return x
    if bits not in _NARROWER or own.nexp < bits[0] or own.nmant < bits[1]:
        wanted = " or ".join(f"{e} and {m}" for e, m in _NARROWER)
        asked = f"{bits[0]} bits of exponent and {bits[1]} of mantissa"
        raise step.unsupported(asked, wanted, "TOSA has those types alone")
    narrow = _NARROWER[bits]
    least = _smallest_to_normal(narrow)
    if least < own.smallest_normal:
        return step.jax(lambda x: x.astype(narrow).astype(x.dtype), x)
    return step.jax(lambda x: _without_subnormal(x, narrow, least), x)


def _without_subnormal(x: jax.Array, narrow: np.dtype, least: float) -> jax.Array:
    rounded = x.astype(narrow).astype(x.dtype)
    return jnp.where(jnp.abs(x) < least, x * 0, rounded)


def _smallest_to_normal(narrow: np.dtype) -> float:
    """The smallest number that rounds to a normal one."""
    info = jnp.finfo(narrow)
    return float(info.smallest_normal) * (1 - 2.0 ** (-info.nmant - 2))


# TOSA's types by bits of exponent and mantissa, without FP8E4M3, which does not have infinities.
_NARROWER = {
    (8, 7): np.dtype(ml_dtypes.bfloat16),
    (5, 10): np.dtype(np.float16),
    (5, 2): np.dtype(ml_dtypes.float8_e5m2),
}

# Advice on primitives without a rule.
HINTS = {"bitcast_convert_type": "compute with numbers; TOSA does not show the bits of floats"}

RULES = {"convert_element_type": convert_element_type, "reduce_precision": reduce_precision}
