"""Reads the dialect of TOSA 1.0 (since LLVM 21): its operations are the specification's operators.

Operands have the specification's order, and attributes its names; this module handles the
differences. Source: the dialect in LLVM 21 to 24.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from tosajax import spec
from tosajax.dtypes import DType
from tosajax.graph import Graph, Node, Rewrite, Tensor
from tosajax.io.mlir import signs
from tosajax.io.mlir.literals import Literals, format_of, integers, with_sign_of
from tosajax.io.mlir.scopes import Made, Scope, Variable
from tosajax.io.mlir.tree import Literal, Operation, Type, Value, Word
from tosajax.io.mlir.types import NAMES, TensorType, element_of, tensor_type
from tosajax.report import FormatError, UnsupportedError
from tosajax.spec import REQUIRED, Argument, Form, Operator, VarType

# Forms that are not attributes of an operation: the values of a constant, and regions.
_NOT_ATTRIBUTES = (Form.VALUES, Form.GRAPH)
# Flags of the dialect that TOSA 1.0 does not have.
_DRAFT_FLAGS = {"CAST": "input_unsigned"}
# Attributes that Arm's converter to VGF adds to operations; they do not affect results.
_OF_CONVERTERS = ("spirv_graph_constant_id", "graph_partition_id", "graph_partition_leaf_node")


class Current:
    """Builds graphs from the dialect of TOSA 1.0; see `scopes.Dialect`."""

    is_old = False

    def tensor(
        self, name: str, kind: TensorType, values: np.ndarray | None, variable: str | None
    ) -> Tensor:
        dtype = kind.dtype
        form = format_of(NAMES.get(dtype, ""))
        if values is not None and form is not None:
            values = with_sign_of(values, form)
        return Tensor(name, dtype, kind.shape, values, variable)

    def notes(self, name: str, kind: TensorType) -> Iterable[Rewrite]:
        return type_notes(name, kind, NAMES.get(kind.dtype), kind.dtype.name)

    def left_over(self, operation: Operation) -> Sequence[str]:
        return signs.left_over(operation)

    def node(self, made: Made, literals: Literals) -> Node:
        operator = operator_of(made)
        _check_signs(operator, made)
        attributes = self._attributes(operator, made, literals)
        graphs = (a.name for a in operator.attributes if a.form is Form.GRAPH)
        attributes |= dict(zip(graphs, made.graphs, strict=True))
        return Node(operator.name, made.inputs, made.outputs, attributes, made.location)

    def _attributes(self, operator: Operator, made: Made, literals: Literals) -> dict[str, Any]:
        wanted = [a for a in operator.attributes if a.form not in _NOT_ATTRIBUTES]
        stated = dict(made.operation.attributes)
        for name in (*self.left_over(made.operation), *_OF_CONVERTERS):
            stated.pop(name, None)
        if operator.name in spec.CONSTANT_OPERATORS:
            wanted = []
            stated.pop("values", None)
        flag = _DRAFT_FLAGS.get(operator.name, "")
        if stated.pop(flag, False):
            raise UnsupportedError(f"{flag} is true, which only TOSA 1.1 has")
        check_names(stated, [a.name for a in wanted])
        dtype = _own_type(operator, made)
        values: dict[str, Any] = {}
        for argument in wanted:
            try:
                values[argument.name] = _value(argument, stated.get(argument.name), dtype, literals)
            except (FormatError, UnsupportedError) as error:
                raise type(error)(f"{argument.name}: {error}") from None
        return values

    def declaration(self, variable: Variable, tensor: str) -> Node:
        kind = VarType.of(variable.type.dtype)
        shape = variable.type.shape
        if kind is None or shape is None:
            stated = Tensor(tensor, variable.type.dtype, shape)
            raise FormatError(f"variable {variable.name!r} is {stated}, which no variable can be")
        attributes = {"name": variable.name, "var_shape": shape, "type": kind}
        return Node("VARIABLE", (), (tensor,), attributes, variable.location)

    def graph(self, scope: Scope, inputs: Sequence[str], outputs: Sequence[str]) -> Graph:
        return Graph(
            tuple(inputs),
            tuple(outputs),
            scope.tensors,
            tuple(scope.nodes),
            scope.subgraphs,
            scope.name,
            quantization=scope.quantization,
        )

    def is_same(self, one: Graph, other: Graph) -> bool:
        return one == other


def operator_of(made: Made) -> Operator:
    """The operator of an operation.

    Raises:
      FormatError: the dialect does not have the operation.
      UnsupportedError: the operation is of TOSA 1.1.
    """
    name = made.operation.name
    if made.op in signs.DRAFT_OPERATORS:
        raise UnsupportedError(f"operation {name} is of TOSA 1.1, expected one of 1.0")
    if made.op not in spec.OPERATORS or name.count(".") > 1:
        raise FormatError(f"operation {name} is unknown")
    return spec.OPERATORS[made.op]


def type_notes(name: str, kind: TensorType, plain: str | None, dtype: str) -> Iterable[Rewrite]:
    """Yields a rewrite note if an element type is not `plain`, MLIR's signless name of `dtype`."""
    element = kind.element
    if element is None or element.stated == plain:
        return
    stated = element.stated if len(element.stated) <= 60 else f"{element.stated[:57]}..."
    done = f"{stated} is {dtype}"
    if element.stated.startswith("!"):
        kept = element.quantization is not None
        done += ", its scale is in Graph.quantization" if kept else ", its scale is left out"
    yield Rewrite(f"tensor {name!r}", done)


