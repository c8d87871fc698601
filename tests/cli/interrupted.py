"""The `tosajax` command, interrupted at a moment; for tests.

interrupted.py MOMENT ARGUMENTS...
"""

from __future__ import annotations

import gc
import signal
import sys
import threading
import time

from jax._src import compiler

from tosajax import cli
from tosajax.sweep.store import Store

_GRAPH = 20_000  # characters of a program's text: JAX's own small ones have fewer


def interrupt() -> None:
    signal.raise_signal(signal.SIGINT)


def _wait() -> None:
    """Waits for an interrupt: the rest of a short command can end before it comes."""
    for _ in range(6000):
        time.sleep(0.01)  # short, as an interrupt by another thread does not end a sleep


def compiling() -> None:
    """While XLA compiles the graph."""
    compile_and_load = compiler.backend_compile_and_load

    def interrupted(backend, module, *rest, **options):
        if len(str(module)) > _GRAPH:
            main = threading.main_thread().ident
            threading.Timer(0.05, signal.pthread_kill, (main, signal.SIGINT)).start()
        return compile_and_load(backend, module, *rest, **options)

    compiler.backend_compile_and_load = interrupted


def stored() -> None:
    """As soon as two parts of the rows have been stored."""
    append, parts = Store.append, []

    def interrupted(self, rows):
        append(self, rows)
        parts.extend([rows] if rows else [])
        if len(parts) == 2:
            interrupt()

    Store.append = interrupted


def storing() -> None:
    """Before the second part of the rows is stored."""
    append, parts = Store.append, []

    def interrupted(self, rows):
        parts.extend([rows] if rows else [])
        if len(parts) == 2:
            interrupt()
        append(self, rows)

    Store.append = interrupted


def twice() -> None:
    """Again while the first interrupt is reported."""
    fail = cli._fail

    def interrupted(*arguments):
        interrupt()
        return fail(*arguments)

    cli._fail = interrupted
    stored()


def collecting() -> None:
    """Where JAX answers the garbage collector: Python drops exceptions there."""
    append = Store.append

    def dropped(phase, _):
        gc.callbacks.remove(dropped)
        interrupt()

    def interrupted(self, rows):
        append(self, rows)
        if rows and append is not Store.append:
            Store.append = append
            gc.callbacks.append(dropped)
            gc.collect()
            _wait()

    Store.append = interrupted


if __name__ == "__main__":
    moment, *arguments = sys.argv[1:]
    # A shell has its background jobs ignore the signal.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    globals()[moment]()
    sys.argv = ["tosajax", *arguments]
    cli.process()
