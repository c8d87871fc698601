"""Types and counts of arguments, refused by name before any work is done."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from types import UnionType


def check_type(
    name: str, value: object, kinds: type | UnionType | tuple[type, ...], wanted: str
) -> None:
    """Raises TypeError where an argument is of another type.

    Args:
      name: of the argument.
      value: of the argument.
      kinds: the types that it may have.
      wanted: the same in words, such as "a Graph".
    """
    if not isinstance(value, kinds):
        raise TypeError(f"{name} is {shown(value)}, expected {wanted}")


def count(name: str, value: object) -> int:
    """A number of things, as an int.

    Raises:
      TypeError: it is not an integer; a bool is not one.
      ValueError: it is below 1.
    """
    if not isinstance(value, Integral) or isinstance(value, bool):
        raise TypeError(f"{name} is {shown(value)}, expected an integer")
    if value < 1:
        raise ValueError(f"{name} is {value}, expected at least 1")
    return int(value)


def check_count(names: Sequence[str], inputs: Sequence[object]) -> None:
    """Raises TypeError where there are more inputs than names of inputs, or fewer."""
    if len(inputs) != len(names):
        raise TypeError(f"{len(inputs)} inputs, expected {len(names)} ({', '.join(names)})")


def shown(value: object) -> str:
    """A value, shortened, and its type, for a message."""
    text = repr(value)
    return f"{text if len(text) <= 60 else text[:57] + '...'} ({type(value).__name__})"
