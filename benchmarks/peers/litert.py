"""Contender: LiteRT with XNNPACK, on a .tflite file written from the layers.

Its convolutions rescale in float32, so outputs may be some steps off those of TOSA.
"""

# The packages of peers may be missing.
# pyright: reportMissingImports=false

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.layers import (
    Add,
    AveragePool,
    Conv,
    Gelu,
    Layer,
    MatMul,
    Network,
    Quant,
    Reshape,
    Softmax,
    Transpose,
)
from benchmarks.peers.quiet import silent
from benchmarks.work import DoesNotApply, Run, Work

# Versions of operators with int8, and with scales by channel.
_VERSIONS = {
    "ADD": 2,
    "AVERAGE_POOL_2D": 2,
    "BATCH_MATMUL": 2,
    "CONV_2D": 3,
    "DEPTHWISE_CONV_2D": 3,
    "GELU": 2,
    "RESHAPE": 1,
    "SOFTMAX": 2,
    "TRANSPOSE": 2,
}
_LAST_OF_A_BYTE = 127  # old readers see it for all later operators


def prepare(work: Work, *, threads: int) -> Run:
    """The network for the whole batch."""
    if work.network is None:
        raise DoesNotApply("written from layers only")
    content = tflite(work.network, work.batch or 1)
    from ai_edge_litert.interpreter import Interpreter

    with silent():
        interpreter = Interpreter(model_content=content, num_threads=threads)
        interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], work.inputs[0])
    output = interpreter.get_output_details()[0]["index"]

    def run() -> tuple[np.ndarray, ...]:
        interpreter.invoke()
        return (interpreter.get_tensor(output),)

    return run


def tflite(network: Network, batch: int) -> bytes:
    """The network as a .tflite file.

    Raises:
      NotImplementedError: it has layers that this file does not write.
    """
    import flatbuffers
    from ai_edge_litert import schema_py_generated as schema

    writer = _Writer(schema)
    quants, shapes = network.quants, network.shapes
    values = [
        writer.tensor(f"value_{n}", (shape[0] * batch, *shape[1:]), schema.TensorType.INT8, quant)
        for n, (shape, quant) in enumerate(zip(shapes, quants, strict=True))
    ]
    for n, layer in enumerate(network.layers):
        first = layer.sources[0]
        sources = [values[i] for i in layer.sources]
        writer.layer(layer, sources, values[n + 1], quants[first], shapes[first])
    builder = flatbuffers.Builder(1 << 20)
    builder.Finish(writer.model(values[0], values[-1]).Pack(builder), b"TFL3")
    return bytes(builder.Output())


