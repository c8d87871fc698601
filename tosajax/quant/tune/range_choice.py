"""Ranges of activations by several observers, and the best of them for each tensor."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tosajax.quant.calibration import calibrate, observe, settle
from tosajax.quant.model.arguments import Batch
from tosajax.quant.model.recipes import Params
from tosajax.quant.observing import Observed
from tosajax.quant.qmodel import PreparedModel
from tosajax.quant.qparams import QParams
from tosajax.quant.ranges.observers import Observer, mse, percentile
from tosajax.quant.sampling import sample_tables
from tosajax.quant.training.losses import noise_to_signal

_ALIKE = 1.02  # ranges that differ by less are not tried
_GAIN = 0.999  # of the noise that another range must leave at most
_Values = Mapping[str, jax.Array]


# The observer of each tensor whose range is not by the model's own, by name.
Kinds = Mapping[str, str]


class RangeChoice:
    """Ranges of the activations of a model by several observers, of one run of the examples.

    Args:
      model: the model, from `prepare`.
      batches: examples, as for `calibrate`.
      own: the parameters that `calibrate` makes of them; by default they are made.
    """

    def __init__(
        self, model: PreparedModel, batches: Sequence[Batch], own: Params | None = None
    ) -> None:
        self.model, self.batches = model, batches
        self.own = calibrate(model, batches) if own is None else own
        self._models = {name: _observed_by(model, observer) for name, observer in _observers(model)}
        self._settled: dict[str, Params] = {}
        self._observed: Observed | None = None

    def on(self, batches: Sequence[Batch]) -> RangeChoice:
        """The ranges of other examples, by the same programs."""
        other = RangeChoice(self.model, batches)
        other._models = self._models
        return other

    @property
    def observers(self) -> tuple[str, ...]:
        """The names of the observers."""
        return tuple(self._models)

    def everywhere(self, observer: str) -> Kinds:
        """All ranges by one observer."""
        return dict.fromkeys(_observed(self.model), observer)

    def params(self, kinds: Kinds) -> Params:
        """The parameters with some ranges by other observers than the model's own."""
        if not kinds:
            return self.own
        qparams = {name: self._settled_by(kind)["qparams"][name] for name, kind in kinds.items()}
        return self._with_ranges(self.own, qparams)

    def of_values(self, kinds: Kinds, values: _Values) -> Params:
        """The parameters for other constants."""
        own = calibrate(self.model, self.batches, values=values)
        if not kinds:
            return own
        observed = self._observe(values)
        settled = {kind: settle(self._models[kind], observed) for kind in {*kinds.values()}}
        qparams = {name: settled[kind]["qparams"][name] for name, kind in kinds.items()}
        return self._with_ranges(own, qparams)

    def by_tensor(
        self,
        kinds: Kinds,
        inputs: Sequence[Any],
        wanted: Mapping[str, np.ndarray],
        deadline: float,
    ) -> Kinds:
        """Takes for each tensor the range with the least noise, those first that differ most.

        Args:
          kinds: the observers to begin with.
          inputs: real inputs.
          wanted: tensors of the float graph to be near to, by name.
          deadline: of `time.perf_counter`, after which all others stay as they are.
        """
        params = self.params(kinds)
        others = (None, *self.observers)
        ranges = [params, self.own, *map(self._settled_by, self.observers)]
        stacked = {
            name: jax.tree.map(lambda *x: jnp.stack(x), *(p["qparams"][name] for p in ranges))
            for name in _observed(self.model)
        }
        ratios = {name: _largest_ratio(each.scale) for name, each in stacked.items()}
        names = sorted(ratios, key=lambda name: -ratios[name])
        names = [name for name in names if ratios[name] > _ALIKE]
        if not names:
            return kinds
        noise = self._noise_of_choice(params, stacked, names, inputs, wanted)
        chosen = dict.fromkeys(names, 0)
        least = noise(chosen)
        for name in names:
            for number in range(1, len(ranges)):
                if time.perf_counter() > deadline:
                    break
                if (value := noise({**chosen, name: number})) <= _GAIN * least:
                    chosen, least = {**chosen, name: number}, value
        changed = {name: others[number - 1] for name, number in chosen.items() if number}
        return {name: kind for name, kind in {**kinds, **changed}.items() if kind is not None}

    def _settled_by(self, kind: str) -> Params:
        """The parameters with all ranges by one observer."""
        if self._observed is None:
            self._observed = self._observe(self.own["values"])
        if kind not in self._settled:
            self._settled[kind] = settle(self._models[kind], self._observed)
        return self._settled[kind]

    def _observe(self, values: _Values) -> Observed:
        return observe(next(iter(self._models.values())), self.batches, values=values)

    def _with_ranges(self, params: Params, qparams: Mapping[str, QParams]) -> Params:
        params = {**params, "qparams": {**params["qparams"], **qparams}}
        return sample_tables(self.model, params)

    def _noise_of_choice(
        self,
        params: Params,
        stacked: Mapping[str, QParams],
        names: Sequence[str],
        inputs: Sequence[Any],
        wanted: Mapping[str, np.ndarray],
    ) -> Any:
        """The noise with fake quantization, a function of the number of each name's range."""
        watched = self.model.with_outputs(*wanted)
        targets = [jnp.asarray(each, jnp.float32) for each in wanted.values()]

        @jax.jit
        def run(numbers: jax.Array, params: Params, stacked: Any, *inputs: Any) -> jax.Array:
            picked = {
                name: jax.tree.map(lambda x, n=n: x[n], stacked[name])
                for n, name in zip(numbers, names, strict=True)
            }
            qparams = {**params["qparams"], **picked}
            outputs = watched.apply({**params, "qparams": qparams}, *inputs, mode="fake_quant")
            return noise_to_signal(outputs, targets)

        def noise(chosen: Mapping[str, int]) -> float:
            numbers = np.array([chosen[name] for name in names], np.int32)
            return float(run(numbers, params, dict(stacked), *inputs))

        return noise


def _observers(model: PreparedModel) -> list[tuple[str, Observer]]:
    shares = (99.999, 99.99)
    observers = [(f"percentile {share}", percentile(share)) for share in shares]
    return [*observers, ("mse", mse())] if model.plan.is_integer else observers


def _observed_by(model: PreparedModel, observer: Observer) -> PreparedModel:
    """The model with an observer of all its activations."""
    scaled = dict(model.plan.scaled)
    for name in _observed(model):
        spec = dataclasses.replace(scaled[name].spec, observer=observer)
        scaled[name] = dataclasses.replace(scaled[name], spec=spec)
    return dataclasses.replace(model, plan=dataclasses.replace(model.plan, scaled=scaled))


def _observed(model: PreparedModel) -> list[str]:
    """The activations whose ranges are not fixed."""
    return [name for name in model.activations if not model.specs[name].observer.is_fixed]


def _largest_ratio(scales: jax.Array) -> float:
    """The largest of some scales over the least."""
    each = np.asarray(scales).reshape(scales.shape[0], -1)
    return float((each.max(0) / each.min(0)).max())
