"""Evaluates many settings of one program on a data set, by one of four strategies.

- "loop": one setting after another for each batch in memory; the fastest on XLA:CPU.
- "map": `lax.map` over settings, inside one program.
- "vmap": settings in parallel, for accelerators that one batch does not fill.
- "sharded": settings and examples over a mesh of devices, of one host or several.

All strategies give the same numbers, as sums of metrics are exact.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from tosajax.runtime.compiled import compile_apart, compiler_options, trace
from tosajax.sweep import accumulation
from tosajax.sweep.data import Batch, Data
from tosajax.sweep.metrics import Examples, Metric, check_classes
from tosajax.sweep.subject import Arrays, Subject, Variant

Strategy = Literal["loop", "map", "vmap", "sharded"]
STRATEGIES: tuple[Strategy, ...] = ("loop", "map", "vmap", "sharded")
Reference = Callable[..., tuple[jax.Array, ...]]


class ReadError(Exception):
    """The data cannot be read."""

    def __init__(self, reason: Exception):
        super().__init__(str(reason))
        self.reason = reason

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.reason,), self.__dict__


@dataclasses.dataclass(frozen=True, eq=False)
class Evaluator:
    """A program that measures settings on examples; it is compiled at its first use.

    Args:
      subject: the subject that runs.
      variant: the variant of all settings.
      fixed: arrays that all settings share.
      metrics: the metrics to measure.
      reference: a function of the data set's inputs that returns outputs to compare with; None
        without a reference, or if its outputs are stored.
      batch: examples at a time.
      strategy: one of STRATEGIES.
      chunk: settings at a time; any number for "loop".
      mesh: the mesh for "sharded", with axes "settings" and "data".
      compiling: the context in which the program is compiled.
    """

    subject: Subject
    variant: Variant
    fixed: Arrays
    metrics: tuple[Metric, ...]
    reference: Reference | None
    batch: int
    strategy: Strategy
    chunk: int
    mesh: Mesh | None = None
    compiling: Callable[[], AbstractContextManager[Any]] = contextlib.nullcontext
    # Programs by the shapes of inputs and examples.
    _steps: dict[str, Callable[..., Any]] = dataclasses.field(
        default_factory=dict, init=False, repr=False
    )

    def run(
        self, settings: Sequence[Arrays], data: Data, stored: Sequence[np.ndarray] = ()
    ) -> tuple[list[dict[str, float]], int]:
        """The metrics of at most `chunk` settings, and the number of examples.

        Args:
          settings: the arrays of each setting that are not fixed.
          data: the examples.
          stored: the reference outputs, with all examples on the first axis.

        Raises:
          ReadError: the data cannot be read.
        """
        varying, state, shapes, count = self._stacked(settings), None, None, 0
        for batch in _read(data.batches(self.batch, stored)):
            inputs, examples = self._placed(batch)
            if state is None:
                shapes = self._shapes(settings[0], inputs, examples)
                state = self._start(settings, shapes)
            self._check_labels(shapes, batch, data, count)
            step = self._compiled(varying, state, inputs, examples)
            state = step(varying, state, inputs, examples)
            count += batch.count
        if state is None:
            raise ValueError("the data set has no examples")
        rows = self._rows(jax.device_get(_on_host(state, self.mesh)), len(settings))
        return [accumulation.finish(self.metrics, row, count) for row in rows], count

    @property
    def compilations(self) -> int:
        return len(self._steps)

    def _placed(self, batch: Batch) -> tuple[Any, Any]:
        """The inputs, and (labels, reference, mask of examples that count), on the devices."""
        inputs = self.subject.accept(batch.inputs, self.batch)
        reference = batch.stored
        if self.reference is not None:
            reference = tuple(self.reference(*batch.inputs))
        labels = None if batch.labels is None else jnp.asarray(batch.labels)
        counts = np.arange(self.batch) < batch.count
        placed = inputs, (labels, reference, counts)
        if self.mesh is None:
            return jax.tree.map(jnp.asarray, placed)
        return jax.tree.map(
            functools.partial(_distributed, self.mesh, PartitionSpec("data")), placed
        )

    def _stacked(self, settings: Sequence[Arrays]) -> Any:
        """The arrays of settings: a list for "loop", else stacked arrays with `chunk` rows."""
        if self.strategy == "loop":
            return [jax.tree.map(jnp.asarray, s) for s in settings]
        filled = [*settings, *(settings[-1],) * (self.chunk - len(settings))]
        stacked = jax.tree.map(lambda *xs: np.stack([np.asarray(x) for x in xs]), *filled)
        if self.mesh is None:
            return jax.tree.map(jnp.asarray, stacked)
        place = functools.partial(_distributed, self.mesh, PartitionSpec("settings"))
        return jax.tree.map(place, stacked)

    def _start(self, settings: Sequence[Arrays], shapes: Examples) -> Any:
        initial = accumulation.start(self.metrics, shapes)
        if self.strategy == "loop":
            return [jax.tree.map(jnp.copy, initial) for _ in settings]
        many = jax.tree.map(lambda x: np.repeat(np.asarray(x)[None], self.chunk, axis=0), initial)
        if self.mesh is None:
            return jax.tree.map(jnp.asarray, many)
        return jax.tree.map(
            functools.partial(_distributed, self.mesh, PartitionSpec("settings")), many
        )

    def _check_labels(self, shapes: Any, batch: Batch, data: Data, start: int) -> None:
        """Checks all labels at the first batch if they are known, else the labels of each batch."""
        if batch.labels is None or (start and data.labels is not None):
            return
        labels = batch.labels[: batch.count] if data.labels is None else data.labels
        try:
            check_classes(self.metrics, shapes, labels, start)
        except ValueError as error:
            raise ReadError(error) from error

    def _shapes(self, setting: Arrays, inputs: Any, examples: Any) -> Examples:
        """The types and shapes of examples on a device."""

        def part(x: Any) -> jax.ShapeDtypeStruct:
            return jax.ShapeDtypeStruct((self._share, *x.shape[1:]), x.dtype)

        inputs, (labels, reference, _) = jax.tree.map(part, (inputs, examples))
        outputs = jax.eval_shape(self._program, setting, *inputs)
        return Examples(tuple(outputs), labels, reference)

    def _compiled(self, varying: Any, state: Any, inputs: Any, examples: Any) -> Callable[..., Any]:
        """The compiled function (varying, state, inputs, examples) -> state."""
        key = str(jax.tree.map(_shape, (inputs, examples)))
        if key not in self._steps:
            self._steps[key] = self._compile(varying, state, inputs, examples)
        return self._steps[key]

    def _compile(self, varying: Any, state: Any, inputs: Any, examples: Any) -> Callable[..., Any]:
        if self.strategy == "loop":
            step = self._jitted(self._step, varying[0], state[0], inputs, examples)

            def each(varying: Any, state: Any, inputs: Any, examples: Any) -> Any:
                states = [step(v, s, inputs, examples) for v, s in zip(varying, state, strict=True)]
                # Without it, batches pile up on the device.
                return jax.block_until_ready(states)

            return each
        many = {"map": mapped, "vmap": _vmapped, "sharded": self._sharded}[self.strategy]
        return self._jitted(many(self._step), varying, state, inputs, examples)

    def _jitted(self, function: Callable[..., Any], *arguments: Any) -> Callable[..., Any]:
        run, constants = trace(lambda _, *operands: function(*operands), {}, *arguments)
        platform = (self.mesh.devices.flat[0] if self.mesh else jax.devices()[0]).platform
        if self.mesh is not None:
            place = functools.partial(_distributed, self.mesh, PartitionSpec())
            constants = [place(c) for c in constants]
        jitted = jax.jit(run, donate_argnums=2, compiler_options=compiler_options(platform))
        lowered = jitted.lower(constants, *arguments)
        # Compiled ahead: another shape is an error, not another compilation.
        with self.compiling():
            return functools.partial(compile_apart(lowered), constants)

    def _step(self, varying: Arrays, state: Any, inputs: Any, examples: Any) -> Any:
        """Adds the examples of a batch to the state of one setting."""
        labels, reference, counts = examples
        outputs = self._program(varying, *inputs)
        # Without the barrier XLA fuses sums of the program with sums of metrics.
        outputs = lax.optimization_barrier(tuple(outputs))
        batch = Examples(outputs, labels, reference)
        return accumulation.update(self.metrics, state, batch, counts)

    def _sharded(self, step: Callable[..., Any]) -> Callable[..., Any]:
        assert self.mesh is not None

        def part(varying: Any, state: Any, inputs: Any, examples: Any) -> Any:
            nothing = jax.tree.map(jnp.zeros_like, state)
            states = mapped(step)(varying, nothing, inputs, examples)
            return jax.vmap(functools.partial(accumulation.join, self.metrics))(
                state, jax.tree.map(_over_data, states)
            )

        settings, data = PartitionSpec("settings"), PartitionSpec("data")
        return jax.shard_map(
            part,
            mesh=self.mesh,
            in_specs=(settings, settings, data, data),
            out_specs=settings,
            check_vma=False,
        )

    @functools.cached_property
    def _program(self) -> Callable[..., Any]:
        with jax.ensure_compile_time_eval():
            return self.subject.program(self.variant, self.fixed, self._share)

    @property
    def _share(self) -> int:
        """The number of examples of a batch on each device."""
        return self.batch if self.mesh is None else self.batch // self.mesh.shape["data"]

    def _rows(self, state: Any, count: int) -> list[Any]:
        if self.strategy == "loop":
            return state
        return [jax.tree.map(lambda x, i=i: x[i], state) for i in range(count)]


def _read(batches: Iterator[Batch]) -> Iterator[Batch]:
    try:
        yield from batches
    except Exception as error:
        raise ReadError(error) from error


def mesh_of(devices: Sequence[Any], settings: int) -> Mesh:
    """A mesh of settings and data, with as many devices as possible on settings: no sums there."""
    count = len(devices)
    rows = max(n for n in range(1, count + 1) if count % n == 0 and n <= max(settings, 1))
    return Mesh(np.asarray(devices).reshape(rows, count // rows), ("settings", "data"))


def mapped(step: Callable[..., Any]) -> Callable[..., Any]:
    """The step of one setting for several, in a loop; a single one takes none."""

    def many(varying: Any, state: Any, inputs: Any, examples: Any) -> Any:
        if jax.tree.leaves(state)[0].shape[0] == 1:
            first = jax.tree.map(lambda x: x[0], (varying, state))
            return jax.tree.map(lambda x: x[None], step(*first, inputs, examples))
        return lax.map(lambda own: step(*own, inputs, examples), (varying, state))

    return many


def _vmapped(step: Callable[..., Any]) -> Callable[..., Any]:
    return jax.vmap(step, (0, 0, None, None))


def _over_data(x: jax.Array) -> jax.Array:
    """Reduces the values of a batch's shards: adds totals, which have axes; else the greatest."""
    return lax.psum(x, "data") if x.ndim > 1 else lax.pmax(x, "data")


def _distributed(mesh: Mesh, spec: PartitionSpec, x: Any) -> jax.Array:
    """A global array: each device takes its part of an array that every process holds."""
    host = np.asarray(x)
    return jax.make_array_from_callback(host.shape, NamedSharding(mesh, spec), lambda at: host[at])


def _on_host(state: Any, mesh: Mesh | None) -> Any:
    """The whole state on this host."""

    def whole(x: jax.Array) -> Any:
        if mesh is None or x.is_fully_addressable:
            return x
        sharding = NamedSharding(mesh, PartitionSpec())
        return jax.jit(lambda y: y, out_shardings=sharding)(x)

    return jax.tree.map(whole, state)


def _shape(x: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(x.shape, x.dtype)
