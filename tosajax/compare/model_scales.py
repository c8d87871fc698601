"""Reads a graph's scales from the model that it was converted from."""

from __future__ import annotations

import os

from tosajax.compare import etrecord, executorch_scales, tflite_scales
from tosajax.compare._model_files import identifier_of
from tosajax.compare.etrecord_scales import scales_of_etrecord
from tosajax.graph import Graph, Quantization
from tosajax.io.tflite.schema import IDENTIFIER
from tosajax.report import FormatError


def scales_of_model(path: str | os.PathLike[str], graph: Graph) -> dict[str, Quantization]:
    """Reads the scales of a graph from a TFLite model, an ExecuTorch program or its ETRecord.

    See `scales_of_tflite`, `scales_of_executorch` and `scales_of_etrecord`. The content of the file
    decides which one is used.

    Raises:
      FormatError: the file has none of these formats, or is damaged.
      ValueError: the file does not fit the graph.
      OSError: the file cannot be read.

    Example:
      >>> import dataclasses
      >>> import tosajax
      >>> from tosajax.compare import scales_of_model
      >>> graph = tosajax.load("model.tosa")  # doctest: +SKIP
      >>> scales = scales_of_model("model.tflite", graph)  # doctest: +SKIP
      >>> graph = dataclasses.replace(graph, quantization=scales)  # doctest: +SKIP
    """
    if etrecord.is_archive(path):
        return scales_of_etrecord(path, graph)
    identifier = identifier_of(path)
    if identifier == IDENTIFIER:
        return tflite_scales.scales_of_tflite(path, graph)
    if identifier == executorch_scales.IDENTIFIER:
        return executorch_scales.scales_of_executorch(path, graph)
    raise FormatError(f"{path} is neither a TFLite model nor an ExecuTorch program or its ETRecord")
