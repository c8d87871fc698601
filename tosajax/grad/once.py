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

from tosajax.grad.qtensor import QTensor


def once(x: jax.Array) -> jax.Array:
    """x to the last bit: bool, integers, or float32."""
    if x.dtype.itemsize == 1:  # LLVM has no vectors for divisions of bytes
        return once(x.astype(jnp.int16)).astype(x.dtype)
    if jnp.issubdtype(x.dtype, jnp.floating):
        return lax.bitcast_convert_type(once(lax.bitcast_convert_type(x, jnp.int32)), x.dtype)
    # XLA divides the smallest integer by -1 to itself.
    return -lax.div(x, np.full((), -1, x.dtype))


@jax.custom_jvp
def once_in_gradients(x: jax.Array, shadow: jax.Array) -> jax.Array:
    """Integers x: `once` where gradients through their shadow are asked for, else just x.

    Without gradients it is faster to compute them in each step that reads them.
    """
    del shadow
    return x


@once_in_gradients.defjvp
def _kept(primals: tuple[jax.Array, jax.Array], tangents: Any) -> tuple[jax.Array, Any]:
    del tangents
    x, _ = primals
    return once(x), np.zeros(x.shape, jax.dtypes.float0)


def sums_once(operator: Callable[..., Any]) -> Callable[..., Any]:
    """An operator whose int32 results, which RESCALEs and their gradients read, are held so."""

    @functools.wraps(operator)
    def call(*operands: Any, **attributes: Any) -> Any:
        result = operator(*operands, **attributes)
        is_sum = isinstance(result, QTensor) and result.dtype == jnp.int32
        return held_in_gradients(result) if is_sum else result

    return call


def held_in_gradients(x: QTensor) -> QTensor:
    """The same integers, computed once where gradients are asked for."""
    return QTensor(once_in_gradients(x.q, x.shadow), x.shadow)


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
