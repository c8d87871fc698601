"""export: a TOSA graph from a JAX function."""

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
    """Makes a TOSA graph of a JAX function.

    Args:
      fn: a function of arrays, or of pytrees of them; or a module of Equinox or Flax (nnx).
      example_args: the positional arguments; arrays, or `jax.ShapeDtypeStruct`.
      target: that the graph has to be legal for, as "PRO-FP@8K"; None for all of TOSA.
      params: the first argument of `fn`, whose arrays become constants, named by their paths.
      dynamic_batch: leaves the batch open: the first dimension of the first input, and of all that
        have the same there. `bind`, or `compile(graph, batch=...)`, gives it a size.
      names: other names for inputs and outputs. By default inputs have the names of the arguments;
        one output is "output", those of a tuple are "output_0" and on, those of a dict its keys.
      check: run the graph and the function on the arguments, and compare the outputs; by default
        if the arguments are arrays.
      max_unroll: the most turns of a loop that are written one after the other; longer loops
        become WHILE_LOOP.
      hifi_layers: "custom" for CUSTOM, which `tosajax.hifi.custom.OPERATORS` run, in the place of
        layers of `tosajax.hifi`; "operators" for operators of TOSA, with the same bits.

    Returns:
      The graph. `source.rewrites` tells where results may differ from those of `fn`, and
      `source.agreement` how far they do in the run of the check.

    Raises:
      UnsupportedError: `fn` computes something that TOSA does not have.
      TosaError: the graph is not legal for the target, or fails the check.
      TypeError: an argument is of another type.
      ValueError: `names` has a name that the graph does not have, or gives one twice; or `check`
        is asked for without arrays.

    Warns:
      UserWarning: the function is in training mode: it draws random bits that depend on no
        argument, or an example depends on the others of its batch. The layers are named.

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
    found = traced(fn, example_args, params)
    has_values = checking.has_values(found.examples)
    if check and not has_values:
        raise ValueError("check needs arrays as arguments, found a jax.ShapeDtypeStruct")
    for sign in signs(found, is_batch=dynamic_batch):
        warnings.warn(sign, stacklevel=2)
    graph = _with_names(written(found, options).graph, names or {})
    validate(graph, options.target).raise_errors()
    if has_values if check is None else check:
        source = dataclasses.replace(
            graph.source, agreement=checking.agreement(graph, found, options.target)
        )
        graph = dataclasses.replace(graph, source=source)
    if not dynamic_batch:
        return graph
    return dataclasses.replace(
        _opened(fn, example_args, params, options, names or {}), source=graph.source
    )


def _opened(
    fn: Callable[..., Any],
    args: Sequence[Any],
    params: Any | None,
    options: Options,
    names: Mapping[str, str],
) -> Graph:
    """The graph of any batch, from those of two."""
    one, other = (
        _with_names(written(traced(fn, dynamic.of_batch(args, size), params), options).graph, names)
        for size in dynamic.SIZES
    )
    return dynamic.merged(one, other)


def written(found: Traced, options: Options) -> Written:
    """The graph of a traced function."""
    scope = Scope(options)
    step = Step(scope, "export", {}, (), Place(), call)
    avals = found.jaxpr.in_avals[len(found.params) :]
    inputs = [
        of_tensor(scope.input(name, step.tosa_type(aval.dtype), aval.shape))
        for name, aval in zip(found.inputs, avals, strict=True)
    ]
    results = run(scope, found.jaxpr, [*found.params, *inputs], Place(), found.constants)
    raw = fold(scope.graph(step.outputs(results)))
    graph, origins = tidied(Written(raw, scope.origins))
    names = with_room(graph, dict(zip(graph.outputs, found.outputs, strict=True)))
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
