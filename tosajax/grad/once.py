"""Tensors that a training program computes once, however many of its steps read them.

XLA:CPU copies a chain of cheap operations into each step that reads its result. In the reverse mode
many steps read the results of each layer, and those of all layers after it, so that a deep network
would be computed again and again: programs grew with the square of its depth. A division counts
as expensive and is computed once, with all that lies before it; one by -1 has the same bits, but
for the sign. `lax.optimization_barrier` would not do: XLA:CPU takes it out first.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir


def once(x: jax.Array) -> jax.Array:
    """x to the last bit: bool, integers, or float32."""
    if x.dtype.itemsize == 1:  # LLVM has no vectors for divisions of bytes
        return once(x.astype(jnp.int16)).astype(x.dtype)
    if jnp.issubdtype(x.dtype, jnp.floating):
        return lax.bitcast_convert_type(once(lax.bitcast_convert_type(x, jnp.int32)), x.dtype)
    # XLA divides the smallest integer by -1 to itself.
    return -lax.div(x, np.full((), -1, x.dtype))


def sums_once(kernel: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
    """A kernel whose int32 results, which RESCALEs and their gradients read, are computed once."""

    @functools.wraps(kernel)
    def call(*operands: jax.Array, **attributes: Any) -> jax.Array:
        result = kernel(*operands, **attributes)
        return once(result) if result.dtype == jnp.int32 else result

    return call


def gradient_once(x: jax.Array) -> jax.Array:
    """float32 x itself, whose gradient in reverse mode is computed once."""
    return _passed.bind(x)


# Both are linear, and differentiable any number of times. They are primitives because JAX has no
# function whose transpose alone can be chosen.
_fenced, _passed = Primitive("once"), Primitive("gradient_once")


def _transposed(cotangent: jax.Array | ad.Zero, x: object) -> Sequence[jax.Array | ad.Zero]:
    del x
    return [cotangent if isinstance(cotangent, ad.Zero) else _fenced.bind(cotangent)]


for _primitive in (_fenced, _passed):
    _primitive.def_impl(lambda x: x)
    _primitive.def_abstract_eval(lambda x: x)
    ad.deflinear2(_primitive, _transposed)
    batching.defvectorized(_primitive)
mlir.register_lowering(_fenced, mlir.lower_fun(once, multiple_results=False))
mlir.register_lowering(_passed, lambda context, x: [x])
