"""Compiled programs that the processes of a run of the tests share, in a folder, and later runs.

Many tests compile what others compiled: single operations, and graphs of equal shapes. JAX's own
cache would not do: with it, tosajax leaves out the kernels whose programs JAX cannot write.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import tempfile
import time
import zlib
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
from jax._src import compiler  # pyright: ignore[reportMissingImports]

# Names the folder of compiled programs to all processes of a run of the tests; set before it, it
# names one that keeps them for the next run.
FOLDER = "TOSAJAX_TEST_PROGRAMS"

_compile: Any = getattr(compiler, "backend_compile_and_load", None)


def keep_programs(folder: Path) -> None:
    """Takes from the folder what was compiled before, and keeps there what is compiled.

    It uses a private function of JAX; in a version without it, each process compiles for itself.
    """
    if _compile is None:
        return
    # A program is the same wherever the lines stand that made it; names of scopes remain.
    jax.config.update("jax_traceback_in_locations_limit", 0)
    compiles_alike = _compiler().encode()

    def compile_once(
        backend: Any, module: Any, devices: Any, options: Any, callbacks: Sequence[Any]
    ) -> Any:
        text = module.operation.get_asm(enable_debug_info=True)
        # A file cannot hold calls of Python.
        if backend.platform != "cpu" or callbacks or "callback" in text:
            return _compile(backend, module, devices, options, callbacks)
        key = hashlib.sha256(text.encode())
        key.update(options.SerializeAsString())
        key.update(compiles_alike)
        path = folder / key.hexdigest()
        # Another process may remove it meanwhile; a program may be too deeply nested to be read.
        with contextlib.suppress(OSError, zlib.error, jax.errors.JaxRuntimeError):
            data = zlib.decompress(path.read_bytes())
            os.utime(path)
            return backend.deserialize_executable(data, devices, options)
        program = _compile(backend, module, devices, options, callbacks)
        with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
            file.write(zlib.compress(program.serialize(), 1))
        os.replace(file.name, path)
        return program

    compiler.backend_compile_and_load = compile_once


def remove_unused(folder: Path, days: float = 7) -> None:
    """Removes the programs that no process has taken from the folder for some days."""
    oldest = time.time() - days * 86400
    for path in folder.iterdir():
        with contextlib.suppress(OSError):  # of another run
            if path.stat().st_mtime < oldest:
                path.unlink()


def _compiler() -> str:
    """All that machine code depends on besides the program: XLA, its flags, the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        names = ("model name", "flags", "Features", "CPU part")
        processor = sorted({line for line in lines if line.startswith(names)})
    except OSError:
        processor = [platform.platform(), platform.processor()]
    return repr((version("jaxlib"), os.environ.get("XLA_FLAGS"), processor))
