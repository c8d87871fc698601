"""Constants that break a REQUIRE rule: every input is unpredictable, and validation says so."""

from __future__ import annotations

import inspect
import re

import numpy as np
import pytest
from oracle.legal_graphs import LEGAL, graph_of

import tosajax
from tosajax import Builder, DType, validate
from tosajax.checks import RULES
from tosajax.cli import main
from tosajax.report import Verdict
from tosajax.spec import OPERATORS, RoundingMode

TABLE = "every step of table is beyond int16, expected -32768 to 32767"
LEAST = -(2**31)


def found(graph: tosajax.Graph) -> list[tuple[str, str]]:
    report = validate(graph)
    assert all(f.verdict is Verdict.UNPREDICTABLE for f in report.findings)
    assert all(f.node == graph.nodes[-1].title for f in report.findings)
    return [(f.label, f.message) for f in report.findings]


def of(op: str, **changes) -> list[tuple[str, str]]:
    return found(graph_of(op, LEGAL[op] | changes))


@pytest.mark.parametrize("shift", [-128, -1, 0, 63, 64, 127])
def test_shift_of_mul(shift):
    for mode, others in (("signed 32", True), ("signed 8", False), ("fp32", False)):
        wanted = []
        if not 0 <= shift <= 63:
            wanted.append(("mul.r1", f"shift is {shift}, expected 0 to 63"))
        if shift and not others:
            name = {"signed 8": "int8", "fp32": "float32"}[mode]
            wanted.append(("mul.r2", f"shift is {shift}, expected 0 for {name}"))
        assert of("MUL", types=mode, shift=np.array([shift], np.int8)) == wanted


@pytest.mark.parametrize("shift", [-128, -1, 1, 2, 62, 63, 127])
def test_shift_of_rescale(shift):
    wanted = [("rescale.r2", f"shift is {shift}, expected 2 to 62")]
    assert of("RESCALE", shift=np.full(1, shift)) == ([] if 2 <= shift <= 62 else wanted)


def test_one_channel_of_rescale():
    channels = {"per_channel": True, "shift": np.array([2, 63, 1])}
    multiplier = np.array([0, 1, -1], np.int32)
    assert of("RESCALE", **channels, multiplier=multiplier) == [
        ("rescale.r1", "multiplier is -1 at [2], expected 0 or more"),
        ("rescale.r2", "shift is 63 at [1], expected 2 to 62"),
    ]


@pytest.mark.parametrize("bits", [8, 16, 32])
@pytest.mark.parametrize(
    "op", ["ARITHMETIC_RIGHT_SHIFT", "LOGICAL_LEFT_SHIFT", "LOGICAL_RIGHT_SHIFT"]
)
def test_shifts(op, bits):
    for amount in (-1, 0, bits - 1, bits):
        values = np.zeros(LEGAL[op]["input2"], np.int32)
        values.flat[-1] = amount
        place = [n - 1 for n in values.shape]
        wanted = f"input2 is {amount} at {place}, expected 0 to {bits - 1}"
        legal = 0 <= amount < bits
        found = of(op, types=f"signed {bits}", input2=values)
        assert found == ([] if legal else [(f"{op.lower()}.r1", wanted)])


INDICES = [
    ([[0, 1], [1, 0]], []),
    ([[0, 1], [1, 3]], [("r1", "indices is 3 at [1, 1], expected 0 to 2")]),
    ([[-1, 1], [1, 0]], [("r1", "indices is -1 at [0, 0], expected 0 to 2")]),
]


@pytest.mark.parametrize(("indices", "wanted"), INDICES)
@pytest.mark.parametrize("op", ["GATHER", "SCATTER"])
def test_indices(op, indices, wanted):
    assert indexed(op, np.array(indices, np.int32)) == wanted


def indexed(op: str, indices) -> list[tuple[str, str]]:
    """Findings of indices, or of their shape, into 2 batches of 3 elements."""
    b = Builder()
    shape = indices if isinstance(indices, tuple) else indices.shape
    values = b.input("values", DType.INT8, (2, 3, 1))
    operand = (
        b.input("indices", DType.INT32, shape)
        if isinstance(indices, tuple)
        else b.const(indices, DType.INT32)
    )
    more = [b.input("input", DType.INT8, (*shape, 1))] if op == "SCATTER" else []
    graph = b.graph([b.op(op, values, operand, *more)])
    return [(label.removeprefix(f"{op.lower()}."), text) for label, text in found(graph)]


