"""Walk: goes through a model block by block, with the inputs and outputs of each block."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from tosajax.arguments.names import near
from tosajax.arguments.types import check_type
from tosajax.grad.qtensor import QTensor, payload
from tosajax.quant.model.batches import rows
from tosajax.quant.model.parts import cuts, part
from tosajax.quant.model.recipes import Params
from tosajax.quant.qmodel import PreparedModel
from tosajax.quant.tune.blocks import Block, Rows

# Of the outputs of a block and the number of a batch, the weight of each of their elements.
Importance = Callable[[Sequence[str], int], tuple[jax.Array, ...]]
# The values of tensors by name, of a batch: an axis of examples in front.
_Values = dict[str, Any]


class Walk:
    """The blocks of a model, and the values of examples before the next one.

    Args:
      model: the model, from `prepare`, of integers.
      params: the model's parameters.
      batches: examples, as inputs of the float graph.
      ends: the last tensors of blocks; see `reconstruct`.

    Raises:
      TypeError: the ends are not a list.
      ValueError: no block may end in one of them.
    """

    def __init__(
        self,
        model: PreparedModel,
        params: Params,
        batches: Sequence[Sequence[jax.Array | QTensor]],
        ends: Sequence[str] | None = None,
    ) -> None:
        self.blocks = _blocks(model, ends)
        self._inputs = model.graph.inputs
        tensors, own = model.float_graph.input_tensors, model.graph.input_tensors
        integers = [model.input_integers(params, *batch) for batch in batches]
        self._floats = [self._values_by_name(rows(tensors, batch)) for batch in batches]
        self._integers = [self._values_by_name(rows(own, batch)) for batch in integers]

    def data(
        self, block: Block, params: Params, importance: Importance | None = None
    ) -> list[Rows]:
        """The data that the next block learns from, by batch."""
        names, rows = block.part.graph.outputs, []
        for number, (stored, real) in enumerate(zip(self._integers, self._floats, strict=True)):
            alike = (jnp.ones(()),) * len(names)
            weights = alike if importance is None else importance(names, number)
            rows.append(block.data(params, stored, real, weights))
        return rows

    def advance(
        self, block: Block, data: Sequence[Rows], integers: Sequence[Sequence[jax.Array]]
    ) -> None:
        """Goes past a block, which gives these integers for its data."""
        names = block.part.graph.outputs
        wanted = [batch.wanted for batch in data]
        self._floats = self._later_values(self._floats, names, wanted)
        self._integers = self._later_values(self._integers, names, integers)

    def _values_by_name(self, inputs: Sequence[jax.Array | QTensor]) -> _Values:
        return dict(zip(self._inputs, map(payload, inputs), strict=True))

    def _later_values(
        self,
        batches: Sequence[_Values],
        names: Sequence[str],
        outputs: Sequence[Sequence[jax.Array]],
    ) -> list[_Values]:
        """The values that later blocks may read: inputs of the graph, and outputs of the last."""
        inputs = [{name: values[name] for name in self._inputs} for values in batches]
        results = [dict(zip(names, each, strict=True)) for each in outputs]
        return [{**a, **b} for a, b in zip(inputs, results, strict=True)]


def _blocks(model: PreparedModel, ends: Sequence[str] | None) -> list[Block]:
    """The blocks with weights, in order."""
    names = _own_ends(model) if ends is None else _checked_ends(model, ends)
    starts, outputs = [None, *names], [*((name,) for name in names), model.graph.outputs]
    parts = [part(model, start, end) for start, end in zip(starts, outputs, strict=True)]
    if not parts[-1].weights:
        parts.pop()
    # Constants and scales are learned in the first block that has them, scales of inputs nowhere.
    learned = {model.owners.get(name) for name in model.graph.inputs}
    blocks = []
    for each in parts:
        weights, scales = (
            tuple(name for name in names if name not in learned)
            for names in (each.weights, each.activations)
        )
        blocks.append(Block(each, weights, scales))
        learned |= {*weights, *scales}
    return blocks


def _own_ends(model: PreparedModel) -> list[str]:
    """The ends of blocks with weights."""
    ends, start = [], None
    for name in cuts(model):
        if part(model, start, (name,)).weights:
            ends.append(name)
            start = name
    return ends


def _checked_ends(model: PreparedModel, ends: Sequence[str]) -> list[str]:
    check_type("ends", ends, list | tuple, "a list of names of tensors")
    possible = cuts(model)
    for name in ends:
        if name not in possible:
            raise ValueError(
                f"ends has {name!r}, which is not a quantized tensor that all of the graph after "
                f"it depends on alone{near(name, possible)}"
            )
    return [name for name in possible if name in ends and name not in model.graph.outputs]
