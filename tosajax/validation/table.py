"""Checks nodes against the operator table: arguments, types, ranks, dimensions, constants.

If a node fits the table, the rules of its operator in `checks/` follow.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tosajax import spec
from tosajax.checks import RULES, Call, Surroundings
from tosajax.dtypes import DType
from tosajax.graph import DYNAMIC, Graph, Node, Tensor
from tosajax.graph.type_rows import matching_rows, tensor_arguments, versioned_attributes
from tosajax.report import Finding, Verdict
from tosajax.spec import Argument, Form, Kind, Operator, TypeRow
from tosajax.spec.target import Target
from tosajax.validation.certain import OpenCall, Outcomes, Size, certain, opened
from tosajax.validation.needs import Need
from tosajax.validation.structure import error, illegal_dimensions
from tosajax.versions import Versioned, is_in, needed

# Attributes stored on the tensor, not on the node: the values of a CONST, the initial value and
# shape of a VARIABLE.
_ON_TENSOR = (Form.VALUES, Form.SHAPE)


def form_findings(node: Node, graph: Graph) -> Iterator[Finding]:
    operator = spec.OPERATORS[node.op]
    problems = [*_counts(operator, node), *_attribute_problems(operator, node, graph)]
    for rule, message in problems or _form_problems(operator, node, graph.tensors):
        yield error(f"{node.op.lower()}.{rule}", message, node)


def node_findings(
    node: Node,
    graph: Graph,
    around: Surroundings,
    target: Target,
    needs: list[Need],
) -> Iterator[Finding]:
    operator = spec.OPERATORS[node.op]
    paired = tensor_arguments(operator, node, graph.tensors)
    row = yield from _type_findings(operator, node, paired, target, needs)
    if any(_is_unusable(tensor) for _, tensor in paired):  # reported with the tensor
        if not any(_is_illegal(tensor) for _, tensor in paired) and not _is_nested(operator):
            yield from certain(
                lambda outcomes: _open_findings(node, graph.tensors, row, around, target, outcomes)
            )
        return
    shapes = list(_shape_findings(operator, node, paired, row, target))
    yield from shapes
    yield from _constant_findings(node, paired, target, needs)
    if row is not None and not any(f.verdict is Verdict.ERROR for f in shapes):
        yield from _rule_findings(Call(node, graph.tensors, around), target)


def input_findings(
    node: Node, tensors: Mapping[str, Tensor], around: Surroundings
) -> Iterator[Finding]:
    """The errors of a node that passed `form_findings`, whatever the shapes of its outputs.

    With open dimensions, only errors that hold for all sizes are found; with unknown ranks, none.
    The rules of control flow are skipped where other graphs may have open shapes.
    """
    operator, target = spec.OPERATORS[node.op], Target.everything("none")
    paired = tensor_arguments(operator, node, tensors)
    row = yield from _type_findings(operator, node, paired, target, [])
    inputs = [tensors[name] for name in node.inputs]
    if not any(_is_unusable(tensor) for tensor in inputs):
        yield from _input_findings(node, tensors, row, around, Outcomes())
    elif not _is_nested(operator):
        yield from illegal_dimensions(inputs)
        yield from certain(lambda outcomes: _input_findings(node, tensors, row, around, outcomes))


def _input_findings(
    node: Node,
    tensors: Mapping[str, Tensor],
    row: TypeRow | None,
    around: Surroundings,
    outcomes: Outcomes,
) -> Iterator[Finding]:
    """The findings for one choice of what comparisons of open dimensions give."""
    open_tensors = {name: opened(tensors[name], outcomes) for name in node.inputs}
    open_tensors |= {name: dataclasses.replace(tensors[name], shape=None) for name in node.outputs}
    operator = spec.OPERATORS[node.op]
    paired = [
        (argument, tensor)
        for argument, tensor in tensor_arguments(operator, node, open_tensors)
        if argument.kind is Kind.INPUT and tensor.shape is not None
    ]
    shapes = list(_shape_findings(operator, node, paired, row, Target.everything("none")))
    yield from shapes
    rules = RULES[node.op].errors if operator.is_function else None
    is_whole = not any(_is_illegal(tensors[name]) for name in node.inputs)
    if row is not None and not shapes and rules is not None and is_whole:
        for label, message in rules(OpenCall(node, open_tensors, around, outcomes)):
            yield error(label, message, node)


def _open_findings(
    node: Node,
    tensors: Mapping[str, Tensor],
    row: TypeRow | None,
    around: Surroundings,
    target: Target,
    outcomes: Outcomes,
) -> Iterator[Finding]:
    """The findings for one combination of outcomes of comparisons with open dimensions."""
    names = (*node.inputs, *node.outputs)
    tensors = {name: opened(tensors[name], outcomes) for name in names}
    operator = spec.OPERATORS[node.op]
    paired = tensor_arguments(operator, node, tensors)
    shapes = list(_shape_findings(operator, node, paired, row, target))
    yield from shapes
    yield from _constant_findings(node, paired, target, [])
    if row is not None and not any(f.verdict is Verdict.ERROR for f in shapes):
        yield from _rule_findings(OpenCall(node, tensors, around, outcomes), target)


def _is_unusable(tensor: Tensor) -> bool:
    """Whether a tensor's rank or a dimension is open or illegal; a shape_t may be empty."""
    if tensor.shape is None:
        return True
    return tensor.dtype is not DType.SHAPE and min(tensor.shape, default=1) < 1


