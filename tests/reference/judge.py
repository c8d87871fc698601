"""Compares the results of tosajax and of Arm's model for one graph.

Tensors computed from integers alone must be equal in the whole graph. Errors of floats would add up
along the graph, so every other node is judged by itself: Arm's model computes it in float64 on the
operands of tosajax, and the result must be within the bound of its operator.
"""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
from oracle import elementwise_oracle as elementwise
from oracle import float_bounds
from oracle.matmul_oracle import check_dot_product
from oracle.transforms import assert_identical

import tosajax
from reference import arm
from reference.growth import Case
from tosajax import DType, Graph, Node, Tensor, spec
from tosajax.checks import Call
from tosajax.spec import ResizeMode, RoundingMode

Arrays = dict[str, np.ndarray]

# Allowed errors by operator; other operators are exact.
_BOUNDS: dict[str, Callable[..., np.ndarray]] = {
    "ADD": elementwise.units(0.5),
    "CAST": elementwise.units(0.5),
    "COS": elementwise.cos_bound,
    "ERF": elementwise.units(5),
    "EXP": elementwise.exp_bound,
    "LOG": elementwise.log_bound,
    "MUL": elementwise.units(0.5),
    "POW": elementwise.pow_bound,
    "RECIPROCAL": elementwise.units(1),
    "RSQRT": elementwise.units(2),
    "SIGMOID": elementwise.sigmoid_bound,
    "SIN": elementwise.sin_bound,
    "SUB": elementwise.units(0.5),
    "TANH": elementwise.tanh_bound,
}
# Operators that move elements keep every bit, also of subnormals and signed zeros.
_MOVING = ("data_layout", "data_nodes", "scatter_gather", "elementwise_ternary")
_DOT_PRODUCTS = ("conv", "fft", "products")


class Kind(enum.Enum):
    """The subject of a disagreement."""

    RESULT = "results differ"
    ONLY_TOSAJAX = "only tosajax rejects"
    ONLY_ARM = "only Arm's model rejects"
    FAILURE = "tosajax fails"


class Difference(NamedTuple):
    """One disagreement: its text, and the node, None for the whole graph."""

    kind: Kind
    why: str
    node: Node | None = None


class Verdict(NamedTuple):
    """The result of a case; a graph that Arm's model rejects has nothing to compare."""

    status: arm.Status
    differences: list[Difference]


def judge(case: Case) -> Verdict:
    """Compares every tensor of a legal graph, all of which are its outputs."""
    theirs = arm.run(case.graph, case.inputs)
    values, findings = _try(case)
    if values is None:
        return Verdict(theirs.status, findings)
    return Verdict(theirs.status, _disagreements(case.graph, values, theirs))


def judge_ends(case: Case) -> list[Difference]:
    """Compares a graph whose outputs no node reads with one that outputs every tensor.

    The fewer outputs a program has, the more XLA fuses.
    """
    read = {name for node in case.graph.nodes for name in node.inputs}
    ends = tuple(name for name in case.graph.outputs if name not in read)
    values, alone = run(case), run(Case(dataclasses.replace(case.graph, outputs=ends), case.inputs))
    writer = {name: node for node in case.graph.nodes for name in node.outputs}
    found = ((writer[n], _message(assert_identical, alone[n], values[n])) for n in ends)
    return [_differs(node, f"without the tensors before it: {why}") for node, why in found if why]


def judge_edited(case: Case) -> Verdict:
    """Compares a graph that may be illegal: both must reject it, or accept it and agree."""
    values, findings = _try(case)
    try:
        theirs = arm.run(case.graph, case.inputs)
    except (ValueError, OverflowError) as error:
        # No file can hold this graph; tosajax must reject it.
        rejected = Difference(Kind.ONLY_ARM, f"no file holds the graph: {error}")
        return Verdict(arm.Status.ERROR, [rejected] if values is not None else _failures(findings))
    if values is not None:
        return Verdict(theirs.status, _disagreements(case.graph, values, theirs))
    accepted = theirs.status in (arm.Status.VALID, arm.Status.UNPREDICTABLE)
    return Verdict(theirs.status, findings if accepted else _failures(findings))


