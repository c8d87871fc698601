"""Switches in the environment of a process."""

from __future__ import annotations

import os


def switch(name: str) -> bool | None:
    """Whether an environment variable is 1 or 0; None where it is not set.

    Raises:
      ValueError: it is neither.
    """
    found = os.environ.get(name)
    if found not in ("0", "1", None):
        raise ValueError(f"the environment variable {name} is {found!r}, expected 0 or 1")
    return None if found is None else found == "1"