def _is_illegal(tensor: Tensor) -> bool:
    """Whether a tensor's rank is unknown, or a dimension is neither open nor positive."""
    if tensor.shape is None:
        return True
    return tensor.dtype is not DType.SHAPE and any(d < 1 and d != DYNAMIC for d in tensor.shape)


def _is_nested(operator: Operator) -> bool:
    """Whether an operator's rules read tensors other than its own, which may also be open."""
    has_graphs = any(argument.form is Form.GRAPH for argument in operator.attributes)
    return has_graphs or operator.chapter == "variable"


def _rule_findings(call: Call, target: Target) -> Iterator[Finding]:
    rules, node = RULES[call.node.op], call.node
    for label, message in rules.errors(call) if rules.errors else ():
        yield error(label, message, node)
    unpredictable = [
        *(rules.levels(call, target.limits) if rules.levels else ()),
        *(rules.undefined(call) if rules.undefined else ()),
    ]
    for label, message in unpredictable:
        yield Finding(Verdict.UNPREDICTABLE, label, message, node.title)


def _counts(operator: Operator, node: Node) -> Iterator[tuple[str, str]]:
    for what, wanted, names_given in (
        ("inputs", operator.inputs, node.inputs),
        ("outputs", operator.outputs, node.outputs),
    ):
        fixed = [a.name for a in wanted if a.form is not Form.TENSOR_LIST]
        if node.op == "VARIABLE" and what == "outputs":
            fixed = ["the variable"]  # the table lists it as attributes
        open_ended = any(a.form is Form.TENSOR_LIST for a in wanted)
        if len(names_given) < len(fixed) or (len(names_given) > len(fixed) and not open_ended):
            least = "at least " if open_ended else ""
            names = f" ({', '.join(fixed)})" if fixed else ""
            yield what, f"{len(names_given)} {what}, expected {least}{len(fixed)}{names}"


def _form_problems(
    operator: Operator, node: Node, tensors: Mapping[str, Tensor]
) -> Iterator[tuple[str, str]]:
    """Yields tensors whose kind differs from the table's, and constants with no or wrong values."""
    for argument, tensor in tensor_arguments(operator, node, tensors):
        is_shape = tensor.dtype is DType.SHAPE
        if is_shape != (argument.form is Form.SHAPE):
            wanted = "a shape" if argument.form is Form.SHAPE else "a tensor"
            yield "types", f"{argument.name} {tensor.name!r} is {tensor}, expected {wanted}"
    if node.op in spec.CONSTANT_OPERATORS:
        tensor = tensors[node.outputs[0]]
        if tensor.values is None:
            yield "values", f"{tensor.name!r} has no values"
        elif tensor.shape is not None and tensor.values.shape != tensor.shape:
            message = f"{tensor.name!r} has values of shape {tensor.values.shape}"
            yield "values", f"{message}, expected {tensor.shape}"


def _attribute_problems(operator: Operator, node: Node, graph: Graph) -> Iterator[tuple[str, str]]:
    declared = {a.name: a for a in operator.attributes}
    for name in node.attributes:
        if name not in declared:
            names = ", ".join(declared) or "none"
            yield "attributes", f"unknown attribute {name!r}, expected {names}"
    for name, argument in declared.items():
        if argument.form in _ON_TENSOR:
            continue
        if name not in node.attributes:
            if argument.default is spec.REQUIRED:
                yield "attributes", f"attribute {name} is missing"
            continue
        value = node.attributes[name]
        wanted = _wanted_form(argument, value, graph)
        if wanted is not None:
            yield "attributes", f"{name} is {value!r}, expected {wanted}"


