"""Checks inputs of compiled graphs: the number, types, shapes and ranges of arrays."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tosajax.arguments.types import check_count
from tosajax.block_scaled import Value
from tosajax.dtypes import DType
from tosajax.graph import DYNAMIC, Tensor
from tosajax.lowering.build import to_device
from tosajax.lowering.inputs import as_array, check_range, check_shape, no_names, typed


def accept(
    tensors: Sequence[Tensor],
    shapes: Sequence[Sequence[int] | None],
    inputs: Sequence[Value],
    real: Collection[str] = (),
    unsigned: Callable[[], Collection[str]] = no_names,
    *,
    in_files: bool = False,
    scaled: Collection[str] = (),
) -> list[Value]:
    """Checks the inputs of a program; copies arrays that the caller could still write to.

    Args:
      tensors: the inputs of the graph.
      shapes: their shapes in a call, with DYNAMIC for any size; None for any shape.
      inputs: the user's arrays.
      real: names of inputs that may hold real numbers, which become float32.
      unsigned: returns the names of tensors that the graph reads as unsigned.
      in_files: whether bf16 and fp8 may be given as bits, as in NumPy files.
      scaled: names of inputs whose scale the graph has; messages advise to use it.

    Raises:
      TypeError: the number of inputs or an element type is wrong.
      ValueError: a shape is wrong, or an int4 or int48 value is out of range.
    """
    check_count([t.name for t in tensors], inputs)
    accepted = []
    for tensor, shape, value in zip(tensors, shapes, inputs, strict=True):
        value = as_array(tensor, value)
        is_real = tensor.name in real and value.dtype.kind == "f"
        if not is_real:
            value = typed(tensor, value, unsigned, in_files=in_files, scaled=scaled)
        accepted.append(_accepted(tensor, shape, value, is_real))
    return accepted


def zeros(tensors: Sequence[Tensor], shapes: Sequence[Sequence[int] | None]) -> list[Value]:
    """Zeros of the inputs' types and these shapes, to trace with.

    Raises:
      ValueError: a shape is not known.
    """
    check_known(tensors, shapes)
    return [
        to_device(tensor.dtype.zeros(shape or ()), tensor.dtype)
        for tensor, shape in zip(tensors, shapes, strict=True)
    ]


def check_known(tensors: Sequence[Tensor], shapes: Sequence[Sequence[int] | None]) -> None:
    """Raises ValueError where the shape of an input has open dimensions."""
    for tensor, shape in zip(tensors, shapes, strict=True):
        if shape is None or DYNAMIC in shape:
            raise ValueError(f"input {tensor.name!r} has open dimensions: {tensor}")


def flat(tensors: Sequence[Tensor], values: Sequence[Any]) -> list[Any]:
    """The arrays of the tensors' values, one after another, as files hold them."""
    pairs = zip(tensors, values, strict=True)
    return [array for tensor, value in pairs for array in tensor.dtype.arrays(value)]


def grouped(tensors: Sequence[Tensor], arrays: Sequence[Any]) -> list[Any]:
    """The tensors' values that arrays hold; the inverse of `flat`."""
    rest = iter(arrays)
    return [t.dtype.join(next(rest) for _ in t.dtype.names(t.name)) for t in tensors]


def _accepted(tensor: Tensor, wanted: Sequence[int] | None, value: Any, is_real: bool) -> Value:
    """Checks the type, shape and range of one input."""
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
    if isinstance(value, np.ndarray):
        return np.array(value)
    return jax.tree.map(lambda x: x if isinstance(x, jax.Array) else np.array(x), value)
