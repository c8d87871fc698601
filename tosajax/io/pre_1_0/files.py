"""Reads files of TOSA before 1.0, flatbuffer and JSON.

Rules that the schemas do not state (from the writers of these versions):
- A file of 0.60.0 may omit its version numbers, because they are the defaults of its schema.
- Control flow names regions, or blocks of its own region other than the first.
- A variable is a tensor with a variable flag, with its initial value as data. IDENTITY reads and
  writes it; files do not have operators for variables.
- Float attributes of CLAMP and PAD are float32, whatever the tensor's type.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from tosajax.dtypes import DType
from tosajax.graph import Graph, Rewrite, Source
from tosajax.io import flatbuffer, json_form
from tosajax.io.attributes import read_data
from tosajax.io.interchange import nest
from tosajax.io.pre_1_0 import schema
from tosajax.io.pre_1_0.model import OldGraph, OldNode, OldTensor
from tosajax.io.pre_1_0.schema import LAYOUTS, Layout
from tosajax.io.pre_1_0.upgrade import upgrade_each
from tosajax.io.schema import Blob, Field, Scalar, Vector
from tosajax.report import FormatError, UnsupportedError

_NUMBERS = ("_major", "_minor", "_patch")
_FLOATS = ("min_fp", "max_fp", "pad_const_fp")
_UNSIGNED = {"UINT8": DType.INT8, "UINT16": DType.INT16}


def read_flatbuffer(data: memoryview) -> Graph:
    """Reads the graph of a flatbuffer of 0.60, 0.80 or 0.90; see `tosajax.io.pre_1_0`."""
    return _read(flatbuffer.decode, data, "TOSA flatbuffer")


def read_json(raw: Mapping[str, Any]) -> Graph:
    """Reads the graph of a JSON file of 0.60, 0.80 or 0.90; see `tosajax.io.pre_1_0`."""
    return _read(json_form.decode, raw, "TOSA JSON")


def _read(decode: Callable[..., dict[str, Any]], content: Any, form: str) -> Graph:
    version = _version(decode, content)
    layout = LAYOUTS.get((version.major, version.minor))
    if layout is None:
        wanted = ", ".join(f"{major}.{minor}" for major, minor in LAYOUTS)
        raise UnsupportedError(f"TOSA version {version} is not supported, expected {wanted}")
    graphs = _graphs(decode(content, layout.graph), layout)
    upgraded, rewrites = upgrade_each(graphs, f"TOSA {version}")
    source = Source(form, str(version), rewrites=(*version.doubts(), *rewrites))
    return dataclasses.replace(nest(upgraded), source=source)


# The version, which determines the layout of the rest.


class _Version(NamedTuple):
    major: int
    minor: int
    patch: int
    draft: bool
    stated: bool = True

    def __str__(self) -> str:
        draft = "-draft" if self.draft else ""
        return f"{self.major}.{self.minor}.{self.patch}{draft}"

    def doubts(self) -> tuple[Rewrite, ...]:
        """A note that the version is assumed, if the file does not state one."""
        if self.stated:
            return ()
        done = "read as 0.60.0, as the file states no number"
        return (Rewrite("version", done, "files of versions before 0.60 state none either"),)


def _version(decode: Callable[..., dict[str, Any]], content: Any) -> _Version:
    """The version, with the defaults of the writer's schema.

    Only the schema of 0.60 has version numbers as defaults.

    Raises:
      FormatError: the file states no version.
    """
    stated = decode(content, LAYOUTS[0, 80].graph, ("version",))["version"]
    if stated is None:
        raise FormatError("the file states no version")
    numbers = [stated[name] for name in _NUMBERS]
    if numbers[0] != -1 and numbers[:2] != [0, 60]:
        return _Version(*numbers, draft=stated["_draft"])
    fields = decode(content, LAYOUTS[0, 60].graph, ("version",))["version"]
    return _Version(
        *(fields[name] for name in _NUMBERS),
        draft=fields["_draft"],
        stated=any(number != -1 for number in numbers),
    )


# Regions and blocks.


def _graphs(root: Mapping[str, Any], layout: Layout) -> dict[str, OldGraph]:
    """Reads the graphs, by the names that control flow uses; the first is the main graph."""
    graphs: dict[str, OldGraph] = {}
    for region in root["regions"] or ():
        blocks = region["blocks"] or ()
        if not blocks:
            raise FormatError(f"region {region['name']!r} has no block")
        names = [region["name"], *(block["name"] for block in blocks[1:])]
        for name, block in zip(names, blocks, strict=True):
            if not name or name in graphs:
                raise FormatError(f"region or block name {name!r} is empty or used twice")
            graphs[name] = _within(f"region {name!r}", _Block(block, name, layout).graph)
    if not graphs:
        raise FormatError("the file has no regions")
    return _declared_once(graphs)


def _declared_once(graphs: Mapping[str, OldGraph]) -> dict[str, OldGraph]:
    """Removes repeated declarations: only the first graph with a variable declares it.

    Raises:
      FormatError: two graphs declare a variable differently.
    """
    declared: dict[str, OldNode] = {}

    def is_first(node: OldNode) -> bool:
        if node.op != "VARIABLE":
            return True
        name = node.attributes["name"]
        first = declared.setdefault(name, node)
        if not _same(first.attributes, node.attributes):
            raise FormatError(f"variable {name!r} is declared twice, differently")
        return first is node

    return {
        name: dataclasses.replace(graph, nodes=tuple(filter(is_first, graph.nodes)))
        for name, graph in graphs.items()
    }


def _same(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    """Whether two declarations of a variable have equal attributes, bit for bit."""
    values = [dict(attributes) for attributes in (first, second)]
    bits = [np.asarray(v.pop("initial_value")).tobytes() for v in values]
    return values[0] == values[1] and bits[0] == bits[1]


def _within(place: str, read: Callable[..., Any], *arguments: Any) -> Any:
    """Calls `read`, and prefixes the messages of its errors with `place`."""
    try:
        return read(*arguments)
    except (FormatError, UnsupportedError) as error:
        raise type(error)(f"{place}: {error}") from None


class _Block:
    """Reads one block."""

    def __init__(self, block: Mapping[str, Any], name: str, layout: Layout) -> None:
        self.block = block
        self.name = name
        self.layout = layout
        self.constants = {
            name
            for operator in block["operators"] or ()
            if layout.op.name_of(operator["op"]) in ("CONST", "CONST_SHAPE")
            for name in operator["outputs"] or ()
        }
        self.variables: dict[str, str] = {}  # the variables' names, by the names of their tensors

    def graph(self) -> OldGraph:
        tensors: dict[str, OldTensor] = {}
        variables: list[OldNode] = []
        for fields in self.block["tensors"] or ():
            tensor = _within(f"tensor {fields['name']!r}", self.tensor, fields)
            if not tensor.name:
                raise FormatError("a tensor has no name")
            if tensors.setdefault(tensor.name, tensor) is not tensor:
                raise FormatError(f"tensor {tensor.name!r} is declared twice")
            if fields.get("variable"):
                variables.append(self.variable(fields, tensor))
        nodes = [self.node(fields) for fields in self.block["operators"] or ()]
        ends = {side: tuple(self.block[side] or ()) for side in ("inputs", "outputs")}
        for side, names in ends.items():
            _within(f"graph {side}", self.check_plain, names)
            for name in names:
                if name not in tensors:
                    raise FormatError(f"graph {side}: tensor {name!r} is not declared")
        return OldGraph(
            ends["inputs"], ends["outputs"], tensors, (*variables, *nodes), name=self.name
        )

    def tensor(self, fields: Mapping[str, Any]) -> OldTensor:
        number = fields["type"]
        dtype = self.layout.dtype.name_of(number)
        if dtype is None or dtype == "UNKNOWN":
            raise FormatError(f"element type {number} is unknown")
        shape = None if fields.get("is_unranked") else tuple(fields["shape"] or ())
        data = fields["data"]
        is_variable = fields.get("variable") and data is not None and data.size
        values = None
        if fields["name"] in self.constants or is_variable:
            if shape is None:
                raise FormatError("it has data and no rank")
            values = _values(data, dtype, shape)
        return OldTensor(fields["name"], dtype, shape, values)

    def variable(self, fields: Mapping[str, Any], tensor: OldTensor) -> OldNode:
        name = fields["variable_name"]
        if not name:
            raise FormatError(f"tensor {tensor.name!r} is a variable of no name")
        if name in self.variables.values():
            raise FormatError(f"variable {name!r} has two tensors")
        self.variables[tensor.name] = name
        return OldNode(
            "VARIABLE",
            (),
            (tensor.name,),
            {
                "name": name,
                "var_shape": tensor.shape,
                "type": tensor.dtype,
                "initial_value": tensor.values,
            },
        )

    def node(self, fields: Mapping[str, Any]) -> OldNode:
        op = self.layout.op.name_of(fields["op"])
        outputs = ", ".join(map(repr, fields["outputs"] or ()))
        place = f"{op or 'operator'} {outputs}".rstrip()
        return _within(place, self.read_node, op, fields)

    def read_node(self, op: str | None, fields: Mapping[str, Any]) -> OldNode:
        if op not in schema.OPERATORS:
            raise FormatError(f"operator {fields['op']} is unknown")
        inputs, outputs = tuple(fields["inputs"] or ()), tuple(fields["outputs"] or ())
        if op == "IDENTITY" and (access := self.access(inputs, outputs)):
            return access
        self.check_plain((*inputs, *outputs))
        return OldNode(op, inputs, outputs, self.attributes(op, fields))

    def access(self, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> OldNode | None:
        """The node for an IDENTITY that reads or writes a variable; None for other IDENTITYs."""
        if len(inputs) != 1 or len(outputs) != 1:
            return None
        read, written = self.variables.get(inputs[0]), self.variables.get(outputs[0])
        if read is not None and written is None:
            return OldNode("VARIABLE_READ", (), outputs, {"name": read})
        if written is not None and read is None:
            return OldNode("VARIABLE_WRITE", inputs, (), {"name": written})
        return None

    def attributes(self, op: str, fields: Mapping[str, Any]) -> dict[str, Any]:
        number, content = fields["attribute_type"], fields["attribute"]
        if not number:
            return {}
        wanted = schema.ATTRIBUTES.get(op)
        table = self.layout.attribute_type.name_of(number)
        if wanted is None or table != wanted.name:
            shown = table or f"of unknown type {number}"
            name = "none" if wanted is None else wanted.name
            raise FormatError(f"the attribute table is {shown}, expected {name}")
        if content is None:
            raise FormatError("the attribute table is missing")
        named = {schema.RENAMED.get(name, name): value for name, value in content.items()}
        read = ((f.name, _attribute(f, named[f.name])) for f in wanted.fields if f.name in named)
        return {name: value for name, value in read if value is not None}

    def check_plain(self, names: Iterable[str]) -> None:
        """Checks that tensors are not variables."""
        for name in names:
            if name in self.variables:
                raise FormatError(f"{name!r} is a variable, which only IDENTITY reads and writes")


def _values(data: np.ndarray | None, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    """Unpacks the values of a constant; unsigned values to unsigned arrays."""
    signless = _UNSIGNED.get(dtype)
    data = np.empty(0, np.uint8) if data is None else data
    values = read_data(data, signless or DType[dtype], shape)
    return values if signless is None else values.view(f"u{values.dtype}")


def _attribute(field: Field, value: Any) -> Any:
    """Converts a field of an attribute table to its value; None if the file omits it.

    Raises:
      FormatError: the number of an enumerant is unknown, or data is not one float32.
    """
    if field.name in _FLOATS:
        empty = value is None or not value.size
        return None if empty else float(_within(field.name, read_data, value, DType.FP32, (1,))[0])
    match field.type:
        case Vector():
            return tuple(value or ())
        case Blob.OCTETS:
            return b"" if value is None else bytes(value)
        case Blob.TEXT:
            return value or ""
        case Scalar():
            return value
        case _:
            return _member(field, value)


def _member(field: Field, number: int) -> str | None:
    name = field.type.name_of(number)  # type: ignore[union-attr]
    if name is None:
        raise FormatError(f"{field.name}: value {number} is unknown")
    return None if name == "UNKNOWN" else name