def test_scatter_to_one_place_twice():
    repeated = np.array([[0, 1, 2], [2, 1, 2]], np.int32)
    wanted = "indices is 2 at [1, 2], expected each index once in a batch"
    assert indexed("SCATTER", repeated) == [("r2", wanted)]
    assert indexed("GATHER", repeated) == []


@pytest.mark.parametrize("width", [1, 3, 4])
def test_scatter_of_more_rows_than_there_are(width):
    wanted = "indices has W 4, expected at most 3, K of values_in: each index occurs once"
    assert indexed("SCATTER", (2, width)) == ([("r2", wanted)] if width > 3 else [])
    constant = np.arange(2 * width, dtype=np.int32).reshape(2, width) % 3
    assert indexed("SCATTER", constant) == ([("r2", wanted)] if width > 3 else [])
    assert indexed("GATHER", (2, width)) == []


@pytest.mark.parametrize("divisor", [-1, 0, 1])
def test_division_by_a_constant(divisor):
    b = Builder()
    x = b.input("x", DType.INT32, (2,))
    y = b.op("INTDIV", x, b.const([1, divisor], DType.INT32))
    wanted = [("intdiv.r1", "input2 is 0 at [1], expected a divisor other than 0")]
    assert found(b.graph([y])) == ([] if divisor else wanted)


@pytest.mark.parametrize(
    ("base", "exponent", "wanted"),
    [
        (None, 2.0, []),
        (None, -np.inf, ["pow.r4"]),
        (None, np.nan, ["pow.r3", "pow.r4"]),
        (2.0, None, []),
        (0.0, None, []),
        (-0.0, None, []),
        (-1e-45, None, ["pow.r1"]),
        (np.nan, None, ["pow.r1", "pow.r3", "pow.r4"]),
    ],
)
def test_pow(base, exponent, wanted):
    b = Builder()
    operands = [
        b.input(name, DType.FP32, (1,)) if value is None else b.const([value], DType.FP32)
        for name, value in (("base", base), ("exponent", exponent))
    ]
    labels = [label for label, _ in found(b.graph([b.op("POW", *operands)]))]
    assert labels == wanted


@pytest.mark.parametrize("value", [LEAST, LEAST + 1])
def test_a_constant_without_an_absolute_value(value):
    b = Builder()
    graph = b.graph([b.op("ABS", b.const([0, value], DType.INT32))])
    wanted = [("abs.r1", f"input1 is {LEAST} at [1], expected more than {LEAST}")]
    assert found(graph) == (wanted if value == LEAST else [])


@pytest.mark.parametrize("jump", [32768, 32769])
def test_a_table_without_a_legal_step(jump):
    values = np.where(np.arange(513) % 2, jump - 16384, -16384)
    assert of("TABLE", types="signed 16", table=values) == (
        [("table.r1", TABLE)] if jump > 32768 else []
    )
    values[0] = values[1]  # one legal step: some input is predictable
    assert of("TABLE", types="signed 16", table=values) == []


def test_nan_to_an_integer():
    b = Builder()
    y = b.op("CAST", b.const([0, np.nan], DType.FP32), dtype=DType.INT8)
    wanted = "input is nan at [1], expected a number, to be INT8"
    assert found(b.graph([y])) == [("cast.r1", wanted)]
    b = Builder()
    y = b.op("CAST", b.const([0, np.nan], DType.FP32), dtype=DType.FP16)
    assert found(b.graph([y])) == []


INT32 = "-2147483648 to 2147483647"
ONE, ZERO = np.ones(1, np.int32), np.zeros(1, np.int32)
MOST, LONG = ONE * (2**31 - 1), 2**31 // 255**2 + 1
RESCALE = {"scale32": True, "rounding_mode": RoundingMode.SINGLE_ROUND, "per_channel": False}
RESCALE |= {"input_unsigned": False, "output_unsigned": False}
STEEP = np.where(np.arange(513) < 512, 0, 32767).astype(np.int16)
STEEP[511] = -1


def int32(*values) -> list[tuple[np.ndarray, DType]]:
    return [(np.asarray(value, np.int32), DType.INT32) for value in values]


