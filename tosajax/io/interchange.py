"""Converts the nested form of an interchange file to and from a Graph.

Rules of real files that the schema does not state (seen with tosa-tools 2026.8):
- A variable is a tensor with a variable flag, declared again in each region that uses it, with the
  initial value as its data. Files do not have a VARIABLE operator. VARIABLE_READ and VARIABLE_WRITE
  are IDENTITY operators from and to that tensor, with the attribute tables of VARIABLE_READ and
  VARIABLE_WRITE; Arm's tools refuse these operators' numbers. The graph here has the nodes of the
  specification: a VARIABLE node, whose output is the variable's tensor, at the head of the first
  graph that declares the variable, and VARIABLE_READ and VARIABLE_WRITE with the variable's name.
- Data of tensors that are not constants is meaningless and is dropped; the graph inputs of
  WHILE_LOOP's bodies have such data.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

import numpy as np

from tosajax import dtypes, spec
from tosajax.dtypes import DType
from tosajax.graph import Graph, Node, Source, Tensor
from tosajax.graph.type_rows import needed_version
from tosajax.io import schema
from tosajax.io.attributes import (
    as_int32,
    read_attributes,
    read_data,
    read_dtype,
    write_attributes,
)
from tosajax.io.expressible import check_types
from tosajax.io.versions import WRITTEN
from tosajax.report import FormatError, UnsupportedError
from tosajax.spec import VarType

_ACCESSES = ("VARIABLE_READ", "VARIABLE_WRITE")
_DEEPEST = spec.LEVELS["none"].MAX_NESTING
_MOST_GRAPHS = 4096  # visits of a walk, which grow exponentially where regions share regions
_EMPTY = np.empty(0, np.uint8)
_TYPES = frozenset(dtype for dtype in DType if dtype.block is None)


def read_graph(root: Mapping[str, Any], file: memoryview, source: Source) -> Graph:
    """Converts the nested form of a file to a graph.

    The first region is the graph. Each further region becomes a subgraph of the graphs whose
    control flow names it, or of the first graph if none does.

    Args:
      root: the nested form of a file of a supported version.
      file: the file's bytes, for data after the flatbuffer.
      source: the graph's source.

    Raises:
      FormatError: the file is not well formed.
      UnsupportedError: the file uses something that TOSA 1.0 does not have.
    """
    graphs: dict[str, Graph] = {}
    outside = _Outside(file)
    for region in root["regions"] or ():
        name = region["name"]
        if not name or name in graphs:
            raise FormatError(f"region name {name!r} is empty or used twice")
        block = _Block(_only_block(region), name, outside)
        graphs[name] = _within(f"region {name!r}", block.graph)
    if not graphs:
        raise FormatError("the file has no regions")
    main = nest(_declare_variables(graphs))
    return dataclasses.replace(main, source=source)


def _within(place: str, read: Any, *arguments: Any) -> Any:
    """Calls `read`, and prefixes the messages of its errors with `place`."""
    try:
        return read(*arguments)
    except (FormatError, UnsupportedError) as error:
        raise type(error)(f"{place}: {error}") from None


def _only_block(region: Mapping[str, Any]) -> Mapping[str, Any]:
    blocks = region["blocks"] or ()
    if not blocks:
        raise FormatError(f"region {region['name']!r} has no block")
    if len(blocks) > 1:
        message = f"region {region['name']!r} has {len(blocks)} blocks"
        raise UnsupportedError(f"{message}, expected one")
    return blocks[0]


class _Outside:
    """Reads data after the flatbuffer, for graphs of more than 2 GB."""

    def __init__(self, file: memoryview) -> None:
        self.file = file
        self.allowance = 16 * len(file)  # equal constants may share their data

    def read(self, offset: int, size: int) -> np.ndarray:
        self.allowance -= size
        if offset + size > len(self.file):
            place = f"data at bytes {offset} to {offset + size}"
            raise FormatError(f"{place}, beyond the {len(self.file)} bytes of the file")
        if self.allowance < 0:
            raise FormatError("the same parts of the file are referred to too often")
        return np.frombuffer(self.file, np.uint8, size, offset)


# Reading one region.


class _Block:
    """Reads the block of one region."""

    def __init__(self, block: Mapping[str, Any], name: str, outside: _Outside) -> None:
        self.block = block
        self.name = name
        self.outside = outside
        self.constants = {
            name
            for operator in block["operators"] or ()
            if schema.OP.name_of(operator["op"]) in spec.CONSTANT_OPERATORS
            for name in operator["outputs"] or ()
        }
        self.tensors: dict[str, Tensor] = {}

    def graph(self) -> Graph:
        operators = self.block["operators"] or ()
        # Operators come first, so that errors about files of TOSA 1.1 name operators.
        ops = [self.at_node(fields, _operator_name, fields) for fields in operators]
        for fields in self.block["tensors"] or ():
            self.add(_within(f"tensor {fields['name']!r}", self.tensor, fields))
        for fields in self.block["shapes"] or ():
            self.add(_within(f"shape {fields['name']!r}", self.shape, fields))
        nodes = tuple(
            self.at_node(fields, self.node, op, fields)
            for op, fields in zip(ops, operators, strict=True)
        )
        ends = {side: tuple(self.block[side] or ()) for side in ("inputs", "outputs")}
        for side, names in ends.items():
            _within(f"graph {side}", self.check_declared, names)
            _within(f"graph {side}", self.check_plain, names)
        return Graph(ends["inputs"], ends["outputs"], self.tensors, nodes, name=self.name)

    def add(self, tensor: Tensor) -> None:
        if not tensor.name:
            raise FormatError("a tensor or shape has no name")
        if self.tensors.setdefault(tensor.name, tensor) is not tensor:
            raise FormatError(f"tensor {tensor.name!r} is declared twice")

    def tensor(self, fields: Mapping[str, Any]) -> Tensor:
        _check_unscaled(fields)
        name, dtype = fields["name"], read_dtype(fields["type"])
        shape = None if fields["is_unranked"] else tuple(fields["shape"] or ())
        variable = _variable_name(fields) if fields["variable"] else None
        values = None
        data = self.data(fields)
        if name in self.constants or (variable is not None and data.size):
            if shape is None:
                raise FormatError(f"{data.size} bytes of data and no rank")
            values = read_data(data, dtype, shape)
        return Tensor(name, dtype, shape, values, variable)

    def data(self, fields: Mapping[str, Any]) -> np.ndarray:
        """Reads a tensor's data, from its table or from the end of the file."""
        within, offset = fields["data"], fields["offset"]
        if (within is None or not within.size) and offset > 1:
            return self.outside.read(offset, fields["size"])
        return _EMPTY if within is None else within

    def shape(self, fields: Mapping[str, Any]) -> Tensor:
        name, rank, values = fields["name"], fields["rank"], None
        if name in self.constants:
            data = _EMPTY if fields["data"] is None else fields["data"]
            values = read_data(data, DType.SHAPE, (rank,))
        return Tensor(name, DType.SHAPE, (rank,), values)

    def at_node(self, fields: Mapping[str, Any], read: Any, *arguments: Any) -> Any:
        """Calls `read`, and prefixes the messages of its errors with the operator and outputs."""
        try:
            return read(*arguments)
        except (FormatError, UnsupportedError) as error:
            name = schema.OP.name_of(fields["op"]) or f"operator {fields['op']}"
            outputs = ", ".join(map(repr, fields["outputs"] or ()))
            raise type(error)(f"{name} {outputs}".rstrip() + f": {error}") from None

    def node(self, op: str, fields: Mapping[str, Any]) -> Node:
        inputs, outputs = tuple(fields["inputs"] or ()), tuple(fields["outputs"] or ())
        location = (fields["location"] or {}).get("text")
        if op in _ACCESSES:
            return self.access(op, inputs, outputs, location)
        # Undeclared names break a rule of graphs, not of files: `validate` finds them.
        self.check_plain(inputs if op == "VARIABLE" else (*inputs, *outputs))
        tensors = [self.tensors.get(name) for name in (*inputs, *outputs)]
        attributes = read_attributes(spec.OPERATORS[op], fields["attribute"], tensors)
        return Node(op, inputs, outputs, attributes, location)

    def access(
        self, op: str, inputs: tuple[str, ...], outputs: tuple[str, ...], location: str | None
    ) -> Node:
        """Reads VARIABLE_READ or VARIABLE_WRITE: an attribute names the variable, not a tensor."""
        reads = op == "VARIABLE_READ"
        ends, others = (inputs, outputs) if reads else (outputs, inputs)
        self.check_plain(others)
        self.check_declared(ends)
        names = [self.tensors[name].variable for name in ends]
        if len(names) != 1 or names[0] is None:
            side = "input" if reads else "output"
            raise FormatError(f"{side}s {ends}, expected the tensor of one variable")
        attributes = {"name": names[0]}
        return Node(op, () if reads else inputs, outputs if reads else (), attributes, location)

    def check_declared(self, names: Iterable[str]) -> None:
        for name in names:
            if name not in self.tensors:
                raise FormatError(f"tensor {name!r} is not declared")

    def check_plain(self, names: Iterable[str]) -> None:
        """Checks that tensors are not variables."""
        for name in names:
            if name in self.tensors and self.tensors[name].variable is not None:
                raise FormatError(f"{name!r} is a variable, which only IDENTITY reads and writes")


def _check_unscaled(fields: Mapping[str, Any]) -> None:
    numbers = ("scale_type", "block_shape", "scale_offset", "scale_size")
    data = fields["scale_data"]
    if any(fields[name] for name in numbers) or (data is not None and data.size):
        raise UnsupportedError("the tensor is block scaled, which TOSA 1.0 does not have")


def _variable_name(fields: Mapping[str, Any]) -> str:
    if not fields["variable_name"]:
        raise FormatError("the tensor is a variable of no name")
    return fields["variable_name"]


def _operator_name(fields: Mapping[str, Any]) -> str:
    """The operator's name, from its number and the type of its attribute table."""
    op, table = fields["op"], fields["attribute_type"]
    name = schema.OP.name_of(op)
    if name in schema.DRAFT_OPERATORS:
        raise UnsupportedError(f"operator {name} is of TOSA 1.1, expected one of 1.0")
    if name not in spec.OPERATORS:
        raise FormatError(f"operator {op} is unknown")
    if fields["attribute"] is None:
        raise FormatError("the attribute table is missing")
    if name == "IDENTITY" and schema.OP.name_of(table) in _ACCESSES:
        return str(schema.OP.name_of(table))
    if table != op:
        stated = schema.ATTRIBUTE_TYPE.name_of(table) or f"of unknown type {table}"
        wanted = schema.ATTRIBUTE_TYPE.name_of(op)
        raise FormatError(f"the attribute table is {stated}, expected {wanted}")
    return name


