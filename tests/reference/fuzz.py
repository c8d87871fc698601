"""Random graphs, legal and illegal, on tosajax and on Arm's reference model.

    python tests/reference/fuzz.py --graphs 2000 --seed 7 -j 2 --out /tmp/differences

Every graph is judged unchanged and after some random edits (`--edits`, 2 by default). Prints the
coverage and every disagreement that `known.py` does not explain. The folder of `--out` gets the
graph, or the one node, of each disagreement as a `.tosa` file with its inputs. Exits 1 if there is
one.
"""

from __future__ import annotations

import argparse
import functools
import math
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
# Before NumPy and XLA start: one thread for each process.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import jax

from reference import trial as trials
from reference.arm import Status

_KEPT = 50  # graphs whose compiled programs stay in memory


class Result(NamedTuple):
    """The result of one graph and its edits."""

    operators: Counter[str]
    types: Counter[str]
    rows: Counter[str]  # lines of the tables of types
    legal: Counter[str]  # Arm's status, of the graph
    edited: Counter[str]  # and of its edits
    reasons: Counter[str]
    differences: list[str]


def _nothing() -> Result:
    return Result(Counter(), Counter(), Counter(), Counter(), Counter(), Counter(), [])


def main(arguments: list[str]) -> int:
    """Runs the trials and prints the report; returns the exit status."""
    options = _parser().parse_args(arguments)
    one = functools.partial(_judge, options.seed, options.edits, options.out)
    indices = range(options.start, options.start + options.graphs)
    began = time.monotonic()
    total, number = _nothing(), 0
    for number, result in enumerate(_results(one, indices, options.jobs), 1):
        for whole, part in zip(total[:-1], result[:-1], strict=True):
            whole.update(part)
        total.differences.extend(result.differences)
        for line in result.differences:
            print(line, flush=True)
        if number % 100 == 0:
            print(f"{number} graphs, {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
        if time.monotonic() - began > options.seconds:
            break
    _print_report(total, number, time.monotonic() - began)
    return 1 if total.differences else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--graphs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--start", type=int, default=0, help="index of the first graph")
    parser.add_argument("--seconds", type=float, default=math.inf, help="stop after that")
    parser.add_argument("--edits", type=int, default=2, help="edits of each graph")
    parser.add_argument("-j", "--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, default=None, help="folder for graphs that differ")
    return parser


def _results(one, indices: range, jobs: int) -> Iterator[Result]:
    if jobs == 1:
        yield from map(one, indices)
        return
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        yield from pool.imap_unordered(one, indices)


def _judge(seed: int, changes: int, out: Path | None, index: int) -> Result:
    if index % _KEPT == 0:
        jax.clear_caches()
    result = _nothing()
    for number, trial in enumerate(trials.trials(seed, index, changes)):
        if number == 0:
            result.operators.update(trials.operators(trial.case))
            result.types.update(trials.types(trial.case))
            result.rows.update(trials.rows(trial.case))
        (result.edited if number else result.legal)[trial.status.name] += 1
        result.reasons.update(set(trial.explained))
        if trial.unexplained:
            where = f" -> {trials.save(trial, out)}" if out else ""
            for d in trial.unexplained:
                node = f"{d.node.title}: " if d.node else ""
                text = f"{trial.title}: {d.kind.value}: {node}{d.why[:500]}{where}"
                result.differences.append(text)
    return result


def _print_report(total: Result, graphs: int, seconds: float) -> None:
    print(f"\n{graphs} graphs of {sum(total.operators.values())} operators in {seconds:.0f} s")
    for title, counter in (("operators", total.operators), ("types", total.types)):
        print(f"{title}:", ", ".join(f"{name} {n}" for name, n in counter.most_common()))
    print("never grown:", ", ".join(trials.never_grown(total.operators)) or "none")
    every = trials.every_row()
    print(f"type rows: {len(every & total.rows.keys())} of {len(every)}")
    for title, counter in (("graphs", total.legal), ("edited", total.edited)):
        shown = ", ".join(f"{counter[s.name]} {s.name.lower()}" for s in Status)
        print(f"Arm's model on {title}: {shown}")
    print("known differences:")
    for reason, count in total.reasons.most_common():
        print(f"{count:6} {reason}")
    print(f"{len(total.differences)} differences")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
