"""Schedule: values that change from step to step of training."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from tosajax.grad.qtensor import follow
from tosajax.quant.model.recipes import Params
from tosajax.quant.model.room import fitted_qparams
from tosajax.quant.qmodel import PreparedModel, QModel
from tosajax.quant.qparams import QParams

# A number for each step, whose number is traced: a schedule of optax, for instance.
ByStep = Callable[[jax.Array], Any]


@dataclasses.dataclass(frozen=True)
class Schedule:
    """Values that change from step to step in `fit`, beside the rate, which is the optimizer's.

    Schedules of optax serve as functions of the step, as `optax.linear_schedule(4, 0, 500)`.

    Args:
      observe: the number of steps in which observers find the ranges from each batch; then
        gradients train scales and zero points. 0: they do from the start.
      hold_scales: the step from which on scales, zero points and bits stay as they are.
      extra_bits: a function of the step: bits that are added to each tensor's, up to the bits of
        its type; the range stays. Annealed to 0, so that a model of few bits starts as one of many.
        Tensors in whose scale tables were sampled keep their bits.
      stochastic: a function of the step, from 0, nearest rounding of weights, to 1, up or down with
        the probability of their distance, chosen anew in each step.
      batch_statistics: the number of steps in which batch norms that the model keeps normalize by
        the statistics of the batch (`QModel.apply_batch`), towards which their own move; then by
        these.
      momentum: the share that their own means and variances keep in such a step.
      average: the share that the average of parameters keeps in a step, as 0.999; the result is
        this average. None: no average.

    Raises:
      ValueError: a number is out of range.

    Example:
      >>> from tosajax import quant
      >>> schedule = quant.Schedule(observe=100, extra_bits=lambda step: 4 - step / 125)
      >>> schedule.observe
      100
    """

    observe: int = 0
    hold_scales: int | None = None
    extra_bits: ByStep | None = None
    stochastic: ByStep | None = None
    batch_statistics: int = 0
    momentum: float = 0.9
    average: float | None = None

    def __post_init__(self) -> None:
        for name in ("observe", "hold_scales", "batch_statistics"):
            steps = getattr(self, name)
            if steps is not None and steps < 0:
                raise ValueError(f"{name} is {steps}, expected a number of steps")
        if not 0 <= self.momentum <= 1:
            raise ValueError(f"momentum is {self.momentum}, expected a number in [0, 1]")
        if self.average is not None and not 0 <= self.average < 1:
            raise ValueError(f"average is {self.average}, expected a number in [0, 1)")

    def check(self, model: QModel) -> None:
        """Raises ValueError where a model has no place for these changes."""
        changes = {name: getattr(self, name) for name in ("observe", "extra_bits", "stochastic")}
        asked = [name for name, value in changes.items() if value]
        if asked and not isinstance(model, PreparedModel):
            raise ValueError(f"{asked[0]} of a model from `lift`, which has no scales of its own")
        if self.batch_statistics and not model.plan.norms:
            raise ValueError(
                "batch_statistics of a model that keeps no batch norms, expected one of `prepare` "
                "with `batch_norms`"
            )
        if not model.plan.is_integer and (wrong := [n for n in asked if n != "observe"]):
            raise ValueError(f"{wrong[0]} of a model of FP8, expected one of integers")

    def used(self, model: QModel, params: Params, step: jax.Array, key: jax.Array) -> Params:
        """The parameters that the loss of a step is computed with."""
        if self.extra_bits is not None:
            params = _widened(model, params, jnp.asarray(self.extra_bits(step), jnp.float32))
        if self.stochastic is not None:
            amount = jnp.asarray(self.stochastic(step), jnp.float32)
            params = _dithered(model, params, amount, key)
        return params

    def with_held_scales(self, updates: Params, step: jax.Array) -> Params:
        """The updates, with none of scales where these are held."""
        if self.hold_scales is None or "qparams" not in updates:
            return updates
        moves = step < self.hold_scales
        still = jax.tree.map(lambda x: jnp.where(moves, x, 0), updates["qparams"])
        return {**updates, "qparams": still}

    def averaged(self, average: Params, params: Params, step: jax.Array) -> Params:
        """The average after a step; of the first steps nearly all counts."""
        assert self.average is not None
        count = step.astype(jnp.float32)
        share = jnp.minimum(self.average, (1 + count) / (10 + count))
        return jax.tree.map(lambda mean, new: share * mean + (1 - share) * new, average, params)


def _widened(model: QModel, params: Params, extra: jax.Array) -> Params:
    """The parameters with more bits, and the same ranges."""
    widened = dict(params["qparams"])
    for name, qparams in widened.items():
        if qparams.storage.is_integer and name not in model.plan.sampled:
            widened[name] = _with_more_bits(qparams, extra)
    return {**params, "qparams": widened}


def _with_more_bits(qparams: QParams, extra: jax.Array) -> QParams:
    most = float(qparams.storage.dtype.bits)
    wider = jnp.minimum(qparams.bits + extra, most)
    wide = dataclasses.replace(qparams, bits=follow(wider, qparams.bits))
    rest = 0 if qparams.narrow_range else 1
    ratio = lax.stop_gradient((qparams.grid.qmax + rest) / (wide.grid.qmax + rest))
    return dataclasses.replace(
        wide, scale=qparams.scale * ratio, zero_point=qparams.zero_point / ratio
    )


def _dithered(model: QModel, params: Params, amount: jax.Array, key: jax.Array) -> Params:
    """The parameters with weights that are moved by up to half a step before they are rounded."""
    corrections = dict(params.get("corrections", {}))
    for name, own_key in zip(model.weights, jax.random.split(key, len(model.weights)), strict=True):
        values, scale = params["values"][name], fitted_qparams(model.plan, params, name).scale
        moved = amount * scale * jax.random.uniform(own_key, values.shape, minval=-0.5, maxval=0.5)
        corrections[name] = corrections.get(name, 0.0) + moved
    return {**params, "corrections": corrections}
