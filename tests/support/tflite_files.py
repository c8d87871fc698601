"""Small TFLite files, written with the schema of LiteRT."""

# The schema is in an extra.
# pyright: reportMissingImports=false

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import flatbuffers
import numpy as np
import pytest

schema = pytest.importorskip("ai_edge_litert.schema_py_generated")

_TYPES = {
    "float32": schema.TensorType.FLOAT32,
    "float16": schema.TensorType.FLOAT16,
    "int32": schema.TensorType.INT32,
    "int64": schema.TensorType.INT64,
    "int8": schema.TensorType.INT8,
    "uint8": schema.TensorType.UINT8,
}
_OPEN = -1


class File:
    """A model of one subgraph; tensors have numbers in the order in which they are added."""

    def __init__(self) -> None:
        self.model = schema.ModelT(
            version=3, description="a test", operatorCodes=[], buffers=[schema.BufferT()],
        )  # fmt: skip
        self.graph = schema.SubGraphT(tensors=[], inputs=[], outputs=[], operators=[], name="main")
        self.model.subgraphs = [self.graph]

    def tensor(
        self,
        name: str,
        shape: Sequence[int],
        dtype: str = "float32",
        *,
        scale: Sequence[float] = (),
        zero_point: Sequence[int] = (0,),
        axis: int = 0,
        sizes: Sequence[int] | None = None,
    ) -> int:
        """Adds a tensor; `shape` has -1 where it is open, and `sizes` what is stored for it."""
        tensor = schema.TensorT(name=name, type=_TYPES[dtype])
        tensor.shape = list(sizes or (1 if size == _OPEN else size for size in shape))
        if _OPEN in shape:
            tensor.shapeSignature = list(shape)
        if scale:
            tensor.quantization = schema.QuantizationParametersT(
                scale=list(scale), zeroPoint=list(zero_point), quantizedDimension=axis
            )
        self.graph.tensors.append(tensor)
        return len(self.graph.tensors) - 1

    def constant(self, name: str, values: np.ndarray, **options: Any) -> int:
        number = self.tensor(name, values.shape, values.dtype.name, **options)
        self.store(number, values)
        return number

    def store(self, number: int, values: np.ndarray) -> None:
        """Gives a tensor a value."""
        self.graph.tensors[number].buffer = len(self.model.buffers)
        self.model.buffers.append(schema.BufferT(data=np.frombuffer(values.tobytes(), np.uint8)))

    def add(
        self,
        operator: str,
        inputs: Sequence[int],
        outputs: Sequence[int],
        options: str = "",
        **fields: Any,
    ) -> None:
        """Adds an operator, with the fields of its options."""
        number = getattr(schema.BuiltinOperator, operator)
        code = schema.OperatorCodeT(
            deprecatedBuiltinCode=min(number, 127), builtinCode=number, version=1
        )
        self.model.operatorCodes.append(code)
        added = schema.OperatorT(
            opcodeIndex=len(self.model.operatorCodes) - 1,
            inputs=list(inputs), outputs=list(outputs),
        )  # fmt: skip
        if options:
            added.builtinOptionsType = getattr(schema.BuiltinOptions, options)
            added.builtinOptions = getattr(schema, f"{options}T")(**fields)
        self.graph.operators.append(added)

    def add_custom(
        self, name: str, inputs: Sequence[int], outputs: Sequence[int], options: bytes = b""
    ) -> None:
        self.add("CUSTOM", inputs, outputs)
        self.model.operatorCodes[-1].customCode = name
        self.graph.operators[-1].customOptions = np.frombuffer(options, np.uint8)

    def content(self, inputs: Sequence[int], outputs: Sequence[int]) -> bytes:
        self.graph.inputs, self.graph.outputs = list(inputs), list(outputs)
        builder = flatbuffers.Builder(1024)
        builder.Finish(self.model.Pack(builder), b"TFL3")
        return bytes(builder.Output())


CONV = {"padding": 0, "strideW": 1, "strideH": 1, "dilationWFactor": 1, "dilationHFactor": 1}


def convolution(batch: int = 1, **ends: Any) -> bytes:
    """x[batch,4,4,2] through a convolution of 3 channels, "conv/Relu", and a reshape to "y"."""
    rng = np.random.default_rng(0)
    file = File()
    x = file.tensor("x", (batch, 4, 4, 2), **ends)
    weight = file.constant("weight", rng.normal(size=(3, 3, 3, 2)).astype(np.float32))
    bias = file.constant("bias", rng.normal(size=3).astype(np.float32))
    middle = file.tensor("conv/Relu", (batch, 4, 4, 3))
    file.add(
        *("CONV_2D", [x, weight, bias], [middle], "Conv2DOptions"),
        **CONV, fusedActivationFunction=schema.ActivationFunctionType.RELU,
    )  # fmt: skip
    shape = file.constant("shape", np.array([batch, 48], np.int32))
    y = file.tensor("y", (batch, 48))
    file.add("RESHAPE", [middle, shape], [y], "ReshapeOptions", newShape=[batch, 48])
    return file.content([x], [y])


def dense_of_bytes(weight: np.ndarray, *, zero_point: int) -> bytes:
    """x[1,n], bytes of 0.02 around 128, by bytes of weights of 0.003 to bytes "y"."""
    outputs, size = weight.shape
    file = File()
    x = file.tensor("x", (1, size), "uint8", scale=[0.02], zero_point=[128])
    matrix = file.constant("matrix", weight, scale=[0.003], zero_point=[zero_point])
    offset = np.arange(outputs, dtype=np.int32)
    bias = file.constant("bias", offset, scale=[0.02 * 0.003])
    y = file.tensor("y", (1, outputs), "uint8", scale=[0.01], zero_point=[100])
    file.add("FULLY_CONNECTED", [x, matrix, bias], [y], "FullyConnectedOptions")
    return file.content([x], [y])


def run(content: bytes, *inputs: np.ndarray) -> list[np.ndarray]:
    """The outputs that LiteRT computes; inputs may have other open sizes."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_content=content)
    for details, x in zip(interpreter.get_input_details(), inputs, strict=True):
        if tuple(details["shape"]) != x.shape:
            interpreter.resize_tensor_input(details["index"], x.shape)
    interpreter.allocate_tensors()
    for details, x in zip(interpreter.get_input_details(), inputs, strict=True):
        interpreter.set_tensor(details["index"], x)
    interpreter.invoke()
    return [interpreter.get_tensor(y["index"]) for y in interpreter.get_output_details()]
