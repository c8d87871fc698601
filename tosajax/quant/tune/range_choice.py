"""Ranges of activations by several observers."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import jax

from tosajax.quant.calibration import calibrate, observe, settle
from tosajax.quant.model.arguments import Batch
from tosajax.quant.model.recipes import Params
from tosajax.quant.observing import Observed
from tosajax.quant.qmodel import PreparedModel
from tosajax.quant.qparams import QParams
from tosajax.quant.ranges.observers import Observer, mse, percentile
from tosajax.quant.sampling import sample_tables
from tosajax.quant.spec import ROOM

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

    def clear(self) -> None:
        """Lets go of the programs, which ranges of other constants make again."""
        for model in self._models.values():
            model.programs.clear()

    @property
    def observers(self) -> tuple[str, ...]:
        """The names of the observers; none where all activations have more than 8 bits."""
        return tuple(self._models) if _observed(self.model) else ()

    def everywhere(self, observer: str) -> Kinds:
        """All ranges by one observer."""
        return dict.fromkeys(_observed(self.model), observer)

    def with_room(self, values: _Values) -> dict[str, QParams]:
        """The ranges of all values of activations, with room for more, for other constants."""
        observed = self._observe(values)
        model = _observed_by(self.model, percentile(100))
        qparams = settle(model, observed)["qparams"]
        return {
            name: dataclasses.replace(qparams[name], scale=qparams[name].scale * (1 + ROOM))
            for name in _observed(self.model)
        }

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
    """The activations whose ranges are not fixed; those of more bits have room for all values."""
    specs = {name: model.specs[name] for name in model.activations}
    return [n for n, own in specs.items() if not own.observer.is_fixed and (own.bits or 0) <= 8]
