"""Upgrades graphs of TOSA before 1.0 to TOSA 1.0.1, node by node."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence

from tosajax import spec
from tosajax.graph import Graph, Node, Rewrite, Source, Tensor
from tosajax.io.pre_1_0 import rules, schema
from tosajax.io.pre_1_0.model import OldGraph, OldNode
from tosajax.io.pre_1_0.rules.variable import declared_variable
from tosajax.io.pre_1_0.step import SIGNLESS, Step, Work
from tosajax.report import FormatError, UnsupportedError

_DEEPEST = spec.LEVELS["none"].MAX_NESTING
_FLOATS = ("FP16", "BF16", "FP32")
# Attributes of 1.0 that the dialect had earlier.
_EARLY = ("nan_mode", "acc_type")
_VARIABLE = ("name", "uid", "var_shape", "type", "initial_value")


def upgrade(graph: OldGraph, source: Source) -> Graph:
    """Converts a graph to TOSA 1.0.1.

    Results are equal, except where a rewrite in `Source.rewrites` states a difference.

    Args:
      graph: the graph with its subgraphs. Tensors that are shapes are folded.
      source: the graph's source, to which the rewrites are added.

    Raises:
      FormatError: an attribute is missing, unknown, or invalid.
      UnsupportedError: TOSA 1.0 cannot express the graph.
      TosaError: the nodes form a cycle.
    """
    graphs = tuple(_walk(graph))
    rewrites: list[Rewrite] = []
    upgraded = _nested(graph, _variables(graphs), rewrites)
    what = f"{source.format} {source.version}".strip()
    all_rewrites = (*source.rewrites, *_summary(what, graphs), *rewrites)
    return dataclasses.replace(upgraded, source=dataclasses.replace(source, rewrites=all_rewrites))


def upgrade_each(
    graphs: Mapping[str, OldGraph], version: str
) -> tuple[dict[str, Graph], tuple[Rewrite, ...]]:
    """Converts the graphs of one file, each without its subgraphs; see `upgrade`.

    Args:
      graphs: the graphs by name, the main graph first.
      version: the file's version, for the rewrites.

    Returns:
      The converted graphs, and the rewrites.
    """
    parts = tuple(graphs.values())
    variables = _variables(parts)
    rewrites: list[Rewrite] = []
    upgraded = {name: _alone(graph, variables, rewrites) for name, graph in graphs.items()}
    return upgraded, (*_summary(version, parts), *rewrites)


def _walk(graph: OldGraph, depth: int = 0) -> Iterator[OldGraph]:
    """Yields a graph and all its subgraphs."""
    if depth > _DEEPEST:
        raise UnsupportedError(f"control flow is nested more than {_DEEPEST} deep")
    yield graph
    for part in graph.subgraphs.values():
        yield from _walk(part, depth + 1)


def _nested(graph: OldGraph, variables: Mapping[str, Tensor], rewrites: list[Rewrite]) -> Graph:
    alone = _alone(graph, variables, rewrites)
    parts = {name: _nested(part, variables, rewrites) for name, part in graph.subgraphs.items()}
    return dataclasses.replace(alone, subgraphs=parts)


def _alone(graph: OldGraph, variables: Mapping[str, Tensor], rewrites: list[Rewrite]) -> Graph:
    """Converts a graph without its subgraphs."""
    work = Work(graph, variables, rewrites)
    for node in _ordered(graph.nodes):
        try:
            _upgrade_node(Step(node, work))
        except (FormatError, UnsupportedError) as error:
            raise type(error)(f"{node.title}: {error}") from None
    return work.finished()


def _ordered(nodes: Sequence[OldNode]) -> Iterator[OldNode]:
    """Yields the nodes in topological order."""
    numbered = [Node(n.op, n.inputs, n.outputs, {"at": at}) for at, n in enumerate(nodes)]
    for node in Graph((), (), {}, tuple(numbered)).ordered_nodes():
        yield nodes[node.attributes["at"]]


def _upgrade_node(step: Step) -> None:
    node = step.node
    if node.op not in schema.OPERATORS and node.op not in spec.OPERATORS:
        raise FormatError("the operator is unknown")
    _check_attributes(node)
    tensors = [step.work.old.tensors.get(name) for name in (*node.inputs, *node.outputs)]
    types = {tensor.dtype for tensor in tensors if tensor is not None}
    unsigned = sorted(types & SIGNLESS.keys())
    if unsigned and not _takes_unsigned(node.op):
        message = f"a tensor is {unsigned[0]}"
        raise UnsupportedError(f"{message}, which only RESCALE computes with")
    rules.rule_of(step)(step)


def _check_attributes(node: OldNode) -> None:
    table = schema.ATTRIBUTES.get(node.op)
    names = [] if table is None else [field.name for field in table.fields]
    if node.op in spec.OPERATORS:
        names += [a.name for a in spec.OPERATORS[node.op].attributes if a.name in _EARLY]
        names += _VARIABLE if spec.OPERATORS[node.op].chapter == "variable" else ()
    for name in node.attributes:
        if name not in names:
            message = f"attribute {name!r} is unknown"
            raise FormatError(f"{message}, expected {', '.join(names) or 'none'}")


def _takes_unsigned(op: str) -> bool:
    """Whether an operator takes unsigned tensors: RESCALE, or one that is signless."""
    return op == "RESCALE" or (op in spec.OPERATORS and spec.OPERATORS[op].is_signless)


def _variables(graphs: Iterable[OldGraph]) -> dict[str, Tensor]:
    """The variables of a program, by name, as tensors of 1.0.1."""
    variables: dict[str, Tensor] = {}
    for graph in graphs:
        for node in graph.nodes:
            if node.op == "VARIABLE":
                tensor = declared_variable(node)
                variables[tensor.name] = tensor
    return variables


def _summary(what: str, graphs: Sequence[OldGraph]) -> Iterator[Rewrite]:
    """Yields the rewrites that apply to whole graphs, of which the first is the main graph.

    One rewrite covers all changes that cannot affect results, one all float results.
    """
    done = "numbers and names are those of 1.0.1, where some attributes are constant inputs"
    yield Rewrite(what, done)
    types = {tensor.dtype for graph in graphs for tensor in graph.tensors.values()}
    if "SHAPE" in types:
        yield Rewrite("shapes", "computed here, so that all are constants")
    if not types.isdisjoint(_FLOATS):
        differs = "0.80 bounds errors by a draft, and the sign of a zero maximum or minimum is open"
        yield Rewrite("floats", "errors are bounded as in 1.0.1", differs)
    main = graphs[0]
    for side, names in (("input", main.inputs), ("output", main.outputs)):
        for name in names:
            dtype = main.tensors[name].dtype if name in main.tensors else ""
            if dtype in SIGNLESS:
                done = f"{dtype} is {SIGNLESS[dtype]} of the same bits"
                yield Rewrite(f"{side} {name!r}", f"{done}, as types of TOSA 1.0 are signless")
