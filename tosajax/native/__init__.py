"""Kernels of integers and float32, compiled by LLVM when a program is traced, and called by XLA.

`call` and `forms` are the kernels as functions of JAX, of what `operands` makes. `tiling` plans one
for a shape: tiles, and the work items that threads share by `sharing`. `kernels` writes its code as
LLVM IR, by means of `codegen`. `calls` compiles the IR with `llvmlite` (the extra "native"), and
calls it through XLA's foreign function interface.
Without `llvmlite`, programs use XLA's own operations; integers have the same bits.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
from collections.abc import Iterator
from contextvars import ContextVar

from tosajax.environment import switch

_VARIABLE = "TOSAJAX_NATIVE"
# A context variable, like the platform: only operands and instruction sets reach `call.run`.
_threads_wait: ContextVar[bool] = ContextVar("threads_wait", default=False)


def threads_wait() -> bool:
    """Whether threads park after each kernel that is traced now."""
    return _threads_wait.get()


@contextlib.contextmanager
def waiting_threads(wait: bool) -> Iterator[None]:
    """A context in which threads park after each kernel that is traced, or return at once.

    Parked workers pay where kernels follow each other; XLA's own kernels would lack these threads.
    """
    token = _threads_wait.set(wait)
    try:
        yield
    finally:
        _threads_wait.reset(token)


def can_compile() -> bool:
    """Whether this system can compile and run native kernels."""
    # Kernels call POSIX functions of the C library.
    return os.name == "posix" and importlib.util.find_spec("llvmlite") is not None


def wanted(native: bool | None) -> bool | None:
    """Whether programs shall have native kernels; None leaves it to the processor.

    Args:
      native: the user's choice. The environment variable TOSAJAX_NATIVE may forbid native kernels,
        or decide where this is None.

    Raises:
      ValueError: TOSAJAX_NATIVE is neither 0 nor 1.
    """
    everywhere = switch(_VARIABLE)
    return False if everywhere is False else everywhere if native is None else native
