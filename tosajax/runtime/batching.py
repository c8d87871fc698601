"""Many examples of a graph that is written for one: side by side, in micro-batches, on devices."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from tosajax.graph import DYNAMIC, Graph, Tensor
from tosajax.lowering.run import Params, Program
from tosajax.lowering.variables import State

Devices = Sequence[Any]  # of jax.Device, which type checkers do not know


class Parts(NamedTuple):
    """How calls share the examples of a batch."""

    carries: tuple[bool, ...]  # by input, whether it holds examples; all share the others
    examples: int = 1  # or DYNAMIC
    at_once: int = 1  # examples of a call; at most so many, where `examples` are not known


def in_calls(graph: Graph, examples: int | None, micro_batch: int | None) -> Parts:
    """Calls of equal size, of at most a micro-batch each."""
    carries = tuple(map(carries_batch, graph.input_tensors))
    if examples is None:
        return Parts(carries)
    calls = -(-examples // (micro_batch or examples))
    return Parts(carries, examples, -(-examples // calls))


def of_a_call(shape: Sequence[Any], parts: Parts) -> tuple[Any, ...]:
    """The shape in one call of an array that holds all examples."""
    return (parts.at_once, *shape[1:]) if parts.at_once < parts.examples else tuple(shape)


def of_a_batch(shape: Sequence[Any], parts: Parts) -> tuple[Any, ...]:
    """The shape of what all calls give together, where one gives this."""
    return (parts.examples, *shape[1:]) if parts.at_once < parts.examples else tuple(shape)


def carries_batch(tensor: Tensor) -> bool:
    """Whether the first dimension of an input or output can hold examples."""
    return bool(tensor.shape) and tensor.shape[0] == 1


def side_by_side(
    program: Program,
    graph: Graph,
    count: int,
    micro_batch: int,
    devices: Devices = (),
    shared: Collection[str] = (),
) -> Program:
    """Runs `count` examples of a graph of fixed shapes, each exactly as it would run alone.

    Args:
      program: of the graph.
      graph: its inputs whose first dimension is 1 hold the examples there, others are shared.
      count: examples of a call.
      micro_batch: examples that run at a time; the micro-batches of a device run one after
        another.
      devices: share the examples equally among them; none for the default device.
      shared: names of inputs that all examples share, whatever their first dimension.

    Returns:
      A program whose inputs and outputs hold `count` examples; outputs have a new first dimension
      for them where theirs is not 1. State and flags also have one.
    """
    carries = [carries_batch(t) and t.name not in shared for t in graph.input_tensors]

    def one(params: Params, shared: list[jax.Array], own: tuple[State, list[jax.Array]]) -> Any:
        state, carried = own
        sources = {True: iter(carried), False: iter(shared)}
        return program(params, state, *(next(sources[c]) for c in carries))

    def on_device(params: Params, shared: list[jax.Array], own: Any) -> Any:
        together = jax.vmap(lambda example: one(params, shared, example))
        return _in_parts(together, own, micro_batch)

    function = _over_devices(on_device, devices) if devices else on_device
    each = -(-count // max(1, len(devices)))

    def batched(params: Params, state: State, *inputs: jax.Array):
        own = [x.reshape(count, 1, *x.shape[1:]) for x, c in zip(inputs, carries, strict=True) if c]
        shared = [x for x, c in zip(inputs, carries, strict=True) if not c]
        filled = _fill((state, own), each * max(1, len(devices)))
        results = function(params, shared, filled)
        state, flags, outputs = jax.tree.map(lambda y: y[:count], results)
        joined = (
            y.reshape(count, *y.shape[2:]) if carries_batch(t) else y
            for y, t in zip(outputs, graph.output_tensors, strict=True)
        )
        return state, flags, tuple(joined)

    return batched


def call_in_parts(
    function: Callable[..., Any], parts: Parts, state: Any, inputs: Sequence[jax.Array]
) -> Any:
    """Calls a compiled program of `side_by_side`, which takes the examples of a call.

    Inside a loop of the program XLA:CPU would lose its fast convolution of floats and run fusions
    on one core. The last examples of a part are also the first of the next where their number is
    not a multiple of it.

    Args:
      function: (state, *inputs) -> (state, flags, outputs).
      parts: of known examples.
      state: of all examples, as `function` takes it.
      inputs: the same.
    """
    count, size = parts.examples, parts.at_once
    if size == count:
        return function(state, *inputs)
    results = None
    for start in range(0, count, size):
        at = np.int32(min(start, count - size))
        part = function(*part_of(parts, state, inputs, at))
        results = _spread(part, count) if results is None else _put(results, part, at)
    return results


def part_of(
    parts: Parts, state: Any, inputs: Sequence[Any], start: int | np.int32 = 0
) -> tuple[Any, ...]:
    """State and inputs of one call, whose examples start there."""
    if parts.examples in (parts.at_once, DYNAMIC):
        return state, *inputs
    own = state, [x for x, c in zip(inputs, parts.carries, strict=True) if c]
    state, carried = _taken(own, start, parts.at_once)
    taken = iter(carried)
    return state, *(next(taken) if c else x for x, c in zip(inputs, parts.carries, strict=True))


@functools.partial(jax.jit, static_argnames="size")
def _taken(tree: Any, start: int | np.int32, size: int) -> Any:
    return jax.tree.map(lambda x: lax.dynamic_slice_in_dim(x, start, size), tree)


@functools.partial(jax.jit, static_argnames="count")
def _spread(part: Any, count: int) -> Any:
    """Room for `count` examples, that holds the first ones already."""

    def spread(x: jax.Array) -> jax.Array:
        copies = -(-count // x.shape[0])
        repeated = lax.broadcast(x, (copies,)).reshape(copies * x.shape[0], *x.shape[1:])
        return lax.slice_in_dim(repeated, 0, count)

    return jax.tree.map(spread, part)


@functools.partial(jax.jit, donate_argnames="room")
def _put(room: Any, part: Any, start: jax.Array) -> Any:
    def put(x: jax.Array, y: jax.Array) -> jax.Array:
        return lax.dynamic_update_slice_in_dim(x, y, start, 0)

    return jax.tree.map(put, room, part)


def _in_parts(function: Callable[[Any], Any], batch: Any, size: int) -> Any:
    """Maps over parts of at most `size` examples, equal ones."""
    count = jax.tree.leaves(batch)[0].shape[0]
    parts = -(-count // size)
    if parts == 1:
        return function(batch)
    each = -(-count // parts)
    split = jax.tree.map(lambda x: x.reshape(parts, each, *x.shape[1:]), _fill(batch, parts * each))
    results = lax.map(function, split)
    return jax.tree.map(lambda y: y.reshape(-1, *y.shape[2:])[:count], results)


def on_all(arrays: Any, devices: Devices) -> Any:
    """Arrays that each of these devices holds, so that no call has to copy them there."""
    return jax.device_put(arrays, NamedSharding(_mesh(devices), PartitionSpec()))


def _mesh(devices: Devices) -> Mesh:
    return Mesh(np.asarray(devices), ("examples",))


def _over_devices(function: Callable[..., Any], devices: Devices) -> Callable[..., Any]:
    examples, everything = PartitionSpec("examples"), PartitionSpec()
    return jax.shard_map(
        function,
        mesh=_mesh(devices),
        in_specs=(everything, everything, examples),
        out_specs=examples,
        check_vma=False,
    )


def _fill(batch: Any, count: int) -> Any:
    """Repeats the last example until there are `count`."""

    def fill(x: jax.Array) -> jax.Array:
        missing = count - x.shape[0]
        if not missing:
            return x
        return jnp.concatenate([x, jnp.broadcast_to(x[-1:], (missing, *x.shape[1:]))])

    return jax.tree.map(fill, batch)
