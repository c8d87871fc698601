"""Traces a user's function to a jaxpr, with names for inputs, parameters and outputs."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core

from tosajax.arguments.types import shown
from tosajax.from_jax.values import Origin, Value, known
from tosajax.ops.recording import recording


class Traced(NamedTuple):
    """A traced function.

    Args:
      jaxpr: the jaxpr; its arguments are the parameters, then the inputs.
      constants: the arrays that the function closes over.
      params: the parameters.
      inputs: the names of the inputs.
      examples: the arrays of the inputs, or their shapes and dtypes.
      outputs: the names of the outputs.
      function: the function of the inputs only; returns a list of the outputs.
    """

    jaxpr: core.ClosedJaxpr
    constants: tuple[Value, ...]
    params: tuple[Value, ...]
    inputs: tuple[str, ...]
    examples: tuple[Any, ...]
    outputs: tuple[str, ...]
    function: Callable[..., list[jax.Array]]


def traced(fn: Callable[..., Any], args: Sequence[Any], params: Any | None) -> Traced:
    """Traces a function.

    Args:
      fn: a function, or a callable pytree, such as a module of Equinox or Flax, whose arrays become
        parameters.
      args: pytrees of arrays, or of shapes and dtypes.
      params: the first argument of `fn`, a pytree whose arrays become parameters; None if `fn` does
        not take one.

    Raises:
      TypeError: something among the arguments is not an array.
    """
    module, first, leaves_of_args = Leaves(fn), Leaves(params), [Leaves(arg) for arg in args]
    names = _argument_names(fn, params is not None, len(args))
    for name, leaves in zip(names, leaves_of_args, strict=True):
        leaves.raise_others(name)
    parameters = [*module.named(""), *first.named("")]
    inputs = [
        leaf
        for name, leaves in zip(names, leaves_of_args, strict=True)
        for leaf in leaves.named(name)
    ]
    arrays, examples = [a for _, a in parameters], [a for _, a in inputs]

    def called(*flat: Any) -> Any:
        rest = iter(flat)
        target, *arguments = (leaves.filled(rest) for leaves in (module, first, *leaves_of_args))
        return target(*arguments[params is None :])

    def function(*inputs: Any) -> list[jax.Array]:
        return jax.tree_util.tree_leaves(called(*arrays, *inputs))

    with recording():
        jaxpr, results = jax.make_jaxpr(called, return_shape=True)(*arrays, *examples)
    dtypes = [var.aval.dtype for var in jaxpr.jaxpr.invars]
    return Traced(
        jaxpr,
        _constants(fn, jaxpr.consts, len(parameters)),
        tuple(
            known(_in_dtype(array, dtype), Origin(name, number))
            for number, ((name, array), dtype) in enumerate(zip(parameters, dtypes, strict=False))
        ),
        tuple(name for name, _ in inputs),
        tuple(examples),
        _output_names(results),
        function,
    )


def _argument_names(fn: Callable[..., Any], has_params: bool, count: int) -> list[str]:
    """The names of the input arguments; "input_0", "input_1" and so on if they have no names."""
    try:
        parameters = [*inspect.signature(fn).parameters.values()]
    except (TypeError, ValueError):
        parameters = []
    kinds = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
    names = [p.name for p in parameters if p.kind in kinds][has_params:]
    return [names[i] if i < len(names) else f"input_{i}" for i in range(count)]


def _constants(fn: Callable[..., Any], arrays: Sequence[Any], first: int) -> tuple[Value, ...]:
    """The arrays that a function closes over, with their paths in its variables as origins.

    The paths are found by content, as JAX copies NumPy arrays. The arrays' parameter numbers begin
    at `first`.
    """
    if not arrays:
        return ()
    shapes = {np.shape(array) for array in arrays}
    paths = {_content_key(a): name for name, a in _closed_over(fn) if np.shape(a) in shapes}
    names = (paths.get(_content_key(array)) for array in arrays)
    return tuple(
        known(array, None if name is None else Origin(name, number))
        for number, (array, name) in enumerate(zip(arrays, names, strict=True), first)
    )


def _in_dtype(array: Any, dtype: Any) -> Any:
    """A parameter in the dtype that it was traced with; random keys stay as they are."""
    is_key = jnp.issubdtype(dtype, jax.dtypes.extended)
    return array if is_key else np.asarray(array, dtype)


def _content_key(array: Any) -> tuple[object, ...]:
    if jnp.issubdtype(array.dtype, jax.dtypes.extended):  # a random key
        return (id(array),)
    array = np.ascontiguousarray(array)
    digest = hashlib.blake2b(array.view(np.uint8)).digest() if array.size else b""
    return array.shape, str(array.dtype), digest


def _closed_over(fn: Callable[..., Any]) -> list[tuple[str, Any]]:
    """The arrays in the variables that a function reads and in a method's object, with paths."""
    own = inspect.unwrap(fn)
    trees: dict[str, Any] = {"": getattr(own, "__self__", None)}
    if inspect.isfunction(own) or inspect.ismethod(own):
        variables = inspect.getclosurevars(own)
        trees |= {**variables.globals, **variables.nonlocals}
    return [leaf for name, tree in trees.items() for leaf in Leaves(tree).named(name)]


def _output_names(results: Any) -> tuple[str, ...]:
    """The names of the outputs: "output" for a single one, else from their paths in the pytree."""
    named = jax.tree_util.tree_flatten_with_path(results)[0]
    texts = [_path_text(path) for path, _ in named]
    return tuple(
        "output" if not text else f"output_{text}" if text[0].isdigit() else text for text in texts
    )


class Leaves:
    """A pytree, split into its arrays and everything else, which is part of the function."""

    def __init__(self, tree: Any) -> None:
        self._leaves, self._structure = jax.tree_util.tree_flatten_with_path(tree)

    def named(self, name: str) -> list[tuple[str, Any]]:
        """Pairs of an array's path, which begins with `name`, and the array."""
        return [(_path_below(name, path), leaf) for path, leaf in self._leaves if _is_array(leaf)]

    def filled(self, arrays: Iterator[Any]) -> Any:
        """The pytree with its arrays replaced by the next ones of an iterator."""
        leaves = [next(arrays) if _is_array(leaf) else leaf for _, leaf in self._leaves]
        return jax.tree_util.tree_unflatten(self._structure, leaves)

    def raise_others(self, name: str) -> None:
        """Raises TypeError if a leaf is not an array."""
        for path, leaf in self._leaves:
            if not _is_array(leaf):
                wanted = "an array or a jax.ShapeDtypeStruct; functools.partial can hold others"
                raise TypeError(f"{_path_below(name, path)} is {shown(leaf)}, expected {wanted}")


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array | np.ndarray | np.generic | jax.ShapeDtypeStruct)


def _path_below(name: str, path: tuple[Any, ...]) -> str:
    return "/".join(part for part in (name, _path_text(path)) if part)


def _path_text(path: tuple[Any, ...]) -> str:
    """A path in a pytree, "params/Dense_0/kernel", without the "/value" of Flax variables."""
    return jax.tree_util.keystr(path, simple=True, separator="/").removesuffix("/value")
