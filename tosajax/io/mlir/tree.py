"""MLIR as plain data: operations, values, regions and attributes, independent of the text form."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple


class Word(NamedTuple):
    """A bare word, or the body of a dialect's attribute: IGNORE in #tosa.nan_mode<IGNORE>."""

    text: str


class Type(NamedTuple):
    """A type, in MLIR's syntax."""

    text: str


class Literal(NamedTuple):
    """An unparsed constant.

    Args:
      kind: "dense", "sparse", "dense_resource", "array", "number" for one float, or "typed" for a
        `dense` that begins with its type.
      text: the whole text that contains it.
      start: the offset of the part between the angle brackets, or of the number.
      end: the end of that part.
      type: the constant's type; "" if the part between the brackets states it.
    """

    kind: str
    text: str
    start: int
    end: int
    type: str = ""

    @property
    def body(self) -> str:
        return self.text[self.start : self.end]


# A bool, int, str or bytes; a tuple for an array, a dict for a dictionary; or one of the classes
# above. Strings are bytes if they are not UTF-8.
Attribute = Any


@dataclasses.dataclass(frozen=True, eq=False)
class Value:
    """A result of an operation, or an argument of a region.

    Args:
      name: the name in the text, without the percent sign; "" for an unnamed result.
      type: the type, in MLIR's syntax.
      location: the location of an argument, as in the text.
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
        """Yields all operations in pre-order, including operations of nested regions."""
        for operation in self.operations:
            yield operation
            for region in operation.regions:
                yield from region.walk()


@dataclasses.dataclass(frozen=True, eq=False)
class Operation:
    """An operation.

    Args:
      name: the name with its dialect, such as "tosa.add".
      operands: the operands.
      results: the results.
      attributes: attributes and properties, by name.
      regions: the regions.
      location: the location, as in the text.
    """

    name: str
    operands: tuple[Value, ...] = ()
    results: tuple[Value, ...] = ()
    attributes: Mapping[str, Attribute] = dataclasses.field(default_factory=dict)
    regions: tuple[Region, ...] = ()
    location: str | None = None

    @property
    def title(self) -> str:
        """The operation's name and first result, for messages."""
        named = self.results and self.results[0].name
        return f"{self.name} %{self.results[0].name}" if named else self.name


class Module(NamedTuple):
    """The tree of a text.

    Args:
      operations: the module's operations.
      resources: the start and end of each `dense_resource` constant in the text, by key.
      locations: the text of each location alias, by `#name`.
      syntax: the form of the TOSA operations: generic, or a custom form.
      size: the length of the text, in characters.
    """

    operations: tuple[Operation, ...]
    resources: Mapping[str, tuple[int, int]]
    locations: Mapping[str, str]
    syntax: str
    size: int
