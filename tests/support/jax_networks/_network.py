"""What a network of the collection is, and the values that all of them share."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

Size = Literal["small", "full"]

_SCALES = {"scale", "gamma", "weight"}
_VARIANCES = {"var", "moving_variance"}
_HEADS = {"query", "key", "value", "qkv"}  # [inputs, heads, outputs of a head]


class Network(NamedTuple):
    """A function with its parameters and example arguments.

    `fn(params, *args)` runs it, or `fn(*args)` where `params` is None.
    """

    name: str
    framework: str
    fn: Callable[..., Any]
    params: Any
    args: tuple[Any, ...]
    names: tuple[str, ...]
    """One for each of `args`."""

    def function(self) -> Callable[..., Any]:
        """The network as a function of `args` alone."""
        first = () if self.params is None else (self.params,)
        # A closure, because JAX hashes what it compiles and a module of Equinox has no hash.
        return lambda *args: self.fn(*first, *args)


@contextlib.contextmanager
def as_users() -> Iterator[None]:
    """JAX's own settings, because Keras and Equinox rely on promotion."""
    with (
        jax.numpy_dtype_promotion("standard"),
        jax.numpy_rank_promotion("allow"),
    ):
        yield


def normal(rng: np.random.Generator, *shape: int, scale: float = 1.0) -> jax.Array:
    """float32 of a normal distribution."""
    return jnp.asarray((rng.standard_normal(shape) * scale).astype(np.float32))


def example(*shape: int, seed: int = 0) -> jax.Array:
    """A normalized image, or other features."""
    return normal(np.random.default_rng(seed), *shape)


def tokens(vocabulary: int, *shape: int, seed: int = 0) -> jax.Array:
    """int32 token numbers."""
    return jnp.asarray(np.random.default_rng(seed).integers(0, vocabulary, shape, np.int32))


def seeded(shapes: Any, *, outputs_first: bool = False) -> Any:
    """Parameters of these shapes and types, at the scale that they have after training.

    Biases and means lie around 0, scales around 1, variances between 0.5 and 2; weights keep the
    scale of a layer's input. Random keys and counters are those of a new network.

    Args:
      shapes: a tree of what has a `shape` and a `dtype`.
      outputs_first: weights are [outputs, inputs, ...], not [..., inputs, outputs].
    """
    rng = np.random.default_rng(0)

    def leaf(path: Any, like: Any) -> Any:
        if jnp.issubdtype(like.dtype, jax.dtypes.prng_key):
            return jax.random.key(0)
        if not jnp.issubdtype(like.dtype, jnp.floating):
            return jnp.zeros(like.shape, like.dtype)
        words = jax.tree_util.keystr(path, simple=True, separator="/").split("/")
        words = words[:-1] if words[-1] == "value" else words  # the array of an nnx variable
        return jnp.asarray(drawn(rng, words, like.shape, outputs_first), like.dtype)

    return jax.tree_util.tree_map_with_path(leaf, shapes)


def drawn(
    rng: np.random.Generator, words: list[str], shape: tuple[int, ...], outputs_first: bool = False
) -> np.ndarray:
    """Random values for the parameter that a path of `words` names."""
    if _VARIANCES.intersection(words):
        return rng.uniform(0.5, 2.0, shape)
    if len(shape) == 1 and _SCALES.intersection(words):
        return rng.uniform(0.7, 1.3, shape)
    normals = rng.standard_normal(shape, np.float32)
    if len(shape) < 2 or "bias" in words:
        return normals * 0.1
    return normals * _inputs(words, shape, outputs_first) ** -0.5


def _inputs(words: list[str], shape: tuple[int, ...], outputs_first: bool) -> int:
    """Values that a weight of this shape sums for each output."""
    if outputs_first:
        return math.prod(shape[1:])
    if _HEADS.intersection(words):
        return shape[0]
    if any("depthwise" in word for word in words):
        return math.prod(shape[:2])
    return shape[-1] if "embedding" in words else math.prod(shape[:-1])
