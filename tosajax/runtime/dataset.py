"""Runs a graph over stacked examples, batch by batch."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from tosajax.arguments.types import count
from tosajax.block_scaled import Value, on_host
from tosajax.graph import DYNAMIC, Graph, Tensor, declared_variables, shape_fits
from tosajax.graph.quantization import dequantize, integers_of
from tosajax.graph.zero_points import unsigned_tensors
from tosajax.lowering.inputs import typed
from tosajax.runtime.executable import Executable, compile
from tosajax.runtime.rows import Progress, filled, in_parts, silent


@dataclasses.dataclass(frozen=True)
class Dataset:
    """The examples of a data set, one value for each input of a graph.

    Args:
      arrays: each (count, *shape of one example), in NumPy arrays.
      stacked: whether each example has the whole input shape of the graph, and the arrays one axis
        more; if not, examples lie along the first dimension of the inputs.
    """

    arrays: tuple[Any, ...]
    stacked: bool

    @classmethod
    def of(cls, graph: Graph, values: Sequence[Any], *, clip: bool = False) -> Dataset:
        """Makes a data set of values: (count, *shape), or (count, *shape[1:]) if shape[0] is 1, -1.

        Real numbers for an input of integers are quantized if `Graph.quantization` has its scale.

        Args:
          graph: the graph that takes them.
          values: one value for each input, in NumPy arrays.
          clip: see `graph.quantization.integers_of`.

        Raises:
          TypeError: an element type is wrong.
          ValueError: there are too few or too many arrays, a shape fits neither form, the counts
            differ, or many real numbers are beyond the range of a scale.
        """
        tensors = graph.input_tensors
        if len(values) != len(tensors):
            names = ", ".join(graph.inputs)
            raise ValueError(f"{len(values)} inputs, the graph has {len(tensors)} ({names})")
        if not tensors:
            raise ValueError(f"graph {graph.name!r} has no inputs, so that no data set fits it")
        rows = [_typed(graph, t, x, clip) for t, x in zip(tensors, values, strict=True)]
        ranks = [x.ndim - len(t.shape or ()) for t, x in zip(tensors, rows, strict=True)]
        stacked = bool(ranks) and all(rank == 1 for rank in ranks)
        for tensor, value in zip(tensors, rows, strict=True):
            _check_shape(tensor, value, stacked)
        counts = {x.shape[0] for x in rows}
        if len(counts) > 1:
            raise ValueError(f"inputs have different numbers of examples: {sorted(counts)}")
        if 0 in counts:
            raise ValueError("the data set has no examples")
        return cls(tuple(rows), stacked)

    @property
    def count(self) -> int:
        return self.arrays[0].shape[0]

    @property
    def rows(self) -> tuple[Any, ...]:
        """The examples of each input, (count, *shape of the graph's input for one example)."""
        return self.arrays if self.stacked else jax.tree.map(lambda x: x[:, None], self.arrays)

    def run(self, graph: Graph, batch: int, progress: Progress = silent) -> list[Any]:
        """Runs all examples, `batch` of them in a call.

        In a graph with variables, examples run one by one, in order, for any `batch`.

        Returns:
          One value for each output, in NumPy arrays, examples on the first axis as in the inputs.
        """
        whole = self.stacked and not all(_carries_batch(t) for t in graph.input_tensors)
        size = 1 if whole or declared_variables(graph) else min(batch, self.count)
        executable = compile(graph, batch=None if whole else size)
        parts = [
            self._call(executable, rows, size, whole)
            for rows in in_parts(self.arrays, size, progress)
        ]
        return [
            self._joined(pieces).reshape(self._result_shape(tensor, pieces[0]))
            for tensor, pieces in zip(graph.output_tensors, zip(*parts, strict=True), strict=True)
        ]

    def _call(
        self, executable: Executable, rows: Sequence[Any], size: int, whole: bool
    ) -> list[Any]:
        inputs = [filled(x, size) for x in rows]
        if whole:
            inputs = [x.reshape(x.shape[1:]) for x in inputs]
        elif self.stacked:
            inputs = [x.reshape((size, *x.shape[2:])) for x in inputs]
        outputs = [on_host(y) for y in executable(*inputs)]
        return jax.tree.map(lambda y: y[None], outputs) if whole else outputs

    def _joined(self, pieces: Sequence[Any]) -> Any:
        return jax.tree.map(lambda *parts: np.concatenate(parts)[: self.count], *pieces)

    def _result_shape(self, tensor: Tensor, piece: Any) -> tuple[int, ...]:
        """The shape of all results; whole examples get back their axis of size 1."""
        rest = piece.shape[1:]
        extra = self.stacked and len(rest) < len(tensor.shape or ())
        return (self.count, 1, *rest) if extra else (self.count, *rest)


def run(
    graph: Graph,
    *inputs: Value,
    batch: int = 32,
    real: bool = False,
    clip: bool = False,
    progress: Progress = silent,
) -> tuple[Any, ...]:
    """Runs a graph over any number of examples, each as it would be alone.

    Args:
      graph: a graph with inputs. Each call compiles it; `compile` compiles it once.
      inputs: one array for each input, in the graph's order: (count, *shape), or (count,
        *shape[1:]) where the first dimension of the shape is 1 or open. Real numbers for an input
        of integers are quantized by its scale, `Graph.quantization`.
      batch: examples in one call.
      real: whether integer outputs are returned as the real numbers they represent, float32.
      clip: whether real inputs may lie beyond the range of their scale; they saturate.
      progress: wraps the loop over batches, given their number; its items have no meaning.

    Returns:
      An array for each output, the examples on the first axis as in the inputs.

    Raises:
      TosaError: the graph is illegal.
      TypeError: the type of an input is wrong; real numbers need a scale.
      ValueError: the number of inputs or a shape is wrong, or an output has no scale for `real`.

    Example:
      >>> import numpy as np
      >>> import tosajax
      >>> b = tosajax.Builder()
      >>> x = b.input("x", tosajax.DType.INT8, (1, 3))
      >>> graph = b.graph([b.op("REVERSE", x, axis=1)])
      >>> (y,) = tosajax.run(graph, np.arange(30, dtype=np.int8).reshape(10, 3), batch=4)
      >>> y.shape, y[0].tolist()
      ((10, 3), [2, 1, 0])
    """
    batch = count("batch", batch)
    if real:
        _check_scales(graph)
    data = Dataset.of(graph, [on_host(x) for x in inputs], clip=clip)
    results = data.run(graph, batch, progress)
    return tuple(_real(graph, results) if real else results)


def _check_scales(graph: Graph) -> None:
    for tensor in graph.output_tensors:
        if tensor.dtype.is_integer and tensor.name not in graph.quantization:
            raise ValueError(
                f"real=True (--real): output {tensor.name!r}, {tensor}, has no scale in "
                "Graph.quantization (--output-quant)"
            )


def _real(graph: Graph, results: Sequence[Any]) -> list[Any]:
    """Converts results to real numbers; floats and bool are unchanged."""
    unsigned = unsigned_tensors(graph)
    pairs = zip(graph.output_tensors, results, strict=True)
    return [
        dequantize(y, t, graph.quantization[t.name], unsigned=t.name in unsigned)
        if t.name in graph.quantization
        else y
        for t, y in pairs
    ]


def _typed(graph: Graph, tensor: Tensor, value: Any, clip: bool) -> Any:
    def unsigned() -> set[str]:
        return unsigned_tensors(graph)

    is_real = tensor.dtype.is_integer and value.dtype.kind == "f"
    if is_real and (scale := graph.quantization.get(tensor.name)):
        return integers_of(value, tensor, scale, unsigned=tensor.name in unsigned(), clip=clip)
    hint = ", or its scale (--input-quant, Graph.quantization)" if is_real else ""
    return typed(tensor, value, unsigned, in_files=True, hint=hint)


def _check_shape(tensor: Tensor, value: Any, stacked: bool) -> None:
    shape = tensor.shape or ()
    one = (1, *shape[1:]) if _carries_batch(tensor) else shape
    fits = shape_fits(value.shape, (DYNAMIC, *(one if stacked else shape[1:])))
    if not fits or not (stacked or _carries_batch(tensor)):
        dims = ", ".join("?" if d == DYNAMIC else str(d) for d in shape)
        options = f"(count, {dims})"
        if _carries_batch(tensor):
            options += f" or (count{''.join(f', {d}' for d in shape[1:])})"
        raise ValueError(
            f"input {tensor.name!r}: the data has shape {value.shape}, expected {options}"
        )


def _carries_batch(tensor: Tensor) -> bool:
    return bool(tensor.shape) and tensor.shape[0] in (1, DYNAMIC)
