"""MLIR text made ready for xDSL, which is to see neither its constants nor its locations.

xDSL 0.74 reads hexadecimal floats in lists as other numbers, takes a second for a list of 30 kB, a
time exponential in its length for a string that is broken, drops the `_0` of `%sum_0`, and knows
neither aliases of locations ahead of their definition nor the metadata of locations. So a scan of
the text puts marks in the place of these:

- a constant becomes `opaque<"kind", "number">`, a number of `Reduced.literals`;
- a location becomes `loc("number")`, a number of `Reduced.locations`;
- a value becomes `%n` and a number of `Reduced.values`;
- a quantized type has one spelling, as xDSL compares types by their text;
- a word of an enumeration, `#tosa.block_size<BLOCK_SIZE_32> : i32`, loses its type.

Comments, aliases of locations and the metadata at the end of a file are taken out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from tosajax.io.mlir.tree import Literal
from tosajax.io.mlir.types import spelled
from tosajax.report import FormatError, UnsupportedError

_STRING = r'"[^"\\\n\v\f]*+(?:\\(?:["nt\\]|[0-9A-Fa-f]{2})[^"\\\n\v\f]*+)*+"'
MOST_DIMS = 64  # that NumPy has; xDSL takes a time quadratic in their number
_NAME = r"(?:[0-9]++|[A-Za-z$._-][A-Za-z0-9$._-]*+)"
_FLOAT = r"-?(?:0x[0-9A-Fa-f]++|[0-9]++\.[0-9]*+(?:[eE][-+]?[0-9]++)?+)"
_START = r"(?<![\w$.%#!^@])"  # of a word
_TOKEN = re.compile(
    rf"""
    (?P<string>{_STRING})
  | (?P<comment>//[^\n]*+)
  | %(?P<value>{_NAME})
  | {_START}(?P<kind>dense_resource|dense|array|sparse)\s*+<\s*+
      (?P<body>"[^"\n]*+"(?=\s*+>)|[^<>"]*+(?:"[^"\n]*+"[^<>"]*+)*+)\s*+>
  | {_START}dense\s*+<\s*+(?P<typed>tensor\s*+<)
  | (?P<quantized>!quant\.uniform\s*+<)
  | (?P<word>\#tosa\.\w++\s*+<[\w\s]++>)\s*+:\s*+i[0-9]++
  | {_START}(?P<number>{_FLOAT}(?=\s*+:\s*+b?f[0-9]))
  | (?P<alias>\#{_NAME})\s*+=\s*+loc\s*+\(
  | {_START}(?P<location>loc)\s*+\(
  | (?P<metadata>\{{-\#)
  | {_START}(?P<dims>(?:(?:[0-9]++|\?)x){{{MOST_DIMS + 1}}})
  | (?P<broken>{_START}(?:dense_resource|dense|array|sparse|opaque)\s*+<|")
    """,
    re.VERBOSE,
)
_PARENTHESIS = re.compile(rf"{_STRING}|//[^\n]*+|[()]")
_BRACKET = re.compile(rf"{_STRING}|//[^\n]*+|[<>]")
_METADATA = re.compile(
    rf"(?P<string>{_STRING})|(?P<word>[\w$.-]++)|(?P<mark>[{{}}:,\[\]])|(?P<end>\#-\}})"
    r"|//[^\n]*+|\s++"
)
_HEX = re.compile(r'"0x[0-9A-Fa-f]*+"')


class Reduced(NamedTuple):
    """A text with marks, and what they stand for."""

    text: str
    literals: list[Literal]
    values: list[str]
    locations: list[str]
    aliases: dict[str, str]  # of locations, by "#name"
    resources: dict[str, tuple[int, int]]  # places of 0x and hexadecimal digits, by key


def reduce(text: str) -> Reduced:
    """Puts marks in the place of constants, locations and names.

    Raises:
      FormatError: a string, a constant or a location does not end.
      UnsupportedError: a type has too many dimensions.
    """
    return _Scan(text).reduced()


class _Scan:
    def __init__(self, text: str) -> None:
        self.text = text
        self.pieces: list[str] = []
        self.at = 0  # the text before it is in the pieces
        self.numbers: dict[str, int] = {}  # of values
        self.places: dict[str, int] = {}  # numbers of locations
        self.done = Reduced("", [], [], [], {}, {})

    def reduced(self) -> Reduced:
        place = 0
        while match := _TOKEN.search(self.text, place):
            if match.lastgroup != "string":
                self.replace(match)
            place = max(match.end(), self.at)
        self.pieces.append(self.text[self.at :])
        text = "".join(self.pieces)
        values, locations = list(self.numbers), list(self.places)
        return self.done._replace(text=text, values=values, locations=locations)

    def replace(self, match: re.Match[str]) -> None:
        start, end = match.span()
        match match.lastgroup:
            case "value":
                mark = f"%n{self.numbers.setdefault(match['value'], len(self.numbers))}"
            case "body":
                mark = self.literal(match["kind"], *match.span("body"))
            case "typed":
                end = self.closed_bracket(start)
                mark = self.literal("typed", match.start("typed"), end - 1)
            case "quantized":
                end = self.closed_bracket(start)
                mark = spelled(self.text[start:end])
            case "word":  # of an enumeration, with a type of integers that says nothing
                mark = match["word"]
            case "number":
                mark = self.literal("number", start, end)
            case "location":
                end = self.closed(end)
                raw = self.text[match.end() : end - 1]
                mark = f'loc("{self.places.setdefault(raw, len(self.places))}")'
            case "alias":
                end = self.closed(end)
                self.done.aliases[match["alias"]] = self.text[match.end() : end - 1]
                mark = ""
            case "metadata":
                end, mark = self.metadata(end), ""
            case "comment":
                mark = ""
            case "dims":
                found = f"line {self.line(start)}: a type has more than {MOST_DIMS} dimensions"
                raise UnsupportedError(found)
            case _:
                raise FormatError(f"line {self.line(start)}: {match[0]!r} does not end")
        lines = "\n" * self.text.count("\n", start, end)  # for the numbers of lines in errors
        self.pieces += self.text[self.at : start], mark, lines
        self.at = end

    def literal(self, kind: str, start: int, end: int) -> str:
        self.done.literals.append(Literal(kind, self.text, start, end))
        return f'opaque<"{kind}", "{len(self.done.literals) - 1}">'

    def closed(self, start: int) -> int:
        """The place behind the parenthesis that closes the one before `start`."""
        depth = 1
        for match in _PARENTHESIS.finditer(self.text, start):
            depth += {"(": 1, ")": -1}.get(match[0], 0)
            if depth == 0:
                return match.end()
        raise FormatError(f"line {self.line(start)}: a location does not end")

    def closed_bracket(self, start: int) -> int:
        """The place behind the angle bracket that closes the first one from `start` on."""
        depth = 0
        for match in _BRACKET.finditer(self.text, start):
            depth += {"<": 1, ">": -1}.get(match[0], 0)
            if depth == 0 and match[0] == ">":
                return match.end()
        raise FormatError(f"line {self.line(start)}: a constant does not end")

    def line(self, place: int) -> int:
        return self.text.count("\n", 0, place) + 1

    def metadata(self, start: int) -> int:
        """Finds the resources of {-# dialect_resources: {builtin: {key: "0x..."}} #-}.

        Returns:
          The place behind the end.
        """
        path: list[str] = []
        key = ""
        for match in self.tokens(start):
            match match.lastgroup:
                case "end":
                    return match.end()
                case "word":
                    key = match["word"]
                case "string" if path == ["dialect_resources", "builtin"] and key:
                    self.resource(key, match)
                    key = ""
                case "string":
                    key = match["string"][1:-1]
                case "mark" if match[0] == "{":
                    path.append(key)
                    key = ""
                case "mark" if match[0] == "}":
                    if not path:
                        break
                    path.pop()
                case "mark" if match[0] == ",":
                    key = ""
        raise FormatError(f"line {self.line(start)}: the metadata of the file is broken")

    def tokens(self, start: int) -> Iterator[re.Match[str]]:
        while match := _METADATA.match(self.text, start):
            yield match
            start = match.end()

    def resource(self, key: str, match: re.Match[str]) -> None:
        if not _HEX.fullmatch(self.text, *match.span()):
            raise FormatError(f"resource {key!r} is not a string of hexadecimal digits")
        if key in self.done.resources:
            raise FormatError(f"resource {key!r} is there twice")
        self.done.resources[key] = match.start() + 1, match.end() - 1
