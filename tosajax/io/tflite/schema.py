"""The schema of TFLite files as far as tosajax reads it, and checks of their content.

`checked` reads all that the converter follows, each offset within the file, so that nothing after
it meets a broken one. Options of operators are left to the converter.
Source: "tensorflow/compiler/mlir/lite/schema/schema.fbs".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tosajax.dtypes import DType
from tosajax.io import flatbuffer
from tosajax.io.schema import Blob, Scalar, Table, Union, Vector
from tosajax.io.stored import SKIPPED, Fields, Stored, table
from tosajax.report import FormatError

IDENTIFIER = b"TFL3"
# The types with scales, by their TensorType numbers.
TYPES = {
    3: Stored(DType.INT8, is_unsigned=True),
    7: Stored(DType.INT16),
    9: Stored(DType.INT8),
    16: Stored(DType.INT16, is_unsigned=True),
    17: Stored(DType.INT4),
}
INT64 = 4  # the number of another type
# The numbers of types by the bytes of an element; other types have elements of other kinds.
_OF_SIZE = {1: (3, 6, 9), 2: (1, 7, 16, 18), 4: (0, 2, 15), 8: (INT64, 8, 10, 12), 16: (11,)}
_SIZES = {number: size for size, numbers in _OF_SIZE.items() for number in numbers}
_LARGEST = 2**31 - 1  # elements of a tensor: TFLite counts them in int32

_INT32S = Vector(Scalar.INT32)
_QUANTIZATION = table(
    "QuantizationParameters",
    min=Vector(Scalar.FLOAT32), max=Vector(Scalar.FLOAT32), scale=Vector(Scalar.FLOAT32),
    zero_point=Vector(Scalar.INT64), details_type=Scalar.UINT8, details=SKIPPED,
    quantized_dimension=Scalar.INT32,
)  # fmt: skip
_OCTETS = table("Vector", values=Blob.OCTETS)
_INDICES: dict[int, Table] = dict.fromkeys((1, 2, 3), _OCTETS)  # vectors of int32, uint16, uint8
_DIMENSION = table(
    "DimensionMetadata",
    format=Scalar.UINT8, dense_size=Scalar.INT32, array_segments_type=Scalar.UINT8,
    array_segments=Union("array_segments_type", _INDICES), array_indices_type=Scalar.UINT8,
    array_indices=Union("array_indices_type", _INDICES),
)  # fmt: skip
_SPARSITY = table(
    "SparsityParameters",
    traversal_order=_INT32S, block_map=_INT32S, dim_metadata=Vector(_DIMENSION),
)  # fmt: skip
_VARIANT = table("VariantSubType", shape=_INT32S, type=Scalar.UINT8, has_rank=Scalar.BOOL)
_TENSOR = table(
    "Tensor",
    shape=_INT32S, type=Scalar.UINT8, buffer=Scalar.UINT32, name=Blob.TEXT,
    quantization=_QUANTIZATION, is_variable=Scalar.BOOL, sparsity=_SPARSITY,
    shape_signature=_INT32S, has_rank=Scalar.BOOL, variant_tensors=Vector(_VARIANT),
    external_buffer=Scalar.UINT32,
)  # fmt: skip
_OPERATOR = table(
    "Operator",
    opcode_index=Scalar.UINT32, inputs=_INT32S, outputs=_INT32S,
    builtin_options_type=Scalar.UINT8, builtin_options=SKIPPED, custom_options=Blob.OCTETS,
    custom_options_format=Scalar.UINT8, mutating_variable_inputs=Vector(Scalar.UINT8),
    intermediates=_INT32S, large_custom_options_offset=Scalar.UINT64,
    large_custom_options_size=Scalar.UINT64, builtin_options_2_type=Scalar.UINT8,
    builtin_options_2=SKIPPED, debug_metadata_index=Scalar.INT32,
)  # fmt: skip
_SUBGRAPH = table(
    "SubGraph",
    tensors=Vector(_TENSOR), inputs=_INT32S, outputs=_INT32S, operators=Vector(_OPERATOR),
    name=Blob.TEXT, debug_metadata_index=Scalar.INT32,
)  # fmt: skip
_CODE = table(
    "OperatorCode",
    deprecated_builtin_code=Scalar.UINT8, custom_code=Blob.TEXT, version=Scalar.INT32,
    builtin_code=Scalar.INT32,
)  # fmt: skip
_BUFFER = table("Buffer", data=Blob.OCTETS, offset=Scalar.UINT64, size=Scalar.UINT64)
_METADATA = table("Metadata", name=Blob.TEXT, buffer=Scalar.UINT32)
_ENTRY = table("TensorMap", name=Blob.TEXT, tensor_index=Scalar.UINT32)
_SIGNATURE = table(
    "SignatureDef",
    inputs=Vector(_ENTRY), outputs=Vector(_ENTRY), signature_key=Blob.TEXT, unused=SKIPPED,
    subgraph_index=Scalar.UINT32,
)  # fmt: skip
MODEL = table(
    "Model",
    version=Scalar.UINT32, operator_codes=Vector(_CODE), subgraphs=Vector(_SUBGRAPH),
    description=Blob.TEXT, buffers=Vector(_BUFFER), metadata_buffer=_INT32S,
    metadata=Vector(_METADATA), signature_defs=Vector(_SIGNATURE),
)  # fmt: skip


def checked(data: memoryview) -> Fields:
    """Reads a model, and checks its indices and the sizes of its constants.

    Raises:
      FormatError: the file is broken; the message names the place.
      UnsupportedError: a table has fields of a later version of the format.
    """
    try:
        model = flatbuffer.decode(data, MODEL)
        if not model["subgraphs"]:
            raise FormatError("it has no subgraph")
        for number, graph in enumerate(model["subgraphs"]):
            _check_graph(model, graph, f"subgraph {number}")
    except FormatError as error:
        raise FormatError(f"the TFLite model is broken: {error}") from None
    return model


def listed(fields: Fields, name: str) -> Sequence[Any]:
    """The elements of a vector, which a file may leave out."""
    values = fields[name]
    return () if values is None else values


def _check_graph(model: Fields, graph: Fields, place: str) -> None:
    tensors, codes = listed(graph, "tensors"), listed(model, "operator_codes")
    for number, tensor in enumerate(tensors):
        _check_tensor(model, tensor, f"{place}: tensor {tensor['name'] or number!r}")
    for role in ("inputs", "outputs"):
        _check_indices(listed(graph, role), tensors, f"{place}: {role}")
    for number, operator in enumerate(listed(graph, "operators")):
        what = f"{place}: operator {number}"
        _check_indices([operator["opcode_index"]], codes, f"{what}: code", "operator codes")
        _check_indices(listed(operator, "outputs"), tensors, f"{what}: outputs")
        given = [index for index in listed(operator, "inputs") if index != -1]  # -1: left out
        _check_indices(given, tensors, f"{what}: inputs")


def _check_indices(
    indices: Sequence[int], among: Sequence[Any], place: str, what: str = "tensors"
) -> None:
    for index in indices:
        if not 0 <= index < len(among):
            raise FormatError(f"{place}: index {index} of {len(among)} {what}")


def _check_tensor(model: Fields, tensor: Fields, place: str) -> None:
    shape, buffers = listed(tensor, "shape"), listed(model, "buffers")
    if any(size < 0 for size in shape) or math.prod(shape) > _LARGEST:
        raise FormatError(f"{place}: shape is {tuple(shape)}")
    _check_indices([tensor["buffer"]], buffers, f"{place}: buffer", "buffers")
    data, size = buffers[tensor["buffer"]]["data"], _SIZES.get(tensor["type"])
    if data is None or not len(data) or size is None or tensor["sparsity"] is not None:
        return
    if len(data) != math.prod(shape) * size:
        raise FormatError(
            f"{place}: the constant has {len(data)} bytes, expected {math.prod(shape) * size}"
        )
