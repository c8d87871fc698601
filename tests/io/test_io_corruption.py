"""Broken files end in a FormatError or UnsupportedError, soon, and in little memory."""

from __future__ import annotations

import random
import struct
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from limits import most_steps, no_hang

from tosajax import io
from tosajax.dtypes import DType
from tosajax.graph import Graph, Node, Tensor
from tosajax.io import flatbuffer, schema
from tosajax.io.versions import WRITTEN
from tosajax.report import FormatError, UnsupportedError
from tosajax.versions import V1_0

_BYTES = 32 << 20


@contextmanager
def _bounded() -> Iterator[None]:
    """Bounds time and memory; watching memory makes the work several times slower."""
    tracemalloc.start()
    try:
        with no_hang():
            yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < _BYTES


def _error(content: bytes) -> str:
    """The fault that reading the content finds, "" for none; other errors escape."""
    try:
        io.load(content)
    except (FormatError, UnsupportedError) as error:
        return str(error)
    return ""


def _loads(content: bytes) -> bool:
    message = _error(content)
    assert len(message) < 1000
    return not message


@pytest.fixture(scope="module")
def content(small_graph) -> bytes:
    return io.to_bytes(small_graph)


@pytest.fixture(scope="module")
def text(small_graph, tmp_path_factory) -> bytes:
    path = tmp_path_factory.mktemp("text") / "graph.json"
    io.save(small_graph, path)
    return path.read_bytes()


def test_truncated(content):
    with _bounded():
        loaded = [_loads(content[:end]) for end in range(0, len(content), 8)]
    assert not any(loaded)


def test_truncated_json(text):
    with _bounded():
        loaded = [_loads(text[:end]) for end in range(0, len(text.rstrip()), 64)]
    assert not any(loaded)


@pytest.mark.parametrize("form", ["flatbuffer", "json"])
def test_flipped_bytes(content, text, form):
    original = content if form == "flatbuffer" else text
    generator = random.Random(20)
    with _bounded():
        loaded = []
        for _ in range(200):
            broken = bytearray(original)
            broken[generator.randrange(len(broken))] ^= generator.randrange(1, 256)
            loaded.append(_loads(bytes(broken)))
    assert 0 < sum(loaded) < 200


@pytest.mark.parametrize("number", [0x7FFFFFFF, 0x7FFFFFF0, 0xFFFFFFFF, 0])
def test_every_word_replaced(content, number):
    """Among the words are all offsets and all lengths of vectors, tables and texts."""
    with _bounded() if number == 0x7FFFFFFF else no_hang():
        for at in range(0, len(content) - 3, 4):
            broken = bytearray(content)
            struct.pack_into("<I", broken, at, number)
            _loads(bytes(broken))


@pytest.mark.parametrize("number", [1, 0xFFFF])
def test_every_half_word_replaced(content, number):
    """Among them are the layouts of all tables."""
    with no_hang():
        for at in range(0, len(content) - 1, 2):
            broken = bytearray(content)
            struct.pack_into("<H", broken, at, number)
            _loads(bytes(broken))


_SAMPLE = schema.Table("Sample", (schema.Field("n", schema.Scalar.INT32, 0),))


@pytest.mark.parametrize(
    ("half", "number", "message"),
    [
        (0, 2, "has lengths 2 and 8"),
        (0, 7, "has lengths 7 and 8"),
        (1, 3, "has lengths 6 and 3"),
        (1, 4, "slot 4 lies outside its table of 4 bytes"),
        (2, 8, "slot 8 lies outside its table of 8 bytes"),
        (2, 2, "slot 2 lies outside its table of 8 bytes"),
    ],
)
def test_layout_of_a_table(half, number, message):
    content = bytearray(flatbuffer.encode({"n": 7}, _SAMPLE, b"TOSA"))
    root = struct.unpack_from("<I", content)[0]
    layout = root - struct.unpack_from("<i", content, root)[0]
    assert struct.unpack_from("<3H", content, layout) == (6, 8, 4)
    struct.pack_into("<H", content, layout + 2 * half, number)
    with pytest.raises(FormatError, match=message):
        flatbuffer.decode(memoryview(content), _SAMPLE)


def test_a_layout_of_a_smaller_table_of_equal_slots():
    """Writers in Python let tables share a layout, whatever their sizes."""
    content = bytearray(flatbuffer.encode({"n": 7}, _SAMPLE, b"TOSA"))
    root = struct.unpack_from("<I", content)[0]
    layout = root - struct.unpack_from("<i", content, root)[0]
    struct.pack_into("<H", content, layout + 2, 5)
    assert flatbuffer.decode(memoryview(content), _SAMPLE) == {"n": 7}


def test_length_beyond_the_file_is_named(content):
    at = content.index(b"layer/") - 4
    broken = bytearray(content)
    struct.pack_into("<I", broken, at, 0x7FFFFFFF)
    with pytest.raises(FormatError, match=r"regions\[0\]\.blocks\[0\]\.operators\[\d\]\.location"):
        io.load(bytes(broken))


