"""Finds operations that TOSA 1.0 does not have in the MLIR text that converters write."""

from __future__ import annotations

import re
from typing import NamedTuple

from tosajax.io.mlir.locations import unquoted

_QUOTED = rb'"(?:[^"\\]|\\.)*"'


class Found(NamedTuple):
    """An operation.

    Args:
      operation: its name without the dialect.
      place: the name in its location; "" if it has none.
    """

    operation: str
    place: str


# Operations that only hold a value for others.
_HOLDERS = rb"(?!no_value|pseudo_|constant)"


def left_over(text: bytes, dialect: str) -> Found | None:
    """The first operation of a converter's own dialect; None if there is none.

    Args:
      text: MLIR text with locations, one operation on a line.
      dialect: the name of the dialect.
    """
    return _found(text, rb'= "?%s\.%s([\w.]+)"?[ (].*' % (dialect.encode(), _HOLDERS))


def of_int64(text: bytes) -> Found | None:
    """The first TOSA operation on int64 tensors, apart from constants; None if there is none."""
    return _found(text, rb'= "?tosa\.(?!const)([\w.]+)"?[ (].*[x<]i64>.*')


def _found(text: bytes, pattern: bytes) -> Found | None:
    match = re.search(pattern, text)
    return None if match is None else Found(match[1].decode(), _place_of(text, match[0]))


def _place_of(text: bytes, line: bytes) -> str:
    """The first name in the location at the end of a line; "" if it has none."""
    location = line.rpartition(b" loc(")[2]
    for _ in range(8):  # an alias may be of locations that are aliases
        name = re.match(rb"(?:fused\[|callsite\()?(%s)" % _QUOTED, location)
        if name is not None:
            return unquoted(name[1].decode("utf-8", "replace"))
        alias = re.match(rb"(?:fused\[|callsite\()?(#loc\d*)", location)
        body = alias and re.search(rb"^%s = loc\((.*)\)$" % alias[1], text, re.MULTILINE)
        if not body:
            return ""
        location = body[1]
    return ""
