"""Programs that XLA compiles in half the time, for tests of what is around them.

LLVM then optimizes nothing: programs run slower, and each product is rounded before it is added.
Not for tests of kernels, nor of programs whose floats must have the same bits.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import jax

# As `compiler_options` of `jax.jit`.
QUICKLY = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


@contextlib.contextmanager
def quick_programs() -> Iterator[None]:
    """A context, or a decorator, in which JAX compiles all programs with these options."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    try:
        yield
    finally:
        jax.config.update("jax_disable_most_optimizations", before)
        jax.clear_caches()  # else later tests would run these programs
