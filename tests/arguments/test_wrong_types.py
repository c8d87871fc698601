"""Element types, profiles and extensions: every operator and type row of the table."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
import pytest
from oracle.legal_graphs import OPERATORS, ROW_IDS, ROWS, legal_graph

from tosajax import DType, Graph, Node, Target, TosaError, Verdict, spec, validate
from tosajax.graph import arguments
from tosajax.versions import VERSIONS

each_row = pytest.mark.parametrize(("operator", "row"), ROWS, ids=ROW_IDS)
each_operator = pytest.mark.parametrize("operator", OPERATORS, ids=lambda o: o.name)

# A multiplier is not a column of RESCALE's rows: e-rules compare it with scale32.
OF_NO_COLUMN = {("RESCALE", "multiplier")}


def _tested(graph: Graph) -> Node:
    """The node that is not a constant, or the only one."""
    return graph.nodes[-1]


def _typed(operator: spec.Operator, graph: Graph) -> Iterator[tuple[spec.Argument, str]]:
    """Each tensor of the node, by name, with its argument."""
    node = _tested(graph)
    for kind, names in ((spec.Kind.INPUT, node.inputs), (spec.Kind.OUTPUT, node.outputs)):
        found = arguments(operator, names, kind)
        for argument in operator.arguments:
            if argument.kind is kind:
                value = found[argument.name]
                for name in value if isinstance(value, tuple) else (value,):
                    yield argument, name


def _with_type(graph: Graph, name: str, dtype: DType) -> Graph:
    """One tensor has another type, its values are all 0 or false."""
    tensor = graph.tensors[name]
    values = tensor.values
    if values is not None:
        values = np.zeros(values.shape, dtype.storage)
    changed = dataclasses.replace(tensor, dtype=dtype, values=values)
    return dataclasses.replace(graph, tensors={**graph.tensors, name: changed})


def _with_accumulator(graph: Graph, dtype: DType) -> Graph:
    *others, node = graph.nodes
    node = dataclasses.replace(node, attributes={**node.attributes, "acc_type": dtype})
    return dataclasses.replace(graph, nodes=(*others, node))


def _allowed(operator: spec.Operator, graph: Graph) -> bool:
    """Whether some row has the node's types, written independently of validation."""
    node = _tested(graph)
    found = [(a, graph.tensors[name].dtype) for a, name in _typed(operator, graph)]
    for row in operator.types:
        columns = {key: value for key, value in row.types.items() if isinstance(value, DType)}
        wanted = [
            a.dtype if isinstance(a.dtype, DType) else columns.get(str(a.dtype)) for a, _ in found
        ]
        accumulator = node.attributes.get("acc_type")
        if all(w in (None, t) for w, (_, t) in zip(wanted, found, strict=True)) and (
            accumulator is None or columns["acc_t"] is accumulator
        ):
            return True
    return False


def _labels(graph: Graph, target: Target | None = None) -> set[str]:
    return {f.label for f in validate(graph, target).findings}


def _refuses(graph: Graph, label: str) -> None:
    report = validate(graph)
    assert label in {f.label for f in report.errors}
    assert report.verdict is Verdict.ERROR
    with pytest.raises(TosaError, match=label.replace(".", r"\.")):
        report.raise_errors()


@each_row
def test_every_row_is_legal(operator, row):
    report = validate(legal_graph(operator, row))
    assert report.findings == ()
    assert report.verdict is Verdict.VALID


@each_row
def test_every_other_type_of_an_argument(operator, row):
    """Each tensor in turn has every other type that no row allows with the rest."""
    graph = legal_graph(operator, row)
    label = f"{operator.name.lower()}.types"
    refused = 0
    for argument, name in _typed(operator, graph):
        if (operator.name, argument.name) in OF_NO_COLUMN:
            continue
        for dtype in set(DType) - {graph.tensors[name].dtype}:
            changed = _with_type(graph, name, dtype)
            if _allowed(operator, changed):
                assert label not in _labels(changed)
            elif dtype is DType.SHAPE and name in (*graph.inputs, *graph.outputs):
                _refuses(changed, "graph.shape")
            else:
                _refuses(changed, label)
                refused += 1
    assert refused >= 5 or operator.name == "CONST"  # whose output may be of any type


@pytest.mark.parametrize(
    ("operator", "row"),
    [
        pytest.param(operator, row, id=name)
        for (operator, row), name in zip(ROWS, ROW_IDS, strict=True)
        if any(a.name == "acc_type" for a in operator.attributes)
    ],
)
def test_every_other_accumulator(operator, row):
    graph = legal_graph(operator, row)
    for accumulator in spec.AccType:
        changed = _with_accumulator(graph, accumulator.dtype)
        if _allowed(operator, changed):
            assert _labels(changed) == set()
        else:
            _refuses(changed, f"{operator.name.lower()}.types")
    for dtype in set(DType) - {accumulator.dtype for accumulator in spec.AccType}:
        _refuses(_with_accumulator(graph, dtype), f"{operator.name.lower()}.attributes")


@each_row
def test_every_need_of_a_row(operator, row):
    """Each alternative of profiles and extensions suffices; without one of its names it fails."""
    graph = legal_graph(operator, row)
    label = f"{operator.name.lower()}.profile"
    for need in row.needs:
        assert _labels(graph, _target(need)) == set()
        for missing in need:
            target = _without(missing, need)
            if target is None or row.supported_by(target.names):
                continue
            # Its constant operands also have the types of the row.
            assert {label} <= _labels(graph, target) <= {label, "const.profile"}
    # A target with all that no alternative of the row needs.
    lacking = frozenset.union(*row.needs)
    rest = [p for p in spec.PROFILES if p not in lacking] or list(spec.PROFILES)
    for profile in rest:
        target = Target(frozenset([profile]), _extensions(profile) - lacking, version=VERSIONS[-1])
        assert (label in _labels(graph, target)) is not row.supported_by(target.names)


@each_operator
def test_every_subset_of_needs(operator):
    """Over all rows, a target of one profile and one extension has exactly the table's rows."""
    graphs = [(row, legal_graph(operator, row)) for row in operator.types]
    label = f"{operator.name.lower()}.profile"
    for profile in spec.PROFILES:
        for extension in (None, *sorted(_extensions(profile))):
            extensions = frozenset(filter(None, [extension]))
            target = Target(frozenset([profile]), extensions, version=VERSIONS[-1])
            for row, graph in graphs:
                supported = any(need <= target.names for need in row.needs)
                assert (label not in _labels(graph, target)) is supported, (row.mode, target)


def _extensions(profile: str) -> frozenset[str]:
    return frozenset(name for name, of in spec.EXTENSIONS.items() if profile in of)


def _target(names: frozenset[str]) -> Target:
    """The smallest target with these names; operands of any graph may be dynamic."""
    extensions = names & set(spec.EXTENSIONS)
    profiles = names & set(spec.PROFILES)
    profiles |= {
        spec.EXTENSIONS[e][0] for e in extensions if profiles.isdisjoint(spec.EXTENSIONS[e])
    }
    return Target(profiles, extensions | {"EXT-DYNAMIC"}, version=VERSIONS[-1])


def _without(missing: str, need: frozenset[str]) -> Target | None:
    """All that a target can be without one name, or None where it would have no profile."""
    profiles = frozenset(spec.PROFILES) - {missing}
    extensions = {e for e, of in spec.EXTENSIONS.items() if not profiles.isdisjoint(of)}
    return Target(profiles, frozenset(extensions) - {missing}, version=VERSIONS[-1])
