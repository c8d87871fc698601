"""The bytes of bytecode, read one part after another."""

from __future__ import annotations

import pytest

from tosajax import FormatError
from tosajax.io.mlir.octets import Octets


def _part(data: bytes) -> Octets:
    return Octets(data, 0, None, "a part")


def test_all_bytes_can_be_taken():
    part = _part(b"ab\0c")
    assert part.text() == b"ab"
    assert part.take(1) == 3
    part.check_end()


@pytest.mark.parametrize("size", [5, 1 << 64])
def test_bytes_that_do_not_follow(size: int):
    with pytest.raises(FormatError, match=f"{size} bytes are to follow, but only 4 do"):
        _part(b"abcd").take(size)


def test_a_text_without_its_last_zero():
    with pytest.raises(FormatError, match="a text does not end"):
        _part(b"abc").text()
    part = Octets(b"abc\0", 0, 3, "a part")  # the zero is of the next part
    with pytest.raises(FormatError, match="a text does not end"):
        part.text()


def test_indices_end_with_the_items():
    assert _part(b"\x03").item("ab") == "b"
    with pytest.raises(FormatError, match="number 2 is beyond 2"):
        _part(b"\x05").item("ab")


@pytest.mark.parametrize("alignment", [0, 3, 12])
def test_an_alignment_that_is_not_a_power_of_two(alignment: int):
    with pytest.raises(FormatError, match=f"alignment {alignment} is not a power of two"):
        _part(b"a").align(alignment)


def test_padding():
    part = _part(b"a\xcb\xcb\xcbb")
    part.take(1)
    part.align(4)
    assert part.at == 4
    part = _part(b"a\xcb\0\xcbb")
    part.take(1)
    with pytest.raises(FormatError, match="the padding is not that of MLIR"):
        part.align(4)
