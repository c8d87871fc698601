"""Writes files atomically: a file appears complete or not at all."""

from __future__ import annotations

import contextlib
import csv
import hashlib
import json
import math
import os
import platform
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

try:
    import fcntl
except ImportError:  # Windows: drafts of killed processes are not removed
    fcntl = None


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str], mode: str = "wb") -> Iterator[IO[Any]]:
    """A context with a draft file to write, which replaces `path` if the block raises no error.

    Several writers of one path may overlap: the last one to finish wins. The draft is in the same
    folder, takes the permissions of the file it replaces, and is on the disk before it replaces it.
    Drafts of killed processes are removed. A device or a pipe is written directly.

    Args:
      path: the path of the file.
      mode: "wb", or "w" for UTF-8 text.

    Raises:
      FileNotFoundError: the folder of the file does not exist.
      OSError: the file cannot be written; the error names the path, not the draft.
    """
    target = Path(path)
    check_folder(target)
    if target.exists() and not target.is_file():
        with open(target, mode, encoding=_encoding(mode)) as file:
            yield file
        return
    _remove_abandoned(target.parent)
    # In the same folder, so that renaming is atomic. The draft's name is short, as the file's name
    # may have the greatest length that the system allows.
    draft = target.with_name(f"{_prefix()}{os.getpid()}-{secrets.token_hex(8)}")
    try:
        with _open_draft(draft, mode) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            if target.exists():
                draft.chmod(target.stat().st_mode & 0o777)
            if fcntl is None:
                file.close()  # Windows cannot move an open file; elsewhere the lock must be held
            os.replace(draft, target)
    except OSError as error:
        if error.filename is not None and os.fspath(error.filename) == os.fspath(draft):
            error.filename, error.filename2 = os.fspath(target), None
        raise
    finally:
        draft.unlink(missing_ok=True)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Writes a file of UTF-8 text; raises the errors of `replacing`."""
    with replacing(path, "w") as file:
        file.write(text)


def write_json(path: str | os.PathLike[str], value: object) -> None:
    """Writes a value as JSON; NaN and infinities become the strings "nan", "inf" and "-inf".

    Raises:
      OSError: the file cannot be written.
      TypeError: JSON cannot hold the value.
    """
    with replacing(path, "w") as file:
        json.dump(_finite(value), file, indent=1, allow_nan=False)


def write_csv(
    path: str | os.PathLike[str], columns: Sequence[str], rows: Iterable[Mapping[str, object]]
) -> None:
    """Writes a table as CSV; None is an empty cell, lists and dictionaries are JSON."""
    with replacing(path, "w") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows({key: _cell(value) for key, value in row.items()} for row in rows)


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(v) for key, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _cell(value: object) -> object:
    return json.dumps(value) if isinstance(value, Mapping | list | tuple) else value


def check_folder(path: str | os.PathLike[str]) -> None:
    """Raises FileNotFoundError if the folder of a file does not exist, before any work is done."""
    if not Path(path).parent.is_dir():
        raise FileNotFoundError(f"there is no folder for {path}")


def _prefix() -> str:
    """The prefix of drafts of this machine, as locks of other machines may be invisible here."""
    return f".tosajax-{hashlib.sha256(platform.node().encode()).hexdigest()[:8]}-"


def _encoding(mode: str) -> str | None:
    return None if "b" in mode else "utf-8"


def _open_draft(draft: Path, mode: str) -> IO[Any]:
    """Opens a new file with a lock, which keeps other processes from removing it."""
    while True:
        file = open(draft, mode.replace("w", "x"), encoding=_encoding(mode))  # noqa: SIM115
        if not _lock(file, wait=True) or draft.exists():
            return file
        # Another process removed it before it was locked.
        file.close()


def _lock(file: IO[Any], *, wait: bool) -> bool:
    """Takes the lock of a file, which the system releases when the process ends."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # another process holds it, or this file system has no locks
        return False
    return True


def _remove_abandoned(folder: Path) -> None:
    """Removes drafts of killed processes, which have no lock."""
    for draft in folder.glob(f"{_prefix()}*"):
        # Ignores drafts that no longer exist or belong to another user.
        with contextlib.suppress(OSError), open(draft, "rb+") as file:
            if _lock(file, wait=False):
                draft.unlink()
