"""Scales that a TFLite model holds, without LiteRT."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

import flatbuffers
import numpy as np
import pytest
import small_networks as small
from paths import CORPUS

import tosajax
from tosajax import FormatError, Quantization
from tosajax.compare import scales_of_tflite
from tosajax.graph.zero_points import zero_points

RESNET = CORPUS / "resnet8_int8"
FLOAT32, UINT8, INT8 = 0, 3, 9


class Entry(NamedTuple):
    """A tensor of a model."""

    name: str
    shape: Sequence[int]
    type: int = INT8
    scale: Sequence[float] = ()
    zero_point: Sequence[int] = (0,)
    axis: int = 0


def model(entries: Sequence[Entry], inputs: Sequence[int], outputs: Sequence[int]) -> bytes:
    """The file of a TFLite model of one subgraph without operators."""
    b = flatbuffers.Builder(0)

    def offsets(items: Sequence[int]) -> int:
        b.StartVector(4, len(items), 4)
        for item in reversed(items):
            b.PrependUOffsetTRelative(item)
        return b.EndVector()

    def tensor(entry: Entry) -> int:
        scale = b.CreateNumpyVector(np.asarray(entry.scale, np.float32))
        zero_point = b.CreateNumpyVector(np.asarray(entry.zero_point, np.int64))
        b.StartObject(7)
        b.PrependUOffsetTRelativeSlot(2, scale, 0)
        b.PrependUOffsetTRelativeSlot(3, zero_point, 0)
        b.PrependInt32Slot(6, entry.axis, 0)
        quantization = b.EndObject()
        shape = b.CreateNumpyVector(np.asarray(entry.shape, np.int32))
        name = b.CreateString(entry.name)
        b.StartObject(10)
        b.PrependUOffsetTRelativeSlot(0, shape, 0)
        b.PrependInt8Slot(1, entry.type, 0)
        b.PrependUOffsetTRelativeSlot(3, name, 0)
        b.PrependUOffsetTRelativeSlot(4, quantization, 0)
        return b.EndObject()

    tensors = offsets([tensor(entry) for entry in entries])
    ends = [b.CreateNumpyVector(np.asarray(x, np.int32)) for x in (inputs, outputs)]
    b.StartObject(6)
    for slot, offset in enumerate((tensors, *ends)):
        b.PrependUOffsetTRelativeSlot(slot, offset, 0)
    subgraphs = offsets([b.EndObject()])
    b.StartObject(8)
    b.PrependUint32Slot(0, 3, 0)
    b.PrependUOffsetTRelativeSlot(2, subgraphs, 0)
    b.Finish(b.EndObject(), file_identifier=b"TFL3")
    return bytes(b.Output())


# "first;conv" and "second/conv" are the names in the locations of the network's nodes.
ENTRIES = (
    Entry("image", small.SHAPE, scale=(0.25,), zero_point=(-3,)),
    Entry("first;conv", (1, 4, 4, 3), scale=(0.5,), zero_point=(5,)),
    Entry("second/conv", small.SHAPE, UINT8, scale=(2.0,), zero_point=(121,)),
    Entry("elsewhere", (1,), scale=(9.0,)),
    Entry("floats", (1,), FLOAT32),
)


def test_ends_and_located_tensors(tmp_path):
    (tmp_path / "net.tflite").write_bytes(model(ENTRIES, [0], [2]))
    found = scales_of_tflite(tmp_path / "net.tflite", small.two_layers())
    assert found == {
        "x": Quantization((0.25,), (-3,)),
        "relu1": Quantization((0.5,), (5,)),  # the last of the tensors there
        "out": Quantization((2.0,), (-7,)),  # signed in the graph
    }
    opened = small.two_layers(batch=-1)
    assert scales_of_tflite(tmp_path / "net.tflite", opened)["x"] == found["x"]


def test_channels(tmp_path):
    entry = Entry("image", small.SHAPE, scale=(0.5, 0.25), zero_point=(0, 0), axis=3)
    (tmp_path / "net.tflite").write_bytes(model([entry, ENTRIES[2]], [0], [1]))
    found = scales_of_tflite(tmp_path / "net.tflite", small.two_layers())
    assert found["x"] == Quantization((0.5, 0.25), (0,), (3,))


def test_other_models(tmp_path):
    path, graph = tmp_path / "net.tflite", small.two_layers()
    for content, error, words in (
        (b"no model at all", FormatError, "is not a TFLite model"),
        (model(ENTRIES, [0, 1], [2]), ValueError, "has 2 inputs, the graph has 1"),
        (model(ENTRIES, [0], [9]), FormatError, "outputs name tensor 9 of 5"),
    ):
        path.write_bytes(content)
        with pytest.raises(error, match=words):
            scales_of_tflite(path, graph)


def test_any_damage(tmp_path):
    """Is found, or is in numbers: nothing else is raised."""
    path, graph, generator = tmp_path / "net.tflite", small.two_layers(), random.Random(0)
    whole = model(ENTRIES, [0], [2])
    outcomes = set()
    for _ in range(600):
        damaged = bytearray(whole)
        for _ in range(generator.choice((1, 3))):
            damaged[generator.randrange(8, len(damaged))] = generator.randrange(256)
        path.write_bytes(damaged)
        try:
            scales_of_tflite(path, graph)
            outcomes.add("read")
        except ValueError:  # FormatError is one
            outcomes.add("refused")
    assert outcomes == {"read", "refused"}


@pytest.mark.skipif(not RESNET.is_dir(), reason="the corpus is not here")
def test_a_real_model():
    graph = tosajax.load(RESNET / "model_with_locations.tosa")
    found = scales_of_tflite(RESNET / "source.tflite", graph)
    assert len(found) == 26
    known = zero_points(graph)
    weights = {name for name in found if graph.tensors[name].values is not None}
    for name in found.keys() & known.keys() - weights:
        if (pair := found[name].of_all) and known[name]:
            assert pair[1] == known[name]
