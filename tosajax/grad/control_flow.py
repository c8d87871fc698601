"""Gradient of WHILE_LOOP, also in reverse mode; that of COND_IF is natural."""

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
    """That of the turns; in reverse mode with `max_trip_count` only, NaN where there are more."""
    if turns is not None:
        return _repeated(tuple(input_list), body_graph, turns)
    values = ops.while_loop(input_list, cond_graph=cond_graph, body_graph=body_graph)
    if max_trip_count is None:
        return values

    # The loop gives the values, however many turns it takes. A second one of `max_trip_count` turns
    # gives the derivatives; XLA drops it if nothing asks for them.
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
    """The turns of a loop that takes so many: one loop for values and for derivatives."""

    def turn(values: tuple[Any, ...], _: None) -> tuple[tuple[Any, ...], None]:
        return tuple(body_graph(*values)), None

    return lax.scan(turn, values, length=turns)[0]
