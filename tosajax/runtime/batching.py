"""Runs many examples of a graph of one example: batched, in micro-batches, on several devices."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from tosajax.block_scaled import Value
from tosajax.graph import DYNAMIC, Graph, Tensor
from tosajax.lowering.run import Params
from tosajax.lowering.variables import State
from tosajax.ops.routes.platform import Platform
from tosajax.passes.binding import bind_formed
from tosajax.passes.one_example import one_example
from tosajax.runtime.cost import peak_bytes
from tosajax.runtime.program import Program
from tosajax.spec.target import Target
from tosajax.validation import validate_formed

Devices = Sequence[Any]  # jax.Device, which type checkers do not know

# Bytes of a micro-batch's live tensors that stay in the cache.
_CACHE_BYTES = 2**24


class Batch(NamedTuple):
    """How the examples of a batch are divided into calls of a program.

    Args:
      carries: for each input, whether it holds examples; if not, all examples share it.
      examples: the size of the batch; DYNAMIC if callers choose it; 1 for a graph that runs as a
        whole.
      at_once: examples in a call; the most in a call if `examples` is DYNAMIC.
      micro_batch: examples that run at a time; None if the graph runs as a whole.
      devices: the devices that share the examples of a call equally; empty for the default device.
    """

    carries: tuple[bool, ...]
    examples: int = 1
    at_once: int = 1
    micro_batch: int | None = None
    devices: Devices = ()

    def shapes(self, inputs: Sequence[Tensor]) -> list[tuple[int, ...] | None]:
        """The shapes of inputs that hold all examples; None for an unknown rank."""
        return [
            (self.examples, *(t.shape or ())[1:]) if carried else t.shape
            for t, carried in zip(inputs, self.carries, strict=True)
        ]


def with_batch(graph: Graph, target: Target, batch: int | None) -> tuple[Graph, int | None]:
    """The graph to run, and the number of examples if the graph is of one example.

    Args:
      graph: a graph that passed `check_form`.
      target: the target that a graph with an open batch is checked against.
      batch: the number of examples in a call, if known.

    Raises:
      TosaError: a graph with an open batch is illegal.
      ValueError: no input can carry the batch.
    """
    if batch is None:
        return graph, None
    if not graph.is_dynamic:
        if not any(map(carries_batch, graph.input_tensors)):
            shapes = ", ".join(f"{t.name}: {t}" for t in graph.input_tensors)
            raise ValueError(
                f"no input has a first dimension of 1 or -1 to carry a batch: {shapes}"
            )
        return graph, batch
    bound = bind_formed(graph, batch)
    one = one_example(graph)
    if one is None:
        return bound, None
    validate_formed(bound, target).raise_errors()
    return one, batch


def share(
    graph: Graph,
    examples: int | None,
    micro_batch: int | None = None,
    devices: Devices = (),
    *,
    in_loop: bool = False,
) -> Batch:
    """Divides a batch into calls of equal size, at most one micro-batch each.

    Args:
      graph: from `with_batch`.
      examples: the size of the batch, from `with_batch`; None for a graph that runs as a whole.
      micro_batch: the number of examples that run at a time; by default, as suits the backend.
      devices: devices that each take an equal part of one call, which loops over micro-batches.
      in_loop: whether the program of one call loops over micro-batches even without devices.

    Raises:
      ValueError: micro_batch or devices are given for a graph that runs as a whole.
    """
    if examples is None:
        if micro_batch is not None or devices:
            raise ValueError(
                f"graph {graph.name!r} runs as a whole: micro_batch and devices need `batch` and "
                "a graph of examples that do not depend on each other"
            )
        return Batch((False,) * len(graph.inputs))
    in_loop = in_loop or bool(devices)
    micro = min(examples, micro_batch or _micro_batch_of(graph, in_loop=in_loop) or examples)
    calls = 1 if in_loop else -(-examples // micro)
    carries = tuple(map(carries_batch, graph.input_tensors))
    return Batch(carries, examples, -(-examples // calls), micro, tuple(devices))


def share_open(graph: Graph, micro_batch: int | None) -> Batch:
    """`share` for an open batch, whose size callers choose."""
    carries = tuple(map(carries_batch, graph.input_tensors))
    size = micro_batch or cached_examples(graph)
    return Batch(carries, DYNAMIC, size, size)


def _micro_batch_of(graph: Graph, *, in_loop: bool) -> int | None:
    """The micro-batch that suits the backend, for calls or for a loop; None for all examples."""
    # XLA:CPU has no fast convolution of floats inside a loop.
    floats = any(t.dtype.is_float for part in graph.walk() for t in part.tensors.values())
    if jax.default_backend() != "cpu" or (in_loop and floats):
        return None
    return cached_examples(graph)


def cached_examples(graph: Graph) -> int:
    """The number of examples whose tensors fit the cache of a CPU."""
    return max(1, _CACHE_BYTES // max(1, peak_bytes(graph)))


def platform_of(batch: Batch) -> Platform:
    """The platform of a batch's devices, or of the default device."""
    return Platform(batch.devices[0].platform if batch.devices else jax.default_backend())


