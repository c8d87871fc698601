"""TFLite files as other programs take them: float32 weights, built-in operators, a signature.

MediaPipe's files store weights in float16 behind a DEQUANTIZE each, and call a transposed
convolution with a bias a custom operator. Neither is a function of its own: the file made here
computes the same numbers.
"""

# Schemas of the format are in a package of the extra "ptq".
# pyright: reportMissingImports=false

from __future__ import annotations

from typing import Any

import numpy as np

_CUSTOM = b"Convolution2DTransposeBias"
SIGNATURE = "serving_default"


def plain(content: bytes) -> bytes:
    """The file with constants in float32, built-in operators, closed shapes and a signature."""
    import flatbuffers
    from ai_edge_litert import schema_py_generated as schema

    model = schema.ModelT.InitFromPackedBuf(bytearray(content), 0)
    for code in model.operatorCodes:  # old files have the operator's number in another field
        code.builtinCode = max(code.builtinCode, code.deprecatedBuiltinCode)
    for graph in model.subgraphs:
        for tensor in graph.tensors:
            tensor.shapeSignature = None
        _dequantize_constants(schema, model, graph)
    _replace_custom_operator(schema, model)
    model.signatureDefs = [_signature(schema, model.subgraphs[0])]
    builder = flatbuffers.Builder(len(content))
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def _dequantize_constants(schema: Any, model: Any, graph: Any) -> None:
    """Gives the results of DEQUANTIZE of float16 constants values, in place of the operator."""
    kept = []
    for operator in graph.operators:
        (source, *_), (result, *_) = operator.inputs, operator.outputs
        data = model.buffers[graph.tensors[source].buffer].data
        is_half = graph.tensors[source].type == schema.TensorType.FLOAT16 and data is not None
        code = model.operatorCodes[operator.opcodeIndex].builtinCode
        if code != schema.BuiltinOperator.DEQUANTIZE or not is_half:
            kept.append(operator)
            continue
        values = np.asarray(data, np.uint8).view(np.float16).astype(np.float32)
        graph.tensors[result].buffer = len(model.buffers)
        model.buffers.append(schema.BufferT(data=values.view(np.uint8)))
    graph.operators = kept


def _replace_custom_operator(schema: Any, model: Any) -> None:
    """Writes MediaPipe's transposed convolution as TRANSPOSE_CONV, whose options it shares."""
    wanted = [n for n, c in enumerate(model.operatorCodes) if c.customCode == _CUSTOM]
    for graph in model.subgraphs:
        for operator in (o for o in graph.operators if o.opcodeIndex in wanted):
            padding, width, height = np.asarray(operator.customOptions, np.uint8).view(np.int32)[:3]
            operator.builtinOptionsType = schema.BuiltinOptions.TransposeConvOptions
            # The C enumeration counts padding from 1 (same, valid), the schema from 0.
            operator.builtinOptions = schema.TransposeConvOptionsT(
                padding=int(padding) - 1, strideW=int(width), strideH=int(height)
            )
            operator.customOptions = None
            image, weight, bias = operator.inputs
            shape = _shape_constant(schema, model, graph, operator.outputs[0])
            operator.inputs = [shape, weight, image, bias]
    for code in (model.operatorCodes[n] for n in wanted):
        code.customCode = None
        code.builtinCode = schema.BuiltinOperator.TRANSPOSE_CONV
        code.deprecatedBuiltinCode, code.version = code.builtinCode, 3  # the version with a bias


def _shape_constant(schema: Any, model: Any, graph: Any, result: int) -> int:
    """The index of a new constant that holds the shape of a tensor."""
    shape = np.asarray(graph.tensors[result].shape, np.int32)
    model.buffers.append(schema.BufferT(data=shape.view(np.uint8)))
    tensor = schema.TensorT(
        shape=[len(shape)],
        type=schema.TensorType.INT32,
        buffer=len(model.buffers) - 1,
        name=f"shape_of_{result}",
    )
    graph.tensors.append(tensor)
    return len(graph.tensors) - 1


def _signature(schema: Any, graph: Any) -> Any:
    """A signature that names the graph's inputs and outputs by position."""

    def named(kind: str, tensors: Any) -> list[Any]:
        return [
            schema.TensorMapT(name=f"{kind}_{n}", tensorIndex=int(tensor))
            for n, tensor in enumerate(tensors)
        ]

    return schema.SignatureDefT(
        inputs=named("input", graph.inputs),
        outputs=named("output", graph.outputs),
        signatureKey=SIGNATURE,
        subgraphIndex=0,
    )
