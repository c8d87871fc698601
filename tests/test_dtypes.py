"""Element types: ranges, exact bytes, and packing as the inverse of unpacking."""

from __future__ import annotations

import math

import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import jax
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings

from tosajax.dtypes import DType, holds_bits, npy_type, pack, packed_size, unpack
from tosajax.graph import Tensor

INTEGERS = [DType.INT4, DType.INT8, DType.INT16, DType.INT32, DType.INT48]
FLOATS = [DType.FP32, DType.FP16, DType.BF16, DType.FP8E4M3, DType.FP8E5M2]
SHAPES = [(), (0,), (1,), (2,), (3,), (1, 1), (3, 5), (0, 3), (2, 3, 5), (1, 2, 3, 1, 7)]

each = pytest.mark.parametrize("dtype", DType, ids=lambda dtype: dtype.name)
each_integer = pytest.mark.parametrize("dtype", INTEGERS, ids=lambda dtype: dtype.name)
each_float = pytest.mark.parametrize("dtype", FLOATS, ids=lambda dtype: dtype.name)


def _held(values: object, dtype: DType) -> np.ndarray:
    return np.asarray(values, dtype.storage)


def _same(found: np.ndarray, wanted: np.ndarray) -> None:
    """Equal in type, shape and every bit."""
    assert found.dtype == wanted.dtype
    assert found.shape == wanted.shape
    assert found.tobytes() == wanted.tobytes()


def _random(dtype: DType, shape: tuple[int, ...]) -> np.ndarray:
    """Random bits, within the range of narrower integers; the lowest and highest first."""
    rng = np.random.default_rng(len(shape) + math.prod(shape))
    if dtype is DType.BOOL:
        return rng.integers(0, 2, shape).astype(np.bool_)
    if dtype.is_integer:
        low = -8 if dtype is DType.INT4 else dtype.minimum
        values = rng.integers(low, dtype.maximum, shape, np.int64, endpoint=True).reshape(-1)
        values[:2] = [low, dtype.maximum][: values.size]
        return values.astype(dtype.storage).reshape(shape)
    octets = rng.integers(0, 256, (math.prod(shape), dtype.storage.itemsize), np.uint8)
    return octets.view(dtype.storage).reshape(shape)


@each
def test_packing_is_inverted(dtype: DType):
    for shape in SHAPES:
        values = _random(dtype, shape)
        data = pack(values, dtype)
        assert len(data) == packed_size(dtype, values.size)
        _same(unpack(data, dtype, shape), values)


@settings(deadline=None)
@given(st.data())
def test_packing_is_inverted_for_any_integers(data: st.DataObject):
    dtype = data.draw(st.sampled_from(INTEGERS))
    low = -8 if dtype is DType.INT4 else dtype.minimum
    shape = data.draw(hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5))
    values = data.draw(hnp.arrays(dtype.storage, shape, elements=st.integers(low, dtype.maximum)))
    packed = pack(values, dtype)
    _same(unpack(packed, dtype, shape), values)
    if dtype is not DType.INT4:
        octets = dtype.bits // 8
        assert packed == b"".join(
            int(v).to_bytes(octets, "little", signed=True) for v in values.reshape(-1)
        )


@pytest.mark.parametrize(
    ("dtype", "values", "data"),
    [
        (DType.BOOL, [True, False, True], "01 00 01"),
        (DType.INT4, [1, 2], "21"),
        (DType.INT4, [1, 2, 3], "21 03"),
        (DType.INT4, [-8, 7, -1, 0, -7], "78 0f 09"),
        (DType.INT8, [-128, 127, -1], "80 7f ff"),
        (DType.INT16, [0x1234, -2], "34 12 fe ff"),
        (DType.INT32, [0x12345678, -2], "78 56 34 12 fe ff ff ff"),
        (DType.INT48, [0x123456789ABC], "bc 9a 78 56 34 12"),
        (DType.INT48, [-(2**47), 2**47 - 1], "00 00 00 00 00 80 ff ff ff ff ff 7f"),
        (DType.INT48, [-1, 0, 2**31], "ff ff ff ff ff ff 00 00 00 00 00 00 00 00 00 80 00 00"),
        (DType.SHAPE, [-1, 258], "ff ff ff ff ff ff ff ff 02 01 00 00 00 00 00 00"),
        (DType.FP32, [1.0, -0.0], "00 00 80 3f 00 00 00 80"),
        (DType.FP16, [1.0, -2.0], "00 3c 00 c0"),
        (DType.BF16, [1.0, -2.0], "80 3f 00 c0"),
        (DType.FP8E4M3, [1.0, 448.0, -0.0], "38 7e 80"),
        (DType.FP8E5M2, [1.0, 57344.0, -np.inf], "3c 7b fc"),
    ],
    ids=lambda value: value.name if isinstance(value, DType) else None,
)
def test_bytes(dtype: DType, values: list, data: str):
    held = _held(values, dtype)
    assert pack(held, dtype).hex(" ") == data
    _same(unpack(bytes.fromhex(data), dtype, held.shape), held)


