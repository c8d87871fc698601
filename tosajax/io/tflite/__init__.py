"""Reads TFLite files as graphs, by Arm's converter.

`pip install "tosajax[from-tflite]"` brings it.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from tosajax.graph import Graph, Rewrite, Source
from tosajax.graph.edit import unused
from tosajax.io import naming, reopening
from tosajax.io.leftovers import left_over, of_int64
from tosajax.io.programs import Program, run
from tosajax.io.stored import Fields
from tosajax.io.tflite import edits, real, schema
from tosajax.io.tflite.scales import scales_of
from tosajax.report import UnsupportedError

__all__ = ["read"]

_CONVERTER = Program("tosa-converter-for-tflite", "tosa-converter-for-tflite", "from-tflite")
_MODEL, _RESULT = "model.tflite", "model.mlir"
_PLACE = f"({_MODEL}:0:0)"  # follows the name of a tensor in a location
_Shapes = Mapping[str, Sequence[int]]


def read(
    data: memoryview,
    batch: int | None = None,
    shapes: _Shapes | None = None,
    *,
    as_floats: bool = False,
) -> Graph:
    """Reads a TFLite file as a graph.

    Inputs and outputs have the file's names, integers the file's scales. A batch that the file
    leaves open is open in the graph, if the converter makes the same graph for any size.

    Args:
      data: the content of a file.
      batch: the size of an open first dimension of inputs.
      shapes: shapes of inputs that have open dimensions, by name.
      as_floats: whether a quantized file becomes the graph of its real numbers; see `real`.

    Raises:
      FormatError: the file is broken.
      UnsupportedError: an operator has no TOSA.
      ValueError: a shape is not one of an input with open dimensions.
      ImportError: the converter is not installed.
    """
    stored = schema.checked(data)
    _check_types(stored["subgraphs"][0])
    _CONVERTER.path  # noqa: B018  raises before the work
    reading = _Reading(data, stored, as_floats=as_floats)
    wanted = edits.Model(data).open_inputs
    given = _given(wanted, batch, shapes or {})
    if given or not wanted:
        return reading.graph(given)
    return reading.opened(wanted) or reading.closed(wanted)


class _Reading:
    """One file that is converted, once or for several shapes of its inputs.

    Args:
      data: the content of the file.
      stored: the same as nested fields.
      as_floats: as for `read`.
    """

    def __init__(self, data: memoryview, stored: Fields, *, as_floats: bool) -> None:
        self._data, self._as_floats = data, as_floats
        self._main: Fields = stored["subgraphs"][0]
        version = f"{stored['version']}, converted by {_CONVERTER.version}"
        self._source = Source("TFLite flatbuffer", version, stored["description"] or "")

    def graph(self, shapes: _Shapes) -> Graph:
        """The graph for these shapes of inputs, by name; of the file's shapes for others."""
        model = edits.Model(self._data)
        model.simplify()
        model.refuse_custom()
        if self._as_floats:
            real.in_floats(model)
        model.close(shapes)
        graph = self._loaded(_converted(model.content()))
        rewrites = (*model.rewrites, *graph.source.rewrites)
        source = dataclasses.replace(self._source, rewrites=rewrites)
        return dataclasses.replace(graph, source=source)

    def opened(self, inputs: Mapping[str, edits.OpenInput]) -> Graph | None:
        """The graph with an open batch; None where the converter makes none."""
        if not any(each.signature[0] == edits.OPEN for each in inputs.values()):
            return None
        try:
            graphs = [self.graph(_of_batch(inputs, batch)) for batch in reopening.SIZES]
        except UnsupportedError:
            return None
        return reopening.opened(graphs)

    def closed(self, inputs: Iterable[str]) -> Graph:
        """The graph of the shapes in the file, with a note on those that are open there."""
        graph = self.graph({})
        notes = [
            Rewrite(
                f"input {name!r}",
                f"{graph.tensors[name]}, the file's sizes of open dimensions",
                "for other sizes load it with batch= or shapes=",
            )
            for name in inputs
        ]
        source = dataclasses.replace(graph.source, rewrites=(*graph.source.rewrites, *notes))
        return dataclasses.replace(graph, source=source)

    def _loaded(self, text: bytes) -> Graph:
        from tosajax.io import mlir

        self._refuse_left_over(text)
        graph = naming.with_locations(mlir.read_text(text), lambda at: at.replace(_PLACE, ""))
        inputs = self._names("inputs")
        outputs = self._names("outputs", inputs)
        graph = naming.with_ends(graph, inputs, outputs)
        at: dict[str, list[str]] = {}
        for node in graph.ordered_nodes():
            at.setdefault(node.location or "", []).extend(node.outputs)
        return dataclasses.replace(graph, quantization=scales_of(self._main, graph, at))

    def _refuse_left_over(self, text: bytes) -> None:
        """Refuses what the converter leaves in TFLite's own dialect.

        Raises:
          UnsupportedError: there is such an operation; the message names it and its tensor.
        """
        if found := left_over(text, "tfl"):
            raise UnsupportedError(
                f"operator {found.operation.upper()} of tensor {found.place!r} has no TOSA in "
                f"{_CONVERTER.version}: change it, or cut this part of the TFLite model"
            )
        if found := of_int64(text):
            raise UnsupportedError(
                f"{found.operation.upper()} of tensor {found.place!r} computes in int64, which "
                "TOSA 1.0 does not have: use int32, or cut this part of the TFLite model"
            )

    def _names(self, role: str, taken: Collection[str] = ()) -> list[str]:
        """The names of inputs or outputs, each its own."""
        names = dict.fromkeys(taken)
        for index in schema.listed(self._main, role):
            name = self._main["tensors"][index]["name"] or f"{role[:-1]}_{index}"
            names[unused(name, names)] = None
        return list(names)[len(taken) :]


