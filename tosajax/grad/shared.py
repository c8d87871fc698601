"""Functions that are traced once for all operands of one kind.

A deep network calls each operator many times with the same types, shapes and attributes. JAX
traces, differentiates and lowers a function in `jax.jit` once for all of these calls; XLA puts it
in the place of each call before it optimizes anything.
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
# Kinds of one function that are kept: more than the largest networks have.
_KEPT = 1024


def shared(function: Callable[..., _T]) -> Callable[..., _T]:
    """The function, traced once for each kind of operands and attributes.

    JAX arrays, also those in trees, are traced. NumPy arrays are constants that the function can
    compute with while it is traced, as it could without this. All else is static and hashable.
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
        # The platform decides how operators are computed.
        key = tree, tuple(map(_key, static)), platform.current()
        return program(_Kind(key, static))(*arrays)

    return call


@dataclasses.dataclass(frozen=True)
class _Kind:
    """What calls have in common: all but the values of arrays."""

    key: tuple[Any, ...]
    static: Sequence[Any] = dataclasses.field(compare=False)  # None in the place of arrays

    def fill(self, arrays: Sequence[jax.Array]) -> Any:
        """The operands and attributes with these arrays."""
        rest = iter(arrays)
        leaves = [next(rest) if x is None else x for x in self.static]
        return jax.tree.unflatten(self.key[0], leaves)


def _key(leaf: Any) -> Hashable:
    if isinstance(leaf, np.ndarray | np.generic):
        return np.ndarray, leaf.dtype, leaf.shape, leaf.tobytes()
    if isinstance(leaf, float):
        return float, leaf.hex()  # 0.0 == -0.0, and NaN is not NaN
    return type(leaf), leaf
