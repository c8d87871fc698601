"""64-bit integer arithmetic, for int48 values and products of int32.

JAX narrows 64-bit values silently outside `jax.enable_x64`. A function that uses 64-bit values
wraps only its own arithmetic in `scope()`, names every dtype, and uses only primitives whose
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
    """Returns a context that enables 64-bit types, whatever the user's `jax_enable_x64`."""
    return jax.enable_x64(True)


def scope_of(dtype: np.dtype | type) -> AbstractContextManager:
    """Returns the context for arithmetic in `dtype`: `scope()` for 64 bits, else a null context."""
    return scope() if np.dtype(dtype).itemsize == 8 else contextlib.nullcontext()


def widen(value: jax.Array) -> jax.Array:
    """Converts integers, or floats with integer values, to int64; call it inside `scope()`."""
    return lax.convert_element_type(value, np.int64)


def multiply_high(a: jax.Array, b: jax.Array) -> jax.Array:
    """The high 32 bits of the product of two int32 arrays whose shapes broadcast; int32.

    CPUs and GPUs have an instruction for this. `lax.mulhi` would express it, but jax 0.10 cannot
    compile `mulhi` for several devices.
    """
    with scope():
        product = widen(a) * widen(b)
        return lax.convert_element_type(lax.shift_right_arithmetic(product, np.int64(32)), np.int32)


def from_numpy(values: np.ndarray) -> jax.Array:
    """Copies NumPy values to the device as int64, without narrowing."""
    with scope():
        return jax.device_put(np.array(values, np.int64))  # the array may share this memory
