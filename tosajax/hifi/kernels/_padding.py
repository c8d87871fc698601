"""How long the rows of kernels are in the library's memory."""

from __future__ import annotations


def padded(length: int, *, is_float: bool) -> int:
    """Elements of a row with its padding: a multiple of 4, or of 2 for floats."""
    return round_up(length, 2 if is_float else 4)


def round_up(length: int, multiple: int) -> int:
    """The least multiple that is not below `length`."""
    return -(-length // multiple) * multiple
