"""Executable: a graph compiled by XLA, called with arrays."""

from __future__ import annotations

import functools
import os
from collections.abc import MutableMapping, Sequence
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np

from tosajax import html
from tosajax.arguments.types import check_type, count, shown
from tosajax.dtypes import DType
from tosajax.graph import DYNAMIC, Graph, Tensor
from tosajax.lowering.build import build, to_device
from tosajax.lowering.run import CustomOps, Params, Program
from tosajax.lowering.variables import State, Variable, initial_state
from tosajax.ops._platform import ANY, Platform, at_hand
from tosajax.passes.binding import bind_formed
from tosajax.passes.folding import fold
from tosajax.passes.one_example import one_example
from tosajax.report import Report, UnsupportedError
from tosajax.runtime import saved
from tosajax.runtime.batching import (
    Devices,
    Parts,
    call_in_parts,
    carries_batch,
    in_calls,
    on_all,
    part_of,
    side_by_side,
)
from tosajax.runtime.compiled import compiler_options, persistent_cache, trace
from tosajax.runtime.cost import Cost, Explanation, cost, peak_bytes
from tosajax.runtime.inputs import accept
from tosajax.spec.target import Target, target_of
from tosajax.validation import check_form, validate_formed

# Tensors of a micro-batch that are alive at a time and stay in the cache.
_CACHE_BYTES = 2**24

Shapes = tuple[tuple[int, ...] | None, ...]  # of inputs; None where the rank is not known


