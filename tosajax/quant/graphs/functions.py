"""The JAX function that a model's float graph was made of."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tosajax import spec
from tosajax.arguments.types import check_type, count, shown
from tosajax.from_jax.export import written
from tosajax.from_jax.scope import Options
from tosajax.from_jax.tracing import Leaves, traced
from tosajax.from_jax.values import Origin
from tosajax.graph import Graph
from tosajax.graph.edit import Draft
from tosajax.quant.graphs.blocks import all_tensors, separated
from tosajax.spec.target import target_of
from tosajax.validation import validate


class Parameter(NamedTuple):
    """An array of the user's pytree, and its path there."""

    path: str
    array: Any

    @property
    def elements(self) -> np.ndarray:
        """All of them in one row, float64."""
        return np.asarray(self.array).astype(np.float64).reshape(-1)

    def like(self, elements: np.ndarray) -> Any:
        """An array of the same kind and type."""
        array = elements.reshape(self.array.shape).astype(self.array.dtype)
        if isinstance(self.array, jax.Array):
            return jnp.asarray(array)
        return array if isinstance(self.array, np.ndarray) else array[()]


@dataclasses.dataclass(frozen=True, eq=False)
class Function:
    """A function with its parameters, and the graph that was made of it.

    Args:
      fn: a function, or a module that holds parameters.
      params: the pytree that is its first argument; None if it has none.
      graph: the exported graph.
      origins: the origins of its constants, by name.
    """

    fn: Callable[..., Any]
    params: Any | None
    graph: Graph
    origins: Mapping[str, Origin]

    @functools.cached_property
    def constants(self) -> dict[str, np.ndarray]:
        """The constants of the graph by name; x of a graph "body" inside it is "body/x"."""
        tensors = all_tensors(separated(self.graph))
        return {name: t.values for name, t in tensors.items() if t.values is not None}

    @functools.cached_property
    def parameters(self) -> list[Parameter]:
        """The arrays, in the order of their numbers."""
        trees = Leaves(self.fn), Leaves(self.params)
        return [Parameter(*leaf) for leaves in trees for leaf in leaves.named("")]

    def with_arrays(self, arrays: Sequence[Any]) -> Any:
        """The pytree of the parameters, with other arrays.

        It is `params`; or the module, where it holds the parameters; or a pair of both.
        """
        module, own = Leaves(self.fn), Leaves(self.params)
        rest = iter(arrays)
        fn, params = module.filled(rest), own.filled(rest)
        if self.params is None:
            return fn
        return (fn, params) if module.named("") else params


def function_of(
    fn: object, example_args: Sequence[Any] | None, params: Any | None, max_unroll: int
) -> Function:
    """Exports a function.

    Raises:
      UnsupportedError: it computes something that TOSA does not have.
      TosaError: its graph is not legal.
      TypeError: it is not a function, or an argument is of another type.
    """
    if not callable(fn):
        wanted = "a Graph, as `tosajax.load` gives it, or a JAX function"
        raise TypeError(f"graph is {shown(fn)}, expected {wanted}")
    check_type("example_args", example_args, tuple | list, "a tuple of the function's inputs")
    assert example_args is not None
    options = Options(target_of(None), count("max_unroll", max_unroll))
    graph, origins = written(traced(fn, example_args, params), options)
    validate(graph).raise_errors()
    return Function(fn, params, _with_own_biases(graph, origins, ""), origins)


def _with_own_biases(graph: Graph, origins: Mapping[str, Origin], path: str) -> Graph:
    """The graph whose convolutions share no bias but parameters.

    Convolutions without a bias share one constant of zeros; each gets its own copy to train.
    """
    parts = graph.subgraphs.items()
    parts = {name: _with_own_biases(part, origins, f"{path}{name}/") for name, part in parts}
    draft = Draft(dataclasses.replace(graph, subgraphs=parts))
    for node in graph.ordered_nodes():
        if spec.OPERATORS[node.op].chapter == "conv":
            x, weight, bias, *rest = node.inputs
            tensor = graph.tensors[bias]
            if tensor.values is not None and path + bias not in origins:
                bias = draft.const(f"{node.outputs[0]}/bias", tensor.values, tensor.dtype)
                node = dataclasses.replace(node, inputs=(x, weight, bias, *rest))
        draft.nodes.append(node)
    return draft.finished()
