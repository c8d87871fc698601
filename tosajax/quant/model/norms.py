"""Batch norms that convolutions keep in training.

The integer graph has no node for them: their factor is part of the RESCALE after the convolution,
and all else is part of its bias.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from tosajax.arguments.types import check_type
from tosajax.fixedpoint import _x64
from tosajax.grad.once import once
from tosajax.grad.qtensor import QTensor, follow, tie
from tosajax.quant.ranges.channels import on_last_axis
from tosajax.quant.storages.division import divide

# What is added to a variance, as all frameworks do by default.
EPSILON = 1e-5
# The axis of the examples of a batch.
EXAMPLES = "examples"


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Norm:
    """The batch norm of a convolution: (x - mean) / deviation * gamma + beta.

    Args:
      gamma: float32 [C], positive; C is the number of channels.
      beta: float32 [C].
      mean: float32 [C], of x, which is the convolution with its bias. A statistic, not trained.
      deviation: float32 [C], positive: the root of the variance of x plus 1e-5. A statistic.

    Example:
      >>> import jax.numpy as jnp
      >>> from tosajax import quant
      >>> gamma, beta, mean, deviation = jnp.float32([[1, 2], [0, 1], [3, 4], [2, 1]])
      >>> norm = quant.Norm(gamma, beta, mean, deviation)
      >>> norm, norm.factor.tolist(), norm.shift.tolist()
      (Norm(2 channels), [0.5, 2.0], [-3.0, -3.5])
    """

    gamma: jax.Array
    beta: jax.Array
    mean: jax.Array
    deviation: jax.Array

    def __repr__(self) -> str:
        return f"Norm({math.prod(jnp.shape(self.gamma))} channels)"

    @property
    def factor(self) -> jax.Array:
        """The multiplier of x, after `shift` is added."""
        return divide(self.gamma, self.deviation)

    @property
    def shift(self) -> jax.Array:
        """The addend of x, before `factor` multiplies it."""
        # A product next to a difference would be rounded with it in some programs.
        return divide(self.beta * self.deviation, self.gamma) - self.mean

    def __call__(self, x: jax.Array) -> jax.Array:
        """The norm of x, channels last."""
        return (x + on_last_axis(self.shift, x.ndim)) * on_last_axis(self.factor, x.ndim)


Norms = dict[str, Norm]


def held_statistics(norm: Norm) -> Norm:
    """The norm, without gradients to its statistics."""
    mean, deviation = map(lax.stop_gradient, (norm.mean, norm.deviation))
    return dataclasses.replace(norm, mean=mean, deviation=deviation)


class BatchNorms:
    """The batch norms of one run over the examples of an axis, with the statistics that it finds.

    Args:
      norms: the norms, by the output of the convolution.
    """

    def __init__(self, norms: Mapping[str, Norm]) -> None:
        self.norms = dict(norms)

    def of(self, name: str, x: jax.Array) -> Norm:
        """The norm of the output of a convolution, with the statistics of x.

        Args:
          name: the output's name.
          x: float32, channels last; an example of the axis `EXAMPLES`.
        """
        axes = tuple(range(x.ndim - 1))
        mean = lax.pmean(x.mean(axes), EXAMPLES)
        distance = x - on_last_axis(mean, x.ndim)
        variance = lax.pmean(jnp.square(distance).mean(axes), EXAMPLES)
        mean, deviation = map(_computed_once, (mean, jnp.sqrt(variance + EPSILON)))
        self.norms[name] = dataclasses.replace(self.norms[name], mean=mean, deviation=deviation)
        return self.norms[name]


def _computed_once(x: jax.Array) -> jax.Array:
    """x itself: one computation for the constants that are made of it, and for the caller."""
    return follow(once(lax.stop_gradient(x)), x)


def shifted(acc: QTensor, bias: QTensor, before: QTensor, is_left: jax.Array) -> QTensor:
    """An accumulator, channels last, with another bias than it was computed with.

    Args:
      acc: the accumulator of products and the bias `before`.
      bias: the bias that replaces `before`.
      before: the bias that it was computed with.
      is_left: bool, a channel each: its products stay; else the bias is all.
    """
    rank = acc.q.ndim
    stays = on_last_axis(is_left, rank)
    with _x64.scope_of(acc.q.dtype):
        sums = acc.q + on_last_axis(bias.q - before.q, rank)
        integers = jnp.where(stays, sums, on_last_axis(bias.q, rank))
    shadow = tie(acc) + on_last_axis(tie(bias) - tie(before), rank)
    return QTensor(integers, jnp.where(stays, shadow, on_last_axis(tie(bias), rank)))


def with_statistics(
    params: dict[str, Any], norms: Mapping[str, Norm], *, momentum: float = 0.9
) -> dict[str, Any]:
    """The parameters, with statistics moved towards the statistics of a batch.

    Args:
      params: the parameters of a model that keeps batch norms.
      norms: the norms of the same convolutions, from `QModel.apply_batch`; only their statistics
        count.
      momentum: the share that means and variances keep, in [0, 1]; 0 takes the statistics of the
        batch.

    Raises:
      TypeError: the norms are not by name.
      ValueError: the momentum is out of range, or the norms are of another model.

    Example:
      >>> import jax.numpy as jnp
      >>> from tosajax import quant
      >>> ones, zeros = jnp.ones(2), jnp.zeros(2)
      >>> params = {"norms": {"y": quant.Norm(ones, zeros, mean=zeros, deviation=ones)}}
      >>> of_batch = {"y": quant.Norm(ones, zeros, mean=10 * ones, deviation=ones)}
      >>> quant.with_statistics(params, of_batch)["norms"]["y"].mean.tolist()
      [1.0, 1.0]
    """
    check_type("norms", norms, Mapping, "a dictionary of Norms, from `QModel.apply_batch`")
    if not 0 <= momentum <= 1:
        raise ValueError(f"momentum is {momentum}, expected a number in [0, 1]")
    former = params.get("norms", {})
    if wrong := former.keys() ^ norms.keys():
        raise ValueError(f"norms of another model: only one of the two has {min(wrong)!r}")
    moved = {
        name: _with_moved_statistics(norm, norms[name], momentum) for name, norm in former.items()
    }
    return {**params, "norms": moved}


def _with_moved_statistics(norm: Norm, batch: Norm, momentum: float) -> Norm:
    mean = momentum * norm.mean + (1 - momentum) * batch.mean
    variance = momentum * jnp.square(norm.deviation) + (1 - momentum) * jnp.square(batch.deviation)
    return dataclasses.replace(norm, mean=mean, deviation=jnp.sqrt(variance))


# Statistics of many batches.


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Moments:
    """The mean and the sum of squared distances from it, by channel, of so many values each."""

    count: jax.Array
    mean: jax.Array
    squares: jax.Array

    @classmethod
    def none(cls, channels: int) -> Moments:
        return cls(jnp.zeros(()), jnp.zeros(channels), jnp.zeros(channels))

    def with_values(self, x: jax.Array) -> Moments:
        """The moments of these values as well, channels last."""
        rows = x.reshape(-1, x.shape[-1])
        mean = rows.mean(0)
        moments = Moments(
            jnp.float32(rows.shape[0]), mean, jnp.square(rows - on_last_axis(mean, 2)).sum(0)
        )
        return self.with_moments(moments)

    def with_moments(self, other: Moments) -> Moments:
        count = self.count + other.count
        distance, share = other.mean - self.mean, other.count / count
        squares = self.squares + other.squares + jnp.square(distance) * (self.count * share)
        return Moments(count, self.mean + distance * share, squares)

    @property
    def deviation(self) -> jax.Array:
        return jnp.sqrt(self.squares / self.count + EPSILON)

    def norm(self) -> Norm:
        """The batch norm that changes nothing where the statistics are these."""
        return Norm(self.deviation, self.mean, self.mean, self.deviation)
