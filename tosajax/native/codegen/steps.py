"""Operators as steps of a kernel: the vector that each computes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from tosajax.native.codegen import floats, integers, transcendental
from tosajax.native.codegen.builder import Value, element_count, vector

BOOLEAN, FLOAT = "i1", "float"  # IR types, beside "i8", "i16" and "i32"
# Kinds of operands. Inputs, which have a dimension of images: a value for each element; fewer
# channels, the rest of which are 0; a value for each row, which is the last dimension, or for each
# channel of an image; an image of another size, which RESIZE reads.
ELEMENT, PADDED, ROW, GATE, RESIZED = "element", "padded", "row", "gate", "resized"
IMAGES = ELEMENT, PADDED, ROW, GATE, RESIZED
# Parameters: a value for each channel, which is an element of a row; one for all; a table.
CHANNEL, SCALAR, TABLE = "channel", "scalar", "table"
REDUCTIONS = "REDUCE_MAX", "REDUCE_MIN", "REDUCE_SUM"
RESIZE = "RESIZE"  # whose mode is whether it is bilinear

# The vectors that elementwise operators compute: of float32, with NaN mode PROPAGATE, and of
# integers and booleans, whose last argument is the IR type of results. Others have modes.
OF_FLOATS: Mapping[str, Callable[..., Value]] = {
    "ABS": floats.absolute,
    "ADD": floats.add,
    "CEIL": floats.ceil,
    "CLAMP": floats.clamp,
    "EQUAL": floats.equal,
    "ERF": transcendental.erf,
    "EXP": transcendental.exponential,
    "FLOOR": floats.floor,
    "GREATER": floats.greater,
    "GREATER_EQUAL": floats.greater_equal,
    "MAXIMUM": floats.maximum,
    "MINIMUM": floats.minimum,
    "MUL": floats.multiply,
    "NEGATE": floats.negate,
    "RECIPROCAL": lambda x: floats.divide(floats.constant(x, 1.0), x),
    "RSQRT": lambda x: floats.divide(floats.constant(x, 1.0), floats.square_root(x)),
    "SELECT": lambda condition, x, y: condition.select(x, y),
    "SIGMOID": transcendental.sigmoid,
    "SUB": floats.subtract,
    "TANH": transcendental.tanh,
}
OF_INTEGERS: Mapping[str, Callable[..., Value]] = {
    "ABS": lambda x, _: x.smax(x.code.value(0, x.type) - x),
    "ADD": lambda x, y, _: x + y,
    "BITWISE_AND": lambda x, y, _: x & y,
    "BITWISE_NOT": lambda x, _: integers.invert(x),
    "BITWISE_OR": lambda x, y, _: x | y,
    "BITWISE_XOR": lambda x, y, _: x ^ y,
    "CLAMP": lambda x, least, largest, _: x.smax(least).smin(largest),
    "CLZ": lambda x, _: integers.leading_zeros(x),
    "EQUAL": lambda x, y, _: x.equals(y),
    "GREATER": lambda x, y, _: x > y,
    "GREATER_EQUAL": lambda x, y, _: integers.invert(y > x),
    "LOGICAL_AND": lambda x, y, _: x & y,
    "LOGICAL_LEFT_SHIFT": integers.shift_left,
    "LOGICAL_NOT": lambda x, _: integers.invert(x),
    "LOGICAL_OR": lambda x, y, _: x | y,
    "LOGICAL_RIGHT_SHIFT": integers.shift_right,
    "LOGICAL_XOR": lambda x, y, _: x ^ y,
    "MAXIMUM": lambda x, y, _: x.smax(y),
    "MINIMUM": lambda x, y, _: x.smin(y),
    "MUL": lambda x, y, _: x * y,
    "NEGATE": lambda x, x_zp, zp, element: integers.saturated(zp - (x - x_zp), element),
    "SELECT": lambda condition, x, y, _: condition.select(x, y),
    "SUB": lambda x, y, _: x - y,
}


class Step(NamedTuple):
    """An operator.

    Args:
      op: its name.
      read: the numbers of the values that it reads; operands come first, then results of steps.
      source: the IR type of the first value that it reads; "i1" for booleans.
      element: the IR type of its results.
      mode: other facts that its instructions depend on: whether ARITHMETIC_RIGHT_SHIFT rounds,
        whether MUL shifts, or those of `Rescale`.
      is_row: whether it has one result for each row.
    """

    op: str
    read: tuple[int, ...]
    source: str
    element: str
    mode: tuple[bool, ...] = ()
    is_row: bool = False

    @property
    def is_reduction(self) -> bool:
        return self.op in REDUCTIONS


class Rescale(NamedTuple):
    """The mode of RESCALE.

    Args:
      double_round: whether it rounds twice.
      input_unsigned: whether inputs and their zero point are unsigned.
      output_unsigned: whether results and their zero point are unsigned.
      is_multiple: whether the scale is an integer.
      upper_only: whether shifts are `requantize.UPPER_SHIFT` or more.
    """

    double_round: bool
    input_unsigned: bool
    output_unsigned: bool
    is_multiple: bool = False
    upper_only: bool = False

    def apply(self, source: str, element: str, operands: Sequence[Value]) -> Value:
        """The results, of the operands in the order of TOSA's arguments."""
        values, multiplier, shift, zero_point, output_zp = operands
        if self.input_unsigned:
            values, zero_point = (integers.unsigned(v, source) for v in (values, zero_point))
        if self.output_unsigned:
            output_zp = integers.unsigned(output_zp, element)
        values = values - zero_point
        if self.is_multiple:
            scaled = values * (multiplier >> (shift & 31))
        else:
            scale = integers.scale_by_upper_words if self.upper_only else integers.scale
            scaled = scale(values, multiplier, shift, double_round=self.double_round)
        return integers.saturated(scaled + output_zp, element, is_unsigned=self.output_unsigned)


