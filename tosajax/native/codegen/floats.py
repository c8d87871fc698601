"""Instructions of float32, on vectors that are kept and stored as their bits, i32."""

from __future__ import annotations

import struct

from tosajax.native.codegen.builder import Value, element_count, vector


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


def nearest(values: Value) -> Value:
    """Values rounded to integers, half to even."""
    return _intrinsic("roundeven", values)


def rounded(values: Value) -> Value:
    """Float32 as i32: half to even, saturated; NaN as 0."""
    lanes = element_count(values.type)
    whole = nearest(values)
    ir_type = vector("i32", lanes)
    return values.code.call(ir_type, f"llvm.fptosi.sat.v{lanes}i32.v{lanes}f32", whole)


def bits_of_infinity(*, negative: bool) -> int:
    """The bits of an infinity, as a signed integer."""
    return -(1 << 23) if negative else 0xFF << 23


def constant(like: Value, number: float) -> Value:
    """A number, rounded to float32, in all lanes of a vector's type."""
    # LLVM takes the bits of the double of the same value.
    (rounded_number,) = struct.unpack("<f", struct.pack("<f", number))
    bits = struct.pack(">d", rounded_number).hex().upper()
    return Value(like.code, like.type, f"splat (float 0x{bits})")


def multiply_add(x: Value, y: Value, total: Value) -> Value:
    """x * y + total, rounded once."""
    return _intrinsic("fma", x, y, total)


def add(x: Value, y: Value) -> Value:
    return _binary("fadd", x, y)


def subtract(x: Value, y: Value) -> Value:
    return _binary("fsub", x, y)


def multiply(x: Value, y: Value) -> Value:
    return _binary("fmul", x, y)


def negate(x: Value) -> Value:
    return x.code.result(x.type, f"fneg {x.type} {x.name}")


def absolute(x: Value) -> Value:
    return _intrinsic("fabs", x)


def with_sign(size: Value, sign: Value) -> Value:
    """A value with the sign of another."""
    return _intrinsic("copysign", size, sign)


def floor(x: Value) -> Value:
    return _intrinsic("floor", x)


def ceil(x: Value) -> Value:
    return _intrinsic("ceil", x)


def square_root(x: Value) -> Value:
    return _intrinsic("sqrt", x)


def equal(x: Value, y: Value) -> Value:
    """Whether two values are equal; false of NaN, as `greater` and `greater_equal`."""
    return _compare("oeq", x, y)


def greater(x: Value, y: Value) -> Value:
    return _compare("ogt", x, y)


def greater_or_nan(x: Value, y: Value) -> Value:
    """Whether x is larger, or one is NaN."""
    return _compare("ugt", x, y)


def greater_equal(x: Value, y: Value) -> Value:
    return _compare("oge", x, y)


def divide(x: Value, y: Value) -> Value:
    return _binary("fdiv", x, y)


def maximum(x: Value, y: Value) -> Value:
    """The larger of two values; NaN if one is NaN."""
    return _intrinsic("maximum", x, y)


def minimum(x: Value, y: Value) -> Value:
    """The smaller of two values; NaN if one is NaN."""
    return _intrinsic("minimum", x, y)


def clamp(values: Value, least: Value, largest: Value) -> Value:
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
