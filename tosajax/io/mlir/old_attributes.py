"""Converts attributes and types of MLIR bytecode to MLIR text.

Attributes and types of the builtin dialect have a binary encoding; in other dialects they are text.

Source: the builtin dialect in LLVM 17 to 20; "MLIR Bytecode Format".
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from tosajax.io.mlir.locations import quoted
from tosajax.io.mlir.octets import Octets, shown
from tosajax.io.mlir.old_quantized import quantized
from tosajax.report import FormatError, UnsupportedError

_T = TypeVar("_T")
_LONGEST = 1 << 20  # characters of a type, an array or a dictionary
_DEEPEST = 32
_MOST_DIMS = 64
_DYNAMIC = -(1 << 63)
_SIGNS = ("", "s", "u")
_MOST_BITS = 64
_BYTE = 8
_FLOATS = {3: "bf16", 4: "f16", 5: "f32", 6: "f64"}
_BITS_OF = {"index": 64, "bf16": 16, "f16": 16, "f32": 32, "f64": 64}
_INTEGER = re.compile(r"([su]?)i([1-9][0-9]?)")
_FLOAT_8 = re.compile(r"f8E[0-9]M[0-9]\w*")
_OF_DIALECT = re.compile(rb"([#!](?:tosa|quant)\.\w+)<[^\"]*>", re.DOTALL)
_RANKED = re.compile(r"tensor<((?:[0-9]+x)*)([^x]*)>")
# The kinds of the builtin dialect's attributes, by code.
_CODES = (
    *("array", "dictionary", "string", "typed_string", "symbol", "nested_symbol", "type", "unit"),
    *("number", "float", "call", "line", "fused", "fused_with_metadata", "name", "unknown"),
    *("resource", "dense_array", "dense", "strings", "sparse", "distinct", "range"),
)
_PLACES = ("call", "line", "fused", "fused_with_metadata", "name", "unknown", "range")


class Attribute(NamedTuple):
    """An attribute as text.

    Args:
      kind: a kind in `old_properties`, or another word.
      text: the attribute's text, with its type.
      name: the content of a string, or the name of a symbol.
    """

    kind: str
    text: str
    name: str | bytes = ""


class Entry(NamedTuple):
    """The encoded bytes of an attribute or type.

    Args:
      dialect: its dialect's name.
      part: its bytes.
      is_text: whether the bytes are text.
    """

    dialect: bytes
    part: Octets
    is_text: bool


class Attributes:
    """The attributes and types of one file.

    Args:
      attributes: the encoded attributes.
      types: the encoded types.
      strings: the file's strings.
      resources: the keys of the resources that attributes refer to.
      spend: function called with the length of each text, in characters, that raises if the total
        is too large.
    """

    def __init__(
        self,
        attributes: Sequence[Entry],
        types: Sequence[Entry],
        strings: Sequence[bytes],
        resources: Sequence[str],
        spend: Callable[[int], None],
    ) -> None:
        self._attributes = attributes
        self._types = types
        self._strings = strings
        self._resources = resources
        self._spend = spend
        self._read: dict[int, Attribute] = {}
        self._read_types: dict[int, str] = {}
        self._depth = 0

    def attribute(self, number: int) -> Attribute:
        """The attribute with an index.

        Raises:
          FormatError: the attribute is broken.
          UnsupportedError: TOSA does not use this kind of attribute.
        """
        if number not in self._read:
            self._read[number] = self._bounded(self._attribute, _at(self._attributes, number))
            self._spend(len(self._read[number].text))
        return self._read[number]

    def type(self, number: int) -> str:
        """The text of the type with an index."""
        if number not in self._read_types:
            self._read_types[number] = self._bounded(self._type, _at(self._types, number))
            self._spend(len(self._read_types[number]))
        return self._read_types[number]

    def kind(self, number: int) -> str:
        return self.attribute(number).kind

    def string(self, number: int) -> bytes:
        if number >= len(self._strings):
            raise FormatError(f"MLIR bytecode has no string {number}")
        return self._strings[number]

    def dictionary(self, number: int) -> dict[str, int]:
        """The indices of the attributes in a dictionary attribute, by name."""
        entry = _at(self._attributes, number)
        part = entry.part.again()
        if entry.is_text or entry.dialect != b"builtin" or _code(part) != "dictionary":
            raise FormatError(f"attribute {number} is not a dictionary")
        numbers: dict[str, int] = {}
        for _ in range(part.count()):
            name = self.attribute(part.number())
            if name.kind != "string" or not isinstance(name.name, str) or name.name in numbers:
                raise FormatError(f"attribute {number} has a broken name")
            numbers[name.name] = part.number()
        part.check_end()
        return numbers

    def location(self, number: int) -> tuple[str, list[int]]:
        """The text of a location, and the indices of the locations it refers to, as `#l1`."""
        entry = _at(self._attributes, number)
        part = entry.part.again()
        if entry.is_text or entry.dialect != b"builtin":
            return "unknown", []
        code = _code(part)
        if code not in _PLACES:
            raise FormatError(f"attribute {number} is not a location")
        text, inner = self._location(code, part)
        part.check_end()
        self._spend(len(text))
        return text, inner

    def _bounded(self, read: Callable[[Entry], _T], entry: Entry) -> _T:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise FormatError("attributes or types of MLIR bytecode are nested too deeply")
        value = read(entry._replace(part=entry.part.again()))
        self._depth -= 1
        return value

    # Attributes.

    def _attribute(self, entry: Entry) -> Attribute:
        part = entry.part
        if entry.is_text:
            return _of_dialect(part)
        if entry.dialect != b"builtin":
            raise UnsupportedError(f"an attribute of dialect {shown(entry.dialect)} is not text")
        code = _code(part)
        readers: dict[str, Callable[[Octets], Attribute]] = {
            "array": self._array,
            "dictionary": self._pairs,
            "string": self._string,
            "symbol": self._symbol,
            "type": lambda p: Attribute("type", self.type(p.number())),
            "unit": lambda p: Attribute("unit", "unit"),
            "number": self._number,
            "float": self._float,
            "resource": self._resource,
            "dense_array": self._integers,
            "dense": self._dense,
        }
        if code in _PLACES:
            return Attribute("location", "unit")
        if code not in readers:
            raise UnsupportedError(f"attributes that are {code} are not of TOSA")
        attribute = readers[code](part)
        part.check_end()
        return attribute

    def _array(self, part: Octets) -> Attribute:
        elements = [self.attribute(n) for n in part.numbers()]
        return Attribute("array", _joined("[", [a.text for a in elements], "]"))

    def _pairs(self, part: Octets) -> Attribute:
        texts = []
        for _ in range(part.count()):
            name, value = (self.attribute(part.number()) for _ in range(2))
            texts.append(f"{quoted(name.name)} = {value.text}")
        return Attribute("dictionary", _joined("{", texts, "}"))

    def _string(self, part: Octets) -> Attribute:
        octets = self.string(part.number())
        try:
            text: str | bytes = octets.decode()
        except UnicodeDecodeError:
            text = octets
        return Attribute("string", quoted(text), text)

    def _symbol(self, part: Octets) -> Attribute:
        name = self.attribute(part.number())
        if name.kind != "string":
            part.wrong("the name of a symbol is not a string")
        return Attribute("symbol", f"@{name.text}", name.name)

    def _number(self, part: Octets) -> Attribute:
        kind = self.type(part.number())
        match = _INTEGER.fullmatch(kind)
        if match is None and kind != "index":
            raise UnsupportedError(f"a number of type {kind} is not of TOSA")
        bits = int(match[2]) if match else _MOST_BITS
        number = _known_width(part, bits)
        if bits == 1:
            return Attribute("boolean", "true" if number else "false")
        if not (match and match[1] == "u") and number >> (bits - 1):
            number -= 1 << bits
        return Attribute("integer", f"{number} : {kind}")

    def _float(self, part: Octets) -> Attribute:
        kind = self.type(part.number())
        bits = _BYTE if _FLOAT_8.fullmatch(kind) else _BITS_OF.get(kind)
        if bits is None or kind == "index":
            raise UnsupportedError(f"a float of type {kind} is not of TOSA")
        return Attribute("float", f"0x{_known_width(part, bits):0{bits // 4}X} : {kind}")

    def _resource(self, part: Octets) -> Attribute:
        kind, number = self.type(part.number()), part.number()
        if number >= len(self._resources):
            part.wrong(f"there is no resource {number}")
        return Attribute("constant", f"dense_resource<{self._resources[number]}> : {kind}")

    def _integers(self, part: Octets) -> Attribute:
        kind, count = self.type(part.number()), part.number()
        data = part.blob()
        match = _INTEGER.fullmatch(kind)
        if match is None or match[1] or int(match[2]) not in (8, 16, 32, 64):
            raise UnsupportedError(f"a list of {kind} is not of TOSA")
        size = int(match[2]) // 8
        if len(data) != size * count:
            part.wrong(f"a list of {count} numbers of {kind} has {len(data)} bytes")
        numbers = (
            int.from_bytes(data[at : at + size], "little", signed=True)
            for at in range(0, len(data), size)
        )
        listed = ", ".join(map(str, numbers))
        return Attribute("integers", f"array<{kind}: {listed}>" if listed else f"array<{kind}>")

    def _dense(self, part: Octets) -> Attribute:
        kind, data = self.type(part.number()), part.blob()
        match = _RANKED.fullmatch(kind)
        if match and match[2] == "i1":
            count = math.prod(int(dim) for dim in match[1].split("x")[:-1])
            data = _unpacked(data, count, part)
        body = f'"0x{data.hex().upper()}"' if data else ""
        return Attribute("constant", f"dense<{body}> : {kind}")

    # Locations.

    def _location(self, code: str, part: Octets) -> tuple[str, list[int]]:
        if code == "unknown":
            return "unknown", []
        if code == "call":
            callee, caller = part.number(), part.number()
            return f"callsite(#l{callee} at #l{caller})", [callee, caller]
        if code.startswith("fused"):
            inner = part.numbers()
            if code != "fused":
                part.number()  # metadata, ignored
            return f"fused[{', '.join(f'#l{n}' for n in inner)}]" if inner else "unknown", inner
        name = self.attribute(part.number())
        if name.kind != "string":
            part.wrong("the name in a location is not a string")
        if code == "name":
            inner = part.number()
            return f"{name.text}(#l{inner})", [inner]
        places = part.numbers() if code == "range" else [part.number(), part.number()]
        line, column, *_ = (*places, 0, 0)
        return f"{name.text}:{line}:{column}", []

    # Types.

    def _type(self, entry: Entry) -> str:
        part = entry.part
        if entry.is_text:
            return _type_of_dialect(part)
        if entry.dialect == b"quant":
            return quantized(part, self.type)
        if entry.dialect != b"builtin":
            raise UnsupportedError(f"a type of dialect {shown(entry.dialect)} is not text")
        code = part.number()
        readers: dict[int, Callable[[Octets], str]] = {
            0: _integer,
            1: lambda _: "index",
            2: self._function,
            12: lambda _: "none",
            13: self._tensor,
            18: lambda p: f"tensor<*x{self.type(p.number())}>",
        }
        if code not in readers and code not in _FLOATS:
            raise UnsupportedError(f"type {code} of the builtin dialect is not of TOSA")
        text = _FLOATS[code] if code in _FLOATS else readers[code](part)
        part.check_end()
        return text

    def _function(self, part: Octets) -> str:
        inputs, results = ([self.type(n) for n in part.numbers()] for _ in range(2))
        if any(kind.startswith("(") for kind in (*inputs, *results)):
            raise UnsupportedError("functions of functions are not of TOSA")
        return f"{_joined('(', inputs, ')')} -> {_joined('(', results, ')')}"

    def _tensor(self, part: Octets) -> str:
        dims = [part.signed() for _ in range(part.count())]
        element = self.type(part.number())
        if len(dims) > _MOST_DIMS:
            raise UnsupportedError(f"a type has more than {_MOST_DIMS} dimensions")
        if any(dim < 0 and dim != _DYNAMIC for dim in dims):
            part.wrong("a dimension is negative")
        if element.startswith(("tensor", "(", "none")):
            part.wrong(f"tensors of {element[:80]} are not there in MLIR")
        return f"tensor<{''.join('?x' if d == _DYNAMIC else f'{d}x' for d in dims)}{element}>"


def _at(entries: Sequence[Entry], number: int) -> Entry:
    if number >= len(entries):
        raise FormatError(f"MLIR bytecode has no attribute or type {number}")
    return entries[number]


def _code(part: Octets) -> str:
    code = part.number()
    if code >= len(_CODES):
        raise UnsupportedError(f"attribute {code} of the builtin dialect is unknown")
    return _CODES[code]


def _joined(start: str, texts: Sequence[str], end: str) -> str:
    if sum(map(len, texts)) + 2 * len(texts) > _LONGEST:
        raise UnsupportedError(f"an attribute or a type has more than {_LONGEST} characters")
    return f"{start}{', '.join(texts)}{end}"


def _known_width(part: Octets, bits: int) -> int:
    """Reads the bits of an integer: one byte for up to 8 bits, else a zigzag-encoded varint."""
    value = part.byte() if bits <= _BYTE else part.signed()
    mask = (1 << bits) - 1
    if value >> bits not in (0, -1) and not (bits < _BYTE and value in (mask, 0xFF)):
        part.wrong(f"a number has more than {bits} bits")
    return value & mask


def _integer(part: Octets) -> str:
    number = part.number()
    bits, sign = number >> 2, number & 3
    if sign >= len(_SIGNS) or not bits:
        part.wrong("an integer type has no width, or no sign")
    if bits > _MOST_BITS:
        raise UnsupportedError(f"integers of {bits} bits are not of TOSA")
    return f"{_SIGNS[sign]}i{bits}"


def _of_dialect(part: Octets) -> Attribute:
    text = part.text()
    part.check_end()
    match = _OF_DIALECT.fullmatch(text)
    if match is None or not text.startswith(b"#"):
        raise UnsupportedError(f"attribute {shown(text)} is not of the TOSA dialect before 1.0")
    return Attribute(_decoded(match[1]), _decoded(text))


def _type_of_dialect(part: Octets) -> str:
    text = part.text()
    part.check_end()
    name = _decoded(text)
    if _FLOAT_8.fullmatch(name) or (text.startswith(b"!") and _OF_DIALECT.fullmatch(text)):
        return name
    raise UnsupportedError(f"type {shown(text)} is not of the TOSA dialect before 1.0")


def _decoded(text: bytes) -> str:
    try:
        return text.decode("ascii")
    except UnicodeDecodeError:
        raise UnsupportedError(f"{shown(text)} is not ASCII") from None


def _unpacked(data: bytes, count: int, part: Octets) -> bytes:
    """Unpacks i1 elements from eight per byte to one per byte; a splat, 0x00 or 0xFF, stays."""
    if data in (b"\0", b"\xff"):
        return data
    if len(data) != -(-count // _BYTE):
        part.wrong(f"{count} elements of i1 have {len(data)} bytes")
    return bytes((data[n // _BYTE] >> n % _BYTE) & 1 for n in range(count))
