"""Mutants, and a random sample of them."""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from mutation.changes import OPERATORS, Change, change, condition
from mutation.syntax import find, slots

PACKAGE = Path(__file__).resolve().parents[2] / "tosajax"

# Each operator, and the one that most resembles it.
_OTHERS = {
    "<": "<=",
    "<=": "<",
    ">": ">=",
    ">=": ">",
    "==": "!=",
    "!=": "==",
    "is": "is not",
    "is not": "is",
    "in": "not in",
    "not in": "in",
    "and": "or",
    "or": "and",
    "+": "-",
    "-": "+",
    "*": "+",
    "//": "*",
    "%": "*",
    "<<": ">>",
    ">>": "<<",
    "&": "|",
    "|": "&",
}


class Mutant(NamedTuple):
    """One change of a function (class, variable) of a file, and the tests that must notice it."""

    file: str
    name: str
    change: Change
    tests: tuple[str, ...]  # arguments of pytest

    @property
    def text(self) -> str:
        """The file with the change.

        Raises:
          LookupError: the function, or the place of the change in it, is gone.
        """
        try:
            return ast.unparse(self.change.apply(_parsed(self.file), self.name))
        except LookupError as error:
            raise LookupError(f"{self.file}: {error}") from None

    def __str__(self) -> str:
        return f"{self.file}: {self.name}: {self.change}"


def unchanged(file: str) -> str:
    """A file as mutants write it, without a change."""
    return ast.unparse(_parsed(file))


def mutants(file: str, tests: str, changes: Mapping[str, Sequence[Change]]) -> list[Mutant]:
    """The mutants of a file, relative to the package, by the names of changed functions.

    `tests` are files relative to `tests/`, and perhaps "-k WORDS" for the tests of them that
    notice. The quick ones come first: the first failure ends the run.
    """
    files, _, words = tests.partition(" -k ")
    arguments = [*(f"tests/{name}" for name in files.split()), *(["-k", words] if words else [])]
    return [Mutant(file, name, one, tuple(arguments)) for name in changes for one in changes[name]]


def sample(listed: Sequence[Mutant], number: int, seed: int) -> list[Mutant]:
    """Changes drawn at random from all functions that listed mutants change, with their tests."""
    tests = {(mutant.file, mutant.name): mutant.tests for mutant in listed}
    found: list[Mutant] = []
    for file, name in tests:
        part = find(_parsed(file), name)
        if isinstance(part, ast.FunctionDef):
            found += [Mutant(file, name, one, tests[file, name]) for one in _all_changes(part)]
    return random.Random(seed).sample(found, min(number, len(found)))


def _all_changes(part: ast.FunctionDef) -> Iterator[Change]:
    """Each operator changed, each number one more, each condition its opposite."""
    words = {kind: word for word, kind in OPERATORS.items()}
    seen: dict[str, int] = {}
    for slot in slots(part):
        node, made = slot.node, None
        if type(node) in words and words[type(node)] in _OTHERS:
            made = change(words[type(node)], _OTHERS[words[type(node)]])
        elif isinstance(node, ast.Constant) and type(node.value) is int:
            made = change(repr(node.value), repr(node.value + 1))
        elif slot.field in ("test", "ifs"):
            made = condition("not _")
        if made is not None:
            seen[made.text] = seen.get(made.text, -1) + 1
            yield made._replace(at=seen[made.text])


@cache
def _parsed(file: str) -> ast.Module:
    return ast.parse((PACKAGE / file).read_text())
