"""Members of archives that claim more than they are."""

from __future__ import annotations

import io
import zipfile

import pytest

from tosajax.arguments.archives import content


def archive(data: bytes, kind: int = zipfile.ZIP_DEFLATED) -> tuple[zipfile.ZipFile, int]:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", kind) as written:
        written.writestr("a", data)
    return zipfile.ZipFile(file), len(file.getvalue())


def test_content_up_to_its_limit():
    data = bytes(range(100)) * 20
    opened, size = archive(data)
    entry = opened.getinfo("a")
    times = -(-len(data) // entry.compress_size)
    assert content(opened, entry, size, times) == data
    with pytest.raises(ValueError, match=f"a has 2000 bytes in .*, expected at most {times - 1} "):
        content(opened, entry, size, times - 1)
    with pytest.raises(ValueError, match="a has 2000 bytes in"):
        content(opened, entry, 10, times)  # a member cannot be larger than the file that it is in


def test_other_members():
    opened, size = archive(b"1", zipfile.ZIP_BZIP2)
    with pytest.raises(ValueError, match="a has compression 12"):
        content(opened, opened.getinfo("a"), size, 9)
    opened, size = archive(b"1")
    opened.getinfo("a").flag_bits |= 1
    with pytest.raises(ValueError, match="a is encrypted"):
        content(opened, opened.getinfo("a"), size, 9)