def _wanted_form(argument: Argument, found: Any, graph: Graph) -> str | None:
    """The form that the table requires of an attribute; None if the attribute has it."""
    dtype = argument.dtype
    if argument.form is Form.GRAPH:
        good = isinstance(found, str) and found in graph.subgraphs
        return None if good else f"one of the graphs {list(graph.subgraphs)}"
    if argument.form is Form.LIST:
        length = (argument.dims or ("",))[0]
        good = isinstance(found, tuple) and all(_is_int(v) for v in found)
        if not good or (length.isdigit() and len(found) != int(length)):
            return f"{length if length.isdigit() else 'a tuple of'} integers"
        return None
    if dtype is spec.AccType:
        names = spec.AccType.__members__
        good = isinstance(found, DType) and found.name in names
        return None if good else f"one of {', '.join(names)}"
    if isinstance(dtype, type) and issubclass(dtype, enum.Enum):
        names = (f"{dtype.__name__}.{name}" for name in dtype.__members__)
        return None if isinstance(found, dtype) else f"one of {', '.join(names)}"
    if dtype is int:
        return None if _is_int(found) else "an integer"
    if dtype is str:
        return None if isinstance(found, str | bytes) else "a string"
    if dtype is bool:
        return None if isinstance(found, bool | np.bool_) else "a boolean"
    # The bounds of CLAMP are numbers, or scalars of the element type.
    good = isinstance(found, int | float | np.generic) and not isinstance(found, bool)
    return None if good else "a number"


