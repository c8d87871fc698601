"""Inputs of compiled graphs: arrays of the right number, type, shape and range."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from tosajax.arguments.types import check_count
from tosajax.dtypes import DType
from tosajax.graph import DYNAMIC, Tensor, shape_fits
from tosajax.lowering.build import to_device

Array = jax.Array | np.ndarray

# Types in which every pattern of bits is a value.
_WHOLE = frozenset(DType) - {DType.BOOL, DType.INT4, DType.INT48, DType.SHAPE}


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
    if not isinstance(value, jax.Array):
        value = np.asarray(value)
    storage = tensor.dtype.storage
    is_real = may_be_real and value.dtype.kind == "f"
    if value.dtype != storage and not is_real:
        raise TypeError(
            f"input {tensor.name!r} has type {value.dtype}, expected {storage} "
            f"({tensor.dtype.name}){_hint(value.dtype, tensor.dtype)}"
        )
    if wanted is not None and not shape_fits(value.shape, wanted):
        found = f"input {tensor.name!r} has shape {value.shape}, expected {tuple(wanted)}"
        same = wanted[1:] == value.shape[1:] and wanted[:1] == (1,)
        raise ValueError(found + (f"; compile with batch={len(value)}" if same else ""))
    if is_real:
        return jnp.asarray(value.astype(np.float32))
    if isinstance(value, jax.Array):
        return value
    if tensor.dtype in (DType.INT4, DType.INT48):
        _check_range(tensor, value)
    if tensor.dtype is DType.INT48:
        return to_device(value, tensor.dtype)
    # The call puts it on the device, in a tenth of the time. A copy, as the caller may write to its
    # array before the program has read it.
    return np.array(value)


def _hint(found: np.dtype, wanted: DType) -> str:
    """Advice to convert an array, where that keeps its values or its bits."""
    storage = wanted.storage
    if not isinstance(found, np.dtype):  # a type of JAX alone, such as keys
        return ""
    # NumPy files name no types of other libraries: they hold "|V2", or unsigned integers.
    is_bits = found.kind == "u" or (found.kind == "V" and found.isbuiltin != 2)
    if is_bits and found.itemsize == storage.itemsize and wanted in _WHOLE:
        return f"; use .view({storage.name}) if it holds the same bits"
    for kind in (jnp.floating, jnp.integer):
        if jnp.issubdtype(found, kind) and jnp.issubdtype(storage, kind):
            return f"; use .astype({storage.name}) if its values fit"
    return ""


def _check_range(tensor: Tensor, value: np.ndarray) -> None:
    low, high = tensor.dtype.minimum, tensor.dtype.maximum
    if value.size and (value.min() < low or value.max() > high):
        raise ValueError(
            f"input {tensor.name!r} has values in [{value.min()}, {value.max()}], "
            f"{tensor.dtype.name} holds [{low}, {high}]"
        )
