"""Mutants, and a random sample of them."""

from __future__ import annotations

import ast
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from mutation.changes import OPERATORS, Change, change, condition, left, right, skip
from mutation.syntax import Slot, find, functions, slots

PACKAGE = Path(__file__).resolve().parents[2] / "tosajax"
TESTS = PACKAGE.parent / "tests"

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


_WORDS = {kind: word for word, kind in OPERATORS.items()}


class Mutant(NamedTuple):
    """One change of a function (class, variable) of a file, and the tests that must notice it."""

    file: str
    name: str
    change: Change
    tests: tuple[str, ...]  # arguments of pytest

    @property
    def text(self) -> str:
        """The file with the change; errors as of `tree`."""
        return ast.unparse(self.tree)

    @property
    def tree(self) -> ast.Module:
        """The syntax tree of the file with the change.

        Raises:
          LookupError: the function, or the place of the change in it, is gone.
        """
        try:
            return self.change.apply(_parsed(self.file), self.name)
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
    return _draw([place for place in tests if _is_function(*place)], tests.get, number, seed)


def sample_of_packages(packages: Sequence[str], number: int, seed: int) -> list[Mutant]:
    """Changes drawn at random from all functions of some packages, with the tests that mirror them.

    Args:
      packages: folders of `tosajax/`: "io", "from_jax/rules".
    """
    files = [
        str(path.relative_to(PACKAGE))
        for package in packages
        for path in sorted((PACKAGE / package).rglob("*.py"))
    ]
    places = [(file, name) for file in files for name in functions(_parsed(file))]
    return _draw(places, lambda place: mirrored(place[0]), number, seed)


def mirrored(file: str) -> tuple[str, ...]:
    """The quick tests of a file by its place: those of its name first, then all of its folder."""
    folder = TESTS / Path(file).parent
    while not folder.exists():
        folder = folder.parent
    named = sorted(folder.glob(f"test_*{Path(file).stem.lstrip('_')}.py"))
    return "-m", "not slow", *(str(path.relative_to(TESTS.parent)) for path in [*named, folder])


def _draw(
    places: Sequence[tuple[str, str]],
    tests: Callable[[tuple[str, str]], tuple[str, ...] | None],
    number: int,
    seed: int,
) -> list[Mutant]:
    everything = [
        Mutant(file, name, one, tests((file, name)) or ())
        for file, name in places
        for one in _all_changes(find(_parsed(file), name))
    ]
    return random.Random(seed).sample(everything, min(number, len(everything)))


def _is_function(file: str, name: str) -> bool:
    return isinstance(find(_parsed(file), name), ast.FunctionDef)


def _all_changes(part: ast.AST) -> Iterator[Change]:
    """Each change of `_changes_at` at each of its places in a function."""
    kinds = {one.text: one for slot in slots(part) for one in _changes_at(slot)}
    for one in kinds.values():
        for at, _ in enumerate(one.edits(part)):
            yield one._replace(at=at)


def _changes_at(slot: Slot) -> Iterator[Change]:
    """Another operator, one operand, a number one more, the opposite condition, or no call."""
    node = slot.node
    if word := _WORDS.get(type(node)):
        if word in _OTHERS:
            yield change(word, _OTHERS[word])
        if word in ("and", "or"):
            yield from (left(word), right(word))
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool | int):
        other = not node.value if isinstance(node.value, bool) else node.value + 1
        yield change(repr(node.value), repr(other))
    elif slot.field in ("test", "ifs"):
        yield condition("not _")
    elif isinstance(node, ast.Raise):
        yield skip("raise")
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        called = node.value.func
        if isinstance(called, ast.Name):
            yield skip(called.id)
        elif isinstance(called, ast.Attribute):
            yield skip(f".{called.attr}")


@cache
def _parsed(file: str) -> ast.Module:
    return ast.parse((PACKAGE / file).read_text())
