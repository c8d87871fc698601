"""Inputs of compiled graphs: arrays of the right number, type, shape and range."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from tosajax.arguments.types import check_count
from tosajax.dtypes import DType
from tosajax.graph import DYNAMIC, Tensor
from tosajax.lowering.build import to_device
from tosajax.lowering.inputs import as_array, check_range, check_shape, check_type

Array = jax.Array | np.ndarray


def accept(
    tensors: Sequence[Tensor],
    shapes: Sequence[Sequence[int] | None],
    inputs: Sequence[Array],
    real: Collection[str] = (),
) -> list[Array]:
    """The inputs of a program, checked; nobody else writes to them.

    Args:
      tensors: the inputs of the graph.
      shapes: their shapes in a call, DYNAMIC where any size will do, None for any shape.
      inputs: from the user.
      real: names of inputs that may hold real numbers, which become float32.

    Raises:
      TypeError: the number of inputs or an element type is wrong.
      ValueError: a shape is wrong, or an int4 or int48 value is out of range.
    """
    check_count([t.name for t in tensors], inputs)
    return [
        _accepted(tensor, shape, value, tensor.name in real)
        for tensor, shape, value in zip(tensors, shapes, inputs, strict=True)
    ]


def zeros(tensors: Sequence[Tensor], shapes: Sequence[Sequence[int] | None]) -> list[jax.Array]:
    """Inputs of these shapes to trace with.

    Raises:
      ValueError: a shape is not known.
    """
    check_known(tensors, shapes)
    return [
        to_device(np.zeros(shape or (), tensor.dtype.storage), tensor.dtype)
        for tensor, shape in zip(tensors, shapes, strict=True)
    ]


def check_known(tensors: Sequence[Tensor], shapes: Sequence[Sequence[int] | None]) -> None:
    """Raises ValueError where the shape of an input has open dimensions."""
    for tensor, shape in zip(tensors, shapes, strict=True):
        if shape is None or DYNAMIC in shape:
            raise ValueError(f"input {tensor.name!r} has open dimensions: {tensor}")


def _accepted(
    tensor: Tensor,
    wanted: Sequence[int] | None,
    value: Array,
    may_be_real: bool,
) -> Array:
    """An input of the right type and shape, or an error that names it."""
    value = as_array(tensor, value)
    is_real = may_be_real and value.dtype.kind == "f"
    if not is_real:
        check_type(tensor, value)
    check_shape(tensor, wanted, value, "compile with batch={}")
    if is_real:
        return jnp.asarray(value.astype(np.float32))
    if isinstance(value, jax.Array):
        return value
    check_range(tensor, value)
    if tensor.dtype is DType.INT48:
        return to_device(value, tensor.dtype)
    # The call puts it on the device, in a tenth of the time. A copy, as the caller may write to its
    # array before the program has read it.
    return np.array(value)
