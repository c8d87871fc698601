"""Observers see the tensors of a float graph, as examples run through it."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tosajax.progress import Progress
from tosajax.quant.model.arguments import Batch, as_inputs, real_examples
from tosajax.quant.model.batches import rows
from tosajax.quant.model.norms import Moments
from tosajax.quant.model.params import no_factors
from tosajax.quant.model.programs import jitted
from tosajax.quant.model.recipes import Params
from tosajax.quant.model.run import float_values
from tosajax.quant.outliers import (
    Sizes,
    example_count,
    sized_outputs,
    sizes_of,
    warned_outliers,
    without,
)
from tosajax.quant.qmodel import PreparedModel, QModel
from tosajax.quant.ranges.channel_scales import channel_ends, factors_of
from tosajax.quant.ranges.channels import on_last_axis
from tosajax.quant.ranges.mask_ranges import leaving_out
from tosajax.quant.ranges.observers import Observer


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Observed:
    """The states of observers of a float graph, from which `settle` finds ranges without examples.

    Args:
      values: constants of the float graph by name.
      states: the states of the observer of each activation, pytrees of arrays.
      moments: the moments of each convolution that keeps a batch norm, by its output.
      factors: the factors of the channels of activations that have scales for these.

    Example:
      >>> import numpy as np
      >>> from tosajax import quant
      >>> example = np.float32([[-1, 1]])
      >>> model = quant.prepare(lambda x: x + x, example_args=[example])
      >>> quant.observe(model, [example])
      Observed(0 constants, 2 activations)
    """

    values: dict[str, jax.Array]
    states: dict[str, Any]
    moments: dict[str, Moments] = dataclasses.field(default_factory=dict)
    factors: dict[str, jax.Array] = dataclasses.field(default_factory=dict)

    def __repr__(self) -> str:
        return f"Observed({len(self.values)} constants, {len(self.states)} activations)"


class _Seen(NamedTuple):
    """What a run over batches has shown.

    Args:
      observed: the states of observers.
      sizes: of the outputs `sized_outputs` of each batch.
      channels: the `channel_ends` of the tensors with channel factors, of each batch.
      is_computed: of each tensor of `_sources`, whether some example computes it.
    """

    observed: Observed
    sizes: list[Sizes]
    channels: dict[str, list[np.ndarray]]
    is_computed: np.ndarray


def observed_batches(
    model: PreparedModel,
    values: dict[str, jax.Array],
    batches: Iterable[Batch],
    bar: Progress,
    *,
    allow_nan: bool,
) -> Observed:
    """The states of observers after batches.

    Where outliers are left out, or channels have factors, a second run over the batches follows,
    with what the first one has shown. Batches that run once have the factors of the first of them.
    """
    run = functools.partial(_seen, model, values, allow_nan=allow_nan)
    silent, factors = Progress(None, False), no_factors(model.plan)
    can_repeat, first = isinstance(batches, list | tuple), []
    if factors and not can_repeat:
        rest = iter(batches)
        first = list(itertools.islice(rest, 1))
        bar.step("compiling")
        factors = factors_of(run(first, silent, factors).channels)
        batches = itertools.chain(first, rest)
    seen = run(batches, bar, factors)
    _check_all_computed(model, seen)
    left_out = warned_outliers(model, seen.sizes, can_repeat=can_repeat)
    if left_out is None and (first or not factors):
        return seen.observed
    bar.step("calibrating again")
    kept = {name: _rows_kept(channels, left_out) for name, channels in seen.channels.items()}
    return run(batches, silent, factors_of(kept), left_out).observed


def _seen(
    model: PreparedModel,
    values: dict[str, jax.Array],
    batches: Iterable[Batch],
    bar: Progress,
    factors: dict[str, jax.Array],
    left_out: Sequence[Sequence[int]] | None = None,
    *,
    allow_nan: bool,
) -> _Seen:
    """A run over batches, but for some examples of each."""
    states, count, moments = initial_states(model), 0, _initial_moments(model)
    sizes: list[Sizes] = []
    channels: dict[str, list[np.ndarray]] = {name: [] for name in factors}
    names = [source for source, _ in _sources(model)]
    is_computed = np.zeros(len(names), np.bool_)
    update, update_moments = jitted(model, updated_states), jitted(model, _updated_moments)
    params = {"values": values, "factors": factors}
    tensors = model.float_graph.input_tensors
    bar.step("compiling")
    for batch in batches:
        where = f"batch {count}: "
        inputs = real_examples(tensors, as_inputs(batch), allow_nan=allow_nan, where=where)
        kept = inputs if left_out is None else without(inputs, left_out[count])
        if kept is None:
            count += 1
            continue
        kept = rows(tensors, kept)  # one program, however the examples are given
        states, sight = update(states, params, *kept)
        sizes.append(sight.sizes)
        for name, each in sight.channels.items():
            channels[name].append(np.asarray(each))
        is_computed = sight.is_computed | is_computed
        _check_turns(names, sight, count)
        if not allow_nan:
            _check_computed(names, sight, count)
        if moments:
            moments = update_moments(moments, params, *kept)
        count += 1
        bar.step("calibrating")
        bar.update()
    if not count:
        raise ValueError("no examples to calibrate with")
    observed = Observed(values, states, moments, factors)
    return _Seen(observed, sizes, channels, np.asarray(is_computed))


def _rows_kept(
    channels: Sequence[np.ndarray], left_out: Sequence[Sequence[int]] | None
) -> list[np.ndarray]:
    """The rows of each batch but those of some examples."""
    if left_out is None:
        return list(channels)
    return [np.delete(rows, places, 0) for rows, places in zip(channels, left_out, strict=True)]


def _check_all_computed(model: QModel, seen: _Seen) -> None:
    for (name, _), is_computed in zip(_sources(model), seen.is_computed, strict=True):
        if not is_computed:
            raise ValueError(
                f"no example computes {name!r}: expected some that take its branch, or a turn of "
                "its loop"
            )


def initial_states(model: QModel) -> dict[str, Any]:
    """The states of the observers of activations, before any example."""
    return {name: observer_of(model, name).init() for name in model.activations}


def observer_of(model: QModel, name: str) -> Observer:
    """The observer of an activation; it leaves out masked elements where there may be some."""
    scaled = model.plan.scaled[name]
    observer = scaled.spec.observer
    return observer if scaled.mask_axis is None else leaving_out(observer, scaled.mask_axis)


class Sight(NamedTuple):
    """Observations of a batch: bool arrays with an element for each tensor of `_sources`.

    Args:
      is_computed: not in a branch that no example takes, nor in a loop without turns.
      is_nan: it is computed, and NaN throughout.
      is_cut: a loop takes more turns than are known to be the most.
      sizes: of the outputs `sized_outputs`, by example.
      channels: the `channel_ends` of the tensors with channel factors.
    """

    is_computed: jax.Array
    is_nan: jax.Array
    is_cut: jax.Array
    sizes: Sizes
    channels: dict[str, jax.Array]


def updated_states(
    model: PreparedModel, states: Mapping[str, Any], params: Params, *inputs: jax.Array
) -> tuple[dict[str, Any], Sight]:
    """The states after a batch, and the `Sight` of it.

    Tensors inside loops and branches are observed each time that they are computed, at once.

    Args:
      params: "values", and "norms" and "factors" where there are any.
    """
    sources, states = _sources(model), dict(states)
    scaled = model.plan.scaled
    relevances = {name: r for _, name in sources if (r := scaled[name].relevance) is not None}
    names = [source for source, _ in sources]
    names += [name for relevance in relevances.values() for name in relevance.reads]
    sized = sized_outputs(model)
    names += sized
    values, records = float_values(model, params, list(dict.fromkeys(names)), *inputs)
    count = example_count(model, inputs)
    sizes = sizes_of([values[name] for name in sized], count)
    channels = {name: channel_ends(values[name], count) for name in model.plan.factors}
    yes, sights = jnp.bool_(True), []
    for source, name in sources:
        is_computed, is_cut = yes, ~yes
        if source in records:
            y, turns = records[source]
            is_computed, is_cut = (turns > 0).any(), (turns > y.shape[turns.ndim]).any()
        else:
            y = values[source]
        relevance = relevances.get(name)
        relevant = y
        if relevance is not None and source == name and values.keys() >= {*relevance.reads}:
            relevant = relevance.values(values, scaled[name].spec.storage.dtype.bits)
        if name in model.plan.factors:
            relevant = relevant * on_last_axis(params["factors"][name], relevant.ndim)
        # NaN, where a record has no value, is not observed.
        states[name] = observer_of(model, name).update(states[name], relevant)
        # A SELECT may leave out some NaN, as logarithms of negative numbers.
        is_nan = jnp.isnan(y).all() & bool(y.size) & is_computed
        sights.append((is_computed, is_nan, is_cut))
    if not sights:
        none = jnp.zeros(0, jnp.bool_)
        return states, Sight(none, none, none, sizes, channels)
    is_computed, is_nan, is_cut = (jnp.stack(each) for each in zip(*sights, strict=True))
    return states, Sight(is_computed, is_nan, is_cut, sizes, channels)


def _initial_moments(model: PreparedModel) -> dict[str, Moments]:
    shapes = {name: model.float_graph.tensors[name].shape for name in model.plan.norms}
    return {name: Moments.none(shape[-1]) for name, shape in shapes.items() if shape}


def _updated_moments(
    model: QModel, moments: Mapping[str, Moments], params: Params, *inputs: jax.Array
) -> dict[str, Moments]:
    outputs = model.with_outputs(*moments).apply(params, *inputs, mode="float")
    pairs = zip(moments.items(), outputs, strict=True)
    return {name: former.with_values(y) for (name, former), y in pairs}


def _sources(model: QModel) -> list[tuple[str, str]]:
    """Each tensor that is observed, and the tensor whose range it is for."""
    return [(s, n) for n in model.activations for s in (n, *model.plan.scaled[n].observed)]


def not_computed(model: QModel, sight: Sight) -> set[str]:
    """The activations that no example of a batch computes."""
    names = [name for _, name in _sources(model)]
    pairs = list(zip(names, np.asarray(sight.is_computed), strict=True))
    return {name for name, _ in pairs} - {name for name, is_computed in pairs if is_computed}


def _check_turns(names: Sequence[str], sight: Sight, batch: int) -> None:
    for name, is_cut in zip(names, np.asarray(sight.is_cut), strict=True):
        if is_cut:
            raise ValueError(
                f"batch {batch}: the loop of {name!r} takes more turns than max_trip_count of "
                "`prepare`, expected at most so many"
            )


def _check_computed(names: Sequence[str], sight: Sight, batch: int) -> None:
    for name, is_nan in zip(names, np.asarray(sight.is_nan), strict=True):
        if is_nan:
            raise ValueError(
                f"batch {batch}: the float graph computes nothing but NaN in {name!r} from finite "
                "inputs; allow_nan=True leaves it out"
            )
