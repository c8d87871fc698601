"""Reads users' `.npy` and `.npz` files, which may be damaged or have false headers.

Each defect raises a FormatError with the name of the file and, in an `.npz` file, of the member. No
pickle is loaded, and memory is allocated only for bytes that exist.
"""

from __future__ import annotations

import contextlib
import io
import math
import os
import stat
import sys
import warnings
import zipfile
from collections.abc import Iterator
from typing import IO, Any, cast

import numpy as np
from numpy.lib import format as npy

from tosajax.report import FormatError

PathLike = str | os.PathLike[str]

_CHUNK = 1 << 24  # bytes that are read at a time
_MAGIC = {
    b"\x93NUMPY": "an .npy file",
    b"PK\x03\x04": "an .npz file",
    b"PK\x05\x06": "an .npz file",
}
# DEFLATE makes at most 1032 bytes of one: a member that claims more is damaged.
_EXPANSION = 1032


def load_array(source: PathLike | bytes, *, mapped: bool = False) -> np.ndarray:
    """Reads the array of an `.npy` file.

    Args:
      source: the path of a file or a pipe, or the content of a file.
      mapped: whether to map the elements of a file to memory, read-only, instead of reading them.

    Raises:
      FormatError: the content is not one complete array of numbers or text.
      OSError: the file cannot be read.
    """
    place = _place(source)
    with _opened(source, place) as file:
        _check_magic(file, place, "an .npy file")
        size = len(source) if isinstance(source, bytes) else _size(file)
        shape, in_columns, dtype = _header(file, place)
        needed = math.prod(shape) * dtype.itemsize
        if size is not None:
            _check_size(place, shape, dtype, size - file.tell())
            if mapped and needed and not isinstance(source, bytes):
                order = "F" if in_columns else "C"
                return np.memmap(file, dtype, "r", file.tell(), shape, order)
        return _array(_bytes(file, needed, place), shape, dtype, in_columns)


def load_arrays(source: PathLike | bytes) -> dict[str, np.ndarray]:
    """Reads the arrays of an `.npz` file, by name.

    Args:
      source: the path of a file, or the content of one.

    Raises:
      FormatError: the content is not an archive of complete arrays.
      OSError: the file cannot be read.
    """
    return {name: member.read_all() for name, member in open_arrays(source).items()}


def open_arrays(source: PathLike | bytes) -> dict[str, ArrayStream]:
    """Opens the arrays of an `.npz` file, by name, to read them in parts; see `load_arrays`."""
    place = _place(source)
    with _opened(source, place) as file:
        _check_magic(file, place, "an .npz file")
        if isinstance(source, bytes) or _size(file) is None:
            archived: Any = io.BytesIO(file.read())
        else:
            archived = source  # the archive opens it, and closes it after its last stream
    with _damage(place):
        archive = zipfile.ZipFile(archived)
    streams: dict[str, ArrayStream] = {}
    with contextlib.ExitStack() as opened:
        opened.enter_context(archive)
        for info in archive.infolist():
            name = info.filename.removesuffix(".npy")
            inside = f"{place}: {info.filename}"
            if not info.filename.endswith(".npy"):
                raise FormatError(f"{inside} is not an .npy member, expected arrays only")
            if name in streams:
                raise FormatError(f"{inside} is there twice")
            file = opened.enter_context(_member(archive, info, inside))
            streams[name] = _stream(file, info, inside)
        opened.pop_all()  # the streams still read from it
    return streams


class ArrayStream:
    """An array that is read in parts, from start to end.

    Args:
      file: the file, positioned after the header.
      place: its name in messages.
      shape: the shape of the whole array.
      dtype: the type of its elements.
      in_columns: whether the array is in column-major order.
    """

    def __init__(
        self,
        file: IO[bytes],
        place: str,
        shape: tuple[int, ...],
        dtype: np.dtype,
        in_columns: bool = False,
    ) -> None:
        self._file, self._place, self._in_columns = file, place, in_columns
        self.shape, self.dtype = shape, dtype

    def read(self, count: int) -> np.ndarray:
        """The next `count` rows.

        Raises:
          FormatError: the rows are damaged or missing, or the array is in column-major order.
        """
        if self._in_columns and len(self.shape) > 1:
            raise FormatError(
                f"{self._place} is in the order of Fortran, expected C: it is read row by row"
            )
        return self._read((count, *self.shape[1:]))

    def read_all(self) -> np.ndarray:
        """Reads the whole array; must be the first read."""
        return self._read(self.shape)

    def _read(self, shape: tuple[int, ...]) -> np.ndarray:
        content = _bytes(self._file, math.prod(shape) * self.dtype.itemsize, self._place)
        return _array(content, shape, self.dtype, self._in_columns)