@each
def test_rows_come_one_after_another(dtype: DType):
    values = _random(dtype, (3, 5))
    assert pack(values.T, dtype) == pack(np.ascontiguousarray(values.T), dtype)
    assert pack(values.reshape(-1), dtype) == pack(values, dtype)


@each
def test_input_is_left_alone(dtype: DType):
    values = _random(dtype, (3, 5))
    before = values.copy()
    data = pack(values, dtype)
    unpack(data, dtype, (3, 5))[...] = _held(0, dtype)
    _same(values, before)
    assert data == pack(before, dtype)


@pytest.mark.parametrize("dtype", [d for d in FLOATS if d.bits <= 16], ids=lambda dtype: dtype.name)
def test_every_bit_pattern_of_a_float(dtype: DType):
    """NaNs keep their payload and sign."""
    bits = np.arange(1 << dtype.bits, dtype=f"u{dtype.bits // 8}")
    data = bits.astype(bits.dtype.newbyteorder("<")).tobytes()
    values = unpack(data, dtype, bits.shape)
    assert np.isnan(values.astype(np.float32)).any()
    assert pack(values, dtype) == data


def test_nan_payloads_of_fp32():
    bits = np.array([0x7FC00000, 0xFFC00000, 0x7F800001, 0xFFBFFFFF, 0x7FFFFFFF], np.uint32)
    values = bits.view(np.float32)
    assert np.isnan(values).all()
    data = pack(values, DType.FP32)
    assert data == b"".join(int(b).to_bytes(4, "little") for b in bits)
    _same(unpack(data, DType.FP32, (5,)), values)


def test_any_byte_but_zero_is_true():
    found = unpack(bytes([0, 1, 2, 128, 255]), DType.BOOL, (5,))
    _same(found, np.array([False, True, True, True, True]))


def test_unused_high_nibble_is_ignored_and_written_as_zero():
    _same(unpack(b"\xf1", DType.INT4, (1,)), np.array([1], np.int8))
    assert pack(np.array([1], np.int8), DType.INT4) == b"\x01"


def test_data_may_be_an_array():
    _same(unpack(np.array([1, 2], np.uint8), DType.INT16, ()), np.array(0x0201, np.int16))


@each
def test_wrong_length(dtype: DType):
    wanted = packed_size(dtype, 15)
    for found in (0, wanted - 1, wanted + 1):
        with pytest.raises(ValueError, match=rf"^{found} bytes .* {wanted} for {dtype.name} "):
            unpack(bytes(found), dtype, (3, 5))


@pytest.mark.parametrize(
    ("dtype", "sizes"),
    [
        (DType.INT4, [0, 1, 1, 2, 2, 3]),
        (DType.INT48, [0, 6, 12, 18, 24, 30]),
        (DType.BOOL, [0, 1, 2, 3, 4, 5]),
        (DType.SHAPE, [0, 8, 16, 24, 32, 40]),
    ],
    ids=lambda value: value.name if isinstance(value, DType) else None,
)
def test_packed_size(dtype: DType, sizes: list[int]):
    assert [packed_size(dtype, count) for count in range(6)] == sizes


@each_integer
def test_range_of_integers(dtype: DType):
    bits = int(dtype.name.removeprefix("INT"))
    assert dtype.bits == bits
    assert dtype.maximum == 2 ** (bits - 1) - 1
    # int4 is symmetric: weights do not use -8.
    assert dtype.minimum == (-7 if bits == 4 else -(2 ** (bits - 1)))
    assert np.iinfo(dtype.storage).min <= dtype.minimum
    assert np.iinfo(dtype.storage).max >= dtype.maximum


