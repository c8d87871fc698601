"""Element types: ranges, the NumPy type each is held in, and packing at the file boundary.

int4 is held in int8 and int48 in int64; bf16 and fp8 use ml_dtypes; shapes are int64 lists.
Source: "Supported Number Formats" (TOSA 1.0.1).
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import ml_dtypes
import numpy as np

from tosajax.versions import V1_0, Version

if TYPE_CHECKING:
    from tosajax.block_scaled import Value

_SCALES = np.dtype(ml_dtypes.float8_e8m0fnu)


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
        """The NumPy type that holds the elements of this type."""
        return _FORMATS[self].storage

    @property
    def block(self) -> int | None:
        """The number of elements that share a scale; None unless the type is block scaled."""
        return _FORMATS[self].block

    # A value of a block-scaled type is a tree of two arrays. Code that makes, checks, stores or
    # reads values does it part by part, with these methods, and so holds for all types.

    def parts(self, shape: Sequence[int]) -> tuple[Part, ...]:
        """The arrays that hold a value of this type.

        One array in TOSA 1.0. A block-scaled type has two, its elements and their scales, which
        `tosajax.block_scaled.BlockScaled` holds.

        Args:
          shape: the shape of the value; open sizes (-1) stay open.

        Raises:
          ValueError: the innermost axis is not whole blocks.
        """
        shape, block = tuple(shape), self.block
        values = Part(self.storage, shape)
        if block is None:
            return (values,)
        *outer, inner = shape or (1,)
        if inner >= 0 and inner % block:
            raise ValueError(
                f"{self.name} of shape {shape}, expected an innermost axis of blocks of {block}"
            )
        return values, Part(_SCALES, (*outer, inner // block))

    def arrays(self, value: Any) -> tuple[Any, ...]:
        """The arrays of a value, in the order of `parts`; the inverse of `join`."""
        return (value,) if self.block is None else (value.values, value.scales)

    def join(self, arrays: Iterable[Any]) -> Any:
        """The value that these arrays hold, in the order of `parts`."""
        if (block := self.block) is None:
            (array,) = arrays
            return array
        from tosajax.block_scaled import BlockScaled

        return BlockScaled(*arrays, block=block)

    def names(self, name: str) -> tuple[str, ...]:
        """The names of a tensor's arrays in files, in the order of `parts`."""
        return (name,) if self.block is None else (name, f"{name}_scale")

    def zeros(self, shape: Sequence[int]) -> Any:
        """A value of zeros, in NumPy arrays."""
        return self.join(np.zeros(part.shape, part.dtype) for part in self.parts(shape))

    def struct(self, shape: Sequence[int]) -> Any:
        """The types and shapes of a value, for `jax.eval_shape` and `jax.jit(...).lower`."""
        import jax

        return self.join(jax.ShapeDtypeStruct(part.shape, part.dtype) for part in self.parts(shape))

    def accepts(self, value: Value) -> bool:
        """Whether a value has the arrays of `parts`, for some shape."""
        form = _FORMATS[self]
        if form.block is None:
            return getattr(value, "dtype", None) == form.storage
        from tosajax.block_scaled import BlockScaled

        if not isinstance(value, BlockScaled) or value.block != form.block:
            return False
        types = value.values.dtype, value.scales.dtype
        return types == (form.storage, _SCALES) and not value.fault

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
    block: int | None = None  # elements that share a scale


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


def npy_type(dtype: np.dtype) -> np.dtype:
    """The type of an array in NumPy files, which lack types of ml_dtypes: there, the bits."""
    return dtype if dtype.isbuiltin == 1 else np.dtype(f"u{dtype.itemsize}")


def holds_bits(found: np.dtype, dtype: np.dtype) -> bool:
    """Whether an array from a NumPy file has the bits of a type that NumPy lacks.

    Files have them as unsigned integers, or as bytes without a type, such as "|V2".
    """
    bits = npy_type(dtype)
    return bits != dtype and found in (bits, np.dtype(f"V{dtype.itemsize}"))


def packed_size(dtype: DType, count: int) -> int:
    """The size of `count` elements in a file, in bytes: half a byte for int4, six for int48."""
    return -(-count * dtype.bits // 8)


def to_storage(values: Any, dtype: DType) -> Any:
    """Converts values to `dtype.storage`; floats may be rounded, integers must not change.

    A value of a block-scaled type is returned as it is.

    Raises:
      ValueError: a value is not an integer, or beyond the bits of the type; or it does not have the
        parts of a block-scaled type.
    """
    if dtype.block is not None:
        return _whole_blocks(values, dtype)
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


def _whole_blocks(values: Any, dtype: DType) -> Any:
    if not dtype.accepts(values):
        raise ValueError(why_not_blocks(values, dtype))
    return dtype.join(np.asarray(array) for array in dtype.arrays(values))


def why_not_blocks(value: Any, dtype: DType) -> str:
    """Why a value is not of a block-scaled type, in the words of an error."""
    from tosajax.block_scaled import BlockScaled, described

    assert dtype.block is not None
    wanted = dtype.struct((dtype.block,))
    if isinstance(value, BlockScaled) and described(value) == described(wanted):
        return f"a BlockScaled: {value.fault}"
    return f"{described(value)}, expected {described(wanted)} ({dtype.name})"


def pack(values: np.ndarray, dtype: DType) -> bytes:
    """Encodes values as the bytes of a file, little endian, row major.

    Raises:
      ValueError: a value does not fit the type, or the type has elements and scales.
    """
    _check_plain(dtype)
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
      ValueError: the length of `data` does not match `dtype` and `shape`, or the type has elements
        and scales.
    """
    _check_plain(dtype)
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


def _check_plain(dtype: DType) -> None:
    if dtype.block is not None:
        raise ValueError(f"bytes of {dtype.name}, expected a type whose values are one array")
