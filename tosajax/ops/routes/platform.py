"""The platform that a program is traced for, and code that depends on it.

The platform is a context variable, because no argument could carry it: operators have the
signatures of the specification, users call them directly, and gradient rules, loops and JAX's
transformations stand between `tosajax.lowering`, which knows it, and the operators. It is read
while a program is traced: by `choose`, `on_cpu` and `ops/_skip.py`.

JAX does not tell traces for different platforms apart: a function that is jitted inside an operator
takes `current()` as a static argument.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import NamedTuple

import jax
import numpy as np
from jax import lax


class Platform(NamedTuple):
    """A platform."""

    name: str | None = None  # as in `jax.Device.platform`; None: not known yet

    @property
    def may_be_cpu(self) -> bool:
        return self.name in ("cpu", None)


ANY = Platform()
_current: ContextVar[Platform] = ContextVar("platform", default=ANY)


def current() -> Platform:
    """The platform of the innermost `tracing_for`, else `ANY`."""
    return _current.get()


@contextlib.contextmanager
def tracing_for(platform: Platform) -> Iterator[None]:
    """Traces all programs inside for one platform."""
    token = _current.set(platform)
    try:
        yield
    finally:
        _current.reset(token)


def on_cpu(
    *operands: jax.Array | np.ndarray,
    cpu: Callable[..., jax.Array],
    other: Callable[..., jax.Array],
) -> jax.Array:
    """Returns `cpu(*operands)` if the program runs on a CPU, else `other(*operands)`.

    For a platform that is not known yet, the program holds both until it is lowered.
    """
    match current().name:
        case "cpu":
            return cpu(*operands)
        case None:
            return lax.platform_dependent(*operands, cpu=cpu, default=other)
        case _:
            return other(*operands)
