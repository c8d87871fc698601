"""Damaged real files, from loading to lowering: a clear error or a legal graph, soon."""

from __future__ import annotations

import dataclasses
import struct

import numpy as np
import pytest
from limits import no_hang

import tosajax
from tosajax import Builder, DType, FormatError, TosaError, UnsupportedError, io

NAMES = ["et_digits_cnn_a8w8", "jax_attn", "jax_gather"]


def survives(content: bytes) -> bool:
    """Whether a damaged file is still a legal graph; anything but our errors escapes."""
    try:
        graph = tosajax.load(content, batch=2)
        tosajax.validate(graph).raise_errors()
        tosajax.lower(graph)
    except (FormatError, TosaError, UnsupportedError):
        return False
    except ValueError as error:
        # An input that the flip opened or closed is told as a misuse of `batch`.
        if "give batch= or shapes=" not in str(error):
            raise
        return False
    return True


@pytest.fixture(params=NAMES)
def content(request, data) -> bytes:
    return (data / request.param / "model.tosa").read_bytes()


@pytest.fixture(autouse=True)
def _ends():
    with no_hang():
        yield


def test_whole_files_survive(content):
    assert survives(content)


def test_truncated_at_every_64th_byte(content):
    assert not any(survives(content[:end]) for end in range(0, len(content), 64))


def test_random_byte_flips(content):
    rng = np.random.default_rng(5)
    for position, mask in zip(
        rng.integers(0, len(content), 200), rng.integers(1, 256, 200), strict=True
    ):
        damaged = bytearray(content)
        damaged[position] ^= mask
        survives(bytes(damaged))


def test_random_byte_flips_of_a_file_with_open_dimensions():
    b = Builder()
    x = b.input("x", DType.INT32, (-1, 2, 3))
    flat = b.op("RESHAPE", x, b.const_shape([-1, 6]), shape=(-1, 6))
    part = b.op("SLICE", flat, b.const_shape([0, 1]), b.const_shape([-1, 4]), shape=(-1, 4))
    content = io.to_bytes(b.graph(outputs=[b.op("ADD", part, part, shape=(-1, 4))]))
    assert survives(content)
    rng = np.random.default_rng(7)
    outcomes = []
    for position in rng.integers(0, len(content), 1500):
        damaged = bytearray(content)
        damaged[position] ^= 1 << rng.integers(0, 8)
        outcomes.append(survives(bytes(damaged)))
    assert 0 < sum(outcomes) < len(outcomes)


def test_wrong_magic(content):
    wanted = dict.fromkeys((b"TOSB", b"\0\0\0\0"), "expected one of TOSA flatbuffer")
    for magic, message in (wanted | {b"TFL3": "the TFLite model is broken"}).items():
        with pytest.raises(FormatError, match=message):
            tosajax.load(content[:4] + magic + content[8:])


def test_lengths_of_two_gigabytes(content):
    """Every small aligned number, of which the lengths are some, becomes 2**31 - 1."""
    small = [
        position
        for position in range(8, len(content) - 3, 4)
        if 0 < struct.unpack_from("<I", content, position)[0] < len(content)
    ]
    for position in np.random.default_rng(6).permutation(small)[:300]:
        damaged = bytearray(content)
        struct.pack_into("<I", damaged, position, 2**31 - 1)
        survives(bytes(damaged))


def test_cyclic_graph():
    b = Builder()
    x = b.input("x", DType.INT32, (2,))
    a = b.op("ADD", x, x, name="a")
    c = b.op("ADD", a, x, name="c")
    graph = b.graph(outputs=[c])
    assert survives(io.to_bytes(graph))
    nodes = (tosajax.Node("ADD", ("x", "c"), ("a",)), graph.nodes[1])
    content = io.to_bytes(dataclasses.replace(graph, nodes=nodes))
    with pytest.raises(TosaError, match=r"depends on itself \[graph\.cycle\]"):
        tosajax.compile(tosajax.load(content))


def test_unknown_operator(data):
    graph = tosajax.load(data / "jax_gather" / "model.tosa")
    content = io.to_bytes(graph)
    gather = struct.pack("<I", 62)
    positions = [i for i in range(0, len(content) - 3, 4) if content[i : i + 4] == gather]
    assert positions
    for position in positions:
        damaged = bytearray(content)
        struct.pack_into("<I", damaged, position, 9999)
        assert not survives(bytes(damaged))


def test_missing_constant(data):
    graph = tosajax.load(data / "jax_mlp" / "model.tosa")
    without = tuple(n for n in graph.nodes if n.op != "CONST")
    content = io.to_bytes(dataclasses.replace(graph, nodes=without))
    with pytest.raises((FormatError, TosaError), match=r"no node produces|graph\.undefined"):
        tosajax.compile(tosajax.load(content))
