"""Suggests known names for a misspelt name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def near(name: str, known: Iterable[str]) -> str:
    """The end of a message, such as "; did you mean 'weight_bits'?"; "" without a similar name."""
    similar = difflib.get_close_matches(name, list(known), n=2, cutoff=0.75)
    return f"; did you mean {' or '.join(map(repr, similar))}?" if similar else ""
