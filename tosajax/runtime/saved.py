"""Executables in files: a traced program and its constants, which XLA compiles after loading."""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable, Collection, Sequence
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np

from tosajax import html
from tosajax.arguments.types import check_type
from tosajax.block_scaled import Value
from tosajax.checks.zero_points import OpenZeroPoint
from tosajax.dtypes import DType
from tosajax.fixedpoint import _x64
from tosajax.graph import DYNAMIC, Tensor
from tosajax.lowering.variables import State, Variable
from tosajax.lowering.zero_points import check_inputs
from tosajax.report import FormatError, UnsupportedError
from tosajax.runtime import saved_file
from tosajax.runtime.batching import Batch, batched, call_in_parts, of_a_batch, part_of
from tosajax.runtime.compiled import compiler_options, trace
from tosajax.runtime.exported import Layout, check_program
from tosajax.runtime.inputs import accept, flat, grouped, zeros
from tosajax.runtime.program import Program
from tosajax.runtime.saved_file import Contents, Manifest
from tosajax.runtime.saved_graph import native_call
from tosajax.runtime.traced import check_not_traced

# The platforms of each backend, as `jax.export` names them.
_PLATFORMS = {"cpu": {"cpu"}, "gpu": {"cuda", "rocm"}, "tpu": {"tpu"}}


class SavedExecutable:
    """An executable that `load_executable` read: `saved(*inputs) -> tuple`.

    Inputs and outputs are the same as for the saved `Executable`; `state` is the saved state.

    Example:
      >>> import pathlib
      >>> import tempfile
      >>> import numpy as np
      >>> import tosajax
      >>> b = tosajax.Builder()
      >>> x = b.input("x", tosajax.DType.INT8, (1, 3))
      >>> run = tosajax.compile(b.graph([b.op("REVERSE", x, axis=1, name="y")]))
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     run.save(pathlib.Path(folder) / "reverse.bin")
      ...     saved = tosajax.load_executable(pathlib.Path(folder) / "reverse.bin")
      >>> [y.tolist() for y in saved(np.int8([[1, 2, 3]]))], saved.state
      ([[[3, 2, 1]]], {})
    """

    def __init__(
        self,
        call: Callable[..., Any],
        manifest: Manifest,
        state: State,
    ) -> None:
        self.inputs, self.outputs = manifest.inputs, manifest.outputs
        self.state = dict(state)
        self._flags, self._batch = manifest.flags, manifest.batch
        self._unsigned, self._zero_points = manifest.unsigned, manifest.zero_points
        self._call = call

    def __call__(self, *inputs: Value) -> Any:
        """Runs the program; results and errors are the same as for `Executable`."""
        shapes = [t.shape for t in self.inputs]
        arrays = accept(self.inputs, shapes, inputs, unsigned=lambda: self._unsigned)
        check_inputs(self._zero_points, self.inputs, arrays)
        batch = self._batch_of(arrays)
        try:
            state, flags, outputs = call_in_parts(
                self._call, batch, _leaves(self.state), flat(self.inputs, arrays)
            )
        except (TypeError, ValueError, NotImplementedError):
            check_not_traced("tosajax.load_executable", arrays)
            raise
        self.state = _variables(list(self.state), state)
        outputs = tuple(grouped(self.outputs, outputs))
        if self._flags is None:
            return outputs
        return outputs, dict(zip(self._flags, flags, strict=True))

    def _batch_of(self, arrays: Sequence[Value]) -> Batch:
        """The batch of these inputs; an open batch needs the same number of examples in each."""
        if self._batch.examples != DYNAMIC:
            return self._batch
        open_inputs = [
            (t, x.shape[0])
            for t, x in zip(self.inputs, arrays, strict=True)
            if (t.shape or ())[:1] == (DYNAMIC,)
        ]
        for tensor, count in open_inputs:
            first, wanted = open_inputs[0]
            if count != wanted:
                raise ValueError(
                    f"input {tensor.name!r} holds {count} examples, expected {wanted} as in "
                    f"input {first.name!r}"
                )
        _, examples = open_inputs[0]
        limit = self._batch.at_once if jax.default_backend() == "cpu" else examples
        return self._batch._replace(examples=examples, at_once=min(examples, limit))

    def __repr__(self) -> str:
        ends = ([(t.name, t) for t in ts] for ts in (self.inputs, self.outputs))
        return f"SavedExecutable({html.signature(*ends)})"

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a SavedExecutable can be neither pickled nor copied: read its file again with "
            "tosajax.load_executable, in each process that needs it"
        )


