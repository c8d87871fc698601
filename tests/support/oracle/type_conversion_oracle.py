"""RESCALE and integer casts in Python integers ("Type Conversion", TOSA 1.0.1)."""

from __future__ import annotations

from fractions import Fraction

from oracle.elementwise_oracle import fits, wrap


def rescale(
    value: int,
    multiplier: int,
    shift: int,
    input_zp: int,
    output_zp: int,
    *,
    scale32: bool,
    double_round: bool,
    bits: int,
    unsigned: bool,
) -> int | None:
    """The result as a bit pattern of `bits`, or None where it is unpredictable.

    The value and the zero points are numbers already, signed or unsigned.
    """
    value -= input_zp
    if scale32 and not -(1 << (shift - 1)) <= value < 1 << (shift - 1):
        return None
    half = 1 << (shift - 1)
    if double_round and shift > 31:
        half += (1 << 30) if value >= 0 else -(1 << 30)
    scaled = (value * multiplier + half) >> shift
    if not fits(scaled) or not fits(scaled + output_zp):
        return None
    low, high = (0, (1 << bits) - 1) if unsigned else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
    return wrap(min(max(scaled + output_zp, low), high), bits)


def inexact_range(
    value: int, multiplier: int, shift: int, output_zp: int, bits: int, unsigned: bool
) -> tuple[int, int]:
    """Smallest and largest number that INEXACT_ROUND allows; `value` is without its zero point."""
    reference = Fraction(value * multiplier, 1 << shift)
    slack = Fraction(1, 2) + (3 * abs(reference) + abs(reference + output_zp)) / (1 << 24)
    low, high = (0, (1 << bits) - 1) if unsigned else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
    least = (reference - slack + output_zp).__ceil__()
    most = (reference + slack + output_zp).__floor__()
    return min(max(least, low), high), min(max(most, low), high)


def to_integer(value: float, bits: int) -> int:
    """Rounds half to even and saturates; Python's `round` does the former."""
    limit = 1 << (bits - 1)
    if value in (float("inf"), float("-inf")):
        return limit - 1 if value > 0 else -limit
    return min(max(round(value), -limit), limit - 1)
