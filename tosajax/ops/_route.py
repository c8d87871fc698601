"""Records in the names of XLA's steps which route an operator took, and why."""

from __future__ import annotations

import contextlib
import re

import jax

_NAME = re.compile(r"route ([a-z0-9 ]+); ([^/();]*)")


def route(name: str, reason: str) -> contextlib.AbstractContextManager:
    """Marks what is computed inside as done this way.

    Args:
      name: of the route, in lower case.
      reason: why it was taken; without parentheses and slashes.
    """
    return jax.named_scope(f"route {name}; {reason}")


def find(op_name: str) -> tuple[str, str] | None:
    """The name and reason of a route in the name that XLA gives to a step."""
    found = _NAME.search(op_name)
    return (found[1], found[2]) if found else None