def _try(case: Case) -> tuple[Arrays | None, list[Difference]]:
    """Every tensor of a case, or the reason why there is none."""
    try:
        return run(case), []
    except tosajax.TosaError as error:
        found = (f"{f.label}: {f.message}" for f in error.report.errors)
        return None, [Difference(Kind.ONLY_TOSAJAX, why) for why in dict.fromkeys(found)]
    except Exception as error:
        # A rule should have caught this before.
        return None, [Difference(Kind.FAILURE, f"{type(error).__name__}: {error}")]


def _failures(found: list[Difference]) -> list[Difference]:
    """Faults that count even if both reject a graph."""
    return [d for d in found if d.kind is Kind.FAILURE]


def _disagreements(graph: Graph, values: Arrays, theirs: arm.Outcome) -> list[Difference]:
    """Differences from results of Arm's model; none if it calls them unpredictable."""
    if theirs.status is arm.Status.UNPREDICTABLE:
        return []
    if theirs.status is not arm.Status.VALID:
        why = f"{theirs.status.name}: {theirs.message}"
        if theirs.status is arm.Status.ERROR and _has_open_zero_point(graph):
            why = f"with a run-time zero point, {why}"
        return [Difference(Kind.ONLY_ARM, why)]
    exact = exact_tensors(graph)
    unequal = _unequal(graph, exact, values, theirs.outputs)
    return [*unequal, *_out_of_bounds(graph, exact, values)]


def _has_open_zero_point(graph: Graph) -> bool:
    """Whether the value of a zero point is known only when the graph runs."""
    return any(
        argument.name.endswith("_zp") and graph.tensors[name].values is None
        for node in graph.nodes
        for argument, name in zip(spec.OPERATORS[node.op].inputs, node.inputs, strict=False)
    )


def run(case: Case) -> Arrays:
    """Every tensor of the case by name, as a compiled graph of tosajax computes it."""
    graph = case.graph
    results = tosajax.compile(graph)(*(case.inputs[name] for name in graph.inputs))
    constants = {n: t.values for n, t in graph.tensors.items() if t.values is not None}
    outputs = zip(graph.outputs, map(np.asarray, results), strict=True)
    return {**case.inputs, **constants, **dict(outputs)}


def exact_tensors(graph: Graph) -> set[str]:
    """The tensors that have one right value: none is computed from a float."""
    exact = set(graph.inputs)
    for node in graph.ordered_nodes():
        kinds = {graph.tensors[name].dtype.is_float for name in (*node.inputs, *node.outputs)}
        inexact = node.attributes.get("rounding_mode") is RoundingMode.INEXACT_ROUND
        constant = node.op in spec.CONSTANT_OPERATORS
        if constant or (exact.issuperset(node.inputs) and True not in kinds and not inexact):
            exact.update(node.outputs)
    return exact


def only(graph: Graph, node: Node, values: Mapping[str, np.ndarray]) -> Case:
    """A graph of one node, with its operands in another graph; constants stay constants."""
    names = dict.fromkeys(node.inputs)
    inputs = tuple(n for n in names if graph.tensors[n].values is None)
    constants = [n for n in graph.nodes if n.op in spec.CONSTANT_OPERATORS]
    nodes = (*(n for n in constants if n.outputs[0] in names), node)
    tensors = {n: graph.tensors[n] for n in (*names, *node.outputs)}
    return Case(Graph(inputs, node.outputs, tensors, nodes), {n: values[n] for n in inputs})


def _unequal(graph: Graph, exact: set[str], ours: Arrays, theirs: Arrays) -> Iterator[Difference]:
    """The first wrong node of every chain in the whole graph."""
    wrong: set[str] = set()
    for node in graph.ordered_nodes():
        if node.op in spec.CONSTANT_OPERATORS:
            continue
        for name in exact.intersection(node.outputs) & theirs.keys():
            if not _is_equal(ours[name], theirs[name]):
                if wrong.isdisjoint(node.inputs) and not _has_negative_shift(node, ours):
                    yield _differs(node, _describe(name, ours[name], theirs[name]))
                wrong.add(name)


def _has_negative_shift(node: Node, values: Arrays) -> bool:
    """Whether a MUL is unpredictable for a reason that Arm's model does not check."""
    return node.op == "MUL" and bool((values[node.inputs[-1]] < 0).any())


def _differs(node: Node | None, why: str) -> Difference:
    return Difference(Kind.RESULT, why, node)


