"""Graphs in files of executables: on CPUs with native kernels they run instead of the program.

Machine code fits one kind of processor, and a file must not bring its own: kernels are compiled
again from the graph, which is validated like any other graph.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax

from tosajax import io
from tosajax.graph import Graph, Tensor
from tosajax.lowering.fusions import has_kernels
from tosajax.lowering.kernels import native_set
from tosajax.lowering.variables import State, Variable
from tosajax.ops.routes.platform import Platform
from tosajax.passes.folding import fold
from tosajax.report import FormatError, TosaError, UnsupportedError
from tosajax.runtime.batching import Batch, batched, carries_batch
from tosajax.runtime.compiled import compiler_options, trace
from tosajax.runtime.inputs import flat, grouped
from tosajax.runtime.program import Program, native_on, program_of
from tosajax.runtime.saved_file import Manifest
from tosajax.spec.target import Target
from tosajax.validation import check_form, validate_formed

_CPU = Platform("cpu")


def content_of(graph: Graph) -> bytes:
    """A graph's bytes for a file; empty if no kernel computes it or a flatbuffer cannot hold it.

    Args:
      graph: a legal graph with known dimensions, without CUSTOM.
    """
    if not has_kernels(graph):
        return b""
    try:
        return io.to_bytes(fold(graph))
    except (UnsupportedError, ValueError):
        return b""


def native_call(content: bytes, manifest: Manifest, native: bool | None) -> NativeCall | None:
    """A call of a graph from a file; None if the program runs instead.

    Args:
      content: bytes from `content_of`.
      manifest: the manifest of the file.
      native: the user's choice.

    Raises:
      FormatError: the graph is illegal, or does not match the manifest.
      ImportError: the user asked for native kernels, and llvmlite is not installed.
    """
    native = native_on(Platform(jax.default_backend()), native)
    if not content or native is False or native_set(native) is None:
        return None
    try:
        graph = io.load(content)
        check_form(graph)
        validate_formed(graph, Target.everything("none")).raise_errors()
    except (FormatError, TosaError, UnsupportedError) as error:
        raise FormatError(f"its graph: {error}") from None
    program = program_of(graph, platform=_CPU, native=native)
    _check(program, manifest)
    return NativeCall(program, manifest)


class NativeCall:
    """Calls a saved graph: `call(state, *inputs) -> (state, flags, outputs)`, lists of leaves."""

    def __init__(self, program: Program, manifest: Manifest) -> None:
        self._program, self._manifest = program, manifest
        self._traced: dict[tuple[tuple[int, ...], ...], Any] = {}

    def __call__(self, state: list[jax.Array], *inputs: jax.Array) -> Any:
        shapes = tuple(x.shape for x in inputs)
        if shapes not in self._traced:
            values = grouped(self._program.inputs, inputs)
            program = _of_a_call(self._program, self._manifest.batch, values)

            def of_arrays(params: Any, state: list[jax.Array], *arrays: jax.Array) -> Any:
                pairs = zip(state[::2], state[1::2], strict=True)
                named = zip(self._manifest.variables, pairs, strict=True)
                of: State = {name: Variable(*pair) for name, pair in named}
                inputs = grouped(program.inputs, arrays)
                after, _, outputs = program.function(params, of, *inputs)
                return [x for name in of for x in after[name]], [], flat(program.outputs, outputs)

            function, constants = trace(of_arrays, program.params, state, *inputs)
            jitted = jax.jit(function, compiler_options=compiler_options("cpu"))
            self._traced[shapes] = functools.partial(jitted, constants)
        return self._traced[shapes](state, *inputs)


def _of_a_call(program: Program, batch: Batch, inputs: Sequence[Any]) -> Program:
    carried = [x.shape[0] for x, has in zip(inputs, batch.carries, strict=True) if has]
    if not carried:
        return program
    return batched(program, batch._replace(at_once=carried[0], micro_batch=carried[0]))


def _check(program: Program, manifest: Manifest) -> None:
    """Checks that the program takes and returns the arrays of the manifest."""
    carries, count = manifest.batch.carries, manifest.batch.examples

    def of_examples(t: Tensor) -> tuple[int, ...]:
        return (count, *(t.shape or ())[carries_batch(t) :])

    if len(carries) != len(program.inputs):
        raise FormatError(f"its graph has {len(program.inputs)} inputs, expected {len(carries)}")
    inputs = [
        (t.name, t.dtype, of_examples(t) if has else t.shape)
        for t, has in zip(program.inputs, carries, strict=True)
    ]
    outputs = [
        (t.name, t.dtype, of_examples(t) if any(carries) else t.shape) for t in program.outputs
    ]
    wanted = [
        [(t.name, t.dtype, t.shape) for t in tensors]
        for tensors in (manifest.inputs, manifest.outputs)
    ]
    if [inputs, outputs] != wanted:
        raise FormatError(f"its graph takes and returns {inputs} and {outputs}, expected {wanted}")
