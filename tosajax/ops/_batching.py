"""Batches recorded calls of operators under `vmap`: the result consists of operators again.

The batch becomes a new dimension of the data; in operators whose first dimension is N, it is merged
with N. If an operand that is not data differs between examples, each example gets a call.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from tosajax.spec import Operator

Compute = Callable[[Mapping[str, Any]], list[jax.Array]]


@dataclasses.dataclass(frozen=True)
class Operand:
    """An operand of a batch of examples.

    Args:
      array: [count, *shape] if it differs between examples, else [*shape].
      differs: whether `array` has the axis of examples.
      count: the number of examples.
    """

    array: jax.Array
    differs: bool
    count: int

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape for one example."""
        return jnp.shape(self.array)[self.differs :]

    def example(self, number: int) -> jax.Array:
        return lax.index_in_dim(self.array, number, keepdims=False) if self.differs else self.array

    def stacked(self) -> jax.Array:
        """The values of all examples, [count, *shape]."""
        if self.differs:
            return self.array
        return lax.broadcast_in_dim(
            self.array, (self.count, *self.shape), range(1, len(self.shape) + 1)
        )

    def broadcasting(self, rank: int) -> jax.Array:
        """The values as [count, 1, ..., 1, *shape], `rank` dimensions after the first.

        The first dimension is 1 if the examples share the values.
        """
        ones = (1,) * (rank - len(self.shape))
        return lax.reshape(self.array, (self.count if self.differs else 1, *ones, *self.shape))


def batched(
    compute: Compute, operator: Operator | None, arguments: Mapping[str, Any]
) -> list[jax.Array]:
    """The results for all examples, along a new first axis.

    Args:
      compute: returns the results of the function for its arguments.
      operator: the row of the function in the operator table; None where it has none.
      arguments: the arguments, by name, with Operands for arrays.
    """
    if operator is None:
        return _one_by_one(compute, arguments)
    names = {argument.name for argument in operator.inputs if argument.is_data}
    data = {name: value for name, value in arguments.items() if name in names}
    others = {name: value for name, value in arguments.items() if name not in names}
    if any(operand.differs for operand in _operands(others)):
        return _one_by_one(compute, arguments)
    others = _replaced(others, lambda operand: operand.array)
    if operator.has_batch:
        return _as_part_of_n(compute, operator, data, others)
    return _as_dimension(compute, data, others)


def _one_by_one(compute: Compute, arguments: Mapping[str, Any]) -> list[jax.Array]:
    count = _operands(arguments)[0].count
    each = [
        compute(_replaced(arguments, lambda operand, n=n: operand.example(n))) for n in range(count)
    ]
    return [
        lax.concatenate([lax.expand_dims(result, (0,)) for result in results], 0)
        for results in zip(*each, strict=True)
    ]


def _as_part_of_n(
    compute: Compute, operator: Operator, data: Mapping[str, Any], others: Mapping[str, Any]
) -> list[jax.Array]:
    operands = _operands(data)
    count, n = operands[0].count, max(operand.shape[0] for operand in operands)
    broadcasting = {a.name for a in operator.inputs if a.broadcasts}

    def merged(name: str, operand: Operand) -> jax.Array:
        own, *rest = operand.shape
        if name in broadcasting and own == 1 and not operand.differs:
            return operand.array  # one for all n, and so for all examples
        axes = range(len(operand.shape) + 1)
        stacked = lax.broadcast_in_dim(operand.stacked(), (count, n, *rest), axes)
        return lax.reshape(stacked, (count * n, *rest))

    results = compute({**{name: merged(name, x) for name, x in data.items()}, **others})
    return [lax.reshape(r, (count, r.shape[0] // count, *r.shape[1:])) for r in results]


def _as_dimension(
    compute: Compute, data: Mapping[str, Any], others: Mapping[str, Any]
) -> list[jax.Array]:
    operands = _operands(data)
    rank = max(len(operand.shape) for operand in operands)
    moved = {
        # Only elementwise operators broadcast.
        name: _replaced(value, Operand.stacked)
        if isinstance(value, list | tuple)
        else value.broadcasting(rank)
        for name, value in data.items()
    }
    shifted = {name: _shifted(name, value, operands[0].count) for name, value in others.items()}
    return compute({**moved, **shifted})


def _shifted(name: str, value: Any, count: int) -> Any:
    """An attribute after a new first dimension of size `count` was added to the data."""
    match name:
        case "axis":
            return value + 1
        case "perms":
            return (0, *(axis + 1 for axis in value))
        case "shape" | "size":
            return (count, *value)
        case "start":
            return (0, *value)
        case "padding":
            return (0, 0, *value)
        case "multiples":
            return (1, *value)
        case _:
            return value


def _operands(tree: Any) -> list[Operand]:
    return [leaf for leaf in jax.tree.leaves(tree) if isinstance(leaf, Operand)]


def _replaced(tree: Any, function: Callable[[Operand], jax.Array]) -> Any:
    return jax.tree.map(lambda x: function(x) if isinstance(x, Operand) else x, tree)
