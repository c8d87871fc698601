"""Operators that move elements and never change them (TOSA 1.0.1, "Data Layout")."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax import lax

from tosajax.ops.recording import recorded


@recorded
def concat(input1: Sequence[jax.Array], *, axis: int) -> jax.Array:
    """Joins tensors along an axis (TOSA 1.0.1, "CONCAT").

    Args:
      input1: at least one tensor, all of one type (bool, int8, int16, int32 or a float type) and,
        but for `axis`, one shape.
      axis: static, in [0, rank).

    Returns:
      The type of the inputs, their shape with the sum of their sizes at `axis`.

    Example:
      >>> import jax.numpy as jnp
      >>> import tosajax
      >>> tosajax.ops.concat([jnp.int8([[1], [2]]), jnp.int8([[3], [4]])], axis=1).tolist()
      [[1, 3], [2, 4]]
    """
    return lax.concatenate(list(input1), axis)


@recorded
def pad(input1: jax.Array, padding: tuple[int, ...], pad_const: jax.Array) -> jax.Array:
    """Surrounds a tensor with copies of one value (TOSA 1.0.1, "PAD").

    Args:
      input1: bool, int8, int16, int32 or a float type; any shape of rank 1 or more.
      padding: static, elements before and after each dimension:
        (before_0, after_0, before_1, after_1, ...), none negative.
      pad_const: (1,), the type of `input1`; includes the zero point.

    Returns:
      The type of `input1`, the padded shape.

    Example:
      >>> import jax.numpy as jnp
      >>> import tosajax
      >>> tosajax.ops.pad(jnp.int8([[1, 2]]), (0, 1, 1, 0), jnp.int8([9])).tolist()
      [[9, 1, 2], [9, 9, 9]]
    """
    config = [(before, after, 0) for before, after in zip(padding[::2], padding[1::2], strict=True)]
    value = pad_const.reshape(())
    if jnp.issubdtype(input1.dtype, jnp.floating):
        # Changes nothing, but `lax.pad` differentiates its value only together with its operand.
        input1 = jnp.where(False, value, input1)
    return lax.pad(input1, value, config)


@recorded
def reshape(input1: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """The same elements, in row-major order, in another shape (TOSA 1.0.1, "RESHAPE").

    Args:
      input1: bool, int8, int16, int32 or a float type; any shape.
      shape: static, of the same number of elements.

    Returns:
      The type of `input1`, shape `shape`.

    Example:
      >>> import jax.numpy as jnp
      >>> import tosajax
      >>> tosajax.ops.reshape(jnp.int8([[1, 2, 3], [4, 5, 6]]), (3, 2)).tolist()
      [[1, 2], [3, 4], [5, 6]]
    """
    return lax.reshape(input1, tuple(shape))


@recorded
def reverse(input1: jax.Array, *, axis: int) -> jax.Array:
    """The elements along an axis in the opposite order (TOSA 1.0.1, "REVERSE").

    Args:
      input1: bool, int8, int16, int32 or a float type; any shape of rank 1 or more.
      axis: static, in [0, rank).

    Returns:
      The type and shape of `input1`.

    Example:
      >>> import jax.numpy as jnp
      >>> import tosajax
      >>> tosajax.ops.reverse(jnp.int8([[1, 2, 3], [4, 5, 6]]), axis=1).tolist()
      [[3, 2, 1], [6, 5, 4]]
    """
    return lax.rev(input1, (axis,))


@recorded
def slice(input1: jax.Array, start: tuple[int, ...], size: tuple[int, ...]) -> jax.Array:
    """A box cut out of a tensor (TOSA 1.0.1, "SLICE").

    Args:
      input1: bool, int8, int16, int32 or a float type; any shape of rank 1 or more.
      start: static, the first index of each dimension.
      size: static, the size of each dimension; start + size stays within the shape.

    Returns:
      The type of `input1`, of shape `size`.

    Example:
      >>> import jax.numpy as jnp
      >>> import tosajax
      >>> tosajax.ops.slice(jnp.int8([[1, 2, 3], [4, 5, 6]]), (0, 1), (2, 2)).tolist()
      [[2, 3], [5, 6]]
    """
    return lax.slice(input1, start, [a + n for a, n in zip(start, size, strict=True)])


@recorded
def tile(input1: jax.Array, multiples: tuple[int, ...]) -> jax.Array:
    """Repeats a tensor along each dimension (TOSA 1.0.1, "TILE").

    Args:
      input1: bool, int8, int16, int32 or a float type; any shape of rank 1 or more.
      multiples: static, repetitions of each dimension.

    Returns:
      The type of `input1`, the shape times `multiples`.

    Example:
      >>> import jax.numpy as jnp
      >>> import tosajax
      >>> tosajax.ops.tile(jnp.int8([[1, 2]]), (2, 2)).tolist()
      [[1, 2, 1, 2], [1, 2, 1, 2]]
    """
    pairs = list(zip(multiples, input1.shape, strict=True))
    # Each dimension becomes (repetition, element), which row-major order then merges.
    repeated = lax.broadcast_in_dim(
        input1, [n for pair in pairs for n in pair], range(1, 2 * len(pairs), 2)
    )
    return lax.reshape(repeated, [times * n for times, n in pairs])


@recorded
def transpose(input1: jax.Array, *, perms: tuple[int, ...]) -> jax.Array:
    """Permutes the dimensions (TOSA 1.0.1, "TRANSPOSE").

    Args:
      input1: bool, int8, int16, int32 or a float type; any shape of rank 1 or more.
      perms: static, for each dimension of the result the dimension of `input1` it is.

    Returns:
      The type of `input1`, the permuted shape.

    Example:
      >>> import jax.numpy as jnp
      >>> import tosajax
      >>> tosajax.ops.transpose(jnp.int8([[1, 2, 3], [4, 5, 6]]), perms=(1, 0)).tolist()
      [[1, 4], [2, 5], [3, 6]]
    """
    return lax.transpose(input1, perms)
