"""Instructions of float32, on vectors that are kept and stored as their bits, i32."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tosajax.native.codegen.builder import Value, element_count, vector

# Kinds of operands of steps: images of the results' shape, or with fewer channels, the rest of
# which are 0; one value for each channel; one for all.
OTHER, PADDED, CHANNEL, SCALAR = "other", "padded", "channel", "scalar"
IMAGES = OTHER, PADDED


def of_bits(bits: Value) -> Value:
    """A vector of float32, from its bits."""
    return bits.bitcast(vector("float", element_count(bits.type)))


def to_bits(values: Value) -> Value:
    """The bits of a vector of float32, as i32."""
    return values.bitcast(vector("i32", element_count(values.type)))


def of_integer(number: Value, count: int) -> Value:
    """A vector of `count` times an i64, as float32."""
    return number.code.result("float", f"sitofp {number.type} {number.name} to float").splat(count)


def of_integers(values: Value) -> Value:
    """A vector of i32 as float32, rounded to nearest even."""
    ir_type = vector("float", element_count(values.type))
    return values.code.result(ir_type, f"sitofp {values.type} {values.name} to {ir_type}")


def rounded(values: Value) -> Value:
    """Float32 as i32: half to even, saturated; NaN as 0."""
    lanes = element_count(values.type)
    whole = _intrinsic("roundeven", values)
    ir_type = vector("i32", lanes)
    return values.code.call(ir_type, f"llvm.fptosi.sat.v{lanes}i32.v{lanes}f32", whole)


def is_not_zero(values: Value) -> Value:
    """Booleans; NaN is not zero."""
    zeros = Value(values.code, values.type, "splat (float 0.0)")
    return _compare("une", values, zeros)


def bits_of_infinity(*, negative: bool) -> int:
    """The bits of an infinity, as a signed integer."""
    return -(1 << 23) if negative else 0xFF << 23


def multiply_add(x: Value, y: Value, total: Value) -> Value:
    """x * y + total, rounded once."""
    return _intrinsic("fma", x, y, total)


def add(x: Value, y: Value) -> Value:
    return _binary("fadd", x, y)


def divide(x: Value, y: Value) -> Value:
    return _binary("fdiv", x, y)


def maximum(x: Value, y: Value) -> Value:
    """The larger of two values; NaN if one is NaN."""
    return _intrinsic("maximum", x, y)


def minimum(x: Value, y: Value) -> Value:
    """The smaller of two values; NaN if one is NaN."""
    return _intrinsic("minimum", x, y)


def _clamp(values: Value, least: Value, largest: Value) -> Value:
    """Values between two bounds; NaN stays NaN."""
    values = _compare("olt", values, least).select(least, values)
    return _compare("ogt", values, largest).select(largest, values)


def _intrinsic(name: str, *operands: Value) -> Value:
    ir_type = operands[0].type
    return operands[0].code.call(ir_type, f"llvm.{name}.v{element_count(ir_type)}f32", *operands)


def _binary(op: str, x: Value, y: Value) -> Value:
    return x.code.result(x.type, f"{op} {x.type} {x.name}, {y.name}")


def _compare(predicate: str, x: Value, y: Value) -> Value:
    ir_type = vector("i1", element_count(x.type))
    return x.code.result(ir_type, f"fcmp {predicate} {x.type} {x.name}, {y.name}")


def _ones(x: Value) -> Value:
    return Value(x.code, x.type, "splat (float 1.0)")


# The vectors that elementwise operators of TOSA compute, with NaN mode PROPAGATE.
ELEMENTWISE: Mapping[str, Callable[..., Value]] = {
    "ABS": lambda x: _intrinsic("fabs", x),
    "ADD": add,
    "CEIL": lambda x: _intrinsic("ceil", x),
    "CLAMP": _clamp,
    "EQUAL": lambda x, y: _compare("oeq", x, y),
    "FLOOR": lambda x: _intrinsic("floor", x),
    "GREATER": lambda x, y: _compare("ogt", x, y),
    "GREATER_EQUAL": lambda x, y: _compare("oge", x, y),
    "MAXIMUM": maximum,
    "MINIMUM": minimum,
    "MUL": lambda x, y: _binary("fmul", x, y),
    "NEGATE": lambda x: x.code.result(x.type, f"fneg {x.type} {x.name}"),
    "RECIPROCAL": lambda x: divide(_ones(x), x),
    "SELECT": lambda condition, x, y: condition.select(x, y),
    "SUB": lambda x, y: _binary("fsub", x, y),
}
