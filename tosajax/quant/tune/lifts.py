"""INT16 for the tensors that cost most, within a share of multiply-accumulates."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
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

_GAIN = 0.98  # of the noise that one more lift must leave at most
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
    """Lifts tensors to INT16, those first that help most by themselves, while each helps.

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
    alone = {}
    for place, name in enumerate(names):
        if time.perf_counter() > deadline:
            break
        if macs.share([name]) <= share:
            alone[place] = noise([place])
    least, chosen = noise([]), list[int]()
    for place in sorted(alone, key=alone.__getitem__):
        if time.perf_counter() > deadline:
            break
        more = [*chosen, place]
        is_within = macs.share([names[n] for n in more]) <= share
        if is_within and (value := noise(more)) <= _GAIN * least:
            chosen, least = more, value
    lifted = tuple(names[place] for place in chosen)
    left = {names[n]: noise([*chosen, n]) for n in _next(alone, chosen)}
    if lifted:
        model, params = with_rules(model, params, lift_rules(model, lifted))
    return model, params, Lifts(lifted, macs.share(lifted), left)


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
