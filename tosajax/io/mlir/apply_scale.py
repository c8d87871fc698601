"""Converts tosa.apply_scale, an operation of the dialect only, to RESCALE if its scale is constant.

RESCALE of INT32 with zero points of 0 computes the same ("Scaling Helpers", TOSA 1.0.1).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tosajax.io.mlir.tree import Literal, Operation, Region, Value, Word
from tosajax.io.mlir.types import tensor_type
from tosajax.report import FormatError, UnsupportedError


def check_tensors(body: Region) -> None:
    """Checks that no apply_scale takes scalars, as in the bodies of operations such as linalg's.

    Raises:
      UnsupportedError: an apply_scale does.
    """
    for operation in body.walk():
        if operation.name == "tosa.apply_scale":
            for value in operation.operands[:1]:
                if not value.type.startswith("tensor<"):
                    message = f"{operation.title}: it scales {value.type}"
                    raise UnsupportedError(f"{message}, and operators of TOSA compute with tensors")


def as_rescale(
    operation: Operation, known: Callable[[Value], np.ndarray | None], *, is_old: bool
) -> list[Operation]:
    """The operations that replace an apply_scale.

    Args:
      operation: the apply_scale.
      known: function that returns the elements of a constant value, or None.
      is_old: whether the dialect is older than TOSA 1.0.

    Raises:
      FormatError: the number of operands or results is wrong.
      UnsupportedError: the value is not i32, or the scale is not constant, or differs between
        elements of a channel.
    """
    if len(operation.operands) != 3 or len(operation.results) != 1:
        raise FormatError(f"{len(operation.operands)} operands, expected 3, and one result")
    value, *scale = operation.operands
    kind = tensor_type(value.type)
    if kind.element is None or kind.element.name != "i32":
        raise UnsupportedError(f"it scales {value.type}, expected a tensor of i32")
    numbers = [_by_channel(v, known(v)) for v in scale]
    per_channel = any(n.size > 1 for n in numbers)
    size = max(n.size for n in numbers)
    multiplier, shift = (np.broadcast_to(n, size).tolist() for n in numbers)
    if is_old:
        return [_old(operation, multiplier, shift, per_channel)]
    return _new(operation, multiplier, shift, per_channel)


def _by_channel(value: Value, numbers: np.ndarray | None) -> np.ndarray:
    """The elements of a constant scale: one, or one for each index of the last axis.

    Raises:
      UnsupportedError: the scale is not constant, or differs along other axes.
    """
    if numbers is None or not numbers.size:
        raise UnsupportedError(f"%{value.name} is not a constant, which RESCALE wants")
    if (numbers == numbers.flat[0]).all():
        return numbers.ravel()[:1]
    channels = numbers.reshape(-1, numbers.shape[-1])
    if (channels != channels[0]).any():
        raise UnsupportedError(f"%{value.name} scales each element by a number of its own")
    return channels[0]


def _old(
    operation: Operation, multiplier: Sequence[int], shift: Sequence[int], per_channel: bool
) -> Operation:
    attributes = {
        "input_zp": 0,
        "output_zp": 0,
        "multiplier": tuple(multiplier),
        "shift": tuple(shift),
        "scale32": True,
        "double_round": operation.attributes.get("double_round", False),
        "per_channel": per_channel,
    }
    return _rescale(operation, operation.operands[:1], attributes)


def _new(
    operation: Operation, multiplier: Sequence[int], shift: Sequence[int], per_channel: bool
) -> list[Operation]:
    zero = _constant(operation, "zero", [0], "i32")
    constants = [
        _constant(operation, "multiplier", multiplier, "i32"),
        _constant(operation, "shift", shift, "i8"),
        zero,
    ]
    attributes = {
        "scale32": True,
        "rounding_mode": operation.attributes.get("rounding_mode", Word("")),
        "per_channel": per_channel,
        "input_unsigned": False,
        "output_unsigned": False,
    }
    values = [constant.results[0] for constant in (*constants, zero)]
    return [*constants, _rescale(operation, [operation.operands[0], *values], attributes)]


def _rescale(
    operation: Operation, operands: Sequence[Value], attributes: dict[str, Any]
) -> Operation:
    return Operation(
        "tosa.rescale",
        tuple(operands),
        operation.results,
        attributes,
        location=operation.location,
    )


def _constant(operation: Operation, name: str, numbers: Sequence[int], element: str) -> Operation:
    text, kind = str(list(numbers)), f"tensor<{len(numbers)}x{element}>"
    value = Value(f"{operation.results[0].name}_{name}", kind)
    values = Literal("dense", text, 0, len(text), kind)
    return Operation("tosa.const", (), (value,), {"values": values})
