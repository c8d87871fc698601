"""Executables in files: the traced program and its constants, for XLA to compile where they run.

A file is a ZIP archive of `manifest.json` (names, types and shapes), `program.bin` (as
`jax.export` writes it) and `arrays.npz` (constants and initial variables, as bytes).
"""

from __future__ import annotations

import functools
import io
import json
import os
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tosajax import html
from tosajax.batching import Parts, call_in_parts, part_of
from tosajax.compiled import compiler_options, trace
from tosajax.dtypes import DType
from tosajax.fixedpoint import _x64
from tosajax.graph import DYNAMIC, Tensor
from tosajax.inputs import accept
from tosajax.report import FormatError, UnsupportedError
from tosajax.variables import State, Variable

_KIND, _VERSION = "tosajax executable", 2
_MEMBERS = ("manifest.json", "program.bin", "arrays.npz")
# What `jax.export` calls the platforms of one backend.
_PLATFORMS = {"cpu": {"cpu"}, "gpu": {"cuda", "rocm"}, "tpu": {"tpu"}}


class SavedExecutable:
    """An executable that `load_executable` read: `saved(*inputs) -> tuple`.

    Inputs and outputs are those of the `Executable` that was saved; so is `state`, as it was then.
    """

    def __init__(
        self,
        program: jax.export.Exported,
        manifest: Mapping[str, Any],
        constants: Sequence[jax.Array],
        state: State,
    ) -> None:
        self.inputs = tuple(_tensor(**entry) for entry in manifest["inputs"])
        self.outputs = tuple(_tensor(**entry) for entry in manifest["outputs"])
        self.state = dict(state)
        self._flags = manifest["flags"]
        self._parts = _parts(manifest["parts"], self.inputs)
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
        names = [tuple(name) for name in self._flags]
        return tuple(outputs), dict(zip(names, flags, strict=True))

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
      outputs: likewise.
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
    arrays = [*constants, *_leaves(variables)]
    manifest = {
        "kind": _KIND,
        "version": _VERSION,
        "inputs": [_entry(t, x.shape) for t, x in zip(inputs, examples, strict=True)],
        "outputs": [
            _entry(t, _whole(x.shape, parts))
            for t, x in zip(outputs, exported.out_avals[-len(outputs) :], strict=True)
        ],
        "parts": parts._asdict(),
        "variables": list(variables),
        "arrays": [[str(x.dtype), list(x.shape)] for x in arrays],
        "flags": [list(name) for name in names] if reports else None,
    }
    _write_whole(Path(path), manifest, bytes(exported.serialize()), arrays)


def load_executable(path: str | os.PathLike[str]) -> SavedExecutable:
    """Reads what `Executable.save` wrote.

    Raises:
      FormatError: the file is not one, or damaged.
      UnsupportedError: another version of tosajax or jax wrote it, or it is for other platforms.
      FileNotFoundError: there is no such file.
    """
    manifest, program, arrays = _read(Path(path))
    if manifest.get("kind") != _KIND:
        raise FormatError(f"{path} is no {_KIND}")
    if manifest.get("version") != _VERSION:
        raise UnsupportedError(
            f"{path} is version {manifest.get('version')} of its format, expected {_VERSION}"
        )
    try:
        exported = jax.export.deserialize(bytearray(program))
    except Exception as error:
        raise FormatError(f"{path}: jax cannot read the program: {error}") from None
    here = jax.default_backend()
    if _PLATFORMS.get(here, {here}).isdisjoint(exported.platforms):
        made = ", ".join(exported.platforms)
        raise UnsupportedError(f"{path} is for {made}, and this is {here}")
    try:
        names = manifest["variables"]
        split = len(arrays) - 2 * len(names)
        state = _variables(names, arrays[split:])
        return SavedExecutable(exported, manifest, arrays[:split], state)
    except (KeyError, TypeError, ValueError) as error:
        raise FormatError(f"{path}: its manifest is damaged: {error!r}") from None


def _leaves(state: State) -> list[jax.Array]:
    return [leaf for variable in state.values() for leaf in variable]


def _variables(names: Sequence[str], leaves: Sequence[jax.Array]) -> dict[str, Variable]:
    pairs = zip(leaves[::2], leaves[1::2], strict=True)
    return {name: Variable(*pair) for name, pair in zip(names, pairs, strict=True)}


def _parts(entry: Mapping[str, Any], inputs: Sequence[Tensor]) -> Parts:
    """How calls share a batch, if a manifest says so of these inputs."""
    parts = Parts(**entry)._replace(carries=tuple(entry["carries"]))
    carried = [t for t, c in zip(inputs, parts.carries, strict=True) if c]
    most = parts.at_once if parts.examples == DYNAMIC and carried else parts.examples
    is_sound = isinstance(parts.examples, int) and isinstance(parts.at_once, int)
    fit = all((t.shape or ())[:1] == (parts.examples,) for t in carried)
    if not (is_sound and fit and 1 <= parts.at_once <= most):
        raise ValueError(f"parts are {entry}")
    return parts


def _whole(shape: Sequence[Any], parts: Parts) -> Sequence[Any]:
    """The shape of what calls of this shape give together."""
    return (parts.examples, *shape[1:]) if parts.at_once < parts.examples else shape


def _entry(tensor: Tensor, shape: Sequence[Any]) -> dict[str, Any]:
    known = [n if isinstance(n, int) else DYNAMIC for n in shape]
    return {"name": tensor.name, "dtype": tensor.dtype.name, "shape": known}


def _tensor(name: str, dtype: str, shape: Sequence[int]) -> Tensor:
    return Tensor(name, DType[dtype], tuple(shape))


def _write_whole(
    path: Path, manifest: Mapping[str, Any], program: bytes, arrays: Sequence[jax.Array]
) -> None:
    data = io.BytesIO()
    np.savez(data, *(np.asarray(x).reshape(-1).view(np.uint8) for x in arrays))
    contents = (json.dumps(manifest).encode(), program, data.getvalue())
    new = path.with_name(f"{path.name}.new")
    try:
        with zipfile.ZipFile(new, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in zip(_MEMBERS, contents, strict=True):
                archive.writestr(name, content)
        os.replace(new, path)
    finally:
        new.unlink(missing_ok=True)


def _read(path: Path) -> tuple[dict[str, Any], bytes, list[jax.Array]]:
    content = path.read_bytes()
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            text, program, data = (archive.read(name) for name in _MEMBERS)
        manifest = json.loads(text)
        with np.load(io.BytesIO(data), allow_pickle=False) as packed:
            raw = [packed[f"arr_{i}"] for i in range(len(manifest["arrays"]))]
        arrays = [_array(x, *entry) for x, entry in zip(raw, manifest["arrays"], strict=True)]
    except (
        zipfile.BadZipFile,
        KeyError,
        TypeError,
        ValueError,
        AttributeError,
        EOFError,
        NotImplementedError,
        OSError,
        zlib.error,
    ) as error:
        raise FormatError(f"{path} is no {_KIND}, or damaged: {error}") from None
    return manifest, program, arrays


def _array(raw: np.ndarray, dtype: str, shape: Sequence[int]) -> jax.Array:
    values = raw.view(jnp.dtype(dtype)).reshape(shape)
    return _x64.from_numpy(values) if values.dtype == np.int64 else jnp.asarray(values)
