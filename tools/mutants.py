"""Breaks the code on purpose, one small change at a time, and sees whether the tests notice.

python tools/mutants.py [-j 2] [--files checks/conv.py ...] [--sample 20 --seed 7]
python tools/mutants.py [-j 2] --packages io viz --sample 20 --seed 7

A mutant is a copy of the package with one change of one function (`mutation/`). Its tests, which
pass without the change, kill it when they fail. Prints a table by file and the mutants that
survive; exits 1 if one does.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from mutation.listed import MUTANTS
from mutation.listing import PACKAGE, Mutant, sample, sample_of_packages, unchanged

SECONDS = 900  # of CPU: an endless loop counts as noticed, a machine that is busy does not

# Python runs this first in each process that a test starts.
_FIND_COPY = """
import importlib.util, pathlib, sys

class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "tosajax":
            package = pathlib.Path(__file__).with_name(name) / "__init__.py"
            return importlib.util.spec_from_file_location(name, package)

sys.meta_path.insert(0, Finder)
"""


class Run(NamedTuple):
    """Tests on a copy of the package in which some files have another text.

    Args:
      tests: arguments of pytest.
      files: their new texts.
      mutant: the change, if there is one.
    """

    tests: tuple[str, ...]
    files: Mapping[str, str]
    mutant: Mutant | None = None


class Outcome(NamedTuple):
    """How the tests of a run ended: did one fail, and after how many seconds of CPU."""

    run: Run
    failed: bool
    seconds: float


def outcomes(runs: Sequence[Run], jobs: int) -> Iterator[Outcome]:
    """Does each run in its own process, several at a time; gives them as they end."""
    running: dict[int, tuple[Run, Path]] = {}
    pending = list(reversed(runs))
    with tempfile.TemporaryDirectory() as scratch:
        while pending or running:
            while pending and len(running) < jobs:
                run, folder = pending.pop(), Path(scratch) / str(len(pending))
                running[_start(run, folder)] = run, folder
            child, status, used = os.wait4(-1, 0)
            run, folder = running.pop(child)
            shutil.rmtree(folder)
            yield Outcome(run, status != 0, used.ru_utime + used.ru_stime)


def _start(run: Run, folder: Path) -> int:
    """Starts a process that exits with the status of the tests."""
    shutil.copytree(PACKAGE, folder / "tosajax", ignore=shutil.ignore_patterns("__pycache__"))
    for name, text in run.files.items():
        (folder / "tosajax" / name).write_text(text)
    child = os.fork()
    if child == 0:
        try:
            os._exit(_test(folder, run.tests))
        finally:
            os._exit(1)
    return child


def _test(folder: Path, tests: Sequence[str]) -> int:
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    signal.alarm(10 * SECONDS)  # waits for nothing are noticed as well
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    os.chdir(PACKAGE.parent)
    sys.path.insert(0, str(folder))
    (folder / "sitecustomize.py").write_text(_FIND_COPY)
    paths = [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    sys.dont_write_bytecode = True
    import pytest

    import tosajax  # noqa: F401  # else a test that adds the root to the path finds the original

    options = ["-x", "-q", "--import-mode=importlib", "-p", "no:cacheprovider", "-p", "no:xdist"]
    return pytest.main([*options, "-m", "slow or not slow", *tests])


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the mutants that the command line names, and prints the table."""
    parser = argparse.ArgumentParser(
        description="Breaks the code on purpose, and sees whether the tests notice."
    )
    parser.add_argument("-j", "--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--files", nargs="+", metavar="FILE", help="checks/conv.py ...")
    parser.add_argument("--packages", nargs="+", metavar="FOLDER", help="io from_jax/rules ...")
    parser.add_argument("--sample", type=int, metavar="N", help="N other changes, at random")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    options = parser.parse_args(arguments)
    files = {mutant.file for mutant in MUTANTS}
    if unknown := set(options.files or ()) - files:
        parser.error(f"no mutants of {', '.join(sorted(unknown))}")
    if options.packages and not options.sample:
        parser.error("--packages needs --sample N")
    chosen = [mutant for mutant in MUTANTS if mutant.file in (options.files or files)]
    if options.packages:
        chosen = sample_of_packages(options.packages, options.sample, options.seed)
    elif options.sample:
        chosen = sample(chosen, options.sample, options.seed)
    runs = [Run(mutant.tests, {mutant.file: mutant.text}, mutant) for mutant in chosen]
    _import_once()
    # A mutant compiles only what it changes: the programs of others are kept here (conftest.py).
    with tempfile.TemporaryDirectory() as programs:
        os.environ["TOSAJAX_TEST_PROGRAMS"] = programs
        _expect_to_pass(chosen, options.jobs)
        return _report(runs, options.jobs)


def _expect_to_pass(mutants: Sequence[Mutant], jobs: int) -> None:
    """Runs the tests on the files as mutants write them, but without a change."""
    files: dict[tuple[str, ...], dict[str, str]] = {}
    for mutant in mutants:
        files.setdefault(mutant.tests, {})[mutant.file] = unchanged(mutant.file)
    for outcome in outcomes([Run(tests, files[tests]) for tests in files], jobs):
        if outcome.failed:
            command = " ".join(["pytest", *map(repr, outcome.run.tests)])
            raise SystemExit(f"fails without any change: {command}")


def _report(runs: Sequence[Run], jobs: int) -> int:
    survivors, killed, total = [], Counter[str](), 0.0
    for number, (run, failed, seconds) in enumerate(outcomes(runs, jobs), 1):
        assert run.mutant is not None
        total += seconds
        if failed:
            killed[run.mutant.file] += 1
        else:
            survivors.append(run.mutant)
        word = "killed" if failed else "SURVIVES"
        print(f"{number}/{len(runs)} {word} in {seconds:.0f} s: {run.mutant}", flush=True)
    _print_table(Counter(name for run in runs for name in run.files), killed)
    print(f"{total:.0f} s of CPU")
    for mutant in survivors:
        print(f"survives: {mutant}")
    return 1 if survivors else 0


def _print_table(mutants: Counter[str], killed: Counter[str]) -> None:
    width = max(map(len, mutants), default=4)
    print(f"\n{'file':{width}}  mutants  killed")
    for file, count in mutants.items():
        print(f"{file:{width}}  {count:7}  {killed[file]:6}")
    print(f"{'all':{width}}  {mutants.total():7}  {killed.total():6}")


def _import_once() -> None:
    """Imports for all children at once; no JAX backend starts."""
    import jax  # noqa: F401
    import ml_dtypes  # noqa: F401
    import numpy  # noqa: F401
    import pytest  # noqa: F401


if __name__ == "__main__":
    sys.exit(main())
