"""Reads a graph's scales from the TFLite model that it was converted from, without LiteRT."""

from __future__ import annotations

import os
from collections.abc import Sequence

from tosajax.compare._model_files import SKIPPED, Fields, Stored, read, same_size, table
from tosajax.dtypes import DType
from tosajax.graph import Graph, Quantization, Tensor
from tosajax.graph.locations import tensors_at
from tosajax.graph.zero_points import unsigned_tensors
from tosajax.io.schema import Blob, Scalar, Vector
from tosajax.report import FormatError

IDENTIFIER = b"TFL3"
# The types with scales, by their TensorType numbers.
_TYPES = {
    3: Stored(DType.INT8, is_unsigned=True),
    7: Stored(DType.INT16),
    9: Stored(DType.INT8),
    16: Stored(DType.INT16, is_unsigned=True),
    17: Stored(DType.INT4),
}

# The part of "tensorflow/compiler/mlir/lite/schema/schema.fbs" that is needed to find the scales.
_QUANTIZATION = table(
    "QuantizationParameters",
    min=SKIPPED, max=SKIPPED, scale=Vector(Scalar.FLOAT32), zero_point=Vector(Scalar.INT64),
    details_type=Scalar.UINT8, details=SKIPPED, quantized_dimension=Scalar.INT32,
)  # fmt: skip
_TENSOR = table(
    "Tensor",
    shape=Vector(Scalar.INT32), type=Scalar.UINT8, buffer=Scalar.UINT32, name=Blob.TEXT,
    quantization=_QUANTIZATION, is_variable=Scalar.BOOL, sparsity=SKIPPED,
    shape_signature=SKIPPED, has_rank=Scalar.BOOL, variant_tensors=SKIPPED,
    external_buffer=SKIPPED,
)  # fmt: skip
_SUBGRAPH = table(
    "SubGraph",
    tensors=Vector(_TENSOR), inputs=Vector(Scalar.INT32), outputs=Vector(Scalar.INT32),
    operators=SKIPPED, name=SKIPPED, debug_metadata_index=Scalar.INT32,
)  # fmt: skip
_MODEL = table("Model", version=Scalar.UINT32, operator_codes=SKIPPED, subgraphs=Vector(_SUBGRAPH))


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
    main = _main(path)
    tensors: Sequence[Fields] = main["tensors"] or ()
    unsigned = unsigned_tensors(graph)
    result: dict[str, Quantization] = {}

    def add(tensor: Tensor, theirs: Fields) -> bool:
        quantization = _quantization(tensor, theirs, tensor.name in unsigned)
        if quantization is not None:
            result[tensor.name] = quantization
        return quantization is not None

    at = tensors_at(graph)
    for theirs in tensors:
        # A TFLite operator becomes several nodes: the last one whose type and shape fit computes
        # the operator's output.
        for name in reversed(at.get(theirs["name"] or "", [])):
            if add(graph.tensors[name], theirs):
                break
    for role, own in (("inputs", graph.input_tensors), ("outputs", graph.output_tensors)):
        indices = main[role] or ()
        if len(indices) != len(own):
            raise ValueError(f"{path} has {len(indices)} {role}, the graph has {len(own)}")
        for tensor, index in zip(own, indices, strict=True):
            if not 0 <= index < len(tensors):
                raise FormatError(f"{path}: {role} name tensor {index} of {len(tensors)}")
            add(tensor, tensors[index])
    return result


def _main(path: str | os.PathLike[str]) -> Fields:
    """The first subgraph of a model."""
    subgraphs = read(path, IDENTIFIER, "a TFLite model", _MODEL, "subgraphs")
    if not subgraphs:
        raise FormatError(f"{path} has no subgraph")
    return subgraphs[0]


def _quantization(tensor: Tensor, theirs: Fields, unsigned: bool) -> Quantization | None:
    """The quantization of a model's tensor; None if it has no scale or does not fit the graph's."""
    fields = theirs["quantization"] or {}
    stored = _TYPES.get(theirs["type"] or 0)
    scales, zero_points = fields.get("scale") or (), fields.get("zero_point") or (0,)
    if stored is None or not same_size(tensor, theirs["shape"] or ()):
        return None
    zero_points = zero_points[:1] if len(set(zero_points)) == 1 else zero_points
    axes = (fields.get("quantized_dimension") or 0,) if len(scales) > 1 else ()
    try:
        return stored.quantization(tensor, scales, zero_points, axes, unsigned=unsigned)
    except ValueError:
        return None  # no scale, or one of 0: the tensor is always 0
