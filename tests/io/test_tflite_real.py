"""Quantized TFLite files as graphs of their real numbers, and as integers again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tflite_files import CONV, File, dense_of_bytes, run, schema

import tosajax
from tosajax import Builder, DType, Graph, quant
from tosajax.graph.quantization import dequantize
from tosajax.report import FormatError, UnsupportedError

pytest.importorskip("xdsl")

RNG = np.random.default_rng(0)
WEIGHT = RNG.integers(-127, 128, (3, 3, 3, 2)).astype(np.int8)
WEIGHT[:, 0, 0, 0] = 127
SCALES = (0.01, 0.02, 0.005)
BIAS = RNG.integers(-500, 500, 3).astype(np.int32)
DENSE = RNG.integers(1, 256, (4, 48)).astype(np.uint8)
DENSE[:, :2] = 1, 255
OUTPUT = 0.25
NONE = schema.ActivationFunctionType.NONE
X = RNG.integers(0, 256, (64, 4, 4, 2)).astype(np.uint8)
REAL = ((X.astype(np.float32) - 128) * 0.02).astype(np.float32)


def network(**middle: Any) -> File:
    """Bytes through a convolution, "conv/Relu", and a dense layer to floats "y"."""
    file = File()
    x = file.tensor("x", (1, 4, 4, 2), "uint8", scale=[0.02], zero_point=[128])
    signed = file.tensor("signed", (1, 4, 4, 2), "int8", scale=[0.02], zero_point=[0])
    file.add("QUANTIZE", [x], [signed])
    weight = file.constant("weight", WEIGHT, scale=SCALES, zero_point=[0] * 3)
    sums = [0.02 * scale for scale in SCALES]
    bias = file.constant("bias", BIAS, scale=sums, zero_point=[0] * 3)
    options = {"scale": [0.05], "zero_point": [-128], **middle}
    conv = file.tensor("conv/Relu", (1, 4, 4, 3), "int8", **options)
    activation = schema.ActivationFunctionType.RELU
    file.add(
        *("CONV_2D", [signed, weight, bias], [conv], "Conv2DOptions"),
        **CONV, fusedActivationFunction=activation,
    )  # fmt: skip
    shape = file.constant("shape", np.array([1, 48], np.int32))
    flat = file.tensor("flat", (1, 48), "int8", scale=[0.05], zero_point=[-128])
    file.add("RESHAPE", [conv, shape], [flat], "ReshapeOptions", newShape=[1, 48])
    dense = RNG.integers(-127, 128, (4, 48)).astype(np.int8)
    matrix = file.constant("matrix", dense, scale=[0.003])
    offset = file.constant("offset", BIAS[[0, 1, 2, 0]], scale=[0.05 * 0.003])
    y8 = file.tensor("y8", (1, 4), "int8", scale=[OUTPUT], zero_point=[3])
    y = file.tensor("y", (1, 4))
    file.add(
        *("FULLY_CONNECTED", [flat, matrix, offset], [y8], "FullyConnectedOptions"),
        fusedActivationFunction=NONE,
    )  # fmt: skip
    file.add("DEQUANTIZE", [y8], [y])
    return file


def load(file: File, inputs: tuple[int, ...] = (0,), **options: Any) -> Graph:
    outputs = [len(file.graph.tensors) - 1]
    return tosajax.load(file.content(inputs, outputs), as_floats=True, **options)


def theirs(file: File) -> np.ndarray:
    content = file.content([0], [len(file.graph.tensors) - 1])
    return np.concatenate([run(content, x[None])[0] for x in X])


def steps(y: Any, wanted: np.ndarray) -> np.ndarray:
    return np.rint(np.asarray(y, np.float64) / OUTPUT) - np.rint(wanted / OUTPUT)


def test_integers_of_the_file_come_back():
    file = network()
    graph, wanted = load(file), theirs(file)
    assert [t.dtype for t in (*graph.input_tensors, *graph.output_tensors)] == [DType.FP32] * 2
    assert graph.inputs == ("x",)
    assert "quantized tensors" in str(graph.source.rewrites)
    floats = np.asarray(tosajax.compile(graph, batch=len(X))(REAL)[0])
    assert (steps(floats, wanted) == 0).mean() >= 0.97
    assert np.abs(steps(floats, wanted)).max() <= 1

    model = quant.prepare(graph)
    params = quant.calibrate(model, [REAL[:8]])
    scales = {round(float(params["qparams"][name].scale), 6) for name in model.activations}
    assert scales == {0.02, 0.05, OUTPUT}
    frozen = model.freeze(params)
    assert not {"FLOOR", "CAST"} & {node.op for node in frozen.nodes}
    weights = [t.values for t in frozen.tensors.values() if t.shape == (3, 3, 3, 2)]
    np.testing.assert_array_equal(weights[0], WEIGHT)
    (integers,) = frozen.quantized(REAL)
    (name,) = frozen.outputs
    y = np.asarray(tosajax.compile(frozen, batch=len(X))(integers)[0])
    real = dequantize(y, frozen.tensors[name], frozen.quantization[name])
    assert (steps(real, wanted) == 0).mean() >= 0.97  # LiteRT rounds sums once more
    assert np.abs(steps(real, wanted)).max() <= 1
    assert quant.check_bit_exact(model, params, REAL[:4], against="frozen")


def test_more_bits_than_the_file_has():
    graph = load(network())
    rules = [quant.rule(".*", act=quant.QSpec("i16"))]
    model = quant.prepare(graph, rules)
    quant.calibrate(model, [REAL])
    assert {model.specs[name].dtype for name in model.activations} == {DType.INT16}


def test_weights_of_bytes_have_a_zero_point():
    graph = tosajax.load(dense_of_bytes(DENSE, zero_point=77), as_floats=True)
    model = quant.prepare(graph)
    params = quant.calibrate(model, [REAL.reshape(-1, 32)[:, [*range(32), *range(16)]]])
    (name,) = model.weights
    qparams = params["qparams"][name]
    np.testing.assert_allclose(qparams.scale, 0.003, rtol=1e-5)
    frozen = model.freeze(params)
    stored = np.asarray(frozen.tensors[name].values, np.int64) - int(qparams.zero_point.reshape(()))
    np.testing.assert_array_equal(stored.reshape(4, 48), DENSE.astype(np.int64) - 77)


def test_constants():
    """Those of the whole, of an axis, and of 4 bits; what no scale belongs to stays."""
    packed = File()
    x = packed.tensor("x", (1, 4, 4, 2))
    halves = RNG.integers(-7, 8, (3, 3, 3, 2)).astype(np.int8)
    octets = (halves.reshape(-1)[::2] & 15) | ((halves.reshape(-1)[1::2] & 15) << 4)
    weight = packed.tensor("weight", halves.shape, "int8", scale=SCALES, zero_point=[0] * 3)
    packed.store(weight, octets.astype(np.uint8))
    packed.graph.tensors[weight].type = schema.TensorType.INT4
    bias = packed.constant("bias", np.array([1, 2, 3], np.float32))
    y = packed.tensor("y", (1, 4, 4, 3))
    packed.add("CONV_2D", [x, weight, bias], [y], "Conv2DOptions", **CONV)
    graph = load(packed)
    (found,) = [t.values for t in graph.tensors.values() if t.shape == (3, 3, 3, 2)]
    wanted = halves * np.array(SCALES, np.float32).reshape(3, 1, 1, 1)
    np.testing.assert_allclose(found, wanted, rtol=1e-6)
    assert [node.op for node in graph.nodes if not node.op.startswith("CONST")] == ["CONV2D"]


def test_a_model_of_floats_stays_as_it_is():
    file = File()
    x, y = (file.tensor(name, (1, 8)) for name in "xy")
    file.add("TANH", [x], [y])
    content = file.content([x], [y])
    graph = tosajax.load(content, as_floats=True)
    assert graph == tosajax.load(content)
    assert not graph.source.rewrites


def test_errors():
    def refused(error: type[Exception], match: str, **middle: Any) -> None:
        with pytest.raises(error, match=match):
            load(network(**middle))

    refused(
        UnsupportedError,
        "tensor 'conv/Relu' has 3 scales, expected one scale and zero point",
        scale=[0.1, 0.2, 0.3],
        zero_point=[0, 0, 0],
    )
    refused(FormatError, "tensor 'conv/Relu' has the scale 0.0", scale=[0.0])
    refused(FormatError, "tensor 'conv/Relu' has the scale nan", scale=[float("nan")])
    file = network()
    weight = next(t for t in file.graph.tensors if t.name == "weight")
    weight.quantization.scale = [0.1, 0.2]
    with pytest.raises(FormatError, match="constant 'weight': "):
        load(file)
    weight.quantization.detailsType = schema.QuantizationDetails.BlockwiseQuantization
    weight.quantization.details = schema.BlockwiseQuantizationT()
    with pytest.raises(UnsupportedError, match="tensor 'weight' has scales of blocks"):
        load(file)

    b = Builder()
    x = b.input("x", DType.INT8, (1, 3))
    data = tosajax.io.to_bytes(b.graph([b.op("REVERSE", x, axis=1)]))
    with pytest.raises(ValueError, match="as_floats is asked of a TOSA flatbuffer, expected a TFL"):
        tosajax.load(data, as_floats=True)
