"""The ways to quantize that the study compares: add a line to `SCHEMES` for another."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tosajax import Graph, quant


@dataclasses.dataclass(frozen=True)
class Scheme:
    """How tosajax quantizes a network.

    Args:
      weight: the specification of all weights; None: the default, INT8 per channel.
      act: the specification of all activations; None: the default, INT8 with a zero point.
      options: other arguments of `quant.prepare`, without a budget.
      budget: for `quant.auto`; None: calibrated, and no more.
    """

    weight: quant.QSpec | None = None
    act: quant.QSpec | None = None
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    budget: quant.Budget | None = None

    @property
    def rules(self) -> list[quant.Rule]:
        """The rules for `quant.prepare`."""
        is_default = self.weight is None and self.act is None
        return [] if is_default else [quant.rule(".*", weight=self.weight, act=self.act)]

    def prepare(self, graph: Graph) -> quant.PreparedModel:
        """The model of a float graph."""
        return quant.prepare(graph, self.rules, **self.options)

    def search(self, graph: Graph, batches: Sequence[np.ndarray]) -> quant.Auto:
        """The model of a float graph, with the remedies that help it."""
        return quant.auto(graph, batches, self.rules, budget=self.budget)


def _observed(observer: quant.Observer) -> Scheme:
    return Scheme(act=quant.QSpec("i8", symmetric=False, observer=observer))


_INT4 = quant.QSpec("i4", per_channel=True)
# The first is judged beside the other quantizers.
SCHEMES = {
    "d": Scheme(),
    "a16": Scheme(act=quant.QSpec("i16")),
    "w4": Scheme(weight=_INT4),
    "p99.99": _observed(quant.percentile(99.99)),
    "mse": _observed(quant.mse()),
    "auto": Scheme(budget=quant.Budget()),
    "auto w4": Scheme(weight=_INT4, budget=quant.Budget()),
    "auto a16": Scheme(act=quant.QSpec("i16"), budget=quant.Budget()),
    "narrow": Scheme(options={"wide_normalizers": False, "wide_elementwise": False}),
    "one scale": Scheme(options={"channel_scales": False}),
}
# In the place of a scheme: another program's quantizer, of INT8 as well.
PEER = "peer"
