"""Converts attributes of nodes to and from constants of a module."""

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
    """Converts a constant to the value of an attribute.

    Args:
      argument: the attribute's row in the operator table.
      found: the constant.
      element: the element type of the operator's tensors, which CLAMP's bounds have.

    Raises:
      FormatError: the constant has the wrong type, or is not a number of the enumeration.
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
    """The elements of a list, which is a 1-D tensor of int32.

    Raises:
      FormatError: the constant is not a list.
    """
    type_, values = found
    if not isinstance(type_, TensorType) or values.dtype != np.int32 or values.ndim != 1:
        raise FormatError(f"it is {describe(type_)}, expected a list of INT32")
    return values


def attribute_constant(argument: Argument, value: Any, element: DType) -> Constant:
    """Converts the value of an attribute to a constant, the inverse of `read_attribute`.

    Raises:
      AttributeError, KeyError, OverflowError, TypeError, ValueError: the value does not fit the
        attribute's type.
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
    """Converts integers, such as a shape, to a constant list of int32.

    Raises:
      ValueError: a number does not fit int32.
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
