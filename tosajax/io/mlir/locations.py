"""Reads and writes locations of MLIR text, and the names that tosajax stores in their metadata.

MLIR cannot store tensor names that are illegal as value names, nor the names of subgraphs. They go
into the metadata of locations, which all tools preserve:
`loc(fused<["tosajax", "name", "layer 1/add"]>["where the node comes from"])`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tosajax.report import FormatError

_STRING = r'"(?:[^"\\]|\\.)*+"'
_TOKEN = re.compile(rf"\s*+({_STRING}|\#[\w$.-]++|[A-Za-z]++|[0-9]++|[][():,<])", re.DOTALL)
# Follows a file name: line and column, or a range of them.
_LINE = re.compile(r"\s*+:\s*+[0-9]++\s*+:\s*+[0-9]++(?:\s++to\s++[0-9]*+\s*+:\s*+[0-9]++)?+")
_ESCAPE = re.compile(rb'\\(?:(["\\nt])|([0-9A-Fa-f]{2}))')
_ESCAPED = {b"n": b"\n", b"t": b"\t"}
_TAG = "tosajax"
_TEXT = "location"  # the key of a text that MLIR locations cannot express
_KEPT = re.compile(rf"\[\s*+({_STRING}(?:\s*+,\s*+{_STRING})*+)\s*+\]", re.DOTALL)
_LONGEST = 1 << 16  # characters; nested references could make a location's text exponential


class Location(NamedTuple):
    """A parsed location.

    Args:
      text: the location as text; None if unknown.
      kept: tosajax's metadata, pairs of a key and a value.
    """

    text: str | None = None
    kept: tuple[tuple[str, str], ...] = ()

    def all_of(self, key: str) -> tuple[str, ...]:
        """The values of a key in the metadata, in order."""
        return tuple(value for other, value in self.kept if other == key)


class Locations:
    """The locations of one text.

    Args:
      aliases: the text of each location alias, by "#name".
    """

    def __init__(self, aliases: Mapping[str, str]) -> None:
        self._aliases = aliases
        self._known: dict[str, Location] = {}

    def read(self, text: str | None) -> Location:
        """Parses a location, given the text between the parentheses of loc(...).

        Raises:
          FormatError: the text is not a location.
        """
        if text is None:
            return Location()
        if text not in self._known:
            reader = _Reader(text, self)
            location = reader.location()
            reader.check_end()
            if len(location.text or "") > _LONGEST:
                raise FormatError(f"a location has more than {_LONGEST} characters")
            self._known[text] = location
        return self._known[text]

    def named(self, alias: str) -> Location:
        if alias not in self._aliases:
            raise FormatError(f"location {alias} is not there")
        return self.read(self._aliases[alias])


class _Reader:
    """Parses one location by recursive descent."""

    def __init__(self, text: str, others: Locations) -> None:
        self.text = text
        self.others = others
        self.at = 0

    def location(self) -> Location:
        token = self.next()
        if token.startswith('"'):
            return Location(self.name(unquoted(token)))
        if token.startswith("#"):
            return self.others.named(token)
        match token:
            case "unknown":
                return Location()
            case "callsite":
                return Location(self.call())
            case "fused":
                return self.fused()
        raise self.wrong(token)

    def name(self, name: str) -> str:
        """Parses the rest of a name: a child in parentheses, or lines and columns of a file."""
        if self.peek() == "(":
            self.next()
            inner = self.location().text
            self.expect(")")
            return f"{name}({inner})" if inner else name
        if match := _LINE.match(self.text, self.at):
            self.at = match.end()
            return name + match[0].strip()
        return name

    def call(self) -> str:
        self.expect("(")
        callee = self.location().text
        self.expect("at")
        caller = self.location().text
        self.expect(")")
        return f"{callee} at {caller}"

    def fused(self) -> Location:
        kept = self.metadata() if self.peek() == "<" else ()
        self.expect("[")
        texts: list[str] = []
        while True:
            inner = self.location().text
            if inner is not None:
                texts.append(inner)
            if (token := self.next()) != ",":
                break
        if token != "]":
            raise self.wrong(token)
        text = ", ".join(dict.fromkeys(texts)) if texts else None
        return Location(dict(kept).get(_TEXT, text), kept)

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """Parses the metadata in angle brackets; () if it is not tosajax's."""
        start = self.at = self.text.index("<", self.at) + 1
        depth = 1
        for match in re.finditer(rf"{_STRING}|->|[<>]", self.text[start:], re.DOTALL):
            depth += {"<": 1, ">": -1}.get(match[0], 0)
            if not depth:
                self.at = start + match.end()
                return _kept(self.text[start : self.at - 1].strip())
        raise self.wrong("<")

    def next(self) -> str:
        match = _TOKEN.match(self.text, self.at)
        if match is None:
            raise self.wrong(self.text[self.at : self.at + 1])
        self.at = match.end()
        return match[1]

    def peek(self) -> str:
        match = _TOKEN.match(self.text, self.at)
        return match[1] if match else ""

    def expect(self, wanted: str) -> None:
        if (token := self.next()) != wanted:
            raise self.wrong(token)

    def check_end(self) -> None:
        if self.text[self.at :].strip():
            raise self.wrong(self.text[self.at :].strip())

    def wrong(self, token: str) -> FormatError:
        return FormatError(f"loc({self.text[:60]}) is not a location, at {token[:20]!r}")


def _kept(body: str) -> tuple[tuple[str, str], ...]:
    match = _KEPT.fullmatch(body)
    if match is None:
        return ()
    tag, *words = (unquoted(token) for token in re.findall(_STRING, match[1], re.DOTALL))
    if tag != _TAG or len(words) % 2:
        return ()
    return tuple(zip(words[::2], words[1::2], strict=True))


def unquoted(token: str) -> str:
    """The text of a string in quotes, unescaped.

    Raises:
      FormatError: the text is not UTF-8.
    """
    try:
        return _ESCAPE.sub(_unescaped, token[1:-1].encode()).decode()
    except UnicodeError:
        raise FormatError(f"{token[:40]} is not UTF-8") from None


def _unescaped(match: re.Match[bytes]) -> bytes:
    letter, digits = match.groups()
    return _ESCAPED.get(letter, letter) if letter else bytes([int(digits, 16)])


def quoted(content: str | bytes) -> str:
    """Quotes and escapes a text or bytes, the inverse of `unquoted`.

    Raises:
      ValueError: the text is not valid Unicode.
    """
    if isinstance(content, bytes):
        return '"' + "".join(_escaped(chr(octet)) for octet in content) + '"'
    content.encode()  # raises for lone surrogates
    return '"' + "".join(map(_escaped_unless_unicode, content)) + '"'


def _escaped(character: str) -> str:
    plain = " " <= character <= "~" and character not in '"\\'
    return character if plain else f"\\{ord(character):02X}"


def _escaped_unless_unicode(character: str) -> str:
    return character if character > "\x7f" else _escaped(character)


def written(location: Location) -> str:
    """Formats a location as ` loc(...)`, or "" if it is empty."""
    text, kept = location
    inner = "unknown" if not text else quoted(text)
    if text == "":
        kept = (*kept, (_TEXT, text))
    if not kept:
        return "" if text is None else f" loc({inner})"
    words: Sequence[str] = [_TAG, *(word for pair in kept for word in pair)]
    return f" loc(fused<[{', '.join(map(quoted, words))}]>[{inner}])"