class Executable:
    """A compiled graph: `executable(*inputs) -> tuple`, in the order of the graph.

    Inputs are NumPy or JAX arrays in `dtype.storage` (int4 in int8, int48 in int64); outputs are
    JAX arrays. XLA compiles at the first call of each set of input shapes; a graph of open
    dimensions is also validated then. int48 outputs are
    int64 arrays: arithmetic on them in `jax.numpy` narrows to int32 unless the user enables x64,
    so take them to NumPy first. The graph's variables live in `state`, and each call leaves there
    what it wrote.
    """

    def __init__(
        self,
        graph: Graph,
        target: Target | str | None = None,
        batch: int | None = None,
        *,
        micro_batch: int | None = None,
        devices: Devices = (),
        state: MutableMapping[str, Variable] | None = None,
        custom_ops: CustomOps | None = None,
        report_unpredictable: bool = False,
        cache_dir: str | os.PathLike[str] | None = None,
        onednn: bool = True,
    ):
        check_type("graph", graph, Graph, "a Graph, as from tosajax.load")
        batch = None if batch is None else count("batch", batch)
        micro_batch = None if micro_batch is None else count("micro_batch", micro_batch)
        _check_devices(devices)
        if state is not None:
            check_type("state", state, MutableMapping, "a dict of variables by name")
        if cache_dir is not None:
            check_type("cache_dir", cache_dir, (str, os.PathLike), "the path of a folder")
        check_type("onednn", onednn, bool, "True or False")
        self.target = target_of(target)
        check_form(graph)
        if batch is not None:
            _check_carries(graph)
        self.graph, self.examples = with_batch(graph, self.target, batch)
        self.devices = tuple(devices)
        if self.examples is None and (micro_batch is not None or devices):
            raise ValueError(
                f"graph {graph.name!r} runs as a whole: micro_batch and devices need `batch` and "
                "a graph of examples that do not depend on each other"
            )
        self.micro_batch = self.examples and micro_batch_of(
            self.graph, self.examples, micro_batch, in_loop=bool(devices)
        )
        self._wanted_micro_batch = micro_batch
        # A program of several devices loops over the micro-batches of each by itself.
        of_a_call = self.examples if devices else self.micro_batch
        self._parts = in_calls(self.graph, self.examples, of_a_call)
        self.state: MutableMapping[str, Variable] = {} if state is None else state
        self._custom_ops, self._reports = custom_ops, report_unpredictable
        self._cache_dir = cache_dir
        # XLA cannot keep a program that calls oneDNN in a folder.
        platform = at_hand(self.devices[0].platform if devices else jax.default_backend())
        self._platform = platform._replace(
            onednn=platform.onednn and onednn and cache_dir is None,
            examples=min(self.micro_batch or 1, self._parts.at_once),
        )
        self._programs: dict[tuple, tuple[Program, Params]] = {}
        self._compiled: dict[tuple, tuple[Any, list[jax.Array]]] = {}
        self._variables: tuple[str, ...] = ()
        self._wanted = [self._example_shape(t) for t in self.graph.input_tensors]
        self.report: Report | None = None
        if not self.graph.is_dynamic:
            self._program(tuple(self._wanted), self._platform)

    def __call__(self, *inputs: jax.Array | np.ndarray) -> Any:
        """Runs the graph.

        Returns:
          The outputs, a tuple of arrays; with `report_unpredictable`, (outputs, flags).

        Raises:
          TypeError: the number of inputs or an element type is wrong.
          ValueError: a shape is wrong, or an int4 or int48 value is out of range.
        """
        arrays = accept(self.graph.input_tensors, self._wanted, inputs)
        compiled, constants = self._compile(arrays)
        run = functools.partial(compiled, constants)
        state, flags, outputs = call_in_parts(run, self._parts, self._own_state(), arrays)
        self.state.update(state)
        return (outputs, flags) if self._reports else outputs

    def hlo(self) -> str:
        """The program that XLA made of the graph, as text: what runs, kernel by kernel.

        Raises:
          ValueError: the shapes of the inputs are not known.
        """
        zeros = self._zeros()
        compiled, constants = self._compile(zeros)
        if not isinstance(compiled, jax.stages.Compiled):
            state, *inputs = part_of(self._parts, self._own_state(), zeros)
            compiled = compiled.lower(constants, state, *inputs).compile()
        return compiled.as_text() or ""

    def cost(self) -> Cost:
        """Multiply-accumulates, bytes and routes; `print(run.cost())` shows a table.

        Raises:
          ValueError: the shapes of the inputs are not known.
        """
        return cost(self.graph, self.hlo())

    def explain(self) -> Explanation:
        """A table of the operators that multiply: how each is computed, why, and warnings.

        It is a str; a notebook shows it as a table, and a terminal its first lines.

        Raises:
          ValueError: the shapes of the inputs are not known.
        """
        return Explanation.of(self.cost())

    def save(
        self,
        path: str | os.PathLike[str],
        *,
        open_batch: bool = False,
        platforms: Sequence[str] | None = None,
    ) -> None:
        """Writes the executable to a file that `tosajax.load_executable` runs.

        The file holds the program and its constants, and needs neither the graph nor a second
        tracing; XLA compiles it where it is loaded. Micro-batches are kept, devices are not.

        Args:
          path: of the file; it appears when it is complete.
          open_batch: leave open how many examples a call takes. On CPU they run in micro-batches,
            elsewhere all at once.
          platforms: where it is to run: "cpu", "cuda", "rocm", "tpu"; by default, this one.

        Raises:
          ValueError: the shapes of the inputs are not known, or the examples cannot be left open.
        """
        check_type("path", path, (str, os.PathLike), "a path")
        if open_batch:
            count, inputs = self._symbolic_inputs()
            program, params = self._build(self.graph, ANY)
            program = side_by_side(program, self.graph, count, count)
            at_once = self._wanted_micro_batch or cached_examples(self.graph)
            parts = self._parts._replace(examples=DYNAMIC, at_once=at_once)
        else:
            inputs = self._zeros()
            parts = in_calls(self.graph, self.examples, self.micro_batch)
            program, params = self._batched(_shapes(inputs), ANY, parts)
        saved.write(
            path,
            program,
            params,
            self.graph.input_tensors,
            self.graph.output_tensors,
            self._own_state(),
            inputs,
            parts,
            platforms=platforms,
            reports=self._reports,
        )

    def _repr_html_(self) -> str:
        said = [
            ("target", str(self.target)),
            ("examples in a call", str(self.examples or "as the inputs hold")),
        ]
        if self.micro_batch and self.micro_batch != self.examples:
            said.append(("at a time", str(self.micro_batch)))
        if self.devices:
            said.append(("devices", html.listed([str(d) for d in self.devices])))
        if self.state:
            said.append(("variables", html.listed(list(self.state))))
        pairs = [(term, html.text(text)) for term, text in said]
        return html.box("Executable", pairs) + self.graph._repr_html_()

    def __repr__(self) -> str:
        batch = f", batch={self.examples}" if self.examples else ""
        return f"Executable({self.graph!r}{batch})"

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "an Executable can be neither pickled nor copied: write it with `save` and read it "
            "with tosajax.load_executable, or compile its graph again"
        )

    @property
    def params(self) -> Params:
        """The values of the graph's constants, by tensor name."""
        for _, params in self._programs.values():
            return params
        return {}

    def _zeros(self) -> list[jax.Array]:
        """Inputs to trace with."""
        zeros = []
        for tensor, shape in zip(self.graph.input_tensors, self._wanted, strict=True):
            if shape is None or DYNAMIC in shape:
                raise ValueError(f"input {tensor.name!r} has open dimensions: {tensor}")
            zeros.append(to_device(np.zeros(shape, tensor.dtype.storage), tensor.dtype))
        return zeros

    def _symbolic_inputs(self) -> tuple[Any, list[jax.ShapeDtypeStruct]]:
        """A number of examples that is left open, and inputs of so many to trace with."""
        if self.examples is None or self._variables:
            raise ValueError(
                f"graph {self.graph.name!r} cannot leave its batch open: that needs `batch`, no "
                "variables, and examples that do not depend on each other"
            )
        (count,) = jax.export.symbolic_shape("examples")
        inputs = []
        for tensor, shape in zip(self.graph.input_tensors, self._wanted, strict=True):
            if tensor.dtype is DType.INT48:
                raise UnsupportedError(f"input {tensor.name!r} of int48 in an open batch")
            size = (count, *(shape or ())[1:]) if carries_batch(tensor) else shape
            inputs.append(jax.ShapeDtypeStruct(size, tensor.dtype.storage))
        return count, inputs

    def _own_state(self) -> State:
        return {name: self.state[name] for name in self._variables}

    def _compile(self, inputs: Sequence[jax.Array]) -> tuple[Any, list[jax.Array]]:
        """A function (constants, state, *inputs) for inputs like these, and its constants.

        It is jitted, or compiled already where a folder keeps it.
        """
        shapes = _shapes(inputs)
        key = shapes, self._placed(inputs)
        if key not in self._compiled:
            program, params = self._batched(shapes, self._platform, self._parts, self.devices)
            arguments = part_of(self._parts, self._own_state(), inputs)
            function, constants = trace(program, params, *arguments)
            constants = on_all(constants, self.devices) if self.devices else constants
            options = compiler_options(self._platform.name)
            compiled = jax.jit(function, compiler_options=options)
            if self._cache_dir is not None:
                lowered = compiled.lower(constants, *arguments)
                with persistent_cache(self._cache_dir):  # nothing runs while others wait
                    compiled = lowered.compile()
            self._compiled[key] = compiled, constants
        return self._compiled[key]

    def _placed(self, inputs: Sequence[jax.Array]) -> tuple[Any, ...]:
        """Where arrays are, if a program is compiled for that; a jitted one goes where they are."""
        if self._cache_dir is None:
            return ()
        arrays = *inputs, *jax.tree.leaves(self._own_state())
        return tuple(getattr(x, "sharding", None) for x in arrays)

    def _batched(
        self, shapes: Shapes, platform: Platform, parts: Parts, devices: Devices = ()
    ) -> tuple[Program, Params]:
        """The program of one call, and its parameters, for these input shapes."""
        program, params = self._program(shapes, platform)
        if self.examples is None:
            return program, params
        count = parts.at_once
        return side_by_side(program, self.graph, count, self.micro_batch or count, devices), params

    def _program(self, shapes: Shapes, platform: Platform) -> tuple[Program, Params]:
        """The program of the graph and its parameters for these input shapes."""
        if (shapes, platform) not in self._programs:
            names = self.graph.inputs
            graph = self.graph
            if graph.is_dynamic:
                known = {n: s for n, s in zip(names, shapes, strict=True) if s is not None}
                graph = bind_formed(graph, shapes=known)
            self.report = validate_formed(graph, self.target)
            self.report.raise_errors()
            program, params = self._build(graph, platform)
            self._add_variables(graph)
            self._programs[shapes, platform] = program, params
        return self._programs[shapes, platform]

    def _build(self, graph: Graph, platform: Platform) -> tuple[Program, Params]:
        return build(
            fold(graph, keep_required=self._reports),
            custom_ops=self._custom_ops,
            report_unpredictable=self._reports,
            prepare=True,
            platform=platform,
        )

    def _add_variables(self, graph: Graph) -> None:
        """Gives each variable that has no value yet its initial value, one for each example."""
        initial = initial_state(graph)
        self._variables = tuple(initial)
        if self.examples is not None:
            copies = (self.examples,)
            initial = jax.tree.map(lambda x: jnp.broadcast_to(x, copies + x.shape), initial)
        for name, variable in initial.items():
            known = self.state.setdefault(name, variable)
            found, wanted = (jax.tree.map(_described, v) for v in (known, variable))
            if found != wanted:
                raise ValueError(f"state has variable {name!r} as {found}, expected {wanted}")

    def _example_shape(self, tensor: Tensor) -> tuple[int, ...] | None:
        if self.examples is None or not carries_batch(tensor):
            return tensor.shape
        return (self.examples, *(tensor.shape or ())[1:])


