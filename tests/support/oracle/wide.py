"""Finds 64-bit types in the lowered text of a program."""

from __future__ import annotations

import re

# Operations that scale a product of two int32, rounded once or twice.
_SCALING = {
    *("constant", "broadcast_in_dim", "reshape", "convert", "multiply", "add", "subtract"),
    *("shift_left", "shift_right_arithmetic", "and", "compare", "select", "func"),
}
_WIDE = re.compile(r"tensor<(?:[0-9?]+x)*(?:i64|ui64|f64)>")
_STEP = re.compile(r"(?:stablehlo|chlo|func)\.(\w+)")


def operations_of_64_bits(text: str) -> set[str]:
    """The operations on 64-bit data that scale no product of two int32."""
    lines = [line for line in text.splitlines() if _WIDE.search(_without_attributes(line))]
    return {found[1] for line in lines if (found := _STEP.search(line))} - _SCALING


def _without_attributes(line: str) -> str:
    """Sizes and positions are 64-bit integers, but not data."""
    return re.sub(r"(dense<[^>]*>|array<[^>]*>) : tensor<[0-9x]*xi64>|<\{.*?\}>", "", line)
