"""Gradient of WHILE_LOOP, in reverse mode too; COND_IF has JAX's own gradient."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from tosajax import ops
from tosajax.grad.qtensor import follow


def while_loop(
    input_list: Sequence[Any],
    *,
    cond_graph: Callable[..., jax.Array],
    body_graph: Callable[..., Sequence[Any]],
    max_trip_count: int | None = None,
    turns: int | None = None,
) -> tuple[Any, ...]:
    """Through all turns; reverse mode needs `max_trip_count`, and is NaN beyond that many turns."""
    if turns is not None:
        return _repeated(tuple(input_list), body_graph, turns)
    values = ops.while_loop(input_list, cond_graph=cond_graph, body_graph=body_graph)
    if max_trip_count is None:
        return values

    # The loop computes the values, for any number of turns. A second loop of `max_trip_count` turns
    # computes the derivatives; XLA removes it if they are not used.
    def turn(values: tuple[Any, ...], _: None) -> tuple[tuple[Any, ...], None]:
        more = cond_graph(*values).reshape(())
        return lax.cond(more, lambda *v: tuple(body_graph(*v)), lambda *v: v, *values), None

    sources, _ = lax.scan(turn, tuple(input_list), length=max_trip_count)
    unfinished = cond_graph(*sources).reshape(())

    def join(value: jax.Array, source: jax.Array) -> jax.Array:
        if not jnp.issubdtype(value.dtype, jnp.floating):
            return value
        slope = jnp.where(unfinished, jnp.nan, 1).astype(source.dtype)
        return follow(value, slope * source)

    return jax.tree.map(join, values, sources)


def _repeated(
    values: tuple[Any, ...], body_graph: Callable[..., Sequence[Any]], turns: int
) -> tuple[Any, ...]:
    """Runs a loop with a known number of turns: one loop for values and derivatives."""

    def turn(values: tuple[Any, ...], _: None) -> tuple[tuple[Any, ...], None]:
        return tuple(body_graph(*values)), None

    return lax.scan(turn, values, length=turns)[0]