def write(
    path: str | os.PathLike[str],
    program: Program,
    batch: Batch,
    state: State,
    *,
    platforms: Sequence[str] | None,
    graph: bytes = b"",
    unsigned: Collection[str] = (),
    zero_points: Sequence[OpenZeroPoint] = (),
) -> None:
    """Writes a program to a file atomically.

    Args:
      path: the path of the file.
      program: a program for any platform.
      batch: how its examples are divided into calls, without devices.
      state: the values of its variables.
      platforms: as for `jax.export`; None for the current platform.
      graph: from `saved_graph.content_of`.
      unsigned: names of tensors that the program reads as unsigned.
      zero_points: inputs that are zero points, with their rules.

    Raises:
      UnsupportedError: an input of an open batch is int48.
    """
    inputs, call = _to_trace(program, batch)
    part_state, *part = part_of(batch, state, inputs)
    function, constants = trace(call.function, call.params, part_state, *part)
    names: list[tuple[str, str]] = []

    def of_arrays(constants: list[jax.Array], state: list[jax.Array], *arrays: jax.Array):
        before = _variables(list(variables), state)
        after, flags, results = function(constants, before, *grouped(program.inputs, arrays))
        names[:] = flags
        return _leaves(after), list(flags.values()), flat(program.outputs, results)

    variables = dict(state)
    exported = jax.export.export(jax.jit(of_arrays), platforms=platforms)(
        constants, _leaves(part_state), *flat(program.inputs, part)
    )
    ahead = len(_leaves(variables)) + len(names)
    outputs = grouped(program.outputs, exported.out_avals[ahead:])
    manifest = Manifest(
        tuple(_sized(t, x.shape) for t, x in zip(program.inputs, inputs, strict=True)),
        tuple(
            _sized(t, of_a_batch(x.shape, batch))
            for t, x in zip(program.outputs, outputs, strict=True)
        ),
        batch,
        tuple(variables),
        tuple(names) if program.reports else None,
        tuple(t.name for t in program.inputs if t.name in unsigned),
        tuple(zero_points),
    )
    arrays = [np.asarray(x).tobytes() for x in (*constants, *_leaves(variables))]
    contents = Contents(bytes(exported.serialize()), b"".join(arrays), graph)
    saved_file.write(path, manifest, contents)


def _to_trace(program: Program, batch: Batch) -> tuple[list[Any], Program]:
    """Inputs of all examples, and the program of one call; an open batch has a symbolic size."""
    if batch.examples != DYNAMIC:
        return zeros(program.inputs, batch.shapes(program.inputs)), batched(program, batch)
    (count,) = jax.export.symbolic_shape("examples")
    for tensor in program.inputs:
        if tensor.dtype is DType.INT48:
            raise UnsupportedError(f"input {tensor.name!r} of int48 in an open batch")
    shapes = batch._replace(examples=count).shapes(program.inputs)
    inputs = [
        tensor.dtype.struct(shape or ())
        for tensor, shape in zip(program.inputs, shapes, strict=True)
    ]
    return inputs, batched(program, batch._replace(at_once=count, micro_batch=count))