class _Writer:
    """Collects tensors and operators of one subgraph."""

    def __init__(self, schema: Any) -> None:
        self._schema = schema
        self._codes: list[str] = []
        self._buffers = [schema.BufferT()]  # buffer 0 stands for none
        self._graph = schema.SubGraphT()
        self._graph.tensors, self._graph.operators = [], []

    def tensor(
        self,
        name: str,
        shape: Sequence[int],
        kind: int,
        quant: Any,
        data: Any = None,
        axis: int = 0,
    ) -> int:
        """Adds a tensor; quant holds a scale or an array of them, and a zero point."""
        tensor = self._schema.TensorT()
        tensor.name, tensor.shape, tensor.type = name, list(shape), kind
        tensor.buffer = 0 if data is None else self._buffer(data)
        if quant is not None:
            scales = np.atleast_1d(np.asarray(quant[0], np.float32))
            parameters = self._schema.QuantizationParametersT()
            parameters.scale = scales
            parameters.zeroPoint = np.full(scales.size, quant[1], np.int64)
            parameters.quantizedDimension = axis
            tensor.quantization = parameters
        self._graph.tensors.append(tensor)
        return len(self._graph.tensors) - 1

    def layer(
        self, layer: Layer, sources: list[int], result: int, quant: Quant, shape: Sequence[int]
    ) -> None:
        match layer:
            case Conv():
                self._conv(layer, sources[0], result, quant)
            case Add():
                activation = self._activation(layer.relu)
                self._operator("ADD", sources, result, "Add", fusedActivationFunction=activation)
            case AveragePool():
                window = {"filterHeight": shape[1], "filterWidth": shape[2]}
                window |= {"strideH": 1, "strideW": 1, "padding": self._schema.Padding.VALID}
                self._operator("AVERAGE_POOL_2D", sources, result, "Pool2D", **window)
            case Reshape():
                shape = self._graph.tensors[result].shape
                inputs = [*sources, self._integers(shape)]
                self._operator("RESHAPE", inputs, result, "Reshape", newShape=shape)
            case Transpose():
                inputs = [*sources, self._integers(layer.perms)]
                self._operator("TRANSPOSE", inputs, result, "Transpose")
            case MatMul():
                self._operator("BATCH_MATMUL", sources, result, "BatchMatMul")
            case Softmax():
                self._operator("SOFTMAX", sources, result, "Softmax", beta=1.0)
            case Gelu():
                self._operator("GELU", sources, result, "Gelu", approximate=False)
            case _:
                raise NotImplementedError(f"writes no {type(layer).__name__}")

    def model(self, source: int, result: int) -> Any:
        """Everything, as one model from tensor `source` to tensor `result`."""
        schema = self._schema
        self._graph.inputs, self._graph.outputs = [source], [result]
        model = schema.ModelT()
        model.version, model.description = 3, "benchmark"
        model.subgraphs, model.buffers = [self._graph], self._buffers
        model.operatorCodes = []
        for name in self._codes:
            code = schema.OperatorCodeT()
            code.builtinCode = getattr(schema.BuiltinOperator, name)
            code.deprecatedBuiltinCode = min(code.builtinCode, _LAST_OF_A_BYTE)
            code.version = _VERSIONS[name]
            model.operatorCodes.append(code)
        return model

    def _conv(self, layer: Conv, source: int, result: int, quant: Quant) -> None:
        weight, axis = (layer.weight[..., 0][None], 3) if layer.depthwise else (layer.weight, 0)
        scales, biases = layer.weight_scale, quant.scale * layer.weight_scale
        kinds = self._schema.TensorType
        inputs = [
            source,
            self.tensor(f"weight_{result}", weight.shape, kinds.INT8, (scales, 0), weight, axis),
            self.tensor(f"bias_{result}", biases.shape, kinds.INT32, (biases, 0), layer.bias),
        ]
        options = {
            "padding": self._schema.Padding.SAME,
            **dict.fromkeys(("strideH", "strideW"), layer.stride),
            **dict.fromkeys(("dilationHFactor", "dilationWFactor"), 1),
            "fusedActivationFunction": self._activation(layer.relu),
        }
        if layer.depthwise:
            options["depthMultiplier"] = 1
            self._operator("DEPTHWISE_CONV_2D", inputs, result, "DepthwiseConv2D", **options)
        else:
            self._operator("CONV_2D", inputs, result, "Conv2D", **options)

    def _operator(
        self, code: str, inputs: list[int], result: int, kind: str, **fields: Any
    ) -> None:
        """Adds an operator with options of a kind."""
        options = getattr(self._schema, f"{kind}OptionsT")()
        for name, value in fields.items():
            setattr(options, name, value)
        if code not in self._codes:
            self._codes.append(code)
        operator = self._schema.OperatorT()
        operator.opcodeIndex = self._codes.index(code)
        operator.inputs, operator.outputs = inputs, [result]
        operator.builtinOptionsType = getattr(self._schema.BuiltinOptions, f"{kind}Options")
        operator.builtinOptions = options
        self._graph.operators.append(operator)

    def _integers(self, values: Sequence[int]) -> int:
        data = np.asarray(values, np.int32)
        name = f"integers_{len(self._graph.tensors)}"
        return self.tensor(name, data.shape, self._schema.TensorType.INT32, None, data)

    def _buffer(self, data: np.ndarray) -> int:
        buffer = self._schema.BufferT()
        buffer.data = np.frombuffer(np.ascontiguousarray(data).tobytes(), np.uint8)
        self._buffers.append(buffer)
        return len(self._buffers) - 1

    def _activation(self, relu: bool) -> int:
        kinds = self._schema.ActivationFunctionType
        return kinds.RELU if relu else kinds.NONE
