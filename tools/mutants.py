"""Breaks the code on purpose, one small change at a time, and sees whether the tests notice.

python tools/mutants.py [-j 2] [--files checks/conv.py ...]

Each mutant of `mutant_list.py` is a copy of the package in which one piece of one file is
replaced. It is killed when the tests of that file fail, which pass without the change. Prints a
table by file, and the mutants that survive; exits 1 where there is one.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from mutant_list import MUTANTS

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "tosajax"
SECONDS = 900  # a mutant that loops for ever is noticed, too

_EVERY = "tests/checks/test_every_operator.py"
_ACCUMULATORS = "tests/checks/test_require_accumulators.py"
_ELEMENTWISE = "tests/checks/test_require_elementwise.py"
_VALUES = "tests/checks/test_require_values.py"
# Which tests notice the mutants of a file, beside those that are called like it; "-k" keeps the
# slow ones to what they are about.
TESTS = {
    "runtime/batching.py": ["tests/runtime/test_saved.py"],
    "checks/__init__.py": [
        _EVERY,
        "tests/lowering/test_variables.py",
        "tests/lowering/test_unpredictable.py",
    ],
    "checks/_common.py": [_EVERY, "tests/checks", "-k", "not require"],
    "checks/call.py": [
        _EVERY,
        "tests/lowering/test_control_flow.py",
        "tests/lowering/test_variables.py",
    ],
    "checks/custom.py": ["tests/lowering/test_custom_ops.py"],
    "checks/data_layout.py": [_EVERY],
    "checks/fft.py": [_EVERY],
    "checks/image.py": [_EVERY],
    "checks/require/_common.py": [
        *(_ELEMENTWISE, _ACCUMULATORS, "-k"),
        "arithmetic or (mul_int32 and not many) or digits or rules or matmul or transpose_conv2d",
    ],
    "checks/require/activation.py": [_ELEMENTWISE, "-k", "activation or clamp"],
    "checks/require/conv.py": [_ACCUMULATORS, "-k", "conv or products"],
    "checks/require/elementwise_binary.py": [
        _ELEMENTWISE,
        "-k",
        "not clamp and not abs and not negate",
    ],
    "checks/require/elementwise_unary.py": [_ELEMENTWISE, "-k", "unary or abs or negate"],
    "checks/require/products.py": [_ACCUMULATORS, "-k", "matmul"],
    "checks/require/pool.py": [_ACCUMULATORS, "-k", "pool"],
    "checks/require/reduction.py": [_ACCUMULATORS, "-k", "reduc"],
    "checks/require/scatter_gather.py": [_VALUES, "-k", "scatter or gather"],
    "checks/require/type_conversion.py": [_VALUES, "-k", "conversion or cast or rescale"],
    "checks/variable.py": ["tests/lowering/test_variables.py"],
    "fixedpoint/saturation.py": ["tests/fixedpoint/test_scale.py", "-k", "saturate"],
    "fixedpoint/table.py": ["tests/fixedpoint/test_scale.py", "-k", "lookup"],
    "ops/_platform.py": ["tests/ops/test_platforms.py", "tests/ops/test_onednn.py"],
}


# For the processes that tests start: Python runs it there before anything else.
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


class Mutant(NamedTuple):
    """One change: `old` in the file, found once, becomes `new`. By default there is none."""

    file: str
    old: str = ""
    new: str = ""

    @property
    def text(self) -> str:
        source = (PACKAGE / self.file).read_text()
        found = source.count(self.old)
        if self.old and found != 1:
            raise ValueError(f"{self.file} has {self.old!r} {found} times, expected once")
        return source.replace(self.old, self.new)

    def __str__(self) -> str:
        return f"{self.file}: {self.old!r} -> {self.new!r}"


class Outcome(NamedTuple):
    mutant: Mutant
    killed: bool
    seconds: float


def tests_of(file: str) -> list[str]:
    """What pytest is to run for a file: the tests that are called like it come first."""
    *part, name = file.split("/")
    test = f"test_{name.removesuffix('.py').strip('_')}.py"
    own = dict.fromkeys(["/".join(["tests", *part, test]), f"tests/{test}"])
    return [*(path for path in own if (ROOT / path).exists()), *TESTS.get(file, ())]


def run(mutants: Sequence[Mutant], jobs: int) -> Iterator[Outcome]:
    """Runs the tests of each mutant in a process of its own, several at a time."""
    running: dict[int, tuple[Mutant, Path, float]] = {}
    pending = list(reversed(mutants))
    with tempfile.TemporaryDirectory() as scratch:
        while pending or running:
            while pending and len(running) < jobs:
                mutant, folder = pending.pop(), Path(scratch) / str(len(pending))
                running[_start(mutant, folder)] = mutant, folder, time.monotonic()
            child, status = os.wait()
            mutant, folder, start = running.pop(child)
            shutil.rmtree(folder)
            yield Outcome(mutant, status != 0, time.monotonic() - start)


def _start(mutant: Mutant, folder: Path) -> int:
    """Starts a process that ends with the status of the tests, on a copy with the change."""
    shutil.copytree(PACKAGE, folder / "tosajax")
    (folder / "tosajax" / mutant.file).write_text(mutant.text)
    child = os.fork()
    if child == 0:
        try:
            os._exit(_test(folder, tests_of(mutant.file)))
        finally:
            os._exit(1)
    return child


def _test(folder: Path, tests: Sequence[str]) -> int:
    signal.alarm(SECONDS)
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    os.chdir(ROOT)
    sys.path.insert(0, str(folder))
    (folder / "sitecustomize.py").write_text(_FIND_COPY)
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
    )
    sys.dont_write_bytecode = True
    import pytest

    options = ["-x", "-q", "--import-mode=importlib", "-p", "no:cacheprovider", "-p", "no:xdist"]
    return pytest.main([*options, *tests])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description="Breaks the code on purpose, and sees whether the tests notice."
    )
    parser.add_argument("-j", "--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--files", nargs="+", default=list(MUTANTS), help="checks/conv.py ...")
    options = parser.parse_args(arguments)
    mutants = [Mutant(file, *change) for file in options.files for change in MUTANTS[file]]
    for mutant in mutants:
        compile(mutant.text, mutant.file, "exec")
    _import_once()
    for outcome in run([Mutant(file) for file in options.files], options.jobs):
        if outcome.killed:
            command = " ".join(["pytest", *map(repr, tests_of(outcome.mutant.file))])
            raise SystemExit(f"fails without any change: {command}")
    start, survivors = time.monotonic(), []
    killed = dict.fromkeys(options.files, 0)
    for number, (mutant, dead, seconds) in enumerate(run(mutants, options.jobs), 1):
        killed[mutant.file] += dead
        survivors += [] if dead else [mutant]
        word = "killed" if dead else "SURVIVES"
        print(f"{number}/{len(mutants)} {word} in {seconds:.0f} s: {mutant}", flush=True)
    _print_table(killed, time.monotonic() - start)
    for mutant in survivors:
        print(f"survives: {mutant}")
    return 1 if survivors else 0


def _import_once() -> None:
    """Imports what every child needs, so that each starts with it; no JAX backend starts."""
    import jax  # noqa: F401
    import ml_dtypes  # noqa: F401
    import numpy  # noqa: F401
    import pytest  # noqa: F401


def _print_table(killed: dict[str, int], seconds: float) -> None:
    width = max(map(len, killed))
    print(f"\n{'file':{width}}  mutants  killed")
    for file, count in killed.items():
        print(f"{file:{width}}  {len(MUTANTS[file]):7}  {count:6}")
    total = sum(len(MUTANTS[file]) for file in killed)
    print(f"{'all':{width}}  {total:7}  {sum(killed.values()):6}")
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = used.ru_utime + used.ru_stime
    print(f"{seconds:.0f} s, and {cpu:.0f} s of CPU with the runs without a change")


if __name__ == "__main__":
    sys.exit(main())