def scaled(value: int, shift: int, *, scale32: bool = True, zero: int = 0, factor: int = 2**14):
    """RESCALE of an int32 to int8."""
    multiplier = DType.INT32 if scale32 else DType.INT16
    operands = [*int32([value]), ([factor], multiplier), ([shift], DType.INT8), *int32([0])]
    return "RESCALE", [*operands, ([zero], DType.INT8)], RESCALE | {"scale32": scale32}


# By label: a node of constants that breaks the rule, one that is just legal, and the message.
OF_CONSTANTS = {
    "abs.r1": (
        ("ABS", int32([LEAST]), {}),
        ("ABS", int32([LEAST + 1]), {}),
        f"input1 is {LEAST}, expected more than {LEAST}",
    ),
    "add.r1": (
        ("ADD", int32(MOST, ONE), {}),
        ("ADD", int32(MOST, ZERO), {}),
        f"input1 + input2 is 2147483648, expected {INT32}",
    ),
    "sub.r1": (
        ("SUB", int32([[0, LEAST]], [[1]]), {}),
        ("SUB", int32([[0, LEAST + 1]], [[1]]), {}),
        f"input1 - input2 is -2147483649 at [0, 1], expected {INT32}",
    ),
    "intdiv.r1": (
        ("INTDIV", int32(ONE, ZERO), {}),
        ("INTDIV", int32(ONE, -ONE), {}),
        "input2 is 0, expected a divisor other than 0",
    ),
    "intdiv.r2": (
        ("INTDIV", int32([LEAST], -ONE), {}),
        ("INTDIV", int32([LEAST + 1], -ONE), {}),
        f"input1 / input2 is 2147483648, expected {INT32}",
    ),
    "mul.r1": (
        ("MUL", [*int32(ONE, ONE), (ONE * 64, DType.INT8)], {}),
        ("MUL", [*int32(ONE, ONE), (ONE * 63, DType.INT8)], {}),
        "shift is 64, expected 0 to 63",
    ),
    "mul.r2": (
        ("MUL", [(ONE, DType.INT8), (ONE, DType.INT8), (ONE, DType.INT8)], {}),
        ("MUL", [(ONE, DType.INT8), (ONE, DType.INT8), (ZERO, DType.INT8)], {}),
        "shift is 1, expected 0 for int8",
    ),
    "mul.r3": (
        ("MUL", [*int32([-(2**16)], [2**16 + 1]), (ONE, DType.INT8)], {}),
        ("MUL", [*int32([-(2**16)], [2**16]), (ONE, DType.INT8)], {}),
        f"input1 * input2 / 2**shift is -2147516416, expected {INT32}",
    ),
    "pow.r1": (
        ("POW", [(-ONE, DType.FP32), (ONE, DType.FP32)], {}),
        ("POW", [(-ZERO, DType.FP32), (ONE, DType.FP32)], {}),
        "input1 is -1.0, expected 0 or more",
    ),
    "pow.r2": (
        ("POW", [(ZERO, DType.FP32), (-ONE, DType.FP32)], {}),
        ("POW", [(np.array([1e-45]), DType.FP32), (-ONE, DType.FP32)], {}),
        "the larger operand is 0.0, expected more than 0",
    ),
    "pow.r3": (
        ("POW", [(ONE, DType.FP16), ([np.nan], DType.FP16)], {}),
        ("POW", [(ONE, DType.FP16), ([-65504], DType.FP16)], {}),
        "input2 is nan, expected a number",
    ),
    "pow.r4": (
        ("POW", [(ONE, DType.BF16), ([-np.inf], DType.BF16)], {}),
        ("POW", [(ONE, DType.BF16), (-ONE, DType.BF16)], {}),
        "input2 is -inf, expected a finite number",
    ),
    "table.r1": (
        ("TABLE", [([0, 32767], DType.INT16), (STEEP, DType.INT16)], {}),
        ("TABLE", [([0, 32639], DType.INT16), (STEEP, DType.INT16)], {}),
        "the step of table at input1 is 32768 at [1], expected -32768 to 32767",
    ),
    "negate.r2": (
        ("NEGATE", int32([1, LEAST], ZERO, ZERO), {}),
        ("NEGATE", int32([1, LEAST + 1], ZERO, ZERO), {}),
        f"input1 is {LEAST} at [1], expected more than {LEAST}",
    ),
    **{
        f"{op.lower()}.r1": (
            (op, int32(ONE, ONE * 32), more),
            (op, int32(ONE, ONE * 31), more),
            "input2 is 32, expected 0 to 31",
        )
        for op, more in (
            ("ARITHMETIC_RIGHT_SHIFT", {"round": False}),
            ("LOGICAL_LEFT_SHIFT", {}),
            ("LOGICAL_RIGHT_SHIFT", {}),
        )
    },
    "reduce_sum.r1": (
        ("REDUCE_SUM", int32([[1, LEAST], [2, -1]]), {"axis": 0}),
        ("REDUCE_SUM", int32([[1, LEAST], [2, 0]]), {"axis": 0}),
        f"the sum of input is -2147483649 at [0, 1], expected {INT32}",
    ),
    "matmul.r1": (
        ("MATMUL", [(np.full((1, 1, LONG), 127), DType.INT8)], {}),
        ("MATMUL", [(np.full((1, 1, LONG - 1), 127), DType.INT8)], {}),
        f"the sum of products is {255**2 * LONG}, expected {INT32}",
    ),
    "matmul_t.r1": (
        ("MATMUL_T", [(np.full((1, 1, LONG), 127), DType.INT8)], {}),
        ("MATMUL_T", [(np.full((1, 1, LONG - 1), 127), DType.INT8)], {}),
        f"the sum of products is {255**2 * LONG}, expected {INT32}",
    ),
    "cast.r1": (
        ("CAST", [([np.nan], DType.FP32)], {"dtype": DType.INT8}),
        ("CAST", [([np.inf], DType.FP32)], {"dtype": DType.INT8}),
        "input is nan, expected a number, to be INT8",
    ),
    "gather.r1": (
        ("GATHER", [(np.ones((1, 3, 1)), DType.INT8), *int32([[3]])], {}),
        ("GATHER", [(np.ones((1, 3, 1)), DType.INT8), *int32([[2]])], {}),
        "indices is 3, expected 0 to 2",
    ),
    "scatter.r1": (
        ("SCATTER", [(np.ones((1, 3, 1)), DType.INT8), *int32([[-1]])], {}),
        ("SCATTER", [(np.ones((1, 3, 1)), DType.INT8), *int32([[0]])], {}),
        "indices is -1, expected 0 to 2",
    ),
    "scatter.r2": (
        ("SCATTER", [(np.ones((1, 3, 1)), DType.INT8), *int32([[1, 1]])], {}),
        ("SCATTER", [(np.ones((1, 3, 1)), DType.INT8), *int32([[1, 0]])], {}),
        "indices is 1 at [0, 1], expected each index once in a batch",
    ),
    "rescale.r1": (
        scaled(1, 9, factor=-1),
        scaled(1, 9, factor=0),
        "multiplier is -1, expected 0 or more",
    ),
    "rescale.r2": (scaled(0, 63), scaled(0, 62), "shift is 63, expected 2 to 62"),
    "rescale.r3": (
        scaled(2**15, 16),
        scaled(-(2**15), 16),
        "input - input_zp is 32768, expected -2**(shift - 1) to 2**(shift - 1) - 1",
    ),
    "rescale.r4": (
        scaled(2**31 - 1, 14, scale32=False, zero=1),
        scaled(2**31 - 1, 14, scale32=False, zero=0),
        f"the scaled value + output_zp is 2147483648, expected {INT32}",
    ),
}
# Rules that constants cannot break, with the reason.
OTHERS = {
    **dict.fromkeys(("clamp.r1", "clamp.r2"), "the bounds are attributes: errors e1 and e2"),
    **dict.fromkeys(("negate.r1", "negate.r3"), "zero points of int32 must be 0: errors e1, e2"),
    "avg_pool2d.r1": "a sum of constants alone, of 65,536 elements or more: left to the flags",
    **{
        f"{op}.{rule}": "a convolution of constants alone: left to the flags of a run"
        for op in ("conv2d", "conv3d", "depthwise_conv2d", "transpose_conv2d")
        for rule in ("r1", "r2")
    },
}