def load_executable(
    path: str | os.PathLike[str], *, allow: Collection[str] = (), native: bool | None = None
) -> SavedExecutable:
    """Reads a file that `Executable.save` wrote.

    Where `compile` would use native kernels, the graph in the file is compiled with them; the
    results have the same bits.

    Inputs that are zero points are checked as in the saved executable. Files of versions before
    this check lack its rules: they compute with illegal zero points.

    Load only files that you trust: XLA compiles the program to machine code, which runs in this
    process. A check admits only the operations of lowered graphs, which stay within their arrays.
    It refuses operations on the host and custom calls, by which a file could call any function of
    this process with operands that the function does not expect. A program may still use unlimited
    time or memory, or compute something else than its graph; and neither JAX's deserializer nor XLA
    is designed to withstand attacks.

    Args:
      path: the path of the file.
      allow: names of StableHLO operations, and of targets of custom calls, that the program may
        also hold, for example from functions of `custom_ops`. The check does not cover their code.
      native: as for `compile`.

    Raises:
      FormatError: the file is not a saved executable, or damaged.
      UnsupportedError: another version of tosajax or jax wrote the file, it is for other platforms,
        or the program holds an operation that is not allowed.
      FileNotFoundError: the file does not exist.
      ImportError: `native` is True without llvmlite.

    Example:
      >>> import pathlib
      >>> import tempfile
      >>> import numpy as np
      >>> import tosajax
      >>> b = tosajax.Builder()
      >>> x = b.input("x", tosajax.DType.INT8, (1, 3))
      >>> run = tosajax.compile(b.graph([b.op("REVERSE", x, axis=1, name="y")]))
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     run.save(pathlib.Path(folder) / "reverse.bin")
      ...     saved = tosajax.load_executable(pathlib.Path(folder) / "reverse.bin")
      >>> saved
      SavedExecutable((x: INT8[1,3]) -> (y: INT8[1,3]))
      >>> saved(np.int8([[1, 2, 3]]))[0].tolist()
      [[3, 2, 1]]
    """
    check_type("path", path, (str, os.PathLike), "a path")
    if isinstance(allow, str) or not all(isinstance(name, str) for name in allow):
        raise TypeError(f"allow is {allow!r}, expected a list of names")
    check_type("native", native, bool | None, "True, False or None")
    check_not_traced("tosajax.load_executable")
    manifest, contents = saved_file.read(path)
    data = contents.arrays
    try:
        exported = jax.export.deserialize(bytearray(contents.program))
    except Exception as error:  # jax has no error of its own for broken bytes
        raise FormatError(f"{path}: jax cannot read the program: {error}") from None
    here = jax.default_backend()
    if _PLATFORMS.get(here, {here}).isdisjoint(exported.platforms):
        platforms = ", ".join(exported.platforms)
        raise UnsupportedError(f"{path} is for {platforms}, and this is {here}")
    try:
        layout = check_program(exported, manifest, allow)
        call = native_call(contents.graph, manifest, native)
    except (FormatError, UnsupportedError) as error:
        raise type(error)(f"{path}: {error}") from None
    if len(data) != layout.nbytes:
        raise FormatError(f"{path}: {len(data)} bytes of arrays, expected {layout.nbytes}")
    constants, state = _arrays(data, layout)
    if call is None:
        jitted = jax.jit(exported.call, compiler_options=compiler_options(here))
        call = functools.partial(jitted, constants)
    return SavedExecutable(call, manifest, _variables(manifest.variables, state))


def _arrays(data: bytes, layout: Layout) -> tuple[list[jax.Array], list[jax.Array]]:
    """Reads the constants and the values of variables."""
    at = 0
    arrays = []
    for dtype, shape in (*layout.constants, *layout.state):
        values = np.frombuffer(data, dtype, math.prod(shape), at).reshape(shape)
        at += values.nbytes
        arrays.append(_x64.from_numpy(values) if dtype == np.int64 else jnp.asarray(values))
    return arrays[: len(layout.constants)], arrays[len(layout.constants) :]


def _sized(tensor: Tensor, shape: Sequence[Any]) -> Tensor:
    sizes = tuple(n if isinstance(n, int) else DYNAMIC for n in shape)
    return Tensor(tensor.name, tensor.dtype, sizes)


def _leaves(state: State) -> list[jax.Array]:
    return [leaf for variable in state.values() for leaf in variable]


def _variables(names: Sequence[str], leaves: Sequence[jax.Array]) -> dict[str, Variable]:
    pairs = zip(leaves[::2], leaves[1::2], strict=True)
    return {name: Variable(*pair) for name, pair in zip(names, pairs, strict=True)}
