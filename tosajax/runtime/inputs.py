"""What a compiled graph is called with: arrays of the right number, type, shape and range."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from tosajax.dtypes import DType
from tosajax.graph import DYNAMIC, Tensor
from tosajax.lowering.build import to_device

# Types whose elements may have any bits.
_WHOLE = frozenset(DType) - {DType.BOOL, DType.INT4, DType.INT48, DType.SHAPE}


def accept(
    tensors: Sequence[Tensor],
    wanted: Sequence[Sequence[int] | None],
    inputs: Sequence[jax.Array | np.ndarray],
) -> list[jax.Array]:
    """The inputs as JAX arrays.

    Args:
      tensors: what they are in the graph.
      wanted: their shapes in a call, DYNAMIC where any size will do, None for any shape.
      inputs: what the user gives.

    Raises:
      TypeError: the number of inputs or an element type is wrong.
      ValueError: a shape is wrong, or an int4 or int48 value is out of range.
    """
    if len(inputs) != len(tensors):
        names = ", ".join(t.name for t in tensors)
        raise TypeError(f"{len(inputs)} inputs, expected {len(tensors)} ({names})")
    return [
        _accepted(tensor, shape, value)
        for tensor, shape, value in zip(tensors, wanted, inputs, strict=True)
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
    tensor: Tensor, wanted: Sequence[int] | None, value: jax.Array | np.ndarray
) -> jax.Array:
    """An input as a JAX array of the right type and shape, or an error that names it."""
    if not isinstance(value, jax.Array):
        value = np.asarray(value)
    storage = tensor.dtype.storage
    if value.dtype != storage:
        raise TypeError(
            f"input {tensor.name!r} has type {value.dtype}, expected {storage} "
            f"({tensor.dtype.name}){_hint(value.dtype, tensor.dtype)}"
        )
    if wanted is not None and not (
        value.ndim == len(wanted)
        and all(w in (DYNAMIC, s) for w, s in zip(wanted, value.shape, strict=True))
    ):
        found = f"input {tensor.name!r} has shape {value.shape}, expected {tuple(wanted)}"
        same = wanted[1:] == value.shape[1:] and wanted[:1] == (1,)
        raise ValueError(found + (f"; compile with batch={len(value)}" if same else ""))
    if isinstance(value, jax.Array):
        return value
    if tensor.dtype in (DType.INT4, DType.INT48):
        _check_range(tensor, value)
    return to_device(value, tensor.dtype)


def _hint(found: np.dtype, wanted: DType) -> str:
    """How to convert an array of one type to another, where that keeps its values or its bits."""
    storage = wanted.storage
    if not isinstance(found, np.dtype):  # one of JAX's own, such as keys
        return ""
    # NumPy files have no names for types of other libraries: "|V2", or unsigned integers.
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