# Variables, which all regions share.


def _declare_variables(graphs: Mapping[str, Graph]) -> dict[str, Graph]:
    """Adds a VARIABLE node at the head of the first graph that declares the variable."""
    firsts: dict[str, Tensor] = {}
    declared: dict[str, Graph] = {}
    for key, graph in graphs.items():
        written = {name for n in graph.nodes if n.op == "VARIABLE" for name in n.outputs}
        nodes = []
        for tensor in _variables(graph).values():
            first = firsts.setdefault(str(tensor.variable), tensor)
            if dataclasses.replace(tensor, name=first.name) != first:
                raise FormatError(f"variable {tensor.variable!r} is declared twice, differently")
            if first is tensor and tensor.name not in written:
                nodes.append(_declaration(tensor))
        kept = (_with_declaration(node, graph) for node in graph.nodes)
        declared[key] = dataclasses.replace(graph, nodes=(*nodes, *kept))
    return declared


def _variables(graph: Graph) -> dict[str, Tensor]:
    """The variable tensors of a graph, by the variable's name."""
    tensors: dict[str, Tensor] = {}
    for tensor in graph.tensors.values():
        name = tensor.variable
        if name is not None and tensors.setdefault(name, tensor) is not tensor:
            raise FormatError(f"variable {name!r} has two tensors in {graph.name!r}")
    return tensors


