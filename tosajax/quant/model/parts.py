"""part: the nodes between some tensors of a model, as a model of its own."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from tosajax import spec
from tosajax.graph import Graph, Node
from tosajax.quant.graphs.blocks import all_nodes, all_tensors, graph_keys
from tosajax.quant.model.plan import Plan

if TYPE_CHECKING:
    from tosajax.quant.qmodel import PreparedModel

_T = TypeVar("_T")


def part(model: PreparedModel, start: str | None, outputs: Sequence[str]) -> PreparedModel:
    """The model of the nodes between tensors; the parameters of the whole are its own as well.

    Args:
      model: the model, from `prepare`.
      start: a tensor of `cuts`, an input of the part; None for a part from the inputs on.
      outputs: tensors of both graphs.

    Returns:
      A model with `start` as its first input, then those inputs of the whole that it reads.
    """
    stops = () if start is None else (start,)
    graphs = model.graph, model.float_graph
    needed = [_dependencies(graph, stops, outputs) for graph in graphs]
    read = [name for name in model.float_graph.inputs if name not in stops]
    inputs = (*stops, *(name for name in read if any(name in names for names in needed)))
    graph, floats = (
        _subgraph(graph, {*names, *inputs}, inputs, outputs)
        for graph, names in zip(graphs, needed, strict=True)
    )
    plan = _plan_of_part(model.plan, graph)
    return dataclasses.replace(model, graph=graph, float_graph=floats, plan=plan)


def cuts(model: PreparedModel) -> list[str]:
    """The activations that all of both graphs after them depends on alone, in order.

    Other inputs of the graph, and constants, may be read after them as well.
    """
    ours = set(_cuts(model.graph))
    return [name for name in _cuts(model.float_graph) if name in ours and name in model.owners]


def heads(model: PreparedModel) -> tuple[str, ...]:
    """The tensors that outputs are elementwise functions and softmaxes of: logits, for instance.

    One for each output: the first after its last product or pool that all of it depends on alone,
    where there is such an activation outside of loops and branches; else the output itself. Noise
    before a softmax is more even: after it, that of the few examples between two classes decides.
    """
    return tuple(dict.fromkeys(_head(model, output) for output in model.float_graph.outputs))


def _head(model: PreparedModel, output: str) -> str:
    graph, head = model.float_graph, output
    names = _dependencies(graph, (), (output,))
    nodes = tuple(node for node in graph.nodes if not names.isdisjoint(node.outputs))
    part = dataclasses.replace(graph, nodes=nodes, outputs=(output,))
    for name in reversed(_cuts(part)):
        after = _dependencies(graph, (name,), (output,)) - {name}
        if any(_ends_head(node) for node in nodes if not after.isdisjoint(node.outputs)):
            break
        # What saturates in integers, as far as functions after it do, has no noise to measure.
        is_whole = name not in model.plan.limited
        if name in model.outer_activations and name in model.owners and is_whole:
            head = name
    return head


def _ends_head(node: Node) -> bool:
    operator = spec.OPERATORS[node.op]
    return operator.is_product or operator.chapter in ("pool", "control_flow")


def _cuts(graph: Graph) -> list[str]:
    """The tensors after each of which no other computed one is still to be read."""
    unread = Counter([*(name for node in graph.nodes for name in node.inputs), *graph.outputs])
    inputs = set(graph.inputs)
    computed: set[str] = set()
    live: set[str] = set()
    result = []
    for node in graph.ordered_nodes():
        for name in node.inputs:
            unread[name] -= 1
            if not unread[name]:
                live.discard(name)
        if not (inputs | computed).isdisjoint(node.inputs):
            computed.update(node.outputs)
            live.update(name for name in node.outputs if unread[name])
            if len(live) == 1:
                result += live
    return list(dict.fromkeys(result))


def _dependencies(graph: Graph, stops: Collection[str], outputs: Sequence[str]) -> set[str]:
    """The tensors that the outputs are computed from, back to where to stop."""
    producers = {name: node for node in graph.nodes for name in node.outputs}
    pending, needed = list(outputs), set(outputs)
    while pending:
        name = pending.pop()
        if name in stops or name not in producers:
            continue
        new = set(producers[name].inputs) - needed
        needed |= new
        pending += new
    return needed


def _subgraph(
    graph: Graph, names: Collection[str], inputs: tuple[str, ...], outputs: Sequence[str]
) -> Graph:
    nodes = tuple(
        node
        for node in graph.nodes
        if not set(node.outputs).isdisjoint(names) and set(node.outputs).isdisjoint(inputs)
    )
    tensors = {name: tensor for name, tensor in graph.tensors.items() if name in names}
    inside = [node.attributes[key] for node in nodes for key in graph_keys(node)]
    return dataclasses.replace(
        graph,
        inputs=inputs,
        outputs=tuple(outputs),
        tensors=tensors,
        nodes=nodes,
        subgraphs={name: graph.subgraphs[name] for name in inside},
    )


def _plan_of_part(plan: Plan, graph: Graph) -> Plan:
    """The plan of a part: the entries for the tensors of its graph."""

    def of(values: Mapping[str, _T], names: Collection[str]) -> dict[str, _T]:
        return {name: value for name, value in values.items() if name in names}

    tensors = all_tensors(graph)
    owners = of(plan.owners, tensors)
    computed = {name for node in all_nodes(graph) for name in node.outputs}
    return dataclasses.replace(
        plan,
        scaled=of(plan.scaled, set(owners.values())),
        owners=owners,
        recipes=of(plan.recipes, tensors),
        bounds=of(plan.bounds, computed),
        functions=of(plan.functions, computed),
        octaves=of(plan.octaves, computed),
        # Those of other parts count as well, so that a constant has one scale in all of them.
        readers=of(plan.readers, tensors),
        norms={name: conv for name, conv in plan.norms.items() if f"{name}/acc" in computed},
    )
