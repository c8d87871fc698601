"""Declares the types and constants of a module, each once, before its use."""

from __future__ import annotations

import itertools
from collections.abc import Hashable

import numpy as np

from tosajax.dtypes import DType
from tosajax.graph import DYNAMIC
from tosajax.io.spirv import grammar
from tosajax.io.spirv.constants import Constant
from tosajax.io.spirv.grammar import Capability, Op
from tosajax.io.spirv.types import (
    ArrayType,
    GraphType,
    PointerType,
    StructType,
    TensorType,
    Type,
    item_size,
    packed,
)
from tosajax.io.spirv.words import encoded

_MOST_LISTED = 16  # elements of a constant written one by one, at most
_BITS = {dtype: bits for bits, dtype in grammar.INTEGERS.items()}
_WIDTHS = {dtype: width for width, dtype in grammar.FLOATS.items()}


class Declarations:
    """The declarations of a module's types, constants and variables.

    Attributes:
      words: the declarations, as words.
      capabilities: the capabilities that they need.
      outside: the data of external constants, by id.
    """

    def __init__(self) -> None:
        self.words: list[int] = []
        self.capabilities: set[Capability] = set()
        self.outside: dict[int, np.ndarray] = {}
        self._ids = itertools.count(1)
        self._known: dict[Hashable, int] = {}

    def new_id(self) -> int:
        """Returns an unused id."""
        return next(self._ids)

    def type(self, wanted: Type) -> int:
        """The id of a type, declared on first use."""
        if wanted not in self._known:
            opcode, operands = self._type(wanted)
            self._known[wanted] = self.new_id()
            self.words += encoded(opcode, self._known[wanted], *operands)
        return self._known[wanted]

    def number(self, value: int) -> int:
        """The id of an unsigned 32-bit constant."""
        return self._scalar(DType.INT32, np.array(value, np.uint32).view(np.int32))

    def constant(self, found: Constant, *, listed: bool = False) -> int:
        """The id of a constant, declared on first use.

        Large constants are external, unless all elements are equal.

        Args:
          found: a scalar or a tensor.
          listed: whether to write elements one by one, whatever their number.
        """
        type_, values = found
        if isinstance(type_, DType):
            return self._scalar(type_, values)
        assert isinstance(type_, TensorType)
        key = type_, packed(values, type_.dtype)
        if key not in self._known:
            opcode, operands = self._tensor(type_, values, key[1], listed)
            kind, self._known[key] = self.type(type_), self.new_id()
            self.words += encoded(opcode, kind, self._known[key], *operands)
        return self._known[key]

    def variable(self, type_: TensorType) -> int:
        """Declares an interface variable; returns its id."""
        kind, id = self.type(PointerType(type_)), self.new_id()
        self.words += encoded(Op.OpVariable, kind, id, grammar.UNIFORM_CONSTANT)
        return id

    def _type(self, wanted: Type) -> tuple[Op, tuple[int, ...]]:
        """The opcode of a type's instruction, and its operands after the id."""
        match wanted:
            case DType():
                return self._scalar_type(wanted)
            case TensorType(dtype, shape):
                return Op.OpTypeTensorARM, (self.type(dtype), *self._dimensions(shape))
            case ArrayType(element, length):
                return Op.OpTypeArray, (self.type(element), self.number(length))
            case PointerType(pointee):
                return Op.OpTypePointer, (grammar.UNIFORM_CONSTANT, self.type(pointee))
            case StructType(members):
                return Op.OpTypeStruct, tuple(map(self.type, members))
            case GraphType(inputs, outputs):
                ends = map(self.type, (*inputs, *outputs))
                return Op.OpTypeGraphARM, (len(inputs), *ends)
        return Op.OpTypeVoid, ()

    def _scalar_type(self, dtype: DType) -> tuple[Op, tuple[int, ...]]:
        if dtype in grammar.CAPABILITY_OF:
            self.capabilities.add(grammar.CAPABILITY_OF[dtype])
        if dtype is DType.BOOL:
            return Op.OpTypeBool, ()
        if dtype in _BITS:
            return Op.OpTypeInt, (_BITS[dtype], 0)
        bits, encoding = _WIDTHS[dtype]
        return Op.OpTypeFloat, (bits,) if encoding is None else (bits, encoding)

    def _dimensions(self, shape: tuple[int, ...] | None) -> tuple[int, ...]:
        """The operands of a tensor type: the rank and the dimensions, if known."""
        if shape is None:
            return ()
        rank = self.number(len(shape))
        return (rank,) if DYNAMIC in shape else (rank, self._array(shape))

    def _array(self, numbers: tuple[int, ...]) -> int:
        if (ArrayType, numbers) not in self._known:
            kind = self.type(ArrayType(DType.INT32, len(numbers)))
            parts, id = [self.number(number) for number in numbers], self.new_id()
            self.words += encoded(Op.OpConstantComposite, kind, id, *parts)
            self._known[ArrayType, numbers] = id
        return self._known[ArrayType, numbers]

    def _scalar(self, dtype: DType, value: np.ndarray) -> int:
        content = packed(value, dtype)
        if (dtype, content) not in self._known:
            kind, id = self.type(dtype), self.new_id()
            padded = content.ljust(-(-len(content) // 4) * 4, b"\0")
            words = np.frombuffer(padded, "<u4").tolist()
            if dtype is DType.BOOL:
                opcode, words = (Op.OpConstantTrue if words[0] else Op.OpConstantFalse), []
            else:
                opcode = Op.OpConstant
            self.words += encoded(opcode, kind, id, *words)
            self._known[dtype, content] = id
        return self._known[dtype, content]

    def _tensor(
        self, type_: TensorType, values: np.ndarray, content: bytes, listed: bool
    ) -> tuple[Op, list[int]]:
        """The opcode of a constant tensor's instruction, and its operands after the id."""
        dtype = type_.dtype
        if content.count(0) == len(content):
            return Op.OpConstantNull, []
        if listed or (values.ndim == 1 and values.size <= _MOST_LISTED):
            return Op.OpConstantComposite, [self._scalar(dtype, value) for value in values]
        if content == content[: item_size(dtype)] * values.size:
            self.capabilities.add(Capability.ReplicatedCompositesEXT)
            return Op.OpConstantCompositeReplicateEXT, [self._scalar(dtype, values.flat[0])]
        self.outside[len(self.outside)] = values
        return Op.OpGraphConstantARM, [len(self.outside) - 1]
