"""Writes a jaxpr as nodes: evaluates constants, inlines calls, applies rules to primitives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.extend import core

from tosajax.from_jax.evaluation import evaluated, literal
from tosajax.from_jax.origins import origin_of
from tosajax.from_jax.places import Place, place_of
from tosajax.from_jax.rules import CALLS, ELEMENTWISE, HINTS, MOVES, RULES
from tosajax.from_jax.scope import Scope
from tosajax.from_jax.step import Aval, Function, Step
from tosajax.from_jax.values import Value, known
from tosajax.ops.recording import recording


def run(
    scope: Scope,
    jaxpr: core.ClosedJaxpr,
    args: Sequence[Value],
    place: Place,
    constants: Sequence[Value] | None = None,
) -> list[Value]:
    """Writes a closed jaxpr to a scope and returns its results.

    Args:
      scope: the graph that nodes are added to.
      jaxpr: the jaxpr.
      args: its arguments.
      place: the place of the call, around the places of the equations.
      constants: the jaxpr's constants with their origins; by default without origins.
    """
    env: dict[Any, Value] = dict(zip(jaxpr.jaxpr.invars, args, strict=True))
    constants = [known(array) for array in jaxpr.consts] if constants is None else constants
    env.update(zip(jaxpr.jaxpr.constvars, constants, strict=True))
    last = _last_reads(jaxpr.jaxpr)

    def read(atom: Any) -> Value:
        return known(literal(atom)) if _is_literal(atom) else env[atom]

    for at, eqn in enumerate(jaxpr.jaxpr.eqns):
        results = _written(scope, eqn, [read(atom) for atom in eqn.invars], place)
        env.update(zip(eqn.outvars, results, strict=True))
        for var in last.get(at, ()):  # Frees memory of constants that are no longer read.
            del env[var]
    return [read(atom) for atom in jaxpr.jaxpr.outvars]


def _is_literal(atom: Any) -> bool:
    return isinstance(atom, core.Literal)


def _last_reads(jaxpr: Any) -> dict[int, list[Any]]:
    """The variables that each equation, by index, is the last one to read; outputs excluded."""
    last = {v: at for at, eqn in enumerate(jaxpr.eqns) for v in eqn.invars if not _is_literal(v)}
    for var in jaxpr.outvars:
        if not _is_literal(var):
            last.pop(var, None)
    variables: dict[int, list[Any]] = {}
    for var, at in last.items():
        variables.setdefault(at, []).append(var)
    return variables


def _written(scope: Scope, eqn: Any, inputs: list[Value], outer: Place) -> list[Value]:
    """Writes one equation and returns its results."""
    name = eqn.primitive.name
    if eqn.outvars and all(0 in var.aval.shape for var in eqn.outvars):  # TOSA has no empty tensors
        return [known(np.zeros(var.aval.shape, var.aval.dtype)) for var in eqn.outvars]
    is_moved = name in MOVES and not any(_is_key(value) for value in inputs)
    is_written = is_moved or name in CALLS or eqn.effects or name == "rng_uniform"  # random: impure
    if not is_written and all(value.is_known for value in inputs):
        return _computed(eqn, inputs)
    place = _with_layer_of(place_of(eqn).inside(outer), inputs)
    outs = tuple(Aval(tuple(v.aval.shape), v.aval.dtype) for v in eqn.outvars)
    step = Step(scope, name, eqn.params, outs, place, call)
    if name not in RULES:
        hint = HINTS.get(name, "compute it outside of the function, or of constants alone")
        raise step.unsupported("a primitive without a rule", "one that TOSA can express", hint)
    if name not in _OF_PLACES and any(map(_is_place, inputs, eqn.invars)):
        step.tosa_type(np.uint32)  # Raises UnsupportedError.
    result = RULES[name](step, *inputs)
    results = [result] if isinstance(result, Value) else list(result)
    for value, aval in zip(results, outs, strict=True):
        if value.shape != aval.shape or not (value.dtype == aval.dtype or _is_place(value, aval)):
            actual, wanted = (f"{v.dtype}{list(v.shape)}" for v in (value, aval))
            raise AssertionError(f"{step.title}: the rule made {actual}, expected {wanted}")
    return results


# The primitives that accept indices of sorted elements, which are uint32 in JAX and int32 here.
_OF_PLACES = {*MOVES, *CALLS, "gather", "scatter", "scatter-add"}


def _is_place(value: Value, wanted: Any) -> bool:
    dtype = getattr(wanted, "aval", wanted).dtype
    return dtype == np.uint32 and value.dtype == np.int32


def _is_key(value: Value) -> bool:
    """Whether a value is a random key of JAX, a type that NumPy does not have."""
    return jax.numpy.issubdtype(value.dtype, jax.dtypes.extended)


def _computed(eqn: Any, inputs: Sequence[Value]) -> list[Value]:
    """Evaluates an equation on constants with JAX.

    Elementwise results are held with the broadcast axes of their operands.
    """
    is_held = eqn.primitive.name in ELEMENTWISE
    shape = np.broadcast_shapes(*(v.held_shape for v in inputs)) if is_held else None
    arrays = [_array(value, shape) for value in inputs]
    results = evaluated(eqn, arrays)
    origin = origin_of(eqn.primitive.name, inputs)
    shapes = (var.aval.shape for var in eqn.outvars)
    return [Value(s, y.dtype, y, origin) for s, y in zip(shapes, results, strict=True)]


def _array(value: Value, shape: tuple[int, ...] | None) -> Any:
    """The elements of a constant, broadcast to a shape, by default its own."""
    shape = value.shape if shape is None else shape
    if value.rank < len(shape) or value.held_shape == shape:  # A scalar stays a scalar.
        return value.held
    return np.broadcast_to(np.asarray(value.held), shape)


def _with_layer_of(place: Place, inputs: Sequence[Value]) -> Place:
    """The place; if it has no layers, with the layer of the first parameter among the inputs.

    Frameworks without named scopes still name their parameters.
    """
    if place.layers:
        return place
    paths = (value.origin.path for value in inputs if value.origin is not None)
    return Place(next(paths, "").rpartition("/")[0], place.line)


def call(step: Step, function: Function, values: Sequence[Value]) -> list[Value]:
    """Writes a function or a closed jaxpr in place of a step and returns the results."""
    jaxpr = function if isinstance(function, core.ClosedJaxpr) else _traced(function, values)
    return run(step.scope, jaxpr, values, step.place)


def _traced(function: Callable[..., Any], values: Sequence[Value]) -> Any:
    avals = [jax.ShapeDtypeStruct(value.shape, value.dtype) for value in values]
    with recording():
        return jax.make_jaxpr(function)(*avals)
