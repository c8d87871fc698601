"""Writes a graph as MLIR text in the generic form, which every tool of the TOSA 1.0 dialect reads.

Values have the names of the tensors if MLIR allows them. Locations store the rest (see
`locations`): illegal tensor names, the names of subgraphs, and the tensors of variables.
"""

from __future__ import annotations

import dataclasses
import enum
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np

from tosajax import spec
from tosajax.dtypes import DType
from tosajax.graph import DYNAMIC, Graph, Node, Tensor
from tosajax.io.expressible import check_types
from tosajax.io.mlir.dense import dense, number
from tosajax.io.mlir.locations import Location, quoted, written
from tosajax.io.mlir.names import Names
from tosajax.io.mlir.reduced import MOST_DIMS
from tosajax.io.mlir.types import NAMES
from tosajax.spec import REQUIRED, Argument, Form, VarType

_TYPES = {*NAMES, DType.SHAPE}
_LEGAL = re.compile(r"[0-9]+|[A-Za-z$._-][A-Za-z0-9$._-]*")
_OTHER = re.compile(r"[^A-Za-z0-9$._-]")
_MOST_GRAPHS = 4096  # a graph named by several nodes is written once for each
_ENUMERATIONS = {
    spec.NanMode: "nan_mode",
    spec.ResizeMode: "resize_mode",
    spec.RoundingMode: "rounding_mode",
}
# Errors raised by values that do not fit an attribute.
_UNFIT = (AttributeError, KeyError, TypeError, ValueError, IndexError, OverflowError)
_ACCESSES = ("VARIABLE_READ", "VARIABLE_WRITE")
_LISTS = {"perms": "i32"}  # element types of list attributes other than i64


def to_text(graph: Graph, *, keep_names: bool = False) -> str:
    """Writes a graph; see `tosajax.io.mlir.to_text`.

    Args:
      graph: a graph of TOSA 1.0 operators; it is not validated.
      keep_names: whether locations store all names, for bytecode, which lacks the names of values.
    """
    parts = _by_name(graph)
    check_types(graph, _TYPES, "MLIR's dialect of TOSA 1.0")
    _check_accesses(parts.values())
    lines = [
        '"builtin.module"() ({',
        *(f"  {line}" for line in _variables(parts.values(), keep_names)),
        *(f"  {line}" for line in _function(graph, keep_names)),
        f"}}) : () -> (){' loc(unknown)' if keep_names else ''}",
    ]
    return "\n".join(lines) + "\n"


def _by_name(graph: Graph) -> dict[str, Graph]:
    """A graph and its subgraphs, by name."""
    parts = list(islice(_expanded(graph), _MOST_GRAPHS + 1))
    if len(parts) > _MOST_GRAPHS:
        raise ValueError(f"control flow leads to more than {_MOST_GRAPHS} graphs")
    named: dict[str, Graph] = {}
    for part in parts:
        if named.setdefault(part.name, part) != part:
            raise ValueError(f"two graphs are named {part.name!r}")
    return named


def _expanded(graph: Graph) -> Iterator[Graph]:
    """Yields a graph and its subgraphs, once for each node that names them."""
    yield graph
    for node in graph.nodes:
        for part in _parts(node, graph):
            yield from _expanded(part)


def _parts(node: Node, graph: Graph) -> list[Graph]:
    """The subgraphs named by a node."""
    if node.op not in spec.OPERATORS:
        raise ValueError(f"{node.title}: {node.op!r} is not an operator of TOSA 1.0")
    subgraphs: list[Graph] = []
    for argument in spec.OPERATORS[node.op].attributes:
        if argument.form is Form.GRAPH:
            name = node.attributes.get(argument.name, "")
            if name not in graph.subgraphs:
                raise ValueError(f"{node.title}: {argument.name} {name!r} is not a subgraph")
            if graph.subgraphs[name].name != name:
                raise ValueError(
                    f"graph {graph.name!r} has a subgraph by another name than its own"
                )
            subgraphs.append(graph.subgraphs[name])
    return subgraphs


def _function(graph: Graph, keep_names: bool) -> Iterator[str]:
    kind = _signature(*(_tensors(graph, names) for names in (graph.inputs, graph.outputs)))
    properties = f"function_type = {kind}, sym_name = {quoted(graph.name)}"
    unknown = " loc(unknown)" if keep_names else ""
    yield f'"func.func"() <{{{properties}}}> ({{'
    yield from _Block(graph, (), keep_names).lines("func.return")
    yield f"}}) : () -> (){unknown}"


