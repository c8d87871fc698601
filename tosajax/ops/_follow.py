"""A value with the gradient of another.

It is a primitive because a `jax.custom_jvp` does not suffice: when a `lax.scan` is differentiated
twice, in reverse mode first, JAX 0.10 replaces the `custom_jvp` by its function and loses its rule.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

_follow = Primitive("follow")


def follow(value: jax.Array, source: jax.Array) -> jax.Array:
    """Returns `value`, bit for bit, with the gradient of `source`, a float of the same shape."""
    return _follow.bind(value, source)


def _value(value: jax.Array, source: jax.Array) -> jax.Array:
    del source
    return value


def _differentiate(primals: Sequence[jax.Array], tangents: Sequence):
    value, _ = primals
    _, tangent = tangents
    result = follow(*primals)
    if isinstance(tangent, ad.Zero):
        return result, ad.Zero(jax.typeof(result))
    return result, tangent.astype(value.dtype)


def _batch(operands: Sequence[jax.Array], axes: Sequence[int | None]) -> tuple[jax.Array, int]:
    (size,) = {x.shape[axis] for x, axis in zip(operands, axes, strict=True) if axis is not None}
    value, source = (
        jnp.broadcast_to(x, (size, *x.shape)) if axis is None else jnp.moveaxis(x, axis, 0)
        for x, axis in zip(operands, axes, strict=True)
    )
    return follow(value, source), 0


_follow.def_impl(_value)
_follow.def_abstract_eval(_value)
ad.primitive_jvps[_follow] = _differentiate
batching.primitive_batchers[_follow] = _batch
mlir.register_lowering(_follow, lambda context, value, source: [value])
