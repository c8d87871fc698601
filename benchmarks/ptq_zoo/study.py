"""The results of the study: rows that grow, each from a process with a time limit."""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks import machine
from tosajax.atomic import write_json

_PACKAGES = (
    "tosajax",
    "jax",
    "llvmlite",
    "onnxruntime",
    "ai-edge-quantizer",
    "ai-edge-litert",
    "torch-mlir",
    "tosa-converter-for-tflite",
)


class Results:
    """Rows by "network/scheme", written to a file after each.

    Args:
      path: of the JSON file; None keeps them in memory.
      resume: go on from the rows of the file.
    """

    def __init__(self, path: Path | None, *, resume: bool = True) -> None:
        self._path = path
        self.rows: dict[str, dict[str, Any]] = {}
        if resume and path is not None and path.exists():
            self.rows = json.loads(path.read_text())["rows"]

    def add(self, network: str, scheme: str, row: dict[str, Any]) -> None:
        """Keeps a row and writes the file."""
        self.rows[f"{network}/{scheme}"] = row
        if self._path is not None:
            versions = {name: machine.version(name) for name in _PACKAGES}
            write_json(self._path, {"packages": versions, "rows": self.rows})

    def missing(
        self, networks: Iterable[str], schemes: Sequence[str], *, retry: bool = False
    ) -> list[tuple[str, str]]:
        """The pairs without a row; with `retry` also those whose row is an error."""
        pairs = [(network, scheme) for network in networks for scheme in schemes]
        rows = {pair: self.rows.get("/".join(pair)) for pair in pairs}
        return [p for p, row in rows.items() if row is None or (retry and "error" in row)]


def measured(command: Sequence[str], limit: float) -> dict[str, Any]:
    """The row that a process writes.

    Args:
      command: the process; the path of the row is added to it.
      limit: seconds after which it is ended.

    Returns:
      The row; where the process was ended or crashed, what it had until then, and an error.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "row.json"
        started = time.perf_counter()
        error = None
        try:
            process = subprocess.run(
                [*command, str(path)], timeout=limit, capture_output=True, text=True
            )
            if process.returncode:
                error = f"the process ended with status {process.returncode}"
        except subprocess.TimeoutExpired:
            error = f"no result within {limit:g} s"
        row: dict[str, Any] = {"seconds": {}}
        if path.exists():
            row = json.loads(path.read_text())
        row["total_seconds"] = round(time.perf_counter() - started, 1)
        return row if error is None else {**row, "error": error}
