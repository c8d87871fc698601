"""Scales of a frozen model travel with its graph, its file, and the commands."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest

import tosajax
from tosajax import Builder, DType, Graph, quant
from tosajax.cli import main
from tosajax.compare import compare
from tosajax.graph.quantization import dequantize, quantize

SHAPE = (1, 4, 4, 2)


def network() -> Graph:
    """A convolution and a depthwise one, whose weights have a scale for each channel."""
    b, generator = Builder(), np.random.default_rng(0)

    def const(*shape: int, name: str) -> tosajax.Tensor:
        return b.const(generator.normal(size=shape), DType.FP32, name=name)

    x, zero = b.input("image", DType.FP32, SHAPE), b.const([0.0], DType.FP32)
    attributes = {"stride": (1, 1), "dilation": (1, 1), "acc_type": DType.FP32}
    y = b.op(
        "CONV2D", x, const(3, 3, 3, 2, name="w1"), const(3, name="b1"), zero, zero,
        pad=(1, 1, 1, 1), name="conv", **attributes,
    )  # fmt: skip
    y = b.op(
        "DEPTHWISE_CONV2D", y, const(3, 3, 3, 2, name="w2"), const(6, name="b2"), zero, zero,
        pad=(1, 1, 1, 1), name="out", **attributes,
    )  # fmt: skip
    return b.graph([y])


@pytest.fixture(scope="module")
def calibrated():
    images = np.random.default_rng(1).normal(size=(5, *SHAPE[1:])).astype(np.float32)
    # 6 bits of the image, in int8: fewer integers than the type has.
    model = quant.prepare(network(), [quant.rule("image", act=quant.QSpec(DType.INT8, bits=6))])
    params = quant.calibrate(model, [images])
    return model, params, model.freeze(params), images


def test_integers_and_real_numbers_of_the_model(calibrated):
    model, params, frozen, images = calibrated
    known = frozen.quantization
    assert {"image", "w1", "conv", "w2", "out"} <= known.keys()
    assert known["image"].bounds == (-32, 31)
    (image,) = frozen.input_tensors
    whole = quantize(images, image, known["image"])
    np.testing.assert_array_equal(whole, jax.jit(model.input_integers)(params, images)[0].q)
    (integers,) = tosajax.compile(frozen, batch=5)(whole)
    (out,) = frozen.output_tensors
    expected = np.asarray(jax.jit(model.apply)(params, images)[0])
    np.testing.assert_array_equal(dequantize(np.asarray(integers), out, known["out"]), expected)
    for name, axes in (("w1", (0,)), ("w2", (2, 3))):
        assert known[name].axes == axes
        tensor, floats = frozen.tensors[name], model.float_graph.tensors[name]
        real = dequantize(tensor.values, tensor, known[name])
        assert np.abs(real - floats.values).max() <= 0.51 * max(known[name].scale)


def test_a_file_against_its_float_file(calibrated, tmp_path, capsys, monkeypatch):
    """From the command line, without a scale by hand."""
    model, _, frozen, images = calibrated
    monkeypatch.chdir(tmp_path)
    tosajax.save(frozen, "int8.tosa")
    tosajax.save(model.float_graph, "float.tosa")
    np.save("images.npy", images)
    for first, second in (("int8.tosa", "float.tosa"), ("float.tosa", "int8.tosa")):
        given = ["compare", first, "--against", second, "--input", "images.npy"]
        assert main(given) == 1
        assert "0 of 2 tensors are equal, on 5 examples" in capsys.readouterr().out
        assert main([*given, "--min-sqnr", "15"]) == 0
        assert "2 of 2 tensors are within tolerance" in capsys.readouterr().out


def test_other_parameters_have_other_scales(calibrated):
    model, _, frozen, images = calibrated
    wider = model.freeze(quant.calibrate(model, [2 * images]))
    assert wider.quantization["image"] != frozen.quantization["image"]
    assert model.graph.quantization == {}


def test_lifted_graphs_keep_those_of_their_ends(calibrated):
    _, _, frozen, _ = calibrated
    lifted, params = quant.lift(frozen)
    again = lifted.freeze(params)
    ends = {name: frozen.quantization[name] for name in ("image", "out")}
    assert dict(again.quantization) == ends
    plain, params = quant.lift(dataclasses.replace(frozen, quantization={}))
    assert plain.freeze(params).quantization == {}


def test_scales_of_channels_travel(calibrated, tmp_path):
    """The input of a depthwise convolution has one for each, in files and in comparisons."""
    model, params, frozen, images = calibrated
    own = frozen.quantization["conv"]
    assert own.axes == (3,)
    assert len(set(own.scale)) > 1
    tosajax.save(frozen, tmp_path / "int8.tosa")
    loaded = tosajax.load(tmp_path / "int8.tosa")
    assert loaded.quantization["conv"] == own
    rows = compare(loaded, model.float_graph, images, local=True).rows
    by_name = {row.tensor: row for row in rows}
    # The floats are computed from the image as the integers have it.
    (image,), known = frozen.input_tensors, frozen.quantization["image"]
    real = dequantize(quantize(images, image, known), image, known)
    watched = model.with_outputs("conv")
    (conv,), (wanted,) = (watched.apply(params, real, mode=m) for m in ("exact", "float"))
    noise = float(np.sum(np.square(conv - wanted)))
    expected = 10 * np.log10(float(np.sum(np.square(wanted))) / noise)
    np.testing.assert_allclose(by_name["conv"].total.sqnr, expected, rtol=1e-4)
    # Few integers are off by a step, beside their own float operator, or saturate.
    for name in ("conv", "out"):
        alone = by_name[name].local
        assert alone is not None
        assert alone.mean_abs_error < 0.3
    clipped = by_name["conv"].total.clipped_a
    assert clipped is not None
    assert 0 <= clipped < 0.05
