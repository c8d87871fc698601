"""Many examples of a graph that is written for one: side by side, in micro-batches, on devices."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from tosajax.graph import Graph, Tensor
from tosajax.lower import Params, Program
from tosajax.variables import State

Devices = Sequence[Any]  # of jax.Device, which type checkers do not know


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
      for them where theirs is not 1. State and flags have one, too.
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
    function: Callable[..., Any],
    graph: Graph,
    size: int,
    count: int,
    state: State,
    inputs: Sequence[jax.Array],
) -> Any:
    """Calls a compiled program of `side_by_side` for `size` of `count` examples at a time.

    Unlike a loop within the program, this leaves XLA:CPU all its ways to be quick: in a loop it has
    no fast convolution of floats, and a core alone for what it fuses. The last examples of a part
    are also the first of the next where `count` is no multiple of `size`.

    Args:
      function: (state, *inputs) -> (state, flags, outputs), of `size` examples.
      graph: that it runs.
      size: examples of a call, at most `count`.
      count: examples of state and inputs.
      state: of all of them.
      inputs: likewise.
    """
    if size == count:
        return function(state, *inputs)
    carries = [carries_batch(t) for t in graph.input_tensors]
    own = state, [x for x, c in zip(inputs, carries, strict=True) if c]
    shared = [x for x, c in zip(inputs, carries, strict=True) if not c]
    results = None
    for start in range(0, count, size):
        at = np.int32(min(start, count - size))
        part_state, carried = _taken(own, at, size)
        sources = {True: iter(carried), False: iter(shared)}
        part = function(part_state, *(next(sources[c]) for c in carries))
        results = _spread(part, count) if results is None else _put(results, part, at)
    return results


@functools.partial(jax.jit, static_argnames="size")
def _taken(tree: Any, start: jax.Array, size: int) -> Any:
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
