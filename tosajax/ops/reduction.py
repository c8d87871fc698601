"""Reductions along one axis, whose size becomes 1 (TOSA 1.0.1, "Reduction Operators")."""

from __future__ import annotations

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tosajax.ops.recording import recorded
from tosajax.spec.enums import NanMode

_TERMS = 16  # number of terms that are added in one pass of XLA


@recorded
def reduce_all(input: jax.Array, *, axis: int) -> jax.Array:
    """True where every value along the axis is true (TOSA 1.0.1, "REDUCE_ALL").

    Args:
      input: bool, any shape of rank 1 or more.
      axis: static, in [0, rank).

    Returns:
      bool, the shape of `input` with 1 at `axis`.

    Example:
      >>> import jax.numpy as jnp
      >>> import tosajax
      >>> tosajax.ops.reduce_all(jnp.bool_([[True, True], [True, False]]), axis=1).tolist()
      [[True], [False]]
    """
    return jnp.all(input, axis, keepdims=True)


@recorded
def reduce_any(input: jax.Array, *, axis: int) -> jax.Array:
    """True where some value along the axis is true (TOSA 1.0.1, "REDUCE_ANY").

    Args:
      input: bool, any shape of rank 1 or more.
      axis: static, in [0, rank).

    Returns:
      bool, the shape of `input` with 1 at `axis`.

    Example:
      >>> import jax.numpy as jnp
      >>> import tosajax
      >>> tosajax.ops.reduce_any(jnp.bool_([[True, False], [False, False]]), axis=1).tolist()
      [[True], [False]]
    """
    return jnp.any(input, axis, keepdims=True)


@recorded
def reduce_max(input: jax.Array, *, axis: int, nan_mode: NanMode = NanMode.PROPAGATE) -> jax.Array:
    """The largest value along the axis (TOSA 1.0.1, "REDUCE_MAX").

    Args:
      input: int8, int16, int32, float32, float16 or bfloat16; any shape of rank 1 or more.
      axis: static, in [0, rank).
      nan_mode: whether a NaN gives NaN, or only where all values are NaN.

    Returns:
      The type of `input`, its shape with 1 at `axis`.

    Example:
      >>> import jax.numpy as jnp
      >>> import tosajax
      >>> tosajax.ops.reduce_max(jnp.int8([[1, 2], [4, 3]]), axis=1).tolist()
      [[2], [4]]
    """
    return _extremum(jnp.max, input, axis, nan_mode, -jnp.inf)


@recorded
def reduce_min(input: jax.Array, *, axis: int, nan_mode: NanMode = NanMode.PROPAGATE) -> jax.Array:
    """The smallest value along the axis (TOSA 1.0.1, "REDUCE_MIN").

    Args:
      input: int8, int16, int32, float32, float16 or bfloat16; any shape of rank 1 or more.
      axis: static, in [0, rank).
      nan_mode: whether a NaN gives NaN, or only where all values are NaN.

    Returns:
      The type of `input`, its shape with 1 at `axis`.

    Example:
      >>> import jax.numpy as jnp
      >>> import tosajax
      >>> tosajax.ops.reduce_min(jnp.int8([[1, 2], [4, 3]]), axis=1).tolist()
      [[1], [3]]
    """
    return _extremum(jnp.min, input, axis, nan_mode, jnp.inf)


@recorded
def reduce_product(input: jax.Array, *, axis: int) -> jax.Array:
    """The product along the axis, in float32, rounded once (TOSA 1.0.1, "REDUCE_PRODUCT").

    Args:
      input: float32, float16 or bfloat16; any shape of rank 1 or more.
      axis: static, in [0, rank).

    Returns:
      The type of `input`, its shape with 1 at `axis`.

    Example:
      >>> import jax.numpy as jnp
      >>> import tosajax
      >>> tosajax.ops.reduce_product(jnp.float32([[2, 3], [4, 5]]), axis=0).tolist()
      [[8.0, 15.0]]
    """
    product = jnp.prod(input, axis, dtype=jnp.float32, keepdims=True)
    return product.astype(input.dtype)


@recorded
def reduce_sum(input: jax.Array, *, axis: int) -> jax.Array:
    """The sum along the axis; floats in float32, rounded once (TOSA 1.0.1, "REDUCE_SUM").

    Args:
      input: int32 (overflow is unpredictable), float32, float16 or bfloat16; any shape of rank 1 or
        more.
      axis: static, in [0, rank).

    Returns:
      The type of `input`, its shape with 1 at `axis`.

    Example:
      >>> import jax.numpy as jnp
      >>> import tosajax
      >>> tosajax.ops.reduce_sum(jnp.int32([[1, 2], [3, 4]]), axis=1).tolist()
      [[3], [7]]
    """
    if input.dtype == jnp.int32:
        return jnp.sum(input, axis, dtype=jnp.int32, keepdims=True)
    # Without the barrier XLA may fuse a preceding product into the sum, which skips its rounding.
    return _pairwise_sum(lax.optimization_barrier(input), axis).astype(input.dtype)


@functools.partial(jax.custom_jvp, nondiff_argnums=(1,))
def _pairwise_sum(x: jax.Array, axis: int) -> jax.Array:
    """Sums floats along an axis in float32, pairwise, as a tree.

    The order of additions depends only on the length of the axis, so the bits are the same for all
    batch sizes and platforms. `jnp.sum` adds in an order that depends on the whole shape, and dots
    with ones are slow for long rows or rows that are not contiguous. The tree also rounds less.
    """
    x = x.astype(jnp.float32)
    while (length := x.shape[axis]) > 1:
        size = -(-length // _TERMS)
        starts = range(0, length, size)
        terms = [lax.slice_in_dim(x, s, min(s + size, length), axis=axis) for s in starts]
        widths = [(0, 0, 0)] * x.ndim
        widths[axis] = (0, size - terms[-1].shape[axis], 0)
        terms[-1] = lax.pad(terms[-1], np.float32(0), widths)
        while len(terms) > 1:
            odd = terms[-1:] if len(terms) % 2 else []
            terms = [*map(jnp.add, terms[::2], terms[1::2]), *odd]
        x = lax.optimization_barrier(terms[0])
    return jnp.where(x == 0, np.float32(0), x)  # sums start from +0.0


@_pairwise_sum.defjvp
def _(axis: int, primals: tuple[jax.Array], tangents: tuple[jax.Array]):
    """The tangent is the sum of the tangents."""
    sums = jnp.sum(tangents[0], axis, dtype=jnp.float32, keepdims=True)
    return _pairwise_sum(primals[0], axis), sums


def _extremum(
    reduce: Callable[..., jax.Array],
    input: jax.Array,
    axis: int,
    nan_mode: NanMode,
    neutral: float,
) -> jax.Array:
    if not jnp.issubdtype(input.dtype, jnp.floating):
        return reduce(input, axis, keepdims=True)
    # XLA:CPU drops NaN from a maximum or minimum of 16 values or more, so NaN is found separately.
    nan = jnp.isnan(input)
    result = reduce(jnp.where(nan, jnp.asarray(neutral, input.dtype), input), axis, keepdims=True)
    is_nan = (jnp.any if nan_mode == NanMode.PROPAGATE else jnp.all)(nan, axis, keepdims=True)
    return jnp.where(is_nan, jnp.asarray(jnp.nan, input.dtype), result)
