"""The types of a module, and the conversion of elements to and from bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from tosajax import dtypes, spec
from tosajax.dtypes import DType
from tosajax.graph import DYNAMIC, Tensor
from tosajax.io.spirv.grammar import FLOATS, INTEGERS, OTHER_ENCODINGS, Op, Width
from tosajax.io.spirv.words import Instruction
from tosajax.report import FormatError, UnsupportedError

MOST_DIMENSIONS = spec.LEVELS["none"].MAX_RANK


class TensorType(NamedTuple):
    """A tensor type; dimensions are DYNAMIC if only the rank is known, `shape` is None if not."""

    dtype: DType
    shape: tuple[int, ...] | None

    def __str__(self) -> str:
        return str(Tensor("", self.dtype, self.shape))


class ArrayType(NamedTuple):
    """An array of scalars."""

    element: DType
    length: int

    def __str__(self) -> str:
        return f"an array of {self.length} {self.element.name}"


class StructType(NamedTuple):
    """A struct of tensors, the result type of an operator with several outputs."""

    members: tuple[TensorType, ...]

    def __str__(self) -> str:
        return f"a struct of {len(self.members)} tensors"


class PointerType(NamedTuple):
    """The type of an interface variable."""

    pointee: TensorType

    def __str__(self) -> str:
        return f"a pointer to {self.pointee}"


class GraphType(NamedTuple):
    """The types of a graph's inputs and outputs."""

    inputs: tuple[TensorType, ...]
    outputs: tuple[TensorType, ...]

    def __str__(self) -> str:
        return f"a graph of {len(self.inputs)} inputs and {len(self.outputs)} outputs"


class VoidType(NamedTuple):
    """The type of instructions without a result."""

    def __str__(self) -> str:
        return "void"


# A scalar's type is its DType. 64-bit integers in SPIR-V are int48; TOSA 1.0 lacks int64.
Type = DType | TensorType | ArrayType | StructType | PointerType | GraphType | VoidType


def describe(found: object) -> str:
    """Describes a type for messages; "no type" for None."""
    if isinstance(found, DType):
        return f"a scalar {found.name}"
    return "no type" if found is None else str(found)


def read_type(
    instruction: Instruction, types: Mapping[int, Type], numbers: Callable[[int], tuple[int, ...]]
) -> Type:
    """Reads the type that an instruction declares.

    Args:
      instruction: the instruction; its first operand is the type's id.
      types: the types declared before, by id.
      numbers: function that returns the unsigned elements of a constant, given its id.

    Raises:
      FormatError: the instruction is not well formed.
      UnsupportedError: TOSA does not have the type.
    """
    match instruction.opcode:
        case Op.OpTypeVoid:
            return VoidType()
        case Op.OpTypeBool:
            return DType.BOOL
        case Op.OpTypeInt:
            _, bits, _ = instruction.exactly(3)
            return _number(INTEGERS.get(bits), f"integers of {bits} bits")
        case Op.OpTypeFloat:
            return _float(instruction)
        case Op.OpTypeArray:
            _, element, length = instruction.exactly(3)
            return ArrayType(_scalar(types.get(element)), _positive(numbers(length)))
        case Op.OpTypeStruct:
            return StructType(_tensors(instruction.operands[1:], types))
        case Op.OpTypePointer:
            _, _, pointee = instruction.exactly(3)
            return PointerType(*_tensors((pointee,), types))
        case Op.OpTypeTensorARM:
            return _tensor(instruction, types, numbers)
        case Op.OpTypeGraphARM:
            return _graph(instruction, types)
    raise AssertionError(instruction)


def _number(dtype: DType | None, what: str) -> DType:
    if dtype is None:
        raise UnsupportedError(f"{what}, which TOSA 1.0 does not have")
    return dtype


def _float(instruction: Instruction) -> DType:
    (_, bits), encoding = instruction.first(2)
    if len(encoding) > 1:
        raise FormatError(f"{len(instruction.operands)} operands, expected 2 or 3")
    name = OTHER_ENCODINGS.get(encoding[0], encoding[0]) if encoding else ""
    what = f"floats of {bits} bits" + (f" in encoding {name}" if encoding else "")
    return _number(FLOATS.get(Width(bits, *encoding)), what)


def _only(numbers: tuple[int, ...]) -> int:
    if len(numbers) != 1:
        raise FormatError(f"{len(numbers)} numbers, expected one")
    return numbers[0]


def _positive(numbers: tuple[int, ...]) -> int:
    number = _only(numbers)
    if not number:
        raise FormatError("a number is 0, expected at least 1")
    return number


def _scalar(found: Type | None) -> DType:
    if not isinstance(found, DType):
        raise UnsupportedError(f"an array of {describe(found)}, expected one of scalars")
    return found


def _tensors(ids: tuple[int, ...], types: Mapping[int, Type]) -> tuple[TensorType, ...]:
    members = tuple(types.get(id) for id in ids)
    for type_ in members:
        if not isinstance(type_, TensorType):
            raise UnsupportedError(f"it is of {describe(type_)}, expected tensors")
    return members  # pyright: ignore[reportReturnType]


def _tensor(
    instruction: Instruction, types: Mapping[int, Type], numbers: Callable[[int], tuple[int, ...]]
) -> TensorType:
    (_, element), dimensions = instruction.first(2)
    dtype = types.get(element)
    if not isinstance(dtype, DType):
        raise FormatError(f"a tensor of {describe(dtype)}, expected one of scalars")
    if len(dimensions) > 2:
        raise FormatError(f"{len(instruction.operands)} operands, expected at most 4")
    if not dimensions:
        return TensorType(dtype, None)
    rank = _positive(numbers(dimensions[0]))
    if rank > MOST_DIMENSIONS:
        raise UnsupportedError(f"the rank is {rank}, of which TOSA has at most {MOST_DIMENSIONS}")
    shape = numbers(dimensions[1]) if len(dimensions) > 1 else (DYNAMIC,) * rank
    if len(shape) != rank or 0 in shape:
        message = f"{len(shape)} dimensions, {shape.count(0)} of them 0"
        raise FormatError(f"the shape has {message}, expected {rank} from 1 on")
    return TensorType(dtype, shape)


def _graph(instruction: Instruction, types: Mapping[int, Type]) -> GraphType:
    (_, inputs), ids = instruction.first(2)
    if inputs > len(ids):
        raise FormatError(f"{inputs} inputs of {len(ids)} types of inputs and outputs")
    ends = _tensors(ids, types)
    return GraphType(ends[:inputs], ends[inputs:])


# Elements as little-endian bytes, as in TOSA's files, except that an int48 has eight bytes.


def item_size(dtype: DType) -> int:
    """The size of an element in bytes."""
    return dtype.storage.itemsize


def unpacked(data: bytes | memoryview | np.ndarray, dtype: DType, shape: tuple[int, ...]):
    """Converts bytes to elements.

    Raises:
      ValueError: the number of bytes is wrong, or a value exceeds 48 bits.
    """
    if dtype is not DType.INT48:
        return dtypes.unpack(np.frombuffer(data, np.uint8), dtype, shape)
    values = np.frombuffer(data, "<i8").astype(np.int64).reshape(shape)
    return dtypes.to_storage(values, dtype)


def packed(values: np.ndarray, dtype: DType) -> bytes:
    """Converts elements to bytes, the inverse of `unpacked`."""
    if dtype is not DType.INT48:
        return dtypes.pack(values, dtype)
    return np.ascontiguousarray(values).astype("<i8").tobytes()