def _signature(inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> str:
    results = _type(outputs[0]) if len(outputs) == 1 else _listed(outputs)
    return f"{_listed(inputs)} -> {results}"


def _listed(tensors: Iterable[Tensor]) -> str:
    return f"({', '.join(map(_type, tensors))})"


def _type(tensor: Tensor) -> str:
    shape = tensor.shape
    if tensor.dtype is DType.SHAPE:
        if shape is None or len(shape) != 1 or shape[0] < 0:
            raise ValueError(f"shape {tensor.name!r} is {tensor}, expected a list of known length")
        return f"!tosa.shape<{shape[0]}>"
    if shape is None:
        return f"tensor<*x{NAMES[tensor.dtype]}>"
    if len(shape) > MOST_DIMS or any(not DYNAMIC <= dim < 1 << 63 for dim in shape):
        raise ValueError(f"tensor {tensor.name!r} has shape {shape}, which MLIR cannot express")
    dims = "".join("?x" if dim == DYNAMIC else f"{dim}x" for dim in shape)
    return f"tensor<{dims}{NAMES[tensor.dtype]}>"


def _tensors(graph: Graph, names: Iterable[str], node: Node | None = None) -> list[Tensor]:
    tensors: list[Tensor] = []
    for name in names:
        tensor = graph.tensors.get(name)
        if tensor is None or tensor.name != name:
            where = f"{node.title}: " if node else ""
            raise ValueError(f"{where}tensor {name!r} is not declared in graph {graph.name!r}")
        tensors.append(tensor)
    return tensors


# Blocks.


class _Block:
    """Writes the block of one graph.

    Args:
      graph: the graph.
      taken: the names of values outside the block, which the block must not reuse.
      keep_names: see `to_text`.
    """

    def __init__(self, graph: Graph, taken: Iterable[str], keep_names: bool) -> None:
        self.graph = graph
        self.keep_names = keep_names
        self._names = Names(taken)
        self._values: dict[str, str] = {}
        unnamed = graph.subgraphs.keys() - {
            part.name for node in graph.nodes for part in _parts(node, graph)
        }
        if unnamed:
            message = f"graph {graph.name!r} has subgraph {min(unnamed)!r}, which no node names"
            raise ValueError(f"{message}: MLIR has no place for it")

    def lines(self, end: str) -> Iterator[str]:
        """Yields the lines of the block, which ends with the operation `end`."""
        if self.graph.inputs:
            tensors = _tensors(self.graph, self.graph.inputs)
            yield f"^bb0({', '.join(map(self._argument, tensors))}):"
        for node in self.graph.ordered_nodes():
            if node.op != "VARIABLE":
                yield from (f"  {line}" for line in self._node(node))
        outputs = _tensors(self.graph, self.graph.outputs)
        unknown = " loc(unknown)" if self.keep_names else ""
        uses = ", ".join(self._use(tensor.name) for tensor in outputs)
        yield f'  "{end}"({uses}) : {_listed(outputs)} -> (){unknown}'

    def _argument(self, tensor: Tensor) -> str:
        value = self._define(tensor.name)
        place = self._placed(Location(None, self._kept([tensor.name])))
        return f"{value}: {_type(tensor)}{place}"

    def _node(self, node: Node) -> Iterator[str]:
        inputs = _tensors(self.graph, node.inputs, node)
        outputs = _tensors(self.graph, node.outputs, node)
        uses = ", ".join(self._use(name) for name in node.inputs)
        results = ", ".join(self._define(name) for name in node.outputs)
        parts = _parts(node, self.graph)
        head = f'{results}{" = " if results else ""}"tosa.{node.op.lower()}"({uses})'
        properties = ", ".join(_properties(node, [*inputs, *outputs]))
        head += f" <{{{properties}}}>" if properties else ""
        kept = (*self._kept(node.outputs), *(("graph", part.name) for part in parts))
        tail = f" : {_signature(inputs, outputs)}{self._placed(Location(node.location, kept))}"
        if not parts:
            yield head + tail
            return
        opening = f"{head} ({{"
        for part in parts:
            yield opening
            yield from _Block(part, self._names.taken, self.keep_names).lines("tosa.yield")
            opening = "}, {"
        yield f"}}){tail}"

    def _placed(self, location: Location) -> str:
        place = written(location)
        return place if place or not self.keep_names else " loc(unknown)"

    def _use(self, name: str) -> str:
        if name not in self._values:
            raise ValueError(f"no node makes tensor {name!r} of graph {self.graph.name!r}")
        return f"%{self._values[name]}"

    def _define(self, name: str) -> str:
        if name in self._values:
            raise ValueError(f"tensor {name!r} of graph {self.graph.name!r} is made twice")
        is_free = _LEGAL.fullmatch(name) and name not in self._names.taken
        self._values[name] = self._names.fresh(name if is_free else _legal(name))
        return f"%{self._values[name]}"

    def _kept(self, names: Sequence[str]) -> tuple[tuple[str, str], ...]:
        """The metadata with the names of tensors; () if they equal the names of their values."""
        if not self.keep_names and all(self._values[name] == name for name in names):
            return ()
        return tuple(("name", name) for name in names)


def _legal(name: str) -> str:
    """Converts a tensor name to a legal value name."""
    return f"v_{_OTHER.sub('_', name)[:40]}"


# Attributes.


def _properties(node: Node, tensors: Sequence[Tensor]) -> Iterator[str]:
    operator = spec.OPERATORS[node.op]
    if node.op in spec.CONSTANT_OPERATORS:
        yield f"values = {_values(node, tensors)}"
        return
    for argument in sorted(operator.attributes, key=lambda a: a.name):
        if argument.form is Form.GRAPH:
            continue
        value = node.attributes.get(argument.name, argument.default)
        if value is REQUIRED:
            raise ValueError(f"{node.title}: attribute {argument.name} is missing")
        try:
            yield f"{argument.name} = {_attribute(argument, value, tensors)}"
        except (
            AttributeError,
            KeyError,
            TypeError,
            ValueError,
            IndexError,
            OverflowError,
        ) as error:
            raise ValueError(f"{node.title}: {argument.name} cannot be {value!r}") from error


def _values(node: Node, tensors: Sequence[Tensor]) -> str:
    if len(tensors) != 1 or tensors[0].values is None:
        raise ValueError(f"{node.title}: expected one output with values")
    return _dense(tensors[0])


def _dense(tensor: Tensor) -> str:
    values = tensor.values
    if values is None or values.shape != tensor.shape:
        shape = None if values is None else values.shape
        raise ValueError(f"{tensor.name!r} has values of shape {shape}, expected {tensor.shape}")
    return dense(values, tensor.dtype)


def _attribute(argument: Argument, value: Any, tensors: Sequence[Tensor]) -> str:
    kind = argument.dtype
    if argument.form is Form.LIST:
        element = _LISTS.get(argument.name, "i64")
        numbers = ", ".join(str(_integer(n, element)) for n in value)
        return f"array<{element}: {numbers}>" if numbers else f"array<{element}>"
    if kind is spec.AccType:
        return NAMES[value]
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return f"#tosa.{_ENUMERATIONS[kind]}<{kind(value).name}>"
    if isinstance(kind, str):
        dtype = tensors[0].dtype
        return f"{number(dtype.storage.type(value), dtype)} : {NAMES[dtype]}"
    if kind is bool:
        return "true" if value else "false"
    if kind is int:
        return f"{_integer(value, 'i32')} : i32"
    return quoted(value)


def _integer(value: Any, element: str) -> int:
    number, half = int(value), 1 << (int(element[1:]) - 1)
    if not -half <= number < half:
        raise ValueError(f"{number} is beyond {element}")
    return number


# Variables.


def _check_accesses(graphs: Iterable[Graph]) -> None:
    """Checks that variables are declared.

    Raises:
      ValueError: a variable is not declared.
    """
    parts = tuple(graphs)
    declared = {tensor.variable for part in parts for tensor in part.tensors.values()}
    for node in (node for part in parts for node in part.nodes):
        name = node.attributes.get("name")
        if node.op in _ACCESSES and name not in declared:
            raise ValueError(f"{node.title}: no tensor stands for variable {name!r}")


def _variables(graphs: Iterable[Graph], keep_names: bool) -> Iterator[str]:
    """Yields the declarations of all variables of these graphs."""
    variables: dict[str, list[tuple[Graph, Tensor]]] = {}
    for graph in graphs:
        for tensor in graph.tensors.values():
            if tensor.variable is not None:
                variables.setdefault(tensor.variable, []).append((graph, tensor))
    for name, places in variables.items():
        yield _variable(name, places, keep_names)


def _variable(name: str, places: Sequence[tuple[Graph, Tensor]], keep_names: bool) -> str:
    home, node = _declaration(name, [graph for graph, _ in places])
    tensors = {graph.name: tensor for graph, tensor in places}
    if len(tensors) != len(places):
        raise ValueError(f"variable {name!r} has two tensors in one graph")
    tensor = tensors[home.name]
    if any(dataclasses.replace(other, name=tensor.name) != tensor for other in tensors.values()):
        raise ValueError(f"variable {name!r} is declared twice, differently")
    names = [home.name, *(graph for graph in tensors if graph != home.name)]
    kept = tuple(pair for n in names for pair in (("graph", n), ("name", tensors[n].name)))
    place = written(Location(node.location, kept))
    return f'"tosa.variable"() <{{{_variable_properties(tensor)}}}> : () -> (){place}'


def _declaration(name: str, graphs: Sequence[Graph]) -> tuple[Graph, Node]:
    """The only VARIABLE node of a variable, and its graph.

    Raises:
      ValueError: the variable has no VARIABLE node, or several.
    """
    declarations = [
        (graph, node)
        for graph in graphs
        for node in graph.nodes
        if node.op == "VARIABLE" and node.attributes.get("name") == name
    ]
    if len(declarations) != 1:
        raise ValueError(f"variable {name!r} has {len(declarations)} VARIABLE nodes, expected one")
    return declarations[0]


def _variable_properties(tensor: Tensor) -> str:
    shape = tensor.shape
    is_known = shape is not None and all(0 <= dim < 1 << 63 for dim in shape)
    if not is_known or VarType.of(tensor.dtype) is None:
        raise ValueError(f"variable {tensor.variable!r} is {tensor}, which MLIR cannot express")
    initial = "" if tensor.values is None else f"initial_value = {_dense(tensor)}, "
    name = quoted(tensor.variable or "")
    element = NAMES[tensor.dtype]
    dims = dense(np.array(shape, np.int64), DType.SHAPE)
    return f"{initial}sym_name = {name}, type = {element}, var_shape = {dims}"