def compile(
    graph: Graph,
    target: Target | str | None = None,
    batch: int | None = None,
    *,
    micro_batch: int | None = None,
    devices: Devices = (),
    state: MutableMapping[str, Variable] | None = None,
    custom_ops: CustomOps | None = None,
    report_unpredictable: bool = False,
    cache_dir: str | os.PathLike[str] | None = None,
    onednn: bool = True,
) -> Executable:
    """Compiles a graph for repeated calls.

    Args:
      graph: from `tosajax.load` or a `Builder`.
      target: profiles, extensions and level to check against, also as text
        ("PRO-INT+EXT-INT16@8K"); everything by default.
      batch: how many examples a call takes. Sets the first dimension of each input where it is
        -1. A graph whose dimensions are fixed runs `batch` independent examples in one call:
        inputs whose first dimension is 1 take `batch` there, others are shared by all examples;
        outputs are put together on their first dimension where that is 1, else on a new one.
        Without it, the shapes are the graph's own, and each -1 takes its size from the inputs.
      micro_batch: how many examples run at a time, where they do not depend on each other; by
        default, on CPU, as many as the cache holds. Of float graphs it may change last bits. A call
        runs one micro-batch after another. A program of devices loops over them, but by default
        not over floats: XLA:CPU has no fast convolution of floats inside a loop.
      devices: share the examples among these, such as `jax.devices()`.
      state: variables by name, shared with other executables: give them one dictionary, such as
        the `state` of another. New variables are added to it, and each call updates it. Examples
        that run side by side have variables of their own, on a new first dimension.
      custom_ops: the functions of CUSTOM nodes; see `tosajax.lower`.
      report_unpredictable: calls also return flags of broken REQUIRE rules; see `tosajax.lower`.
        Examples that run side by side have flags of their own.
      cache_dir: a folder where compiled programs are kept from one process to the next.
      onednn: may call the oneDNN that jaxlib holds, on CPUs where it is exact and faster than XLA's
        own kernels. Programs that are kept in a folder or saved do not. The environment variable
        TOSAJAX_ONEDNN=0, read here, turns it off in all programs of a process.

    Raises:
      TosaError: the graph is illegal or the target does not support it.
      UnsupportedError: a CUSTOM is not in custom_ops, or what a variable holds is undefined.
      TypeError: an argument is of another type.
      ValueError: no input can carry the batch, the state does not fit, micro_batch or devices are
        given and examples depend on each other, or TOSAJAX_ONEDNN is neither 0 nor 1.
    """
    return Executable(
        graph,
        target,
        batch,
        micro_batch=micro_batch,
        devices=devices,
        state=state,
        custom_ops=custom_ops,
        report_unpredictable=report_unpredictable,
        cache_dir=cache_dir,
        onednn=onednn,
    )


