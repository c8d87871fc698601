"""A route: a way to compute an operator, with its name and the reason to take it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

import jax

_NAME = re.compile(r"route ([a-z0-9 ]+); ([^/();]*)")
_NOT_NATIVE = re.compile(r"not native; ([^/();]*)")


class Route(NamedTuple):
    """A function of an operator's operands.

    A call records name and reason in the names of XLA's steps, where `explain` finds them.
    """

    name: str  # in lower case
    reason: str  # without parentheses and slashes
    function: Callable[..., jax.Array]

    @property
    def scope(self) -> str:
        """The name of its steps."""
        return f"route {self.name}; {self.reason}"

    def __call__(self, *operands: object) -> jax.Array:
        with jax.named_scope(self.scope):
            return self.function(*operands)


def find(op_name: str) -> tuple[str, str] | None:
    """The name and reason of the route in the name that XLA gives to a step."""
    found = _NAME.search(op_name)
    return (found[1], found[2]) if found else None


def not_native(reason: str) -> str:
    """The scope of an operator that no native kernel computes; see `why_not_native`.

    Args:
      reason: without parentheses and slashes.
    """
    return f"not native; {reason}"


def why_not_native(op_name: str) -> str:
    """Why no native kernel computes an operator, in the name that XLA gives to a step; or ""."""
    found = _NOT_NATIVE.search(op_name)
    return found[1] if found else ""
