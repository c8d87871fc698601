"""Arrays of users: what is damaged is a FormatError that names the file, and takes no memory."""

from __future__ import annotations

import io
import os
import random
import sys
import threading
import zipfile
from pathlib import Path

import numpy as np
import pytest

from tosajax.arguments.arrays import load_array, load_arrays, open_arrays
from tosajax.report import FormatError

GOOD = [
    np.arange(12).reshape(3, 4),
    np.asfortranarray(np.arange(12.0).reshape(3, 4)),
    np.zeros((0, 3), np.int8),
    np.array(3, np.float32),
    np.array(["a", "bc"]),
]


def header(text: str, version: int = 1, elements: bytes = b"") -> bytes:
    size = len(text).to_bytes(2 if version == 1 else 4, "little")
    return b"\x93NUMPY" + bytes([version, 0]) + size + text.encode() + elements


def described(shape: str, descr: str = "'<f4'", order: str = "False") -> str:
    return f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}"


def packed(member: bytes, name: str = "x.npy") -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, member)
    return data.getvalue()


@pytest.mark.parametrize("array", GOOD, ids=["rows", "columns", "empty", "scalar", "text"])
def test_whole(tmp_path, array):
    np.save(tmp_path / "a.npy", array)
    np.savez_compressed(tmp_path / "a.npz", x=array, y=array)
    for found in (
        load_array(tmp_path / "a.npy"),
        load_array(tmp_path / "a.npy", mapped=True),
        load_array((tmp_path / "a.npy").read_bytes()),
        *load_arrays(tmp_path / "a.npz").values(),
        load_arrays((tmp_path / "a.npz").read_bytes())["y"],
    ):
        np.testing.assert_array_equal(found, array, strict=True)


def test_parts_of_a_large_member(tmp_path):
    array = np.random.default_rng(0).standard_normal((300, 200))
    np.savez(tmp_path / "a.npz", x=array, columns=np.asfortranarray(array))
    streams = open_arrays(tmp_path / "a.npz")
    parts = [streams["x"].read(100) for _ in range(3)]
    np.testing.assert_array_equal(np.concatenate(parts), array)
    with pytest.raises(FormatError, match=r"columns\.npy is in the order of Fortran"):
        streams["columns"].read(1)


def test_a_pipe(tmp_path):
    array = np.arange(99.0)
    np.save(tmp_path / "a.npy", array)
    os.mkfifo(tmp_path / "pipe")
    content = (tmp_path / "a.npy").read_bytes()
    for end, expected in ((None, array), (-1, None)):
        writer = threading.Thread(target=(tmp_path / "pipe").write_bytes, args=(content[:end],))
        writer.start()
        if expected is not None:
            np.testing.assert_array_equal(load_array(tmp_path / "pipe", mapped=True), expected)
        else:
            with pytest.raises(FormatError, match="ends after 791 of 792 bytes"):
                load_array(tmp_path / "pipe")
        writer.join()


HEADERS = {
    "more_than_there_is": (described("(10**18,)".replace("10**18", "1" + "0" * 18)), "claims"),
    "beyond_64_bits": (described(f"({'9' * 50},)"), "claims"),
    "negative": (described("(-1,)"), "claims"),
    "bool": (described("(True,)"), "claims"),
    "elements_of_nothing": (described("(3,)", "'|V0'"), "claims"),
    "objects": (described("(1,)", "'|O'"), "pickle"),
    "open_brace": ("{", "its header cannot be read"),
    "deep": ("(" * 5000, "its header cannot be read"),
    "quotes": ("'''", "its header cannot be read"),
    "zero": ("\0", "its header cannot be read"),
    "order": (described("(2,)", order="3"), "its header cannot be read"),
    "type": (described("(2,)", "'<q9'"), "its header cannot be read"),
}