def _check_carries(graph: Graph) -> None:
    """Raises ValueError where no input can carry a batch."""
    if not graph.is_dynamic and not any(map(carries_batch, graph.input_tensors)):
        shapes = ", ".join(f"{t.name}: {t}" for t in graph.input_tensors)
        raise ValueError(f"no input has a first dimension of 1 or -1 to carry a batch: {shapes}")


def _check_devices(devices: Devices) -> None:
    wanted = "a list of devices, such as jax.devices()"
    check_type("devices", devices, Sequence, wanted)
    if isinstance(devices, str):
        raise TypeError(f"devices is {shown(devices)}, expected {wanted}")
    for device in devices:
        check_type("a device", device, jax.Device, wanted)


def _shapes(inputs: Sequence[jax.Array]) -> Shapes:
    return tuple(x.shape for x in inputs)


def with_batch(graph: Graph, target: Target, batch: int | None) -> tuple[Graph, int | None]:
    """The graph to run, and of how many examples side by side if it is a graph of one.

    The graph has passed `check_form`.

    Raises:
      TosaError: a graph of open batch is illegal.
    """
    if batch is None:
        return graph, None
    if not graph.is_dynamic:
        return graph, batch
    bound = bind_formed(graph, batch)
    one = one_example(graph)
    if one is None:
        return bound, None
    validate_formed(bound, target).raise_errors()
    return one, batch


def micro_batch_of(graph: Graph, examples: int, wanted: int | None = None, *, in_loop: bool) -> int:
    """How many examples run at a time, in calls of a program or in a loop of one."""
    if wanted is not None:
        if wanted < 1:
            raise ValueError(f"micro_batch is {wanted}, expected at least 1")
        return min(wanted, examples)
    # XLA:CPU has no fast convolution of floats inside a loop.
    floats = any(t.dtype.is_float for part in graph.walk() for t in part.tensors.values())
    if graph.is_dynamic or jax.default_backend() != "cpu" or (in_loop and floats):
        return examples
    return min(examples, cached_examples(graph))


def cached_examples(graph: Graph) -> int:
    """How many examples the cache of a CPU holds."""
    return max(1, _CACHE_BYTES // max(1, peak_bytes(graph)))


def _described(x: jax.Array) -> str:
    return f"{x.dtype}[{','.join(map(str, x.shape))}]"
