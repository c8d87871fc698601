"""Converts attributes and constant data between fields of a file and values of a graph."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tosajax import dtypes, spec
from tosajax.dtypes import DType
from tosajax.graph import Node, Tensor
from tosajax.io import schema
from tosajax.io.schema import Blob
from tosajax.report import FormatError, UnsupportedError
from tosajax.spec import Argument, Form, Operator


def read_data(data: np.ndarray | bytes, dtype: DType, shape: Sequence[int]) -> np.ndarray:
    """Unpacks constant data.

    Zero bytes after the elements are accepted, because writers pad: tosa-opt to 8 bytes, ExecuTorch
    the zero points of per-channel weights to one for each channel.

    Raises:
      FormatError: the data is too short, or has nonzero bytes after the elements.
    """
    data = np.frombuffer(data, np.uint8)
    wanted = f"{dtype.name} of shape {tuple(shape)}"
    if any(dim < 0 for dim in shape):
        raise FormatError(f"{data.size} bytes of data for {wanted}")
    size = dtypes.packed_size(dtype, math.prod(shape))
    if data[size:].any():
        message = f"{data.size} bytes of data, not zero beyond byte {size}"
        raise FormatError(f"{message}, expected {size} bytes for {wanted}")
    try:
        return dtypes.unpack(data[:size], dtype, shape)
    except ValueError as error:  # too short; or too many or too large dimensions for NumPy
        raise FormatError(str(error)) from None


def read_dtype(number: int) -> DType:
    """The element type with a number in the schema.

    Raises:
      FormatError: the number is unknown.
      UnsupportedError: the type is of the draft of TOSA 1.1.
    """
    name = schema.DTYPE.name_of(number)
    if name in schema.DRAFT_DTYPES:
        raise UnsupportedError(f"element type {name} is of TOSA 1.1, expected one of 1.0")
    if name is None or name not in DType.__members__:
        raise FormatError(f"element type {number} is unknown")
    return DType[name]


def read_attributes(
    operator: Operator, fields: Mapping[str, Any], tensors: Sequence[Tensor | None]
) -> dict[str, Any]:
    """Reads the attribute table of an operator.

    Args:
      operator: the operator's row in the operator table.
      fields: the attribute table in the nested form.
      tensors: the node's inputs and outputs, whose type CLAMP's bounds have.

    Raises:
      FormatError: a value is missing, unknown, or of the wrong length.
      UnsupportedError: acc_type is of TOSA 1.1.
    """
    values: dict[str, Any] = {}
    for argument in schema.file_attributes(operator):
        try:
            value = _read(argument, fields[argument.name], operator, tensors)
        except (FormatError, UnsupportedError) as error:
            raise type(error)(f"{argument.name}: {error}") from None
        values[argument.name] = value
    return values


def _read(
    argument: Argument, found: Any, operator: Operator, tensors: Sequence[Tensor | None]
) -> Any:
    if argument.form is Form.LIST:
        return tuple(found or ())
    if argument.dtype is spec.AccType:
        return read_dtype(found)
    if isinstance(argument.dtype, type) and issubclass(argument.dtype, enum.Enum):
        return _read_enumerant(argument, found)
    if schema.attribute_type(argument) is Blob.OCTETS:
        data = b"" if found is None else found
        if argument.dtype is str:
            return bytes(data)
        return read_data(data, _type_of(argument, operator, tensors), (1,))[0]
    if found is None:
        raise FormatError("the file gives no value")
    return found


def _read_enumerant(argument: Argument, number: int) -> Any:
    """The enumerant with a number.

    A file without a value gives 0. Arm's model refuses 0 even if the specification has a default,
    because the default is meant for writers of graphs.
    """
    try:
        return argument.dtype(number)  # type: ignore[operator]
    except ValueError:
        names = ", ".join(m.name for m in argument.dtype)  # type: ignore[union-attr]
        message = f"value {number} is unknown" if number else "the file gives no value"
        raise FormatError(f"{message}, expected one of {names}") from None


def _type_of(argument: Argument, operator: Operator, tensors: Sequence[Tensor | None]) -> DType:
    """The element type of an attribute, if all tensors of the operator share its type variable.

    The first known tensor gives the type, even if the node has an illegal number of inputs.

    Raises:
      FormatError: the tensors have other type variables, or none is known.
    """
    same = all(a.dtype == argument.dtype for a in (*operator.inputs, *operator.outputs))
    for tensor in tensors if same else ():
        if tensor is not None:
            return tensor.dtype
    raise FormatError(f"no tensor gives its element type {argument.dtype}")


def write_attributes(node: Node, tensors: Sequence[Tensor]) -> dict[str, Any]:
    """Converts the attributes of a node to the nested form, the inverse of `read_attributes`.

    Attributes that the node omits get their default.

    Raises:
      ValueError: an attribute without a default is missing, or a value does not fit its type.
    """
    operator = spec.OPERATORS[node.op]
    fields: dict[str, Any] = {}
    for argument in schema.file_attributes(operator):
        value = node.attributes.get(argument.name, argument.default)
        if value is spec.REQUIRED:
            raise ValueError(f"{node.title}: attribute {argument.name} is missing")
        try:
            fields[argument.name] = _write(argument, value, operator, tensors)
        except OverflowError as error:
            raise ValueError(f"{node.title}: {argument.name} is {value!r}: {error}") from None
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            message = f"{node.title}: {argument.name} cannot be {value!r}"
            raise ValueError(message) from error
    return fields


def as_int32(value: Any) -> int:
    """Converts a number to an integer.

    Raises:
      OverflowError: it does not fit int32.
    """
    number = int(value)
    if not -(1 << 31) <= number < 1 << 31:
        raise OverflowError(f"{number} is beyond int32, the integers of TOSA files")
    return number


def _write(argument: Argument, value: Any, operator: Operator, tensors: Sequence[Tensor]) -> Any:
    if argument.form is Form.LIST:
        return [as_int32(v) for v in value]
    if argument.dtype is spec.AccType:
        return schema.DTYPE.numbers[value.name]
    if isinstance(argument.dtype, type) and issubclass(argument.dtype, enum.Enum):
        return argument.dtype(value).value
    if schema.attribute_type(argument) is not Blob.OCTETS:
        return value if isinstance(value, str) else as_int32(value)
    if argument.dtype is str:
        return value.encode() if isinstance(value, str) else bytes(value)
    dtype = _type_of(argument, operator, tensors)
    return dtypes.pack(np.asarray([value]), dtype)
