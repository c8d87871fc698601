"""Files that appear whole or not at all."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

try:
    import fcntl
except ImportError:  # Windows: what a process that was killed leaves stays there
    fcntl = None


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str], mode: str = "wb") -> Iterator[IO[Any]]:
    """A file to write, which takes its place when the block ends without an error.

    Several may write the same path at a time: the last to end wins. The file has the permissions of
    the one that was there, if one was, and is on the disk before it takes its place. Meanwhile its
    folder holds a draft; drafts of processes that were killed are removed. A device or a pipe is
    written as it is.

    Args:
      path: of the file.
      mode: "wb", or "w" for UTF-8 text.

    Raises:
      FileNotFoundError: there is no folder for it.
      OSError: it cannot be written; the error names the path, not the draft.
    """
    target = Path(path)
    check_folder(target)
    if target.exists() and not target.is_file():
        with open(target, mode, encoding=_encoding(mode)) as file:
            yield file
        return
    _remove_abandoned(target.parent)
    # In the same folder, so that the file appears in one step. Its name is short, as that of the
    # file may be as long as the system allows.
    draft = target.with_name(f"{_prefix()}{os.getpid()}-{secrets.token_hex(8)}")
    try:
        with _open_draft(draft, mode) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            if target.exists():
                draft.chmod(target.stat().st_mode & 0o777)
            if fcntl is None:
                file.close()  # Windows moves no open file; elsewhere the lock has to last
            os.replace(draft, target)
    except OSError as error:
        if error.filename is not None and os.fspath(error.filename) == os.fspath(draft):
            error.filename, error.filename2 = os.fspath(target), None
        raise
    finally:
        draft.unlink(missing_ok=True)


def check_folder(path: str | os.PathLike[str]) -> None:
    """Raises FileNotFoundError where a file cannot be put, before any work is done."""
    if not Path(path).parent.is_dir():
        raise FileNotFoundError(f"there is no folder for {path}")


def _prefix() -> str:
    """The beginning of drafts' names on this machine, as locks of others may not be seen here."""
    return f".tosajax-{hashlib.sha256(platform.node().encode()).hexdigest()[:8]}-"


def _encoding(mode: str) -> str | None:
    return None if "b" in mode else "utf-8"


def _open_draft(draft: Path, mode: str) -> IO[Any]:
    """A new file, locked for as long as it is open, by which others know that it is in use."""
    while True:
        file = open(draft, mode.replace("w", "x"), encoding=_encoding(mode))  # noqa: SIM115
        if not _lock(file, wait=True) or draft.exists():
            return file
        # Another process found it before it was locked, and removed it.
        file.close()


def _lock(file: IO[Any], *, wait: bool) -> bool:
    """Takes the lock of a file, which the system lets go of when the process ends."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # it is another's, or this file system has no locks
        return False
    return True


def _remove_abandoned(folder: Path) -> None:
    """Removes drafts whose processes were killed: those that nobody holds the lock of."""
    for draft in folder.glob(f"{_prefix()}*"):
        # One that is gone meanwhile, or another user's, is left alone.
        with contextlib.suppress(OSError), open(draft, "rb+") as file:
            if _lock(file, wait=False):
                draft.unlink()
