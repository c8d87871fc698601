"""Objective: the scalar that training makes smaller."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from tosajax.quant.model.norms import Norms
from tosajax.quant.model.recipes import Params
from tosajax.quant.model.run import Mode
from tosajax.quant.qmodel import QModel
from tosajax.quant.training.losses import Loss
from tosajax.quant.training.schedule import Schedule

# Of inputs as for `QModel.apply`; returns outputs as that does.
Teacher = Callable[..., Sequence[jax.Array]]


@dataclasses.dataclass(frozen=True, eq=False)
class Objective:
    """The loss of a model's outputs, and the penalty of its parameters; see `fit`."""

    model: QModel
    loss: Loss
    mode: Mode
    schedule: Schedule
    penalty: Callable[[Params], jax.Array] | None
    derive: Callable[[Params], Params]
    seed: int

    def __call__(
        self, free: Params, step: jax.Array, example: Example, *, of_batch: bool
    ) -> tuple[jax.Array, Norms]:
        """The scalar, and the norms with the statistics that it was computed with.

        Args:
          free: the parameters that are trained.
          step: int32, how many were before.
          example: the example of this step.
          of_batch: batch norms have the statistics of the batch.

        Raises:
          ValueError: the loss is not a scalar.
        """
        params = self.derive(free)
        key = jax.random.fold_in(jax.random.key(self.seed), step)
        used = self.schedule.used(self.model, params, step, key)
        if of_batch:
            outputs, norms = self.model.apply_batch(used, *example.inputs, mode=self.mode)
        else:
            outputs, norms = self.model.apply(used, *example.inputs, mode=self.mode), {}
        taught = () if example.taught is None else (example.taught,)
        value = jnp.asarray(self.loss(outputs, example.targets, *taught))
        if value.shape:
            raise ValueError(f"loss has shape {value.shape}, expected a scalar, as a mean")
        return (value if self.penalty is None else value + self.penalty(params)), norms


class Example(NamedTuple):
    """The data of one step.

    Args:
      inputs: the inputs of the model, as JAX arrays.
      targets: a pytree of arrays.
      taught: the outputs of the teacher; None without one.
    """

    inputs: tuple[Any, ...]
    targets: Any
    taught: tuple[jax.Array, ...] | None
