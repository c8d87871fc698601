"""Reads the constants of a module, internal and external."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from tosajax.dtypes import DType, holds_bits
from tosajax.graph import DYNAMIC
from tosajax.io.spirv.grammar import Op
from tosajax.io.spirv.types import ArrayType, TensorType, Type, describe, item_size, unpacked
from tosajax.io.spirv.words import Instruction
from tosajax.report import FormatError, UnsupportedError

# The size limit of all constants in a module, in bytes. A few words could otherwise declare
# constants of any size, by repeating elements or other constants.
_MOST = 1 << 28

# A function that returns the data of an external constant, given its id and type.
Fetch = Callable[[int, TensorType], np.ndarray]


class Constant(NamedTuple):
    """A constant scalar, array or tensor; `values` has the type's storage and shape."""

    type: DType | ArrayType | TensorType
    values: np.ndarray


class Outside(NamedTuple):
    """A constant tensor whose elements are not in the module."""

    type: TensorType
    number: int


class Constants:
    """The constants of a module, by id.

    Specialization constants (OpSpecConstant) have their default values.

    Args:
      types: the module's types, by id; the mapping may grow later.
      fetch: function that returns the data of external constants.
    """

    def __init__(self, types: Mapping[int, Type], fetch: Fetch) -> None:
        self._types, self._fetch = types, fetch
        self._known: dict[int, Constant] = {}
        self._outside: dict[int, Outside] = {}
        self._left = _MOST

    def __contains__(self, id: int) -> bool:
        return id in self._known or id in self._outside

    def __getitem__(self, id: int) -> Constant:
        """The constant with an id.

        Raises:
          FormatError: the id is not a constant, or external data is missing or does not fit.
        """
        if id in self._outside and id not in self._known:
            outside = self._outside[id]
            self._known[id] = Constant(outside.type, self._fetch(outside.number, outside.type))
        if id not in self._known:
            raise FormatError(f"%{id} is not a constant")
        return self._known[id]

    def type_of(self, id: int) -> DType | ArrayType | TensorType | None:
        """The type of a constant; None if the id is not a constant."""
        constant = self._known.get(id) or self._outside.get(id)
        return constant.type if constant else None

    def numbers(self, id: int) -> tuple[int, ...]:
        """The elements of a constant scalar or list, as unsigned integers.

        Raises:
          FormatError: the constant does not have integers.
        """
        type_, values = self[id]
        if values.dtype.kind != "i" or values.ndim > 1:
            raise FormatError(f"%{id} is {describe(type_)}, expected integers")
        return tuple(np.ravel(values).view(f"u{values.dtype.itemsize}").tolist())

    def read(self, instruction: Instruction) -> None:
        """Adds the constant that an instruction declares.

        Raises:
          FormatError: the instruction is not well formed.
          UnsupportedError: the constant is not a scalar, array or tensor, or is too large.
        """
        (kind, id), operands = instruction.first(2)
        type_ = self._types.get(kind)
        if instruction.opcode == Op.OpGraphConstantARM:
            (_, _, number) = instruction.exactly(3)
            self._outside[id] = Outside(_shaped(type_), number)
            return
        if not isinstance(type_, DType | ArrayType | TensorType):
            raise UnsupportedError(f"a constant of {describe(type_)}, expected numbers or tensors")
        self._known[id] = Constant(type_, self._values(instruction.opcode, type_, operands))

    def _values(
        self, opcode: int, type_: DType | ArrayType | TensorType, operands: tuple[int, ...]
    ) -> np.ndarray:
        match opcode:
            case Op.OpConstantTrue | Op.OpSpecConstantTrue:
                return _boolean(type_, True)
            case Op.OpConstantFalse | Op.OpSpecConstantFalse:
                return _boolean(type_, False)
            case Op.OpConstant | Op.OpSpecConstant:
                return _scalar(type_, operands)
            case Op.OpConstantNull:
                return _element(type_).zeros(self._bounded(type_))
            case Op.OpConstantComposite | Op.OpSpecConstantComposite:
                return self._composite(type_, operands)
            case Op.OpConstantCompositeReplicateEXT | Op.OpSpecConstantCompositeReplicateEXT:
                return self._replicated(type_, operands)
        raise AssertionError(opcode)

    def _bounded(self, type_: DType | ArrayType | TensorType) -> tuple[int, ...]:
        """The shape of a constant, whose size is subtracted from the limit for all constants."""
        shape = _shape(type_)
        self._left -= math.prod(shape) * item_size(_element(type_))
        if self._left < 0:
            raise UnsupportedError(f"the constants within the module have more than {_MOST} bytes")
        return shape

    def _composite(
        self, type_: DType | ArrayType | TensorType, operands: tuple[int, ...]
    ) -> np.ndarray:
        shape = self._bounded(type_)
        if not shape or len(operands) != shape[0]:
            raise FormatError(f"{len(operands)} parts of {describe(type_)}")
        parts = [self._part(type_, id) for id in operands]
        return np.stack(parts)

    def _replicated(
        self, type_: DType | ArrayType | TensorType, operands: tuple[int, ...]
    ) -> np.ndarray:
        """The values of a replicated constant, whose operand is a scalar or a part."""
        shape = self._bounded(type_)
        if not shape or len(operands) != 1:
            raise FormatError(f"{len(operands)} equal parts of {describe(type_)}, expected one")
        (id,) = operands
        if self.type_of(id) == _element(type_):
            return np.full(shape, self[id].values, _element(type_).storage)
        return np.array(np.broadcast_to(self._part(type_, id), shape))

    def _part(self, whole: DType | ArrayType | TensorType, id: int) -> np.ndarray:
        """The values of a constituent, which is a slice along the first dimension."""
        rest = _shape(whole)[1:]
        wanted = TensorType(_element(whole), rest) if rest else _element(whole)
        if self.type_of(id) != wanted:
            kind = describe(self.type_of(id))
            raise FormatError(f"a part of {describe(whole)} is {kind}, not {describe(wanted)}")
        return self[id].values


