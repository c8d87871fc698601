"""Converts operations in MLIR bytecode of the TOSA dialect before 1.0 to text."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, NamedTuple

from tosajax.io.mlir.octets import Octets
from tosajax.io.mlir.old_properties import Counts, counts, kinds
from tosajax.report import FormatError, UnsupportedError

if TYPE_CHECKING:
    from tosajax.io.mlir.old_bytecode import File

# The bytecode versions that introduced each feature, and the newest version read.
DIALECT_VERSIONS, LAZY, USE_LISTS, ELIDED, NATIVE, NEWEST = 1, 2, 3, 4, 5, 6
_DEEPEST = 60  # nesting of regions
_FUNCTION = "func.func"
_BODY = ("",) * 4 + ("a region",)
# The bits of an operation's encoding mask.
_ATTRIBUTES, _RESULTS, _OPERANDS, _SUCCESSORS, _REGIONS, _ORDERS, _PROPERTIES = (
    1 << bit for bit in range(7)
)


class _Names:
    """Generates the value names of a region; without a prefix, as MLIR prints them in functions."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._arguments = itertools.count()
        self._results = itertools.count()

    def argument(self) -> str:
        return f"%{self._prefix}arg{next(self._arguments)}"

    def result(self) -> str:
        return f"%{self._prefix}{next(self._results)}"


class _Value(NamedTuple):
    name: str
    type: str


