"""Measures tosajax beside other programs, and checks its targets.

    python -m benchmarks.run --quick
    python -m benchmarks.run --check --json results.json -o docs/performance.md
    python -m benchmarks.run --from results.json -o docs/performance.md

Contenders that are not installed are left out: `pip install -e ".[bench]"` brings them all. The
"ratio" of a contender is its time divided by that of tosajax, with quartiles. Ctrl-C keeps finished
measurements.

Exit status: 0; with --check, 1 if a target is missed, 2 if none is missed but some were not
measured; 3 if contenders that must agree to the last bit do not.
"""

from __future__ import annotations

import argparse
import datetime
import json
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from benchmarks import child, contenders, machine, networks, ours, report, setting, targets, timing
from benchmarks import works as all_works
from benchmarks.results import Measurement, Results, Start
from benchmarks.work import Disagreement, DoesNotApply, Run, Work
from tosajax.atomic import replacing

_DISAGREEMENT = 3
_STARTS = {"resnet8-b32": networks.resnet8, "mobilenet-b32": networks.mobilenet}
_QUICK_STARTS = ("resnet8-b32",)
_QUICK_STARTERS = (ours.FIRST, "JAX f32")

# All but the last part of absolute paths.
_FOLDERS = re.compile(r"(?<![\w.:/])(?:[A-Za-z]:)?/(?:[^\s/:'\"]+/)+(?=[^\s/])")


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    options = _options(arguments)
    if options.source is not None:
        results = json.loads(options.source.read_text())
    else:
        try:
            results = collect(options)
        except Disagreement as error:
            print(f"error: {error}", file=sys.stderr)
            return _DISAGREEMENT
    if options.output is not None:
        _write_page(options.output, results)
    verdicts = targets.judge(results)
    if options.check:
        print("\n".join(map(str, verdicts)))
        return targets.exit_status(verdicts)
    return 0


def collect(options: argparse.Namespace) -> Results:
    """Measures the chosen works; the file of results grows with each."""
    chosen = all_works.select(quick=options.quick, only=options.only)
    crew = contenders.everyone()
    results: Results = {
        "date": datetime.date.today().isoformat(),
        "quick": options.quick,
        "interrupted": False,
        "machine": machine.describe(),
        "missing": [
            *dict.fromkeys(c.name for c in crew if not c.is_installed),
            *all_works.absent(),
        ],
        "limits": {},
        "works": {},
        "left_out": {},
        "sweep": None,
        "starts": {},
    }
    print("\n".join(report.machine_lines(results["machine"])))
    if results["missing"]:
        print(f"not there: {', '.join(results['missing'])}")
    print()
    try:
        for _ in _stages(chosen, options, results):
            if options.json is not None:
                _write(options.json, json.dumps(results, indent=1) + "\n")
    except KeyboardInterrupt:
        results["interrupted"] = True
        print("interrupted: finished measurements are kept", file=sys.stderr)
        if options.json is not None:
            _write(options.json, json.dumps(results, indent=1) + "\n")
    return results


def _stages(
    chosen: Mapping[str, Callable[[], Work]], options: argparse.Namespace, results: Results
) -> Iterator[None]:
    """Fills in the results, one work or number after the other."""
    effort = timing.QUICK if options.quick else timing.FULL
    results["limits"] = machine.limits()
    yield
    for name, make in chosen.items():
        try:
            found = measure(make(), effort)
        except NotImplementedError as error:
            results["left_out"][name] = _line(error)
            print(f"{name}\n  left out: {_line(error)}\n")
            continue
        results["works"][name] = found
        print(report.work_table(name, found, results["limits"]), flush=True)
        yield
    if options.only:
        return
    results["sweep"] = setting.measure(networks.resnet8())
    yield
    for name in _QUICK_STARTS if options.quick else _STARTS:
        results["starts"][name] = _starts(name, results["works"][name], options.quick)
        yield