def _declaration(tensor: Tensor) -> Node:
    """Makes the VARIABLE node of a tensor, which keeps the initial value."""
    var_type = VarType.of(tensor.dtype)
    if var_type is None or tensor.shape is None:
        raise FormatError(f"variable {tensor.variable!r} is {tensor}, which no variable can be")
    attributes = {"name": tensor.variable, "var_shape": tensor.shape, "type": var_type}
    return Node("VARIABLE", (), (tensor.name,), attributes)


def _with_declaration(node: Node, graph: Graph) -> Node:
    """Sets the attributes of a VARIABLE node from its tensor, for files with this operator."""
    if node.op != "VARIABLE":
        return node
    tensors = [graph.tensors.get(name) for name in node.outputs]
    if len(tensors) != 1 or tensors[0] is None or tensors[0].variable is None:
        raise FormatError(f"VARIABLE has outputs {node.outputs}, expected one variable")
    return dataclasses.replace(_declaration(tensors[0]), location=node.location)


# Nesting of regions.


def _graph_names(node: Node) -> list[str]:
    """The names of the graphs in a node's attributes."""
    attributes = spec.OPERATORS[node.op].attributes
    return [node.attributes[a.name] for a in attributes if a.form is spec.Form.GRAPH]


def nest(graphs: Mapping[str, Graph]) -> Graph:
    """Nests graphs into the graphs whose control flow names them; returns the first graph.

    Raises:
      FormatError: a graph is missing, or contains itself.
      UnsupportedError: the nesting is too deep, or there are too many graphs.
    """
    done: dict[str, Graph] = {}
    first, *others = graphs
    main = _nested(first, graphs, done, ())
    unnamed = {name: _nested(name, graphs, done, ()) for name in others if name not in done}
    main = dataclasses.replace(main, subgraphs={**main.subgraphs, **unnamed})
    if any(islice(main.walk(), _MOST_GRAPHS, None)):
        raise UnsupportedError(f"control flow leads to more than {_MOST_GRAPHS} graphs")
    return main


def _nested(
    name: str, graphs: Mapping[str, Graph], done: dict[str, Graph], path: tuple[str, ...]
) -> Graph:
    """Returns the graph of a region with its subgraphs, and stores it in `done`.

    `path` has the names of the regions around it.
    """
    if name not in graphs:
        raise FormatError(f"region {path[-1]!r} refers to region {name!r}, which is not there")
    if name in path:
        raise FormatError(f"region {name!r} contains itself")
    if len(path) > _DEEPEST:
        raise UnsupportedError(f"control flow is nested more than {_DEEPEST} deep")
    if name not in done:
        names = dict.fromkeys(n for node in graphs[name].nodes for n in _graph_names(node))
        parts = {other: _nested(other, graphs, done, (*path, name)) for other in names}
        done[name] = dataclasses.replace(graphs[name], subgraphs=parts)
    return done[name]


# Writing.


