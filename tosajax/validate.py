"""Validation: is a graph legal, and does a target support it?

Structure first, then each node against the operator table (arguments, types, ranks, dimensions,
compile-time constants), then the rules of its operator in `checks/`. All findings are collected;
a node that fails a table check skips the rules, which rely on it.
"""

from __future__ import annotations

import enum
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from tosajax import spec
from tosajax.checks import RULES, Call, Surroundings
from tosajax.dtypes import DType
from tosajax.graph import DYNAMIC, Graph, Node, Tensor, arguments, declared_variables
from tosajax.report import Finding, Report, TosaError, Verdict
from tosajax.spec import Argument, Form, Kind, Operator, TypeRow
from tosajax.target import Target, target_of
from tosajax.typed import check_type

# Attributes that refer to the file rather than to a value: a CONST keeps its values, and a
# VARIABLE its initial value and shape, on the tensor.
_ON_TENSOR = (Form.VALUES, Form.SHAPE)


def validate(graph: Graph, target: Target | str | None = None) -> Report:
    """Checks a graph against the specification and a target (TOSA 1.0.1).

    Args:
      graph: any graph; dimensions must be known (see `tosajax.bind`).
      target: what the implementation offers, also as text ("PRO-INT@8K"); everything at level 8K
        by default.

    Returns:
      A report of all findings, and the profiles and extensions the graph needs.

    Raises:
      TypeError: an argument is of another type.
    """
    check_type("graph", graph, Graph, "a Graph, as from tosajax.load")
    target = target_of(target)
    findings: list[Finding] = []
    needs: list[tuple[frozenset[str], ...]] = []
    variables = declared_variables(graph)
    for depth, part in _nested(graph):
        structure = list(_structure(part))
        findings += structure
        findings += _tensor_findings(part, target)
        around = Surroundings(part.subgraphs, variables, depth, target.limits.MAX_NESTING)
        for node in part.nodes if not structure else ():
            form = list(_form_findings(node, part))
            findings += form or _node_findings(node, part, around, target, needs)
    return Report(tuple(findings), _smallest(needs))


def _nested(graph: Graph, depth: int = 0) -> Iterator[tuple[int, Graph]]:
    """The graph and all subgraphs, with the number of graphs around each."""
    yield depth, graph
    for part in graph.subgraphs.values():
        yield from _nested(part, depth + 1)


def check_form(graph: Graph) -> None:
    """Checks what must hold before a graph's shapes can be reasoned about.

    Names, origins and order of tensors, and each node's arguments: their number, and whether they
    are shapes, tensors and values where the table says so. Dimensions may be open.

    Raises:
      TosaError: something does not hold.
    """
    findings: list[Finding] = []
    for part in graph.walk():
        structure = list(_structure(part))
        nodes = part.nodes if not structure else ()
        findings += structure or (f for node in nodes for f in _form_findings(node, part))
    Report(tuple(findings)).raise_errors()


def _error(label: str, message: str, node: Node | None = None) -> Finding:
    return Finding(Verdict.ERROR, label, message, node.title if node else None)


# Structure: names, producers, order.


def _structure(graph: Graph) -> Iterator[Finding]:
    yield from _undeclared(graph)
    yield from _producers(graph)
    for node in graph.nodes:
        if node.op not in spec.OPERATORS:
            yield _error("graph.operator", f"{node.op!r} is not an operator of TOSA 1.0", node)
    try:
        graph.ordered_nodes()
    except TosaError as error:
        yield from error.report.findings


def _undeclared(graph: Graph) -> Iterator[Finding]:
    for what, names in (("graph input", graph.inputs), ("graph output", graph.outputs)):
        for name in names:
            if name not in graph.tensors:
                yield _error("graph.undefined", f"{what} {name!r} is not declared")
            elif graph.tensors[name].dtype is DType.SHAPE:
                yield _error("graph.shape", f"{what} {name!r} is a shape, expected a tensor")
    for name, count in Counter(graph.inputs).items():
        if count > 1:
            yield _error("graph.duplicate", f"input {name!r} is listed {count} times")
    for node in graph.nodes:
        for name in (*node.inputs, *node.outputs):
            if name not in graph.tensors:
                yield _error("graph.undefined", f"tensor {name!r} is not declared", node)


