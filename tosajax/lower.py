"""Lowering: a graph becomes one pure function of parameters and inputs."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from tosajax import ops, spec
from tosajax.dtypes import DType
from tosajax.fixedpoint import _x64
from tosajax.graph import Graph, Node, Tensor, arguments
from tosajax.report import UnsupportedError
from tosajax.spec import Form, Kind
from tosajax.validate import validate

Params = dict[str, jax.Array]
Program = Callable[..., tuple[jax.Array, ...]]


def lower(graph: Graph) -> tuple[Program, Params]:
    """Turns a graph into `fn(params, *inputs) -> outputs`.

    Args:
      graph: legal, every dimension known.

    Returns:
      fn: pure and traceable: jit, vmap and differentiate it. Inputs and outputs stand in the
        graph's order, each in `dtype.storage` and of its exact shape.
      params: the values of every CONST, by tensor name.

    Raises:
      TosaError: the graph is illegal.
      UnsupportedError: an operator is not implemented.
    """
    validate(graph).raise_errors()
    return build(graph)


def build(graph: Graph) -> tuple[Program, Params]:
    """What `lower` does with a graph that is known to be legal."""
    nodes = [n for n in graph.ordered_nodes() if n.op not in spec.CONSTANT_OPERATORS]
    readers = Counter(name for node in nodes for name in node.inputs)
    steps = [_step(node, graph.tensors, readers) for node in nodes]
    params = {
        name: to_device(graph.tensors[name])
        for node in graph.nodes
        if node.op == "CONST"
        for name in node.outputs
    }
    names_in, names_out = graph.inputs, graph.outputs

    def fn(params: Mapping[str, jax.Array], *inputs: jax.Array) -> tuple[jax.Array, ...]:
        values = dict(params)
        values.update(zip(names_in, inputs, strict=True))
        for step in steps:
            step.run(values)
        return tuple(values[name] for name in names_out)

    return fn, params


def to_device(tensor: Tensor) -> jax.Array:
    """The values of a constant as a JAX array, int48 without narrowing."""
    assert tensor.values is not None
    if tensor.dtype is DType.INT48:
        return _x64.from_numpy(tensor.values)
    return jnp.asarray(tensor.values)


class _Step(NamedTuple):
    """One node: a kernel with its static arguments, and the names it reads and writes."""

    kernel: Callable[..., Any]
    inputs: tuple[str | tuple[str, ...], ...]
    outputs: tuple[str, ...]
    fenced: tuple[str, ...]  # outputs that are computed once, by themselves

    def run(self, values: dict[str, Any]) -> None:
        arguments = (
            [values[n] for n in name] if isinstance(name, tuple) else values[name]
            for name in self.inputs
        )
        result = self.kernel(*arguments)
        results = result if isinstance(result, tuple) else (result,)
        values.update(zip(self.outputs, results, strict=True))
        for name in self.fenced:
            values[name] = lax.optimization_barrier(values[name])


def _step(node: Node, tensors: Mapping[str, Tensor], readers: Mapping[str, int]) -> _Step:
    """Prepares a node.

    A tensor that several nodes read is fenced, or XLA would compute it again for each of them,
    with all that it comes from. A float tensor is, so that each operator rounds its own result:
    XLA would fuse a product into the sum that follows, differently for different batches.
    """
    kernel = getattr(ops, node.op.lower(), None)
    if kernel is None:
        raise UnsupportedError(f"{node.title}: tosajax does not implement {node.op} yet")
    operator = spec.OPERATORS[node.op]
    static = dict(node.attributes)
    if operator.needs_out_type:
        static["out_type"] = tensors[node.outputs[0]].dtype
    names: list[str | tuple[str, ...]] = []
    shapes: dict[int, tuple[int, ...]] = {}
    found = arguments(operator, node.inputs, Kind.INPUT)
    for position, argument in enumerate(operator.inputs):
        name = found[argument.name]
        if argument.form is Form.SHAPE:
            shapes[position] = _static_shape(node, tensors[name])
        else:
            names.append(name)
    fenced = tuple(n for n in node.outputs if readers[n] > 1 or tensors[n].dtype.is_float)
    return _Step(_with_static(kernel, shapes, static), tuple(names), node.outputs, fenced)


def _static_shape(node: Node, tensor: Tensor) -> tuple[int, ...]:
    if tensor.values is None:
        raise UnsupportedError(f"{node.title}: shape {tensor.name!r} is not constant")
    return tuple(int(v) for v in tensor.values)


def _with_static(
    kernel: Callable[..., Any], shapes: Mapping[int, tuple[int, ...]], static: Mapping[str, Any]
) -> Callable[..., Any]:
    """Fixes attributes, and shapes at their place among the positional arguments."""
    if not shapes:
        return functools.partial(kernel, **static)

    def call(*traced: Any) -> Any:
        rest = iter(traced)
        count = len(traced) + len(shapes)
        return kernel(*(shapes[i] if i in shapes else next(rest) for i in range(count)), **static)

    return call
