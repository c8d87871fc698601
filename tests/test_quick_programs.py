"""Programs that were compiled quickly are not taken for others, nor others for them."""

from __future__ import annotations

import contextlib
from typing import Any

import jax
import numpy as np
from jax._src import compiler  # pyright: ignore[reportMissingImports]
from quick_programs import quick_programs


def test_each_runs_its_own_programs(monkeypatch):
    levels: list[int] = []
    compile_usually = compiler.backend_compile_and_load

    def note(backend: Any, module: Any, devices: Any, options: Any, *rest: Any) -> Any:
        debug = options.executable_build_options.debug_options
        levels.append(debug.xla_backend_optimization_level)
        return compile_usually(backend, module, devices, options, *rest)

    monkeypatch.setattr(compiler, "backend_compile_and_load", note)
    add = jax.jit(lambda x: x + 1)
    x = np.ones(3, np.float32)
    found = []
    for quickly in (False, True, False, True):
        levels.clear()
        with quick_programs() if quickly else contextlib.nullcontext():
            add(x)
            jax.numpy.exp(x)
        found.append(list(levels))
    usual, quick = found[:2]
    assert len(usual) == len(quick) == 2
    assert min(usual) > max(quick) == 0
    assert found[2:] == [[], []]
