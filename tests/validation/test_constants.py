"""Constants that break a REQUIRE rule: every input is unpredictable, and validation says so."""

from __future__ import annotations

import numpy as np
import pytest
from oracle.legal_graphs import LEGAL, graph_of

import tosajax
from tosajax import Builder, DType, validate
from tosajax.cli import main
from tosajax.report import Verdict

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