def write_graph(graph: Graph) -> dict[str, Any]:
    """Converts a graph to the nested form of a file, the inverse of `read_graph`.

    Raises:
      UnsupportedError: files have no tensors of one of its types.
      ValueError: the graph has something that a file cannot store.
    """
    check_types(graph, _TYPES, "a TOSA file")
    regions: dict[str, Graph] = {}
    for part in graph.walk():
        if regions.setdefault(part.name, part) != part:
            raise ValueError(f"two graphs are named {part.name!r}")
        if any(name != sub.name for name, sub in part.subgraphs.items()):
            raise ValueError(f"graph {part.name!r} has a subgraph by another name than its own")
    return {
        "version": WRITTEN[needed_version(graph)],
        "regions": [
            {"name": name, "blocks": [{"name": name, **_block_fields(part)}]}
            for name, part in regions.items()
        ],
    }


def _block_fields(graph: Graph) -> dict[str, Any]:
    tensors = graph.tensors.values()
    for name, tensor in graph.tensors.items():
        if name != tensor.name:
            raise ValueError(f"graph {graph.name!r} has tensor {tensor.name!r} under {name!r}")
    return {
        "operators": [_node_fields(n, graph) for n in graph.nodes if n.op != "VARIABLE"],
        "tensors": [_tensor_fields(t) for t in tensors if t.dtype is not DType.SHAPE],
        "inputs": list(graph.inputs),
        "outputs": list(graph.outputs),
        "shapes": [_shape_fields(t) for t in tensors if t.dtype is DType.SHAPE],
    }


def _tensor_fields(tensor: Tensor) -> dict[str, Any]:
    return {
        "name": tensor.name,
        "shape": _dims(tensor),
        "type": schema.DTYPE.numbers[tensor.dtype.name],
        "data": _data(tensor),
        "variable": tensor.variable is not None,
        "is_unranked": tensor.shape is None,
        "variable_name": tensor.variable,
    }


def _dims(tensor: Tensor) -> list[int]:
    try:
        return [as_int32(dim) for dim in tensor.shape or ()]
    except OverflowError as error:
        raise ValueError(f"tensor {tensor.name!r} is {tensor}: {error}") from None


def _shape_fields(tensor: Tensor) -> dict[str, Any]:
    if tensor.shape is None or len(tensor.shape) != 1 or tensor.shape[0] < 0:
        raise ValueError(f"shape {tensor.name!r} is {tensor}, expected a list of known length")
    return {"name": tensor.name, "rank": _dims(tensor)[0], "data": _data(tensor)}


def _data(tensor: Tensor) -> bytes | None:
    if tensor.values is None:
        return None
    if tensor.values.shape != tensor.shape:
        message = f"{tensor.name!r} has values of shape {tensor.values.shape}"
        raise ValueError(f"{message}, expected {tensor.shape}")
    return dtypes.pack(tensor.values, tensor.dtype)


def _node_fields(node: Node, graph: Graph) -> dict[str, Any]:
    if node.op not in spec.OPERATORS:
        raise ValueError(f"{node.title}: {node.op!r} is not an operator of TOSA 1.0")
    names = (*node.inputs, *node.outputs)
    for name in names:
        if name not in graph.tensors:
            raise ValueError(f"{node.title}: tensor {name!r} is not declared")
    number = schema.OP.numbers[node.op]
    is_access = node.op in _ACCESSES
    return {
        "op": schema.OP.numbers["IDENTITY"] if is_access else number,
        "attribute_type": number,
        "attribute": write_attributes(node, [graph.tensors[n] for n in names]),
        "inputs": [*node.inputs, *_accessed(node, graph, "VARIABLE_READ")],
        "outputs": [*node.outputs, *_accessed(node, graph, "VARIABLE_WRITE")],
        "location": None if node.location is None else {"text": node.location},
    }


def _accessed(node: Node, graph: Graph, op: str) -> Iterator[str]:
    """Yields the tensor of the variable that a node names, if its operator is `op`."""
    if node.op != op:
        return
    for tensor in graph.tensors.values():
        if tensor.variable is not None and tensor.variable == node.attributes.get("name"):
            yield tensor.name
            return
    raise ValueError(f"{node.title}: no tensor stands for variable {node.attributes.get('name')!r}")
