"""The values of a program's variables, from call to call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp

from tosajax.graph import Graph, Tensor, declared_variables


class Variable(NamedTuple):
    """One variable: its value, zeros until it is written, and whether it has been written.

    Example:
      >>> import tosajax
      >>> b = tosajax.Builder()
      >>> b.variable("count", tosajax.DType.INT32, (2,))
      >>> state = tosajax.initial_state(b.graph([b.read("count", tosajax.DType.INT32, (2,))]))
      >>> value, written = state["count"]
      >>> value.tolist(), written.item()
      ([0, 0], False)
    """

    value: jax.Array
    written: jax.Array


State = Mapping[str, Variable]


def initial_state(graph: Graph) -> dict[str, Variable]:
    """The variables of a legal graph and its subgraphs, by name, before its first run.

    Example:
      >>> import tosajax
      >>> b = tosajax.Builder()
      >>> b.variable("count", tosajax.DType.INT32, (2,), initial_value=[3, 4])
      >>> state = tosajax.initial_state(b.graph([b.read("count", tosajax.DType.INT32, (2,))]))
      >>> state["count"].value.tolist()
      [3, 4]
    """
    return {
        name: _initial(tensor)
        for name, declared in declared_variables(graph).items()
        for tensor in declared[:1]
    }


def for_examples(state: State, examples: int | None) -> State:
    """A state with variables of their own for each of several examples; the same for None."""
    if examples is None:
        return state
    return jax.tree.map(lambda x: jnp.broadcast_to(x, (examples, *x.shape)), state)


def _initial(tensor: Tensor) -> Variable:
    values = tensor.values
    if values is None:
        values = tensor.dtype.zeros(tensor.shape or ())
    return Variable(jax.tree.map(jnp.asarray, values), jnp.asarray(tensor.values is not None))
