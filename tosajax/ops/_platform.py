"""What is known of the platform that a program is traced for, and code that depends on it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import NamedTuple

import jax
from jax import lax

from tosajax.ops import _onednn


class Platform(NamedTuple):
    """A platform, and what XLA has there for products of int8."""

    name: str | None = None  # as `jax.Device.platform` has it; None where it is not known yet
    onednn: bool = False
    examples: int = 1  # that will run side by side, by `jax.vmap`

    @property
    def may_be_cpu(self) -> bool:
        return self.name in ("cpu", None)


ANY = Platform()
_current: ContextVar[Platform] = ContextVar("platform", default=ANY)


def at_hand(name: str) -> Platform:
    """A platform of this process."""
    return Platform(name, onednn=_onednn.is_wanted() and name == "cpu" and _onednn.usable())


def current() -> Platform:
    """Where what is traced now will run."""
    return _current.get()


@contextlib.contextmanager
def tracing_for(platform: Platform) -> Iterator[None]:
    """Has everything traced inside be for a platform alone."""
    token = _current.set(platform)
    try:
        yield
    finally:
        _current.reset(token)


def on_cpu(
    *operands: jax.Array,
    cpu: Callable[..., jax.Array],
    other: Callable[..., jax.Array],
) -> jax.Array:
    """`cpu(*operands)` where the program runs on a CPU, else `other(*operands)`.

    Where the platform is not known yet, the program holds both until it is lowered.
    """
    match current().name:
        case "cpu":
            return cpu(*operands)
        case None:
            return lax.platform_dependent(*operands, cpu=cpu, default=other)
        case _:
            return other(*operands)
