"""Exact integer kernels, compiled by LLVM when a program is made and called by XLA.

`llvmlite` compiles them (the extra "native"), and XLA calls them by its public interface for
foreign functions. Without it, programs take XLA's own operations, with the same bits.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
from collections.abc import Iterator
from contextvars import ContextVar

from tosajax.environment import switch

_VARIABLE = "TOSAJAX_NATIVE"
# A context, like the platform, as operands and instruction sets alone reach the calls of kernels.
_threads_wait: ContextVar[bool] = ContextVar("threads_wait", default=False)


def threads_wait() -> bool:
    """Whether threads wait for the next kernel after one that is traced now."""
    return _threads_wait.get()


@contextlib.contextmanager
def waiting_threads(wait: bool) -> Iterator[None]:
    """Threads wait for a while after each kernel that is traced inside, or go at once.

    They pay where kernels follow each other. XLA's own kernels would miss them.
    """
    token = _threads_wait.set(wait)
    try:
        yield
    finally:
        _threads_wait.reset(token)


def can_compile() -> bool:
    """Whether there is an LLVM for native kernels."""
    # Kernels call POSIX functions of the C library.
    return os.name == "posix" and importlib.util.find_spec("llvmlite") is not None


def wanted(native: bool | None) -> bool | None:
    """Whether programs are to have native kernels; None where the processor decides.

    Args:
      native: what the user asked for; the environment may forbid it, or ask in the user's place.

    Raises:
      ValueError: TOSAJAX_NATIVE is neither 0 nor 1.
    """
    everywhere = switch(_VARIABLE)
    return False if everywhere is False else everywhere if native is None else native