def node_of_constants(op: str, operands: list, attributes: dict) -> tosajax.Graph:
    b = Builder()
    inputs = [b.const(*operand) for operand in operands]
    if op in ("MATMUL", "MATMUL_T"):
        column = (1, -1, 1) if op == "MATMUL" else (1, 1, -1)
        inputs += [b.const(np.reshape(operands[0][0], column), DType.INT8)]
        inputs += [b.const([-128], DType.INT8)] * 2
    if op == "SCATTER":
        inputs += [b.const(np.ones((*np.shape(operands[1][0]), 1)), DType.INT8)]
    return b.graph([b.op(op, *inputs, **attributes)])


def test_each_rule_on_values_is_one_of_constants_or_has_a_reason():
    """The labels in the words of the functions that find them in a run."""
    labels = {
        f"{operator.name.lower()}.{rule}"
        for operator in OPERATORS.values()
        if RULES[operator.name].require is not None
        for rule in re.findall(r"\br\d\b", inspect.getdoc(RULES[operator.name].require) or "")
    }
    assert len(labels) > 30
    assert labels == OF_CONSTANTS.keys() | OTHERS.keys()
    assert not OF_CONSTANTS.keys() & OTHERS.keys()


@pytest.mark.parametrize("label", OF_CONSTANTS)
def test_constants_break_the_rule_as_values_of_a_run_do(label):
    broken, legal, message = OF_CONSTANTS[label]
    graph = node_of_constants(*broken)
    assert (label, message) in found(graph)
    assert found(node_of_constants(*legal)) == []
    run = tosajax.compile(graph, report_unpredictable=True)
    _, flags = run()
    assert {rule for (_, rule), flag in flags.items() if flag} == {name for name, _ in found(graph)}


