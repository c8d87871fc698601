"""Runs tests: an implementation gives outputs or raises, and the judge decides."""

from __future__ import annotations

import dataclasses
import functools
import os
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import kept_programs
import numpy as np
import suite_processes
from oracle import forced
from suite_judge import Judge, JudgeError
from suite_tests import SuiteTest

import tosajax

STATUSES = (
    "pass",
    "fail",  # outputs are wrong
    "error",  # an exception
    "timeout",
    "crash",  # the process ended
    "wrongly_accepted",  # an illegal graph ran
    "unsupported",  # tosajax.UnsupportedError
    "internal",  # no verdict: a fault of the runner or of the reference
)

Implementation = Callable[[SuiteTest], Sequence[np.ndarray]]


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The outcome of a test.

    Args:
      status: one of STATUSES.
      message: why it did not pass, or how an illegal graph was rejected.
      seconds: of the implementation, if it ended.
    """

    status: str
    message: str = ""
    seconds: float = 0.0


def run_with_tosajax(test: SuiteTest) -> list[np.ndarray]:
    """Loads, compiles and calls the graph of a test as users of tosajax do."""
    _keep_programs()
    graph = tosajax.load(test.graph_file)
    run = tosajax.compile(graph)
    inputs = test.inputs([tensor.dtype for tensor in graph.input_tensors])
    return [np.asarray(output) for output in run(*inputs)]


@functools.cache
def _keep_programs() -> None:
    """Takes programs that were compiled before from the folder that tests share, if it is named."""
    if folder := os.environ.get(kept_programs.FOLDER):
        Path(folder).mkdir(parents=True, exist_ok=True)
        kept_programs.keep_programs(Path(folder))


def run_on_route(test: SuiteTest, *, route: str) -> list[np.ndarray]:
    """The same, with one route for all integer convolutions."""
    with forced.route(route):
        return run_with_tosajax(test)


def run_all(
    tests: Sequence[SuiteTest],
    implementation: Implementation = run_with_tosajax,
    *,
    jobs: int = 1,
    limit: float = 300.0,
) -> Iterator[tuple[SuiteTest, Outcome]]:
    """Runs tests; those with most work first, so that none runs alone at the end.

    Args:
      tests: any order.
      implementation: a function of a module, or a partial one.
      jobs: number of processes.
      limit: seconds for one test, its reference included.
    """
    # One thread for each process, as many processes run. XLA reads this when it starts.
    os.environ["NPROC"] = "1"
    ordered = sorted(tests, key=lambda test: -test.work)
    work = functools.partial(run, implementation=implementation)
    for test, result in suite_processes.apply(work, ordered, jobs=jobs, limit=limit):
        if isinstance(result, suite_processes.Lost):
            result = Outcome(result.reason, result.message)
        yield test, result


@functools.cache
def _judge() -> Judge:
    return Judge()


def run(test: SuiteTest, implementation: Implementation) -> Outcome:
    """Runs and judges a test in this process."""
    start = time.perf_counter()
    try:
        outputs = implementation(test)
    except Exception as error:
        return _of_exception(test, error, time.perf_counter() - start)
    seconds = time.perf_counter() - start
    if test.error_if is not None:
        return Outcome("wrongly_accepted", f"accepted in spite of {test.error_if}", seconds)
    try:
        objections = _judge().objections(test, outputs)
    except JudgeError as error:
        return Outcome("internal", str(error), seconds)
    return Outcome("fail" if objections else "pass", "; ".join(objections), seconds)


def _of_exception(test: SuiteTest, error: Exception, seconds: float) -> Outcome:
    """Only a TosaError rejects a graph; other exceptions are faults, even on an illegal graph."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    message = f"{type(error).__name__}: {error} ({Path(place.filename).name}:{place.lineno})"
    if isinstance(error, tosajax.UnsupportedError):
        return Outcome("unsupported", message, seconds)
    if isinstance(error, tosajax.TosaError) and test.error_if is not None:
        return Outcome("pass", message, seconds)
    return Outcome("error", message, seconds)
