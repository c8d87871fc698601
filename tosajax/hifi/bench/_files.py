"""Reads and writes files of arrays: contiguous little-endian elements, without a header."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tosajax.atomic import replacing
from tosajax.hifi.bench._options import BenchError, check

# Arrays by name.
Frame = dict[str, np.ndarray]


class Array(NamedTuple):
    """A contiguous array in a file.

    Args:
      name: the array's name.
      dtype: the element type.
      shape: elements along each axis.
      limit: the bound of random integers; by default they span the range of their type.
    """

    name: str
    dtype: type
    shape: tuple[int, ...]
    limit: int | None = None

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * np.dtype(self.dtype).itemsize


class File(NamedTuple):
    """A file with the same arrays for each frame.

    Args:
      arrays: the arrays, in the file's order.
      frames: the number of frames.
      read: the path of inputs, or of outputs to compare with; None for random inputs.
      write: the path to which the arrays are written, or None.
    """

    arrays: Sequence[Array]
    frames: int
    read: str | None = None
    write: str | None = None

    @property
    def elements(self) -> int:
        return self.frames * sum(array.size for array in self.arrays)


def size_of(path: str) -> int:
    """The size of a file in bytes.

    Raises:
      BenchError: `path` is not a file.
    """
    try:
        size = Path(path).stat().st_size
    except (OSError, ValueError) as error:
        raise _failed(path, error) from None
    check(Path(path).is_file(), f"{path!r} is not a regular file")
    return size


def read_frames(path: str, file: File) -> list[Frame]:
    """Reads the frames of a file.

    Raises:
      BenchError: the file cannot be read, or has the wrong size.
    """
    each = sum(array.nbytes for array in file.arrays)
    size, names = size_of(path), ", ".join(array.name for array in file.arrays)
    wanted = f"expected {file.frames * each}: {file.frames} x {each} for {names}"
    check(size == file.frames * each, f"{path!r} has {size} bytes, {wanted}")
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise _failed(path, error) from None
    check(len(data) == size, f"{path!r} has {len(data)} bytes, {wanted}")
    return [_frame(data[i * each : (i + 1) * each], file.arrays) for i in range(file.frames)]


def random_frames(rng: np.random.Generator, file: File) -> list[Frame]:
    """Makes random arrays: floats within [-1, 1], and integers.

    In odd frames integers have random magnitudes of up to 3/4 of their bits, so that sums of
    products do not saturate.
    """

    def of(array: Array, is_odd: int) -> np.ndarray:
        if array.dtype is np.float32:
            return rng.uniform(-1.0, 1.0, array.shape).astype(np.float32)
        info = np.iinfo(array.dtype)
        limit = array.limit or info.max
        low, high = max(info.min, -limit - 1), min(info.max, limit)
        x = rng.integers(low, high, array.shape, array.dtype, endpoint=True)
        if not is_odd:
            return x
        return x >> rng.integers(info.bits // 4, info.bits, array.shape).astype(array.dtype)

    return [{array.name: of(array, i % 2) for array in file.arrays} for i in range(file.frames)]


def check_writable(path: str) -> None:
    """Raises BenchError if a file cannot be written to a path."""
    try:
        target = Path(path).resolve()
        check(target.parent.is_dir(), f"{path!r}: there is no folder {str(target.parent)!r}")
        holds = target.is_file() or not target.exists()
        check(holds, f"{path!r} is not a regular file")
    except (OSError, ValueError) as error:
        raise _failed(path, error) from None


def write_file(path: str, arrays: Iterable[np.ndarray]) -> None:
    """Writes a file of arrays, atomically.

    Raises:
      BenchError: the file cannot be written.
    """
    data = b"".join(array.astype(_little(array.dtype)).tobytes() for array in arrays)
    try:
        with replacing(Path(path).resolve()) as file:
            file.write(data)
    except OSError as error:
        raise _failed(path, error) from None


def _frame(data: bytes, arrays: Sequence[Array]) -> Frame:
    frame, at = {}, 0
    for array in arrays:
        elements = np.frombuffer(data[at : at + array.nbytes], _little(array.dtype))
        # Copies, because the address must be aligned.
        frame[array.name] = elements.astype(array.dtype).reshape(array.shape)
        at += array.nbytes
    return frame


def _little(dtype: type | np.dtype) -> np.dtype:
    return np.dtype(dtype).newbyteorder("<")


def _failed(path: str, error: OSError | ValueError) -> BenchError:
    return BenchError(f"{path!r}: {getattr(error, 'strerror', None) or error}")
