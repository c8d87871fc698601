"""Exports a JAX function as a TOSA graph."""

from __future__ import annotations

import dataclasses
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, get_args

import jax

from tosajax.arguments.types import check_type, count
from tosajax.from_jax import checking, dynamic
from tosajax.from_jax.names import renamed, with_room
from tosajax.from_jax.places import Place
from tosajax.from_jax.scope import HifiLayers, Options, Scope
from tosajax.from_jax.step import Step
from tosajax.from_jax.tidy import tidied
from tosajax.from_jax.tracing import Traced, traced
from tosajax.from_jax.train_mode import signs
from tosajax.from_jax.values import of_tensor
from tosajax.from_jax.walk import call, run
from tosajax.from_jax.written import Written
from tosajax.graph import Graph, Source
from tosajax.passes.folding import fold
from tosajax.spec.target import Target, target_of
from tosajax.validation import validate


def export(
    fn: Callable[..., Any],
    *example_args: Any,
    target: Target | str | None = None,
    params: Any | None = None,
    dynamic_batch: bool = False,
    names: Mapping[str, str] | None = None,
    check: bool | None = None,
    max_unroll: int = 64,
    hifi_layers: HifiLayers = "custom",
) -> Graph:
    """Exports a JAX function as a TOSA graph.

    Args:
      fn: a function of arrays or of pytrees of arrays; or a module of Equinox or Flax (nnx).
      example_args: the positional arguments; arrays, or `jax.ShapeDtypeStruct`.
      target: the target that the graph has to be legal for, such as "PRO-FP@8K"; None for all of
        TOSA.
      params: the first argument of `fn`, whose arrays become constants, named by their paths.
      dynamic_batch: whether to leave the batch open: the first dimension of the first input, and of
        all inputs with the same first dimension. `bind`, or `compile(graph, batch=...)`, sets it.
      names: other names for inputs and outputs, by their default names. By default inputs have the
        names of the arguments; a single output is "output", the outputs of a tuple are "output_0",
        "output_1" and so on, and the outputs of a dict are its keys.
      check: whether to run the graph and the function on the arguments, and compare the outputs; by
        default if the arguments are arrays.
      max_unroll: the most iterations of a loop to unroll; longer loops become WHILE_LOOP.
      hifi_layers: the form of layers of `tosajax.hifi`: "custom" for CUSTOM, which
        `tosajax.hifi.custom.OPERATORS` implements; "operators" for TOSA operators with the same
        bits.

    Returns:
      The graph. `source.rewrites` lists where results may differ from the function's, and
      `source.agreement` holds the differences that the check measured.

    Raises:
      UnsupportedError: `fn` computes something that TOSA does not have.
      TosaError: the graph is not legal for the target, or fails the check.
      TypeError: an argument has the wrong type.
      ValueError: `names` has a key that is not an input or output, or makes two names equal; or
        `check` is True without arrays.

    Warns:
      UserWarning: the function is in training mode: it draws random bits that depend on no
        argument, or an example depends on the rest of its batch. The warning names the layers.

    Example:
      >>> import jax.numpy as jnp
      >>> import tosajax
      >>> graph = tosajax.export(lambda x: jnp.maximum(x, 0), jnp.float32([-1, 2]))
      >>> graph
      Graph('main', (x: FP32[2]) -> (output: FP32[2]), 1 node)
      >>> [node.op for node in graph.nodes]
      ['CLAMP']
      >>> print(graph.source.agreement[0])
      output: equal
    """
    check_type("names", names, Mapping | None, "a dict from default names to others")
    check_type("dynamic_batch", dynamic_batch, bool, "True or False")
    if hifi_layers not in get_args(HifiLayers):
        wanted = " or ".join(map(repr, get_args(HifiLayers)))
        raise ValueError(f"hifi_layers is {hifi_layers!r}, expected {wanted}")
    options = Options(target_of(target), count("max_unroll", max_unroll), hifi_layers)
    tracing = traced(fn, example_args, params)
    has_values = checking.has_values(tracing.examples)
    if check and not has_values:
        raise ValueError("check needs arrays as arguments, found a jax.ShapeDtypeStruct")
    for sign in signs(tracing, is_batch=dynamic_batch):
        warnings.warn(sign, stacklevel=2)
    graph = _with_names(written(tracing, options).graph, names or {})
    validate(graph, options.target).raise_errors()
    if has_values if check is None else check:
        source = dataclasses.replace(
            graph.source, agreement=checking.agreement(graph, tracing, options.target)
        )
        graph = dataclasses.replace(graph, source=source)
    if not dynamic_batch:
        return graph
    return dataclasses.replace(
        _with_open_batch(fn, example_args, params, options, names or {}), source=graph.source
    )


def _with_open_batch(
    fn: Callable[..., Any],
    args: Sequence[Any],
    params: Any | None,
    options: Options,
    names: Mapping[str, str],
) -> Graph:
    """The graph with an open batch, merged from the graphs for two batch sizes."""
    first, second = (
        _with_names(written(traced(fn, dynamic.of_batch(args, size), params), options).graph, names)
        for size in dynamic.SIZES
    )
    return dynamic.merged(first, second)


def written(tracing: Traced, options: Options) -> Written:
    """Exports a traced function: writes, folds and tidies its graph."""
    scope = Scope(options)
    step = Step(scope, "export", {}, (), Place(), call)
    avals = tracing.jaxpr.in_avals[len(tracing.params) :]
    inputs = [
        of_tensor(scope.input(name, step.tosa_type(aval.dtype), aval.shape))
        for name, aval in zip(tracing.inputs, avals, strict=True)
    ]
    results = run(scope, tracing.jaxpr, [*tracing.params, *inputs], Place(), tracing.constants)
    raw = fold(scope.graph(step.outputs(results)))
    graph, origins = tidied(Written(raw, scope.origins))
    names = with_room(graph, dict(zip(graph.outputs, tracing.outputs, strict=True)))
    source = Source("JAX", jax.__version__, "tosajax", tuple(scope.notes))
    graph = dataclasses.replace(renamed(graph, names), source=source)
    return Written(graph, {names.get(name, name): origin for name, origin in origins.items()})


def _with_names(graph: Graph, names: Mapping[str, str]) -> Graph:
    """The graph with the user's names for inputs and outputs."""
    ends = (*graph.inputs, *graph.outputs)
    for name in names:
        if name not in ends:
            raise ValueError(f"names has {name!r}, expected some of {', '.join(ends)}")
    wanted = [names.get(name, name) for name in ends]
    for name, times in Counter(wanted).items():
        if times > 1:
            raise ValueError(f"names makes {times} inputs or outputs {name!r}, expected one")
    return renamed(graph, with_room(graph, names))
