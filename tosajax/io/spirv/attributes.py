"""Attributes of nodes <-> constants of a module."""

from __future__ import annotations

import enum
from typing import Any

import numpy as np

from tosajax import spec
from tosajax.dtypes import DType, to_storage
from tosajax.io.spirv.constants import Constant
from tosajax.io.spirv.types import TensorType, describe
from tosajax.report import FormatError
from tosajax.spec import Argument, Form


def read_attribute(argument: Argument, found: Constant, element: DType) -> Any:
    """The value of an attribute.

    Args:
      argument: its row of the operator table.
      found: the constant in its place.
      element: of the operator's tensors, for CLAMP's bounds.

    Raises:
      FormatError: the constant has another type, or is no number of the enumeration.
    """
    if argument.form is Form.LIST:
        return tuple(integers(found).tolist())
    wanted = _scalar_type(argument, element)
    if found.type is not wanted:
        raise FormatError(f"it is {describe(found.type)}, expected {describe(wanted)}")
    value = found.values[()]
    if isinstance(argument.dtype, str):
        return value
    if argument.dtype in (bool, int):
        return value.item()
    return _member(argument.dtype, value.item())


def integers(found: Constant) -> np.ndarray:
    """The elements of a list, a tensor of one dimension and int32.

    Raises:
      FormatError: the constant is something else.
    """
    type_, values = found
    if not isinstance(type_, TensorType) or values.dtype != np.int32 or values.ndim != 1:
        raise FormatError(f"it is {describe(type_)}, expected a list of INT32")
    return values


def attribute_constant(argument: Argument, value: Any, element: DType) -> Constant:
    """The constant in the place of an attribute, the inverse of `read_attribute`.

    Raises:
      ValueError: no constant of its type has the value; so do the errors of other types below.
    """
    if argument.form is Form.LIST:
        return list_constant(value)
    dtype = _scalar_type(argument, element)
    if argument.dtype is spec.AccType:
        value = spec.AccType[value.name]
    elif not isinstance(argument.dtype, str) and argument.dtype not in (bool, int):
        value = argument.dtype(value)  # pyright: ignore[reportCallIssue]
    return Constant(dtype, to_storage(value, dtype))


def list_constant(numbers: Any) -> Constant:
    """A list of integers, as for shapes.

    Raises:
      ValueError: a number does not fit.
    """
    values = np.array([int(number) for number in numbers], np.int64)
    return Constant(TensorType(DType.INT32, values.shape), to_storage(values, DType.INT32))


def _scalar_type(argument: Argument, element: DType) -> DType:
    if argument.dtype is bool:
        return DType.BOOL
    return element if isinstance(argument.dtype, str) else DType.INT32


def _member(enumeration: Any, number: int) -> enum.Enum:
    try:
        member = enumeration(number)
    except ValueError:
        names = ", ".join(f"{m.value} ({m.name})" for m in enumeration)
        raise FormatError(f"it is {number}, expected one of {names}") from None
    return member.dtype if enumeration is spec.AccType else member
