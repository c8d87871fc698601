"""Stores: rows of a sweep in a file that only ever grows, one JSON object a line.

Lines are written under a lock, and are on the disk when the call returns: a process that is killed
leaves whole lines and at most the beginning of one, which readers pass over. Numbers that are not
finite are NaN, Infinity and -Infinity, as Python's `json` writes and reads them.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

try:
    import fcntl
except ImportError:  # Windows: one process at a time
    fcntl = None


_BEGINNING = b'{"key": "'  # of every row
# Bytes are written as they are, where a system has files of text.
_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_BINARY", 0)


class Store:
    """The rows of a file by their keys; None keeps nothing.

    Args:
      path: of the file, which is made if it is not there; its folder is.

    Raises:
      OSError: the file can be neither read nor made.
      ValueError: it is no store.
    """

    def __init__(self, path: str | os.PathLike[str] | None):
        self.path = None if path is None else Path(path)
        if self.path is not None:
            with self._locked():
                pass
            self.read()

    def read(self) -> dict[str, dict[str, Any]]:
        """All rows so far, by key; the last of equal keys.

        Raises:
          OSError: the file cannot be read.
          ValueError: it is no store.
        """
        if self.path is None:
            return {}
        found: dict[str, dict[str, Any]] = {}
        for number, line in enumerate(self.path.read_bytes().split(b"\n"), 1):
            if line.startswith(_BEGINNING[: len(line)]):
                if (row := _parsed(line)) is not None:
                    found[row["key"]] = row
            elif not found:
                # After a row it is what a disk made of one when power failed.
                raise ValueError(f"{self.path} is no store of sweeps: line {number} is no row")
        return found

    def append(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Adds rows.

        Args:
          rows: each with a string "key"; the rest is for `json`.

        Raises:
          KeyError: a row has no key; none has been added.
          OSError: the disk is full; some may have been added.
          TypeError: a row is not for `json`, or its key no string; none has been added.
        """
        if self.path is None or not rows:
            return
        text = "".join(map(_line, rows))
        with self._locked() as file:
            # What another process could not finish gets a line of its own.
            text = text if _ends_whole(file) else "\n" + text
            rest = memoryview(text.encode())
            while rest:
                rest = rest[os.write(file, rest) :]
            os.fsync(file)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[int]:
        assert self.path is not None
        file = os.open(self.path, _FLAGS, 0o666)
        try:
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX)
            yield file
        finally:
            os.close(file)


def _line(row: Mapping[str, Any]) -> str:
    if not isinstance(row["key"], str):
        raise TypeError(f"the key of a row is {row['key']!r}, expected a string")
    return json.dumps({"key": row["key"], **row}) + "\n"


def _parsed(line: bytes) -> dict[str, Any] | None:
    """The row of a line that begins like one; None of one that was not finished."""
    try:
        return json.loads(line)
    except ValueError:
        return None


def _ends_whole(file: int) -> bool:
    if os.fstat(file).st_size == 0:
        return True
    os.lseek(file, -1, os.SEEK_END)
    return os.read(file, 1) == b"\n"
