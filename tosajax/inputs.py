"""What a compiled graph is called with: arrays of the right number, type, shape and range."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import numpy as np

from tosajax.dtypes import DType
from tosajax.graph import DYNAMIC, Tensor
from tosajax.lower import to_device

# Types that NumPy files and other tools use for the bits of one of ours.
_LOOKALIKES = {DType.INT8: np.uint8, DType.INT16: np.uint16, DType.BF16: np.uint16}


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


def _accepted(
    tensor: Tensor, wanted: Sequence[int] | None, value: jax.Array | np.ndarray
) -> jax.Array:
    """An input as a JAX array of the right type and shape, or an error that names it."""
    if not isinstance(value, jax.Array):
        value = np.asarray(value)
    storage = tensor.dtype.storage
    if value.dtype != storage:
        hint = ""
        if value.dtype == _LOOKALIKES.get(tensor.dtype):
            hint = f"; use .view({storage.name}) if it holds the same bits"
        raise TypeError(
            f"input {tensor.name!r} has type {value.dtype}, expected {storage} "
            f"({tensor.dtype.name}){hint}"
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


def _check_range(tensor: Tensor, value: np.ndarray) -> None:
    low, high = tensor.dtype.minimum, tensor.dtype.maximum
    if value.size and (value.min() < low or value.max() > high):
        raise ValueError(
            f"input {tensor.name!r} has values in [{value.min()}, {value.max()}], "
            f"{tensor.dtype.name} holds [{low}, {high}]"
        )
