"""Compiled programs that the processes of one run of the tests share, in a folder.

Many tests compile what others compiled: single operations, and graphs of equal shapes. JAX's own
cache would not do: with it, tosajax leaves out the kernels whose programs JAX cannot write.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
from jax._src import compiler  # pyright: ignore[reportMissingImports]

_compile: Any = getattr(compiler, "backend_compile_and_load", None)


def keep_programs(folder: Path) -> None:
    """Takes from the folder what was compiled before, and keeps there what is compiled.

    It uses a private function of JAX; in a version without it, each process compiles for itself.
    """
    if _compile is None:
        return
    # A program is the same wherever the lines stand that made it; names of scopes remain.
    jax.config.update("jax_traceback_in_locations_limit", 0)

    def compile_once(
        backend: Any, module: Any, devices: Any, options: Any, callbacks: Sequence[Any]
    ) -> Any:
        text = module.operation.get_asm(enable_debug_info=True)
        # A file cannot hold calls of Python.
        if backend.platform != "cpu" or callbacks or "callback" in text:
            return _compile(backend, module, devices, options, callbacks)
        key = hashlib.sha256(text.encode())
        key.update(options.SerializeAsString())
        path = folder / key.hexdigest()
        if path.exists():
            data = zlib.decompress(path.read_bytes())
            with contextlib.suppress(jax.errors.JaxRuntimeError):  # too deeply nested to be read
                return backend.deserialize_executable(data, devices, options)
        program = _compile(backend, module, devices, options, callbacks)
        with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
            file.write(zlib.compress(program.serialize(), 1))
        os.replace(file.name, path)
        return program

    compiler.backend_compile_and_load = compile_once
