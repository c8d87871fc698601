"""Reads a graph's scales from the TFLite model that it was converted from, without LiteRT."""

from __future__ import annotations

import os

from tosajax.compare._model_files import read
from tosajax.graph import Graph, Quantization
from tosajax.graph.locations import tensors_at
from tosajax.io.tflite.scales import scales_of
from tosajax.io.tflite.schema import IDENTIFIER, MODEL
from tosajax.report import FormatError


def scales_of_tflite(path: str | os.PathLike[str], graph: Graph) -> dict[str, Quantization]:
    """Reads the scales of a graph's integers from the TFLite model that it was converted from.

    Inputs and outputs are matched by their order, all other tensors by the names in the locations
    of the graph's nodes.

    Args:
      path: the path of the .tflite file.
      graph: the graph converted from it.

    Returns:
      The quantization of tensors, as far as the model has it, by the graph's names.

    Raises:
      FormatError: the file is not a TFLite model, or damaged.
      ValueError: the number of its inputs or outputs is not the graph's.
      OSError: the file cannot be read.

    Example:
      >>> import tosajax
      >>> from tosajax.compare import scales_of_tflite
      >>> graph = tosajax.load("model.tosa")  # doctest: +SKIP
      >>> scales = scales_of_tflite("model.tflite", graph)  # doctest: +SKIP
    """
    subgraphs = read(path, IDENTIFIER, "a TFLite model", MODEL, "subgraphs")
    if not subgraphs:
        raise FormatError(f"{path} has no subgraph")
    try:
        return scales_of(subgraphs[0], graph, tensors_at(graph))
    except ValueError as error:
        raise type(error)(f"{path}: {error}") from None
