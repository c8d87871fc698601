"""Reads the dialect before TOSA 1.0 (until LLVM 20), whose operations are TOSA 0.80's.

Zero points, shifts and shapes are attributes. Between this dialect and the dialect of TOSA 1.0, one
version mixes attributes and operands. Source: the dialect in LLVM 19 and 20.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from tosajax import spec
from tosajax.graph import Rewrite
from tosajax.io.mlir.current import integer_list, shown, type_notes, word
from tosajax.io.mlir.literals import Literals, format_of
from tosajax.io.mlir.scopes import Made, Scope, Variable
from tosajax.io.mlir.tree import Literal, Operation, Type, Word
from tosajax.io.mlir.types import NAMES, Element, TensorType, element_of, tensor_type
from tosajax.io.pre_1_0.model import OldGraph, OldNode, OldTensor
from tosajax.report import FormatError, UnsupportedError

_QUANTIZATION = "quantization_info"
# Operators with different names in files of 0.80.
_OPERATORS = {"INT_DIV": "INTDIV", "REDUCE_PROD": "REDUCE_PRODUCT"}
# Attributes with different names in files of 0.80.
_RENAMED = {
    "out_shape": "output_shape",
    "identifier": "operator_name",
    "config": "domain_name",
}
# Zero points whose names in files differ from those in quantization_info, by operator.
_ZERO_POINTS = {"NEGATE": {"input_zp": "input1_zp"}, "PAD": {"input_zp": "pad_const_int"}}
_GRAPHS = {
    "COND_IF": ("then_branch", "else_branch"),
    "WHILE_LOOP": ("cond_branch", "body_branch"),
}
_UNSIGNED = {"ui8": "UINT8", "ui16": "UINT16"}
_PLAIN = {dtype.name: name for dtype, name in NAMES.items()}
_LISTS = ("i64", "index")  # element types of constants that are shapes, perms or paddings
_PAIR = re.compile(r"\s*(\w+)\s*=\s*(-?[0-9]{1,18})\s*")


class Old:
    """Builds graphs from the dialect before TOSA 1.0; see `scopes.Dialect`."""

    is_old = True

    def tensor(
        self, name: str, kind: TensorType, values: np.ndarray | None, variable: str | None
    ) -> OldTensor:
        return OldTensor(name, _dtype(kind.element), kind.shape, values)

    def notes(self, name: str, kind: TensorType) -> Iterable[Rewrite]:
        if kind.element is not None and kind.element.stated.startswith("!"):
            return type_notes(name, kind, None, _dtype(kind.element))
        return ()

    def left_over(self, operation: Operation) -> Sequence[str]:
        return ()

    def node(self, made: Made, literals: Literals) -> OldNode:
        op = _OPERATORS.get(made.op, made.op)
        attributes: dict[str, Any] = {}
        for name, attribute in made.operation.attributes.items():
            if op in spec.CONSTANT_OPERATORS or "." in name:
                continue
            try:
                attributes |= _attribute(op, name, attribute, literals)
            except (FormatError, UnsupportedError) as error:
                raise type(error)(f"{name}: {error}") from None
        attributes |= dict(zip(_GRAPHS.get(op, ()), made.graphs, strict=True))
        return OldNode(op, made.inputs, made.outputs, attributes, made.location)

    def declaration(self, variable: Variable, tensor: str) -> OldNode:
        attributes = {
            "name": variable.name,
            "type": _dtype(variable.type.element),
            "var_shape": variable.type.shape,
            "initial_value": variable.values,
        }
        return OldNode("VARIABLE", (), (), attributes, variable.location)

    def graph(self, scope: Scope, inputs: Sequence[str], outputs: Sequence[str]) -> OldGraph:
        stand_ins = {*scope.stand_ins.values()}  # `upgrade` makes its own tensors of variables
        return OldGraph(
            tuple(inputs),
            tuple(outputs),
            {name: tensor for name, tensor in scope.tensors.items() if name not in stand_ins},
            tuple(scope.nodes),
            scope.subgraphs,
            scope.name,
        )

    def is_same(self, one: OldGraph, other: OldGraph) -> bool:
        return False


def _dtype(element: Element | None) -> str:
    """The name of an element type in files of 0.80."""
    if element is None or element.name in _LISTS:
        return "SHAPE"
    if element.is_unsigned and element.name not in _UNSIGNED:
        raise UnsupportedError(f"element type {element.stated} is not one of TOSA")
    return _UNSIGNED.get(element.name) or element.dtype.name


def _attribute(op: str, name: str, found: Any, literals: Literals) -> dict[str, Any]:
    """Converts an attribute to the names of files; quantization_info becomes several."""
    if name == _QUANTIZATION:
        return _zero_points(op, found)
    name = _RENAMED.get(name, name)
    if isinstance(found, Literal) and found.kind == "number":
        form = format_of(found.type)
        if form is None:
            raise FormatError(f"{shown(found)} is of an unknown type")
        return {name: literals.array(found, form, ())[()]}
    if isinstance(found, Literal) and found.kind == "dense":
        kind = tensor_type(found.type)
        form = format_of(kind.element.name) if kind.element is not None else None
        if form is None or kind.shape is None:
            raise FormatError(f"{shown(found)} is of an unknown type")
        return {name: literals.array(found, form, kind.shape)}
    if isinstance(found, Type):
        return {name: element_of(found.text).dtype.name}
    if isinstance(found, Word):
        return {name: word(found)}
    if isinstance(found, Literal | tuple):
        return {name: integer_list(found)}
    if name == "implementation_attrs":
        return {name: found.encode() if isinstance(found, str) else found}
    return {name: found}


def _zero_points(op: str, found: Any) -> dict[str, int]:
    """Parses zero points such as `#tosa.conv_quant<input_zp = -3, weight_zp = 0>`."""
    pairs = [_PAIR.fullmatch(part) for part in word(found).split(",")]
    if not all(pairs):
        raise FormatError(f"{shown(found)} is not a list of zero points")
    names = _ZERO_POINTS.get(op, {})
    return {names.get(pair[1], pair[1]): int(pair[2]) for pair in pairs if pair is not None}