def _producers(graph: Graph) -> Iterator[Finding]:
    """Every tensor that is read has exactly one origin: a node or the graph's inputs."""
    origin: dict[str, Node | None] = dict.fromkeys(graph.inputs)
    for node in graph.nodes:
        for name in node.outputs:
            if name in origin:
                other = origin[name]
                by = f"{other.op} writes it too" if other else "it is a graph input"
                yield _error("graph.duplicate", f"output {name!r} has two origins: {by}", node)
            origin[name] = node
    for node in graph.nodes:
        for name in node.inputs:
            source = origin.get(name)
            if name not in origin:
                yield _error("graph.undefined", f"no node produces tensor {name!r}", node)
            elif source is not None and source.op == "VARIABLE":
                found = f"tensor {name!r} is a variable"
                yield _error("graph.variable", f"{found}, expected what VARIABLE_READ gives", node)
    for name in graph.outputs:
        source = origin.get(name)
        if name not in origin:
            yield _error("graph.undefined", f"no node produces the graph output {name!r}")
        elif source is not None and source.op == "VARIABLE":
            yield _error("graph.variable", f"the graph output {name!r} is a variable", source)
    for name, tensor in graph.tensors.items():
        node = origin.get(name)
        constant = node is not None and node.op in (*spec.CONSTANT_OPERATORS, "VARIABLE")
        if tensor.values is not None and tensor.variable is None and not constant:
            yield _error("graph.constant", f"tensor {name!r} has values and no CONST", node)


# Tensors: dimensions and sizes.


