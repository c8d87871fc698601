"""Conversion of a graph: each node by the function of its operator."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable, Mapping

from tosajax import spec
from tosajax.graph import Graph, Node
from tosajax.quant.convert.converter import Converter
from tosajax.quant.convert.limited import read_by_functions_alone
from tosajax.quant.convert.states import ties_of_states
from tosajax.quant.graphs.inner import with_narrow_copies
from tosajax.quant.model.plan import NormedConv, Options, Plan
from tosajax.report import UnsupportedError


def converted(
    graph: Graph, norms: Mapping[str, NormedConv], options: Options
) -> tuple[Graph, Plan]:
    """The graph of integers, and its plan.

    Args:
      graph: the graph of floats, from `as_converted`.
      norms: the convolutions that keep a batch norm, by output.
      options: the user's options.
    """
    ties = ties_of_states(graph, options.states, _free_owners(graph, norms, options))
    given = {name: owner for name, owner in ties.items() if name != owner}
    converter = Converter(graph, norms, options, owners=given)
    for owner in dict.fromkeys(given.values()):
        converter.own(owner, *(name for name in given if given[name] == owner))
    convert(converter)
    _observe_states(converter, given)
    integers, plan = converter.finished()
    limited = read_by_functions_alone(converter)
    return integers, dataclasses.replace(plan, ties=given, limited=limited)


def _free_owners(
    graph: Graph, norms: Mapping[str, NormedConv], options: Options
) -> Mapping[str, str]:
    """The owners of tensors where no state is tied to its next value."""
    if not options.states:
        return {}
    converter = Converter(graph, norms, options)
    convert(converter)
    return converter.owners


def _observe_states(converter: Converter, given: Mapping[str, str]) -> None:
    """Has the range of a state hold all that has its scale."""
    followers: dict[str, dict[str, None]] = {}
    for name, owner in given.items():
        followers.setdefault(owner, {})[name] = None
    for state in converter.options.states:
        if converter.is_float(state.input):
            owner = converter.owner(state.input)
            if converter.owner(state.output) != owner:
                raise UnsupportedError(
                    f"states: output {state.output!r} has the scale of "
                    f"{converter.owner(state.output)!r}, expected that of {state.input!r}"
                )
            followers.setdefault(owner, {})[state.output] = None
    for owner, names in followers.items():
        for name in names:
            converter.observe(name, for_=owner)


def as_converted(graph: Graph, options: Options) -> Graph:
    """The graph of floats, from `simplify`, in the form that `converted` takes."""
    return with_narrow_copies(graph) if options.wide_elementwise else graph


def convert(converter: Converter) -> None:
    """Declares the inputs of a graph and converts its nodes."""
    graph = converter.graph
    for name in graph.inputs:
        converter.input(name)
    for node in graph.ordered_nodes():
        if node.op not in spec.CONSTANT_OPERATORS and not converter.inside.issuperset(node.outputs):
            _convert(converter, node)


def is_moved(node: Node) -> bool:
    """Whether a node of floats is converted into itself, in the scale of its first input."""
    return spec.OPERATORS[node.op].keeps_scale and _find_conversion(node) is _move


def _convert(converter: Converter, node: Node) -> None:
    output = node.outputs[0]
    if output in converter.done:
        return
    if output in converter.functions:
        converter.look_up(converter.functions[output])
    elif spec.OPERATORS[node.op].is_function and not any(
        converter.is_float(name) for name in (*node.inputs, output)
    ):
        converter.copy(node)
    elif output not in converter.nans.truths:
        converter.nans.check(node)
        _find_conversion(node)(converter, node)


def _find_conversion(node: Node) -> Callable[[Converter, Node], None]:
    """The function of its chapter and name; operators without one may keep their scale."""
    operator = spec.OPERATORS[node.op]
    try:
        module = importlib.import_module(f"tosajax.quant.convert.{operator.chapter}")
    except ModuleNotFoundError:
        module = None
    convert = getattr(module, node.op.lower(), _move if operator.keeps_scale else None)
    if convert is None:
        raise UnsupportedError(f"{node.title}: this operator of floats has no integer form")
    return convert


def _move(converter: Converter, node: Node) -> None:
    converter.move(node, node.inputs[0])
