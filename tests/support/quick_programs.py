"""Programs that XLA compiles in a third of the time, for tests of what is around them.

LLVM then optimizes nothing: programs run slower, and each product is rounded before it is added.
Not for tests of kernels, nor of programs whose floats must have the same bits.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

import jax
from jax._src import compiler  # pyright: ignore[reportMissingImports]

# XLA's older way to write loops compiles in two thirds of the time. Later versions have no such
# option, and end the process at one that they do not know.
OLDER_LOOPS = {"xla_cpu_use_fusion_emitters": False} if jax.__version__.startswith("0.10.") else {}

# JAX keeps programs apart by the second, which XLA does not use.
_OPTIONS = {"jax_disable_most_optimizations": True, "jax_xla_profile_version": 1}

# As `compiler_options` of `jax.jit`.
QUICKLY = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


@contextlib.contextmanager
def quick_programs() -> Iterator[None]:
    """A context, or a decorator, in which JAX compiles all programs with these options."""
    before = {name: jax.config.values[name] for name in _OPTIONS}
    try:
        for name, value in _OPTIONS.items():
            jax.config.update(name, value)
        with _older_loops() if OLDER_LOOPS else contextlib.nullcontext():
            yield
    finally:
        for name, value in before.items():
            jax.config.update(name, value)


def _older_loops() -> contextlib.AbstractContextManager[Any]:
    """A context in which XLA writes loops in its older way; only a private function can ask it."""
    compile_usually = compiler.backend_compile_and_load

    def compile_with_older_loops(
        backend: Any, module: Any, devices: Any, options: Any, *rest: Any
    ) -> Any:
        options.env_option_overrides = [*options.env_option_overrides, *OLDER_LOOPS.items()]
        return compile_usually(backend, module, devices, options, *rest)

    return mock.patch.object(compiler, "backend_compile_and_load", compile_with_older_loops)