def _tensor_findings(graph: Graph, target: Target) -> Iterator[Finding]:
    limit = 1 << min(target.limits.MAX_LOG2_SIZE, 63)
    for tensor in graph.tensors.values():
        if tensor.dtype is DType.SHAPE:
            continue
        if tensor.shape is None:
            yield _error("tensor.rank", f"tensor {tensor.name!r} has no rank: bind its shape")
        elif DYNAMIC in tensor.shape:
            found = f"tensor {tensor.name!r} is {tensor}, expected known dimensions"
            yield _error("tensor.dynamic", f"{found}: bind them, for instance with batch=1")
        elif any(d < 1 for d in tensor.shape):
            found = f"tensor {tensor.name!r} has shape {tensor.shape}"
            yield _error("tensor.shape", f"{found}, expected dimensions of at least 1")
        elif math.prod(tensor.shape) * max(tensor.dtype.bits // 8, 1) >= limit:
            message = f"tensor {tensor.name!r} is {tensor}, above the level's size of {limit} bytes"
            yield Finding(Verdict.UNPREDICTABLE, "tensor.size", message)


# Nodes: the table's checks, then the operator's rules.


def _form_findings(node: Node, graph: Graph) -> Iterator[Finding]:
    operator = spec.OPERATORS[node.op]
    problems = [*_counts(operator, node), *_attribute_problems(operator, node, graph)]
    for rule, message in problems or _form_problems(operator, node, graph.tensors):
        yield _error(f"{node.op.lower()}.{rule}", message, node)


def _node_findings(
    node: Node,
    graph: Graph,
    around: Surroundings,
    target: Target,
    needs: list[tuple[frozenset[str], ...]],
) -> Iterator[Finding]:
    operator = spec.OPERATORS[node.op]
    paired = _tensor_arguments(operator, node, graph.tensors)
    row = yield from _type_findings(operator, node, paired, target, needs)
    if any(_is_unusable(tensor) for _, tensor in paired):
        return  # reported with the tensor
    shapes = list(_shape_findings(operator, node, paired, row, target))
    yield from shapes
    yield from _constant_findings(node, paired, target, needs)
    if row is not None and not any(f.verdict is Verdict.ERROR for f in shapes):
        yield from _rule_findings(Call(node, graph.tensors, around), target)


def _is_unusable(tensor: Tensor) -> bool:
    """Whether a tensor has no shape to check others against; an empty shape_t is fine."""
    if tensor.shape is None:
        return True
    return tensor.dtype is not DType.SHAPE and min(tensor.shape, default=1) < 1


def _rule_findings(call: Call, target: Target) -> Iterator[Finding]:
    rules, node = RULES[call.node.op], call.node
    for label, message in rules.errors(call) if rules.errors else ():
        yield _error(label, message, node)
    unpredictable = [
        *(rules.levels(call, target.limits) if rules.levels else ()),
        *(rules.undefined(call) if rules.undefined else ()),
    ]
    for label, message in unpredictable:
        yield Finding(Verdict.UNPREDICTABLE, label, message, node.title)


def _tensor_arguments(
    operator: Operator, node: Node, tensors: Mapping[str, Tensor]
) -> list[tuple[Argument, Tensor]]:
    """Every tensor of a node with its argument, inputs first."""
    if operator.name == "VARIABLE":  # its output stands for the variable's initial value
        return [(a, tensors[node.outputs[0]]) for a in operator.attributes if a.form is Form.VALUES]
    pairs: list[tuple[Argument, Tensor]] = []
    for kind, names in ((Kind.INPUT, node.inputs), (Kind.OUTPUT, node.outputs)):
        found = arguments(operator, names, kind)
        for argument in operator.inputs if kind is Kind.INPUT else operator.outputs:
            value = found.get(argument.name, ())
            for name in value if isinstance(value, tuple) else (value,):
                pairs.append((argument, tensors[name]))
    return pairs


def _counts(operator: Operator, node: Node) -> Iterator[tuple[str, str]]:
    for what, wanted, found in (
        ("inputs", operator.inputs, node.inputs),
        ("outputs", operator.outputs, node.outputs),
    ):
        fixed = [a.name for a in wanted if a.form is not Form.TENSOR_LIST]
        if node.op == "VARIABLE" and what == "outputs":
            fixed = ["the variable"]  # which the table states as attributes
        open_ended = any(a.form is Form.TENSOR_LIST for a in wanted)
        if len(found) < len(fixed) or (len(found) > len(fixed) and not open_ended):
            least = "at least " if open_ended else ""
            names = f" ({', '.join(fixed)})" if fixed else ""
            yield what, f"{len(found)} {what}, expected {least}{len(fixed)}{names}"


def _form_problems(
    operator: Operator, node: Node, tensors: Mapping[str, Tensor]
) -> Iterator[tuple[str, str]]:
    """Shapes where the table wants shapes, tensors where it wants tensors, values where due."""
    for argument, tensor in _tensor_arguments(operator, node, tensors):
        is_shape = tensor.dtype is DType.SHAPE
        if is_shape != (argument.form is Form.SHAPE):
            wanted = "a shape" if argument.form is Form.SHAPE else "a tensor"
            yield "types", f"{argument.name} {tensor.name!r} is {tensor}, expected {wanted}"
    if node.op in spec.CONSTANT_OPERATORS:
        tensor = tensors[node.outputs[0]]
        if tensor.values is None:
            yield "values", f"{tensor.name!r} has no values"
        elif tensor.shape is not None and tensor.values.shape != tensor.shape:
            found = f"{tensor.name!r} has values of shape {tensor.values.shape}"
            yield "values", f"{found}, expected {tensor.shape}"


def _attribute_problems(operator: Operator, node: Node, graph: Graph) -> Iterator[tuple[str, str]]:
    known = {a.name: a for a in operator.attributes}
    for name in node.attributes:
        if name not in known:
            yield "attributes", f"unknown attribute {name!r}, expected {', '.join(known) or 'none'}"
    for name, argument in known.items():
        if argument.form in _ON_TENSOR:
            continue
        if name not in node.attributes:
            if argument.default is spec.REQUIRED:
                yield "attributes", f"attribute {name} is missing"
            continue
        found = node.attributes[name]
        wanted = _wanted_form(argument, found, graph)
        if wanted is not None:
            yield "attributes", f"{name} is {found!r}, expected {wanted}"


def _wanted_form(argument: Argument, found: Any, graph: Graph) -> str | None:
    """What an attribute should look like, or None where it does."""
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
        return None if isinstance(found, dtype) else f"one of {', '.join(dtype.__members__)}"
    if dtype is int:
        return None if _is_int(found) else "an integer"
    if dtype is str:
        return None if isinstance(found, str | bytes) else "a string"
    if dtype is bool:
        return None if isinstance(found, bool | np.bool_) else "a boolean"
    # CLAMP's bounds: a number, or a scalar of the element type.
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
    needs: list[tuple[frozenset[str], ...]],
):
    """Yields findings on types; returns the type row of the node, or None."""
    name = node.op.lower()
    acc_type = node.attributes.get("acc_type")
    rows = [r for r in operator.types if _matches(r, paired, acc_type)]
    described = _describe_types(paired, acc_type)
    if not rows:
        wanted = "; ".join(sorted({" ".join(_names(r)) for r in operator.types}))
        variables = " ".join(operator.types[0].types)
        yield _error(
            f"{name}.types", f"types are {described}, expected {variables}: {wanted}", node
        )
        return None
    alternatives = tuple(need for row in rows for need in row.needs)
    needs.append(alternatives)
    if not any(row.supported_by(target.names) for row in rows):
        wanted = " or ".join(" and ".join(sorted(n)) for n in alternatives)
        yield _error(f"{name}.profile", f"{described} needs {wanted}, target is {target}", node)
    for extension in _enumerant_extensions(node):
        needs.append((frozenset([extension]),))
        if extension not in target.names:
            found = f"rounding_mode {node.attributes['rounding_mode'].name}"
            yield _error(f"{name}.profile", f"{found} needs {extension}, target is {target}", node)
    return rows[0]


