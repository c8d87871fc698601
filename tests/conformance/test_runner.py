"""The conformance runner can fail, and its selection is as documented."""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import suite_generate
import suite_run
import suite_tests
import wrong_implementations as wrong

# Whole operators, quick to generate: one with floats and modes, one of integers.
OPERATORS = ("clamp", "clz")
# Operators for which no graph of one operator is illegal.
WITHOUT_RULES = {"const", "identity"}
# Types in configurations and test names.
SHORT_NAMES = {
    "bool": "b",
    "int4": "i4",
    "int8": "i8",
    "int16": "i16",
    "int32": "i32",
    "int48": "i48",
    "fp32": "f32",
    "fp16": "f16",
    "bf16": "bf16",
    "fp8e4m3": "f8e4m3",
    "fp8e5m2": "f8e5m2",
}


@pytest.fixture(scope="module")
def suite(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("suite")
    suite_generate.generate(folder, only=OPERATORS)
    return folder


@pytest.fixture(scope="module")
def tests(suite) -> list[suite_tests.SuiteTest]:
    return suite_tests.find(suite)


@pytest.fixture(scope="module")
def legal(tests) -> dict[str, suite_tests.SuiteTest]:
    """A test of integers and one of floats, small ones with ordinary data."""
    return {
        t.operator: t
        for t in tests
        if t.error_if is None and t.generators == ("PSEUDO_RANDOM",)
        if 100 < t.work < 1e7 and t.output_types in (("INT32",), ("FP32",))
    }


@pytest.fixture(scope="module")
def illegal(tests) -> suite_tests.SuiteTest:
    return next(t for t in tests if t.error_if is not None)


@pytest.mark.parametrize("operator", ["CLAMP", "CLZ"])
@pytest.mark.parametrize(
    ("implementation", "status", "words"),
    [
        (wrong.one_element_off, "fail", "1 of "),
        (wrong.accepts_all, "fail", "result-0 does not comply"),
        (wrong.wider_type, "fail", "has type float64"),
        (wrong.another_shape, "fail", "has shape [1, "),
        (wrong.output_twice, "fail", "2 outputs, expected 1"),
        (wrong.no_output, "fail", "0 outputs, expected 1"),
        (wrong.rejects_all, "error", "[all.e1]"),
        (wrong.raises_value_error, "error", "ValueError"),
        (wrong.raises_unsupported_error, "unsupported", "no operator yet"),
    ],
)
def test_wrong_on_legal_graph(legal, operator, implementation, status, words):
    outcome = suite_run.run(legal[operator], implementation)
    assert outcome.status == status
    assert words in outcome.message


@pytest.mark.parametrize(
    ("implementation", "status"),
    [
        (wrong.accepts_all, "wrongly_accepted"),
        (wrong.raises_value_error, "error"),
        (wrong.raises_format_error, "error"),
        (wrong.raises_unsupported_error, "unsupported"),
        (wrong.rejects_all, "pass"),
    ],
)
def test_wrong_on_illegal_graph(illegal, implementation, status):
    assert suite_run.run(illegal, implementation).status == status


def test_reference_that_fails_is_no_verdict(legal, tmp_path):
    folder = shutil.copytree(legal["CLZ"].folder, tmp_path / "test")
    (folder / "test.tosa").write_bytes(b"")
    outcome = suite_run.run(suite_tests.SuiteTest(folder), wrong.accepts_all)
    assert outcome.status == "internal"


@pytest.mark.slow
def test_processes_that_end_or_hang_are_replaced(tests):
    """The first test ends its process, the second hangs, the third comes after both."""
    illegal = next(t for t in tests if t.error_if is not None)
    scalar, other = sorted((t for t in tests if t.error_if is None), key=lambda t: t.work)[::20][:2]
    chosen = [illegal, scalar, other]
    found = dict(suite_run.run_all(chosen, wrong.aborts_or_hangs, jobs=1, limit=10))
    assert [found[t].status for t in chosen] == ["crash", "timeout", "pass"]
    assert "last words" in found[illegal].message


def test_one_test_that_does_not_pass_fails_the_run(suite, tmp_path):
    """All pass but one: a legal graph, labelled as breaking a rule."""
    copy = shutil.copytree(suite, tmp_path / "suite")
    chosen = [t for t in suite_tests.find(copy) if t.operator == "CLZ"]
    file = next(t for t in chosen if t.error_if is None).folder / "desc.json"
    description = json.loads(file.read_text())
    description["expected_failure"] = True
    description["test_details"]["ERRORIF"] = "Never"
    file.write_text(json.dumps(description))
    results = tmp_path / "results.json"
    words = f"--all --suite {copy} --operators CLZ --json {results} -j 1".split()
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("run.py"), *words],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert f"{len(chosen)} tests: {len(chosen) - 1} pass, 1 wrongly_accepted" in done.stdout
    records = json.loads(results.read_text())["tests"]
    assert [r["test"] for r in records] == [t.name for t in chosen]
    statuses = {r["error_if"]: r["status"] for r in records}
    assert statuses.pop("Never") == "wrongly_accepted"
    assert set(statuses.values()) == {"pass"}
    assert {None, "WrongInputList"} <= statuses.keys()
    assert {p.name for p in tmp_path.iterdir()} == {"suite", "results.json"}


