"""Prepares MLIR text for xDSL: replaces constants, locations and value names by placeholders.

xDSL 0.74 misreads hexadecimal floats in lists, takes a second for a list of 30 kB and a time
exponential in the length of a broken string, drops the `_0` of `%sum_0`, and supports neither
location aliases before their definition nor the metadata of locations. So a scan of the text makes
these replacements:

- a constant becomes `opaque<"kind", "number">`, with its index in `Reduced.literals`;
- a location becomes `loc("number")`, with its index in `Reduced.locations`;
- a value becomes `%n` with its index in `Reduced.values`;
- a quantized type gets one spelling, because xDSL compares types by their text;
- an enumerant, `#tosa.block_size<BLOCK_SIZE_32> : i32`, loses its type.

Comments, location aliases and the metadata at the end of a file are removed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from tosajax.io.mlir.tree import Literal
from tosajax.io.mlir.types import spelled
from tosajax.report import FormatError, UnsupportedError

_STRING = r'"[^"\\\n\v\f]*+(?:\\(?:["nt\\]|[0-9A-Fa-f]{2})[^"\\\n\v\f]*+)*+"'
MOST_DIMS = 64  # NumPy's limit; xDSL takes time quadratic in the number of dimensions
_NAME = r"(?:[0-9]++|[A-Za-z$._-][A-Za-z0-9$._-]*+)"
_FLOAT = r"-?(?:0x[0-9A-Fa-f]++|[0-9]++\.[0-9]*+(?:[eE][-+]?[0-9]++)?+)"
_START = r"(?<![\w$.%#!^@])"  # start of a word
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
    """A text with placeholders, and the parts that they replace."""

    text: str
    literals: list[Literal]
    values: list[str]
    locations: list[str]
    aliases: dict[str, str]  # text of location aliases, by "#name"
    resources: dict[str, tuple[int, int]]  # start and end of each resource's "0x...", by key


def reduce(text: str) -> Reduced:
    """Replaces constants, locations and value names by placeholders.

    Raises:
      FormatError: a string, a constant or a location does not end.
      UnsupportedError: a type has too many dimensions.
    """
    return _Scan(text).reduced()


class _Scan:
    def __init__(self, text: str) -> None:
        self.text = text
        self.pieces: list[str] = []
        self.at = 0  # the text before this offset is in the pieces
        self.numbers: dict[str, int] = {}  # index of each value
        self.places: dict[str, int] = {}  # index of each location
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
            case "word":  # an enumerant, whose integer type is redundant
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
                message = f"line {self.line(start)}: a type has more than {MOST_DIMS} dimensions"
                raise UnsupportedError(message)
            case _:
                raise FormatError(f"line {self.line(start)}: {match[0]!r} does not end")
        lines = "\n" * self.text.count("\n", start, end)  # keeps line numbers in errors
        self.pieces += self.text[self.at : start], mark, lines
        self.at = end

    def literal(self, kind: str, start: int, end: int) -> str:
        self.done.literals.append(Literal(kind, self.text, start, end))
        return f'opaque<"{kind}", "{len(self.done.literals) - 1}">'

    def closed(self, start: int) -> int:
        """The offset after the parenthesis that closes the one before `start`."""
        depth = 1
        for match in _PARENTHESIS.finditer(self.text, start):
            depth += {"(": 1, ")": -1}.get(match[0], 0)
            if depth == 0:
                return match.end()
        raise FormatError(f"line {self.line(start)}: a location does not end")

    def closed_bracket(self, start: int) -> int:
        """The offset after the angle bracket that closes the first one from `start` on."""
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
          The offset after the metadata.
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
