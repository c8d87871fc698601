"""Ranges of activations by several observers, and the best of them for each tensor."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tosajax.quant.calibration import Observed, calibrate, observe, sample_tables, settle
from tosajax.quant.model.arguments import Batch
from tosajax.quant.model.recipes import Params
from tosajax.quant.qmodel import PreparedModel
from tosajax.quant.qparams import QParams
from tosajax.quant.ranges.observers import Observer, mse, percentile
from tosajax.quant.training.losses import noise_to_signal

_ALIKE = 1.02  # ranges that differ by less are not tried
_GAIN = 0.999  # of the noise that another range must leave at most
_Values = Mapping[str, jax.Array]


class RangeChoice:
    """Ranges of the activations of a model by several observers, of one run of the examples.

    Args:
      model: the model, from `prepare`.
      params: its parameters, whose ranges are by the observers of its own.
      batches: examples, as for `calibrate`.
    """

    def __init__(self, model: PreparedModel, params: Params, batches: Sequence[Batch]) -> None:
        self.model, self.own, self.batches = model, params, batches
        self._models = {name: _observed_by(model, observer) for name, observer in _kinds(model)}
        self._settled: dict[str, Params] = {}
        self._observed: Observed | None = None

    @property
    def kinds(self) -> tuple[str, ...]:
        """The names of the observers."""
        return tuple(self._models)

    def params(self, kind: str) -> Params:
        """The parameters with all ranges by one observer."""
        if self._observed is None:
            self._observed = self._observe(self.own["values"])
        if kind not in self._settled:
            self._settled[kind] = settle(self._models[kind], self._observed)
        return self._settled[kind]

    def kinds_of(self, params: Params) -> dict[str, str]:
        """The observer of each range that is not by the model's own."""
        chosen = {}
        for name in self.model.activations:
            for kind in (None, *self._settled):
                known = self.own if kind is None else self._settled[kind]
                if _is_same(params["qparams"][name], known["qparams"][name]):
                    if kind is not None:
                        chosen[name] = kind
                    break
        return chosen

    def of_values(self, params: Params, values: _Values) -> Params:
        """Parameters for other constants, with each range by the observer that it had."""
        own = calibrate(self.model, self.batches, values=values)
        chosen = self.kinds_of(params)
        if not chosen:
            return own
        observed = self._observe(values)
        settled = {k: settle(self._models[k], observed) for k in {*chosen.values()}}
        qparams = {name: settled[kind]["qparams"][name] for name, kind in chosen.items()}
        return sample_tables(self.model, {**own, "qparams": {**own["qparams"], **qparams}})

    def _observe(self, values: _Values) -> Observed:
        return observe(next(iter(self._models.values())), self.batches, values=values)

    def by_tensor(
        self,
        params: Params,
        inputs: Sequence[Any],
        wanted: Mapping[str, np.ndarray],
        deadline: float,
    ) -> tuple[Params, int]:
        """Takes for each tensor the range with the least noise, those first that differ most.

        Args:
          params: the parameters to begin with.
          inputs: real inputs.
          wanted: tensors of the float graph to be near to, by name.
          deadline: of `time.perf_counter`, after which all others stay as they are.

        Returns:
          The parameters, and how many tensors changed.
        """
        ranges = [params, self.own, *map(self.params, self.kinds)]
        stacked = {
            name: jax.tree.map(lambda *x: jnp.stack(x), *(p["qparams"][name] for p in ranges))
            for name in self.model.activations
        }
        ratios = {name: _largest_ratio(each.scale) for name, each in stacked.items()}
        names = sorted(ratios, key=lambda name: -ratios[name])
        names = [name for name in names if ratios[name] > _ALIKE]
        if not names:
            return params, 0
        noise = self._noise_of_choice(params, stacked, names, inputs, wanted)
        chosen = dict.fromkeys(names, 0)
        least = noise(chosen)
        for name in names:
            for number in range(1, len(ranges)):
                if time.perf_counter() > deadline:
                    break
                if (value := noise({**chosen, name: number})) <= _GAIN * least:
                    chosen, least = {**chosen, name: number}, value
        changed = {name: number for name, number in chosen.items() if number}
        qparams = {name: ranges[n]["qparams"][name] for name, n in changed.items()}
        params = {**params, "qparams": {**params["qparams"], **qparams}}
        return sample_tables(self.model, params), len(changed)

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


def _kinds(model: PreparedModel) -> list[tuple[str, Observer]]:
    kinds = [("percentile 99.999", percentile(99.999)), ("percentile 99.99", percentile(99.99))]
    return [*kinds, ("mse", mse())] if model.plan.is_integer else kinds


def _observed_by(model: PreparedModel, observer: Observer) -> PreparedModel:
    """The model with an observer of all its activations."""
    scaled = dict(model.plan.scaled)
    for name in model.activations:
        spec = dataclasses.replace(scaled[name].spec, observer=observer)
        scaled[name] = dataclasses.replace(scaled[name], spec=spec)
    return dataclasses.replace(model, plan=dataclasses.replace(model.plan, scaled=scaled))


def _is_same(a: QParams, b: QParams) -> bool:
    return bool((a.scale == b.scale).all() & (a.zero_point == b.zero_point).all())


def _largest_ratio(scales: jax.Array) -> float:
    """The largest of some scales over the least."""
    each = np.asarray(scales).reshape(scales.shape[0], -1)
    return float((each.max(0) / each.min(0)).max())