def measure(work: Work, effort: timing.Effort) -> Measurement:
    """Prepares all contenders, compares their outputs, and times them beside each other.

    Raises:
      Disagreement: exact contenders do not agree.
      NotImplementedError: tosajax cannot do the work.
    """
    runs: dict[str, Run] = {}
    facts: dict[str, tuple[float, str]] = {}  # seconds to compile, agreement
    left_out: dict[str, str] = {}
    expected: list[np.ndarray] = []
    for contender in contenders.everyone():
        if not contender.is_installed:
            continue
        if work.is_float and contender.kind is contenders.Kind.QUANTIZED:
            continue
        if contender.name in work.without:
            left_out[contender.name] = "too slow at this size"
            continue
        started = time.perf_counter()
        try:
            run = contender.prepare(work)
            outputs = run()
        except DoesNotApply:
            continue
        except Exception as error:
            if contender.name in ours.SETTINGS:
                raise
            left_out[contender.name] = _line(error)
            continue
        seconds = time.perf_counter() - started
        expected = expected or [np.asarray(y) for y in outputs]
        agreement = contenders.agreement(work, contender, outputs, expected)
        runs[contender.name] = run
        facts[contender.name] = seconds, agreement
    samples = timing.measure(runs, effort)
    return {
        "group": work.group,
        "batch": work.batch,
        "macs": work.macs,
        "bytes": work.bytes,
        "is_exact": work.is_exact,
        "contenders": {
            name: {
                **timing.summary(samples[name], samples[ours.FIRST]),
                "compile": facts[name][0],
                "agreement": facts[name][1],
            }
            for name in runs
        },
        "left_out": left_out,
    }


def _starts(name: str, found: Measurement, quick: bool) -> dict[str, Start]:
    print(f"{name}: process start to first result")
    starters = [n for n in found["contenders"] if not quick or n in _QUICK_STARTERS]
    numbers = child.measure(_STARTS[name](), found["batch"] or 1, starters)
    for who, n in numbers.items():
        peak = "" if n["peak_mib"] is None else f"{n['peak_mib']:6.0f} MiB at most"
        print(f"  {who:<24}{n['seconds']:6.2f} s  {peak}")
    print()
    return numbers


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    text = (__doc__ or "").split("\n\n")
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description=text[0])
    parser.add_argument("--quick", action="store_true", help="only works with targets, in minutes")
    parser.add_argument("--check", action="store_true", help="exit 1 when a target is missed")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help='works, "conv-*"')
    parser.add_argument("-o", "--output", type=Path, metavar="PAGE", help="write the page there")
    parser.add_argument("--from", dest="source", type=Path, metavar="FILE", help="measure nothing")
    options = parser.parse_args(arguments)
    kept = options.output and options.output.with_suffix(".json")
    if kept is not None and kept in (options.json, options.source):
        parser.error(f"{kept} has the targets of each kind of processor, expected another file")
    if options.source is None:
        try:
            all_works.select(quick=options.quick, only=options.only)
        except ValueError as error:
            parser.error(str(error))
    return options


def _write_page(path: Path, results: Results) -> None:
    """Writes a page, and beside it what it says of each kind of processor, for the next one."""
    beside = path.with_suffix(".json")
    runs = json.loads(beside.read_text()) if beside.exists() else {}
    runs[machine.kind(results["machine"])] = report.judged(results)
    _write(beside, json.dumps(runs, indent=1) + "\n")
    _write(path, report.page(results, runs))


def _write(path: Path, text: str) -> None:
    """Writes a file as a whole, or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path, "w") as file:
        file.write(text)


def _line(error: Exception) -> str:
    """An error as one short line, without the folders of this machine."""
    first = next((x for x in str(error).splitlines() if x.strip()), type(error).__name__)
    first = _FOLDERS.sub("", first)
    return first if len(first) < 100 else f"{first[:97]}..."


if __name__ == "__main__":
    machine.offer_all_cores()
    sys.exit(main())
