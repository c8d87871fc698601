"""Executable: a graph compiled by XLA, called with arrays."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, MutableMapping, Sequence
from typing import Any, NoReturn, ParamSpec

import jax

from tosajax import html
from tosajax.arguments.types import check_type, count, shown
from tosajax.block_scaled import Value
from tosajax.checks.zero_points import input_zero_points
from tosajax.graph import Graph
from tosajax.graph.zero_points import unsigned_tensors
from tosajax.lowering.kernels import native_set
from tosajax.lowering.run import CustomOps, Params
from tosajax.lowering.variables import State, Variable, for_examples, initial_state
from tosajax.lowering.zero_points import check_inputs
from tosajax.passes.binding import bind_formed
from tosajax.report import Report
from tosajax.runtime import saved, saved_graph
from tosajax.runtime.batching import (
    Devices,
    batched,
    call_in_parts,
    on_all,
    part_of,
    platform_of,
    share,
    share_open,
    with_batch,
)
from tosajax.runtime.compiled import compile_apart, compiler_options, persistent_cache, trace
from tosajax.runtime.cost import Cost, Explanation, cost
from tosajax.runtime.inputs import accept, check_known, zeros
from tosajax.runtime.program import Program, native_on, program_of, why_not_native
from tosajax.runtime.traced import check_not_traced
from tosajax.spec.target import Target, target_of
from tosajax.validation import check_form, validate_formed

Shapes = tuple[tuple[int, ...] | None, ...]  # the shapes of inputs; None for an unknown rank
_P = ParamSpec("_P")


class Executable:
    """A compiled graph: `executable(*inputs) -> tuple`, in the order of the graph.

    Inputs are NumPy or JAX arrays in `dtype.storage` (int4 in int8, int48 in int64; a BlockScaled
    for a block-scaled type), or unsigned integers if the graph reads them as unsigned
    (`input_unsigned` of a RESCALE); outputs are JAX arrays. XLA compiles at the first call with
    each set of input shapes; a graph with open dimensions is validated then. int48 outputs are
    int64 arrays: `jax.numpy` narrows them to int32 unless x64 is enabled, so convert them to NumPy
    first. `state` holds the graph's variables; each call updates it.

    Example:
      >>> import numpy as np
      >>> import tosajax
      >>> b = tosajax.Builder()
      >>> x = b.input("x", tosajax.DType.INT8, (1, 3))
      >>> run = tosajax.compile(b.graph([b.op("REVERSE", x, axis=1)]))
      >>> run.micro_batch, run.report.verdict.name
      (None, 'VALID')
      >>> (y,) = run(np.int8([[1, 2, 3]]))
      >>> y.tolist()
      [[3, 2, 1]]
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
        native: bool | None = None,
    ):
        check_type("graph", graph, Graph, "a Graph, as from tosajax.load")
        check_not_traced("tosajax.compile")
        batch = None if batch is None else count("batch", batch)
        micro_batch = None if micro_batch is None else count("micro_batch", micro_batch)
        _check_devices(devices)
        if state is not None:
            check_type("state", state, MutableMapping, "a dict of variables by name")
        if cache_dir is not None:
            check_type("cache_dir", cache_dir, (str, os.PathLike), "the path of a folder")
        check_type("native", native, bool | None, "True, False or None")
        self.target = target_of(target)
        check_form(graph)
        self.graph, self.examples = with_batch(graph, self.target, batch)
        self._zero_points = input_zero_points(self.graph)
        self._batch = share(self.graph, self.examples, micro_batch, devices)
        self._wanted_micro_batch = micro_batch
        self.state: MutableMapping[str, Variable] = {} if state is None else state
        self._custom_ops, self._reports = custom_ops, report_unpredictable
        self._cache_dir = cache_dir
        self._platform = platform_of(self._batch)
        self._may_be_native = native is not False
        self._native = native_on(self._platform, native)
        self._not_native = why_not_native(self._platform, native, reports=report_unpredictable)
        self._programs: dict[Shapes, Program] = {}
        self._compiled: dict[tuple, tuple[Any, list[jax.Array]]] = {}
        self._variables: tuple[str, ...] = ()
        self._wanted = self._batch.shapes(self.graph.input_tensors)
        self.report: Report | None = None
        if not self.graph.is_dynamic:
            self._program(self._wanted)

    @property
    def micro_batch(self) -> int | None:
        """The number of examples that run at a time; None if the graph runs as a whole."""
        return self._batch.micro_batch

    @property
    def devices(self) -> Devices:
        """The devices that share the examples; empty for the default device."""
        return self._batch.devices

    def __call__(self, *inputs: Value) -> Any:
        """Runs the graph.

        Returns:
          The outputs, a tuple of arrays; with `report_unpredictable`, (outputs, flags).

        Raises:
          TypeError: the number of inputs or an element type is wrong, or the call is inside jit,
            grad or control flow of JAX: use `tosajax.lower` there.
          ValueError: a shape is wrong, or an int4 or int48 value is out of range.
          TosaError: an input that is a zero point must be 0 for its type.
        """
        arrays = accept(
            self.graph.input_tensors,
            self._wanted,
            inputs,
            unsigned=lambda: self._unsigned,
            scaled=self.graph.quantization,
        )
        check_inputs(self._zero_points, self.graph.input_tensors, arrays)
        compiled, constants = self._compile(arrays)
        run = functools.partial(compiled, constants)
        try:
            state, flags, outputs = call_in_parts(run, self._batch, self._own_state(), arrays)
        except (TypeError, ValueError):
            check_not_traced("tosajax.compile", arrays)
            raise
        self.state.update(state)
        return (outputs, flags) if self._reports else outputs

    def hlo(self) -> str:
        """The text of the compiled program, in HLO.

        Raises:
          ValueError: the shapes of the inputs are not known.
        """
        inputs = zeros(self.graph.input_tensors, self._wanted)
        compiled, constants = self._compile(inputs)
        if not isinstance(compiled, jax.stages.Compiled):
            state, *inputs = part_of(self._batch, self._own_state(), inputs)
            compiled = compiled.lower(constants, state, *inputs).compile()
        return compiled.as_text() or ""

    def cost(self) -> Cost:
        """Multiply-accumulates, bytes and routes; `print(run.cost())` shows a table.

        Raises:
          ValueError: the shapes of the inputs are not known.
        """
        not_native = self._not_native
        if not not_native and native_set(self._native) is None:
            not_native = "kernels were not found faster on this processor: native=True takes them"
        return cost(self.graph, self.hlo(), not_native)

    def explain(self) -> Explanation:
        """A table of the operators that multiply: the route of each, the reason, and warnings.

        The result is a str; a notebook shows it as a table, and a terminal its first lines.

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

        The file holds the program and its constants; XLA compiles it when it is loaded. If native
        kernels can compute a part of the graph, the file also holds the graph: on processors with
        native kernels, they are compiled again from it. Micro-batches are saved, devices are not.

        Args:
          path: the path of the file, which appears when it is complete.
          open_batch: whether a call takes any number of examples. On CPU they run in micro-batches,
            elsewhere all at once.
          platforms: the platforms that can run it: "cpu", "cuda", "rocm", "tpu"; by default, the
            current one.

        Raises:
          ValueError: the shapes of the inputs are not known, or the batch cannot be open.
        """
        check_type("path", path, (str, os.PathLike), "a path")
        if open_batch and (self.examples is None or self._variables):
            raise ValueError(
                f"graph {self.graph.name!r} cannot leave its batch open: that needs `batch`, no "
                "variables, and examples that do not depend on each other"
            )
        batch = (
            share_open(self.graph, self._wanted_micro_batch)
            if open_batch
            else share(self.graph, self.examples, self.micro_batch)
        )
        check_known(self.graph.input_tensors, self._wanted)
        program = program_of(self.graph, custom_ops=self._custom_ops, reports=self._reports)
        is_for_cpus = "cpu" in (platforms or (jax.default_backend(),))
        is_alone = not self._custom_ops and not self._reports
        has_graph = is_for_cpus and is_alone and self._may_be_native
        content = saved_graph.content_of(self.graph) if has_graph else b""
        state = self._own_state()
        saved.write(
            path,
            program,
            batch,
            state,
            platforms=platforms,
            graph=content,
            unsigned=self._unsigned,
            zero_points=self._zero_points,
        )

    def _repr_html_(self) -> str:
        facts = [
            ("target", str(self.target)),
            ("examples in a call", str(self.examples or "as the inputs hold")),
        ]
        if self.micro_batch and self.micro_batch != self.examples:
            facts.append(("at a time", str(self.micro_batch)))
        if self.devices:
            facts.append(("devices", html.listed([str(d) for d in self.devices])))
        if self.state:
            facts.append(("variables", html.listed(list(self.state))))
        pairs = [(term, html.text(text)) for term, text in facts]
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
        return next((program.params for program in self._programs.values()), {})

    @functools.cached_property
    def _unsigned(self) -> set[str]:
        return unsigned_tensors(self.graph)

    def _own_state(self) -> State:
        return {name: self.state[name] for name in self._variables}

    def _compile(self, inputs: Sequence[Value]) -> tuple[Any, list[jax.Array]]:
        """The function (constants, state, *inputs) for these shapes, and its constants.

        The function is jitted; with `cache_dir`, it is already compiled.
        """
        shapes = [x.shape for x in inputs]
        key = tuple(shapes), self._placed(inputs)
        if key not in self._compiled:
            check_not_traced("tosajax.compile")
            program = batched(self._program(shapes), self._batch)
            arguments = part_of(self._batch, self._own_state(), inputs)
            function, constants = trace(program.function, program.params, *arguments)
            constants = on_all(constants, self.devices) if self.devices else constants
            options = compiler_options(self._platform.name)
            compiled = jax.jit(function, compiler_options=options)
            lowered = compiled.lower(constants, *arguments)
            with persistent_cache(self._cache_dir):  # holds a lock: only to compile
                ahead = compile_apart(lowered)  # which a call of the jitted function finds
            compiled = compiled if self._cache_dir is None else ahead
            self._compiled[key] = compiled, constants
        return self._compiled[key]

    def _placed(self, inputs: Sequence[Value]) -> tuple[Any, ...]:
        """The shardings of the arrays: compiled programs depend on them; jitted functions adapt."""
        if self._cache_dir is None:
            return ()
        arrays = jax.tree.leaves((list(inputs), self._own_state()))
        return tuple(getattr(x, "sharding", None) for x in arrays)

    def _program(self, shapes: Sequence[tuple[int, ...] | None]) -> Program:
        """The program of the graph for these input shapes."""
        key = tuple(shapes)
        if key not in self._programs:
            graph = self.graph
            if graph.is_dynamic:
                pairs = zip(graph.inputs, shapes, strict=True)
                graph = bind_formed(graph, shapes={n: s for n, s in pairs if s is not None})
            self.report = validate_formed(graph, self.target)
            self.report.raise_errors()
            program = program_of(
                graph,
                platform=self._platform,
                custom_ops=self._custom_ops,
                reports=self._reports,
                native=self._native,
            )
            self._add_variables(initial_state(graph))
            self._programs[key] = program
        return self._programs[key]

    def _add_variables(self, initial: State) -> None:
        """Gives each variable that has no value yet its initial value, one for each example."""
        self._variables = tuple(initial)
        for name, variable in for_examples(initial, self.examples).items():
            current = self.state.setdefault(name, variable)
            held, wanted = (jax.tree.map(_described, v) for v in (current, variable))
            if held != wanted:
                raise ValueError(f"state has variable {name!r} as {held}, expected {wanted}")


