"""Relevance: which elements of a tensor, and how much of them, what reads it depends on.

Ranges hold these alone. The rest saturates, and no result changes by more than its rounding.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Protocol

import jax
import jax.numpy as jnp

# A row whose greatest logit is so far below that of another is masked as a whole.
_MASKED_ROW = 1000.0
# Of the greatest product: smaller ones are lost in the rounding of any type.
_LOST = 2.0**-20


def softmax_margin(size: int, bits: int) -> float:
    """How far below the greatest logit of a row of n elements others matter: ln(2**(bits + 1) n).

    The exponentials of n elements that far below are together less than half a step of
    probabilities of so many bits.
    """
    return math.log(2 ** (bits + 1) * max(size, 1))


class Relevance(Protocol):
    """The relevant values of a tensor."""

    @property
    def reads(self) -> tuple[str, ...]:
        """The tensors that decide on them."""
        ...

    def values(self, tensors: Mapping[str, jax.Array], bits: int) -> jax.Array:
        """The values that the range must hold; NaN are left out.

        Args:
          tensors: the values of `reads`.
          bits: of the tensor's type.
        """
        ...


@dataclasses.dataclass(frozen=True)
class Logit:
    """Of logits, those near the greatest of their row.

    Args:
      logits: the tensor, or one that it is moved to.
      axis: of the rows, -1 for the last.
    """

    logits: str
    axis: int

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.logits,)

    def values(self, tensors: Mapping[str, jax.Array], bits: int) -> jax.Array:
        x = tensors[self.logits]
        return jnp.maximum(x, _least_logits(x, self.axis, bits))


@dataclasses.dataclass(frozen=True)
class LogitTerm:
    """Of a term of logits, as much as moves the sum down to where it no longer matters.

    Args:
      term: the tensor, or one that it is moved to.
      other: the other term.
      logits: the sum.
      axis: of its rows, -1 for the last.
    """

    term: str
    other: str
    logits: str
    axis: int

    @property
    def reads(self) -> tuple[str, ...]:
        return self.term, self.other, self.logits

    def values(self, tensors: Mapping[str, jax.Array], bits: int) -> jax.Array:
        term = tensors[self.term]
        least = _least_logits(tensors[self.logits], self.axis, bits) - tensors[self.other]
        # Where the other term is enough, this one does not matter.
        return jnp.where(term >= least, term, jnp.where(least < 0, least, jnp.nan))


@dataclasses.dataclass(frozen=True)
class RowFactor:
    """Of factors of rows, those of rows that are not 0.

    Args:
      factor: the tensor.
      products: all products that it is in, of the same rank.
    """

    factor: str
    products: tuple[str, ...]

    @property
    def reads(self) -> tuple[str, ...]:
        return self.factor, *self.products

    def values(self, tensors: Mapping[str, jax.Array], bits: int) -> jax.Array:
        del bits
        x = tensors[self.factor]
        is_relevant = jnp.zeros(x.shape, jnp.bool_)
        for name in self.products:
            is_relevant |= _rows_of_numbers(tensors[name], x.shape)
        return jnp.where(is_relevant, x, jnp.nan)


def _rows_of_numbers(product: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Where rows of products are not 0, in the shape of their factors."""
    size = jnp.where(jnp.isfinite(product), jnp.abs(product), 0.0)
    sizes = zip(shape, size.shape, strict=True)
    axes = [axis for axis, (own, full) in enumerate(sizes) if own == 1 < full]
    greatest = size.max(axes, keepdims=True, initial=0.0)
    return greatest > _LOST * size.max(initial=0.0)


def _least_logits(x: jax.Array, axis: int, bits: int) -> jax.Array:
    """The least logit of each row that matters; NaN for rows that are masked as a whole."""
    greatest = x.max(axis, keepdims=True, initial=-jnp.inf)
    is_masked = greatest < greatest.max(initial=-jnp.inf) - _MASKED_ROW
    return jnp.where(is_masked, jnp.nan, greatest - softmax_margin(x.shape[axis], bits))