def check_names(given: dict[str, Any], wanted: Sequence[str]) -> None:
    """Checks that attributes are known; a name with a dot belongs to another dialect.

    Raises:
      UnsupportedError: an attribute is unknown.
    """
    for name in given:
        if name not in wanted and "." not in name:
            names = ", ".join(wanted) or "none"
            raise UnsupportedError(f"attribute {name!r} is unknown, expected {names}")


def word(found: Any) -> str:
    """The text of a bare word or a string.

    Raises:
      FormatError: the attribute is neither.
    """
    if isinstance(found, Word):
        return found.text.strip()
    if isinstance(found, str):
        return found
    raise FormatError(f"{shown(found)} is not a word")


def integer_list(found: Any) -> tuple[int, ...]:
    """The integers of an `array<i64: 1>` or a `[1]`.

    Raises:
      FormatError: the attribute is neither.
    """
    if isinstance(found, Literal):
        return integers(found)
    if isinstance(found, tuple) and all(isinstance(n, int) for n in found):
        return found
    raise FormatError(f"{shown(found)} is not a list of integers")


def number(found: Any, dtype: DType, literals: Literals) -> Any:
    """A number in the storage of `dtype`.

    Raises:
      FormatError: the attribute is not a number of this type.
    """
    if dtype.is_float:
        name = NAMES[dtype]
        form = format_of(name)
        if isinstance(found, Literal) and found.kind == "number" and found.type == name and form:
            return literals.array(found, form, ())[()]
        raise FormatError(f"{shown(found)} is not a number of {name}")
    low, high = -(1 << (dtype.bits - 1)), (1 << (dtype.bits - 1)) - 1
    if not isinstance(found, int) or isinstance(found, bool) or not low <= found <= high:
        raise FormatError(f"{shown(found)} is not a number of {NAMES.get(dtype, dtype.name)}")
    return dtype.storage.type(found)


def shown(found: Any) -> str:
    """Formats an attribute for messages."""
    if isinstance(found, Literal):
        stated = f" : {found.type}" if found.type else ""
        return f"{found.text[found.start : min(found.end, found.start + 40)]}{stated}"
    if isinstance(found, Word | Type):
        return found.text[:40]
    return repr(found)[:40]


def _value(argument: Argument, found: Any, dtype: DType | None, literals: Literals) -> Any:
    """Converts an attribute to the value that nodes store."""
    if found is None:
        if argument.default is REQUIRED:
            raise FormatError("it is missing")
        return argument.default
    kind = argument.dtype
    if argument.form is Form.LIST:
        return integer_list(found)
    if kind is spec.AccType:
        if not isinstance(found, Type):
            raise FormatError(f"{shown(found)} is not a type")
        return element_of(found.text).dtype
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        if word(found) not in kind.__members__:
            words = ", ".join(kind.__members__)
            raise FormatError(f"{shown(found)} is unknown, expected one of {words}")
        return kind[word(found)]
    if argument.name == "implementation_attrs":
        return _octets(found)
    if isinstance(kind, str):
        if dtype is None:
            raise FormatError("no tensor gives its type")
        return number(found, dtype, literals)
    if not isinstance(kind, type) or type(found) is not kind:
        wanted = getattr(kind, "__name__", str(kind))
        raise FormatError(f"{shown(found)} is not of type {wanted}")
    return found


def _octets(found: Any) -> bytes:
    if not isinstance(found, str | bytes):
        raise FormatError(f"{shown(found)} is not a string")
    return found.encode() if isinstance(found, str) else found


def _own_type(operator: Operator, made: Made) -> DType | None:
    """The tensors' element type, if the operator has attributes of that type (CLAMP), else None."""
    values = (*made.operation.operands, *made.operation.results)
    if operator.name != "CLAMP" or not values:
        return None
    return tensor_type(values[0].type).dtype


def _is_unsigned(value: Value) -> bool:
    element = tensor_type(value.type).element
    return element is not None and element.is_unsigned


def _check_signs(operator: Operator, made: Made) -> None:
    """Checks that an operator with unsigned tensors computes the same on signless integers.

    Raises:
      UnsupportedError: the results would differ.
    """
    operation = made.operation
    values = (*operation.operands, *operation.results)
    if operator.is_signless or not any(map(_is_unsigned, values)):
        return
    if operator.name != "RESCALE":
        stated = next(v.type for v in values if _is_unsigned(v))
        raise UnsupportedError(f"a tensor is {stated}, which only RESCALE computes with")
    ends = {"input_unsigned": operation.operands[:1], "output_unsigned": operation.results}
    for name, typed in ends.items():
        if any(map(_is_unsigned, typed)) and operation.attributes.get(name) is not True:
            raise UnsupportedError(f"a tensor is {typed[0].type}, and {name} is not true")