@pytest.mark.parametrize("name", HEADERS)
def test_headers(tmp_path, name):
    text, words = HEADERS[name]
    for version in (1, 2, 3, 9):
        (tmp_path / "bad.npy").write_bytes(header(text, version))
        (tmp_path / "bad.npz").write_bytes(packed(header(text, version)))
        for mapped in (False, True):
            with pytest.raises(FormatError, match=r"bad\.npy") as caught:
                load_array(tmp_path / "bad.npy", mapped=mapped)
            assert words in str(caught.value) or version == 9
        with pytest.raises(FormatError, match=r"bad\.npz: x\.npy"):
            load_arrays(tmp_path / "bad.npz")


@pytest.mark.skipif(sys.platform != "linux", reason="lists open files as Linux does")
@pytest.mark.parametrize("name", HEADERS)
def test_a_refused_archive_is_closed(tmp_path, name):
    content = header(HEADERS[name][0], 1)
    for members in ([content], [header(described("(0,)"), 1), content], [b"no header"]):
        with zipfile.ZipFile(tmp_path / "bad.npz", "w") as archive:
            for i, member in enumerate(members):
                archive.writestr(f"{i}.npy", member)
        with pytest.raises(FormatError) as caught:
            load_arrays(tmp_path / "bad.npz")
        assert "bad.npz" in str(caught.value)  # which holds the frames of the readers
        opened = [
            os.readlink(link) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()
        ]
        assert not [path for path in opened if path.endswith("bad.npz")]


def test_files_of_another_kind(tmp_path):
    np.save(tmp_path / "a.npy", np.ones(3))
    np.savez(tmp_path / "a.npz", x=np.ones(3))
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "text.npz").write_bytes(packed(b"hello", "notes.txt"))
    for load, name, words in (
        (load_array, "a.npz", "is an .npz file, expected an .npy file"),
        (load_arrays, "a.npy", "is an .npy file, expected an .npz file"),
        (load_array, "empty", "is empty"),
        (load_array, ".", "is a folder"),
        (load_arrays, ".", "is a folder"),
        (load_arrays, "text.npz", "notes.txt is not an .npy member"),
    ):
        with pytest.raises(FormatError) as caught:
            load(tmp_path / name)
        assert str(tmp_path) in str(caught.value)
        assert words in str(caught.value)
    with pytest.raises(FormatError, match="/dev/zero is neither"):
        load_array("/dev/zero")
    with pytest.raises(FileNotFoundError):
        load_array(tmp_path / "nowhere.npy")


def test_members_that_lie(tmp_path):
    whole = bytearray(packed(header(described("(1000,)"), elements=bytes(4000))))
    at = whole.index(b"PK\x01\x02")
    encrypted, larger = bytearray(whole), bytearray(whole)
    encrypted[at + 8] |= 1
    larger[at + 24 : at + 28] = (1 << 31).to_bytes(4, "little")
    for content, words in ((encrypted, "is encrypted"), (larger, "claims 2147483648 bytes of")):
        with pytest.raises(FormatError, match=words):
            load_arrays(bytes(content))


@pytest.mark.parametrize(("load", "save"), [(load_array, np.save), (load_arrays, np.savez)])
def test_any_damage(load, save):
    data, generator = io.BytesIO(), random.Random(0)
    save(data, np.arange(30))
    outcomes = set()
    for _ in range(1500):
        damaged = bytearray(data.getvalue())
        for _ in range(generator.choice((1, 1, 3, 20))):
            damaged[generator.randrange(len(damaged))] = generator.randrange(256)
        if generator.random() < 0.3:
            damaged = damaged[: generator.randrange(len(damaged))]
        try:
            load(bytes(damaged))
            outcomes.add("read")
        except FormatError:
            outcomes.add("refused")
    assert outcomes == {"read", "refused"}


def test_nothing_else_reads_arrays():
    """One loader: no other module calls np.load, but for what it wrote itself."""
    package = Path(load_array.__code__.co_filename).parent
    found = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if "np.load(" in path.read_text()
    }
    assert found <= {"runtime/saved.py", "reference_model/model.py", "sweep/data.py"}
