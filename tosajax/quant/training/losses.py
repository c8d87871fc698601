"""Losses that learn from the outputs of another model."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from tosajax import html

# Of outputs as `QModel.apply` gives them, and targets; to a scalar.
Loss = Callable[..., jax.Array]
_Outputs = tuple[jax.Array, ...]


def of_outputs(loss: Loss) -> Loss:
    """A user's loss, with an error that says so where it takes an array for the tuple of outputs.

    A loss that fails is tried again on the first output alone.
    """

    @functools.wraps(loss)
    def checked(outputs: _Outputs, *others: Any) -> jax.Array:
        try:
            return loss(outputs, *others)
        except Exception as error:
            if not _takes_one(loss, outputs, others):
                raise
            kind = f"outputs is a tuple of {html.counted(len(outputs), 'array')}"
            raise TypeError(
                f"loss: {kind}, one for each output of the graph: take outputs[0] ({error})"
            ) from error

    return checked


def _takes_one(loss: Loss, outputs: _Outputs, others: Sequence[Any]) -> bool:
    """Whether a loss works with the first output in place of all, and so with a teacher's."""
    alone = [other[0] if isinstance(other, tuple) and other else other for other in others]
    try:
        loss(outputs[0], *alone)
    except Exception:
        return False
    return True


def distillation(
    loss: Loss | None = None, *, weight: float = 0.5, temperature: float = 4.0
) -> Loss:
    """A loss for `fit(..., teacher=...)`: the teacher's probabilities, beside the targets.

    The divergence of the softmax of the outputs from the teacher's, both at a temperature, times
    its square; of "Distilling the Knowledge in a Neural Network" (Hinton et al., 2015). Scores are
    along the last axis; the mean of all others counts, the sum of several outputs.

    Args:
      loss: a function of outputs and targets; without it only the teacher counts, and targets may
        be None.
      weight: the weight of the teacher's part, in [0, 1]; the loss has the rest.
      temperature: positive; the higher, the more small probabilities count.

    Raises:
      ValueError: the weight or the temperature is out of range.

    Example:
      >>> import jax.numpy as jnp
      >>> from tosajax import quant
      >>> loss = quant.distillation()  # for quant.fit(..., loss, teacher="float")
      >>> outputs = (jnp.float32([[2, 1, 0]]),)
      >>> loss(outputs, None, outputs).item() < 1e-6
      True
    """
    if not 0 <= weight <= 1:
        raise ValueError(f"weight is {weight}, expected a number in [0, 1]")
    if not temperature > 0:
        raise ValueError(f"temperature is {temperature}, expected a positive number")

    loss = None if loss is None else of_outputs(loss)

    def combined(outputs: _Outputs, targets: Any, taught: _Outputs) -> jax.Array:
        parts = [_divergence(y, t, temperature) for y, t in zip(outputs, taught, strict=True)]
        divergence = sum(parts, jnp.float32(0))
        if loss is None:
            return divergence
        return (1 - weight) * loss(outputs, targets) + weight * divergence

    return combined


def _divergence(scores: jax.Array, taught: jax.Array, temperature: float) -> jax.Array:
    own = jax.nn.log_softmax(scores / temperature, axis=-1)
    wanted = jax.nn.log_softmax(taught / temperature, axis=-1)
    return temperature**2 * (jnp.exp(wanted) * (wanted - own)).sum(-1).mean()


def squared_difference(outputs: _Outputs, targets: Any, taught: _Outputs) -> jax.Array:
    """A loss for `fit(..., teacher=...)`: the mean squared difference from the teacher's outputs.

    Several outputs add up; targets do not count.

    Example:
      >>> import jax.numpy as jnp
      >>> from tosajax import quant
      >>> quant.squared_difference((jnp.float32([1, 2]),), None, (jnp.float32([1, 4]),)).item()
      2.0
    """
    del targets
    parts = [jnp.square(y - t).mean() for y, t in zip(outputs, taught, strict=True)]
    return sum(parts, jnp.float32(0))
