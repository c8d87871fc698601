"""Checks types and counts of arguments before any work is done; messages name the argument."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from types import UnionType


def check_type(
    name: str, value: object, kinds: type | UnionType | tuple[type, ...], wanted: str
) -> None:
    """Raises TypeError if an argument has another type.

    Args:
      name: the name of the argument.
      value: its value.
      kinds: the types that it may have.
      wanted: these types in words, such as "a Graph".
    """
    if not isinstance(value, kinds):
        raise TypeError(f"{name} is {shown(value)}, expected {wanted}")


def count(name: str, value: object) -> int:
    """Checks that a value is an integer of at least 1; returns it as an int.

    Raises:
      TypeError: the value is not an integer; a bool is not accepted.
      ValueError: the value is below 1.
    """
    if not isinstance(value, Integral) or isinstance(value, bool):
        raise TypeError(f"{name} is {shown(value)}, expected an integer")
    if value < 1:
        raise ValueError(f"{name} is {value}, expected at least 1")
    return int(value)


def check_count(names: Sequence[str], inputs: Sequence[object]) -> None:
    """Raises TypeError if the numbers of inputs and of their names differ."""
    if len(inputs) != len(names):
        raise TypeError(f"{len(inputs)} inputs, expected {len(names)} ({', '.join(names)})")


def shown(value: object) -> str:
    """A value, shortened, with its type, for a message."""
    text = repr(value)
    return f"{text if len(text) <= 60 else text[:57] + '...'} ({type(value).__name__})"
