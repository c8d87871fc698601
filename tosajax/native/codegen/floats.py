"""Instructions of float32, on vectors that are kept and stored as their bits, i32."""

from __future__ import annotations

from tosajax.native.codegen.builder import IRBuilder, Value, element_count, vector


def of_bits(bits: Value) -> Value:
    """A vector of float32, from its bits."""
    return bits.bitcast(vector("float", element_count(bits.type)))


def to_bits(values: Value) -> Value:
    """The bits of a vector of float32, as i32."""
    return values.bitcast(vector("i32", element_count(values.type)))


def multiply_add(code: IRBuilder, x: Value, y: Value, total: Value) -> Value:
    """x * y + total, rounded once."""
    return code.call(x.type, f"llvm.fma.v{element_count(x.type)}f32", x, y, total)


def add(code: IRBuilder, x: Value, y: Value) -> Value:
    return _binary(code, "fadd", x, y)


def multiply(code: IRBuilder, x: Value, y: Value) -> Value:
    return _binary(code, "fmul", x, y)


def clamp(code: IRBuilder, values: Value, least: Value, largest: Value) -> Value:
    """Values between two bounds; NaN stays NaN."""
    values = _compare(code, "olt", values, least).select(least, values)
    return _compare(code, "ogt", values, largest).select(largest, values)


def scale_negative(code: IRBuilder, values: Value, slope: Value) -> Value:
    """Values, and those that are not at least 0 times a slope."""
    is_kept = _compare(code, "oge", values, Value(code, values.type, "zeroinitializer"))
    return is_kept.select(values, multiply(code, values, slope))


def _binary(code: IRBuilder, op: str, x: Value, y: Value) -> Value:
    return code.result(x.type, f"{op} {x.type} {x.name}, {y.name}")


def _compare(code: IRBuilder, predicate: str, x: Value, y: Value) -> Value:
    ir_type = vector("i1", element_count(x.type))
    return code.result(ir_type, f"fcmp {predicate} {x.type} {x.name}, {y.name}")