class Body:
    """Converts operations inside an isolated-from-above operation, which numbers its own values."""

    def __init__(self, file: File, part: Octets) -> None:
        self.file = file
        self.part = part
        self.values: dict[int, _Value] = {}
        self.size = 0  # value indices reserved by the open regions
        self.names = _Names("")

    def module(self) -> None:
        """Converts the file's only operation, the module."""
        count, has_arguments = self.part.flagged()
        if count != 1 or has_arguments:
            self.part.wrong(f"the file has {count} operations, expected one")
        self.operation(0, 0)
        self.part.check_end()

    def region(self, depth: int) -> None:
        if depth > _DEEPEST:
            raise UnsupportedError(f"regions are nested more than {_DEEPEST} deep")
        blocks = self.part.number()
        if not blocks:
            return
        if blocks > 1:
            raise UnsupportedError(f"a region has {blocks} blocks, and TOSA has no branches")
        first, reserved = self.size, self.part.number()
        if reserved > self.part.end - self.part.at:
            self.part.wrong(f"{reserved} values are to follow in fewer bytes")
        self.size += reserved
        count, has_arguments = self.part.flagged()
        at = self.arguments(first) if has_arguments else first
        for _ in range(count):
            at = self.operation(at, depth)
        if at != first + reserved:
            self.part.wrong(f"a region has {at - first} values, expected {reserved}")
        for number in range(first, at):
            del self.values[number]
        self.size = first

    def arguments(self, at: int) -> int:
        texts, file = [], self.file
        count = self.part.count()
        for _ in range(count):
            if file.version >= ELIDED:
                kind, has_location = self.part.flagged()
            else:
                kind, has_location = self.part.number(), True
            value = _Value(self.names.argument(), file.attributes.type(kind))
            where = file.location(self.part.number()) if has_location else ""
            file.spend(len(value.type))  # before joining them to one line
            texts.append(f"{value.name}: {value.type}{where}")
            self.define(at, value)
            at += 1
        if file.version >= USE_LISTS and self.part.byte():
            self.orders(count)
        file.say(f"^bb0({', '.join(texts)}):")
        return at

    def define(self, at: int, value: _Value) -> None:
        if at >= self.size:
            self.part.wrong("a region has more values than it says")
        self.values[at] = value

    def orders(self, count: int) -> None:
        """Skips the use-list orders of values."""
        for _ in range(self.part.count() if count > 1 else 1):
            if count > 1:
                self.part.number()
            size, _ = self.part.flagged()
            if size > self.part.end - self.part.at:
                self.part.wrong(f"{size} uses are to follow in fewer bytes")
            for _ in range(size):
                self.part.number()

    def operation(self, at: int, depth: int) -> int:
        """Writes an operation's text; returns the value index after its results."""
        part, file = self.part, self.file
        name = part.item(file.names)
        allowed = counts(name.name)
        mask = part.byte()
        if mask >= 2 * _PROPERTIES or (mask & _PROPERTIES and file.version < NATIVE):
            part.wrong(f"{name.name} has unknown parts")
        where = file.location(part.number())
        others = file.attributes.dictionary(part.number()) if mask & _ATTRIBUTES else {}
        held = file.properties(name, part.item(file.blobs).again() if mask & _PROPERTIES else None)
        kinds_ = [file.attributes.type(n) for n in part.numbers()] if mask & _RESULTS else []
        numbers = part.numbers() if mask & _OPERANDS else []
        operands = [self.operand(n, name.name) for n in numbers]
        if mask & _SUCCESSORS:
            raise UnsupportedError(f"{name.name} branches, and TOSA has no branches")
        if mask & _ORDERS:
            self.orders(len(kinds_))
        count, is_isolated = part.flagged() if mask & _REGIONS else (0, False)
        _check(name.name, allowed, len(operands), len(kinds_), count)
        file.spend(sum(len(value.type) for value in operands) + sum(map(len, kinds_)))
        texts = self.texts(name.name, others, held)
        start = self.results(at, kinds_)
        inputs = f"({', '.join(value.name for value in operands)})"
        head = f'{start}"{name.name}"{inputs}{texts}'
        if count:
            file.say(f"{head} ({{")
            self.regions(count, is_isolated, name.name == _FUNCTION, depth + 1)
            head = "})"
        signature = ", ".join(value.type for value in operands), ", ".join(kinds_)
        file.say(f"{head} : ({signature[0]}) -> ({signature[1]}){where}")
        return at + len(kinds_)

    def operand(self, number: int, name: str) -> _Value:
        if number not in self.values:
            self.part.wrong(f"{name} has an operand that is not there before it")
        return self.values[number]

    def results(self, at: int, types: list[str]) -> str:
        """Names results; returns the text before the operation: `%0 = ` or `%0:2 = `."""
        if not types:
            return ""
        name = self.names.result()
        for n, kind in enumerate(types):
            self.define(at + n, _Value(name if len(types) == 1 else f"{name}#{n}", kind))
        return f"{name} = " if len(types) == 1 else f"{name}:{len(types)} = "

    def texts(self, name: str, others: dict[str, int], held: dict[str, int]) -> str:
        """Formats properties and attributes, except other dialects', whose names have a dot."""
        own = held | {n: number for n, number in others.items() if "." not in n and n not in held}
        if len(own) < len(held) + sum("." not in n for n in others):
            raise FormatError(f"{name} has an attribute twice")
        texts = []
        for key, number in own.items():
            attribute = self.file.attributes.attribute(number)
            wanted = kinds(name, key)
            if attribute.kind not in wanted:
                stated = f"is {attribute.kind}, expected {' or '.join(filter(None, wanted))}"
                fault = stated if any(wanted) else "is unknown"
                raise UnsupportedError(f"{name}: attribute {key!r} {fault}")
            texts.append(f"{key} = {attribute.text}")
        return f" <{{{', '.join(texts)}}}>" if texts else ""

    def regions(self, count: int, is_isolated: bool, is_function: bool, depth: int) -> None:
        inner = Body(self.file, self.part) if is_isolated else self
        has_sections = is_isolated and self.file.version >= LAZY
        for n in range(count):
            if n:
                self.file.say("}, {")
            if has_sections and (n == 0 or not inner.part):  # a section holds one or more regions
                _, inner.part = self.part.section(_BODY)
            outer = inner.names
            inner.names = _Names("" if is_function else self.file.prefix())
            inner.region(depth)
            inner.names = outer
        if has_sections:
            inner.part.check_end()


def _check(name: str, allowed: Counts, operands: int, results: int, regions: int) -> None:
    counts = {"operands": operands, "results": results, "regions": regions}
    ranges = allowed.operands, allowed.results, (allowed.regions, allowed.regions)
    for (what, count), (low, high) in zip(counts.items(), ranges, strict=True):
        if not low <= count <= high:
            wanted = str(low) if low == high else f"at least {low}"
            raise UnsupportedError(f"{name} has {count} {what}, expected {wanted}")
