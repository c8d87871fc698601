"""Watch: computes chosen tensors of a graph; each example is computed as if it were alone."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from tosajax import spec
from tosajax.block_scaled import on_host
from tosajax.dtypes import DType
from tosajax.graph import Graph, Node, Tensor
from tosajax.graph.edit import unused
from tosajax.report import UnsupportedError
from tosajax.runtime.executable import compile
from tosajax.runtime.rows import examples, filled

_NO_RESHAPE = (DType.INT4, DType.INT48)


class Watch:
    """A graph, compiled to return chosen tensors.

    Each example starts from the initial values of variables.

    Args:
      graph: legal, every dimension known.
      names: names of tensors of the main graph, computed or inputs.
      batch: the number of examples in a call.

    Raises:
      TosaError: the graph is illegal.
      UnsupportedError: the graph has a CUSTOM, or an input without an axis for examples.
    """

    def __init__(self, graph: Graph, names: Sequence[str], batch: int = 32) -> None:
        self.graph, self.names = graph, tuple(dict.fromkeys(names))
        self._computed = [n for n in self.names if n not in graph.inputs]
        self._batch = batch if graph.inputs else 1
        part = _carrying(dataclasses.replace(graph, outputs=tuple(self._computed)))
        self._executable = compile(part, batch=batch if graph.inputs else None)
        self._shapes = [(t.shape or (1,))[1:] for t in part.input_tensors]
        self._initial = dict(self._executable.state)

    def __call__(self, rows: Sequence[Any]) -> dict[str, Any]:
        """Runs up to `batch` examples.

        Args:
          rows: values (examples, *shape) in NumPy arrays of `dtype.parts`, in the order of the
            graph's inputs.

        Returns:
          Values by name, each (examples, *shape), in NumPy arrays.
        """
        count = rows[0].shape[0] if rows else 1
        inputs = [
            filled(x, self._batch).reshape((self._batch, *shape))
            for x, shape in zip(rows, self._shapes, strict=True)
        ]
        self._executable.state.update(self._initial)
        outputs = self._executable(*inputs)
        values = dict(zip(self.graph.inputs, rows, strict=True))
        for name, output in zip(self._computed, outputs, strict=True):
            shape = self.graph.tensors[name].shape or ()
            values[name] = examples(on_host(output).reshape((self._batch, *shape)), 0, count)
        return {name: values[name] for name in self.names}


def activations(graph: Graph, pattern: str | None = None) -> tuple[str, ...]:
    """The tensors that a graph computes from its inputs and variables, in order.

    Args:
      graph: the graph; its subgraphs are left out.
      pattern: a regular expression that is searched for in names.

    Raises:
      ValueError: no name contains the pattern.
    """
    fixed: set[str] = set()
    names: list[str] = []
    for node in graph.ordered_nodes():
        if node.op in spec.CONSTANT_OPERATORS or (node.inputs and fixed.issuperset(node.inputs)):
            fixed.update(node.outputs)
        elif node.op != "VARIABLE":
            names += node.outputs
    matching = [name for name in names if pattern is None or re.search(pattern, name)]
    if pattern is not None and not matching:
        raise ValueError(f"no tensor of graph {graph.name!r} matches {pattern!r}")
    return tuple(matching)


def computed_outputs(graph: Graph) -> tuple[str, ...]:
    """The outputs of a graph that are neither inputs nor constants, without duplicates."""
    not_computed = {*graph.inputs, *(t.name for t in graph.output_tensors if t.values is not None)}
    return tuple(name for name in dict.fromkeys(graph.outputs) if name not in not_computed)


def takes_examples(tensor: Tensor) -> bool:
    """Whether an input can hold one example."""
    return (tensor.shape or (0,))[0] == 1 or tensor.dtype not in _NO_RESHAPE


def _carrying(graph: Graph) -> Graph:
    """The graph with inputs (1, ...) for examples; other inputs become (1, size) and a RESHAPE."""
    tensors, inputs, nodes = dict(graph.tensors), [], list(graph.nodes)
    for tensor in graph.input_tensors:
        shape = tensor.shape or ()
        if shape[:1] == (1,):
            inputs.append(tensor.name)
            continue
        if not takes_examples(tensor):
            raise UnsupportedError(f"input {tensor.name!r} is {tensor}, without an axis of size 1")
        flat = unused(f"{tensor.name}/example", tensors)
        tensors[flat] = Tensor(flat, tensor.dtype, (1, math.prod(shape)))
        target = unused(f"{tensor.name}/shape", tensors)
        sizes = np.asarray(shape, np.int64)
        tensors[target] = Tensor(target, DType.SHAPE, (len(shape),), sizes)
        nodes.append(Node("CONST_SHAPE", (), (target,)))
        nodes.append(Node("RESHAPE", (flat, target), (tensor.name,)))
        inputs.append(flat)
    return dataclasses.replace(graph, tensors=tensors, inputs=tuple(inputs), nodes=tuple(nodes))
