"""Exact integer kernels, compiled by LLVM when a program is made and called by XLA.

`llvmlite` compiles them (the extra "native"), and XLA calls them by its public interface for
foreign functions. Without it, programs take XLA's own operations, with the same bits.
"""

from __future__ import annotations

import importlib.util
import os

_VARIABLE = "TOSAJAX_NATIVE"


def is_wanted() -> bool:
    """Whether the environment allows native kernels, as it does without TOSAJAX_NATIVE=0.

    Raises:
      ValueError: TOSAJAX_NATIVE is neither 0 nor 1.
    """
    found = os.environ.get(_VARIABLE, "1")
    if found not in ("0", "1"):
        raise ValueError(f"the environment variable {_VARIABLE} is {found!r}, expected 0 or 1")
    return found == "1"


def can_compile() -> bool:
    """Whether programs may have native kernels: they are wanted, and llvmlite can compile them."""
    # Kernels call POSIX functions of the C library.
    return is_wanted() and os.name == "posix" and importlib.util.find_spec("llvmlite") is not None
