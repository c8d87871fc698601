"""Runs Arm's conformance suite of TOSA on tosajax; Arm's own checker judges.

    python tests/conformance/run.py                  # a stratified selection
    python tests/conformance/run.py --all            # the whole suite
    python tests/conformance/run.py --all --seed 7   # other shapes and data; no ERROR_IF tests
    python tests/conformance/run.py --route loop     # every integer convolution in a loop

Tests are generated at first use with tosa-tools, below $TOSAJAX_CACHE or ~/.cache/tosajax. Exits
1 unless every test passes.
"""

from __future__ import annotations

import argparse
import collections
import functools
import importlib.metadata
import json
import os
import re
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))  # for `oracle`

import suite_generate
import suite_run
import suite_tests
from oracle import forced
from suite_run import STATUSES, Outcome
from suite_tests import SuiteTest

_FAILURES_SHOWN = 50


def main(arguments: Sequence[str] | None = None) -> int:
    """Generates missing tests, runs, prints, writes; returns the exit status."""
    options = _options(arguments)
    start = time.perf_counter()
    tests = _tests(options)
    generated = time.perf_counter()
    print(f"{len(tests)} tests, ready after {generated - start:.0f} s", flush=True)
    records = _run(tests, options)
    print_table(records)
    print_failures(records)
    totals = collections.Counter(r["status"] for r in records)
    counts = ", ".join(f"{totals[s]} {s}" for s in STATUSES if totals[s])
    print(f"\n{len(records)} tests: {counts or 'none'}; {time.perf_counter() - generated:.0f} s")
    if options.json:
        write_json(options.json, _result(options, records, time.perf_counter() - generated))
    return 0 if records and totals["pass"] == len(records) else 1


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--selection", action="store_true", help="the committed one (default)")
    which.add_argument("--all", action="store_true", help="the whole suite")
    add("--suite", type=Path, metavar="DIR", help="take the tests from this suite as it is")
    add("--seed", type=int, default=suite_generate.OFFICIAL_SEED, help="42 is the official one")
    add("--test-type", choices=suite_generate.TEST_TYPES, default="both")
    add("--operators", nargs="+", metavar="NAME", type=str.upper, help="only these")
    add("--filter", type=re.compile, metavar="RE", help="only tests whose name has a match")
    add("--route", choices=forced.ROUTES, help="of all integer convolutions")
    add("-j", "--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    add("--limit", type=float, default=300.0, metavar="SECONDS", help="for one test")
    add("--json", type=Path, metavar="FILE", help="where to write one record for each test")
    options = parser.parse_args(arguments)
    if options.seed != suite_generate.OFFICIAL_SEED:
        if not options.all:
            parser.error("the selection has the names of the official seed: use --all")
        if options.test_type == "negative":
            parser.error("ERROR_IF tests are chosen by names that have the official shapes")
        options.test_type = "positive"
    if options.json and not options.json.absolute().parent.is_dir():
        parser.error(f"there is no folder for {options.json}")
    unknown = set(options.operators or ()) - {op.upper() for op in suite_generate.operators()}
    if unknown:
        parser.error(f"no tests for {', '.join(sorted(unknown))}")
    return options


def _tests(options: argparse.Namespace) -> list[SuiteTest]:
    """The tests to run; generates those that are missing."""
    names = None if options.all else _of_type(suite_tests.selection(), options.test_type)
    suite = options.suite
    if suite is None:
        suite = suite_generate.cache_folder(options.seed, options.test_type, names)
        suite_generate.generate(
            suite,
            names=names,
            only=options.operators and {name.lower() for name in options.operators},
            seed=options.seed,
            test_type=options.test_type,
            jobs=options.jobs,
            progress=lambda line: print(line, flush=True),
        )
    wanted = None if names is None else [name for name in names if _fits(name, options)]
    return [test for test in suite_tests.find(suite, wanted) if _fits(test.name, options)]


def _of_type(names: Iterable[str], test_type: str) -> list[str]:
    return [name for name in names if test_type in ("both", suite_generate.type_of(name))]


def _fits(name: str, options: argparse.Namespace) -> bool:
    """Whether a test is wanted, by its name, as reading a whole suite takes long."""
    return (
        (options.operators is None or suite_generate.owner(name).upper() in options.operators)
        and (options.filter is None or options.filter.search(name) is not None)
        and bool(_of_type([name], options.test_type))
    )


def _run(tests: Sequence[SuiteTest], options: argparse.Namespace) -> list[dict[str, Any]]:
    records = []
    failed = 0
    every = 10 if sys.stdout.isatty() else 100
    start = time.perf_counter()
    implementation = suite_run.run_with_tosajax
    if options.route:
        implementation = functools.partial(suite_run.run_on_route, route=options.route)
    outcomes = suite_run.run_all(tests, implementation, jobs=options.jobs, limit=options.limit)
    for test, outcome in outcomes:
        records.append(record(test, outcome))
        failed += outcome.status != "pass"
        if len(records) % every == 0 or len(records) == len(tests):
            line = f"{len(records)}/{len(tests)} tests, {failed} not passed"
            end = "\r" if sys.stdout.isatty() and len(records) < len(tests) else "\n"
            print(f"{line}, {time.perf_counter() - start:.0f} s", end=end, flush=True)
    return sorted(records, key=lambda r: r["test"])


def record(test: SuiteTest, outcome: Outcome) -> dict[str, Any]:
    """The entry of a test in the result file."""
    return {
        "test": test.name,
        "operator": test.operator,
        "kind": test.kind,
        "error_if": test.error_if,
        "inputs": test.input_types,
        "outputs": test.output_types,
        "accumulators": test.accumulators,
        "profiles": test.profiles,
        "extensions": test.extensions,
        "modes": test.modes,
        "graph": str(test.graph_file.resolve()),
        "status": outcome.status,
        "message": outcome.message,
        "seconds": round(outcome.seconds, 3),
    }


def print_table(records: Iterable[dict[str, Any]]) -> None:
    """Counts by status for each operator, profile and kind, and for all."""
    rows: dict[tuple[str, str, str], collections.Counter[str]] = {}
    for r in records:
        profiles = "+".join(p.removeprefix("tosa-pro-").upper() for p in r["profiles"])
        for key in ((r["operator"], profiles, r["kind"]), ("all", "", r["kind"])):
            rows.setdefault(key, collections.Counter())[r["status"]] += 1
    seen = [s for s in STATUSES if any(row[s] for row in rows.values())]
    print(f"\n{'operator':<23}{'profile':<8}{'kind':<9}{'tests':>6}", *(f"{s:>8}" for s in seen))
    for (operator, profiles, kind), row in sorted(
        rows.items(), key=lambda r: (r[0][0] == "all", r)
    ):
        counts = (f"{row[s] or '.':>{max(8, len(s))}}" for s in seen)
        print(f"{operator:<23}{profiles:<8}{kind:<9}{row.total():>6}", *counts)


def print_failures(records: Iterable[dict[str, Any]]) -> None:
    """Prints failed tests with the reason; no more than fit on a few screens."""
    failures = [r for r in records if r["status"] != "pass"]
    for r in failures[:_FAILURES_SHOWN]:
        print(f"\n{r['status']}: {r['test']}\n    {_short(r['message'])}")
    if len(failures) > _FAILURES_SHOWN:
        print(f"\nand {len(failures) - _FAILURES_SHOWN} more")


def _short(message: str) -> str:
    line = " ".join(message.split())
    return line if len(line) <= 300 else f"{line[:300]} ..."


def _result(
    options: argparse.Namespace, records: list[dict[str, Any]], seconds: float
) -> dict[str, Any]:
    which = "--all" if options.all else "--selection"
    return {
        "command": f"python tests/conformance/run.py {which} --seed {options.seed}",
        "suite": {
            "tosa_version": suite_generate.TOSA_VERSION,
            "seed": options.seed,
            "which": "all tests" if options.all else "the selection",
            "test_type": options.test_type,
            "operators": options.operators,
            "filter": options.filter and options.filter.pattern,
        },
        "versions": {
            package: importlib.metadata.version(package)
            for package in ("tosajax", "jax", "tosa-tools")
        },
        "seconds": round(seconds, 1),
        "tests": records,
    }


def write_json(file: Path, content: dict[str, Any]) -> None:
    """Writes a whole file, or none."""
    part = file.with_name(f".{file.name}.{os.getpid()}")
    part.write_text(json.dumps(content, indent=1) + "\n")
    part.replace(file)


if __name__ == "__main__":
    sys.exit(main())
