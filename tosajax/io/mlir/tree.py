"""MLIR as plain data: operations, values, regions, attributes, whatever their text looked like."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple


class Word(NamedTuple):
    """A bare word, or the body of an attribute of a dialect: IGNORE, in #tosa.nan_mode<IGNORE>."""

    text: str


class Type(NamedTuple):
    """A type, as MLIR writes it."""

    text: str


class Literal(NamedTuple):
    """A constant that is still text.

    Args:
      kind: "dense", "sparse", "dense_resource", "array", "number" for one float, or "typed" for a
        `dense` that begins with its type.
      text: the whole text that has it.
      start: of the part between the angle brackets, or of the number.
      end: of that part.
      type: of the constant; "" for one that states its type within.
    """

    kind: str
    text: str
    start: int
    end: int
    type: str = ""

    @property
    def body(self) -> str:
        return self.text[self.start : self.end]


# bool, int, str and bytes for themselves, a tuple for an array, a dict for a dictionary. Strings
# are str where they are UTF-8.
Attribute = Any


@dataclasses.dataclass(frozen=True, eq=False)
class Value:
    """A result of an operation, or an argument of a region.

    Args:
      name: as the text has it, without the percent sign; "" for a result that is not named.
      type: as MLIR writes it.
      location: of an argument, as the text has it.
    """

    name: str
    type: str
    location: str | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class Region:
    """A region of one block."""

    arguments: tuple[Value, ...]
    operations: tuple[Operation, ...]

    def walk(self) -> Iterator[Operation]:
        """All operations, those of inner regions after the one that has them."""
        for operation in self.operations:
            yield operation
            for region in operation.regions:
                yield from region.walk()


@dataclasses.dataclass(frozen=True, eq=False)
class Operation:
    """An operation.

    Args:
      name: with its dialect: "tosa.add".
      attributes: properties too, by name.
      location: as the text has it.
    """

    name: str
    operands: tuple[Value, ...] = ()
    results: tuple[Value, ...] = ()
    attributes: Mapping[str, Attribute] = dataclasses.field(default_factory=dict)
    regions: tuple[Region, ...] = ()
    location: str | None = None

    @property
    def title(self) -> str:
        """How messages name the operation: its name and first result."""
        named = self.results and self.results[0].name
        return f"{self.name} %{self.results[0].name}" if named else self.name


class Module(NamedTuple):
    """A text in the form of a tree.

    Args:
      operations: of the module.
      resources: the places of `dense_resource` constants in the text, by key.
      locations: what the names of locations stand for, by `#name`.
      syntax: how the operations of TOSA are written.
      size: of the text, in characters.
    """

    operations: tuple[Operation, ...]
    resources: Mapping[str, tuple[int, int]]
    locations: Mapping[str, str]
    syntax: str
    size: int
