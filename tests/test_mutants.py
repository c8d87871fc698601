"""Mutants fit the code: each finds its place, and one whose place is gone fails loudly."""

from __future__ import annotations

import ast

import pytest
from mutation import changes
from mutation.changes import Change
from mutation.listed import MUTANTS
from mutation.listing import mirrored, sample, sample_of_packages
from paths import ROOT

SOURCE = """
def scale(value, shift, *, wide=True):
    \"\"\"Text.\"\"\"
    if not wide and shift > 31 or value is None:
        raise ValueError(shift)
    low, high = value - shift, value + shift
    check(low, high, name="low")
    return clip(low, -high, 0)

table = tiles = scale
"""
# The text of a change, where it applies, a part of the new code.
CHANGES = [
    (changes.change(">", ">="), "shift >= 31"),
    (changes.change("31", "32"), "shift > 32"),
    (changes.change("or", "and"), "shift > 31) and value is None"),
    (changes.change("shift", "-_", 0), "-shift > 31"),
    (changes.change("clip()", "_ + 1"), "return clip(low, -high, 0) + 1"),
    (changes.assign("low", "(1, _)"), "low, high = (1, (value - shift, value + shift))"),
    (changes.left("and"), "if not wide or value is None"),
    (changes.right("or"), "if value is None"),
    (changes.left("is"), "shift > 31 or value:"),
    (changes.unsigned("-"), "clip(low, high, 0)"),
    (changes.unsigned("not"), "if wide and"),
    (changes.swap("-"), "shift - value, value + shift"),
    (changes.swap("clip", places=(0, 2)), "clip(0, -high, low)"),
    (changes.exchange("low", "high", 0), "high, low = "),
    (changes.unwrap("clip"), "return low"),
    (changes.keyword("check", "name", ""), "check(low, high)"),
    (changes.keyword("check", "name", "title"), "title='low'"),
    (changes.condition("not _"), "if not (not wide and shift > 31 or value is None)"),
    (changes.skip("raise"), ":\n        pass"),
    (changes.skip("check"), "\n    pass\n    return"),
    (changes.drop("0"), "clip(low, -high)"),
    (changes.result("low"), "return low"),
]
GONE = [
    changes.change("<", "<="),
    changes.change("wide", "narrow"),
    changes.change("shift", "value"),
    changes.change("value", "shift", 3),
    changes.change("31", "31"),
    changes.keyword("check", "title", ""),
    changes.unwrap("round"),
]


def test_every_mutant_applies():
    gone = []
    for mutant in MUTANTS:
        try:
            compile(ast.fix_missing_locations(mutant.tree), mutant.file, "exec")
        except LookupError as error:
            gone.append(str(error))
    assert gone == []


def test_mutants_are_different():
    assert sorted({str(mutant) for mutant in MUTANTS}) == sorted(map(str, MUTANTS))


def test_the_tests_of_mutants_exist():
    named = {mutant: [n for n in mutant.tests if n.startswith("tests/")] for mutant in MUTANTS}
    assert [str(mutant) for mutant, files in named.items() if not files] == []
    assert {n for files in named.values() for n in files if not (ROOT / n).exists()} == set()


@pytest.mark.parametrize(("change", "part"), CHANGES, ids=lambda x: str(x) if x else None)
def test_change(change: Change, part: str):
    assert part in ast.unparse(change.apply(ast.parse(SOURCE), "scale"))


def test_a_name_is_forgotten():
    changed = ast.unparse(changes.forget("tiles").apply(ast.parse(SOURCE), "tiles"))
    assert "table = _ = scale" in changed
    changed = ast.unparse(changes.forget("scale").apply(ast.parse(SOURCE), "scale"))
    assert "def _(value" in changed


def test_layout_does_not_matter():
    source = SOURCE.replace("shift > 31", "(\n        shift  # bits\n > 0x1F)")
    change = changes.change("31", "32")
    assert ast.unparse(change.apply(ast.parse(source), "scale")) == ast.unparse(
        change.apply(ast.parse(SOURCE), "scale")
    )


@pytest.mark.parametrize("change", GONE, ids=str)
def test_what_is_gone_is_an_error(change: Change):
    with pytest.raises(LookupError):
        change.apply(ast.parse(SOURCE), "scale")


def test_a_function_that_is_gone_is_an_error():
    with pytest.raises(LookupError, match="nothing is called scales"):
        changes.skip("raise").apply(ast.parse(SOURCE), "scales")


@pytest.mark.slow
def test_samples_apply_and_repeat():
    drawn = sample(MUTANTS, 30, seed=7)
    assert list(map(str, drawn)) == list(map(str, sample(MUTANTS, 30, seed=7)))
    assert list(map(str, drawn)) != list(map(str, sample(MUTANTS, 30, seed=8)))
    for mutant in drawn:
        compile(mutant.text, mutant.file, "exec")


def test_samples_of_packages_reach_all_their_files():
    drawn = sample_of_packages(["cli", "viz"], 40, seed=7)
    assert list(map(str, drawn)) == list(map(str, sample_of_packages(["cli", "viz"], 40, seed=7)))
    assert {mutant.file.partition("/")[0] for mutant in drawn} == {"cli", "viz"}
    for mutant in drawn:
        compile(mutant.text, mutant.file, "exec")
    every = sample_of_packages(["io/pre_1_0"], 1 << 30, seed=7)
    assert {mutant.file for mutant in every} >= {
        "io/pre_1_0/step.py",
        "io/pre_1_0/rules/conv.py",
    }
    assert len({str(mutant) for mutant in every}) == len(every)


@pytest.mark.parametrize(
    ("file", "tests"),
    [
        ("io/mlir/types.py", ["tests/io/mlir"]),
        ("io/pre_1_0/rules/conv.py", ["tests/io/pre_1_0"]),
        ("cli/_common.py", ["tests/cli/test_common.py", "tests/cli"]),
        ("from_jax/tidy/views.py", ["tests/from_jax/tidy/test_views.py", "tests/from_jax/tidy"]),
    ],
)
def test_the_tests_of_a_file_are_those_of_its_name_and_of_its_folder(file: str, tests: list[str]):
    assert mirrored(file) == ("-m", "not slow", *tests)
