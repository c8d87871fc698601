"""The ways to quantize that the study compares: add a line to `SCHEMES` for another."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from tosajax import Graph, quant


@dataclasses.dataclass(frozen=True)
class Scheme:
    """How tosajax quantizes a network.

    Args:
      weight: the specification of all weights; None: the default, INT8 per channel.
      act: the specification of all activations; None: the default, INT8 with a zero point.
      options: other arguments of `quant.prepare`.
    """

    weight: quant.QSpec | None = None
    act: quant.QSpec | None = None
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def prepare(self, graph: Graph) -> quant.PreparedModel:
        """The model of a float graph."""
        is_default = self.weight is None and self.act is None
        rules = [] if is_default else [quant.rule(".*", weight=self.weight, act=self.act)]
        return quant.prepare(graph, rules, **self.options)


def _observed(observer: quant.Observer) -> Scheme:
    return Scheme(act=quant.QSpec("i8", symmetric=False, observer=observer))


# The first is judged beside the other quantizers.
SCHEMES = {
    "d": Scheme(),
    "a16": Scheme(act=quant.QSpec("i16")),
    "w4": Scheme(weight=quant.QSpec("i4", per_channel=True)),
    "p99.99": _observed(quant.percentile(99.99)),
    "mse": _observed(quant.mse()),
    "narrow": Scheme(options={"wide_normalizers": False, "wide_elementwise": False}),
}
# In the place of a scheme: another program's quantizer, of INT8 as well.
PEER = "peer"
