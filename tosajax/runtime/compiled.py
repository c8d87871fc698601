"""Programs for XLA: constants become arguments, and XLA:CPU keeps optimization barriers."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.compilation_cache import compilation_cache
from jax.extend import core

from tosajax.runtime.jax_version import check_jax

# Bytes. Smaller arrays that are prepared from constants stay in the program: arrays of operators,
# and arrays that only native kernels read, so XLA computes nothing from them. Each argument of a
# call costs time in JAX.
_SMALL, _SMALL_OF_NATIVE = 64, 2**16
# Reentrant: tracing a program may compile another.
_CACHE_LOCK = threading.RLock()


def trace(
    program: Callable[..., Any], params: Any, *arguments: Any
) -> tuple[Callable[..., Any], list[Any]]:
    """Traces a program; its parameters and large constants become arguments.

    XLA folds constants while it compiles: it takes seconds, and the bits may differ (it keeps
    subnormal floats, and miscounts the leading zeros of negative numbers).

    Args:
      program: pure, (params, *arguments).
      params: a pytree of arrays.
      *arguments: pytrees of arrays or of `jax.ShapeDtypeStruct`.

    Returns:
      function: (constants, *arguments) -> the results of `program`.
      constants: its first argument: the parameters that the program reads, and large constants.
    """
    closed, result = jax.make_jaxpr(program, return_shape=True)(params, *arguments)
    tree, leaves = jax.tree.structure(result), jax.tree.leaves(params)
    values = [*leaves, *closed.consts]
    is_read = _read_variables(closed.jaxpr.eqns, closed.jaxpr.outvars)
    steps = [step for step in closed.jaxpr.eqns if not _is_native(step)]
    is_computed_with = _read_variables(steps, closed.jaxpr.outvars)
    taken = [
        *(v in is_read for v in closed.jaxpr.invars[: len(leaves)]),
        *(
            _is_large(value, _SMALL if v in is_computed_with else _SMALL_OF_NATIVE)
            for v, value in zip(closed.jaxpr.constvars, closed.consts, strict=True)
        ),
    ]

    def function(constants: list[Any], *arguments: Any) -> Any:
        rest = iter(constants)
        operands = [next(rest) if t else v for t, v in zip(taken, values, strict=True)]
        consts = operands[len(leaves) :]
        run = core.jaxpr_as_fun(core.ClosedJaxpr(closed.jaxpr, consts))
        return jax.tree.unflatten(tree, run(*operands[: len(leaves)], *jax.tree.leaves(arguments)))

    chosen = [value for value, t in zip(values, taken, strict=True) if t]
    return function, [x if isinstance(x, jax.Array) else jnp.asarray(np.asarray(x)) for x in chosen]


def _read_variables(steps: Sequence[Any], results: Sequence[Any]) -> set[Any]:
    read = (v for step in steps for v in step.invars)
    return {v for v in (*read, *results) if isinstance(v, core.Var)}


def _is_native(step: Any) -> bool:
    """Whether an equation of a jaxpr is a call of a native kernel."""
    if step.primitive.name == "custom_vmap_call":
        return all(map(_is_native, step.params["call"].jaxpr.eqns))
    return step.primitive.name == "ffi_call"


def compile_apart(lowered: jax.stages.Lowered) -> jax.stages.Compiled:
    """Compiles on a thread that Python joins at exit.

    An interrupt reaches the caller at once. Without the join, XLA's threads compile on after an
    interrupt while Python frees their data at exit, which crashes.
    """
    pool = ThreadPoolExecutor(1)
    try:
        return pool.submit(lowered.compile).result()
    finally:
        pool.shutdown(wait=False)


@contextlib.contextmanager
def persistent_cache(folder: str | os.PathLike[str] | None) -> Iterator[None]:
    """A context in which JAX keeps compiled programs in a folder, and loads them from it.

    The context sets JAX's options for all threads, so only one thread at a time is in it. For None
    it does nothing.
    """
    if folder is None:
        yield
        return
    options = {
        "jax_compilation_cache_dir": os.fspath(folder),
        "jax_persistent_cache_min_compile_time_secs": 0.0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    with _CACHE_LOCK:
        before = {name: getattr(jax.config, name) for name in options}
        try:
            _set_cache(options)
            yield
        finally:
            _set_cache(before)


def _set_cache(options: Mapping[str, Any]) -> None:
    for name, value in options.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()  # otherwise JAX keeps the first folder


def compiler_options(platform: str | None) -> dict[str, str] | None:
    """Options for XLA. On CPU they keep the barriers of `lower` until common subexpressions merge.

    XLA:CPU compiles a small loop as one function, which cannot hold a barrier. By default it uses
    half of a 512-bit register; integer loops are faster with all of it.

    Raises:
      UnsupportedError: tosajax is not tested with this version of jax.
    """
    check_jax()
    if platform != "cpu":
        return None
    return {
        "xla_disable_hlo_passes": "cse_barrier_expander,small-while-loop-hoisting",
        "xla_cpu_prefer_vector_width": "512",
    }


def _is_large(value: Any, small: int) -> bool:
    # Outside the 64-bit scope JAX narrows 64-bit arguments.
    return value.size * value.dtype.itemsize > small and value.dtype.itemsize <= 4
