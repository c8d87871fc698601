"""A CLAMP before the operators that pass its elements on, right after the one that computes them.

The range of a tensor is then the range of the CLAMP, as if nothing stood between the two.
"""

from __future__ import annotations

import dataclasses
from collections import Counter

import numpy as np

from tosajax import spec
from tosajax.dtypes import DType
from tosajax.from_jax.tidy.clamps import joined
from tosajax.graph import Graph, Node, arguments
from tosajax.graph.edit import Draft
from tosajax.quant.ranges.masks import mask_sign
from tosajax.spec import Argument, Kind, NanMode


def with_early_clamps(graph: Graph) -> Graph:
    """Moves each CLAMP to the node that computes its elements, if nothing else reads that node.

    RESHAPE, CONCAT, MAX_POOL2D and others pass elements on (`Operator.passes_on`): relu(reshape(x))
    becomes reshape(relu(x)), and a CLAMP of a CLAMP becomes one. The result keeps its name y, and a
    tensor x before it, whose elements are limited now, is "y/x".

    Args:
      graph: one part, from `simplify`, of FP32.
    """
    writer = _Writer(graph)
    for node in graph.ordered_nodes():
        writer.write(node)
    return writer.draft.finished()


class _Writer:
    """Writes a graph again, node by node."""

    def __init__(self, graph: Graph) -> None:
        self.draft = Draft(graph)
        self._outputs = frozenset(graph.outputs)
        self._readers = Counter(name for node in graph.nodes for name in dict.fromkeys(node.inputs))
        self._producers = dict[str, Node]()

    def write(self, node: Node) -> None:
        name = node.inputs[0] if node.op == "CLAMP" else None
        is_float = name is not None and self.draft.tensors[name].dtype.is_float
        if name is not None and is_float and self._is_computed_for(node, name):
            self._limited(node, name, node.outputs[0])
        else:
            self._put(node)

    def _put(self, node: Node) -> None:
        self.draft.nodes.append(node)
        self._producers |= dict.fromkeys(node.outputs, node)

    def _is_computed_for(self, clamp: Node, name: str) -> bool:
        """Whether elements of a tensor are computed for a CLAMP alone."""
        node = self._producers.get(name)
        if node is None or node.op in spec.CONSTANT_OPERATORS or not self._is_read_once(name):
            return False
        if _passes_on(node, clamp):
            return any(self._is_computed_for(clamp, source) for source in _sources(node))
        return spec.OPERATORS[node.op].is_function

    def _is_read_once(self, name: str) -> bool:
        # New tensors are not counted: one node reads each.
        return self._readers.get(name, 1) == 1 and name not in self._outputs

    def _limited(self, clamp: Node, name: str, wanted: str) -> None:
        """Writes a tensor, limited by a CLAMP, as the tensor `wanted`."""
        node = self._producers.get(name)
        if node is not None and self._is_read_once(name):
            if node.op == "CLAMP" and (both := joined(node, clamp)) is not None:
                self._limited(both, node.inputs[0], wanted)
                return
            if _passes_on(node, clamp):
                sources = {n: self._source(clamp, n, a) for n, a in _sources(node).items()}
                inputs = tuple(sources.get(n, n) for n in node.inputs)
                self._put(dataclasses.replace(node, inputs=inputs, outputs=(wanted,)))
                return
        self._put(dataclasses.replace(clamp, inputs=(name,), outputs=(wanted,)))

    def _source(self, clamp: Node, name: str, argument: Argument) -> str:
        """The tensor that a node passes on, limited."""
        tensor, label = self.draft.tensors[name], f"{clamp.outputs[0]}/{name}"
        if tensor.values is not None:
            limited = np.clip(tensor.values, *(clamp.attributes[b] for b in ("min_val", "max_val")))
            if np.array_equal(limited, tensor.values):
                return name
            # Others are trained, so that a CLAMP reads them.
            if mask_sign(tensor.values) or argument.constant_in:
                return self.draft.const(label, limited, DType.FP32)
        wanted = self.draft.tensor(label, DType.FP32, tensor.shape)
        self._limited(clamp, name, wanted)
        return wanted


def _passes_on(node: Node, clamp: Node) -> bool:
    """Whether the elements of a node's result may be limited before it."""
    if node.op == "CLAMP":
        return joined(node, clamp) is not None
    operator = spec.OPERATORS[node.op]
    # The search for the largest element looks at NaN, of which such a CLAMP makes a number.
    makes_numbers = clamp.attributes.get("nan_mode", NanMode.PROPAGATE) is NanMode.IGNORE
    looks_at_nan = any(a.dtype is NanMode for a in operator.attributes)
    return bool(operator.passes_on) and not (makes_numbers and looks_at_nan)


def _sources(node: Node) -> dict[str, Argument]:
    """The tensors whose elements a node passes on, or limits."""
    operator = spec.OPERATORS[node.op]
    named = arguments(operator, node.inputs, Kind.INPUT)
    passed_on = operator.passes_on or operator.inputs[:1]
    pairs = [(named[argument.name], argument) for argument in passed_on]
    return {
        name: argument
        for names, argument in pairs
        for name in (names if isinstance(names, tuple) else (names,))
    }
