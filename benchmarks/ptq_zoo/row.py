"""A row of results: what one process measures of a network, written after each stage."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks import machine
from tosajax.atomic import write_json


class Row:
    """Results of a network under a scheme; the file tells at any time how far they are.

    Args:
      path: of the file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.values: dict[str, Any] = {"seconds": {}}

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Times a block; an error in it ends the row with the stage's name."""
        self.values["stage"] = name
        write_json(self._path, self.values)
        started = time.perf_counter()
        yield
        self.values["seconds"][name] = round(time.perf_counter() - started, 2)
        self.values["peak_mib"] = machine.peak_mib()

    def end(self, error: Exception | None = None, folder: Path | None = None) -> None:
        """Writes the row, whole or with its error, from which the folder of files is left out."""
        if error is None:
            del self.values["stage"]
        else:
            sentence = _sentence(error).replace(f"{folder}/", "")
            self.values["error"] = f"{type(error).__name__}: {sentence}"
        write_json(self._path, self.values)


def _sentence(error: Exception) -> str:
    """The first line of an error that says something."""
    return next((line.strip()[:300] for line in str(error).splitlines() if line.strip()), "")
