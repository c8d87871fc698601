"""Exports random functions, and runs them beside JAX.

    python tests/from_jax/fuzz.py --functions 2000 --seed 7 -j 2
    python tests/from_jax/fuzz.py --seed 7 --index 1234   # one function again

Integers have to be the same. Floats may differ by what a change of the inputs by a few units in the
last place does, and by a hundred units of the largest element; a function whose outputs differ by
more for two draws of its inputs is a finding. Exits 1 if there is one.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

for folder in (Path(__file__).parents[1] / "support", Path(__file__).parents[2]):
    sys.path.insert(0, str(folder))
os.environ.setdefault("OMP_NUM_THREADS", "1")

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax_programs import program  # noqa: E402

import tosajax  # noqa: E402
from tosajax import UnsupportedError  # noqa: E402

_ULP = 100.0


class Found(NamedTuple):
    """What came of a function.

    Args:
      outcome: "equal", "refused" with the primitive, or "finding".
      why: in words.
    """

    outcome: str
    why: str = ""


def tried(seed: int) -> Found:
    """Exports a function and runs it on some inputs."""
    found = program(seed)
    try:
        graph = tosajax.export(found.fn, *found.args, check=False)
    except UnsupportedError as error:
        return Found("refused", str(error).partition(" (")[0])
    except Exception:
        return Found("finding", traceback.format_exc(limit=-3))
    run, fn, wrong = tosajax.compile(graph), jax.jit(found.fn), ""
    for draw in range(3):
        differs = _difference(fn, run, program(seed, draw).args)
        if differs and wrong:
            return Found("finding", f"{wrong}\n{differs}")
        wrong = differs
        if not wrong:
            break
    return Found("equal", wrong)


def _difference(fn: Callable[..., Any], run: tosajax.Executable, args: Sequence[np.ndarray]) -> str:
    """In words; "" if the outputs agree."""
    wanted = [np.asarray(y) for y in fn(*args)]
    ours = [np.asarray(y) for y in run(*args)]
    for number, (a, b) in enumerate(zip(ours, wanted, strict=True)):
        shown = f"output {number}: {a.ravel()[:8]}, expected {b.ravel()[:8]}"
        if not jnp.issubdtype(b.dtype, jnp.floating):
            if not (a == b).all():
                return shown
        elif not _near(a, b, 0) and not _near(a, b, _noise(fn, args, number, b)):
            return shown
    return ""


def _near(ours: np.ndarray, theirs: np.ndarray, noise: float) -> bool:
    """Whether floats differ by some units of the largest one, and a noise, at most."""
    a, b = ours.astype(np.float64), theirs.astype(np.float64)
    largest = np.abs(b[np.isfinite(b)]).max(initial=1e-30)
    most = _ULP * float(jnp.finfo(theirs.dtype).eps) * largest + 16 * noise
    with np.errstate(invalid="ignore"):
        return bool(((np.abs(a - b) <= most) | (a == b) | (np.isnan(a) & np.isnan(b))).all())


def _noise(
    fn: Callable[..., Any], args: Sequence[np.ndarray], number: int, wanted: np.ndarray
) -> float:
    """How far an output moves when the inputs do by two units in the last place."""
    noise = 0.0
    for sign in (1, -1):
        moved = np.asarray(fn(*(_moved(x, sign) for x in args))[number], np.float64)
        with np.errstate(invalid="ignore"):
            change = np.abs(moved - wanted.astype(np.float64))
        noise = max(noise, change[np.isfinite(change)].max(initial=0))
    return noise


def _moved(x: np.ndarray, sign: int) -> np.ndarray:
    if not jnp.issubdtype(x.dtype, jnp.floating):
        return x
    eps = float(jnp.finfo(x.dtype).eps)
    return np.asarray(x.astype(np.float64) * (1 + 2 * sign * eps), x.dtype)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--functions", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--index", type=int, help="only this function")
    parser.add_argument("-j", "--jobs", type=int, default=1)
    options = parser.parse_args(arguments)
    first = options.seed * 1_000_000
    one = options.index is not None
    seeds = [first + options.index] if one else range(first, first + options.functions)
    outcomes, reasons = Counter[str](), Counter[str]()
    context = multiprocessing.get_context("spawn")
    # Programs that JAX holds on to fill the memory of a process in the end.
    with context.Pool(options.jobs, maxtasksperchild=100) as pool:
        for seed, found in zip(seeds, pool.imap(tried, seeds), strict=True):
            outcomes[found.outcome] += 1
            if found.outcome == "refused":
                reasons[found.why] += 1
            if found.outcome == "finding":
                again = f"--seed {options.seed} --index {seed - first}"
                print(f"FINDING {again}\n{found.why}", flush=True)
    for reason, count in reasons.most_common():
        print(f"{count:6} refused: {reason}")
    print(", ".join(f"{count} {outcome}" for outcome, count in outcomes.items()))
    return 1 if outcomes["finding"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
