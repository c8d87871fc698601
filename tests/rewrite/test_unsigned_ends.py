"""Inputs and outputs of bytes: the same integers as the signed graph, less half of the range."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import tosajax
from tosajax import Builder, DType, Graph, Target, quant, reference_model, rewrite
from tosajax.graph import Quantization
from tosajax.graph.zero_points import unsigned_tensors


def sums(dtype: DType = DType.INT8) -> Graph:
    """Two inputs, and two outputs, one of which an operator reads as well."""
    b = Builder()
    x, z = (b.input(name, dtype, (1, 6)) for name in "xz")
    y = b.op("CONCAT", x, z, axis=1, name="y")
    graph = b.graph([y, b.op("REVERSE", y, axis=1, name="w")])
    scales = {
        n: Quantization((0.5,), (3,), bounds=(-100, 100) if n == "z" else None) for n in "xzy"
    }
    return dataclasses.replace(graph, quantization=scales)


def integers(dtype: DType) -> list[np.ndarray]:
    low, high = dtype.minimum, dtype.maximum
    rows = [[low, -1, 0, 1, high, low + 1], [high, low, 7, -7, low, high - 1]]
    return [np.array([row], dtype.storage) for row in rows]


def as_unsigned(x: np.ndarray) -> np.ndarray:
    """The integers plus half of the range, in their bits."""
    kind = np.dtype(f"u{x.dtype.name}")
    half = 1 << (8 * x.dtype.itemsize - 1)
    return (x.astype(np.int64) + half).astype(kind).view(x.dtype)


@pytest.mark.parametrize("dtype", [DType.INT8, DType.INT16])
@pytest.mark.parametrize("names", [("x", "z", "y", "w"), ("x",), ("w",), ("y",)])
def test_integers_are_greater_by_half_of_the_range(dtype: DType, names: tuple[str, ...]):
    graph = sums(dtype)
    changed = rewrite.unsigned(graph, names)
    target = Target.parse("PRO-INT" if dtype is DType.INT8 else "PRO-INT+EXT-INT16")
    tosajax.validate(changed, target).raise_errors()
    assert unsigned_tensors(changed) >= {*names}
    assert (changed.inputs, changed.outputs) == (graph.inputs, graph.outputs)
    signed = integers(dtype)
    given = [as_unsigned(x) if n in names else x for n, x in zip("xz", signed, strict=True)]
    wanted = tosajax.compile(graph)(*signed)
    results = [tosajax.compile(changed)(*given)]
    if reference_model.is_installed():
        results.append(tuple(reference_model.run(changed, *given).values()))
    for outputs in results:
        for name, y, w in zip(graph.outputs, outputs, wanted, strict=True):
            expected = as_unsigned(np.asarray(w)) if name in names else np.asarray(w)
            np.testing.assert_array_equal(np.asarray(y), expected)


def test_scales_follow():
    graph = rewrite.unsigned(sums(), ["x", "z", "y"])
    known = graph.quantization
    assert known["x"] == Quantization((0.5,), (131,))
    assert known["z"] == Quantization((0.5,), (131,), bounds=(28, 228))
    assert known["x/signed"] == Quantization((0.5,), (3,))
    real = np.array([[-1.5, 0, 62, -65.5, 1, 20]], np.float32)
    given, _ = graph.quantized(real, real, clip=True)
    assert given.view(np.uint8).tolist() == [[128, 131, 255, 0, 133, 171]]


def test_an_image_as_bytes():
    """The network of a camera's bytes has the outputs of the network of real numbers."""
    rng = np.random.default_rng(0)
    image = rng.integers(0, 256, (4, 8), np.uint8)
    w = rng.normal(size=(8, 3)).astype(np.float32)
    real = image.astype(np.float32) / 255
    bytes_ = quant.QSpec(symmetric=False, observer=quant.fixed(1 / 255, -128))
    rules = [quant.rule("^x$", act=bytes_)]
    model = quant.prepare(lambda x: x @ w, rules, example_args=[real[:1]])
    params = quant.calibrate(model, [real])
    graph = rewrite.unsigned(model.freeze(params))
    assert unsigned_tensors(graph) == {"x"}
    (y,) = tosajax.compile(graph, batch=4)(image.view(np.int8))
    (wanted,) = model.apply(params, real)
    scale, zero_point = graph.quantization[graph.outputs[0]].of_all or (1, 0)
    np.testing.assert_allclose(
        (np.asarray(y).astype(np.float32) - zero_point) * scale, wanted, rtol=1e-5, atol=1e-6
    )


def test_all_inputs_of_int8_by_default():
    b = Builder()
    x, i = b.input("image", DType.INT8, (1, 6)), b.input("i", DType.INT32, (1, 6))
    graph = b.graph([b.op("REVERSE", x, axis=1, name="y"), b.op("REVERSE", i, axis=1, name="j")])
    changed = rewrite.unsigned(graph)
    assert unsigned_tensors(changed) == {"image"}
    with pytest.raises(ValueError, match="graph 'main' has no signed input of INT8"):
        rewrite.unsigned(changed)
    with pytest.raises(ValueError, match="'image' is unsigned already"):
        rewrite.unsigned(changed, "image")
    with pytest.raises(ValueError, match="'i' is INT32, expected INT8 or INT16"):
        rewrite.unsigned(graph, ["image", "i"])
    with pytest.raises(
        ValueError, match="'q' is no input or output, expected some of image, i, y, j"
    ):
        rewrite.unsigned(graph, "q")


def test_an_input_that_is_an_output():
    b = Builder()
    x = b.input("x", DType.INT8, (1, 6))
    graph = b.graph([b.op("REVERSE", x, axis=1, name="y")])
    graph = rewrite.unsigned(dataclasses.replace(graph, outputs=("y", "x")))
    given = as_unsigned(integers(DType.INT8)[0])
    y, same = tosajax.compile(graph)(given)
    np.testing.assert_array_equal(same, given)
    np.testing.assert_array_equal(y, integers(DType.INT8)[0][:, ::-1])