def _is_int(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


# Types and profiles.


def _type_findings(
    operator: Operator,
    node: Node,
    paired: list[tuple[Argument, Tensor]],
    target: Target,
    needs: list[Need],
):
    """Yields findings on types; returns the node's type row, or None if no row matches."""
    name = node.op.lower()
    acc_type = node.attributes.get("acc_type")
    rows = matching_rows(operator, node, paired)
    described = _describe_types(paired, acc_type)
    if not rows:
        wanted = "; ".join(sorted({" ".join(_names(r)) for r in operator.types}))
        variables = " ".join(operator.types[0].types)
        yield error(f"{name}.types", f"types are {described}, expected {variables}: {wanted}", node)
        return None
    yield from _version_findings(operator, node, rows, described, target)
    rows = [row for row in rows if is_in(row, target.version)] or rows
    alternatives = tuple(need for row in rows for need in row.needs)
    needs.append(alternatives)
    if not any(row.supported_by(target.names) for row in rows):
        wanted = " or ".join(" and ".join(sorted(n)) for n in alternatives)
        yield error(f"{name}.profile", f"{described} needs {wanted}, target is {target}", node)
    for extension in _enumerant_extensions(node):
        needs.append((frozenset([extension]),))
        if extension not in target.names:
            message = f"rounding_mode {node.attributes['rounding_mode'].name}"
            yield error(f"{name}.profile", f"{message} needs {extension}, target is {target}", node)
    return rows[0]


def _version_findings(
    operator: Operator, node: Node, rows: list[TypeRow], described: str, target: Target
) -> Iterator[Finding]:
    """Yields an error if the target's version lacks the operator, its attributes or its types."""
    used: list[tuple[str, Sequence[Versioned]]] = [(node.op, [operator])]
    used += [(f"attribute {a.name}", [a]) for a in versioned_attributes(operator, node)]
    used += [(described, rows)] if rows else []
    for name, facts in used:
        if not any(is_in(fact, target.version) for fact in facts):
            message = f"{name} needs {needed(facts[0])}"
            label = f"{node.op.lower()}.version"
            yield error(label, f"{message}, target is {target} of TOSA {target.version}", node)


def _describe_types(paired: list[tuple[Argument, Tensor]], acc_type: DType | None) -> str:
    parts = [f"{a.name} {t.dtype.name}" for a, t in paired if a.form is not Form.SHAPE]
    if acc_type is not None:
        parts.append(f"acc_type {acc_type.name}")
    return ", ".join(parts)


def _names(row: TypeRow) -> Iterator[str]:
    for value in row.types.values():
        yield value.name if isinstance(value, DType) else str(value)


def _enumerant_extensions(node: Node) -> Iterator[str]:
    for value in node.attributes.values():
        if isinstance(value, spec.RoundingMode) and value in spec.REQUIRED_EXTENSION:
            yield spec.REQUIRED_EXTENSION[value]


# Ranks and dimensions.


def _shape_findings(
    operator: Operator,
    node: Node,
    paired: list[tuple[Argument, Tensor]],
    row: TypeRow | None,
    target: Target,
) -> Iterator[Finding]:
    name = node.op.lower()
    sizes: dict[str, tuple[int, str]] = {}
    if row is not None:
        sizes = {k: (v, operator.name) for k, v in row.types.items() if isinstance(v, int)}
    for argument, tensor in paired:
        assert tensor.shape is not None
        wrong_rank = _rank_problem(argument, tensor, target)
        if wrong_rank:
            yield error(f"{name}.rank", wrong_rank, node)
            continue
        for message in _dimension_problems(argument, tensor, sizes):
            yield error(f"{name}.shape", message, node)
    yield from _same_shapes(node, paired)


def _rank_problem(argument: Argument, tensor: Tensor, target: Target) -> str | None:
    """The message about a wrong rank, or None.

    A rank above the level's MAX_RANK is an error, although the level's other limits are
    unpredictable, because the conformance suite expects an error.
    """
    if argument.rank is None or argument.form is Form.SHAPE:
        return None
    assert tensor.shape is not None
    rank, (least, most) = len(tensor.shape), argument.rank
    if not isinstance(most, int):
        most = getattr(target.limits, most.name) + most.offset
    if least <= rank <= most:
        return None
    wanted = f"rank {least}" if least == most else f"{least} to {most}"
    return f"{argument.name} {tensor.name!r} is {tensor}, of rank {rank}, expected {wanted}"


def _dimension_problems(
    argument: Argument, tensor: Tensor, sizes: dict[str, tuple[int, str]]
) -> Iterator[str]:
    """Compares numeric dimensions with their number, named ones with the first of the same name."""
    if argument.dims is None or argument.form is Form.SHAPE:
        return
    assert tensor.shape is not None
    for dim, size in zip(argument.dims, tensor.shape, strict=True):
        message = f"{argument.name} {tensor.name!r} is {tensor}: {dim} is {size}"
        if isinstance(size, Size):
            continue
        if dim.isdigit():
            if size != int(dim):
                yield f"{argument.name} {tensor.name!r} is {tensor}, expected {argument.shape}"
        elif dim.isidentifier():
            wanted, where = sizes.setdefault(dim, (size, argument.name))
            if size != wanted:
                yield f"{message}, expected {wanted} as in {where}"


def _same_shapes(node: Node, paired: list[tuple[Argument, Tensor]]) -> Iterator[Finding]:
    """Checks that arguments whose whole shape has the same name have equal shapes."""
    seen: dict[str, tuple[Argument, Tensor]] = {}
    for argument, tensor in paired:
        if argument.dims is not None or not argument.shape or argument.form is not Form.TENSOR:
            continue
        first, other = seen.setdefault(argument.shape, (argument, tensor))
        if _differ(other.shape, tensor.shape):
            message = f"{argument.name} {tensor.name!r} is {tensor}, expected the shape of "
            message += f"{first.name}, {other.shape}"
            yield error(f"{node.op.lower()}.shape", message, node)


def _differ(one: tuple[int, ...] | None, other: tuple[int, ...] | None) -> bool:
    """Whether two shapes differ in rank, or in a dimension that is open in neither."""
    assert one is not None
    assert other is not None
    if len(one) != len(other):
        return True
    pairs = [pair for pair in zip(one, other, strict=True) if not _is_open(pair)]
    return any(a != b for a, b in pairs)


def _is_open(dims: Iterable[Any]) -> bool:
    return any(isinstance(dim, Size) for dim in dims)


# Compile-time constants.


def _constant_findings(
    node: Node,
    paired: list[tuple[Argument, Tensor]],
    target: Target,
    needs: list[Need],
) -> Iterator[Finding]:
    for argument, tensor in paired:
        if argument.kind is Kind.OUTPUT or tensor.values is not None or not argument.dynamic_with:
            continue
        needs.append((frozenset([argument.dynamic_with]),))
        constant = not target.profiles.isdisjoint(argument.constant_in)
        if constant and argument.dynamic_with not in target.extensions:
            message = f"{argument.name} {tensor.name!r} is not a constant, which needs "
            message += f"{argument.dynamic_with}; target is {target}"
            yield error(f"{node.op.lower()}.constant", message, node)