def _is_equal(ours: np.ndarray, theirs: np.ndarray) -> bool:
    return ours.shape == theirs.shape and bool((ours == theirs).all())


def _describe(
    name: str, ours: np.ndarray, theirs: np.ndarray, wrong: np.ndarray | None = None
) -> str:
    """The wrong elements in words; by default those that are not equal."""
    if ours.shape != theirs.shape:
        return f"{name} has shape {ours.shape}, expected {theirs.shape}"
    places = np.argwhere(ours != theirs if wrong is None else wrong)
    shown = ", ".join(
        f"{ours[tuple(at)]} at {tuple(map(int, at))}, expected {theirs[tuple(at)]}"
        for at in places[:3]
    )
    return f"{name}: {len(places)} of {ours.size} wrong: {shown}"


# One node at a time.


def _out_of_bounds(graph: Graph, exact: set[str], values: Arrays) -> Iterator[Difference]:
    nodes = [
        node
        for node in graph.nodes
        if node.op not in spec.CONSTANT_OPERATORS
        and not exact.issuperset(node.outputs)
        and not _is_unchecked(Call(node, graph.tensors), values)
    ]
    # In this mode Arm's model computes bounds for floats, and lacks some integer operators.
    for bounded in (False, True):
        chosen = [node for node in nodes if _has_bounds(graph, node) is bounded]
        if chosen:
            yield from _wrong_nodes(graph, chosen, values, bounded)


def _is_unchecked(call: Call, values: Arrays) -> bool:
    """Whether an INEXACT_ROUND is unpredictable; Arm's model checks that in other modes only."""
    if call.node.attributes.get("rounding_mode") is not RoundingMode.INEXACT_ROUND:
        return False
    operands = (call.input, call.multiplier, call.shift, call.input_zp)
    value, multiplier, shift, zero_point = (values[t.name].astype(np.int64) for t in operands)
    if multiplier.min() < 0 or shift.min() < 2 or shift.max() > 62:
        return True
    value = _numbers(value, call.input.dtype, call.input_unsigned)
    value = value - _numbers(zero_point, call.input.dtype, call.input_unsigned)
    limit = np.int64(1) << (shift - 1)
    return bool(call.scale32 and np.any((value < -limit) | (value >= limit)))


def _has_bounds(graph: Graph, node: Node) -> bool:
    is_float = any(graph.tensors[n].dtype.is_float for n in (*node.inputs, *node.outputs))
    return is_float or node.attributes.get("rounding_mode") is RoundingMode.INEXACT_ROUND


def _wrong_nodes(
    graph: Graph, nodes: list[Node], values: Arrays, bounded: bool
) -> Iterator[Difference]:
    plain = side_by_side([only(graph, node, values) for node in nodes])
    flushed = side_by_side([_flushed(only(graph, node, values)) for node in nodes])
    cases = [plain] if _is_same(plain, flushed) else [plain, flushed]
    runs = [arm.run(c.graph, c.inputs, precise=bounded) for c in cases]
    for outcome in runs:
        if outcome.status is not arm.Status.VALID:
            yield _differs(None, f"node by node, {outcome.status.name}: {outcome.message}")
            return
    for number, node in enumerate(nodes):
        for name in node.outputs:
            references = [
                _reference(run, f"{number}.{name}", values[name].shape, operands)
                for run, operands in zip(runs, _operands(node, values), strict=False)
            ]
            why = _wrong(Call(node, graph.tensors), name, values[name], references)
            if why is not None:
                yield _differs(node, why)


class Reference(NamedTuple):
    """Arm's results in float64, from unchanged operands or with subnormals as 0."""

    expected: np.ndarray
    magnitude: np.ndarray  # the result for the magnitudes of the operands
    operands: list[np.ndarray]


def _reference(
    run: arm.Outcome, name: str, shape: tuple[int, ...], operands: list[np.ndarray]
) -> Reference:
    expected, magnitude = run.outputs[name], run.bounds.get(name, run.outputs[name])
    return Reference(expected.reshape(shape), magnitude.reshape(shape), operands)


