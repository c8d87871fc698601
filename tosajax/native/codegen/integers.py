"""Instructions of integers, on vectors of i32 that hold int8, int16 or int32; booleans are i1."""

from __future__ import annotations

from tosajax.native.codegen.builder import Value, element_count, vector
from tosajax.native.codegen.requantize import EvenOdd


def bits_of(element: str) -> int:
    """The bits of an IR type of integers."""
    return int(element[1:])


def wrapped(values: Value, element: str) -> Value:
    """The low bits of i32 as a narrower signed type, extended again."""
    shift = 32 - bits_of(element)
    return (values << shift) >> shift if shift else values


def unsigned(values: Value, element: str) -> Value:
    """The values of a signed type, read as unsigned."""
    return values & ((1 << bits_of(element)) - 1) if element != "i32" else values


def saturated(values: Value, element: str, *, is_unsigned: bool = False) -> Value:
    """Values clamped to the range of a type, as its signed bits."""
    bits = bits_of(element)
    if element == "i32":
        return values
    if is_unsigned:
        return wrapped(values.smax(0).smin((1 << bits) - 1), element)
    return values.smax(-(1 << (bits - 1))).smin((1 << (bits - 1)) - 1)


def rounded_shift(products: Value, amount: Value) -> Value:
    """The low 32 bits of i64 shifted right by 0 to 63, rounding half up."""
    one = products.code.value(1, products.type)
    half = (one << amount).lshr(1)
    return ((products + half) >> amount).to(vector("i32", element_count(products.type)))


def multiply(x: Value, y: Value, shift: Value) -> Value:
    """The product shifted right, rounding half up: low 32 bits."""
    wide = vector("i64", element_count(x.type))
    return rounded_shift(x.to(wide) * y.to(wide), shift.to(wide) & 63)


def scale(values: Value, multiplier: Value, shift: Value, *, double_round: bool) -> Value:
    """Values * multiplier / 2**shift, rounded once or twice ("Scaling Helpers", TOSA 1.0.1)."""
    wide = vector("i64", element_count(values.type))
    product, amount = values.to(wide) * multiplier.to(wide), shift.to(wide) & 63
    if double_round:
        code = values.code
        none, away = code.value(0, wide), code.value(1 << 30, wide)
        first = (product < 0).select(none - away, away)
        product = product + (amount > 31).select(first, none)
    return rounded_shift(product, amount)


def scale_by_upper_words(
    values: Value, multiplier: Value, shift: Value, *, double_round: bool
) -> Value:
    """As `scale`, for shifts of `requantize.UPPER_SHIFT` or more.

    The upper words of products suffice; the rest of the shift rounds them.
    """
    narrow, parts = values.type, []
    for value, factor in zip(*map(EvenOdd.from_i32, (values, multiplier)), strict=True):
        product = value * factor
        if double_round:
            away = product.code.value(1 << 30, product.type)
            product = product + (product < 0).select(product.code.value(0, away.type) - away, away)
        parts.append(product.bitcast(narrow))
    lanes = element_count(narrow)
    odd = range(1, lanes, 2)
    upper = parts[0].shuffle(parts[1], [i for lane in odd for i in (lane, lanes + lane)])
    rest = (shift - 32) & 31
    return (upper + (values.code.value(1, narrow) << ((rest - 1) & 31))) >> rest


def looked_up(values: Value, entries: Value) -> Value:
    """TABLE of int8: the entry of each value, from an address of 256 int32."""
    return gather(entries, values + 128)


def interpolated(values: Value, entries: Value) -> Value:
    """TABLE of int16: 9.7 fixed point, between entries at an address of 513 int32."""
    position = values + 32768
    index, fraction = position.lshr(7), position & 0x7F
    base, following = gather(entries, index), gather(entries, index + 1)
    return (base << 7) + (following - base) * fraction


def gather(entries: Value, index: Value) -> Value:
    """The int32 at some indices behind an address."""
    code, lanes = index.code, element_count(index.type)
    pointers = code.result(
        vector("ptr", lanes),
        f"getelementptr i32, ptr {entries.name}, {index.type} {index.name}",
    )
    every = code.value(1, vector("i1", lanes))
    align, none = code.value(4, "i32"), code.value(0, index.type)
    name = f"llvm.masked.gather.v{lanes}i32.v{lanes}p0"
    return code.call(index.type, name, pointers, align, every, none)


def leading_zeros(values: Value) -> Value:
    """The leading zero bits of i32; 32 of 0."""
    lanes, code = element_count(values.type), values.code
    return code.call(values.type, f"llvm.ctlz.v{lanes}i32", values, code.value(0, "i1"))


def of_booleans(values: Value) -> Value:
    """Booleans as i32, 0 or 1."""
    code, ir_type = values.code, vector("i32", element_count(values.type))
    return values.select(code.value(1, ir_type), code.value(0, ir_type))


def shift_left(x: Value, amount: Value, element: str) -> Value:
    """LOGICAL_LEFT_SHIFT of a type."""
    return wrapped(x << (amount & 31), element)


def shift_right(x: Value, amount: Value, element: str) -> Value:
    """LOGICAL_RIGHT_SHIFT of a type."""
    return wrapped(unsigned(x, element).lshr(amount & 31), element)


def arithmetic_shift(x: Value, amount: Value, element: str, *, rounds: bool) -> Value:
    """ARITHMETIC_RIGHT_SHIFT of a type, rounding half up or down."""
    result = x >> (amount & 31)
    if not rounds:
        return result
    last_out = (x >> ((amount - 1) & 31)) & 1
    none = x.code.value(0, x.type)
    return wrapped(result + (amount > 0).select(last_out, none), element)


def invert(x: Value) -> Value:
    """All bits changed; of booleans, the other value."""
    return x ^ -1
