"""Values of a block-scaled tensor: elements, and one scale for each block of them.

The number that an element stands for is the element times its block's scale. Blocks lie along the
innermost axis. TOSA 1.0 has no block-scaled type; TOSA 1.1 has the types of OCP MX.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Array = jax.Array | np.ndarray


@functools.partial(
    jax.tree_util.register_dataclass, data_fields=["values", "scales"], meta_fields=["block"]
)
@dataclasses.dataclass(frozen=True, eq=False)
class BlockScaled:
    """A block-scaled array; a pytree, so that jit, vmap and trees of inputs take it.

    Args:
      values: the elements, of an ml_dtypes type or int8; [..., n], n a multiple of `block`.
      scales: powers of two, of ml_dtypes.float8_e8m0fnu; [..., n // block].
      block: elements that share a scale.

    Example:
      >>> import ml_dtypes, numpy as np
      >>> from tosajax.block_scaled import BlockScaled
      >>> scales = np.array([[0.5, 4.0]], ml_dtypes.float8_e8m0fnu)
      >>> x = BlockScaled(np.ones((1, 64), np.int8), scales)
      >>> x.shape, x.transpose((0, 1)) == x, float(x.real()[0, 32])
      ((1, 64), True, 4.0)
    """

    values: Array
    scales: Array
    block: int = 32

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.values.shape)

    @property
    def ndim(self) -> int:
        return self.values.ndim

    def check(self) -> BlockScaled:
        """This value, if each block has one scale.

        The constructor does not check: trees of JAX hold other objects in the place of arrays.

        Raises:
          ValueError: the innermost axis is not whole blocks, or the scales have another shape.
        """
        if fault := self.fault:
            raise ValueError(fault)
        return self

    @property
    def fault(self) -> str:
        """Why the scales do not fit the values; "" if each block has one."""
        *outer, inner = self.shape or (0,)
        if not self.shape or inner % self.block:
            return (
                f"values have shape {self.shape}, expected an innermost axis of blocks of "
                f"{self.block}"
            )
        expected = (*outer, inner // self.block)
        shape = tuple(self.scales.shape)
        return "" if shape == expected else f"scales have shape {shape}, expected {expected}"

    def reshape(self, shape: Sequence[int]) -> BlockScaled:
        """The same elements in another shape of whole blocks.

        Raises:
          ValueError: the innermost axis would not be whole blocks, or the sizes differ.
        """
        *outer, inner = shape
        if inner % self.block:
            raise ValueError(f"shape is {tuple(shape)}, expected blocks of {self.block} innermost")
        scales = self.scales.reshape((*outer, inner // self.block))
        return dataclasses.replace(self, values=self.values.reshape(tuple(shape)), scales=scales)

    def transpose(self, perms: Sequence[int]) -> BlockScaled:
        """The array with its axes in another order; the innermost one stays.

        Raises:
          ValueError: the innermost axis would move.
        """
        if tuple(perms)[-1:] != (self.ndim - 1,):
            raise ValueError(f"perms is {tuple(perms)}, expected the innermost axis to stay last")
        values, scales = self.values.transpose(perms), self.scales.transpose(perms)
        return dataclasses.replace(self, values=values, scales=scales)

    def exact(self) -> np.ndarray:
        """The numbers, float64 [..., n]: each has all its bits."""
        scales = np.repeat(np.asarray(self.scales).astype(np.float64), self.block, axis=-1)
        with np.errstate(invalid="ignore"):
            return np.asarray(self.values).astype(np.float64) * scales

    def real(self) -> jax.Array:
        """The numbers, float32 [..., n]."""
        scales = jnp.repeat(jnp.asarray(self.scales).astype(jnp.float32), self.block, axis=-1)
        return jnp.asarray(self.values).astype(jnp.float32) * scales

    def __eq__(self, other: object) -> bool:
        """Whether types, shapes and all bits are the same."""
        if not isinstance(other, BlockScaled):
            return NotImplemented
        pairs = ((self.values, other.values), (self.scales, other.scales))
        return self.block == other.block and all(
            a.dtype == b.dtype
            and a.shape == b.shape
            and np.asarray(a).tobytes() == np.asarray(b).tobytes()
            for a, b in pairs
        )

    __hash__ = None  # pyright: ignore[reportAssignmentType]


# A value of a tensor.
Value = Array | BlockScaled


def arrays_of(value: Any) -> tuple[Any, ...]:
    """The arrays of a value of any type; a list or number becomes an array."""
    if isinstance(value, BlockScaled):
        return value.values, value.scales
    return (value if isinstance(value, jax.Array | np.ndarray) else np.asarray(value),)


def described(value: Any) -> str:
    """The types of a BlockScaled, or of another value, for messages."""
    if isinstance(value, BlockScaled):
        types = f"{value.values.dtype} in blocks of {value.block}, scales of {value.scales.dtype}"
        return f"a BlockScaled of {types}"
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return f"an array, {value.dtype}{list(value.shape)}"
    return f"of type {type(value).__name__}"


def on_host(value: Any) -> Any:
    """A value in NumPy arrays; lists and numbers become an array."""
    is_tree = isinstance(value, BlockScaled)
    return jax.tree.map(np.asarray, value) if is_tree else np.asarray(value)
