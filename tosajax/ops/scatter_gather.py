"""Rows read or written by index (TOSA 1.0.1, "Scatter/Gather Operators")."""

from __future__ import annotations

import jax

from tosajax.ops.recording import recorded


@recorded
def gather(values: jax.Array, indices: jax.Array) -> jax.Array:
    """Reads rows of each batch by index (TOSA 1.0.1, "GATHER").

    Args:
      values: int8, int16, int32 or a float type; (N, K, C).
      indices: int32, (N, W), in [0, K), else the result is unpredictable.

    Returns:
      The type of `values`, (N, W, C).

    Example:
      >>> import jax.numpy as jnp
      >>> import tosajax
      >>> values = jnp.int8([[[1, 2], [3, 4], [5, 6]]])
      >>> tosajax.ops.gather(values, jnp.int32([[2, 0]])).tolist()
      [[[5, 6], [1, 2]]]
    """

    def rows(batch: jax.Array, index: jax.Array) -> jax.Array:
        return batch.at[index].get(mode="clip", wrap_negative_indices=False)

    return jax.vmap(rows)(values, indices)


@recorded
def scatter(values_in: jax.Array, indices: jax.Array, input: jax.Array) -> jax.Array:
    """A copy with rows of each batch replaced, by index (TOSA 1.0.1, "SCATTER").

    Args:
      values_in: int8, int16, int32 or a float type; (N, K, C).
      indices: int32, (N, W), in [0, K) and no index twice in a batch, else the result is
        unpredictable.
      input: the type of `values_in`, (N, W, C).

    Returns:
      The type of `values_in`, (N, K, C).

    Example:
      >>> import jax.numpy as jnp
      >>> import tosajax
      >>> values = jnp.int8([[[1, 2], [3, 4], [5, 6]]])
      >>> tosajax.ops.scatter(values, jnp.int32([[1]]), jnp.int8([[[8, 9]]])).tolist()
      [[[1, 2], [8, 9], [5, 6]]]
    """

    def replace(batch: jax.Array, index: jax.Array, rows: jax.Array) -> jax.Array:
        # Not declared unique: a repeated index would then be undefined behaviour in XLA.
        return batch.at[index].set(rows, mode="drop", wrap_negative_indices=False)

    return jax.vmap(replace)(values_in, indices, input)
