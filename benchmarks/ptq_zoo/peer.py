"""The quantizers that users have today: onnxruntime's for ONNX, LiteRT's for its own files."""

# The other programs are in the extra "ptq".
# pyright: reportMissingImports=false

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.ptq_zoo import metrics, tflite_file
from benchmarks.ptq_zoo.row import Row

_Outputs = list[np.ndarray]


def run(path: Path, examples: np.ndarray) -> _Outputs:
    """The outputs of a file in its own runtime, example by example, joined on the first axis."""
    call = _onnx_call(path) if path.suffix == ".onnx" else _tflite_call(path)
    rows = [call(example[None]) for example in examples]
    return [np.concatenate(column) for column in zip(*rows, strict=True)]


def measure(
    row: Row, source: Path, target: Path, calibration: np.ndarray, judged: np.ndarray
) -> tuple[_Outputs, _Outputs]:
    """Quantizes a file to INT8, weights per channel; returns outputs in floats and quantized."""
    quantize = _quantize_onnx if source.suffix == ".onnx" else _quantize_tflite
    with row.stage("float"):
        floats = run(source, judged)
    with row.stage("calibrate"):
        quantize(source, target, calibration)
    with row.stage("run"):
        outputs = run(target, judged)
    row.values["sqnr"] = metrics.sqnrs(floats, outputs)
    return floats, outputs


def _onnx_call(path: Path) -> Callable[[np.ndarray], _Outputs]:
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return lambda x: [np.asarray(y) for y in session.run(None, {name: x})]


def _quantize_onnx(source: Path, target: Path, calibration: np.ndarray) -> None:
    import onnxruntime
    from onnxruntime import quantization

    name = onnxruntime.InferenceSession(source).get_inputs()[0].name

    class Reader(quantization.CalibrationDataReader):
        def __init__(self) -> None:
            self._rows = iter(calibration)

        def get_next(self) -> Any:
            return next(({name: x[None]} for x in self._rows), None)

    quantization.quantize_static(
        source,
        target,
        Reader(),
        quant_format=quantization.QuantFormat.QDQ,
        per_channel=True,
        weight_type=quantization.QuantType.QInt8,
        activation_type=quantization.QuantType.QInt8,
        calibrate_method=quantization.CalibrationMethod.MinMax,
    )


def _tflite_call(path: Path) -> Callable[[np.ndarray], _Outputs]:
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(str(path))
    interpreter.allocate_tensors()
    (source,), results = interpreter.get_input_details(), interpreter.get_output_details()

    def call(x: np.ndarray) -> _Outputs:
        interpreter.set_tensor(source["index"], _stored(x, source))
        interpreter.invoke()
        return [_real(interpreter.get_tensor(y["index"]), y) for y in results]

    return call


def _quantize_tflite(source: Path, target: Path, calibration: np.ndarray) -> None:
    from ai_edge_quantizer import quantizer, recipe

    work = quantizer.Quantizer(str(source))
    work.load_quantization_recipe(recipe.static_wi8_ai8())
    examples = [{"input_0": x[None]} for x in calibration]
    ranges = work.calibrate({tflite_file.SIGNATURE: examples})
    target.write_bytes(work.quantize(ranges).quantized_model)


def _stored(x: np.ndarray, details: Any) -> np.ndarray:
    """Real numbers as an input of LiteRT takes them."""
    scale, zero_point = details["quantization"]
    if not scale:
        return x
    limits = np.iinfo(details["dtype"])
    return np.clip(np.round(x / scale) + zero_point, limits.min, limits.max).astype(
        details["dtype"]
    )


def _real(y: np.ndarray, details: Any) -> np.ndarray:
    scale, zero_point = details["quantization"]
    return (y.astype(np.float64) - zero_point) * scale if scale else y
