"""MLIR contexts that programs share.

JAX makes one for each program: 5 ms, as long as all else that it does to lower a small program.
"""

from __future__ import annotations

from typing import Any

from jax._src.interpreters import mlir  # pyright: ignore[reportMissingImports]

# A context keeps the constants of all its programs, so that another one takes its place in time.
_PROGRAMS = 64


def share_contexts() -> None:
    """Has JAX lower many programs in one context, one after the other.

    It replaces a private function of JAX; a version without it makes one for each.
    """
    make = getattr(mlir, "make_ir_context", None)
    if make is None:
        return
    contexts: list[Any] = []  # the same one, once for each program that may still use it

    def next_context() -> Any:
        try:
            return contexts.pop()  # one step, for several threads
        except IndexError:
            contexts.extend([make()] * _PROGRAMS)
            return contexts.pop()

    mlir.make_ir_context = next_context
