"""From the file of a network to TOSA in MLIR, by the converters of torch-mlir and of Arm."""

# The converters are in the extra "ptq".
# pyright: reportMissingImports=false

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.ptq_zoo import tflite_file
from benchmarks.ptq_zoo.networks import Network

_OPSET = 17
_PIPELINE = (
    "builtin.module(torch-onnx-to-torch-backend-pipeline{backend-legal-ops="
    "aten.flatten.using_ints,aten.adaptive_avg_pool1d},torch-backend-to-tosa-backend-pipeline)"
)


class ConversionError(ValueError):
    """A converter refused a network."""


def source_file(network: Network, content: bytes, folder: Path) -> Path:
    """Writes the network with closed shapes, as the converters and the other quantizers take it."""
    path = folder / f"model{Path(network.path).suffix}"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        if network.is_onnx:
            _fix_onnx(content, network.shape, path)
        else:
            path.write_bytes(tflite_file.plain(content))
    return path


def tosa_file(source: Path) -> Path:
    """The path of the network in TOSA, beside its source; converted if it is not there.

    Raises:
      ConversionError: the converter refused it.
    """
    path = source.with_name("model.mlir")
    if path.exists():
        return path
    draft = source.with_name("draft.mlir")
    if source.suffix == ".onnx":
        torch = source.with_name("torch.mlir")
        _run("torch-mlir-import-onnx", source, "-o", torch)
        _run("torch-mlir-opt", f"--pass-pipeline={_PIPELINE}", torch, "-o", draft)
    else:
        _run("tosa-converter-for-tflite", "--text", source, "-o", draft)
    return draft.rename(path)


def _fix_onnx(content: bytes, shape: tuple[int, ...], path: Path) -> None:
    """Closes the shape of the first input, raises the opset, and folds what depends on shapes."""
    import onnx
    import onnxruntime

    model = onnx.load_from_string(content)
    constants = {tensor.name for tensor in model.graph.initializer}
    inputs = [value for value in model.graph.input if value.name not in constants]
    _close(inputs[0].type.tensor_type, shape)
    for value in [value for value in model.graph.input if value.name in constants]:
        model.graph.input.remove(value)
    del model.graph.value_info[:]
    for value in model.graph.output:
        value.type.tensor_type.ClearField("shape")
    if _opset(model) < _OPSET:
        model = onnx.version_converter.convert_version(model, _OPSET)
    options = onnxruntime.SessionOptions()
    level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.graph_optimization_level = level
    options.optimized_model_filepath = str(path.with_name("folded.onnx"))
    onnxruntime.InferenceSession(model.SerializeToString(), options)
    model = onnx.shape_inference.infer_shapes(onnx.load(options.optimized_model_filepath))
    # onnxruntime declares domains that the graph does not use, and torch-mlir refuses them.
    standard = [entry for entry in model.opset_import if not entry.domain]
    del model.opset_import[:]
    model.opset_import.extend(standard)
    onnx.save(model, path)


def _close(tensor: Any, shape: tuple[int, ...]) -> None:
    for dimension, length in zip(tensor.shape.dim, shape, strict=True):
        dimension.dim_value = length


def _opset(model: Any) -> int:
    return next(entry.version for entry in model.opset_import if not entry.domain)


def _run(command: str, *arguments: str | Path) -> None:
    """Runs a program of this environment."""
    program = Path(sys.executable).with_name(command)
    words = [str(program), *map(str, arguments)]
    result = subprocess.run(words, capture_output=True, text=True)
    if result.returncode:
        told = [line.partition("error: ")[2] for line in result.stderr.splitlines()]
        first = next(filter(None, told), result.stderr[-300:].strip())
        raise ConversionError(f"{command}: {first}")
