"""A program as XLA compiles it: what is constant is an argument, and barriers last on CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core

# Constants up to this size stay in the program.
_SMALL = 64


def trace(program: Callable[..., Any], *arguments: Any) -> tuple[Callable[..., Any], list[Any]]:
    """Traces a program, and takes its large constants out of it.

    As constants XLA would try to compute with them while it compiles, for seconds; as arguments
    they run as fast.

    Args:
      program: pure, of any arguments.
      *arguments: pytrees of arrays or of `jax.ShapeDtypeStruct`.

    Returns:
      function: (constants, *arguments) -> what `program` returns.
      constants: its first argument.
    """
    closed, result = jax.make_jaxpr(program, return_shape=True)(*arguments)
    tree = jax.tree.structure(result)
    large = [_is_large(value) for value in closed.consts]

    def function(constants: list[Any], *arguments: Any) -> Any:
        taken = iter(constants)
        values = [
            next(taken) if out else value for out, value in zip(large, closed.consts, strict=True)
        ]
        run = core.jaxpr_as_fun(core.ClosedJaxpr(closed.jaxpr, values))
        return jax.tree.unflatten(tree, run(*jax.tree.leaves(arguments)))

    taken_out = zip(large, closed.consts, strict=True)
    return function, [jnp.asarray(np.asarray(value)) for out, value in taken_out if out]


def compiler_options(platform: str) -> dict[str, str] | None:
    """On CPU, keeps the barriers of `lower` until XLA has decided what to compute once.

    XLA:CPU compiles a small loop as one function, which may not hold a barrier.
    """
    if platform != "cpu":
        return None
    return {"xla_disable_hlo_passes": "cse_barrier_expander,small-while-loop-hoisting"}


def _is_large(value: Any) -> bool:
    # Outside the 64-bit scope an argument of 64 bits would be narrowed.
    return value.size * value.dtype.itemsize > _SMALL and value.dtype.itemsize <= 4