def test_text_that_is_not_utf8(content):
    at = content.index(b"layer/")
    broken = content[:at] + b"\xff\xfe" + content[at + 2 :]
    with pytest.raises(FormatError, match=r"location\.text: the text at byte \d+ is not UTF-8"):
        io.load(broken)


def test_noise(content):
    generator = np.random.default_rng(3)
    with _bounded():
        for _ in range(100):
            noise = generator.integers(0, 256, len(content), np.uint8).tobytes()
            assert not _loads(content[:8] + noise)


class _Sharing(flatbuffer._Writer):
    """Writes each table and list once, however often it is referred to."""

    def __init__(self) -> None:
        super().__init__()
        self.known: dict[int, int] = {}

    def child(self, kind, value, siblings):
        if id(value) not in self.known:
            self.known[id(value)] = super().child(kind, value, siblings)
        return self.known[id(value)]


def _shared(root: dict, monkeypatch) -> bytes:
    with monkeypatch.context() as patch:
        patch.setattr(flatbuffer, "_Writer", _Sharing)
        return flatbuffer.encode(root, schema.GRAPH, schema.IDENTIFIER)


def _root(block: dict, regions: int = 1) -> dict:
    region = {"name": "main", "blocks": [{"name": "main", **block}]}
    return {"version": WRITTEN[V1_0], "regions": [region] * regions}


def test_tables_shared_without_end(monkeypatch):
    """A thousand regions of a thousand tensors of a thousand dimensions, in 16 kB."""
    tensor = {"name": "x", "shape": [1] * 1000, "type": 3}
    content = _shared(_root({"tensors": [tensor] * 1000}, regions=1000), monkeypatch)
    assert len(content) < 16384
    with _bounded(), pytest.raises(FormatError, match="referred to too often"):
        io.load(content)


def test_data_shared_without_end(monkeypatch):
    """A hundred different tensors of the same megabyte."""
    data = bytes(1 << 20)
    names = [f"t{i}" for i in range(100)]
    tensors = [{"name": n, "shape": [1 << 20], "type": 3, "data": data} for n in names]
    attribute: dict = {}
    operators = [
        {"op": 67, "attribute_type": 67, "attribute": attribute, "outputs": [n]} for n in names
    ]
    content = _shared(_root({"tensors": tensors, "operators": operators}), monkeypatch)
    assert len(content) < 2 << 20
    with _bounded(), pytest.raises(FormatError, match="referred to too often"):
        io.load(content)


def test_data_outside_shared_without_end():
    """Two hundred different tensors of the same bytes beyond the flatbuffer."""
    size = 1 << 16
    names = [f"t{i}" for i in range(200)]
    tensor = {"shape": [size], "type": 3, "offset": 2, "size": size}
    numbers = {"op": 67, "attribute_type": 67, "attribute": {}}
    block = {
        "tensors": [{"name": name, **tensor} for name in names],
        "operators": [{**numbers, "outputs": [name]} for name in names],
    }
    content = flatbuffer.encode(_root(block), schema.GRAPH, schema.IDENTIFIER)
    with no_hang(), pytest.raises(FormatError, match="referred to too often"):
        io.load(content.ljust(size + 2, b"\0"))


def test_data_shared_by_a_few_is_read(monkeypatch):
    data = bytes(range(256))
    names = [f"t{i}" for i in range(8)]
    tensors = [{"name": n, "shape": [256], "type": 3, "data": data} for n in names]
    operators = [{"op": 67, "attribute_type": 67, "attribute": {}, "outputs": [n]} for n in names]
    content = _shared(_root({"tensors": tensors, "operators": operators}), monkeypatch)
    graph = io.load(content)
    for name in names:
        values = graph.tensors[name].values
        assert values is not None
        assert values.tobytes() == data


def test_texts_overlapping_without_end():
    """Each of many words is the length of a text that goes on beyond the others."""
    count, length = 4000, 0x0F0F  # the length is text itself
    offsets = [4 * count] * count  # each to the word at its own place in the list of lengths
    words = [length] * (count + length)
    content = struct.pack(f"<I{count}I{len(words)}I", count, *offsets, *words)
    reader = flatbuffer._Reader(memoryview(content))
    with _bounded(), pytest.raises(FormatError, match="referred to too often"):
        reader.vector(0, schema.Vector(schema.Blob.TEXT))


def test_json_nested_without_end():
    for opening in (b"[", b'{"regions":['):
        assert not _loads(b'{"version":' + opening * 100_000)


def test_json_numbers_of_many_digits():
    assert not _loads(b'{"version": {"_major": ' + b"9" * 10_000 + b"}}")
    assert not _loads(b'{"version": {"_major": ' + b"9" * 4000 + b"}}")


def test_loading_is_fast():
    """The work is that of copying the data, not of a loop over bytes."""
    values = np.random.default_rng(0).integers(-128, 128, (1 << 24,)).astype(np.int8)
    tensors = {"c": Tensor("c", DType.INT8, values.shape, values)}
    content = io.to_bytes(Graph((), ("c",), tensors, (Node("CONST", (), ("c",)),)))
    with most_steps(20_000):
        graph = io.load(content)
    assert graph.tensors["c"] == tensors["c"]
