"""INT16 for the tensors that cost most, within a share of multiply-accumulates."""

from __future__ import annotations

import functools
import itertools
import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from tosajax.dtypes import DType
from tosajax.graph import Graph, Node
from tosajax.quant.graphs.inner import moved_into
from tosajax.quant.model.parts import heads
from tosajax.quant.model.recipes import Params
from tosajax.quant.qmodel import PreparedModel
from tosajax.quant.qparams import QParams
from tosajax.quant.sampling import sample_tables
from tosajax.quant.tune.costs import Limits, Macs
from tosajax.quant.tune.islands import with_rules
from tosajax.quant.tune.noise import GAIN, falls_clearly, noise_to_signal, relative_noise
from tosajax.quant.tune.rescuing import lift_candidates, lift_rules, lifted_outputs
from tosajax.validation import validate

_COST = 0.001  # the share of all multiply-accumulates that a lift costs at least
_LEFT = 3  # tensors that are named as the next ones


class Examples(NamedTuple):
    """Real inputs, and tensors of the float graph for them to be near to."""

    inputs: tuple[Any, ...]
    wanted: tuple[np.ndarray, ...]


class Lifts(NamedTuple):
    """Tensors in INT16.

    Args:
      lifted: the tensors, in the order in which they were chosen.
      wide_macs: the share of multiply-accumulates that read them.
      left: the noise with one more tensor, of those that are missed most.
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
    ranges: Mapping[str, QParams] = MappingProxyType({}),
) -> tuple[PreparedModel, Params, Lifts]:
    """Lifts the tensors to INT16 that leave the least noise, of the sets of `sets_to_lift`.

    Args:
      model: the model, from `prepare`, of integers.
      params: the model's parameters.
      heads: the names of the tensors of the float graph whose noise counts.
      halves: examples of these tensors, which make the sets, as far as there is time, and choose.
      weights: of the noise of each tensor.
      limits: what they may cost.
      deadline: of `time.perf_counter`, after which no more are tried.
      outputs: tensors to lift in any case, within the limits; see `outputs_to_lift`.
      ranges: of tensors that have another one where they are lifted.
    """
    outputs = outputs if limits.fits(outputs) else ()
    names = [name for name in lift_candidates(model, None) if name not in outputs]
    simulated = lifted_outputs(model.with_outputs(*heads), params, names, ranges)

    def noise(half: Examples, places: Sequence[int], of: Callable[..., Any]) -> np.ndarray:
        pairs = zip(map(np.asarray, simulated(places, *half.inputs)), half.wanted, strict=True)
        return np.asarray(weights) @ np.stack([of(y, w) for y, w in pairs])

    def total(half: Examples, places: Sequence[int]) -> float:
        return float(noise(half, places, noise_to_signal))

    def of_all(places: Sequence[int]) -> np.ndarray:
        return np.concatenate([noise(half, places, relative_noise) for half in halves])

    def fits(places: Sequence[int]) -> bool:
        return limits.fits([*outputs, *(names[n] for n in places)])

    # What no multiply-accumulate reads is not for nothing: it takes memory.
    costs = [limits.cost(name) + _COST for name in names]
    # The noise of all examples of a half together: that of each by itself orders tensors worse.
    order = by_miss(costs, [functools.partial(total, half) for half in halves], fits, deadline)
    chosen = best_set(sets_to_lift(order, fits), of_all) if order else []
    lifted = (*outputs, *(names[place] for place in chosen))
    more = [place for place in order if place not in chosen][:_LEFT]
    left = {names[place]: float(of_all([*chosen, place]).mean()) for place in more}
    if lifted:
        qparams = {**params["qparams"], **{n: ranges[n] for n in lifted if n in ranges}}
        params = sample_tables(model, {**params, "qparams": qparams})
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
_NoiseOfEach = Callable[[Sequence[int]], np.ndarray]  # of some examples
_Fits = Callable[[Sequence[int]], bool]


def by_miss(
    costs: Sequence[float], noises: Sequence[_Noise], fits: _Fits, deadline: float
) -> list[int]:
    """The places that fit by themselves, first those that are missed most for their cost.

    A place is missed by the noise that it takes away where all others are lifted. A tensor may help
    only together with others, as those that feed one sum; by itself it would then seem to gain
    nothing.

    Args:
      costs: of all places.
      noises: of some examples each, where some places are lifted.
      fits: whether some places are within the budget.
      deadline: of `time.perf_counter`. When it is over, the examples so far have their say; if they
        are the first ones, the places so far, the cheapest of all.
    """
    each = sorted((n for n in range(len(costs)) if fits([n])), key=costs.__getitem__)
    total: dict[int, float] = {}
    for noise in noises:
        missed = dict(_missed(each, noise, deadline))
        if total and len(missed) < len(each):
            break
        total = {place: total.get(place, 0.0) + value for place, value in missed.items()}
    return sorted(total, key=lambda place: total[place] / costs[place], reverse=True)


def _missed(places: Sequence[int], noise: _Noise, deadline: float) -> Iterator[tuple[int, float]]:
    """Yields places, in time, and the noise that each takes away where all others are lifted."""
    if time.perf_counter() > deadline:
        return  # The first run compiles.
    whole = noise(places)
    for place in places:
        if time.perf_counter() > deadline:
            return
        yield place, noise([other for other in places if other != place]) - whole


def sets_to_lift(order: Sequence[int], fits: _Fits) -> list[list[int]]:
    """Sets of the first places of an order, as far as the budget goes: none, one, two, four, ...

    Args:
      order: the places.
      fits: whether some places are within the budget.
    """
    fitting: list[int] = []
    for place in order:
        if fits([*fitting, place]):
            fitting.append(place)
    sizes = itertools.takewhile(lambda n: n < len(fitting), (2**n for n in itertools.count()))
    return [[], *(fitting[:size] for size in sizes), fitting]


def best_set(sets: Iterable[list[int]], noise: _NoiseOfEach) -> list[int]:
    """The first set than which none has clearly less noise, of those that clearly lower it.

    Args:
      sets: the sets; the noise of the first one is to be lowered.
      noise: of each example, where some places are lifted.
    """
    pairs = [(each, noise(each)) for each in sets]
    first, *others = pairs
    kept = [first, *(pair for pair in others if falls_clearly(first[1], pair[1]))]
    means = [own.mean() if np.isfinite(own).all() else math.inf for _, own in kept]
    least = (1 + GAIN) * min(means)
    return next(each for (each, _), mean in zip(kept, means, strict=True) if mean <= least)
