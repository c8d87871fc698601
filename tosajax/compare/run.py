"""Runs two programs on the same examples and compares their tensors."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from tosajax.block_scaled import BlockScaled, Value
from tosajax.compare.comparison import Comparison
from tosajax.compare.examples import example_rows
from tosajax.compare.litert import TFLite
from tosajax.compare.pairs import Arrays, Pairs
from tosajax.compare.program import Program
from tosajax.compare.programs import Other, named, program, title
from tosajax.compare.scales import Scales
from tosajax.compare.tflite_scales import scales_of_tflite
from tosajax.compare.tolerance import Tolerance
from tosajax.graph import Graph
from tosajax.passes.binding import bind
from tosajax.rewrite.cutting import cut
from tosajax.runtime.rows import Progress, in_parts, silent
from tosajax.runtime.watch import Watch, activations, computed_outputs, takes_examples


def compare(
    a: Graph,
    b: Other,
    *inputs: Value,
    tensors: str | None = None,
    outputs_only: bool = False,
    local: bool = False,
    real: Scales | None = None,
    tolerance: Tolerance | None = None,
    batch: int = 32,
    examples: int = 16,
    seed: int = 0,
    clip: bool = False,
    progress: Progress = silent,
) -> Comparison:
    """Compares the tensors that a graph computes with the same tensors of another program.

    Memory does not grow with the number of examples. Each example is computed as if it were alone,
    even if the batch is open.

    Args:
      a: a graph; dimensions apart from the batch are known.
      b: the reference program. One of: another graph, or the path of its file, whose tensors match
        by name or, if the names differ, by the order of equal operators; "ref" or
        "reference_model", which runs a on Arm's reference model; a `tflite`, or the path of a
        .tflite file, which runs on LiteRT's reference kernels; stored tensors: a dictionary, the
        path of an .npz file with names of tensors or of locations, or paths of .npy files for the
        outputs in order.
      inputs: a's inputs, examples stacked as for `tosajax run`; random inputs if none are given.
      tensors: a regular expression, found in the names of the tensors to compare.
      outputs_only: whether to compare only the outputs of a, which takes less memory and time.
      local: whether to measure each layer by itself as well; see `Row.local`.
      real: the scale and zero point of integer tensors by name, for tensors that are integers in
        one program and floats, or integers of another scale, in the other. They take precedence
        over `Graph.quantization`. Tensors without a scale are left out.
      tolerance: the largest accepted differences. By default integers have to be equal, and floats
        within the bounds of the specification, summed over the operators before a tensor; see
        `Tolerance` and `tosajax.compare.tolerance`. `Tolerance(floats=False)` requires equality.
      batch: the number of examples in a batch.
      examples: the number of random examples.
      seed: the seed of random examples.
      clip: whether to saturate real inputs silently, however many are out of the range of their
        scale; by default more than 1 % are an error, and fewer a warning.
      progress: wraps the loop over batches, given their number; its items have no meaning.

    Raises:
      TosaError: a graph is illegal.
      ImportError: the other program is not installed.
      ValueError: there is nothing to compare, or an array has the wrong shape.
      TypeError: an array has the wrong type.

    Example:
      >>> import numpy as np
      >>> import tosajax
      >>> from tosajax.compare import compare
      >>> b = tosajax.Builder()
      >>> x = b.input("x", tosajax.DType.INT8, (1, 4))
      >>> a = b.graph([b.op("CLAMP", x, min_val=np.int8(0), max_val=np.int8(100), name="y")])
      >>> b = tosajax.Builder()
      >>> x = b.input("x", tosajax.DType.INT8, (1, 4))
      >>> other = b.graph([b.op("CLAMP", x, min_val=np.int8(0), max_val=np.int8(99), name="y")])
      >>> comparison = compare(a, other, np.int8([[1, 99, 100, 101]]))
      >>> bool(comparison), comparison.rows[0].total.mismatches, comparison.rows[0].total.max_error
      (False, 2, 1)
    """
    name = os.fspath(b) if isinstance(b, str | os.PathLike) else ""
    b = named(b)
    a = bind(_with_scales(a, b, inputs), batch=1)
    rows = example_rows(a, inputs, examples, seed, clip=clip)
    count = rows[0].shape[0] if rows else 1
    batch = min(batch, count)
    names = _names(a, tensors, outputs_only)
    other = program(b, a, names, batch, count)
    is_free = clip or not inputs  # random inputs are not in the units of a scale
    pairs = Pairs(a, other, names, real or {}, tolerance or Tolerance(), clip=is_free)
    mine = Watch(a, pairs.names, batch)
    layers = _Layers(a, pairs, batch) if local else None
    notes = _notes(a, names, pairs, other, layers)
    if layers and not layers.are_apart:
        layers = None
    for part in in_parts(rows, batch, progress):
        their_inputs = pairs.inputs(part)
        theirs = other.run(their_inputs)
        pairs.add(mine(part), theirs)
        if layers:
            pairs.add_local(layers(their_inputs, theirs), theirs)
    return Comparison(pairs.rows(), count, (title(a), title(b, name)), notes)


def _with_scales(a: Graph, b: Other, inputs: Sequence[Any]) -> Graph:
    """The graph with the scales of its TFLite model, if inputs are real numbers."""
    are_real = any(not isinstance(x, BlockScaled) and x.dtype.kind == "f" for x in inputs)
    if not isinstance(b, TFLite) or not are_real:
        return a
    quantization = {**scales_of_tflite(b.path, a), **a.quantization}
    return dataclasses.replace(a, quantization=quantization)


def _names(graph: Graph, pattern: str | None, outputs_only: bool) -> tuple[str, ...]:
    if outputs_only:
        return computed_outputs(graph)
    names = activations(graph, pattern)
    return names if pattern else tuple(dict.fromkeys((*names, *computed_outputs(graph))))


def _notes(
    graph: Graph, names: Sequence[str], pairs: Pairs, other: Program, layers: _Layers | None
) -> tuple[str, ...]:
    """Notes on unmatched tensors, if any, on local errors without them, and b's remarks."""
    matched, wanted = len(pairs.names), len(names)
    reasons = [text for text in (other.unmatched, pairs.without_scale) if text]
    why = f": {'; '.join(reasons)}" if reasons and matched < wanted else ""
    apart = "; local is of all layers since the last that matched" if layers else ""
    notes = [f"{matched} of {wanted} tensors matched{apart}{why}"] if why else []
    if layers and not layers.are_apart:
        wanted = len(set(activations(graph)) | set(pairs.names))
        notes = [
            f"{matched} of {wanted} tensors matched; local measures nothing, as none between the "
            f"inputs and these did{why}"
        ]
    return (*notes, *([other.remarks] if other.remarks else ()))


class _Layers:
    """Runs each layer of a graph on the other program's tensors."""

    def __init__(self, graph: Graph, pairs: Pairs, batch: int) -> None:
        separated = [n for n in pairs.names if takes_examples(graph.tensors[n])]
        apart, self._renamed = cut(graph, pairs.names, separated)
        self._cuts = apart.inputs[len(graph.inputs) :]
        # Without a cut every layer runs from the inputs on, which measures no layer by itself
        # unless all tensors matched.
        self.are_apart = bool(self._cuts) or set(activations(graph)) <= set(pairs.names)
        self._pairs = pairs
        self._watch = Watch(apart, tuple(self._renamed.values()), batch)

    def __call__(self, rows: Sequence[np.ndarray], theirs: Arrays) -> Arrays:
        inputs = self._pairs.inputs_as_mine(rows)
        cuts = [self._pairs.as_mine(name, theirs[name]) for name in self._cuts]
        values = self._watch([*inputs, *cuts])
        return {name: values[new] for name, new in self._renamed.items()}
