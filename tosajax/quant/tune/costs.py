"""What INT16 costs a model: multiply-accumulates, cycles of a processor, bytes of activations."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import NamedTuple

from tosajax.graph import Graph
from tosajax.graph.costs import arena_bytes, cycles
from tosajax.graph.summary import macs_of
from tosajax.quant.convert.graphs import converted
from tosajax.quant.qmodel import PreparedModel
from tosajax.quant.tune.budget import Budget
from tosajax.quant.tune.rescuing import lift_rules


class Macs:
    """The multiply-accumulates that read the activations of a model.

    Args:
      model: the model, from `prepare`.
    """

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
        """The share of all multiply-accumulates that read some activations."""
        nodes = set[int]().union(*(self._readers.get(name, ()) for name in names))
        return sum(self._counts[n] for n in nodes) / max(1, sum(self._counts))


class Cost(NamedTuple):
    """What a graph costs.

    Args:
      cycles: see `graph.costs.cycles`; 0 without rates.
      arena_bytes: see `graph.costs.arena_bytes`.
    """

    cycles: float
    arena_bytes: int


class Limits:
    """What INT16 may cost, by a budget.

    Args:
      model: the model, from `prepare`, of integers.
      budget: what it may cost.
      refused: activations that the target does not take in INT16.
    """

    def __init__(self, model: PreparedModel, budget: Budget, refused: Collection[str] = ()) -> None:
        self.macs = Macs(model)
        self._model, self._budget, self._refused = model, budget, frozenset(refused)
        self._costs: dict[frozenset[str], Cost] = {}

    def fits(self, names: Collection[str]) -> bool:
        """Whether some activations may be INT16."""
        budget = self._budget
        if self.macs.share(names) > budget.wide_macs or not self._refused.isdisjoint(names):
            return False
        if budget.more_cycles is not None and self.more_cycles(names) > budget.more_cycles:
            return False
        if budget.arena_bytes is None:
            return True
        # What the rules ask for is there in any case.
        most = max(budget.arena_bytes, self._cost(()).arena_bytes)
        return self._cost(names).arena_bytes <= most

    def cost(self, name: str) -> float:
        """The cost of an activation in INT16, of the kind that is limited; a share of the whole."""
        if self._budget.more_cycles is None:
            return self.macs.share([name])
        return max(0.0, self.more_cycles([name]))

    def more_cycles(self, names: Collection[str]) -> float:
        """The share of the cycles that some activations in INT16 add; they may save some."""
        return self._cost(names).cycles / max(1.0, self._cost(()).cycles) - 1

    def _cost(self, names: Collection[str]) -> Cost:
        key = frozenset(names)
        if key not in self._costs:
            self._costs[key] = cost_of(_lifted(self._model, sorted(key)), self._budget)
        return self._costs[key]


def cost_of(graph: Graph, budget: Budget) -> Cost:
    """What an integer graph costs the target of a budget."""
    rates = budget.rates
    return Cost(0.0 if rates is None else cycles(graph, rates), arena_bytes(graph))


def _lifted(model: PreparedModel, names: Collection[str]) -> Graph:
    """The integer graph of a model with some activations in INT16; its constants have no values."""
    if not names:
        return model.graph
    plan, own = model.plan, lift_rules(model, list(names))
    options = dataclasses.replace(plan.options, rules=(*plan.options.rules, *own))
    return converted(model.float_graph, plan.norms, options)[0]
