"""Limits of levels: at each limit a graph is valid, one beyond it unpredictable, in both levels.

The rules' own tests are in tests/checks; here whole graphs go through `validate`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from oracle.legal_graphs import LEGAL, OPERATORS, legal_graph

from tosajax import Builder, DType, Graph, Target, Verdict, spec, validate
from tosajax.checks import RULES, Call
from tosajax.spec import Form, LevelBound

LEVELS = {name: Target.everything(name) for name in spec.LEVELS}

# The smallest graphs: one element everywhere, one position of a window.
PLANE = {"input": (1, 1, 1, 1), "bias": (1,), "pad": (0,) * 4, "stride": (1, 1)}
SMALLEST: dict[str, dict[str, Any]] = {
    "CONV2D": PLANE | {"weight": (1, 1, 1, 1), "dilation": (1, 1)},
    "DEPTHWISE_CONV2D": PLANE | {"weight": (1, 1, 1, 1), "dilation": (1, 1)},
    "CONV3D": {
        "input": (1,) * 5,
        "weight": (1,) * 5,
        "bias": (1,),
        "pad": (0,) * 6,
        "stride": (1,) * 3,
        "dilation": (1,) * 3,
    },
    "TRANSPOSE_CONV2D": PLANE | {"weight": (1, 1, 1, 1), "out_pad": (0,) * 4},
    "AVG_POOL2D": PLANE | {"kernel": (1, 1)},
    "MAX_POOL2D": PLANE | {"kernel": (1, 1)},
    "RESIZE": {
        "input": (1, 1, 1, 1),
        "scale": [1, 1, 1, 1],
        "offset": [0, 0],
        "border": [0, 0],
    },
    "CONCAT": {"axis": 0},
    "FFT2D": {},
    "RFFT2D": {},
}


def _at(values: tuple[int, ...] | list[int], position: int, value: int) -> Any:
    """The values with another one at a position."""
    return type(values)(value if i == position else v for i, v in enumerate(values))


def _sized(op: str, name: str, axis: int) -> Callable[[int], dict[str, Any]]:
    """n at an axis of a shape or list, and an input that is as large there."""
    start = SMALLEST[op]

    def change(n: int) -> dict[str, Any]:
        plane = _at(start["input"], 1 + axis, n)
        where = axis + (1 if name == "weight" and op != "DEPTHWISE_CONV2D" else 0)
        return {name: _at(start[name], where, n), "input": plane}

    return change


def _dilated(op: str, axis: int) -> Callable[[int], dict[str, Any]]:
    """A kernel of one tap in each dimension, n times dilated."""
    return lambda n: {"dilation": _at(SMALLEST[op]["dilation"], axis, n)}


def _stride(op: str, axis: int) -> Callable[[int], dict[str, Any]]:
    """Two positions, n apart."""
    start = SMALLEST[op]
    size = 2 if op == "TRANSPOSE_CONV2D" else None
    return lambda n: {
        "stride": _at(start["stride"], axis, n),
        "input": _at(start["input"], 1 + axis, size or n + 1),
    }


def _listed(op: str, name: str, position: int) -> Callable[[int], dict[str, Any]]:
    return lambda n: {name: _at(SMALLEST[op][name], position, n)}


def _pool_pad(op: str, position: int) -> Callable[[int], dict[str, Any]]:
    """Padding is less than the kernel."""
    axis = position // 2
    return lambda n: {
        "pad": _at((0,) * 4, position, n),
        "kernel": _at((1, 1), axis, n + 1),
    }


def _plane(op: str, axis: int) -> Callable[[int], dict[str, Any]]:
    """The power of two that is nearest, from the side that n is on."""

    def change(n: int) -> dict[str, Any]:
        size = 1 << (n.bit_length() - 1)
        size = size if n.bit_count() == 1 or n == spec.LEVELS["none"].MAX_KERNEL else 2 * size
        shape = _at((1, 1, 1), 1 + axis, size)
        return {"input_real": shape} | ({"input_imag": shape} if op == "FFT2D" else {})

    return change


def _scale(axis: int) -> Callable[[int], dict[str, Any]]:
    return lambda n: {"scale": _at([1, 1, 1, 1], 2 * axis, n)}


def _dimensions(op: str) -> tuple[int, ...]:
    return tuple(range(len(SMALLEST[op]["stride"])))


KERNEL, STRIDE = "MAX_KERNEL", "MAX_STRIDE"


def _of_stride(op: str, axis: int) -> int:
    """The number of the rule on a stride: that of the depth is last."""
    dims = len(_dimensions(op))
    return 3 * dims + (dims if dims == 3 and axis == 0 else axis + (dims == 2))


# (operator, numbers of the rules that break, bound, arguments by size)
Case = tuple[str, tuple[str, ...], str, Callable[[int], dict[str, Any]]]


def _case(op: str, bound: str, change: Callable, *numbers: int) -> Case:
    return op, tuple(f"l{number}" for number in numbers), bound, change


def _convolution(op: str) -> Iterator[Case]:
    dims = _dimensions(op)
    for d in dims:
        yield _case(op, KERNEL, _sized(op, "weight", d), 1 + d)
        yield _case(op, KERNEL, _dilated(op, d), 1 + d)
        yield _case(op, STRIDE, _stride(op, d), _of_stride(op, d))
    for p in range(2 * len(dims)):
        yield _case(op, KERNEL, _listed(op, "pad", p), 1 + len(dims) + p)


def _transpose_convolution(op: str) -> Iterator[Case]:
    for d in (0, 1):
        yield _case(op, KERNEL, _sized(op, "weight", d), 1 + d)
        yield _case(op, STRIDE, _stride(op, d), 7 + d)
    for p in range(4):
        yield _case(op, KERNEL, _listed(op, "out_pad", p), 3 + p)


def _pool(op: str) -> Iterator[Case]:
    for d in (0, 1):
        yield _case(op, KERNEL, _sized(op, "kernel", d), 1 + d)
        yield _case(op, STRIDE, _stride(op, d), 3 + d)
    for p in range(4):
        yield _case(op, KERNEL, _pool_pad(op, p), 5 + p, 1 + p // 2)


CASES = [
    *(case for op in ("CONV2D", "DEPTHWISE_CONV2D", "CONV3D") for case in _convolution(op)),
    *_transpose_convolution("TRANSPOSE_CONV2D"),
    *(case for op in ("AVG_POOL2D", "MAX_POOL2D") for case in _pool(op)),
    *(_case(op, KERNEL, _plane(op, d), 1 + d) for op in ("FFT2D", "RFFT2D") for d in (0, 1)),
    *(_case("RESIZE", "MAX_SCALE", _scale(d), 1 + d) for d in (0, 1)),
    _case("CONCAT", "MAX_TENSOR_LIST_SIZE", lambda n: {"input1": [(1, 2)] * n}, 1),
]


def _graph(op: str, change: dict[str, Any]) -> Graph:
    """A graph of the first type row, its output as the operator's shape rule has it."""
    operator = spec.OPERATORS[op]
    changes = SMALLEST[op] | change
    graph = legal_graph(operator, operator.types[0], **changes)
    rule = RULES[op].shape
    assert rule is not None
    shapes = rule(Call(graph.nodes[-1], graph.tensors))
    outputs = {a.name: shape for a, shape in zip(operator.outputs, shapes, strict=True)}
    return legal_graph(operator, operator.types[0], **changes, **outputs)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    ("op", "rules", "bound", "change"), CASES, ids=[f"{c[0]}-{c[1][0]}" for c in CASES]
)
def test_limit(op, rules, bound, change, level):
    target, most = LEVELS[level], getattr(spec.LEVELS[level], bound)
    # A pad of a pool is below a kernel that has the same limit.
    inside = validate(_graph(op, change(most - len(rules) + 1)), target)
    assert inside.findings == ()
    assert inside.verdict is Verdict.VALID
    if op == "RESIZE" and level == "none":
        return  # larger numerators are errors
    beyond = validate(_graph(op, change(most + 1)), target)
    assert {f.label for f in beyond.findings} == {f"{op.lower()}.{rule}" for rule in rules}
    assert beyond.verdict is Verdict.UNPREDICTABLE
    beyond.raise_errors()
    if level == "8K":
        assert validate(_graph(op, change(most + 1)), LEVELS["none"]).findings == ()


