"""The values of a program's variables, from call to call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp

from tosajax.graph import Graph, Tensor, declared_variables


class Variable(NamedTuple):
    """One variable: its value, zeros until it is written, and whether it has been written."""

    value: jax.Array
    written: jax.Array


State = Mapping[str, Variable]


def initial_state(graph: Graph) -> dict[str, Variable]:
    """The variables of a legal graph and its subgraphs, by name, before its first run."""
    return {
        name: _initial(tensor)
        for name, declared in declared_variables(graph).items()
        for tensor in declared[:1]
    }


def _initial(tensor: Tensor) -> Variable:
    values = tensor.values
    if values is None:
        values = tensor.dtype.zeros(tensor.shape or ())
    return Variable(jnp.asarray(values), jnp.asarray(tensor.values is not None))
