"""Functions that are traced once for all operands of the same types, shapes and attributes.

A deep network calls each operator many times with the same types, shapes and attributes. JAX
traces, differentiates and lowers a jitted function once for all of these calls; XLA inlines the
calls before it optimizes.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

import jax
import numpy as np

from tosajax.ops.routes import platform

_T = TypeVar("_T")
# The size of a function's cache: more kinds of calls than the largest networks have.
_KEPT = 1024


def shared(function: Callable[..., _T]) -> Callable[..., _T]:
    """Wraps a function so that it is traced once for each kind of operands and attributes.

    JAX arrays, in pytrees too, are traced. NumPy arrays stay constants, which the function can read
    while it is traced. All other values are static and must be hashable.
    """

    @functools.lru_cache(_KEPT)
    def program(kind: _Kind) -> Callable[..., _T]:
        def run(*arrays: jax.Array) -> _T:
            operands, attributes = kind.fill(arrays)
            return function(*operands, **attributes)

        return jax.jit(run)

    @functools.wraps(function)
    def call(*operands: Any, **attributes: Any) -> _T:
        leaves, tree = jax.tree.flatten((operands, attributes))
        arrays = [x for x in leaves if isinstance(x, jax.Array)]
        static = [None if isinstance(x, jax.Array) else x for x in leaves]
        # Routes of operators depend on the platform.
        key = tree, tuple(map(_key, static)), platform.current()
        return program(_Kind(key, static))(*arrays)

    return call


@dataclasses.dataclass(frozen=True)
class _Kind:
    """A kind of calls: everything except the values of arrays."""

    key: tuple[Any, ...]
    static: Sequence[Any] = dataclasses.field(compare=False)  # None in place of arrays

    def fill(self, arrays: Sequence[jax.Array]) -> Any:
        """The operands and attributes, with these arrays filled in."""
        rest = iter(arrays)
        leaves = [next(rest) if x is None else x for x in self.static]
        return jax.tree.unflatten(self.key[0], leaves)


def _key(leaf: Any) -> Hashable:
    if isinstance(leaf, np.ndarray | np.generic):
        return np.ndarray, leaf.dtype, leaf.shape, leaf.tobytes()
    if isinstance(leaf, float):
        return float, leaf.hex()  # by bits: 0.0 == -0.0, and NaN != NaN
    return type(leaf), leaf
