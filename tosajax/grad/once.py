"""Makes XLA compute a tensor once, for any number of instructions that read it.

XLA:CPU copies a chain of cheap operations into each instruction that reads its result. In reverse
mode many instructions read the results of a layer, and the results of all later layers depend on
it: without this module, programs grow with the square of a network's depth. A division counts as
expensive and is computed once, together with its operands; division by -1 changes only the sign.
`lax.optimization_barrier` does not help: XLA:CPU removes it before fusion.
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
    """x, bit for bit, computed once; bool, integers, or float32."""
    if x.dtype.itemsize == 1:  # LLVM does not vectorize divisions of bytes
        return once(x.astype(jnp.int16)).astype(x.dtype)
    if jnp.issubdtype(x.dtype, jnp.floating):
        return lax.bitcast_convert_type(once(lax.bitcast_convert_type(x, jnp.int32)), x.dtype)
    # XLA defines the smallest integer divided by -1 as itself.
    return -lax.div(x, np.full((), -1, x.dtype))


@jax.custom_jvp
def once_in_gradients(x: jax.Array, shadow: jax.Array) -> jax.Array:
    """Integers x: `once(x)` if gradients through their shadow are computed, else x.

    Without gradients it is faster to compute them in each instruction that reads them.
    """
    del shadow
    return x


@once_in_gradients.defjvp
def _kept(primals: tuple[jax.Array, jax.Array], tangents: Any) -> tuple[jax.Array, Any]:
    del tangents
    x, _ = primals
    return once(x), np.zeros(x.shape, jax.dtypes.float0)


def sums_once(operator: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps an operator: `held_in_gradients` of its int32 results, which RESCALEs read."""

    @functools.wraps(operator)
    def call(*operands: Any, **attributes: Any) -> Any:
        result = operator(*operands, **attributes)
        is_sum = isinstance(result, QTensor) and result.dtype == jnp.int32
        return held_in_gradients(result) if is_sum else result

    return call


def held_in_gradients(x: QTensor) -> QTensor:
    """The same integers, computed once if gradients are computed."""
    return QTensor(once_in_gradients(x.q, x.shadow), x.shadow)


def gradient_once(x: jax.Array) -> jax.Array:
    """float32 x; its gradient in reverse mode is computed once."""
    return _passed.bind(x)


# Both are linear and differentiable any number of times. They are primitives because JAX has no
# function with a custom transpose only.
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
