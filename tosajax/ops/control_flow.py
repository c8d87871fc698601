"""COND_IF and WHILE_LOOP ("Control Flow Operators", TOSA 1.0.1).

Graphs are functions with one argument for each element of the input list. An element may also be a
dictionary or a tuple of arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax import lax


def cond_if(
    condition: jax.Array,
    input_list: Sequence[Any],
    *,
    then_graph: Callable[..., Any],
    else_graph: Callable[..., Any],
) -> Any:
    """Runs one of two graphs (TOSA 1.0.1, "COND_IF").

    Under `vmap` over the condition both run, and each example takes the results of its graph.

    Args:
      condition: bool, one element.
      input_list: the arguments of the graph.
      then_graph: runs if the condition is true.
      else_graph: runs if it is false; its results have the same shapes and types as the results
        of `then_graph`.

    Returns:
      The results of the graph that runs.

    Example:
      >>> import jax.numpy as jnp
      >>> import tosajax
      >>> x = jnp.int32([1, 2])
      >>> tosajax.ops.cond_if(
      ...     jnp.bool_([True]), [x], then_graph=lambda x: x + x, else_graph=lambda x: x
      ... ).tolist()
      [2, 4]
    """
    return lax.cond(condition.reshape(()), then_graph, else_graph, *input_list)


def while_loop(
    input_list: Sequence[Any],
    *,
    cond_graph: Callable[..., jax.Array],
    body_graph: Callable[..., Sequence[Any]],
) -> tuple[Any, ...]:
    """Runs a graph while a condition holds (TOSA 1.0.1, "WHILE_LOOP").

    Has no reverse-mode gradient: the number of iterations is not known.

    Args:
      input_list: the first arguments of both graphs.
      cond_graph: returns a bool, one element.
      body_graph: returns the next list, with the same shapes and types.

    Returns:
      The list for which the condition does not hold.

    Example:
      >>> import jax.numpy as jnp
      >>> import tosajax
      >>> (x,) = tosajax.ops.while_loop(
      ...     [jnp.int32([1])], cond_graph=lambda x: x < 100, body_graph=lambda x: (x + x,)
      ... )
      >>> x.tolist()
      [128]
    """

    def condition(values: tuple[Any, ...]) -> jax.Array:
        return cond_graph(*values).reshape(())

    def body(values: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(body_graph(*values))

    return lax.while_loop(condition, body, tuple(input_list))