def test_tests_built_alone_have_the_same_bits(suite, tests, tmp_path):
    chosen = [t.name for t in tests if t.operator == "CLZ"][::3]
    suite_generate.generate(tmp_path, names=chosen, only=["clz"])
    files = [p.relative_to(tmp_path) for p in tmp_path.rglob("*") if p.is_file()]
    assert [t.name for t in suite_tests.find(tmp_path)] == chosen
    assert len(files) >= 2 * len(chosen)
    for file in files:
        assert (tmp_path / file).read_bytes() == (suite / file).read_bytes()


def test_unknown_name_is_no_suite(tmp_path):
    with pytest.raises(RuntimeError, match="clz_none"):
        suite_generate.generate(tmp_path, names=["clz/clz_none"], only=["clz"])
    assert list(tmp_path.iterdir()) == []


def test_another_seed_has_other_tests(tests, tmp_path):
    suite_generate.generate(tmp_path, only=["clz"], seed=7, test_type="positive")
    other = suite_tests.find(tmp_path)
    assert {t.kind for t in other} == {"positive"}
    assert {t.name for t in other} != {t.name for t in tests if t.operator == "CLZ"}


def test_selection_is_stratified(tests):
    """Of whole operators: all ERROR_IF tests, one legal test of each stratum."""
    committed = [n for n in suite_tests.selection() if suite_generate.owner(n) in OPERATORS]
    chosen = suite_tests.select(tests)
    strata = {t.stratum for t in tests if t.error_if is None}
    assert committed == [t.name for t in chosen]
    assert {t.stratum for t in chosen if t.error_if is None} == strata
    assert {t.name for t in tests if t.error_if is not None} <= {t.name for t in chosen}


@pytest.mark.parametrize(
    "operator", [op for op in suite_generate.operators() if op not in suite_generate.LATER_VERSIONS]
)
def test_selection_has_every_type_and_kind(operator):
    """By the configuration of the generator, from which the strata do not come."""
    names = [n for n in suite_tests.selection() if suite_generate.owner(n) == operator]
    types = {word for name in names for part in name.split("_") for word in part.split("x")}
    kinds = {suite_generate.type_of(name) for name in names}
    assert {SHORT_NAMES[dtype] for dtype in _types(operator)} <= types
    assert kinds == ({"positive"} if operator in WITHOUT_RULES else {"positive", "negative"})


def _types(operator: str) -> set[str]:
    """The types that the generator is told to make tests of."""
    groups = suite_generate.configuration()[operator]["generation"].values()
    found = set()
    for group in (g for g in groups if suite_generate.is_generated(operator, g)):
        for words in group["generator_args"]:
            after = itertools.dropwhile(lambda word: word != "--target-dtype", words)
            found |= set(itertools.takewhile(lambda word: word in SHORT_NAMES, list(after)[1:]))
    return found
