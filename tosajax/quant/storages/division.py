"""Quotients with the same bits in every program."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import core, lax
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir


def divide(a: jax.Array, b: jax.Array) -> jax.Array:
    """a / b, correctly rounded, in every program; float32, of shapes that broadcast."""
    rank = max(a.ndim, b.ndim)
    return _quotient.bind(*(x.reshape((1,) * (rank - x.ndim) + x.shape) for x in (a, b)))


def reciprocal(scale: jax.Array) -> jax.Array:
    """1 / scale, correctly rounded.

    Without the barrier XLA joins a scale that is a quotient or a constant to this quotient, or to
    a product.
    """
    scale = lax.optimization_barrier(scale)
    return divide(jnp.ones_like(scale), scale)


def _divide(a: jax.Array, b: jax.Array) -> jax.Array:
    """The quotient in XLA.

    XLA divides by a constant, or an array by a scalar, in two roundings: it multiplies by the
    reciprocal. It does not where each element chooses its divisor.
    """
    return a / jnp.where(jnp.isnan(a), a, b)


def _differentiate(
    operands: Sequence[jax.Array], tangents: Sequence[jax.Array | ad.Zero]
) -> tuple[jax.Array, jax.Array | ad.Zero]:
    """(da - a * (db / b)) / b, without the choice.

    Not by the quotient: where it overflows, a cotangent of 0 would give NaN.
    """
    a, b = operands
    da, db = tangents
    result = _quotient.bind(a, b)
    if isinstance(db, ad.Zero):
        return result, ad.Zero(jax.typeof(result)) if isinstance(da, ad.Zero) else da / b
    of_b = -a * (db / b)
    return result, (of_b if isinstance(da, ad.Zero) else da + of_b) / b


# A primitive, as the rule of a `jax.custom_jvp` is lost in some programs (see `ops._follow`).
_quotient = Primitive("quotient")
_quotient.def_impl(jax.jit(_divide))
_quotient.def_abstract_eval(
    lambda a, b: core.ShapedArray(np.broadcast_shapes(a.shape, b.shape), a.dtype)
)
ad.primitive_jvps[_quotient] = _differentiate
batching.defbroadcasting(_quotient)
mlir.register_lowering(_quotient, mlir.lower_fun(_divide, multiple_results=False))
