"""Scope: the graph under construction during an export."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from tosajax import spec
from tosajax.builder import Builder
from tosajax.dtypes import DType
from tosajax.from_jax.places import Place
from tosajax.from_jax.values import TOSA_TYPES, Origin, Value, known
from tosajax.graph import Graph, Rewrite, Tensor
from tosajax.spec.target import Target

HifiLayers = Literal["custom", "operators"]


@dataclasses.dataclass(frozen=True)
class Options:
    """The user's options for an export; see `export`.

    Args:
      target: the target that the graph has to be legal for.
      max_unroll: the most iterations of a loop to unroll.
      hifi_layers: the form of layers of `tosajax.hifi`.
    """

    target: Target
    max_unroll: int
    hifi_layers: HifiLayers = "custom"


class Scope:
    """The nodes and constants of one graph so far.

    Equal constants, and equal nodes on equal inputs, are added once.
    """

    def __init__(self, options: Options, name: str = "main", around: Scope | None = None) -> None:
        self.options = options
        self.depth: int = 0 if around is None else around.depth + 1
        # Shared with all nested scopes: notes in order, and the names of graphs.
        self.notes: dict[Rewrite, None] = {} if around is None else around.notes
        self._graph_names: dict[str, int] = {} if around is None else around._graph_names
        # Constant -> origin; the constant x of a subgraph "body" is "body/x".
        self.origins: dict[str, Origin] = {}
        self.inputs: dict[str, Tensor] = {}
        self.casts: dict[str, Tensor] = {}  # output of a CAST -> its input
        self._builder = Builder(name)
        self._names: dict[str, int] = {}  # tensor names in use, see `_unused`
        self._made: dict[tuple, tuple[Tensor, ...]] = {}
        self._before_reshape: dict[str, Tensor] = {}  # output of a RESHAPE -> its input
        self._constants: dict[tuple, Tensor] = {}

    def input(self, name: str, dtype: DType, shape: Sequence[int]) -> Tensor:
        """Declares the next input."""
        tensor = self._builder.input(self._unused(name), dtype, shape)
        self.inputs[tensor.name] = tensor
        return tensor

    def copy(self, tensor: Tensor) -> Tensor:
        """Adds an IDENTITY, as an output cannot be an input, nor another output as well."""
        return self._builder.op("IDENTITY", tensor, name=self._unused(tensor.name))

    def node(
        self,
        op: str,
        inputs: Sequence[Tensor],
        attributes: dict[str, Any],
        place: Place,
        name: str,
        dtypes: Sequence[DType] | None = None,
        shapes: Sequence[Sequence[int]] | None = None,
    ) -> tuple[Tensor, ...]:
        """Adds an operator, unless an equal one is there, and returns its outputs.

        Args:
          op: the operator's name in `spec.OPERATORS`.
          inputs: tensors of this scope.
          attributes: attributes by the specification's names.
          place: the source place.
          name: the name of the outputs, which follows the layers of the place.
          dtypes: the output types, if the inputs do not determine them.
          shapes: the output shapes, if they do not follow from the inputs.
        """
        key = (op, *(t.name for t in inputs), *map(_hashable, attributes.items()), *(dtypes or ()))
        if key in self._made:
            return self._made[key]
        path = f"{place.layers}/{name}" if place.layers else name
        count = len(dtypes) if dtypes else len(spec.OPERATORS[op].outputs)
        names = [self._unused(path) for _ in range(count)]
        location = place.location(path)
        outputs = self._builder.ops(
            op,
            *inputs,
            shapes=shapes,
            dtypes=dtypes,
            names=names,
            location=location,
            **attributes,
        )
        self._made[key] = outputs
        if op == "CAST":
            self.casts[outputs[0].name] = inputs[0]
        if op == "RESHAPE":
            self._before_reshape[outputs[0].name] = inputs[0]
        return outputs

    def before_reshape(self, tensor: Tensor) -> Tensor:
        """The input of the RESHAPE that computes a tensor; the tensor itself if none does."""
        return self._before_reshape.get(tensor.name, tensor)

    def const(self, value: Value, held: np.ndarray, name: str) -> Tensor:
        """Adds a CONST, unless an equal one is there, and returns its output.

        Args:
          value: a known value.
          held: its elements, in any shape.
          name: the tensor's name, if the value has no origin.
        """
        dtype = TOSA_TYPES[value.dtype]
        key = (dtype, held.shape, _identity(value, held))
        if key not in self._constants:
            path = value.origin.path if value.origin is not None else name
            tensor = self._builder.const(held, dtype, name=self._unused(path))
            self._constants[key] = tensor
            if value.origin is not None:
                self.origins[tensor.name] = value.origin
        return self._constants[key]

    def const_shape(self, values: Sequence[int]) -> Tensor:
        """Adds a CONST_SHAPE, unless an equal one is there, and returns its output."""
        key = (DType.SHAPE, *values)
        if key not in self._constants:
            name = "shape_" + ("x".join(map(str, values)) or "scalar")
            self._constants[key] = self._builder.const_shape(values, name=self._unused(name))
        return self._constants[key]

    def spliced(self, graph: Graph, inputs: Sequence[Tensor], place: Place) -> list[Tensor]:
        """Adds the nodes of a graph and returns its outputs.

        Args:
          graph: a graph without subgraphs.
          inputs: tensors of this scope, in the order of the graph's inputs.
          place: the source place.
        """
        env = dict(zip(graph.inputs, inputs, strict=True))
        for node in graph.ordered_nodes():
            tensors = [graph.tensors[name] for name in node.outputs]
            values = np.asarray(tensors[0].values)
            if node.op == "CONST_SHAPE":
                env[tensors[0].name] = self.const_shape([int(n) for n in values])
            elif node.op == "CONST":
                env[tensors[0].name] = self.const(known(values), values, tensors[0].name)
            else:
                operands = [env[name] for name in node.inputs]
                outputs = self.node(
                    node.op, operands, dict(node.attributes), place, node.op.lower(),
                    [t.dtype for t in tensors], [t.shape or () for t in tensors],
                )  # fmt: skip
                env |= {t.name: output for t, output in zip(tensors, outputs, strict=True)}
        return [env[name] for name in graph.outputs]

    def subgraph(self, graph: Graph) -> str:
        """Adds a graph for control flow, and returns its name."""
        return self._builder.subgraph(graph)

    def nested(self, name: str) -> Scope:
        """A scope for a subgraph."""
        return Scope(self.options, _unused(name, self._graph_names), self)

    @property
    def has_control_flow(self) -> bool:
        """Whether the target allows COND_IF and WHILE_LOOP here."""
        target = self.options.target
        return "EXT-CONTROLFLOW" in target.extensions and self.depth < target.limits.MAX_NESTING

    def note(self, rewrite: Rewrite) -> None:
        """Records a difference from the function, for `Source.rewrites`."""
        self.notes.setdefault(rewrite)

    def graph(self, outputs: Sequence[Tensor]) -> Graph:
        """The graph so far."""
        return self._builder.graph(list(outputs))

    def _unused(self, name: str) -> str:
        return _unused(name, self._names)


def _unused(name: str, taken: dict[str, int]) -> str:
    """Reserves a name that is not taken: "dot", "dot_1", "dot_2".

    Args:
      name: the beginning of the name.
      taken: the number of names derived from each name in use; is updated.
    """
    candidate = name
    while candidate in taken:
        taken[name] += 1
        candidate = f"{name}_{taken[name]}"
    taken[candidate] = 0
    return candidate


def _identity(value: Value, held: np.ndarray) -> object:
    """A key that is equal for constants of equal elements from the same parameters.

    Parameters that are equal by chance, as new biases are, may differ after training.
    """
    if value.origin is not None and value.origin.moves is not None:
        return value.origin
    numbers = value.origin and value.origin.numbers
    if held.nbytes <= 256:
        return numbers, held.tobytes()
    return numbers, hashlib.blake2b(np.ascontiguousarray(held).view(np.uint8).data).digest()


def _hashable(entry: tuple[str, Any]) -> tuple[str, Any]:
    name, value = entry
    if isinstance(value, np.generic | np.ndarray):
        return name, (value.dtype.str, value.tobytes())
    return name, tuple(value) if isinstance(value, list) else value
