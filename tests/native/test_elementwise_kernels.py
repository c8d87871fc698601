"""Native kernels of elementwise operators and reductions equal the operators, on each set here."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import native_calls
import numpy as np
import pytest
from native_sets import SETS, USABLE

pytest.importorskip("llvmlite")

from tosajax import ops
from tosajax.dtypes import DType
from tosajax.native import call
from tosajax.native.calls.schedule import KernelCall
from tosajax.native.codegen import isa
from tosajax.native.codegen.isa import InstructionSet
from tosajax.native.codegen.requantize import UPPER_SHIFT
from tosajax.native.codegen.steps import (
    CHANNEL,
    ELEMENT,
    GATE,
    OF_FLOATS,
    OF_INTEGERS,
    ROW,
    SCALAR,
    TABLE,
    Rescale,
    Step,
)
from tosajax.native.elementwise import Operand, compute
from tosajax.native.kernels import elementwise
from tosajax.spec import RoundingMode

pytestmark = pytest.mark.usefixtures("quick")
DTYPES = {"i1": bool, "i8": np.int8, "i16": np.int16, "i32": np.int32, "float": np.float32}
SHAPE = (3, 5, 37)


def drawn(element: str, shape: Sequence[int], seed: int) -> np.ndarray:
    """Values of a type, every third of which is at an end, or special."""
    rng = np.random.default_rng([seed, *shape])
    if element == "i1":
        return rng.integers(0, 2, shape).astype(bool)
    if element == "float":
        values = rng.normal(size=shape) * 10.0 ** rng.integers(-3, 12, shape)
        special = [0.0, -0.0, np.inf, -np.inf, np.nan, 0.5, 1.5, -2.5, 2.0**31, -(2.0**31)]
    else:
        ends = np.iinfo(DTYPES[element])
        values = rng.integers(ends.min, ends.max + 1, shape)
        special = [ends.min, ends.min + 1, -1, 0, 1, ends.max - 1, ends.max]
    chosen = rng.choice(special, shape)
    return np.where(rng.integers(0, 3, shape) == 0, chosen, values).astype(DTYPES[element])


def amounts(element: str, shape: Sequence[int]) -> np.ndarray:
    """Every amount that a type can be shifted by."""
    bits = 8 * np.dtype(DTYPES[element]).itemsize
    return np.resize(np.arange(bits), shape).astype(DTYPES[element])


class Case(NamedTuple):
    """An operator of elements; `others` are its operands behind those of elements.

    Args:
      op: its name.
      elements: the types of its operands of elements.
      result: the type of its results.
      others: kinds and values of its other operands.
      attributes: of the function of `ops`.
      mode: of the step.
      shifts: whether the last operand of elements is an amount.
    """

    op: str
    elements: tuple[str, ...]
    result: str
    others: tuple[tuple[str, Any], ...] = ()
    attributes: tuple[tuple[str, Any], ...] = ()
    mode: tuple[bool, ...] = ()
    shifts: bool = False

    def arrays(self, shape: Sequence[int]) -> list[np.ndarray]:
        found = [drawn(e, shape, seed) for seed, e in enumerate(self.elements)]
        return [*found[:-1], amounts(self.elements[-1], shape)] if self.shifts else found

    def wanted(self, arrays: Sequence[np.ndarray]) -> np.ndarray:
        values = [jnp.asarray(value) for _, value in self.others]
        attributes = dict(self.attributes)
        if self.op == "CLAMP":
            attributes |= dict(zip(("min_val", "max_val"), values, strict=True))
            values = []
        if self.op in ("MUL", "NEGATE"):  # parameters that the kernel need not read
            missing = {"MUL": 1, "NEGATE": 2}[self.op] - len(values)
            dtype = jnp.int8 if self.op == "MUL" else arrays[0].dtype
            values += [jnp.zeros(1, dtype)] * missing
        function = getattr(ops, self.op.lower())
        return np.asarray(function(*map(jnp.asarray, arrays), *values, **attributes))

    def kernel(self, s: InstructionSet, arrays: Sequence[np.ndarray]) -> KernelCall:
        operands = [Operand(ELEMENT, *pair) for pair in zip(arrays, self.elements, strict=True)]
        for kind, value in self.others:
            element, looked_up = "i32", self.elements[0] if kind == TABLE else ""
            if self.op == "CLAMP":
                element = self.elements[0]
            operands.append(Operand(kind, value, element, looked_up))
        numbers = tuple(range(len(operands)))
        step = Step(self.op, numbers, self.elements[0], self.result, self.mode)
        return compute(s, arrays[0].shape, operands, [step])


def one(value: Any, dtype: Any = np.int8) -> np.ndarray:
    return np.asarray([value], dtype)


def clamp(element: str, least: Any, largest: Any) -> Case:
    dtype = DTYPES[element]
    bounds = (SCALAR, np.asarray(least, dtype)), (SCALAR, np.asarray(largest, dtype))
    return Case("CLAMP", (element,), element, bounds)


def rescale(
    source: str, result: str, scale: tuple[int, int], zero_points: tuple[int, int] = (0, 0),
    *, twice: bool = False, signs: tuple[bool, bool] = (False, False), scale32: bool = True,
) -> Case:  # fmt: skip
    multiplier, shift = scale
    numbers = (
        one(multiplier, np.int32 if scale32 else np.int16), one(shift),
        one(np.asarray(zero_points[0]).astype(DTYPES[source]), DTYPES[source]),
        one(np.asarray(zero_points[1]).astype(DTYPES[result]), DTYPES[result]),
    )  # fmt: skip
    rounds = RoundingMode.DOUBLE_ROUND if twice else RoundingMode.SINGLE_ROUND
    attributes = {
        "scale32": scale32, "rounding_mode": rounds, "per_channel": False,
        "input_unsigned": signs[0], "output_unsigned": signs[1],
    }  # fmt: skip
    is_multiple = multiplier % (1 << shift) == 0
    mode = Rescale(twice, *signs, is_multiple, shift >= UPPER_SHIFT)
    others = tuple((SCALAR, number) for number in numbers)
    return Case("RESCALE", (source,), result, others, tuple(attributes.items()), tuple(mode))


def several(op: str, types: Sequence[str], count: int, result: str = "") -> dict[str, Case]:
    return {f"{op} {t}": Case(op, (t,) * count, result or t) for t in types}


INTEGERS, FLOAT_TOO = ("i8", "i16", "i32"), ("i32", "float")
ENTRIES = np.random.default_rng(2).integers(-128, 128, 256).astype(np.int8)
STEEP = np.random.default_rng(3).integers(-(2**14), 2**14, 513).astype(np.int16)
SIGNS = [(False, False), (False, True), (True, False), (True, True)]
CASES = {
    **several("ABS", FLOAT_TOO, 1),
    **several("ADD", FLOAT_TOO, 2),
    **{
        f"ARITHMETIC_RIGHT_SHIFT {t}, {rounds}": Case(
            "ARITHMETIC_RIGHT_SHIFT", (t, t), t, (), (("round", rounds),), (rounds,), True
        )
        for t in INTEGERS
        for rounds in (False, True)
    },
    **several("BITWISE_AND", INTEGERS, 2),
    **several("BITWISE_NOT", INTEGERS, 1),
    **several("BITWISE_OR", INTEGERS, 2),
    **several("BITWISE_XOR", INTEGERS, 2),
    **{
        f"CAST {a} {b}": Case(
            "CAST", (a,), b, (), (("out_type", {
                "i1": DType.BOOL, "i8": DType.INT8, "i16": DType.INT16, "i32": DType.INT32,
                "float": DType.FP32,
            }[b]),)
        )
        for a, b in itertools.permutations(DTYPES, 2)
        if {a, b} != {"i1", "float"}
    },
    **several("CEIL", ["float"], 1),
    "CLAMP i8": clamp("i8", -100, 127),
    "CLAMP i16": clamp("i16", -32768, 1000),
    "CLAMP float": clamp("float", -0.5, 6.0),
    **several("CLZ", ["i32"], 1),
    **several("EQUAL", FLOAT_TOO, 2, "i1"),
    **several("FLOOR", ["float"], 1),
    **several("GREATER", FLOAT_TOO, 2, "i1"),
    **several("GREATER_EQUAL", FLOAT_TOO, 2, "i1"),
    **several("LOGICAL_AND", ["i1"], 2),
    **{
        f"{op} {t}": Case(op, (t, t), t, shifts=True)
        for op in ("LOGICAL_LEFT_SHIFT", "LOGICAL_RIGHT_SHIFT")
        for t in INTEGERS
    },
    **several("LOGICAL_NOT", ["i1"], 1),
    **several("LOGICAL_OR", ["i1"], 2),
    **several("LOGICAL_XOR", ["i1"], 2),
    **several("MAXIMUM", FLOAT_TOO, 2),
    **several("MINIMUM", FLOAT_TOO, 2),
    **several("MUL", ("i8", "i16", "i32"), 2, "i32"),
    "MUL float": Case("MUL", ("float", "float"), "float"),
    **{
        f"MUL i32 by {n}": Case("MUL", ("i32", "i32"), "i32", ((SCALAR, one(n)),), mode=(True,))
        for n in (0, 1, 31, 32, 62, 63)
    },
    "NEGATE i8": Case("NEGATE", ("i8",), "i8", ((SCALAR, one(-128)), (SCALAR, one(127)))),
    **{
        f"NEGATE {t}": Case("NEGATE", (t,), t, ((SCALAR, one(0, DTYPES[t])),) * 2)
        for t in ("i16", "i32")
    },
    "NEGATE float": Case("NEGATE", ("float",), "float"),
    "RECIPROCAL float": Case("RECIPROCAL", ("float",), "float"),
    **{
        f"RESCALE {a} {b} {scale} {twice}": rescale(a, b, scale, zps, twice=twice)
        for a, b, zps in (
            ("i8", "i8", (-128, 127)), ("i8", "i32", (5, 0)), ("i16", "i8", (0, -3)),
            ("i16", "i16", (0, 0)), ("i32", "i8", (0, 7)), ("i32", "i16", (0, 0)),
        )
        for scale in (
            (2**30, 30), (2**30, 26), (1623821475, 31), (1623821475, 32), (1623821475, 33),
            (2**31 - 1, 40), (2**31 - 1, 62), (0, 2), (5, 2),
        )
        for twice in (False, True)
        if scale[1] > 30 or a != "i32"
    },
    "RESCALE i32 i32": rescale("i32", "i32", (2**31 - 1, 31)),
    "RESCALE i32 i32, by 16 bits": rescale("i32", "i32", (2**15 - 1, 15), scale32=False),
    **{
        f"RESCALE {a} {b} {signs}": rescale(
            a, b, (1623821475, 32), (127 * (a == "i8"), 127 * (b == "i8")), signs=signs
        )
        for a, b in (("i8", "i8"), ("i8", "i16"), ("i16", "i8"))
        for signs in SIGNS
    },
    "RESCALE of unsigned i16": rescale(
        "i16", "i16", (1623821475, 31), (32768, 32768), signs=(True, True)
    ),
    **{f"SELECT {t}": Case("SELECT", ("i1", t, t), t) for t in DTYPES},
    **several("SUB", FLOAT_TOO, 2),
    "TABLE i8": Case("TABLE", ("i8",), "i8", ((TABLE, ENTRIES),)),
    "TABLE i16": Case("TABLE", ("i16",), "i32", ((TABLE, STEEP),)),
}  # fmt: skip


def same(found: np.ndarray, wanted: np.ndarray) -> None:
    """Asserts equal values; any NaN is as good as another."""
    assert found.dtype == wanted.dtype
    np.testing.assert_array_equal(found, wanted)
    if found.dtype == np.float32:
        signs = np.signbit(found) == np.signbit(wanted)
        assert (signs | np.isnan(wanted)).all()


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("s", SETS)
def test_each_operator(s: InstructionSet, name: str):
    """In guarded memory; of fewer elements than a vector has, too."""
    case = CASES[name]
    for shape, at_end in itertools.product((SHAPE, (1, 3), (1, 16)), (False, True)):
        arrays = case.arrays(shape)
        if case.op == "CAST" and case.elements == ("float",):
            arrays = [np.nan_to_num(arrays[0], nan=0.0)]  # NaN to an integer is unpredictable
        found = native_calls.call(case.kernel(s, arrays), at_end=at_end)
        same(found, case.wanted(arrays))


@pytest.mark.parametrize("element", ["i8", "i16"])
@pytest.mark.parametrize("s", SETS)
def test_narrow_results_are_read_again(s: InstructionSet, element: str):
    """CAST, a shift and a negation in a narrow type, and all of it as int32."""
    x = drawn("i32", SHAPE, 3)
    operands = [Operand(ELEMENT, x, "i32"), Operand(SCALAR, np.int32(3), "i32")]
    steps = [
        Step("CAST", (0,), "i32", element),
        Step("CAST", (2,), element, "i32"),
        Step("LOGICAL_LEFT_SHIFT", (2, 1), element, element),
        Step("LOGICAL_RIGHT_SHIFT", (4, 1), element, element),
        Step("CAST", (5,), element, "i32"),
        Step("BITWISE_XOR", (6, 3), "i32", "i32"),
    ]
    low = x.astype(DTYPES[element])
    unsigned = (low << 3).astype(low.dtype).view(f"u{low.dtype}") >> 3
    wanted = unsigned.view(low.dtype).astype(np.int32) ^ low
    same(native_calls.call(compute(s, x.shape, operands, steps)), wanted)


# Functions in float64, and the largest error in units of the last place of normal results.
APPROXIMATE: dict[str, tuple[Callable[[np.ndarray], np.ndarray], float]] = {
    "ERF": (np.vectorize(math.erf), 4),
    "EXP": (np.exp, 2),
    "RSQRT": (lambda x: 1 / np.sqrt(x), 1.5),
    "SIGMOID": (lambda x: 1 / (1 + np.exp(-x)), 3),
    "TANH": (np.tanh, 3),
}
SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 88.72, 88.73, -87.3, -104.0, 1e30, -1e30, 1.5, 4.0]


@pytest.mark.parametrize("op", APPROXIMATE)
@pytest.mark.parametrize("s", SETS)
def test_approximations(s: InstructionSet, op: str):
    function, most = APPROXIMATE[op]
    rng = np.random.default_rng(7)
    sizes = rng.normal(size=3000) * 10.0 ** rng.integers(-20, 4, 3000)
    x = np.concatenate([SPECIAL, np.linspace(-12, 12, 3001), sizes]).astype(np.float32)[None]
    step = Step(op, (0,), "float", "float")
    found = native_calls.call(compute(s, x.shape, [Operand(ELEMENT, x, "float")], [step]))
    with np.errstate(all="ignore"):
        wanted = function(x.astype(np.float64))
        rounded = wanted.astype(np.float32)
    exact = ~np.isfinite(rounded) | (rounded == 0)
    np.testing.assert_array_equal(found[exact], rounded[exact])
    is_number = ~np.isnan(rounded)
    np.testing.assert_array_equal(np.signbit(found[is_number]), np.signbit(rounded[is_number]))
    least = np.finfo(np.float32).smallest_normal
    inside = ~exact & (np.abs(wanted) >= least)
    units = np.abs(found[inside] - wanted[inside]) / np.spacing(np.abs(rounded[inside]))
    assert units.max() <= most
    assert np.abs(found[~exact & ~inside]).max(initial=0) <= least


def test_all_operators_have_cases():
    cases = {case.op for case in CASES.values()} | APPROXIMATE.keys()
    assert cases >= {*OF_FLOATS, *OF_INTEGERS}


@pytest.mark.parametrize("at_end", [True, False])
@pytest.mark.parametrize("length", [1, 15, 16, 17, 50])
@pytest.mark.parametrize("s", SETS)
def test_operands_of_each_kind(s: InstructionSet, length: int, at_end: bool):
    """Values of elements, of rows, of channels, single ones, and of channels of each image."""
    for element in ("i32", "float"):
        shape = 2, 4, length
        parts = {
            ELEMENT: shape, ROW: (2, 4, 1), CHANNEL: (length,), SCALAR: (1,), GATE: (2, 1, length),
        }  # fmt: skip
        arrays = [drawn(element, part, seed) for seed, part in enumerate(parts.values())]
        operands = [Operand(k, a, element) for k, a in zip(parts, arrays, strict=True)]
        steps = [
            Step("MAXIMUM", (0, 1), element, element),
            Step("MINIMUM", (5, 2), element, element),
            Step("MAXIMUM", (3, 6), element, element),
            Step("MINIMUM", (4, 7), element, element),
        ]
        shapes = shape, (2, 4, 1), (1, 1, length), (1, 1, 1), (2, 1, length)
        x, of_rows, of_channels, scalar, gate = (
            jnp.asarray(a).reshape(own) for a, own in zip(arrays, shapes, strict=True)
        )
        inner = jnp.minimum(jnp.maximum(x, of_rows), of_channels)
        wanted = jnp.minimum(gate, jnp.maximum(scalar, inner))
        same(
            native_calls.call(compute(s, shape, operands, steps), at_end=at_end), np.asarray(wanted)
        )


@pytest.mark.parametrize("least", [31, 33])
@pytest.mark.parametrize("s", SETS)
def test_scales_of_channels(s: InstructionSet, least: int):
    rng = np.random.default_rng(4)
    multiplier, shift = rng.integers(0, 2**31, 37, np.int32), rng.integers(least, 63, 37, np.int8)
    x, zeros = drawn("i8", SHAPE, 0), np.zeros(1, np.int8)
    values = [(CHANNEL, multiplier), (CHANNEL, shift), (SCALAR, zeros), (SCALAR, one(3))]
    operands = [Operand(ELEMENT, x, "i8"), *(Operand(k, v, "i32") for k, v in values)]
    mode = tuple(Rescale(False, False, False, upper_only=least >= UPPER_SHIFT))
    found = native_calls.call(
        compute(s, SHAPE, operands, [Step("RESCALE", tuple(range(5)), "i8", "i8", mode)])
    )
    wanted = ops.rescale(
        *map(jnp.asarray, (x, *(value for _, value in values))), scale32=True, per_channel=True,
        rounding_mode=RoundingMode.SINGLE_ROUND, input_unsigned=False, output_unsigned=False,
    )  # fmt: skip
    same(found, np.asarray(wanted))


REDUCTIONS = [
    *(("REDUCE_SUM", "i32"), *itertools.product(("REDUCE_MAX", "REDUCE_MIN"), DTYPES)),
]


@pytest.mark.parametrize("length", [2, 15, 16, 17, 32, 50])
@pytest.mark.parametrize(("op", "element"), [r for r in REDUCTIONS if r[1] != "i1"])
@pytest.mark.parametrize("s", SETS)
def test_reductions(s: InstructionSet, op: str, element: str, length: int):
    """Alone, and with elements that are read again behind it."""
    x = drawn(element, (2, 3, length), 5)
    if element == "float":
        x[0] = np.nan_to_num(x[0], nan=1.0)
    wanted = getattr(ops, op.lower())(jnp.asarray(x), axis=2)
    reduction = Step(op, (0,), element, element, is_row=True)
    for at_end in (True, False):
        kernel = compute(s, x.shape, [Operand(ELEMENT, x, element)], [reduction])
        same(native_calls.call(kernel, at_end=at_end), np.asarray(wanted))
    if element in ("i32", "float"):
        steps = [reduction, Step("SUB", (0, 1), element, element)]
        found = native_calls.call(compute(s, x.shape, [Operand(ELEMENT, x, element)], steps))
        same(found, np.asarray(ops.sub(jnp.asarray(x), wanted)))


def added_in_order(x: np.ndarray) -> np.ndarray:
    """Sums of the last dimension: 16 of every 16th element, then of halves."""
    padded = np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, -x.shape[-1] % 16)])
    parts = padded.reshape(*x.shape[:-1], -1, 16)
    total = np.zeros((*x.shape[:-1], 16), np.float32)
    for number in range(parts.shape[-2]):
        total = total + parts[..., number, :]
    for half in (8, 4, 2, 1):
        total = total[..., :half] + total[..., half:]
    return total


@pytest.mark.parametrize("length", [2, 15, 16, 17, 50, 400])
@pytest.mark.parametrize("s", SETS)
def test_sums_of_floats_have_one_order(s: InstructionSet, length: int):
    rng = np.random.default_rng(length)
    x = (rng.normal(size=(2, 3, length)) * 10.0 ** rng.integers(-4, 4, length)).astype(np.float32)
    step = Step("REDUCE_SUM", (0,), "float", "float", is_row=True)
    found = native_calls.call(compute(s, x.shape, [Operand(ELEMENT, x, "float")], [step]))
    same(found, added_in_order(x))


def chain(s: InstructionSet, x: Any, of_rows: Any) -> KernelCall:
    """Three passes, elements that are kept, booleans too, and values of rows before and between."""
    steps = [
        Step("CAST", (0,), "i8", "i32"),
        Step("BITWISE_NOT", (1,), "i32", "i32", is_row=True),
        Step("REDUCE_MAX", (3,), "i32", "i32", is_row=True),
        Step("SUB", (3, 5), "i32", "i32"),
        Step("ADD", (6, 4), "i32", "i32"),
        Step("GREATER", (7, 2), "i32", "i1"),
        Step("REDUCE_SUM", (7,), "i32", "i32", is_row=True),
        Step("BITWISE_XOR", (9, 1), "i32", "i32", is_row=True),
        Step("SELECT", (8, 7, 10), "i1", "i32"),
        Step("REDUCE_MIN", (11,), "i32", "i32", is_row=True),
        Step("SUB", (11, 12), "i32", "i32"),
    ]
    operands = [
        Operand(ELEMENT, x, "i8"),
        Operand(ROW, of_rows, "i32"),
        Operand(SCALAR, np.int32(-300), "i32"),
    ]
    return compute(s, x.shape, operands, steps)


def chained(x: np.ndarray, of_rows: np.ndarray) -> np.ndarray:
    """What `chain` computes."""
    wide = x.astype(np.int32)
    moved = wide - wide.max(-1, keepdims=True) + ~of_rows
    other = moved.sum(-1, keepdims=True, dtype=np.int32) ^ of_rows
    picked = np.where(moved > -300, moved, other)
    return picked - picked.min(-1, keepdims=True)


def chain_inputs(count: int, length: int) -> tuple[np.ndarray, np.ndarray]:
    rows = np.random.default_rng(count).integers(-400, 400, (count, 3, 1), np.int32)
    return drawn("i8", (count, 3, length), 6), rows


@pytest.mark.parametrize("length", [1, 16, 17, 45])
@pytest.mark.parametrize("s", SETS)
def test_several_passes(s: InstructionSet, length: int):
    inputs = chain_inputs(2, length)
    for at_end in (True, False):
        same(native_calls.call(chain(s, *inputs), at_end=at_end), chained(*inputs))


@pytest.mark.parametrize("s", USABLE)
def test_results_that_are_rows(s: InstructionSet):
    x, of_rows = chain_inputs(2, 40)
    steps = [
        Step("MAXIMUM", (0, 1), "i32", "i32"),
        Step("REDUCE_SUM", (2,), "i32", "i32", is_row=True),
        Step("CLZ", (3,), "i32", "i32", is_row=True),
    ]
    wide = x.astype(np.int32)
    operands = [Operand(ELEMENT, wide, "i32"), Operand(ROW, of_rows, "i32")]
    total = np.maximum(wide, of_rows).sum(-1, keepdims=True, dtype=np.int32)
    found = native_calls.call(compute(s, x.shape, operands, steps))
    same(found, np.asarray(ops.clz(jnp.asarray(total))))


@pytest.mark.parametrize("shape", [(1, 300_001), (7, 3, 20_011), (5000, 17), (64, 1001)])
@pytest.mark.parametrize("s", USABLE)
def test_threads_share_elements(s: InstructionSet, shape: tuple[int, ...]):
    x = drawn("i32", shape, 8)
    invert = compute(
        s, x.shape, [Operand(ELEMENT, x, "i32")], [Step("BITWISE_NOT", (0,), "i32", "i32")]
    )
    lowest = Step("REDUCE_MIN", (0,), "i32", "i32", is_row=True)
    reduce = compute(s, x.shape, [Operand(ELEMENT, x, "i32")], [lowest])
    for kernel, wanted in ((invert, ~x), (reduce, x.min(-1, keepdims=True))):
        same(native_calls.call(kernel, pool=native_calls.Pool(3)), wanted)


@pytest.mark.parametrize("s", USABLE)
def test_examples_of_vmap_share_a_call(s: InstructionSet):
    x, of_rows = chain_inputs(4, 33)
    fn = jax.jit(jax.vmap(lambda *each: call.run(chain(s, *each))))
    same(np.asarray(fn(x[:, None], of_rows[:, None]))[:, 0], chained(x, of_rows))


def test_rows_are_read_no_more_than_reductions_need():
    """One pass for one reduction, which keeps nothing; a second pass reads what the first kept."""
    operands = (elementwise.Operand(ELEMENT, "i32"),)
    total = Step("REDUCE_SUM", (1,), "i32", "i32", is_row=True)
    steps = (Step("ABS", (0,), "i32", "i32"), total, Step("CLZ", (2,), "i32", "i32", is_row=True))
    s = isa.PORTABLE
    found = elementwise.KernelKey(s, operands, steps).stages
    assert (found.passes, found.kept) == (1, ())
    found = elementwise.KernelKey(s, operands, (*steps, Step("SUB", (1, 3), "i32", "i32"))).stages
    assert (found.passes, found.kept) == (2, (1,))
