"""Attacks everything that tosajax reads with damaged files, illegal graphs and strange arrays.

    python tests/fuzz/run.py --seconds 60 --seed 7 -j 2 --out /tmp/findings
    python tests/fuzz/run.py --seed 7 --only json --index 1234   # one case again

Every case has to be read, or refused with a reason (FormatError, TosaError, UnsupportedError, or
one line and an exit status of a command), within 2 s of processor time (6 s if XLA compiles) and
500 MB. Prints each kind of finding once, with the command that repeats it; `--out` keeps the files
of all findings. Exits 1 if there is one.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
# Before NumPy and XLA start: one thread for each process.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [*sys.path[:1], os.getenv("PYTHONPATH")]))

from fuzz.worker import KINDS, Result, Worker


class Tally:
    """The results of all cases so far; shared by threads."""

    def __init__(self, seed: int, out: Path | None) -> None:
        self._seed, self._out, self._lock = seed, out, threading.Lock()
        self.outcomes: Counter[tuple[str, str]] = Counter()
        self.places: Counter[str] = Counter()

    def add(self, kind: str, index: int, result: Result) -> None:
        """Counts a result; prints the first finding of a kind."""
        with self._lock:
            self.outcomes[kind, result.outcome] += 1
            if result.outcome != "finding":
                return
            self.places[result.place] += 1
            if self._out is not None and self.places[result.place] <= 5:
                _keep(self._out / f"{kind}-{self._seed}-{index}", result)
            if self.places[result.place] == 1:
                print(f"FINDING {result.place}\n  {result.why.strip()}", flush=True)
                again = f"--seed {self._seed} --only {kind} --index {index}"
                print(f"  again: python tests/fuzz/run.py {again}", flush=True)


def _keep(folder: Path, result: Result) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "why.txt").write_text(result.why + "\n")
    for name, content in (result.files or {}).items():
        (folder / name).write_bytes(content)


def attack(cases: Iterator[tuple[str, int]], seed: int, jobs: int, tally: Tally) -> None:
    """Tries cases until none is left."""
    lock = threading.Lock()

    def work() -> None:
        worker = Worker()
        try:
            while True:
                with lock:
                    case = next(cases, None)
                if case is None:
                    return
                tally.add(*case, worker.attack(case[0], seed, case[1]))
        finally:
            worker.close()

    threads = [threading.Thread(target=work) for _ in range(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def cases(
    kinds: Iterable[str], start: int, count: int, seconds: float
) -> Iterator[tuple[str, int]]:
    """The kinds in turn, with the index of each case, up to a time and a count of each."""
    end = time.monotonic() + seconds
    for index in range(start, start + count):
        for kind in kinds:
            if time.monotonic() > end:
                return
            yield kind, index


def main(arguments: Sequence[str]) -> int:
    """Runs the attack and prints the report; returns the exit status."""
    options = _parser().parse_args(arguments)
    tally = Tally(options.seed, options.out)
    kinds: list[str] = options.only or list(KINDS)
    one = options.index is not None
    start, count = (options.index, 1) if one else (0, options.count)
    attack(cases(kinds, start, count, options.seconds), options.seed, options.jobs, tally)
    for kind in kinds:
        shown = ", ".join(
            f"{tally.outcomes[kind, outcome]} {outcome}"
            for outcome in ("read", "refused", "finding")
        )
        print(f"{kind}: {shown}")
    for place, number in tally.places.most_common():
        print(f"{number:6} {place}")
    print(f"{tally.places.total()} findings in {tally.outcomes.total()} cases")
    return 1 if tally.places else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="stop after that (60)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=sys.maxsize, help="cases of each kind")
    parser.add_argument("--only", choices=KINDS, nargs="+", help="only these kinds")
    parser.add_argument("--index", type=int, help="only this case")
    parser.add_argument("-j", "--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, default=None, help="folder for the files of findings")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
