"""INT16 for the tensors that cost most, within a share of multiply-accumulates."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tosajax.graph.summary import macs_of
from tosajax.quant.model.recipes import Params
from tosajax.quant.qmodel import PreparedModel
from tosajax.quant.training.losses import noise_to_signal
from tosajax.quant.tune.islands import with_rules
from tosajax.quant.tune.rescuing import lift_candidates, lift_rules, lifted_loss

_GAIN = 0.99  # of the noise that one more lift must leave at most
_COST = 0.001  # the share of all multiply-accumulates that a lift costs at least
_LEFT = 3  # tensors that are named as the next ones


class Lifts(NamedTuple):
    """Tensors in INT16.

    Args:
      lifted: the tensors, in the order in which they were chosen.
      wide_macs: the share of multiply-accumulates that read them.
      left: the noise with one more tensor, of those that would help most.
    """

    lifted: tuple[str, ...] = ()
    wide_macs: float = 0.0
    left: Mapping[str, float] = {}


def lift_some(
    model: PreparedModel,
    params: Params,
    inputs: Sequence[Any],
    wanted: Mapping[str, np.ndarray],
    share: float,
    deadline: float,
) -> tuple[PreparedModel, Params, Lifts]:
    """Lifts tensors to INT16 while each helps: those first that help most by themselves.

    Or those that help most for their multiply-accumulates, where that leaves less noise.

    Args:
      model: the model, from `prepare`, of integers.
      params: the model's parameters.
      inputs: real inputs.
      wanted: tensors of the float graph to be near to, by name.
      share: of multiply-accumulates that may read lifted tensors.
      deadline: of `time.perf_counter`, after which no more are tried.
    """
    names = lift_candidates(model, None)
    targets = [jnp.asarray(each, jnp.float32) for each in wanted.values()]

    def loss(outputs: tuple[jax.Array, ...]) -> jax.Array:
        return noise_to_signal(outputs, targets)

    watched = model.with_outputs(*wanted)
    noise = lifted_loss(watched, params, tuple(inputs), loss, names)
    macs = _Macs(model)

    def fits(places: Sequence[int]) -> bool:
        return macs.share([names[n] for n in places]) <= share

    alone, before = {}, noise([])
    for place in range(len(names)):
        if time.perf_counter() > deadline:
            break
        if fits([place]):
            alone[place] = noise([place])
    gains = {place: before - value for place, value in alone.items() if value < before}
    # What no multiply-accumulate reads is not for nothing: it takes memory.
    costs = [macs.share([name]) + _COST for name in names]
    chosen = best_set(gains, costs, noise, fits, deadline)
    lifted = tuple(names[place] for place in chosen)
    left = {names[n]: noise([*chosen, n]) for n in _next(alone, chosen)}
    if lifted:
        model, params = with_rules(model, params, lift_rules(model, lifted))
    return model, params, Lifts(lifted, macs.share(lifted), left)


def best_set(
    gains: Mapping[int, float],
    costs: Sequence[float],
    noise: Callable[[Sequence[int]], float],
    fits: Callable[[Sequence[int]], bool],
    deadline: float,
) -> list[int]:
    """The places that leave less noise of two sets: by what each gains, and by gain for its cost.

    Args:
      gains: of places that help by themselves.
      costs: of all places.
      noise: with some of them.
      fits: whether some are within the budget.
      deadline: of `time.perf_counter`, after which no more are tried.
    """
    for_cost = {place: gain / costs[place] for place, gain in gains.items()}
    orders = [sorted(values, key=values.__getitem__, reverse=True) for values in (gains, for_cost)]
    return min((_chosen(order, noise, fits, deadline) for order in orders), key=noise)


def _chosen(
    order: Sequence[int],
    noise: Callable[[Sequence[int]], float],
    fits: Callable[[Sequence[int]], bool],
    deadline: float,
) -> list[int]:
    """Those places of an order that help beside the ones before them, while they fit."""
    chosen, least = list[int](), noise([])
    for place in order:
        if time.perf_counter() > deadline:
            break
        more = [*chosen, place]
        if fits(more) and (left := noise(more)) <= _GAIN * least:
            chosen, least = more, left
    return chosen


def _next(alone: Mapping[int, float], chosen: Collection[int]) -> list[int]:
    """The places that help most of those that were not chosen."""
    rest = [place for place in alone if place not in chosen]
    return sorted(rest, key=alone.__getitem__)[:_LEFT]


class _Macs:
    """The multiply-accumulates that read the activations of a model."""

    def __init__(self, model: PreparedModel) -> None:
        self._readers: dict[str, set[int]] = {}
        self._counts: list[int] = []
        for graph in model.float_graph.walk():
            for node in graph.nodes:
                number = len(self._counts)
                self._counts.append(macs_of(node, graph))
                for name in node.inputs[:2]:
                    owner = model.owners.get(name)
                    if owner is not None and self._counts[number]:
                        self._readers.setdefault(owner, set()).add(number)

    def share(self, names: Collection[str]) -> float:
        """The share of all multiply-accumulates that read some tensors."""
        nodes = set[int]().union(*(self._readers.get(name, ()) for name in names))
        return sum(self._counts[n] for n in nodes) / max(1, sum(self._counts))
