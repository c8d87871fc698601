"""The one place where 64-bit types are allowed: int48 values, and products of int32.

JAX narrows 64-bit values silently outside `jax.enable_x64`. A function that touches them wraps
exactly its own arithmetic in `scope()`, names every dtype, and uses only primitives whose
batching and differentiation rules keep 64 bits outside the scope: convert, add, sub, mul,
shifts, bitwise, compare, select, `lax.clamp`, shape operations, `lax.reduce_sum`.
"""

from __future__ import annotations

import contextlib
from contextlib import AbstractContextManager

import jax
import numpy as np
from jax import lax


def scope() -> AbstractContextManager:
    """Allows 64-bit types for the arithmetic inside, whatever the user's own setting."""
    return jax.enable_x64(True)


def scope_of(dtype: np.dtype | type) -> AbstractContextManager:
    """The scope for arithmetic in this type: that of int48 for 64 bits."""
    return scope() if np.dtype(dtype).itemsize == 8 else contextlib.nullcontext()


def widen(value: jax.Array) -> jax.Array:
    """Converts an array, of floats that are integers as well, to int64, inside `scope()`."""
    return lax.convert_element_type(value, np.int64)


def multiply_high(a: jax.Array, b: jax.Array) -> jax.Array:
    """The high word of the product of two int32 whose shapes broadcast; int32.

    CPUs and GPUs have an instruction for it. `lax.mulhi` would name it, but jax 0.10 cannot
    compile that for several devices.
    """
    with scope():
        product = widen(a) * widen(b)
        return lax.convert_element_type(lax.shift_right_arithmetic(product, np.int64(32)), np.int32)


def from_numpy(values: np.ndarray) -> jax.Array:
    """Puts int64 NumPy values on the device without narrowing them."""
    with scope():
        return jax.device_put(np.array(values, np.int64))  # the array may share this memory
