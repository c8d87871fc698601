"""TFLite models of one operator, run by TFLite Micro; tests without it are skipped."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import flatbuffers
import numpy as np
import pytest

runtime: Any = pytest.importorskip("tflite_micro").runtime
schema: Any = pytest.importorskip("tflite_micro.tensorflow.lite.micro.python.schema_py_generated")

_TYPES = {"int8": "INT8", "int16": "INT16", "int32": "INT32"}


class Tensor(NamedTuple):
    """A quantized tensor.

    Args:
      dtype: int8, int16 or int32.
      shape: batch first.
      scale: real / integer; one, or one for each element of dimension `axis`.
      zero_point: for all scales.
      values: of a constant, an array; else none.
      axis: the dimension that has scales.
      is_variable: keeps its values from one call to the next.
    """

    dtype: type
    shape: tuple[int, ...]
    scale: Any
    zero_point: int = 0
    values: Any = None
    axis: int = 0
    is_variable: bool = False


def constant(values: np.ndarray, scale: Any, axis: int = 0) -> Tensor:
    """A tensor of values that are known, of zero point 0."""
    return Tensor(values.dtype.type, values.shape, scale, values=values, axis=axis)


class Model:
    """An operator, ready to run.

    Args:
      operator: its name in the schema, "CONV_2D".
      inputs: constants among them; those that are neither constant nor variable are fed.
      output: its one result.
      options: the name of its options, "Conv2DOptions", where it has any.
      fields: of the options.
    """

    def __init__(
        self,
        operator: str,
        inputs: list[Tensor],
        output: Tensor,
        options: str | None = None,
        **fields: Any,
    ) -> None:
        tensors = [*inputs, output]
        known = [x for x in tensors if x.values is not None]
        node = _new("Operator", inputs=[*range(len(inputs))], outputs=[len(inputs)])
        if options is not None:
            node.builtinOptionsType = getattr(schema.BuiltinOptions, options)
            node.builtinOptions = _new(options, **fields)
        fed = [i for i, x in enumerate(inputs) if x.values is None and not x.is_variable]
        code = getattr(schema.BuiltinOperator, operator)
        model = _new(
            "Model",
            version=3,
            operatorCodes=[_new("OperatorCode", builtinCode=code, deprecatedBuiltinCode=code)],
            buffers=[_new("Buffer"), *(_buffer(x) for x in known)],
            subgraphs=[
                _new(
                    "SubGraph",
                    tensors=[_tensor(x, known) for x in tensors],
                    inputs=fed,
                    outputs=[len(inputs)],
                    operators=[node],
                )
            ],
        )
        builder = flatbuffers.Builder()
        builder.Finish(model.Pack(builder), b"TFL3")
        data = bytes(builder.Output())
        self._runtime = runtime.Interpreter.from_bytes(data, arena_size=1 << 20)

    def __call__(self, *inputs: np.ndarray) -> np.ndarray:
        """The output for inputs in order; variables keep what the call leaves in them."""
        for i, x in enumerate(inputs):
            self._runtime.set_input(np.ascontiguousarray(x), i)
        self._runtime.invoke()
        return self._runtime.get_output(0)


def quantize_multiplier(scale: float) -> tuple[int, int]:
    """A scale as a multiplier in Q31, in [2**30, 2**31), and a shift to the left."""
    fraction, shift = math.frexp(scale)
    multiplier = math.floor(fraction * 2**31 + 0.5)
    return (multiplier // 2, shift + 1) if multiplier == 2**31 else (multiplier, shift)


def _new(kind: str, /, **fields: Any) -> Any:
    found = getattr(schema, f"{kind}T")()
    for field, value in fields.items():
        if not hasattr(found, field):
            raise AttributeError(f"{kind} has no {field}")
        setattr(found, field, value)
    return found


def _buffer(x: Tensor) -> Any:
    return _new("Buffer", data=np.frombuffer(x.values.tobytes(), np.uint8))


def _tensor(x: Tensor, known: list[Tensor]) -> Any:
    scales = np.atleast_1d(np.asarray(x.scale, np.float32))
    quantization = _new(
        "QuantizationParameters",
        scale=scales,
        zeroPoint=np.full(scales.shape, x.zero_point, np.int64),
        quantizedDimension=x.axis,
    )
    # Buffer 0 is empty.
    places = [i for i, other in enumerate(known, 1) if other is x]
    return _new(
        "Tensor",
        shape=list(x.shape),
        type=getattr(schema.TensorType, _TYPES[np.dtype(x.dtype).name]),
        buffer=places[0] if places else 0,
        name=b"",
        quantization=quantization,
        isVariable=x.is_variable,
    )