def _with_arguments_of(
    made: Callable[_P, Executable],
) -> Callable[[Callable[..., Executable]], Callable[_P, Executable]]:
    """Gives a function the signature of the class that it instantiates.

    Type checkers, `help` and errors show it, so the class alone declares the arguments.
    """
    signature = inspect.signature(made).replace(return_annotation="Executable")

    def decorate(function: Callable[..., Executable]) -> Callable[_P, Executable]:
        @functools.wraps(function)
        def checked(*args: _P.args, **options: _P.kwargs) -> Executable:
            try:
                signature.bind(*args, **options)
            except TypeError as error:
                raise TypeError(f"{function.__name__}() {error}") from None
            return function(*args, **options)

        checked.__signature__ = signature  # pyright: ignore[reportAttributeAccessIssue]
        return checked

    return decorate


@_with_arguments_of(Executable)
def compile(*args: Any, **options: Any) -> Executable:
    """Compiles a graph for repeated calls.

    Args:
      graph: from `tosajax.load` or a `Builder`.
      target: the profiles, extensions and level to check against, also as text
        ("PRO-INT+EXT-INT16@8K"); by default everything.
      batch: the number of examples in a call. It sets the first dimension of each input if that
        is -1. A graph with fixed dimensions runs `batch` independent examples in one call: an
        input whose first dimension is 1 takes `batch` there, and all examples share every other
        input; outputs are joined on their first dimension if that is 1, else on a new one. Without
        `batch`, the shapes are the graph's own, and each -1 gets its size from the inputs.
      micro_batch: the number of examples that run at a time, if they do not depend on each other;
        by default, on CPU, as many as fit the cache. In float graphs it may change the last bits. A
        call runs one micro-batch after another. With devices, the program loops over micro-batches,
        but by default not over floats: XLA:CPU has no fast convolution of floats inside a loop.
      devices: devices that share the examples equally, for example `jax.devices()`.
      state: variables by name. Executables share variables if they get the same dictionary, for
        example the `state` of another executable. New variables are added to it; each call updates
        it. In a batch, each example has its own variables, on a new first dimension.
      custom_ops: the functions of CUSTOM nodes; see `tosajax.lower`.
      report_unpredictable: whether calls also return flags of broken REQUIRE rules; see
        `tosajax.lower`. In a batch, each example has its own flags.
      cache_dir: a folder that keeps compiled programs between processes.
      native: whether programs for CPUs use kernels that llvmlite compiles; integers have the same
        bits, floats may differ in the last ones. By default they do if llvmlite is installed and
        the kernels were measured to be faster on the processor (x86 with AVX2, AVX-512 or AMX). The
        environment variable TOSAJAX_NATIVE=0, read here, disables them in all programs of a
        process; with TOSAJAX_NATIVE=1 they are the default on any processor.

    Raises:
      TosaError: the graph is illegal or the target does not support it.
      UnsupportedError: a CUSTOM is not in custom_ops, or the value of a variable is undefined.
      TypeError: an argument is of another type, or the call is inside jit: use `tosajax.lower`
        there.
      ValueError: no input can carry the batch, the state does not fit, micro_batch or devices are
        given and examples depend on each other, or TOSAJAX_NATIVE is neither 0 nor 1.
      ImportError: `native` is True without llvmlite.

    Example:
      >>> import numpy as np
      >>> import tosajax
      >>> b = tosajax.Builder()
      >>> x = b.input("x", tosajax.DType.INT8, (1, 3))
      >>> run = tosajax.compile(b.graph([b.op("REVERSE", x, axis=1)]), batch=2)
      >>> (y,) = run(np.int8([[1, 2, 3], [4, 5, 6]]))
      >>> y.tolist()
      [[3, 2, 1], [6, 5, 4]]
    """
    return Executable(*args, **options)


def _check_devices(devices: Devices) -> None:
    wanted = "a list of devices, such as jax.devices()"
    check_type("devices", devices, Sequence, wanted)
    if isinstance(devices, str):
        raise TypeError(f"devices is {shown(devices)}, expected {wanted}")
    for device in devices:
        check_type("a device", device, jax.Device, wanted)


def _described(x: jax.Array) -> str:
    return f"{x.dtype}[{','.join(map(str, x.shape))}]"
