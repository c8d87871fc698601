"""The padded length of kernel rows in the library's memory."""

from __future__ import annotations


def padded(length: int, *, is_float: bool) -> int:
    """The length of a row with padding: a multiple of 4, or of 2 for floats; elements."""
    return round_up(length, 2 if is_float else 4)


def round_up(length: int, multiple: int) -> int:
    """Rounds `length` up to a multiple."""
    return -(-length // multiple) * multiple
