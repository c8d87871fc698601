"""Locations of MLIR text: words for people, and what tosajax keeps there.

MLIR has no place for names of tensors that are no names of values, nor for those of subgraphs. They
are in the metadata of locations, which all tools carry along:
`loc(fused<["tosajax", "name", "layer 1/add"]>["where the node comes from"])`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tosajax.report import FormatError

_STRING = r'"(?:[^"\\]|\\.)*+"'
_TOKEN = re.compile(rf"\s*+({_STRING}|\#[\w$.-]++|[A-Za-z]++|[0-9]++|[][():,<])", re.DOTALL)
# Behind the name of a file: line and column, perhaps to another column or line.
_LINE = re.compile(r"\s*+:\s*+[0-9]++\s*+:\s*+[0-9]++(?:\s++to\s++[0-9]*+\s*+:\s*+[0-9]++)?+")
_ESCAPE = re.compile(rb'\\(?:(["\\nt])|([0-9A-Fa-f]{2}))')
_ESCAPED = {b"n": b"\n", b"t": b"\t"}
_TAG = "tosajax"
_TEXT = "location"  # the key of a text that no location of MLIR can have
_KEPT = re.compile(rf"\[\s*+({_STRING}(?:\s*+,\s*+{_STRING})*+)\s*+\]", re.DOTALL)
_LONGEST = 1 << 16  # characters; locations may refer to others again and again


class Location(NamedTuple):
    """What a location says.

    Args:
      text: None where it is unknown.
      kept: what tosajax keeps there: pairs of a key and a value.
    """

    text: str | None = None
    kept: tuple[tuple[str, str], ...] = ()

    def all_of(self, key: str) -> tuple[str, ...]:
        """The values of a key, in their order."""
        return tuple(value for found, value in self.kept if found == key)


class Locations:
    """The locations of one text.

    Args:
      aliases: what the names of locations stand for, by "#name".
    """

    def __init__(self, aliases: Mapping[str, str]) -> None:
        self._aliases = aliases
        self._known: dict[str, Location] = {}

    def read(self, text: str | None) -> Location:
        """What a location says, from the text between the parentheses.

        Raises:
          FormatError: it is not that of a location.
        """
        if text is None:
            return Location()
        if text not in self._known:
            reader = _Reader(text, self)
            found = reader.location()
            reader.check_end()
            if len(found.text or "") > _LONGEST:
                raise FormatError(f"a location has more than {_LONGEST} characters")
            self._known[text] = found
        return self._known[text]

    def named(self, alias: str) -> Location:
        if alias not in self._aliases:
            raise FormatError(f"location {alias} is not there")
        return self.read(self._aliases[alias])


class _Reader:
    """Reads one location by recursive descent."""

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
        """What follows a name: a child in parentheses, or lines and columns of a file."""
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
        found: list[str] = []
        while True:
            inner = self.location().text
            if inner is not None:
                found.append(inner)
            if (token := self.next()) != ",":
                break
        if token != "]":
            raise self.wrong(token)
        text = ", ".join(dict.fromkeys(found)) if found else None
        return Location(dict(kept).get(_TEXT, text), kept)

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """What tosajax keeps between the angle brackets, if it is that."""
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
    """The text of a string in quotes.

    Raises:
      FormatError: it is not UTF-8.
    """
    try:
        return _ESCAPE.sub(_unescaped, token[1:-1].encode()).decode()
    except UnicodeError:
        raise FormatError(f"{token[:40]} is not UTF-8") from None


def _unescaped(match: re.Match[bytes]) -> bytes:
    letter, digits = match.groups()
    return _ESCAPED.get(letter, letter) if letter else bytes([int(digits, 16)])


def quoted(content: str | bytes) -> str:
    """A text or bytes in quotes, the inverse of `unquoted`.

    Raises:
      ValueError: the text is not Unicode.
    """
    if isinstance(content, bytes):
        return '"' + "".join(_escaped(chr(octet)) for octet in content) + '"'
    content.encode()  # lone surrogates
    return '"' + "".join(map(_escaped_unless_unicode, content)) + '"'


def _escaped(character: str) -> str:
    plain = " " <= character <= "~" and character not in '"\\'
    return character if plain else f"\\{ord(character):02X}"


def _escaped_unless_unicode(character: str) -> str:
    return character if character > "\x7f" else _escaped(character)


def written(location: Location) -> str:
    """A location as ` loc(...)`, "" for one that says nothing."""
    text, kept = location
    inner = "unknown" if not text else quoted(text)
    if text == "":
        kept = (*kept, (_TEXT, text))
    if not kept:
        return "" if text is None else f" loc({inner})"
    words: Sequence[str] = [_TAG, *(word for pair in kept for word in pair)]
    return f" loc(fused<[{', '.join(map(quoted, words))}]>[{inner}])"