def test_every_rule_on_a_level_is_here():
    tested = {(op, rule) for op, rules, _, _ in CASES for rule in rules}
    counts = {op: sum(1 for o, _ in tested if o == op) for op in SMALLEST}
    assert counts.keys() == {op.name for op in OPERATORS if RULES[op.name].levels}
    for op, count in counts.items():
        assert {rule for o, rule in tested if o == op} == {f"l{1 + i}" for i in range(count)}


# Arguments whose rank only the level bounds.
RANKED = [
    (operator, argument)
    for operator in OPERATORS
    for argument in operator.arguments
    if argument.rank is not None
    and isinstance(argument.rank.maximum, LevelBound)
    and argument.form is Form.TENSOR
]


def _ranked(operator: spec.Operator, rank: int) -> Graph:
    """A legal graph, but for ranks: the first tensor has this one, and all that follow it."""
    ones, name = (1,) * rank, operator.name
    changes: dict[str, Any] = {}
    for argument in operator.inputs:
        if any(argument is ranked for _, ranked in RANKED):
            changes[argument.name] = ones
    changes[operator.outputs[0].name] = ones
    lists = {
        "PAD": {"padding": [0] * 2 * rank},
        "RESHAPE": {"shape": [1] * rank},
        "SLICE": {"start": [0] * rank, "size": [1] * rank},
        "TILE": {"multiples": [1] * rank},
        "TRANSPOSE": {"perms": tuple(range(rank))},
        "ARGMAX": {"axis": 0, "output": (1,) * (rank - 1)},
        "CONCAT": {"axis": 0, "input1": [ones]},
    }
    axis = {"axis": 0} if "axis" in LEGAL[name] else {}
    return legal_graph(operator, operator.types[0], **(changes | axis | lists.get(name, {})))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    "operator",
    [o for o in OPERATORS if o.name in LEGAL and any(o is operator for operator, _ in RANKED)],
    ids=lambda o: o.name,
)
def test_rank(operator, level):
    """A rank beyond the level is an error, as the conformance suite has it."""
    target, most = LEVELS[level], spec.LEVELS[level].MAX_RANK
    assert validate(_ranked(operator, most), target).findings == ()
    report = validate(_ranked(operator, most + 1), target)
    assert f"{operator.name.lower()}.rank" in {f.label for f in report.errors}
    assert report.verdict is Verdict.ERROR


