"""The command line of the test benches."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from tosajax.hifi.bench import _job, activations, basic, cnn, conv, matxvec, pool, recurrent
from tosajax.hifi.bench._job import Bench
from tosajax.hifi.bench._options import HELP, BenchError, described, parse

_COMMAND = "python -m tosajax.hifi.bench"

BENCHES: Mapping[str, Bench] = MappingProxyType(
    {
        "matXvec": matxvec.BENCH,
        "conv": conv.BENCH,
        "activations": activations.BENCH,
        "pool": pool.BENCH,
        "basic": basic.BENCH,
        "gru": recurrent.GRU,
        "lstm": recurrent.LSTM,
        "cnn": cnn.BENCH,
    }
)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one test bench.

    Args:
      argv: the test bench's name and options; by default the process's arguments.

    Returns:
      The exit status: 0, 1 if an output differs from its reference, or 2 if an option or a file
      cannot be used.
    """
    try:
        status = _main(sys.argv[1:] if argv is None else list(argv))
        sys.stdout.flush()
        return status
    except BenchError as error:
        print(f"{_COMMAND}: {error}", file=sys.stderr)
    except BrokenPipeError:
        # The reader of stdout has closed it; redirects Python's flush at exit to devnull.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 2


def _main(argv: list[str]) -> int:
    if not argv or argv[0] in HELP:
        print(f"{_COMMAND} NAME [-option value] ...; NAME -h lists the options.\n")
        for name, bench in BENCHES.items():
            print(f"  {name:<17}{bench.about.splitlines()[0]}")
        return 0
    name = _name_of(argv[0])
    bench = BENCHES[name]
    if any(argument in HELP for argument in argv[1:]):
        print(f"{_COMMAND} {name} [-option value] ...\n\n{bench.about}\n")
        print("\n".join(map(described, bench.options)))
        return 0
    options = parse(bench.options, argv[1:])
    sizes = [option.name for option in bench.options if option.is_size]
    return _job.run(bench.job(options), options, sizes)


def _name_of(title: str) -> str:
    """The name of a test bench; also accepts the guide's program names, xa_nn_<name>_test."""
    stem = title.lower().removeprefix("xa_nn_").removesuffix("_test")
    for name in BENCHES:
        if stem in (name.lower(), name.removesuffix("s")):
            return name
    raise BenchError(f"there is no test bench {title!r}, expected one of {', '.join(BENCHES)}")
