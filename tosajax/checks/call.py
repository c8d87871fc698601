"""A node with its arguments by name, as the rules read it: shapes, types and known values."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from tosajax import spec
from tosajax.dtypes import DType
from tosajax.graph import Graph, Node, Tensor, arguments


class Problem(NamedTuple):
    """A broken rule: its label ("conv2d.e8"), and a message with the value found and expected."""

    label: str
    message: str


class Surroundings(NamedTuple):
    """The context of a node that its rules may read.

    `graphs` has the subgraphs by name; `variables` every VARIABLE of the program, by name; `depth`
    is the nesting depth of the node's graph, and `max_nesting` the level's limit.
    """

    graphs: Mapping[str, Graph] = MappingProxyType({})
    variables: Mapping[str, tuple[Tensor, ...]] = MappingProxyType({})
    depth: int = 0
    max_nesting: int = 0


ALONE = Surroundings()


class Call:
    """One node, with its arguments as attributes under the specification's names.

    An input or output is a `Tensor` (a tuple of them for a tensor list); its `values` are set if
    the tensor is a constant. A constant shape_t input is a tuple of ints. An attribute is its
    value, or the table's default if the node omits it; a graph attribute is a `Graph`. Rules may
    rely on the checks made before them: argument counts, types, ranks, and equal sizes for
    dimensions of the same name. Outputs may not have a shape yet.
    """

    def __init__(
        self,
        node: Node,
        tensors: Mapping[str, Tensor],
        around: Surroundings = ALONE,
    ) -> None:
        self.node = node
        self.operator = spec.OPERATORS[node.op]
        self.around = around
        self._values = _input_values(self.operator, node, tensors)
        self._values.update(_attribute_values(self.operator, node, around.graphs))
        self._values.update(_output_values(self.operator, node, tensors))

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["_values"][name]
        except KeyError:
            raise AttributeError(f"{self.node.op} has no argument {name!r}") from None

    def known(self, name: str) -> bool:
        """Whether the value of a tensor argument is known before the graph runs."""
        return self._values[name].values is not None

    def label(self, rule: str) -> str:
        """The full label of a rule of this operator: "conv2d.e8" for "e8"."""
        return f"{self.node.op.lower()}.{rule}"

    def problem(self, rule: str, message: str) -> Problem:
        """Makes a problem with the full label of `rule`."""
        return Problem(self.label(rule), message)


def _input_values(
    operator: spec.Operator, node: Node, tensors: Mapping[str, Tensor]
) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, operand in arguments(operator, node.inputs, spec.Kind.INPUT).items():
        if isinstance(operand, tuple):
            values[name] = tuple(tensors[n] for n in operand)
            continue
        tensor = tensors[operand]
        if tensor.dtype is DType.SHAPE and tensor.values is not None:
            values[name] = tuple(int(v) for v in tensor.values)
        else:
            values[name] = tensor
    return values


def _attribute_values(
    operator: spec.Operator, node: Node, graphs: Mapping[str, Graph]
) -> dict[str, Any]:
    values = {a.name: node.attributes.get(a.name, a.default) for a in operator.attributes}
    for argument in operator.attributes:
        if argument.form is spec.Form.GRAPH:
            values[argument.name] = graphs[values[argument.name]]
    return values


def _output_values(
    operator: spec.Operator, node: Node, tensors: Mapping[str, Tensor]
) -> dict[str, Any]:
    # Output names never equal input names.
    results = arguments(operator, node.outputs, spec.Kind.OUTPUT)
    return {
        name: tuple(tensors[n] for n in value) if isinstance(value, tuple) else tensors[value]
        for name, value in results.items()
    }
