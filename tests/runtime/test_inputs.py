"""Arrays of unsigned integers at every door: taken where the graph reads them so, else refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import small_networks as small

import tosajax
from tosajax import Builder, DType, Graph
from tosajax.cli import main
from tosajax.compare import compare, which_rounding
from tosajax.runtime.dump import dump
from tosajax.spec import RoundingMode
from tosajax.sweep import Sweep, grid

LEVELS = np.arange(256, dtype=np.uint8).reshape(64, 4)


def network(dtype: DType = DType.INT8, *, unsigned: bool) -> Graph:
    """The input as int8 or int16, less its middle where it is unsigned."""
    middle = 1 << (dtype.bits - 1)
    b = Builder()
    x = b.input("x", dtype, (1, 4))
    zero_point = -middle if unsigned else 0  # the bits of the middle of the unsigned range
    scale = b.const([1 << 14], DType.INT16), b.const([14], DType.INT8)
    zeros = b.const([zero_point], dtype), b.const([0], dtype)
    y = b.op(
        "RESCALE", x, *scale, *zeros, dtype=dtype, scale32=False, per_channel=False,
        rounding_mode=RoundingMode.SINGLE_ROUND, input_unsigned=unsigned, output_unsigned=False,
        name="y",
    )  # fmt: skip
    return b.graph([y])


def call(graph: Graph, x: np.ndarray, _: Path) -> Any:
    return tosajax.compile(graph, batch=len(x))(x)[0]


def call_with_jax(graph: Graph, x: np.ndarray, _: Path) -> Any:
    return tosajax.compile(graph, batch=len(x))(jnp.asarray(x))[0]


def saved(graph: Graph, x: np.ndarray, folder: Path) -> Any:
    tosajax.compile(graph, batch=len(x)).save(folder / "saved.bin")
    return tosajax.load_executable(folder / "saved.bin")(x)[0]


def dumped(graph: Graph, x: np.ndarray, _: Path) -> Any:
    return dump(graph, x)["y"]


def compared(graph: Graph, x: np.ndarray, _: Path) -> Any:
    wanted = tosajax.compile(graph, batch=len(x))(_signed(graph, x))[0]
    assert compare(graph, {"y": np.asarray(wanted)}, x)
    return wanted


def rounded(graph: Graph, x: np.ndarray, _: Path) -> Any:
    wanted = tosajax.compile(graph, batch=len(x))(_signed(graph, x))[0]
    assert which_rounding(graph, {"own": {"y": np.asarray(wanted)}}, x).equal
    return wanted


def swept(graph: Graph, x: np.ndarray, _: Path) -> Any:
    wanted = tosajax.compile(graph, batch=len(x))(_signed(graph, x))[0]
    found = Sweep(graph, (x,), ["max_lsb"], grid(), reference=np.asarray(wanted)).run()
    assert found.rows[0]["max_lsb"] == 0
    return wanted


def command(graph: Graph, x: np.ndarray, folder: Path) -> Any:
    tosajax.save(graph, folder / "m.tosa")
    np.save(folder / "x.npy", x)
    files = [str(folder / name) for name in ("m.tosa", "x.npy", "y.npy")]
    if main(["run", files[0], "--input", files[1], "--output", files[2], "--debug"]):
        raise AssertionError("no status 0")
    return np.load(files[2])


def _signed(graph: Graph, x: np.ndarray) -> np.ndarray:
    (tensor,) = graph.input_tensors
    return x.view(tensor.dtype.storage)


DOORS = [call, call_with_jax, saved, dumped, compared, rounded, swept, command]


@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__name__)
def test_unsigned_integers_are_refused_where_the_graph_is_signed(door: Callable, tmp_path):
    with pytest.raises(
        TypeError, match=r"input 'x' has type uint8, .*\.view\(int8\).* \(x \^ 128\)"
    ):
        door(network(unsigned=False), LEVELS, tmp_path)


@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__name__)
def test_unsigned_integers_are_values_where_the_graph_reads_them_so(door: Callable, tmp_path):
    found = door(network(unsigned=True), LEVELS, tmp_path)
    np.testing.assert_array_equal(np.asarray(found), LEVELS.astype(np.int64) - 128)


def test_unsigned_integers_of_16_bits():
    values = np.array([[0, 1, 0x7FFF, 0x8000], [0x8001, 0xFFFE, 0xFFFF, 5]], np.uint16)
    found = dump(network(DType.INT16, unsigned=True), values)["y"]
    np.testing.assert_array_equal(found, values.astype(np.int64) - 0x8000)
    with pytest.raises(TypeError, match=r"uint16, expected int16 .*\(x \^ 32768\)\.view\(int16\)"):
        dump(network(DType.INT16, unsigned=False), values)


@pytest.mark.parametrize("bits", [np.uint16, "V2"])
def test_floats_that_numpy_files_cannot_name_are_bits_in_data_sets_alone(bits):
    b = Builder()
    graph = b.graph([b.op("NEGATE", b.input("x", DType.BF16, (1, 2)), *zeros(b), name="y")])
    values: Any = np.array([[1, -2], [3.5, 0]], ml_dtypes.bfloat16)
    np.testing.assert_array_equal(dump(graph, values.view(bits))["y"], -values)
    stored = {"y": (-values).view(np.uint16)}
    found = Sweep(graph, (values.view(bits),), ["sqnr"], grid(), reference=-values).run()
    assert compare(graph, stored, values.view(bits))
    assert found.rows[0]["sqnr"] == np.inf
    with pytest.raises(TypeError, match=r"\.view\(bfloat16\) if it holds the same bits$"):
        tosajax.compile(graph, batch=2)(values.view(bits))


def zeros(b: Builder) -> Any:
    return b.const([0], DType.BF16), b.const([0], DType.BF16)


def test_images_of_a_signed_network_in_the_form_of_its_message():
    """The two ways out of the message: the same bits, and images of 0..255."""
    images = small.images(3).view(np.uint8)
    graph = small.two_layers()
    with pytest.raises(TypeError, match="uint8"):
        dump(graph, images)
    moved = (images.astype(np.int16) - 128).astype(np.int8)
    np.testing.assert_array_equal(
        dump(graph, (images ^ 128).view(np.int8))["out"], dump(graph, moved)["out"]
    )


def test_sweeps_read_unsigned_outputs_as_unsigned():
    """The largest score of uint8 is not that of int8; references may be in either form."""
    b = Builder()
    x = b.input("x", DType.INT8, (1, 4))
    zeros = b.const([0], DType.INT8), b.const([-128], DType.INT8)
    y = b.op(
        "RESCALE", x, b.const([1 << 14], DType.INT16), b.const([14], DType.INT8), *zeros,
        dtype=DType.INT8, scale32=False, per_channel=False, input_unsigned=False,
        rounding_mode=RoundingMode.SINGLE_ROUND, output_unsigned=True, name="y",
    )  # fmt: skip
    graph = b.graph([y])
    x = np.array([[0, 100, -100, 50], [120, 1, 2, 3], [10, 20, 30, 127], [-1, -2, -3, -4]], np.int8)
    labels = np.argmax(x, 1).astype(np.int32)
    wanted = (x.astype(np.int16) + 128).astype(np.uint8)
    names = ["accuracy", "agreement", "max_lsb"]
    for reference in (wanted, wanted.view(np.int8)):
        sweep = Sweep(graph, (x, labels), names, grid(), reference=reference)
        assert [sweep.run().rows[0][name] for name in names] == [1, 1, 0]
    real = (wanted.astype(np.float32) - 128) * np.float32(0.5)
    sweep = Sweep(graph, (x, labels), ["sqnr"], grid(), reference=real, output_quant=(0.5, 128))
    assert sweep.run().rows[0]["sqnr"] == np.inf
