"""A route: one way to compute an operator, with a name and the reason to choose it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

import jax

_NAME = re.compile(r"route ([a-z0-9 ]+); ([^/();]*)")
_NOT_NATIVE = re.compile(r"not native; ([^/();]*)")


class Route(NamedTuple):
    """A function of an operator's operands.

    A call writes name and reason into the names of XLA's instructions, where `explain` finds them.
    """

    name: str  # in lower case
    reason: str  # without parentheses and slashes
    function: Callable[..., jax.Array]

    @property
    def scope(self) -> str:
        """The name scope of its instructions."""
        return f"route {self.name}; {self.reason}"

    def __call__(self, *operands: object) -> jax.Array:
        with jax.named_scope(self.scope):
            return self.function(*operands)


def find(op_name: str) -> tuple[str, str] | None:
    """The name and reason of a route, from the name of an XLA instruction."""
    match = _NAME.search(op_name)
    return (match[1], match[2]) if match else None


def not_native(reason: str) -> str:
    """The name scope of an operator without a native kernel; see `why_not_native`.

    Args:
      reason: text without parentheses and slashes.
    """
    return f"not native; {reason}"


def why_not_native(op_name: str) -> str:
    """Why an operator has no native kernel, from the name of an XLA instruction; else ""."""
    match = _NOT_NATIVE.search(op_name)
    return match[1] if match else ""
