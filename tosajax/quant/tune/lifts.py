"""INT16 for the tensors that cost most, within a share of multiply-accumulates."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tosajax import spec
from tosajax.dtypes import DType
from tosajax.graph.summary import macs_of
from tosajax.quant.model.parts import heads
from tosajax.quant.model.recipes import Params
from tosajax.quant.qmodel import PreparedModel
from tosajax.quant.training.losses import noise_to_signal
from tosajax.quant.tune.islands import with_rules
from tosajax.quant.tune.rescuing import lift_candidates, lift_rules, lifted_loss

_GAIN = 0.99  # of the noise that one more lift must leave at most
_ALONE = 0.5  # of that gain, which a lift must have by itself to be tried beside others
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
    weights: Sequence[float],
    share: float,
    deadline: float,
    *,
    outputs: Collection[str] = (),
) -> tuple[PreparedModel, Params, Lifts]:
    """Lifts tensors to INT16 while each helps: those first that help most by themselves.

    Or those that help most for their multiply-accumulates, where that leaves less noise.

    Args:
      model: the model, from `prepare`, of integers.
      params: the model's parameters.
      inputs: real inputs.
      wanted: tensors of the float graph to be near to, by name.
      weights: of the noise of each of them.
      share: of multiply-accumulates that may read lifted tensors.
      deadline: of `time.perf_counter`, after which no more are tried.
      outputs: tensors to lift in any case; see `outputs_to_lift`.
    """
    names = [name for name in lift_candidates(model, None) if name not in outputs]
    targets = [jnp.asarray(each, jnp.float32) for each in wanted.values()]

    def loss(outputs: tuple[jax.Array, ...]) -> jax.Array:
        return noise_to_signal(outputs, targets, weights)

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
    lifted = (*outputs, *(names[place] for place in chosen))
    left = {names[n]: noise([*chosen, n]) for n in _next(alone, chosen)}
    if lifted:
        model, params = with_rules(model, params, lift_rules(model, lifted))
    return model, params, Lifts(lifted, macs.share(lifted), left)


def outputs_to_lift(model: PreparedModel) -> list[str]:
    """The INT8 activations that outputs are made of, and that no multiply-accumulate reads.

    Such as boxes and landmarks: the output of a product, or a CONCAT of several, where 8 bits hold
    the largest of all and leave few steps for the others. An output that is a softmax or another
    function of its head stays, as does one whose range is fixed.
    """
    owners = dict[str, None]()
    for name, head in zip(model.graph.outputs, heads(model), strict=True):
        names = _moved_into(model, name)
        if head in names and model.plan.functions.keys().isdisjoint(names):
            owners |= {owner: None for n in names if (owner := model.owners.get(n)) is not None}
    inputs, macs = {model.owners.get(name) for name in model.graph.inputs}, _Macs(model)
    narrow = [name for name in owners if name in model.activations and name not in inputs]
    specs = {name: model.specs[name] for name in narrow}
    return [
        name
        for name, own in specs.items()
        if own.dtype is DType.INT8 and not own.observer.is_fixed and not macs.share([name])
    ]


def _moved_into(model: PreparedModel, name: str) -> list[str]:
    """A tensor of the float graph, and those whose elements it has."""
    producers = {output: node for node in model.float_graph.nodes for output in node.outputs}
    names = [name]
    for each in names:
        node = producers.get(each)
        if node is not None and spec.OPERATORS[node.op].moves:
            names += node.inputs
    return names


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
    return min((_chosen(order, gains, noise, fits, deadline) for order in orders), key=noise)


def _chosen(
    order: Sequence[int],
    gains: Mapping[int, float],
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
        if gains[place] < _ALONE * (1 - _GAIN) * least:
            continue  # gains nearly add up
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
