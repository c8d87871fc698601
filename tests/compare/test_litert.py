"""LiteRT, on a network of the corpus and a model of one operator."""

from __future__ import annotations

import numpy as np
import pytest
import small_networks as small
from paths import CORPUS

import tosajax
from tosajax import Builder, DType, rewrite
from tosajax.compare import compare, litert, tflite
from tosajax.spec import RoundingMode

pytest.importorskip("ai_edge_litert")

RESNET = CORPUS / "resnet8_int8"
in_corpus = pytest.mark.skipif(not RESNET.is_dir(), reason="the corpus is not here")


@pytest.mark.slow
@in_corpus
def test_every_tensor_of_a_network():
    """With single rounding, it is LiteRT's default; as it is, its reference kernels but one."""
    graph = tosajax.load(RESNET / "model_with_locations.tosa")
    x = np.load(RESNET / "inputs_0.npy")[:3]
    single = compare(
        rewrite.rounding(graph, "single"), tflite(RESNET / "source.tflite", "default"), x
    )
    assert single
    assert len(single.rows) == 15
    assert all(row.location == row.other for row in single.rows)
    found = compare(graph, tflite(RESNET / "source.tflite"), x, local=True)
    wrong = [row.location for row in found.rows if row.local and row.local.mismatches]
    assert set(wrong) <= {"model/dense/MatMul;model/dense/BiasAdd"}


@pytest.mark.slow
@in_corpus
def test_outputs_without_locations():
    graph = tosajax.load(RESNET / "model.tosa")
    found = compare(graph, tflite(RESNET / "source.tflite"), np.load(RESNET / "inputs_0.npy")[:3])
    assert [row.tensor for row in found.rows] == ["TosaOutput_0"]


@in_corpus
def test_another_model():
    with pytest.raises(ValueError, match=r"input 'input_1_int8' is int8 \(1, 32, 32, 3\)"):
        compare(small.two_layers(), tflite(RESNET / "source.tflite"), small.images(1))


def test_what_is_no_model(tmp_path):
    with pytest.raises(ValueError, match="kernels 'fast', expected one of reference, builtin, def"):
        tflite("a.tflite", "fast")  # pyright: ignore[reportArgumentType]
    with pytest.raises(FileNotFoundError):
        compare(small.two_layers(), tflite(tmp_path / "no.tflite"), small.images(1))
    (tmp_path / "bad.tflite").write_bytes(b"x" * 100)
    with pytest.raises(ValueError):
        compare(small.two_layers(), tflite(tmp_path / "bad.tflite"), small.images(1))


def test_bytes_of_uint8():
    """At the ends of a graph the bits are those of uint8; inside, integers are 128 less."""
    x = np.array([-128, -1, 0, 127], np.int8)
    np.testing.assert_array_equal(litert._other_sign(x, True), x)
    np.testing.assert_array_equal(
        litert._other_sign(x, False).view(np.uint8), x.astype(np.int16) + 128
    )
    b = Builder()
    image = b.input("x", DType.INT8, (1, 4))
    # 200 as the bits of int8, and the same less 128.
    zero, low = b.const([-56], DType.INT8), b.const([72], DType.INT8)
    one = b.const([1 << 30], DType.INT32), b.const([30], DType.INT8)
    common = {
        "scale32": True, "per_channel": False, "dtype": DType.INT8,
        "rounding_mode": RoundingMode.SINGLE_ROUND,
    }  # fmt: skip
    inside = b.op(
        "RESCALE", image, *one, zero, low, input_unsigned=True, output_unsigned=False,
        name="inside", **common,
    )  # fmt: skip
    out = b.op(
        "RESCALE", inside, *one, low, zero, input_unsigned=False, output_unsigned=True,
        name="out", **common,
    )  # fmt: skip
    flat = b.op("RESHAPE", out, b.const_shape((4,)), name="flat")
    graph = b.graph([flat])
    values = np.arange(256, dtype=np.uint8).reshape(64, 4)
    wrong = values.reshape(64, 4).copy()
    wrong[40, 3] += 1  # 163, of which int8 is negative
    found = compare(
        graph, {"flat": wrong, "out": wrong, "inside": (wrong ^ 128).view(np.int8)}, values
    )
    for row in found.rows:
        assert (row.total.mismatches, row.total.max_error) == (1, 1)
        assert row.total.sqnr == pytest.approx(
            10 * np.log10(((wrong.astype(float) - 200) ** 2).sum())
        )
    assert found.rows[1].total.range_a == found.rows[2].total.range_a == (0, 255)
    assert found.rows[0].total.range_a == (-128, 127)
