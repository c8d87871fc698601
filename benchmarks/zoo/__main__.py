"""Measures network files that others made, beside the program that they were made for.

    python -m benchmarks.zoo FOLDER
    python -m benchmarks.zoo a.tflite b.onnx --batches 1 --json results.json --check

The peer is LiteRT for `.tflite`, onnxruntime for `.onnx`; `.tosa` and `.mlir` files have none.
First the outputs are compared: those of integer graphs with Arm's reference model, bit by bit,
those of floats with the peer's. Then both take turns within one process, on random inputs. A ratio
is the peer's time divided by that of tosajax. A peer that cannot resize its batch runs examples one
by one. "first" is the time of a process from its start to the end of its first call: ours converts
the file, and both import the same modules.

`pip install -e ".[bench,ptq]"` brings peers and converters. Each network has a process of its own.

Exit status: 0; with --check, 1 if a target is missed or bits differ, 2 if none is missed but some
were not measured.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import targets
from benchmarks.zoo import files, report
from benchmarks.zoo.peers import PEERS
from benchmarks.zoo.worker import OURS
from tosajax.atomic import replacing


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    options = _options(arguments)
    rows: dict[str, dict[str, Any]] = {}
    for path in files.find(options.paths):
        rows[path.name] = _measured(path, options)
        print(report.line(path.name, rows[path.name]), flush=True)
        if options.json is not None:
            with replacing(options.json) as file:
                file.write((json.dumps(rows, indent=1) + "\n").encode())
    print("\n" + report.table(rows, options.batches))
    verdicts = report.judge(rows)
    if options.page is not None:
        text = report.page(rows, options.batches, verdicts)
        options.page.write_text(text, encoding="utf-8")
    if not options.check:
        return 0
    print("\n".join(["", *map(str, verdicts)]))
    return targets.exit_status(verdicts)


def _measured(path: Path, options: argparse.Namespace) -> dict[str, Any]:
    """The row of a network; "error" where there is none."""
    batches = ["--batches", *map(str, options.batches), *["--quick"] * options.quick]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        row, _ = _process(path, folder, options, batches)
        if options.first and "error" not in row:
            row["first"] = {}
            for who in (OURS, *["peer"] * (path.suffix in PEERS)):
                failed, seconds = _process(path, folder, options, ["--first", who])
                if "error" not in failed:
                    row["first"][who] = seconds
    return row


def _process(
    path: Path, folder: Path, options: argparse.Namespace, more: Sequence[str]
) -> tuple[dict[str, Any], float]:
    """The row that a worker wrote, and its seconds."""
    row, inputs = folder / "row.json", folder / "inputs.npz"
    row.unlink(missing_ok=True)
    command = [sys.executable, "-m", "benchmarks.zoo.worker", *map(str, (path, row, inputs))]
    started = time.perf_counter()
    done = subprocess.run(
        [*command, "--threads", str(options.threads), *more],
        stderr=subprocess.DEVNULL,
        check=False,
    )
    seconds = time.perf_counter() - started
    found = json.loads(row.read_text()) if row.exists() else {}
    if done.returncode:
        found["error"] = f"the process ended with status {done.returncode}"
    return found, seconds


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    text = (__doc__ or "").splitlines()
    parser = argparse.ArgumentParser(prog="python -m benchmarks.zoo", description=text[0])
    add = parser.add_argument
    add("paths", type=Path, nargs="+", metavar="FILE_OR_FOLDER")
    add("--batches", type=int, nargs="+", default=[1, 16], metavar="N", help="examples of a call")
    add("--threads", type=int, default=2, metavar="N", help="threads of the peer")
    add("--first", action="store_true", help="also the time to the first result")
    add("--quick", action="store_true", help="fewer rounds")
    add("--check", action="store_true", help="exit 1 when a target is missed")
    add("--json", type=Path, metavar="FILE", help="write the rows there")
    add("-o", "--page", type=Path, metavar="FILE", help="write a page with the table there")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