@each_float
def test_floats(dtype: DType):
    info = ml_dtypes.finfo(dtype.storage)
    exponent, mantissa = {
        DType.FP32: (8, 23),
        DType.FP16: (5, 10),
        DType.BF16: (8, 7),
        DType.FP8E4M3: (4, 3),
        DType.FP8E5M2: (5, 2),
    }[dtype]
    assert (info.nexp, info.nmant) == (exponent, mantissa)
    assert dtype.bits == info.bits == 1 + exponent + mantissa


@each
def test_kinds(dtype: DType):
    assert dtype.is_integer is (dtype in INTEGERS)
    assert dtype.is_float is (dtype in FLOATS)
    assert repr(dtype) == f"DType.{dtype.name}"
    assert dtype.value == dtype.name


def test_bits_of_others():
    assert DType.BOOL.bits == 8
    assert DType.SHAPE.bits == 64


@pytest.mark.parametrize(
    ("dtype", "values"),
    [
        (DType.INT8, [200]),
        (DType.INT8, [1.5]),
        (DType.INT8, np.array([-129], np.int32)),
        (DType.INT4, np.array([8], np.int8)),
        (DType.INT4, np.array([-9], np.int8)),
        (DType.INT48, np.array([1 << 47])),
        (DType.INT48, np.array([-(1 << 47) - 1])),
        (DType.INT32, np.array([np.nan])),
        (DType.BOOL, [2]),
        (DType.SHAPE, [0.5]),
    ],
    ids=str,
)
def test_values_that_do_not_fit_are_refused(dtype, values):
    with pytest.raises(ValueError, match=f"do not fit {dtype.name}"):
        pack(values, dtype)
    with pytest.raises(ValueError, match=f"do not fit {dtype.name}"):
        Tensor("x", dtype, (1,), values)


def test_range_of_a_type_that_is_no_integer():
    with pytest.raises(TypeError, match="FP32 is not an integer type"):
        _ = DType.FP32.maximum


def test_limits():
    assert DType.INT4.limits() == (-7, 7)
    assert DType.INT16.limits() == (-(2**15), 2**15 - 1)
    assert DType.INT8.limits(unsigned=True) == (0, 255)
    with pytest.raises(TypeError, match="FP32 is not an integer type"):
        DType.FP32.limits()


@pytest.mark.parametrize(
    ("dtype", "bits"),
    [(DType.BF16, np.uint16), (DType.FP8E4M3, np.uint8), (DType.FP8E5M2, np.uint8)],
)
def test_bits_of_types_that_numpy_lacks(dtype: DType, bits: type):
    assert npy_type(dtype.storage) == bits
    size = np.dtype(bits).itemsize
    assert holds_bits(np.dtype(bits), dtype.storage)
    assert holds_bits(np.dtype(f"V{size}"), dtype.storage)
    others = [DType.FP8E4M3.storage, DType.FP8E5M2.storage, np.int8, np.int16, np.uint32, "V4"]
    assert not any(holds_bits(np.dtype(other), dtype.storage) for other in others)


def test_types_of_numpy_are_no_bits():
    assert npy_type(DType.FP16.storage) == np.float16
    assert not holds_bits(np.dtype(np.uint16), DType.FP16.storage)
    assert not holds_bits(np.dtype("V1"), DType.INT8.storage)


@pytest.mark.parametrize("dtype", DType)
@pytest.mark.parametrize("shape", [(), (3,), (2, 0, 5)])
def test_arrays_that_hold_a_value(dtype: DType, shape: tuple[int, ...]):
    zeros = dtype.zeros(shape)
    assert ((zeros.dtype, zeros.shape),) == dtype.parts(shape)
    assert not zeros.astype(bool).any()
    assert dtype.accepts(zeros)
    assert not dtype.accepts(zeros.astype(np.complex64))
    assert dtype.nbytes(shape) == zeros.nbytes
    with jax.enable_x64(True):
        struct = dtype.struct(shape)
    assert (struct.dtype, struct.shape) == (zeros.dtype, zeros.shape)
