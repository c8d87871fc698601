"""Stores: rows of a sweep in a file that only grows, one JSON object in each line.

Lines are written under a lock, and are on the disk when the call returns: a killed process leaves
whole lines, and at most one incomplete line. Readers skip incomplete lines, and lines with zeros
from a power failure. Any other line that is not a row is an error, as the file was edited. Numbers
that are not finite are NaN, Infinity and -Infinity, as in Python's `json`.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

try:
    import fcntl
except ImportError:  # Windows: one process at a time
    fcntl = None


_BEGINNING = b'{"key": "'  # the beginning of every row
# The rest of an incomplete row from the place of the JSON error: half a word, a number or an
# escape.
_CUT_OFF = re.compile(r"[\w.+\\-]*")
# O_BINARY: Windows would change line ends.
_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_BINARY", 0)


class Store:
    """The rows of a file, by key; without a path, nothing is stored.

    Args:
      path: the path of the file, which is created if needed; its folder must exist. Or None.
      fault: a function that returns the fault of a row, or None. The store itself checks the key.

    Raises:
      FormatError: the file is not a store, or a line is damaged.
      OSError: the file can be neither read nor created.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None,
        fault: Callable[[dict[str, Any]], str | None] = lambda row: None,
    ):
        self.path = None if path is None else Path(path)
        self._fault = fault
        if self.path is not None:
            with self._locked():
                pass
            self.read()

    def read(self) -> dict[str, dict[str, Any]]:
        """All rows so far, by key; of rows with equal keys, the newest.

        Raises:
          FormatError: the file is not a store, or a line is damaged.
          OSError: the file cannot be read.
        """
        if self.path is None:
            return {}
        rows: dict[str, dict[str, Any]] = {}
        for number, line in enumerate(self.path.read_bytes().split(b"\n"), 1):
            begins_well = line.startswith(_BEGINNING[: len(line)])
            if not begins_well and not rows:
                self._refuse(f"is not a store of sweeps: line {number} is not a row")
            if b"\0" in line:
                continue  # the remains of a row after a power failure
            row, fault = _parsed(line) if begins_well else (None, f"does not begin {_BEGINNING!r}")
            fault = fault or (row and self._fault(row))
            if fault:
                self._refuse(f"line {number}: {fault}; delete the line, and its setting runs again")
            if row is not None:
                rows[row["key"]] = row
        return rows

    def _refuse(self, why: str) -> NoReturn:
        # Imported here, as it loads the package, and processes that only append start faster.
        from tosajax.report import FormatError

        raise FormatError(f"{self.path} {why}")

    def append(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Adds rows.

        Args:
          rows: dictionaries of JSON values with a string "key".

        Raises:
          KeyError: a row has no key; no row is added.
          OSError: the disk is full; some rows may be added.
          TypeError: JSON cannot hold a row, or a key is not a string; no row is added.
        """
        if self.path is None or not rows:
            return
        text = "".join(map(_line, rows))
        with self._locked() as file:
            # An incomplete row of another process becomes a line of its own.
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


def _parsed(line: bytes) -> tuple[dict[str, Any] | None, str | None]:
    """The row of a line, or the line's fault; neither if the line is incomplete."""
    try:
        text = line.decode()
        return json.loads(text, object_pairs_hook=_object), None
    except json.JSONDecodeError as error:
        if error.msg.startswith("Unterminated") or _CUT_OFF.fullmatch(error.doc, error.pos):
            return None, None
        return None, f"not JSON at column {error.colno}: {error.msg}"
    except UnicodeDecodeError as error:
        return None, f"not UTF-8 at byte {error.start}"
    except RecursionError:
        return None, "nested too deeply"
    except ValueError as error:  # a name twice, or a number of too many digits
        return None, str(error)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(n for n in names if names.count(n) > 1)!r} is given twice")
    return result


def fault_of(row: Mapping[str, Any]) -> str | None:
    """The fault of a sweep's row, apart from its key; None without a fault."""
    for name in ("setting", "columns", "metrics"):
        if not isinstance(row.get(name), dict):
            return _mismatch(row, name, "an object")
    if not isinstance(row.get("error", 0), str | None):
        return _mismatch(row, "error", "a text or null")
    count = row.get("examples")  # rows of earlier versions have none
    if count is not None and (type(count) is not int or count < 1):
        return _mismatch(row, "examples", "a positive integer or null")
    for name in ("columns", "metrics"):
        for column, value in row[name].items():
            if not _is_float(value):
                return f"{name} has {column!r}: {str(value)[:40]}, expected a number"
    return None


def _mismatch(row: Mapping[str, Any], name: str, wanted: str) -> str:
    actual = f"is {str(row[name])[:40]!r}" if name in row else "is missing"
    return f"{name!r} {actual}, expected {wanted}"


def _is_float(value: Any) -> bool:
    """Whether a value of JSON is a number that fits in a float."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return isinstance(value, float) or abs(value) < 2**1023


def _ends_whole(file: int) -> bool:
    if os.fstat(file).st_size == 0:
        return True
    os.lseek(file, -1, os.SEEK_END)
    return os.read(file, 1) == b"\n"
