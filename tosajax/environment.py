"""Switches in the environment of a process."""

from __future__ import annotations

import os


def switch(name: str) -> bool | None:
    """Whether an environment variable is 1 or 0; None where it is not set.

    Raises:
      ValueError: it is neither.
    """
    value = os.environ.get(name)
    if value not in ("0", "1", None):
        raise ValueError(f"the environment variable {name} is {value!r}, expected 0 or 1")
    return None if value is None else value == "1"