def _shaped(type_: Type | None) -> TensorType:
    if not isinstance(type_, TensorType):
        raise FormatError(f"a constant outside is {describe(type_)}, expected a tensor")
    _shape(type_)
    return type_


def _shape(type_: DType | ArrayType | TensorType) -> tuple[int, ...]:
    if isinstance(type_, TensorType):
        if type_.shape is None or DYNAMIC in type_.shape:
            raise FormatError(f"a constant is {type_}, expected a tensor of known shape")
        return type_.shape
    return (type_.length,) if isinstance(type_, ArrayType) else ()


def _element(type_: DType | ArrayType | TensorType) -> DType:
    if isinstance(type_, DType):
        return type_
    return type_.element if isinstance(type_, ArrayType) else type_.dtype


def _boolean(type_: DType | ArrayType | TensorType, value: bool) -> np.ndarray:
    if type_ is not DType.BOOL:
        raise FormatError(f"a boolean is {describe(type_)}")
    return np.array(value)


def _scalar(type_: DType | ArrayType | TensorType, words: tuple[int, ...]) -> np.ndarray:
    if not isinstance(type_, DType) or type_ is DType.BOOL:
        raise FormatError(f"a number is {describe(type_)}")
    size = item_size(type_)
    if len(words) != -(-size // 4):
        raise FormatError(f"{len(words)} words of {describe(type_)}")
    content = np.array(words, "<u4").tobytes()  # narrow numbers use the low bits
    try:
        return unpacked(content[:size], type_, ())
    except ValueError as error:
        raise FormatError(f"a number: {error}") from None


# Data of external constants.


def given(constants: Mapping[int, np.ndarray] | None) -> Fetch:
    """Returns a function that takes the data of external constants from arrays, by id.

    Narrow floats may also be arrays of their bits, as NumPy saves them.
    """

    def fetch(number: int, type_: TensorType) -> np.ndarray:
        place = f"graph constant {number}, {type_},"
        if constants is None or number not in constants:
            wanted = "pass `constants`, or have their file beside the module"
            raise FormatError(f"{place} has no data: {wanted}")
        array = np.asarray(constants[number])
        storage = type_.dtype.storage
        if array.dtype != storage and not holds_bits(array.dtype, storage):
            raise FormatError(f"{place} has data of type {array.dtype}, expected {storage}")
        if array.shape != type_.shape:
            raise FormatError(f"{place} has data of shape {array.shape}")
        try:
            return unpacked(np.ascontiguousarray(array).tobytes(), type_.dtype, array.shape)
        except ValueError as error:
            raise FormatError(f"{place} has data that does not fit: {error}") from None

    return fetch
