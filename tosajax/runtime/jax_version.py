"""The versions of JAX that tosajax is tested with.

XLA ignores unknown names of passes, so an untested version might silently compute other bits.
pyproject.toml holds the same bounds.
"""

from __future__ import annotations

import re

import jax

from tosajax.report import UnsupportedError

FIRST, BEYOND = "0.10.2", "0.13"


def check_jax() -> None:
    """Checks the version of JAX, before anything is compiled.

    Raises:
      UnsupportedError: tosajax is not tested with this version.
    """
    if not _numbers(FIRST) <= _numbers(jax.__version__) < _numbers(BEYOND):
        raise UnsupportedError(
            f"jax is {jax.__version__}, and tosajax is tested with versions from {FIRST} to below "
            f"{BEYOND} only: with others, compiled graphs might not be bit-exact; "
            f"pip install 'jax>={FIRST},<{BEYOND}'"
        )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(n) for n in re.findall(r"\d+", version))