def of_a_call(shape: Sequence[Any], batch: Batch) -> tuple[Any, ...]:
    """The shape in one call, from the shape for all examples."""
    return (batch.at_once, *shape[1:]) if batch.at_once < batch.examples else tuple(shape)


def of_a_batch(shape: Sequence[Any], batch: Batch) -> tuple[Any, ...]:
    """The shape for all examples, from the shape in one call."""
    return (batch.examples, *shape[1:]) if batch.at_once < batch.examples else tuple(shape)


def carries_batch(tensor: Tensor) -> bool:
    """Whether the first dimension of an input or output can hold examples."""
    return bool(tensor.shape) and tensor.shape[0] == 1


def batched(program: Program, batch: Batch) -> Program:
    """The program of one call: `batch.at_once` examples, each exactly as it would run alone.

    Inputs and outputs hold these examples. An output whose first dimension is not 1 gets a new
    first dimension for them, as do state and flags. The program of a graph that runs as a whole is
    returned unchanged.
    """
    if batch.micro_batch is None:
        return program
    count, micro_batch, devices = batch.at_once, batch.micro_batch, batch.devices

    def one(params: Params, shared: list[jax.Array], own: tuple[State, list[jax.Array]]) -> Any:
        state, carried = own
        sources = {True: iter(carried), False: iter(shared)}
        return program.function(params, state, *(next(sources[c]) for c in batch.carries))

    def on_device(params: Params, shared: list[jax.Array], own: Any) -> Any:
        together = jax.vmap(lambda example: one(params, shared, example))
        return _in_parts(together, own, micro_batch)

    function = _over_devices(on_device, devices) if devices else on_device
    each = -(-count // max(1, len(devices)))

    def of_all(params: Params, state: State, *inputs: jax.Array):
        pairs = list(zip(inputs, batch.carries, strict=True))
        own = jax.tree.map(
            lambda x: x.reshape(count, 1, *x.shape[1:]), [x for x, carried in pairs if carried]
        )
        filled = _fill((state, own), each * max(1, len(devices)))
        results = function(params, [x for x, c in pairs if not c], filled)
        state, flags, outputs = jax.tree.map(lambda y: y[:count], results)
        joined = (
            jax.tree.map(lambda part: part.reshape(count, *part.shape[2:]), y)
            if carries_batch(t)
            else y
            for y, t in zip(outputs, program.outputs, strict=True)
        )
        return state, flags, tuple(joined)

    return program._replace(function=of_all)


def call_in_parts(
    function: Callable[..., Any], batch: Batch, state: Any, inputs: Sequence[Value]
) -> Any:
    """Calls a compiled program from `batched` until all examples have run.

    The loop is in Python: inside a loop of the program, XLA:CPU has no fast convolution of floats
    and runs fusions on one core. If the batch is not a multiple of a call's examples, the last call
    repeats some examples of the previous call.

    Args:
      function: (state, *inputs) -> (state, flags, outputs) for one call.
      batch: a batch of known size.
      state: the variables of all examples.
      inputs: the inputs of all examples.
    """
    count, size = batch.examples, batch.at_once
    if size == count:
        return function(state, *inputs)
    results = None
    for start in range(0, count, size):
        at = np.int32(min(start, count - size))
        part = function(*part_of(batch, state, inputs, at))
        results = _spread(part, count) if results is None else _put(results, part, at)
    return results


def part_of(
    batch: Batch, state: Any, inputs: Sequence[Any], start: int | np.int32 = 0
) -> tuple[Any, ...]:
    """The state and the inputs of the call that begins with example `start`."""
    if batch.examples in (batch.at_once, DYNAMIC):
        return state, *inputs
    own = state, [x for x, c in zip(inputs, batch.carries, strict=True) if c]
    state, carried = _taken(own, start, batch.at_once)
    taken = iter(carried)
    return state, *(next(taken) if c else x for x, c in zip(inputs, batch.carries, strict=True))


@functools.partial(jax.jit, static_argnames="size")
def _taken(tree: Any, start: int | np.int32, size: int) -> Any:
    return jax.tree.map(lambda x: lax.dynamic_slice_in_dim(x, start, size), tree)


@functools.partial(jax.jit, static_argnames="count")
def _spread(part: Any, count: int) -> Any:
    """Arrays for `count` examples, of which `part` fills the first."""

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
    """Maps a function over equal parts of a batch, at most `size` examples each."""
    count = jax.tree.leaves(batch)[0].shape[0]
    parts = -(-count // size)
    if parts == 1:
        return function(batch)
    each = -(-count // parts)
    split = jax.tree.map(lambda x: x.reshape(parts, each, *x.shape[1:]), _fill(batch, parts * each))
    results = lax.map(function, split)
    return jax.tree.map(lambda y: y.reshape(-1, *y.shape[2:])[:count], results)


def on_all(arrays: Any, devices: Devices) -> Any:
    """Copies arrays to all devices once, instead of in each call."""
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