def computed(step: Step, operands: Sequence[Value]) -> Value:
    """The result of an elementwise operator."""
    match step.op:
        case "RESCALE":
            return Rescale(*step.mode).apply(step.source, step.element, operands)
        case "TABLE":
            values, entries = operands
            look_up = integers.looked_up if step.source == "i8" else integers.interpolated
            return look_up(values, entries)
        case "CAST":
            return _cast(operands[0], step.source, step.element)
        case "MUL" if any(step.mode):
            x, y, shift = operands
            return integers.multiply(x, y, shift)
        case "ARITHMETIC_RIGHT_SHIFT":
            x, amount = operands
            return integers.arithmetic_shift(x, amount, step.element, rounds=any(step.mode))
        case _ if step.source == FLOAT:
            return OF_FLOATS[step.op](*operands)
        case _:
            return OF_INTEGERS[step.op](*operands, step.element)


_OF_FLOAT_TOTALS = {
    "REDUCE_MAX": floats.maximum,
    "REDUCE_MIN": floats.minimum,
    "REDUCE_SUM": floats.add,
}


def identity(step: Step) -> int:
    """What a reduction begins with, as bits of i32."""
    if step.op == "REDUCE_SUM":
        return 0
    if step.source == FLOAT:
        return floats.bits_of_infinity(negative=step.op == "REDUCE_MAX")
    largest = (1 << (integers.bits_of(step.source) - 1)) - 1
    return largest if step.op == "REDUCE_MIN" else -largest - 1


def combined(step: Step, total: Value, words: Value) -> Value:
    """The sum or the extremum of two vectors, as i32."""
    if step.source == FLOAT:
        combine = _OF_FLOAT_TOTALS[step.op]
        return floats.to_bits(combine(floats.of_bits(total), floats.of_bits(words)))
    if step.op == "REDUCE_SUM":
        return total + words
    return total.smax(words) if step.op == "REDUCE_MAX" else total.smin(words)


def of_words(words: Value, element: str) -> Value:
    """A vector of a type, from i32 that hold it."""
    if element == BOOLEAN:
        return words.not_equals(0)
    return floats.of_bits(words) if element == FLOAT else words


def to_words(values: Value, element: str) -> Value:
    """A vector of a type as i32."""
    if element == BOOLEAN:
        return integers.of_booleans(values)
    return floats.to_bits(values) if element == FLOAT else values


def _cast(values: Value, source: str, element: str) -> Value:
    """CAST between two types."""
    if source == element:
        return values
    if element == BOOLEAN:
        return values.not_equals(0)
    if source == BOOLEAN:
        values = integers.of_booleans(values)
    if element == FLOAT:
        return floats.of_integers(values)
    if source == FLOAT:
        return integers.saturated(floats.rounded(values), element)
    return integers.wrapped(values, element)


def first_or(values: Value, count: int, other: int) -> Value:
    """The first `count` lanes of i32, and a constant in the others."""
    lanes = element_count(values.type)
    others = values.code.value(other, vector("i32", lanes))
    return values.shuffle(others, [lane + lanes * (lane >= count) for lane in range(lanes)])
