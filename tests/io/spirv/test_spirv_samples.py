"""Modules that Arm's model converter made of `.tosa` files are the same graphs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from spirv_graphs import without_identities

import tosajax
from tosajax.graph import Graph
from tosajax.graph.alike import difference
from tosajax.io import spirv

_DATA = Path(__file__).parent / "data"
# Constants outside, by their names in the twin.
_OUTSIDE = {
    "conv_f32": {0: "layer_0"},
    "conv_int8": {0: "layer_4"},
    "extra": {},
    "fp32_convnet": {0: "layer_0"},
    "int8_convnet": {0: "layer_11", 1: "layer_0"},
}
_FOLDED = ("fp32_convnet",)  # the converter leaves out two RESHAPEs, one of which undoes the other


def _twin(name: str) -> Graph:
    return tosajax.load(_DATA / f"{name}.tosa")


def _sample(name: str, order: str = "<") -> Graph:
    """The graph of a sample, its words in either order."""
    words = np.fromfile(_DATA / f"{name}.spv", "<u4")
    tensors = _twin(name).tensors
    constants = {number: np.asarray(tensors[n].values) for number, n in _OUTSIDE[name].items()}
    return spirv.read(words.astype(f"{order}u4").tobytes(), constants)


@pytest.mark.parametrize("name", [name for name in _OUTSIDE if name not in _FOLDED])
def test_is_its_twin(name):
    for order in ("<", ">"):
        assert difference(without_identities(_twin(name)), _sample(name, order)) is None


def test_writing_the_extra_sample_again():
    """Names, constants and types of a module with a bit of everything."""
    graph = _sample("extra")
    again = spirv.read(*spirv.to_bytes(graph))
    assert again == graph
    assert again.source.version == "1.6, TOSA.001000.1"


@pytest.mark.parametrize(
    ("name", "data", "wanted"),
    [
        ("conv_int8", "in_i8", "ref_conv_int8"),
        ("int8_convnet", "in_i8", "ref_int8"),
        ("fp32_convnet", "in_f32", "ref_fp32"),
    ],
)
def test_outputs(name, data, wanted):
    """Those of Arm's reference model; of floats also those of the twin, bit for bit."""
    inputs = np.load(_DATA / f"{data}.npy")
    expected = np.load(_DATA / f"{wanted}.npy")
    (found,), (twin,) = (tosajax.compile(g)(inputs) for g in (_sample(name), _twin(name)))
    np.testing.assert_array_equal(found, twin)
    # SIGMOID of sums of 27 products, below 1: two steps of float32.
    np.testing.assert_allclose(found, expected, rtol=0, atol=2**-23 if name[:4] == "fp32" else 0)


def test_source():
    source = _sample("conv_f32").source
    assert (source.format, source.version) == ("SPIR-V", "1.5, TOSA.001000.1")
    assert source.producer == "LLVM MLIR SPIR-V Serializer 24"


def test_debug_information():
    """The converter writes locations as remarks, after the graph."""
    graph = spirv.read((_DATA / "extra_debug.spv").read_bytes())
    assert difference(_sample("extra"), graph) is None
    found = {n.op: n.location for n in graph.nodes if n.location is not None}
    assert found["CONV2D"] == 'loc("extra.mlir":9:10)'
    assert found.keys() == {"RFFT2D", "CONCAT", "CONV2D", "CLAMP", "LOGICAL_NOT"}