def _check_types(main: Fields) -> None:
    """Refuses inputs of a type that TOSA does not have.

    Raises:
      UnsupportedError: an input is int64.
    """
    for index in schema.listed(main, "inputs"):
        tensor = main["tensors"][index]
        if tensor["type"] == schema.INT64:
            message = f"input {tensor['name']!r} is int64, which TOSA 1.0 does not have"
            raise UnsupportedError(f"{message}: use int32 in the TFLite model")


def _given(
    inputs: Mapping[str, edits.OpenInput], batch: int | None, shapes: _Shapes
) -> dict[str, tuple[int, ...]]:
    """The shapes of inputs that the caller gives, by name.

    Raises:
      ValueError: a shape is not one of an input with open dimensions.
    """
    for name, shape in shapes.items():
        if name not in inputs:
            names = ", ".join(map(repr, inputs)) or "none"
            raise ValueError(f"shapes names {name!r}; inputs with open dimensions: {names}")
        if not inputs[name].allows(shape):
            signature = inputs[name].signature
            raise ValueError(f"input {name!r} has shape {signature}, it cannot have {tuple(shape)}")
    given = {name: tuple(shape) for name, shape in shapes.items()}
    return given if batch is None else _of_batch(inputs, batch) | given


def _of_batch(inputs: Mapping[str, edits.OpenInput], batch: int) -> dict[str, tuple[int, ...]]:
    return {name: open_input.of_batch(batch) for name, open_input in inputs.items()}


def _converted(content: bytes) -> bytes:
    """The MLIR text of a TFLite file.

    Raises:
      UnsupportedError: the converter refuses the file.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / _MODEL).write_bytes(content)
        command = [_CONVERTER.path, "--text", "--emit-debug-info", _MODEL, "-o", _RESULT]
        failure = run(command, folder, len(content))
        if failure is None:
            return (folder / _RESULT).read_bytes()
    place = f" tensor {failure.place!r}:" if failure.place not in ("", _MODEL) else ""
    raise UnsupportedError(f"{_CONVERTER.version} refuses the model:{place} {failure.message}")
