"""Files that appear whole or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str], mode: str = "wb") -> Iterator[IO[Any]]:
    """A file to write, which takes its place when the block ends without an error.

    It has the permissions of the file that was there, if one was.

    Args:
      path: of the file.
      mode: "wb", or "w" for UTF-8 text.

    Raises:
      FileNotFoundError: there is no folder for it.
    """
    target = Path(path)
    check_folder(target)
    # In the same folder, so that the file appears in one step.
    draft = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    try:
        with open(draft, mode, encoding=None if "b" in mode else "utf-8") as file:
            yield file
        if target.exists():
            draft.chmod(target.stat().st_mode & 0o777)
        os.replace(draft, target)
    finally:
        draft.unlink(missing_ok=True)


def check_folder(path: str | os.PathLike[str]) -> None:
    """Raises FileNotFoundError where a file cannot be put, before any work is done."""
    if not Path(path).parent.is_dir():
        raise FileNotFoundError(f"there is no folder for {path}")