def _matches(
    row: TypeRow, paired: Iterable[tuple[Argument, Tensor]], acc_type: DType | None
) -> bool:
    if acc_type is not None and row.types.get("acc_t", acc_type) is not acc_type:
        return False
    return all(_wanted_type(a, row) in (None, t.dtype) for a, t in paired)


def _wanted_type(argument: Argument, row: TypeRow) -> DType | int | None:
    """The element type a row wants of an argument; None where it leaves it open."""
    if isinstance(argument.dtype, DType):
        return argument.dtype
    return row.types.get(argument.dtype) if isinstance(argument.dtype, str) else None


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
            yield _error(f"{name}.rank", wrong_rank, node)
            continue
        for message in _dimension_problems(argument, tensor, sizes):
            yield _error(f"{name}.shape", message, node)
    yield from _same_shapes(node, paired)


def _rank_problem(argument: Argument, tensor: Tensor, target: Target) -> str | None:
    """What is wrong with a rank, if anything.

    The level's MAX_RANK is part of what an argument may be, so that a larger rank is an error and
    not, as other limits of the level, unpredictable: the conformance suite has it so.
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
    """Compares numbered dimensions with their number, named ones with the first of that name."""
    if argument.dims is None or argument.form is Form.SHAPE:
        return
    assert tensor.shape is not None
    for dim, size in zip(argument.dims, tensor.shape, strict=True):
        found = f"{argument.name} {tensor.name!r} is {tensor}: {dim} is {size}"
        if dim.isdigit():
            if size != int(dim):
                yield f"{argument.name} {tensor.name!r} is {tensor}, expected {argument.shape}"
        elif dim.isidentifier():
            wanted, where = sizes.setdefault(dim, (size, argument.name))
            if size != wanted:
                yield f"{found}, expected {wanted} as in {where}"


def _same_shapes(node: Node, paired: list[tuple[Argument, Tensor]]) -> Iterator[Finding]:
    """Arguments whose whole shape has one name must agree in it."""
    seen: dict[str, tuple[Argument, Tensor]] = {}
    for argument, tensor in paired:
        if argument.dims is not None or not argument.shape or argument.form is not Form.TENSOR:
            continue
        first, other = seen.setdefault(argument.shape, (argument, tensor))
        if other.shape != tensor.shape:
            message = f"{argument.name} {tensor.name!r} is {tensor}, expected the shape of "
            message += f"{first.name}, {other.shape}"
            yield _error(f"{node.op.lower()}.shape", message, node)


# Compile-time constants.


def _constant_findings(
    node: Node,
    paired: list[tuple[Argument, Tensor]],
    target: Target,
    needs: list[tuple[frozenset[str], ...]],
) -> Iterator[Finding]:
    for argument, tensor in paired:
        if argument.kind is Kind.OUTPUT or tensor.values is not None or not argument.dynamic_with:
            continue
        needs.append((frozenset([argument.dynamic_with]),))
        constant = not target.profiles.isdisjoint(argument.constant_in)
        if constant and argument.dynamic_with not in target.extensions:
            message = f"{argument.name} {tensor.name!r} is not a constant, which needs "
            message += f"{argument.dynamic_with}; target is {target}"
            yield _error(f"{node.op.lower()}.constant", message, node)


# What a graph needs.


def _smallest(needs: list[tuple[frozenset[str], ...]]) -> tuple[str, ...]:
    """A small set of profiles and extensions under which every node is supported.

    What leaves no choice comes first, so that alternatives can be met by what is there.
    """
    chosen: set[str] = set()
    for alternatives in sorted(set(needs), key=len):
        if not any(a <= chosen for a in alternatives):
            chosen |= min(alternatives, key=lambda a: (len(a - chosen), _ranked(a)))
        chosen |= _profiles_of(chosen)
    return _table_order(chosen or {spec.PROFILES[0]})


def _profiles_of(names: set[str]) -> set[str]:
    """A profile for each extension that has none of its profiles yet."""
    allowed = (spec.EXTENSIONS[name] for name in _table_order(names) if name in spec.EXTENSIONS)
    return {profiles[0] for profiles in allowed if names.isdisjoint(profiles)}


def _ranked(names: Iterable[str]) -> list[int]:
    """Profiles before extensions, each in the order of the table."""
    order = (*spec.PROFILES, *spec.EXTENSIONS)
    return sorted(order.index(n) for n in names)


def _table_order(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(n for n in (*spec.PROFILES, *spec.EXTENSIONS) if n in names)