def side_by_side(cases: list[Case]) -> Case:
    """One graph of several that share no tensor; each number precedes the names of its graph."""
    inputs: dict[str, np.ndarray] = {}
    outputs: list[str] = []
    tensors: dict[str, Tensor] = {}
    nodes: list[Node] = []
    for number, (graph, values) in enumerate(cases):
        name = {n: f"{number}.{n}" for n in graph.tensors}
        inputs |= {name[n]: values[n] for n in graph.inputs}
        outputs += (name[n] for n in graph.outputs)
        tensors |= {name[n]: dataclasses.replace(t, name=name[n]) for n, t in graph.tensors.items()}
        for node in graph.nodes:
            ins, outs = (tuple(name[n] for n in names) for names in (node.inputs, node.outputs))
            nodes.append(Node(node.op, ins, outs, node.attributes))
    return Case(Graph(tuple(inputs), tuple(outputs), tensors, tuple(nodes)), inputs)


def _flushed(case: Case) -> Case:
    """The case with every subnormal operand replaced by 0, where its type allows that."""
    tensors = {
        name: t if t.values is None else dataclasses.replace(t, values=_flush(t.values))
        for name, t in case.graph.tensors.items()
    }
    graph = dataclasses.replace(case.graph, tensors=tensors)
    return Case(graph, {name: _flush(x) for name, x in case.inputs.items()})


def _flush(values: np.ndarray) -> np.ndarray:
    is_float = any(values.dtype == dtype for dtype in float_bounds.FLOATS.values())
    if not is_float or not float_bounds.may_flush(values.dtype):
        return values
    return float_bounds.flush(values).astype(values.dtype)


def _is_same(plain: Case, flushed: Case) -> bool:
    return plain.graph == flushed.graph and all(
        x.tobytes() == flushed.inputs[name].tobytes() for name, x in plain.inputs.items()
    )


def _operands(node: Node, values: Arrays) -> list[list[np.ndarray]]:
    known = [values[n] for n in node.inputs if n in values]
    return [known, [_flush(x) for x in known]]


def _wrong(call: Call, name: str, result: np.ndarray, references: list[Reference]) -> str | None:
    """The fault of a result, if any; a result may fit either reference."""
    if _is_dot_product(call, result):
        return _wrong_dot_product(call, name, result, references)
    expected = references[0].expected
    if call.operator.chapter in _MOVING or call.node.op == "REVERSE":
        return _message(assert_identical, result, expected.astype(result.dtype))
    close = np.zeros(result.shape, bool)
    for reference in references:
        close |= _close(call, result, reference)
    return None if close.all() else _describe(name, result, expected, ~close)


def _message(check: Callable[..., None], *arguments, **options) -> str | None:
    try:
        check(*arguments, **options)
    except AssertionError as error:
        return str(error)
    return None


def _close(call: Call, result: np.ndarray, reference: Reference) -> np.ndarray:
    expected = reference.expected
    if call.output.dtype.is_float:
        with np.errstate(all="ignore"):
            bound = _bound(call, result.dtype, reference)
        return float_bounds.within(result, expected, bound) | _is_open(call, reference)
    if call.node.attributes.get("rounding_mode") is RoundingMode.INEXACT_ROUND:
        unsigned = call.output_unsigned
        ends = (_numbers(x, call.output.dtype, unsigned) for x in (expected, reference.magnitude))
        low, high = ends
        found = _numbers(result, call.output.dtype, unsigned)
        return (low <= found) & (found <= high)
    return result == expected


def _numbers(bits: np.ndarray, dtype: DType, unsigned: bool) -> np.ndarray:
    wide = bits.astype(np.int64)
    return wide & ((1 << dtype.bits) - 1) if unsigned else wide


def _is_open(call: Call, reference: Reference) -> np.ndarray | bool:
    """Where a partial product may leave the type's range: the order of factors is open."""
    if call.node.op != "REDUCE_PRODUCT":
        return False
    factors = np.abs(float_bounds.widen(reference.operands[0]))
    dtype = call.output.dtype.storage
    with np.errstate(all="ignore"):
        above = np.prod(np.maximum(factors, 1), call.axis, keepdims=True)
        below = np.prod(np.minimum(factors, 1), call.axis, keepdims=True, where=factors > 0)
    finite = np.isfinite(factors).all(call.axis, keepdims=True)
    outside = (above > float_bounds.normal_max(dtype)) | (below < float_bounds.normal_min(dtype))
    return finite & outside