def test_a_rescale_by_16_bits_beyond_int32():
    graph = node_of_constants(*scaled(-(2**30) - 1, 13, scale32=False))
    message = f"(input - input_zp) * multiplier / 2**shift is -2147483650, expected {INT32}"
    assert found(graph) == [("rescale.r3", message)]
    assert found(node_of_constants(*scaled(-(2**30), 13, scale32=False))) == []


def test_channels_of_a_rescale_have_their_own_limits():
    op, (_, _, _, *zeros), attributes = scaled(0, 2)
    operands = [*int32([[4, 4, 4]], [1, 1, -1]), ([4, 3, 2], DType.INT8), *zeros]
    graph = node_of_constants(op, operands, attributes | {"per_channel": True})
    assert found(graph) == [
        ("rescale.r1", "multiplier is -1 at [2], expected 0 or more"),
        (
            "rescale.r3",
            "input - input_zp is 4 at [0, 1], expected -2**(shift - 1) to 2**(shift - 1) - 1",
        ),
    ]


def test_operands_that_do_not_fit_are_an_error_alone():
    b = Builder()
    x, y = b.const(MOST.repeat(2), DType.INT32), b.const(ONE.repeat(3), DType.INT32)
    report = validate(b.graph([b.op("ADD", x, y, shape=(2,))]))
    assert [f.label for f in report.findings] == ["add.e1"]
    b = Builder()
    graph = b.graph([b.op("REDUCE_SUM", b.const(MOST, DType.INT32), axis=1, shape=(1,))])
    assert [f.label for f in validate(graph).findings] == ["reduce_sum.e1"]


@pytest.mark.parametrize("op", ["ADD", "SUB", "INTDIV"])
def test_one_operand_that_is_an_input_may_be_legal(op):
    for first in (True, False):
        b = Builder()
        x, least = b.input("x", DType.INT32, (1,)), b.const([LEAST], DType.INT32)
        assert found(b.graph([b.op(op, *((x, least) if first else (least, x)))])) == []


def test_the_command_says_so(tmp_path, capsys):
    graph = graph_of("MUL", LEGAL["MUL"] | {"types": "signed 32", "shift": np.array([64])})
    tosajax.save(graph, tmp_path / "m.tosa")
    assert main(["check", str(tmp_path / "m.tosa")]) == 0
    first, last = capsys.readouterr().out.splitlines()
    assert first.startswith("UNPREDICTABLE: MUL ")
    assert first.endswith("shift is 64, expected 0 to 63 [mul.r1]")
    assert last.endswith("m.tosa: UNPREDICTABLE (0 errors, 1 unpredictable)")


def test_it_still_compiles_and_runs():
    graph = graph_of("MUL", LEGAL["MUL"] | {"types": "signed 32", "shift": np.array([64])})
    run = tosajax.compile(graph, report_unpredictable=True)
    assert run.report is not None
    assert run.report.verdict is Verdict.UNPREDICTABLE
    inputs = [np.ones(t.shape or (), t.dtype.storage) for t in graph.input_tensors]
    _, flags = run(*inputs)
    assert [rule for (_, rule), flag in flags.items() if flag] == ["mul.r1"]