@pytest.mark.parametrize(
    ("dtype", "size"),
    [
        (DType.BOOL, 1),
        (DType.INT8, 1),
        (DType.INT4, 1),
        (DType.BF16, 2),
        (DType.INT32, 4),
        (DType.INT48, 6),
        (DType.FP8E5M2, 1),
    ],
)
def test_size_of_tensors(dtype, size):
    """Bytes of a tensor are below 2**31, an element having one at least."""
    limit = (2**31 - 1) // size
    for count, verdict in ((limit, Verdict.VALID), (limit + 1, Verdict.UNPREDICTABLE)):
        b = Builder()
        x = b.input("x", dtype, (count,))
        graph = b.graph(outputs=[b.op("IDENTITY", x)])
        report = validate(graph)
        assert report.verdict is verdict
        assert {f.label for f in report.findings} <= {"tensor.size"}
        assert validate(graph, LEVELS["none"]).verdict is Verdict.VALID


def test_size_of_tensors_without_a_level():
    for exponents, verdict in (((31, 31), Verdict.VALID), ((32, 31), Verdict.UNPREDICTABLE)):
        b = Builder()
        x = b.input("x", DType.INT8, tuple(2**n for n in exponents))
        graph = b.graph(outputs=[b.op("IDENTITY", x)])
        assert validate(graph, LEVELS["none"]).verdict is verdict