def _bound(call: Call, dtype: np.dtype, reference: Reference) -> np.ndarray | float:
    wide = [float_bounds.widen(x) for x in reference.operands]
    op = call.node.op
    if op == "REDUCE_PRODUCT":
        growth = (1 + 2.0 ** (-float_bounds.fraction_bits(dtype) - 1)) ** _length(call) - 1
        least = float_bounds.normal_min(dtype)
        return np.maximum(np.abs(reference.expected), least) * growth
    if op == "RESIZE" and call.mode is ResizeMode.BILINEAR:
        # Two interpolations and a rounding: far stricter than the specification's 0.6%.
        largest = np.max(np.abs(wide[0]), where=np.isfinite(wide[0]), initial=0.0)
        return float_bounds.absolute_bound(dtype, largest, 1.0)
    return _BOUNDS[op](dtype, reference.expected, *wide) if op in _BOUNDS else 0.0


# Dot products.


def _is_dot_product(call: Call, result: np.ndarray) -> bool:
    adds_up = call.operator.chapter in _DOT_PRODUCTS or call.node.op in ("AVG_POOL2D", "REDUCE_SUM")
    return adds_up and result.dtype in float_bounds.FLOATS.values()


def _wrong_dot_product(
    call: Call, name: str, result: np.ndarray, references: list[Reference]
) -> str | None:
    out = next(d for d in DType if d.is_float and d.storage == result.dtype)
    for reference in references:
        why = _message(
            check_dot_product,
            _settled(call, result, reference),
            reference.expected,
            reference.magnitude,
            size=_length(call),
            out=out,
            acc=_accumulator(call, out),
            bias=call.operator.chapter == "conv",
        )
        if why is None:
            return None
    expected = references[0].expected
    with np.errstate(invalid="ignore"):
        error = np.abs(float_bounds.widen(result) - expected)
    return f"beyond the bound of dot products: {_describe(name, result, expected, error > 0)}"


def _settled(call: Call, result: np.ndarray, reference: Reference) -> np.ndarray:
    """The result, replaced by the reference where the reference leaves it open."""
    if call.operator.chapter == "fft":
        settled = _is_angle_error(result, reference)
    elif call.node.op == "AVG_POOL2D":
        # The sum before the division may leave the range of the accumulator, as in Arm's float32.
        most = float_bounds.normal_max(call.acc_type.storage)
        settled = np.isfinite(reference.magnitude) & (reference.magnitude * _length(call) > most)
    else:
        return result
    with np.errstate(all="ignore"):
        return np.where(settled, reference.expected.astype(result.dtype), result)


def _is_angle_error(result: np.ndarray, reference: Reference) -> np.ndarray:
    """Where a reference has the error of its own sines.

    In float64 the sine of a multiple of pi is not 0, so products that should vanish leave 1e-16 of
    the largest input, in the reference and in its bound.
    """
    wide = np.stack([float_bounds.widen(x) for x in reference.operands])
    with np.errstate(all="ignore"):
        total = np.abs(wide).sum((0, 2, 3)).reshape(-1, 1, 1)
        return np.abs(float_bounds.widen(result) - reference.expected) <= total * 2.0**-46


def _accumulator(call: Call, out: DType) -> DType:
    if "acc_type" in call.node.attributes:
        return call.acc_type
    # Only REDUCE_SUM adds in another type than that of its result without an attribute.
    rows = (r.types for r in call.operator.types if r.types.get("in_out_t") is out)
    found = next(rows, {}).get("acc_t", out)
    assert isinstance(found, DType)
    return found


def _length(call: Call) -> int:
    """The number of products in each element ("Floating-Point Operator Test Data")."""
    match call.node.op:
        case "CONV2D" | "CONV3D" | "TRANSPOSE_CONV2D":
            return math.prod(call.weight.shape[1:])
        case "DEPTHWISE_CONV2D":
            return math.prod(call.weight.shape[:2])
        case "AVG_POOL2D":
            return math.prod(call.kernel)
        case "MATMUL" | "MATMUL_T":
            return call.a.shape[2]
        case "FFT2D":
            return 2 * math.prod(call.input_real.shape[1:])
        case "RFFT2D":
            return math.prod(call.input_real.shape[1:])
    return call.input.shape[call.axis]
