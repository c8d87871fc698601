"""The reader of flatbuffers, by its parts: lengths at the end of the file."""

from __future__ import annotations

import struct

import pytest

from tosajax import FormatError
from tosajax.io.flatbuffer import _Reader
from tosajax.io.schema import Scalar, Vector


def _reader(count: int, size: int) -> _Reader:
    """Of a vector that states a length, and the bytes behind it."""
    return _Reader(memoryview(struct.pack("<I", count) + bytes(size)))


def test_a_vector_may_end_with_the_file():
    assert _reader(2, 8).run(0, 4) == (4, 2)
    assert _reader(2, 8).vector(0, Vector(Scalar.INT32)) == [0, 0]
    assert _reader(0, 0).octets(0).size == 0


@pytest.mark.parametrize("count", [3, 1 << 31, (1 << 32) - 1])
def test_a_vector_beyond_the_file(count: int):
    message = f"root: a vector of {count} elements takes bytes 4 to {4 + 4 * count}, beyond the 12"
    with pytest.raises(FormatError, match=message):
        _reader(count, 8).vector(0, Vector(Scalar.INT32))


def test_data_beyond_the_file():
    with pytest.raises(FormatError, match="a vector of 9 elements takes bytes 4 to 13, beyond"):
        _reader(9, 8).octets(0)


def test_a_text_needs_its_last_zero():
    assert _reader(7, 8).text(0) == "\0" * 7
    with pytest.raises(FormatError, match="the end of a text takes bytes 12 to 13, beyond"):
        _reader(8, 8).text(0)
