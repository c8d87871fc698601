"""Element types: ranges, the NumPy type each is held in, and packing at the file boundary.

int4 is held in int8 and int48 in int64; bf16 and fp8 use ml_dtypes; shapes are int64 lists.
Source: "Supported Number Formats" (TOSA 1.0.1).
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import ml_dtypes
import numpy as np

from tosajax.versions import V1_0, Version

if TYPE_CHECKING:
    import jax


class Part(NamedTuple):
    """An array of a value: its NumPy type and its shape."""

    dtype: np.dtype
    shape: tuple[int, ...]


class DType(enum.Enum):
    """An element type of TOSA, with its name in interchange files.

    Example:
      >>> import tosajax
      >>> int48 = tosajax.DType.INT48
      >>> int48.storage, int48.bits, int48.maximum
      (dtype('int64'), 48, 140737488355327)
    """

    BOOL = "BOOL"
    INT4 = "INT4"
    INT8 = "INT8"
    INT16 = "INT16"
    INT32 = "INT32"
    INT48 = "INT48"
    FP32 = "FP32"
    FP16 = "FP16"
    BF16 = "BF16"
    SHAPE = "SHAPE"
    FP8E4M3 = "FP8E4M3"
    FP8E5M2 = "FP8E5M2"

    @property
    def storage(self) -> np.dtype:
        """The NumPy type that holds arrays of this element type."""
        return _FORMATS[self].storage

    def parts(self, shape: Sequence[int]) -> tuple[Part, ...]:
        """The arrays that hold a value of this type.

        One array in TOSA 1.0. A block-scaled type has two, its elements and their scales, which
        `tosajax.block_scaled.BlockScaled` holds.
        """
        return (Part(self.storage, tuple(shape)),)

    def zeros(self, shape: Sequence[int]) -> np.ndarray:
        """A value of zeros."""
        ((dtype, shape),) = self.parts(shape)
        return np.zeros(shape, dtype)

    def struct(self, shape: Sequence[int]) -> jax.ShapeDtypeStruct:
        """The type and shape of a value, for `jax.eval_shape` and `jax.jit(...).lower`."""
        import jax

        ((dtype, shape),) = self.parts(shape)
        return jax.ShapeDtypeStruct(shape, dtype)

    def accepts(self, value: np.ndarray | jax.Array) -> bool:
        """Whether an array has the type that holds this element type."""
        return value.dtype == self.storage

    def nbytes(self, shape: Sequence[int]) -> int:
        """Bytes of a value in memory."""
        return sum(math.prod(part.shape) * part.dtype.itemsize for part in self.parts(shape))

    @property
    def is_float(self) -> bool:
        return _FORMATS[self].is_float

    @property
    def is_integer(self) -> bool:
        return _FORMATS[self].is_integer

    @property
    def bits(self) -> int:
        """The size of one element in a file, in bits."""
        return _FORMATS[self].bits

    @property
    def since(self) -> Version:
        """The first version of the specification that has it."""
        return _FORMATS[self].since

    @property
    def until(self) -> Version | None:
        """The last version of the specification that has it; None if the newest version does."""
        return _FORMATS[self].until

    @property
    def minimum(self) -> int:
        """The smallest value of an integer type (-7 for int4, which is symmetric)."""
        return -7 if self is DType.INT4 else -1 - self.maximum

    @property
    def maximum(self) -> int:
        """The largest value of an integer type.

        Raises:
          TypeError: this is not an integer type.
        """
        if not self.is_integer:
            raise TypeError(f"{self.name} is not an integer type")
        return (1 << (self.bits - 1)) - 1

    def limits(self, *, unsigned: bool = False) -> tuple[int, int]:
        """The smallest and largest value of an integer type, or of its unsigned counterpart.

        Raises:
          TypeError: this is not an integer type.
        """
        return (0, 2 * self.maximum + 1) if unsigned else (self.minimum, self.maximum)

    def __repr__(self) -> str:
        return f"DType.{self.name}"


class _Format(NamedTuple):
    storage: np.dtype
    bits: int
    is_integer: bool = False
    is_float: bool = False
    since: Version = V1_0
    until: Version | None = None


def _integer(storage: type, bits: int) -> _Format:
    return _Format(np.dtype(storage), bits, is_integer=True)


def _float(storage: type) -> _Format:
    return _Format(np.dtype(storage), 8 * np.dtype(storage).itemsize, is_float=True)


_FORMATS = {
    DType.BOOL: _Format(np.dtype(np.bool_), 8),
    DType.INT4: _integer(np.int8, 4),
    DType.INT8: _integer(np.int8, 8),
    DType.INT16: _integer(np.int16, 16),
    DType.INT32: _integer(np.int32, 32),
    DType.INT48: _integer(np.int64, 48),
    DType.FP32: _float(np.float32),
    DType.FP16: _float(np.float16),
    DType.BF16: _float(ml_dtypes.bfloat16),
    DType.SHAPE: _Format(np.dtype(np.int64), 64),
    DType.FP8E4M3: _float(ml_dtypes.float8_e4m3fn),
    DType.FP8E5M2: _float(ml_dtypes.float8_e5m2),
}


def packed_size(dtype: DType, count: int) -> int:
    """The size of `count` elements in a file, in bytes: half a byte for int4, six for int48."""
    return -(-count * dtype.bits // 8)


def to_storage(values: object, dtype: DType) -> np.ndarray:
    """Converts values to `dtype.storage`; floats may be rounded, integers must not change.

    Raises:
      ValueError: a value is not an integer, or beyond the bits of the type.
    """
    array = np.asarray(values)
    with np.errstate(invalid="ignore", over="ignore"):
        stored = array.astype(dtype.storage, copy=False)
    if dtype.is_float:
        return stored
    limit = 1 << (dtype.bits - 1)
    beyond = dtype.is_integer and stored.size and not -limit <= stored.min() <= stored.max() < limit
    if beyond or (array.dtype != stored.dtype and not np.array_equal(stored, array)):
        raise ValueError(f"values in [{array.min()}, {array.max()}] do not fit {dtype.name}")
    return stored


def pack(values: np.ndarray, dtype: DType) -> bytes:
    """Encodes values as the bytes of a file, little endian, row major.

    Raises:
      ValueError: a value does not fit the type.
    """
    flat = np.ascontiguousarray(to_storage(values, dtype)).reshape(-1)
    if dtype is DType.INT4:
        nibbles = np.zeros(packed_size(dtype, flat.size) * 2, np.uint8)
        nibbles[: flat.size] = flat.view(np.uint8) & 0xF
        return (nibbles[0::2] | nibbles[1::2] << 4).tobytes()
    if dtype is DType.INT48:
        octets = flat.astype("<i8").view(np.uint8).reshape(-1, 8)
        return octets[:, :6].tobytes()
    return flat.astype(flat.dtype.newbyteorder("<")).tobytes()


def unpack(data: bytes | np.ndarray, dtype: DType, shape: Sequence[int]) -> np.ndarray:
    """Decodes the bytes of a file into an array of `dtype.storage`, the inverse of `pack`.

    Raises:
      ValueError: the length of `data` does not match `dtype` and `shape`.
    """
    raw = np.frombuffer(data, np.uint8)
    count = math.prod(map(int, shape))
    if raw.size != packed_size(dtype, count):
        raise ValueError(
            f"{raw.size} bytes of data, expected {packed_size(dtype, count)} "
            f"for {dtype.name} of shape {tuple(shape)}"
        )
    if dtype is DType.INT4:
        nibbles = np.stack([raw & 0xF, raw >> 4], axis=-1).reshape(-1)[:count]
        return ((nibbles ^ 8).astype(np.int8) - np.int8(8)).reshape(shape)
    if dtype is DType.INT48:
        sign = np.where(raw.reshape(-1, 6)[:, 5:] & 0x80, 0xFF, 0).astype(np.uint8)
        octets = np.concatenate([raw.reshape(-1, 6), sign, sign], axis=1)
        return np.ascontiguousarray(octets).view("<i8").astype(np.int64).reshape(shape)
    if dtype is DType.BOOL:
        return (raw != 0).reshape(shape)
    return raw.view(dtype.storage.newbyteorder("<")).astype(dtype.storage).reshape(shape)
