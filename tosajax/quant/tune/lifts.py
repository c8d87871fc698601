"""INT16 for the tensors that cost most, within a share of multiply-accumulates."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import jax

from tosajax.dtypes import DType
from tosajax.graph import Graph, Node
from tosajax.quant.graphs.inner import moved_into
from tosajax.quant.model.parts import heads
from tosajax.quant.model.recipes import Params
from tosajax.quant.qmodel import PreparedModel
from tosajax.quant.training.losses import noise_to_signal
from tosajax.quant.tune.costs import Limits, Macs
from tosajax.quant.tune.islands import with_rules
from tosajax.quant.tune.rescuing import lift_candidates, lift_rules, lifted_loss
from tosajax.validation import validate

_GAIN = 0.99  # of the noise that one more lift must leave at most
_ALONE = 0.5  # of that gain, which a lift must have by itself to be tried beside others
_COST = 0.001  # the share of all multiply-accumulates that a lift costs at least
_LEFT = 3  # tensors that are named as the next ones


class Examples(NamedTuple):
    """Real inputs, and tensors of the float graph for them to be near to."""

    inputs: tuple[Any, ...]
    wanted: tuple[jax.Array, ...]


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
    heads: Sequence[str],
    halves: Sequence[Examples],
    weights: Sequence[float],
    limits: Limits,
    deadline: float,
    *,
    outputs: Collection[str] = (),
) -> tuple[PreparedModel, Params, Lifts]:
    """Lifts the tensors to INT16 that leave the least noise, of the sets of `sets_to_lift`.

    Args:
      model: the model, from `prepare`, of integers.
      params: the model's parameters.
      heads: the names of the tensors of the float graph whose noise counts.
      halves: examples of these tensors. The first make the sets, in time all of them two more, and
        all choose one.
      weights: of the noise of each tensor.
      limits: what they may cost.
      deadline: of `time.perf_counter`, after which no more are tried.
      outputs: tensors to lift in any case, within the limits; see `outputs_to_lift`.
    """
    outputs = outputs if limits.fits(outputs) else ()
    names = [name for name in lift_candidates(model, None) if name not in outputs]
    loss = functools.partial(noise_to_signal, weights=tuple(weights))
    simulated = lifted_loss(model.with_outputs(*heads), params, loss, names)

    def noise(places: Sequence[int], half: int = 0) -> float:
        return simulated(places, *halves[half])

    def of_all(places: Sequence[int]) -> float:
        return sum(noise(places, half) for half in range(len(halves)))

    def fits(places: Sequence[int]) -> bool:
        return limits.fits([*outputs, *(names[n] for n in places)])

    # What no multiply-accumulate reads is not for nothing: it takes memory.
    costs = [limits.cost(name) + _COST for name in names]
    others = [functools.partial(noise, half=half) for half in range(1, len(halves))]
    alone, sets = sets_to_lift(costs, noise, fits, deadline, others)
    chosen = best_set(sets, of_all)
    lifted = (*outputs, *(names[place] for place in chosen))
    left = {names[n]: noise([*chosen, n]) for n in _next(alone, chosen)}
    if lifted:
        model, params = with_rules(model, params, lift_rules(model, lifted))
    return model, params, Lifts(lifted, limits.macs.share(lifted), left)


def refused(model: PreparedModel, params: Params, names: Sequence[str], npu: str) -> set[str]:
    """The INT8 activations that an NPU does not take in INT16.

    Args:
      model: the model, from `prepare`, of integers.
      params: the model's parameters.
      names: the activations.
      npu: the name of the NPU.
    """
    wide, own = with_rules(model, params, lift_rules(model, names))
    before = {finding.node for finding in validate(model.freeze(params), npu).errors}
    graph = wide.freeze(own)
    nodes = {node.title: node for node in graph.nodes}
    titles = {finding.node for finding in validate(graph, npu).errors} - before
    found = set[str]()
    for node in (nodes[title] for title in titles if title in nodes):
        found |= _nearest(graph, node, names, upwards=True)
        found |= _nearest(graph, node, names, upwards=False)
    return found


def _nearest(graph: Graph, node: Node, names: Collection[str], *, upwards: bool) -> set[str]:
    """The first of some tensors that a node depends on, or that depend on it."""
    found, left = set[str](), list(node.inputs if upwards else node.outputs)
    around: dict[str, list[str]] = {}
    for other in graph.nodes:
        ends = (other.outputs, other.inputs) if upwards else (other.inputs, other.outputs)
        for name in ends[0]:
            around.setdefault(name, []).extend(ends[1])
    for name in left:
        if name in names:
            found.add(name)
        else:
            left += [each for each in around.get(name, ()) if each not in left]
    return found


def outputs_to_lift(model: PreparedModel) -> list[str]:
    """The INT8 activations that outputs are made of, and that no multiply-accumulate reads.

    Such as boxes and landmarks: the output of a product, or a CONCAT of several, where 8 bits hold
    the largest of all and leave few steps for the others. An output that is a softmax or another
    function of its head stays, as does one whose range is fixed.
    """
    owners = dict[str, None]()
    for name, head in zip(model.graph.outputs, heads(model), strict=True):
        names = moved_into(model.float_graph, [name])
        if head in names and model.plan.functions.keys().isdisjoint(names):
            owners |= {owner: None for n in names if (owner := model.owners.get(n)) is not None}
    inputs, macs = {model.owners.get(name) for name in model.graph.inputs}, Macs(model)
    narrow = [name for name in owners if name in model.activations and name not in inputs]
    specs = {name: model.specs[name] for name in narrow}
    return [
        name
        for name, own in specs.items()
        if own.dtype is DType.INT8 and not own.observer.is_fixed and not macs.share([name])
    ]


_Noise = Callable[[Sequence[int]], float]
_Fits = Callable[[Sequence[int]], bool]


def sets_to_lift(
    costs: Sequence[float],
    noise: _Noise,
    fits: _Fits,
    deadline: float,
    others: Sequence[_Noise] = (),
) -> tuple[dict[int, float], list[list[int]]]:
    """The noise with each place by itself, and sets of places, within the budget.

    Two sets have places while each helps, those first that help most by themselves, or most for
    their cost. The third has those that are missed most for their cost where all others are lifted:
    a tensor may help only together with others, as those that feed one sum. The next has all others
    as well that fit, which only these examples may not miss. Two more are made like these of what
    these and other examples miss. Where the time is over before what is missed is known, the last
    set has those that help most for their cost by themselves, as far as they fit.

    Args:
      costs: of all places.
      noise: with some of them.
      fits: whether some are within the budget.
      deadline: of `time.perf_counter`, after which no more are tried.
      others: the noise of other examples with some of them.
    """
    before = noise([])
    each = [place for place in range(len(costs)) if fits([place])]
    alone = _with_each(each, lambda place: noise([place]), deadline)
    # In front of the sets that grow place by place, which take what time there is.
    missed = _missed(each, costs, noise, deadline)
    gains = {place: before - value for place, value in alone.items() if value < before}
    for_cost = {place: gain / costs[place] for place, gain in gains.items()}
    orders = _by(gains), _by(for_cost)
    sets = [_chosen(order, gains, noise, fits, deadline) for order in orders]
    if missed is None:
        return alone, [*sets, _fitting([], orders[1], fits)]
    sets += _sets_of_missed(missed, fits)
    for other in others:
        more = _missed(each, costs, other, deadline)
        if more is not None:
            missed = {place: missed[place] + more[place] for place in each}
            sets += _sets_of_missed(missed, fits)
    return alone, sets


def _missed(
    each: Sequence[int], costs: Sequence[float], noise: _Noise, deadline: float
) -> dict[int, float] | None:
    """The noise that each place takes away where all are lifted, for its cost; None if too late."""
    without = _with_each(each, lambda place: noise([p for p in each if p != place]), deadline)
    if len(without) < len(each):
        return None
    whole = noise(each)
    return {place: (value - whole) / costs[place] for place, value in without.items()}


def _sets_of_missed(missed: Mapping[int, float], fits: _Fits) -> list[list[int]]:
    """The places that are missed, those first that are most; and these with all others that fit."""
    order = _by(missed)
    helpful = _fitting([], [place for place in order if missed[place] > 0], fits)
    return [helpful, _fitting(helpful, order, fits)]


def _fitting(chosen: Sequence[int], order: Sequence[int], fits: _Fits) -> list[int]:
    """Some places, and others of an order, as far as the budget goes."""
    result = list(chosen)
    for place in order:
        if place not in result and fits([*result, place]):
            result.append(place)
    return result


def best_set(sets: Sequence[list[int]], noise: _Noise) -> list[int]:
    """The first set than which no other leaves clearly less noise."""
    noises = [math.inf if math.isnan(own) else own for own in map(noise, sets)]
    return next(each for each, own in zip(sets, noises, strict=True) if _GAIN * own <= min(noises))


def _with_each(
    places: Sequence[int], noise: Callable[[int], float], deadline: float
) -> dict[int, float]:
    """The noise of each place, in time."""
    return {place: noise(place) for place in places if time.perf_counter() <= deadline}


def _by(values: Mapping[int, float]) -> list[int]:
    """The places by descending value."""
    return sorted(values, key=values.__getitem__, reverse=True)


def _chosen(
    order: Sequence[int],
    gains: Mapping[int, float],
    noise: _Noise,
    fits: _Fits,
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
