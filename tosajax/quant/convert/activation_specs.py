"""The specifications of a graph's activations: by the rules, and by what reads them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from tosajax.dtypes import DType
from tosajax.graph import Graph
from tosajax.quant.graphs.inner import elementwise_operands, moved_into, operands_of_maxima
from tosajax.quant.graphs.normalizers import Normalizers
from tosajax.quant.graphs.regions import Function
from tosajax.quant.model.plan import Options
from tosajax.quant.ranges.masks import masked_axes
from tosajax.quant.ranges.observers import min_max
from tosajax.quant.spec import DEFAULT_ACT, DEFAULT_INNER, WIDE_RANGE, Asked, QSpec


class ActivationSpecs:
    """Gives activations their specifications.

    Args:
      graph: the graph, from `simplify`, or inside such a graph.
      functions: its functions, by output.
      asked: the specifications that the rules give.
      options: the user's options.

    Attributes:
      relevances: the relevant values of tensors whose ranges need not hold all of them, by name.
      masked: the axis of the rows of tensors that masks reach, by name.
    """

    def __init__(
        self, graph: Graph, functions: Mapping[str, Function], asked: Asked, options: Options
    ) -> None:
        normalizers = Normalizers.of(graph, functions)
        self.relevances, self.masked = normalizers.relevances, masked_axes(graph)
        self._asked = asked
        ends = moved_into(graph, graph.outputs)
        self._unclipped = {*graph.inputs, *ends, *operands_of_maxima(graph)}
        self._wide = set(normalizers.inner) if options.wide_normalizers else set[str]()
        if options.wide_elementwise:
            decided = {*self.relevances, *self.masked}
            self._wide |= elementwise_operands(graph, functions) - decided

    def widen(self, name: str) -> None:
        """Has an activation be INT16 where the rules give INT8."""
        self._wide.add(name)

    def is_widened(self, *names: str) -> bool:
        """Whether an activation with one of these names is INT16 where the rules give INT8."""
        return not self._wide.isdisjoint(names)

    def of(self, *names: str) -> QSpec:
        """The specification of an activation with these names."""
        spec = self._asked.act(*names)
        is_plain = spec.dtype is DType.INT8 and spec.bits == 8 and not spec.learned_bits
        is_plain = is_plain and not spec.observer.is_fixed
        if is_plain and self.is_widened(*names):
            spec = dataclasses.replace(spec, dtype=DType.INT16, bits=None, symmetric=True)
        if spec.dtype is DType.INT16 and spec.bits == 16 and spec.observer == min_max():
            return dataclasses.replace(spec, observer=WIDE_RANGE)
        is_inner = spec is DEFAULT_ACT and self._unclipped.isdisjoint(names)
        return DEFAULT_INNER if is_inner else spec
