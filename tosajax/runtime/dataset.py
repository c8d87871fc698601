"""Runs a graph over stacked examples, batch by batch."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from tosajax.arguments.types import count
from tosajax.graph import DYNAMIC, Graph, Tensor, declared_variables, shape_fits
from tosajax.graph.quantization import dequantize, integers_of
from tosajax.graph.zero_points import unsigned_tensors
from tosajax.lowering.inputs import typed
from tosajax.runtime.executable import Executable, compile
from tosajax.runtime.inputs import Array
from tosajax.runtime.rows import Progress, filled, in_parts, silent


@dataclasses.dataclass(frozen=True)
class Dataset:
    """The examples of a data set, one array for each input of a graph.

    Args:
      arrays: each (count, *shape of one example).
      stacked: whether each example has the whole input shape of the graph, and the arrays one axis
        more; if not, examples lie along the first dimension of the inputs.
    """

    arrays: tuple[np.ndarray, ...]
    stacked: bool

    @classmethod
    def of(cls, graph: Graph, arrays: Sequence[np.ndarray], *, clip: bool = False) -> Dataset:
        """Makes a data set of arrays: (count, *shape), or (count, *shape[1:]) if shape[0] is 1, -1.

        Real numbers for an input of integers are quantized if `Graph.quantization` has its scale.

        Args:
          graph: the graph that takes them.
          arrays: one array for each input.
          clip: see `graph.quantization.integers_of`.

        Raises:
          TypeError: an element type is wrong.
          ValueError: there are too few or too many arrays, a shape fits neither form, the counts
            differ, or many real numbers are beyond the range of a scale.
        """
        tensors = graph.input_tensors
        if len(arrays) != len(tensors):
            names = ", ".join(graph.inputs)
            raise ValueError(f"{len(arrays)} inputs, the graph has {len(tensors)} ({names})")
        if not tensors:
            raise ValueError(f"graph {graph.name!r} has no inputs, so that no data set fits it")
        found = [_typed(graph, t, a, clip) for t, a in zip(tensors, arrays, strict=True)]
        ranks = [a.ndim - len(t.shape or ()) for t, a in zip(tensors, found, strict=True)]
        stacked = bool(ranks) and all(rank == 1 for rank in ranks)
        for tensor, array in zip(tensors, found, strict=True):
            _check_shape(tensor, array, stacked)
        counts = {len(a) for a in found}
        if len(counts) > 1:
            raise ValueError(f"inputs have different numbers of examples: {sorted(counts)}")
        if 0 in counts:
            raise ValueError("the data set has no examples")
        return cls(tuple(found), stacked)

    @property
    def count(self) -> int:
        return len(self.arrays[0])

    @property
    def rows(self) -> tuple[np.ndarray, ...]:
        """The examples of each input, (count, *shape of the graph's input for one example)."""
        return tuple(a if self.stacked else a[:, None] for a in self.arrays)

    def run(self, graph: Graph, batch: int, progress: Progress = silent) -> list[np.ndarray]:
        """Runs all examples, `batch` of them in a call.

        In a graph with variables, examples run one by one, in order, for any `batch`.

        Returns:
          One array for each output, examples on the first axis as in the inputs.
        """
        whole = self.stacked and not all(_carries_batch(t) for t in graph.input_tensors)
        size = 1 if whole or declared_variables(graph) else min(batch, self.count)
        executable = compile(graph, batch=None if whole else size)
        parts = [
            self._call(executable, rows, size, whole)
            for rows in in_parts(self.arrays, size, progress)
        ]
        return [
            np.concatenate(pieces)[: self.count].reshape(self._result_shape(tensor, pieces[0]))
            for tensor, pieces in zip(graph.output_tensors, zip(*parts, strict=True), strict=True)
        ]

    def _call(
        self, executable: Executable, rows: Sequence[np.ndarray], size: int, whole: bool
    ) -> list[np.ndarray]:
        inputs = [filled(x, size) for x in rows]
        if whole:
            inputs = [a[0] for a in inputs]
        elif self.stacked:
            inputs = [a.reshape(size, *a.shape[2:]) for a in inputs]
        outputs = [np.asarray(y) for y in executable(*inputs)]
        return [y[None] for y in outputs] if whole else outputs

    def _result_shape(self, tensor: Tensor, piece: np.ndarray) -> tuple[int, ...]:
        """The shape of all results; whole examples get back their axis of size 1."""
        rest = piece.shape[1:]
        extra = self.stacked and len(rest) < len(tensor.shape or ())
        return (self.count, 1, *rest) if extra else (self.count, *rest)


def run(
    graph: Graph,
    *inputs: Array,
    batch: int = 32,
    real: bool = False,
    clip: bool = False,
    progress: Progress = silent,
) -> tuple[np.ndarray, ...]:
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
    data = Dataset.of(graph, [np.asarray(x) for x in inputs], clip=clip)
    results = data.run(graph, batch, progress)
    return tuple(_real(graph, results) if real else results)


def _check_scales(graph: Graph) -> None:
    for tensor in graph.output_tensors:
        if tensor.dtype.is_integer and tensor.name not in graph.quantization:
            raise ValueError(
                f"real=True (--real): output {tensor.name!r}, {tensor}, has no scale in "
                "Graph.quantization (--output-quant)"
            )


def _real(graph: Graph, results: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Converts results to real numbers; floats and bool are unchanged."""
    unsigned = unsigned_tensors(graph)
    pairs = zip(graph.output_tensors, results, strict=True)
    return [
        dequantize(y, t, graph.quantization[t.name], unsigned=t.name in unsigned)
        if t.name in graph.quantization
        else y
        for t, y in pairs
    ]


def _typed(graph: Graph, tensor: Tensor, array: np.ndarray, clip: bool) -> np.ndarray:
    def unsigned() -> set[str]:
        return unsigned_tensors(graph)

    is_real = array.dtype.kind == "f" and tensor.dtype.is_integer
    if is_real and (known := graph.quantization.get(tensor.name)):
        return integers_of(array, tensor, known, unsigned=tensor.name in unsigned(), clip=clip)
    hint = ", or its scale (--input-quant, Graph.quantization)" if is_real else ""
    return np.asarray(typed(tensor, array, unsigned, in_files=True, hint=hint))


def _check_shape(tensor: Tensor, array: np.ndarray, stacked: bool) -> None:
    shape = tensor.shape or ()
    one = (1, *shape[1:]) if _carries_batch(tensor) else shape
    fits = shape_fits(array.shape, (DYNAMIC, *(one if stacked else shape[1:])))
    if not fits or not (stacked or _carries_batch(tensor)):
        dims = ", ".join("?" if d == DYNAMIC else str(d) for d in shape)
        options = f"(count, {dims})"
        if _carries_batch(tensor):
            options += f" or (count{''.join(f', {d}' for d in shape[1:])})"
        raise ValueError(
            f"input {tensor.name!r}: the data has shape {array.shape}, expected {options}"
        )


def _carries_batch(tensor: Tensor) -> bool:
    return bool(tensor.shape) and tensor.shape[0] in (1, DYNAMIC)
