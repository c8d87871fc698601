"""Times contenders beside each other: rounds A B C, C B A, in one process.

Other load of the machine slows all contenders of a round, so ratios within a round are more
reliable than times.
"""

from __future__ import annotations

import dataclasses
import gc
import resource
import statistics
import time
from collections.abc import Mapping
from typing import NamedTuple

from benchmarks.results import Timed
from benchmarks.work import Run

# Threads of some contenders spin for a while after a call.
_REST = 0.003


@dataclasses.dataclass(frozen=True)
class Effort:
    """How long to measure.

    Args:
      rounds: of contenders that are fast enough.
      visit: seconds of a contender in a round: as many calls as fit, at least one.
      budget: seconds after which a slow contender leaves; it has at least 3 rounds.
    """

    rounds: int
    visit: float
    budget: float


FULL = Effort(rounds=11, visit=0.05, budget=2.0)
QUICK = Effort(rounds=5, visit=0.02, budget=0.6)
_LEAST_ROUNDS = 3


class Sample(NamedTuple):
    """Seconds of one call, the mean over a visit: of the clock, and of processors."""

    wall: float
    cpu: float


def measure(runs: Mapping[str, Run], effort: Effort) -> dict[str, list[Sample]]:
    """The samples of each contender by round; slow ones have fewer. All have run before."""
    samples: dict[str, list[Sample]] = {name: [] for name in runs}
    calls = {name: _calls(run, effort) for name, run in runs.items()}
    gc.collect()
    for number in range(effort.rounds):
        names = list(runs)
        for name in names if number % 2 == 0 else reversed(names):
            spent = calls[name] * sum(s.wall for s in samples[name])
            if number < _LEAST_ROUNDS or spent < effort.budget:
                samples[name].append(_visit(runs[name], calls[name]))
    return samples


def summary(samples: list[Sample], first: list[Sample]) -> Timed:
    """Median seconds, and ratios to the first contender, round by round, with quartiles.

    A ratio is the time of these calls divided by that of the first contender's.
    """
    pairs = list(zip(samples, first, strict=False))
    return {
        "seconds": statistics.median(s.wall for s in samples),
        "ratio": quartiles([a.wall / b.wall for a, b in pairs]),
        "cpu_ratio": statistics.median(a.cpu / max(b.cpu, 1e-9) for a, b in pairs),
        "rounds": len(samples),
    }


def quartiles(values: list[float]) -> list[float]:
    """Lower quartile, median, upper quartile."""
    if len(values) == 1:
        return values * 3
    return statistics.quantiles(values, n=4, method="inclusive")


def seconds_of(run: Run, calls: int) -> float:
    """Median seconds of a call."""
    return statistics.median(_visit(run, 1).wall for _ in range(calls))


def _calls(run: Run, effort: Effort) -> int:
    return max(1, min(1000, round(effort.visit / max(_visit(run, 1).wall, 1e-6))))


def _visit(run: Run, calls: int) -> Sample:
    time.sleep(_REST)
    if calls > 1:
        run()
    cpu, started = _cpu_seconds(), time.perf_counter()
    for _ in range(calls):
        run()
    wall = time.perf_counter() - started
    return Sample(wall / calls, (_cpu_seconds() - cpu) / calls)


def _cpu_seconds() -> float:
    """Of this process, all its threads, and the programs it has run."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime
