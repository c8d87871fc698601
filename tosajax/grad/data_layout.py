"""Operators that move elements move their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax

from tosajax import ops
from tosajax.grad._exact import exact
from tosajax.grad.qtensor import QTensor, shadow


@exact(ops.concat)
def concat(input1: Sequence[QTensor], *, axis: int) -> jax.Array:
    """Moves."""
    return ops.concat([shadow(x) for x in input1], axis=axis)


@exact(ops.pad)
def pad(input1: QTensor, padding: tuple[int, ...], pad_const: QTensor) -> jax.Array:
    """Moves."""
    return ops.pad(shadow(input1), padding, shadow(pad_const))


@exact(ops.reshape)
def reshape(input1: QTensor, shape: tuple[int, ...]) -> jax.Array:
    """Moves."""
    return ops.reshape(shadow(input1), shape)


@exact(ops.reverse)
def reverse(input1: QTensor, **attributes: Any) -> jax.Array:
    """Moves."""
    return ops.reverse(shadow(input1), **attributes)


@exact(ops.slice)
def slice(input1: QTensor, start: tuple[int, ...], size: tuple[int, ...]) -> jax.Array:
    """Moves."""
    return ops.slice(shadow(input1), start, size)


@exact(ops.tile)
def tile(input1: QTensor, multiples: tuple[int, ...]) -> jax.Array:
    """Moves; copies add up."""
    return ops.tile(shadow(input1), multiples)


@exact(ops.transpose)
def transpose(input1: QTensor, **attributes: Any) -> jax.Array:
    """Moves."""
    return ops.transpose(shadow(input1), **attributes)
