"""The values of metrics over the examples of a data set: begun, updated, joined and finished."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tosajax.sweep import exact
from tosajax.sweep.metrics import Examples, Greatest, Metric, Total

# The values so far, on the device: {metric: {quantity: array}}.
State = dict[str, dict[str, jax.Array]]


def start(metrics: Sequence[Metric], examples: Examples) -> State:
    """The state before the first example.

    Args:
      metrics: the metrics to measure.
      examples: examples of the same shapes and types; arrays or `jax.ShapeDtypeStruct`.
    """
    state: State = {}
    for metric in metrics:
        kinds = jax.eval_shape(lambda e, m=metric: dict(m.measure(e)), examples)
        state[metric.name] = {
            name: exact.nothing() if isinstance(kind, Total) else jnp.zeros((), kind.values.dtype)
            for name, kind in kinds.items()
        }
    return state


def update(metrics: Sequence[Metric], state: State, examples: Examples, counts: jax.Array) -> State:
    """Adds examples to a state.

    Args:
      metrics: the metrics of the state.
      state: the state so far.
      examples: the examples to measure.
      counts: bool [examples]; false for padding.

    Raises:
      TypeError: the values of a total have a type that `Total` does not take.
      ValueError: outputs, labels, a reference or the values of a metric have a wrong shape.
    """
    return {
        metric.name: {
            name: _take_in(state[metric.name][name], kind, counts, f"metric {metric.name!r}")
            for name, kind in metric.measure(examples).items()
        }
        for metric in metrics
    }


def join(metrics: Sequence[Metric], state: State, more: State) -> State:
    """Joins two states of different examples."""

    def both(ours: jax.Array, theirs: jax.Array) -> jax.Array:
        return exact.join(ours, theirs) if ours.ndim else jnp.maximum(ours, theirs)

    return jax.tree.map(both, state, more)


def finish(
    metrics: Sequence[Metric], state: Mapping[str, Mapping[str, np.ndarray]], count: int
) -> dict[str, float]:
    """The values of the metrics, by name.

    Args:
      metrics: the metrics of the state.
      state: a state of NumPy arrays.
      count: the number of examples that counted, at least 1.
    """
    return {m.name: float(m.finish(_quantities(state[m.name]), count)) for m in metrics}


def _quantities(state: Mapping[str, np.ndarray]) -> dict[str, Any]:
    return {
        name: exact.value(array) if array.ndim else array.item() for name, array in state.items()
    }


def _take_in(state: jax.Array, kind: Total | Greatest, counts: jax.Array, source: str) -> jax.Array:
    values = kind.values
    if values.shape[:1] != counts.shape:
        raise ValueError(
            f"{source} has values of shape {values.shape}, expected {counts.shape[0]} examples on "
            "the first axis"
        )
    mask = counts.reshape(-1, *(1,) * (values.ndim - 1))
    unmasked = jnp.where(mask, values, jnp.zeros((), values.dtype))
    if isinstance(kind, Total):
        return exact.add(state, unmasked)
    return jnp.maximum(state, jnp.max(unmasked).astype(state.dtype))