def _member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, place: str) -> IO[bytes]:
    if info.flag_bits & 1:
        raise FormatError(f"{place} is encrypted, expected a plain member")
    if info.file_size > _EXPANSION * (info.compress_size + 1):
        raise FormatError(
            f"{place} claims {info.file_size} bytes of {info.compress_size}: it is damaged"
        )
    with _damage(place):
        return archive.open(info)


def _stream(file: IO[bytes], info: zipfile.ZipInfo, place: str) -> ArrayStream:
    _check_magic(cast(zipfile.ZipExtFile, file), place, "an .npy file")
    shape, in_columns, dtype = _header(file, place)
    _check_size(place, shape, dtype, info.file_size - file.tell())
    return ArrayStream(file, place, shape, dtype, in_columns)


def _place(source: PathLike | bytes) -> str:
    return "the array" if isinstance(source, bytes) else os.fspath(source)


@contextlib.contextmanager
def _opened(source: PathLike | bytes, place: str) -> Iterator[io.BufferedReader]:
    if isinstance(source, bytes):
        yield io.BufferedReader(io.BytesIO(source))  # pyright: ignore[reportArgumentType]
        return
    if os.path.isdir(source):
        raise FormatError(f"{place} is a folder, expected a file of arrays")
    with open(source, "rb") as file:
        yield file


def _size(file: IO[bytes]) -> int | None:
    """The size of a file in bytes; None for a pipe or a device."""
    status = os.fstat(file.fileno())
    return status.st_size if stat.S_ISREG(status.st_mode) else None


@contextlib.contextmanager
def _damage(place: str, what: str = "") -> Iterator[None]:
    """Converts all errors that NumPy and zipfile raise for damaged bytes to a FormatError.

    Neither documents its exceptions: headers, for example, are parsed by Python's own parser.
    """
    try:
        yield
    except FormatError:
        raise
    except Exception as error:
        words = what or (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise FormatError(f"{place} is damaged: {words}") from None


def _check_magic(file: io.BufferedReader | zipfile.ZipExtFile, place: str, wanted: str) -> None:
    with _damage(place):
        start = file.peek(6)[:6]
    kind = _MAGIC.get(start) or _MAGIC.get(start[:4])
    if kind != wanted:
        words = kind or ("neither .npy nor .npz" if start else "empty")
        raise FormatError(f"{place} is {words}, expected {wanted}")


def _header(file: IO[bytes], place: str) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Reads a header: the shape, whether the order is column-major, and the element type."""
    with _damage(place, "its header cannot be read"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings about headers written by Python 2
        version = npy.read_magic(file)
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, in_columns, dtype = read(file)
    if dtype.hasobject:
        raise FormatError(
            f"{place} holds Python objects, which only pickle loads; expected numbers"
        )
    if any(isinstance(n, bool) or not 0 <= n <= sys.maxsize for n in shape) or (
        dtype.itemsize == 0 and math.prod(shape)
    ):
        raise FormatError(f"{place} claims an array of {dtype} of shape {shape}: it is damaged")
    return shape, in_columns, dtype


def _check_size(place: str, shape: tuple[int, ...], dtype: np.dtype, there: int) -> None:
    needed = math.prod(shape) * dtype.itemsize
    if needed > there:
        raise FormatError(
            f"{place} claims {needed} bytes ({dtype} of shape {shape}) and holds {there}: "
            "it is damaged, or not complete"
        )


def _bytes(file: IO[bytes], count: int, place: str) -> bytearray:
    """Reads bytes in parts: memory is allocated only for bytes that exist."""
    content = bytearray()
    with _damage(place):
        while len(content) < count and (part := file.read(min(_CHUNK, count - len(content)))):
            content += part
    if len(content) < count:
        raise FormatError(f"{place} ends after {len(content)} of {count} bytes of its array")
    return content


def _array(
    content: bytearray, shape: tuple[int, ...], dtype: np.dtype, in_columns: bool
) -> np.ndarray:
    if not content:
        return np.empty(shape, dtype)
    order = "F" if in_columns else "C"
    return np.frombuffer(content, dtype).reshape(shape, order=order)
