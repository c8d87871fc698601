"""A program as XLA compiles it: what is constant is an argument, and barriers last on CPU."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.compilation_cache import compilation_cache
from jax.extend import core

# Constants up to this size stay in the program.
_SMALL = 64


def trace(program: Callable[..., Any], *arguments: Any) -> tuple[Callable[..., Any], list[Any]]:
    """Traces a program, and takes its large constants out of it.

    As constants XLA would try to compute with them while it compiles, for seconds; as arguments
    they run as fast.

    Args:
      program: pure, of any arguments.
      *arguments: pytrees of arrays or of `jax.ShapeDtypeStruct`.

    Returns:
      function: (constants, *arguments) -> what `program` returns.
      constants: its first argument.
    """
    closed, result = jax.make_jaxpr(program, return_shape=True)(*arguments)
    tree = jax.tree.structure(result)
    large = [_is_large(value) for value in closed.consts]

    def function(constants: list[Any], *arguments: Any) -> Any:
        taken = iter(constants)
        values = [
            next(taken) if out else value for out, value in zip(large, closed.consts, strict=True)
        ]
        run = core.jaxpr_as_fun(core.ClosedJaxpr(closed.jaxpr, values))
        return jax.tree.unflatten(tree, run(*jax.tree.leaves(arguments)))

    taken_out = zip(large, closed.consts, strict=True)
    return function, [jnp.asarray(np.asarray(value)) for out, value in taken_out if out]


@contextlib.contextmanager
def persistent_cache(folder: str | os.PathLike[str] | None) -> Iterator[None]:
    """Keeps what XLA compiles meanwhile in a folder, and takes it from there the next time.

    Sets JAX's own options for as long as it lasts, for all threads. None changes nothing.
    """
    if folder is None:
        yield
        return
    options = {
        "jax_compilation_cache_dir": os.fspath(folder),
        "jax_persistent_cache_min_compile_time_secs": 0.0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    before = {name: getattr(jax.config, name) for name in options}
    try:
        _set_cache(options)
        yield
    finally:
        _set_cache(before)


def _set_cache(options: Mapping[str, Any]) -> None:
    for name, value in options.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()  # which else keeps to the folder it was first used with


def compiler_options(platform: str) -> dict[str, str] | None:
    """On CPU, keeps the barriers of `lower` until XLA has decided what to compute once.

    XLA:CPU compiles a small loop as one function, which may not hold a barrier.
    """
    if platform != "cpu":
        return None
    return {"xla_disable_hlo_passes": "cse_barrier_expander,small-while-loop-hoisting"}


def _is_large(value: Any) -> bool:
    # Outside the 64-bit scope an argument of 64 bits would be narrowed.
    return value.size * value.dtype.itemsize > _SMALL and value.dtype.itemsize <= 4
