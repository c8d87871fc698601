"""dump: the values of every tensor of a graph, by name."""

from __future__ import annotations

import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy

from tosajax.arguments.types import count
from tosajax.atomic import check_folder, replacing
from tosajax.block_scaled import Value, on_host
from tosajax.dtypes import npy_type
from tosajax.graph import Graph, Tensor
from tosajax.passes.binding import bind
from tosajax.runtime.dataset import Dataset
from tosajax.runtime.rows import Progress, in_parts, silent
from tosajax.runtime.watch import Watch, activations


class _Run:
    """The tensors of a graph, batch by batch.

    Args:
      graph, inputs, tensors, batch, clip, progress: as for `dump`.
    """

    def __init__(
        self,
        graph: Graph,
        inputs: tuple[Value, ...],
        tensors: str | None,
        batch: int,
        clip: bool,
        progress: Progress,
    ) -> None:
        graph = bind(graph, batch=1)
        self._data = Dataset.of(graph, [on_host(x) for x in inputs], clip=clip)
        self.size = min(count("batch", batch), self._data.count)
        self._watch = Watch(graph, activations(graph, tensors), self.size)
        self._progress = progress
        self.tensors = [graph.tensors[name] for name in self._watch.names]

    def shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of all examples of a tensor, laid out as the inputs are."""
        rest = shape if self._data.stacked or shape[:1] != (1,) else shape[1:]
        return (self._data.count, *rest)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """The tensors of each batch, values (examples, *shape)."""
        yield from map(self._watch, in_parts(self._data.rows, self.size, self._progress))


def dump(
    graph: Graph,
    *inputs: Value,
    tensors: str | None = None,
    batch: int = 32,
    clip: bool = False,
    progress: Progress = silent,
) -> dict[str, Any]:
    """Computes the tensors of a graph; each example is computed as if it were alone.

    Args:
      graph: a graph with inputs; all dimensions except the batch are known.
      inputs: one array for each input, any number of examples, as for `tosajax.run`; real numbers
        are quantized by `Graph.quantization`.
      tensors: a regular expression that is searched for in names; by default all tensors that
        depend on the inputs.
      batch: the number of examples that run at a time.
      clip: whether real inputs beyond the range of their scale saturate without a message; by
        default, more than 1 % of them are an error, and fewer a warning.
      progress: wraps the loop over batches, given their number; its items have no meaning.

    Returns:
      Values by name, in the order of computation, in NumPy arrays of `dtype.parts`; examples on
      the first axis, as in the inputs.

    Raises:
      TosaError: the graph is illegal.
      ValueError: a shape is wrong, no tensor matches, or real inputs are beyond their range.
      TypeError: the type of an input is wrong.

    Example:
      >>> import numpy as np
      >>> import tosajax
      >>> b = tosajax.Builder()
      >>> x = b.input("x", tosajax.DType.INT8, (1, 3))
      >>> y = b.op("REVERSE", x, axis=1, name="y")
      >>> graph = b.graph([b.op("CLAMP", y, min_val=np.int8(0), max_val=np.int8(2), name="z")])
      >>> values = tosajax.dump(graph, np.int8([[1, 2, 3]]))
      >>> {name: array.tolist() for name, array in values.items()}
      {'y': [[3, 2, 1]], 'z': [[2, 2, 1]]}
    """
    run = _Run(graph, inputs, tensors, batch, clip, progress)
    dumped = {t.name: t.dtype.zeros(run.shape(t.shape or ())) for t in run.tensors}
    start = 0
    for part in run:
        for tensor in run.tensors:
            whole, rows = (tensor.dtype.arrays(x[tensor.name]) for x in (dumped, part))
            for array, values in zip(whole, rows, strict=True):
                room = array[start : start + len(values)]
                room[...] = values.reshape(room.shape)
        start += run.size
    return dumped


def dump_npz(
    path: str | os.PathLike[str],
    graph: Graph,
    *inputs: Value,
    tensors: str | None = None,
    batch: int = 32,
    clip: bool = False,
    progress: Progress = silent,
) -> dict[str, tuple[int, ...]]:
    """Writes the results of `dump` to an .npz file; memory holds one batch at a time.

    Arrays are named like the tensors, the scales of a block-scaled tensor `y` are `y_scale`; bf16
    and fp8 are written as bits, in uint16 and uint8. The file appears when it is complete.

    Returns:
      Shapes by name.

    Raises:
      ValueError: as for `dump`, or two arrays would have the same name.

    Example:
      >>> import pathlib
      >>> import tempfile
      >>> import numpy as np
      >>> import tosajax
      >>> from tosajax.runtime.dump import dump_npz
      >>> b = tosajax.Builder()
      >>> x = b.input("x", tosajax.DType.INT8, (1, 3))
      >>> graph = b.graph([b.op("REVERSE", x, axis=1, name="y")])
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     shapes = dump_npz(pathlib.Path(folder) / "y.npz", graph, np.int8([[1, 2, 3]]))
      >>> shapes
      {'y': (1, 3)}
    """
    check_folder(path)
    run = _Run(graph, inputs, tensors, batch, clip, progress)
    shapes = {t.name: run.shape(t.shape or ()) for t in run.tensors}
    names = _names_in_file(run.tensors)
    parent = Path(path).resolve().parent
    with tempfile.TemporaryDirectory(dir=parent, prefix=".dump-") as folder:
        files = {name: Path(folder) / str(n) for n, name in enumerate(names)}
        for tensor in run.tensors:
            parts = tensor.dtype.parts(shapes[tensor.name])
            for name, part in zip(tensor.dtype.names(tensor.name), parts, strict=True):
                _start(files[name], part.shape, npy_type(part.dtype))
        for batch_values in run:
            for tensor in run.tensors:
                arrays = tensor.dtype.arrays(batch_values[tensor.name])
                for name, array in zip(tensor.dtype.names(tensor.name), arrays, strict=True):
                    with open(files[name], "ab") as file:
                        file.write(array.view(npy_type(array.dtype)).tobytes())
        with replacing(path) as whole:
            _pack(whole, files)
    return shapes


def _names_in_file(tensors: Sequence[Tensor]) -> dict[str, str]:
    """The tensors of the arrays in a file, by the names of the arrays."""
    names: dict[str, str] = {}
    for tensor in tensors:
        for name in tensor.dtype.names(tensor.name):
            other = names.setdefault(name, tensor.name)
            if other != tensor.name:
                raise ValueError(
                    f"{name!r} would be two arrays of the file: of tensors {other!r} and "
                    f"{tensor.name!r}; choose one of them with tensors="
                )
    return names


def _start(path: Path, shape: tuple[int, ...], dtype: np.dtype) -> None:
    """Writes the header of an .npy file."""
    header = {"descr": npy.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    with open(path, "wb") as file:
        npy.write_array_header_1_0(file, header)


def _pack(file: Any, members: dict[str, Path]) -> None:
    with zipfile.ZipFile(file, "w") as archive:
        for name, path in members.items():
            with (
                open(path, "rb") as source,
                archive.open(f"{name}.npy", "w", force_zip64=True) as target,
            ):
                shutil.copyfileobj(source, target)
