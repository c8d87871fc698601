"""Executables in files: the traced program and its constants, for XLA to compile where they run."""

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
from tosajax.fixedpoint import _x64
from tosajax.graph import DYNAMIC, Tensor
from tosajax.lowering.variables import State, Variable
from tosajax.report import FormatError, UnsupportedError
from tosajax.runtime import saved_file
from tosajax.runtime.batching import Parts, call_in_parts, of_a_batch, part_of
from tosajax.runtime.compiled import compiler_options, trace
from tosajax.runtime.exported import Layout, check_program
from tosajax.runtime.inputs import accept
from tosajax.runtime.saved_file import Manifest

# What `jax.export` calls the platforms of one backend.
_PLATFORMS = {"cpu": {"cpu"}, "gpu": {"cuda", "rocm"}, "tpu": {"tpu"}}


class SavedExecutable:
    """An executable that `load_executable` read: `saved(*inputs) -> tuple`.

    Inputs and outputs are those of the `Executable` that was saved; so is `state`, as it was then.
    """

    def __init__(
        self,
        program: jax.export.Exported,
        manifest: Manifest,
        constants: Sequence[jax.Array],
        state: State,
    ) -> None:
        self.inputs, self.outputs = manifest.inputs, manifest.outputs
        self.state = dict(state)
        self._flags, self._parts = manifest.flags, manifest.parts
        self._constants = list(constants)
        options = compiler_options(jax.default_backend())
        self._call = jax.jit(program.call, compiler_options=options)

    def __call__(self, *inputs: jax.Array | np.ndarray) -> Any:
        """Runs it; results and errors are those of `Executable`."""
        arrays = accept(self.inputs, [t.shape for t in self.inputs], inputs)
        call = functools.partial(self._call, self._constants)
        parts = self._parts_of(arrays)
        state, flags, outputs = call_in_parts(call, parts, _leaves(self.state), arrays)
        self.state = _variables(list(self.state), state)
        if self._flags is None:
            return tuple(outputs)
        return tuple(outputs), dict(zip(self._flags, flags, strict=True))

    def _parts_of(self, arrays: Sequence[jax.Array]) -> Parts:
        """How to call for these inputs. In an open batch all hold as many examples."""
        if self._parts.examples != DYNAMIC:
            return self._parts
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
        limit = self._parts.at_once if jax.default_backend() == "cpu" else examples
        return self._parts._replace(examples=examples, at_once=min(examples, limit))

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
    program: Callable[..., Any],
    params: Any,
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    state: State,
    examples: Sequence[jax.Array | jax.ShapeDtypeStruct],
    parts: Parts,
    *,
    platforms: Sequence[str] | None,
    reports: bool,
) -> None:
    """Writes a program to a file, or nothing.

    Args:
      path: of the file.
      program: (params, state, *inputs) -> (state, flags, outputs), of one call.
      params: its first argument.
      inputs: what the graph calls them.
      outputs: the same.
      state: the variables as they are.
      examples: inputs of the whole batch, to trace with.
      parts: how calls share it.
      platforms: as for `jax.export`; None for the one at hand.
      reports: whether the caller is given the flags.
    """
    part_state, *part = part_of(parts, state, examples)
    function, constants = trace(program, params, part_state, *part)
    names: list[tuple[str, str]] = []

    def flat(constants: list[jax.Array], state: list[jax.Array], *inputs: jax.Array):
        found, flags, results = function(constants, _variables(list(variables), state), *inputs)
        names[:] = flags
        return _leaves(found), list(flags.values()), list(results)

    variables = dict(state)
    jitted = jax.jit(flat)
    exported = jax.export.export(jitted, platforms=platforms)(constants, _leaves(part_state), *part)
    manifest = Manifest(
        tuple(_sized(t, x.shape) for t, x in zip(inputs, examples, strict=True)),
        tuple(
            _sized(t, of_a_batch(x.shape, parts))
            for t, x in zip(outputs, exported.out_avals[-len(outputs) :], strict=True)
        ),
        parts,
        tuple(variables),
        tuple(names) if reports else None,
    )
    arrays = [np.asarray(x).tobytes() for x in (*constants, *_leaves(variables))]
    saved_file.write(path, manifest, bytes(exported.serialize()), arrays)


def load_executable(
    path: str | os.PathLike[str], *, allow: Collection[str] = ()
) -> SavedExecutable:
    """Reads what `Executable.save` wrote.

    Load what you trust: XLA makes native code of the program, which runs in this process. What is
    checked is that a program holds nothing but what graphs are made of, which stays within its
    arrays: no custom call, by which a file could have any function of this process called with
    operands that it does not expect, and no operation on the host. A program may still take all
    time or memory, and give other results than the graph it is said to be of; and neither JAX's
    reader of programs nor XLA is made to withstand an attack.

    Args:
      path: of the file.
      allow: targets of custom calls that the program may hold, where functions of `custom_ops`
        brought them, or operations of StableHLO. They do what their owners wrote, so that nothing
        of the above holds for such a file.

    Raises:
      FormatError: the file is not one, or damaged.
      UnsupportedError: another version of tosajax or jax wrote it, it is for other platforms, or
        the program holds what is not allowed.
      FileNotFoundError: there is no such file.
    """
    check_type("path", path, (str, os.PathLike), "a path")
    if isinstance(allow, str) or not all(isinstance(name, str) for name in allow):
        raise TypeError(f"allow is {allow!r}, expected a list of names")
    manifest, program, data = saved_file.read(path)
    try:
        exported = jax.export.deserialize(bytearray(program))
    except Exception as error:  # whatever jax makes of broken bytes
        raise FormatError(f"{path}: jax cannot read the program: {error}") from None
    here = jax.default_backend()
    if _PLATFORMS.get(here, {here}).isdisjoint(exported.platforms):
        made = ", ".join(exported.platforms)
        raise UnsupportedError(f"{path} is for {made}, and this is {here}")
    try:
        layout = check_program(exported, manifest, allow)
    except (FormatError, UnsupportedError) as error:
        raise type(error)(f"{path}: {error}") from None
    if len(data) != layout.nbytes:
        raise FormatError(f"{path}: {len(data)} bytes of arrays, expected {layout.nbytes}")
    constants, state = _arrays(data, layout)
    return SavedExecutable(exported, manifest, constants, _variables(manifest.variables, state))


def _arrays(data: bytes, layout: Layout) -> tuple[list[jax.Array], list[jax.Array]]:
    """The constants, and the values of variables."""
    at = 0
    arrays = []
    for dtype, shape in (*layout.constants, *layout.state):
        values = np.frombuffer(data, dtype, math.prod(shape), at).reshape(shape)
        at += values.nbytes
        arrays.append(_x64.from_numpy(values) if dtype == np.int64 else jnp.asarray(values))
    return arrays[: len(layout.constants)], arrays[len(layout.constants) :]


def _sized(tensor: Tensor, shape: Sequence[Any]) -> Tensor:
    known = tuple(n if isinstance(n, int) else DYNAMIC for n in shape)
    return Tensor(tensor.name, tensor.dtype, known)


def _leaves(state: State) -> list[jax.Array]:
    return [leaf for variable in state.values() for leaf in variable]


def _variables(names: Sequence[str], leaves: Sequence[jax.Array]) -> dict[str, Variable]:
    pairs = zip(leaves[::2], leaves[1::2], strict=True)
    return {name: Variable(*pair) for name, pair in zip(names, pairs, strict=True)}
