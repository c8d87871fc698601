"""Test data are those of Arm's generator, bit by bit, and those of Appendix A's definition."""

from __future__ import annotations

import ctypes
import ctypes.util
import math

import numpy as np
import pytest
from oracle.float_bounds import FLOATS

from tosajax import DType, compliance
from tosajax.spec import OPERATORS

# Of each operator: shapes, arguments, KS, and what a test description says besides.
CASES = {
    "AVG_POOL2D": ({"input": (3, 8, 7, 2)}, {"kernel": (3, 2)}, 6, {"kernel": [3, 2]}),
    "CONV2D": (
        {"input": (2, 9, 7, 3), "weight": (5, 3, 2, 3), "bias": (5,)},
        {},
        18,
        {"kernel": [3, 2]},
    ),
    "CONV3D": (
        {"input": (2, 5, 7, 4, 3), "weight": (3, 2, 3, 2, 3), "bias": (1,)},
        {},
        36,
        {"kernel": [2, 3, 2]},
    ),
    "DEPTHWISE_CONV2D": (
        {"input": (2, 9, 7, 3), "weight": (3, 2, 3, 4), "bias": (12,)},
        {},
        6,
        {"kernel": [3, 2]},
    ),
    "FFT2D": ({"input_real": (3, 4, 16), "input_imag": (3, 4, 16)}, {}, 128, {}),
    "MATMUL": ({"a": (3, 9, 11), "b": (3, 11, 7)}, {}, 11, {}),
    "MATMUL_T": ({"a": (3, 9, 11), "b": (1, 7, 11)}, {}, 11, {}),
    "REDUCE_SUM": ({"input": (3, 8, 5, 2)}, {"axis": 1}, 8, {"axis": 1}),
    "RFFT2D": ({"input_real": (3, 8, 4)}, {}, 32, {}),
    "TRANSPOSE_CONV2D": (
        {"input": (2, 9, 7, 3), "weight": (5, 3, 2, 3), "bias": (5,)},
        {},
        18,
        {"kernel": [3, 2]},
    ),
}


def _rows(op: str) -> list[tuple[DType, DType]]:
    """The pairs of float input and output types that an operator has."""
    pairs = []
    for row in OPERATORS[op].types:
        both = row.types.get("in_out_t", row.types.get("a_t"))
        pair = (row.types.get("in_t", both), row.types.get("out_t", both))
        if row.types.get("b_t", both) is not both:
            continue
        if all(isinstance(t, DType) and t.is_float for t in pair) and pair not in pairs:
            pairs.append(pair)
    return pairs


TYPED = [(op, *pair) for op in CASES for pair in _rows(op)]
typed = pytest.mark.parametrize(
    ("op", "dtype", "out"), TYPED, ids=[f"{op}-{i.name}-{o.name}" for op, i, o in TYPED]
)


def _description(op: str, test_set: int, position: int, dtype: DType, out: DType) -> dict:
    _, _, terms, more = CASES[op]
    info = {"s": test_set, "ks": terms, "out_type": out.name, **more}
    if op in ("MATMUL", "MATMUL_T"):
        info["other_data_type"] = dtype.name
    return {"generator": "DOT_PRODUCT", "input_pos": position, "op": op, "dot_product_info": info}


@typed
@pytest.mark.parametrize("test_set", compliance.TEST_SETS)
def test_bits_are_those_of_the_generator(arm, op: str, dtype: DType, out: DType, test_set: int):
    shapes, arguments, _, _ = CASES[op]
    data = compliance.test_data(op, test_set, shapes, dtype=dtype, out_dtype=out, **arguments)
    assert list(data) == list(shapes)
    for position, (name, values) in enumerate(data.items()):
        held = out if name == "bias" else dtype
        assert values.dtype == FLOATS[held.name]
        assert values.shape == shapes[name]
        description = _description(op, test_set, position, dtype, out)
        wanted = np.frombuffer(arm("generate", held.name, values.shape, description), values.dtype)
        raw = f"u{values.itemsize}"
        different = np.flatnonzero(values.reshape(-1).view(raw) != wanted.view(raw))
        assert different.size == 0


def test_every_dot_product_is_generated():
    assert set(CASES) == {op for op, rule in compliance.RULES.items() if rule.name == "DOT_PRODUCT"}


def test_the_exponential_is_the_only_difference(arm):
    """Where fp32 data of set 3 differ, the C library's exponential is not the nearest value."""
    shape = (1, 20000, 2)
    data = compliance.test_data("MATMUL", 3, {"a": shape, "b": (1, 2, 1)}, dtype=DType.FP32)["a"]
    info = {"s": 3, "ks": 2, "out_type": "FP32", "other_data_type": "FP32"}
    description = {"generator": "DOT_PRODUCT", "input_pos": 0, "op": "MATMUL"}
    raw = arm("generate", "FP32", shape, {**description, "dot_product_info": info})
    theirs = np.frombuffer(raw, np.float32)
    ours = data.reshape(-1)
    different = np.flatnonzero(ours != theirs)
    assert 0 < different.size < 1e-3 * ours.size
    expf = ctypes.CDLL(ctypes.util.find_library("m")).expf
    expf.argtypes, expf.restype = [ctypes.c_float], ctypes.c_float
    for i in map(int, different):
        first, second = (np.float32(_set_data(9, 2 * i + part)) for part in (0, 1))
        assert theirs[i] == np.float32(expf(2 * first)) * second
        assert ours[i] == np.float32(math.exp(2 * float(first))) * second


def _set_data(stream: int, index: int) -> float:
    """The pseudo-random values as Appendix A has them, jumping ahead in integers."""
    factor = (8 * stream + 1) * 0x705A5E75
    bits, scale, offset, steps = factor + 1, factor, 1, index
    while steps:
        if steps & 1:
            bits = (bits * scale + offset) % 2**32
        scale, offset, steps = scale * scale % 2**32, offset * (scale + 1) % 2**32, steps >> 1
    bits %= 2**32
    value = np.float32(bits & 0x7FFFFFFF) / np.float32(0x7FFFFFFF)
    return float(-value if bits >> 31 else value)


def test_marked_weights_of_conv3d_are_those_of_the_text():
    """The first weight of each output channel is large in set 2; the suite forgets all but one."""
    shapes = {"input": (1, 4, 4, 4, 2), "weight": (5, 2, 3, 2, 2), "bias": (1,)}
    weight = compliance.test_data("CONV3D", 2, shapes, dtype=DType.FP32)["weight"]
    first = np.zeros(weight.shape, bool)
    first[:, 0, 0, 0, 0] = True
    np.testing.assert_array_equal(weight == 1.0, first)


def test_products_of_set_0_are_zero():
    shapes = {"input": (1, 8, 8, 5), "weight": (4, 3, 3, 5), "bias": (4,)}
    data = compliance.test_data("CONV2D", 0, shapes, dtype=DType.FP16)
    numbers = [data[name].reshape(-1)[:180] for name in ("input", "weight")]
    assert not np.any(numbers[0] * numbers[1])
    assert np.any(numbers[0])
    assert np.any(numbers[1])
    assert not np.any(data["bias"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("ADD", 0, {}, DType.FP32), "ADD has no test data"),
        (("MATMUL", 6, {}, DType.FP32), "MATMUL: test set 6, expected 0 to 5"),
        (("MATMUL", 0, {"a": (1, 2, 3)}, DType.FP32), "MATMUL: shapes of a, expected a, b"),
        (("RFFT2D", 0, {"input_real": (4, 4)}, DType.FP32), "input_real has rank 2, expected 3"),
        (("REDUCE_SUM", 0, {"input": (4, 4)}, DType.FP32), "axis None, expected 0 to 1"),
        (("REDUCE_SUM", 0, {"input": (0, 4)}, DType.FP32), "dimensions of at least 1"),
        (("AVG_POOL2D", 0, {"input": (1, 4, 4, 1)}, DType.FP32), "kernel None, expected"),
        (("MATMUL", 0, {}, DType.FP16), "MATMUL of in_t FP16: out_t may be FP16, FP32, say which"),
    ],
)
def test_wrong_use(arguments, message: str):
    op, test_set, shapes, dtype = arguments
    with pytest.raises(ValueError, match=message):
        compliance.test_data(op, test_set, shapes, dtype=dtype)


@pytest.mark.parametrize("dtype", [DType.INT8, DType.BOOL, DType.FP8E5M2])
def test_types_without_data(dtype: DType):
    with pytest.raises(TypeError, match="REDUCE_SUM"):
        compliance.test_data("REDUCE_SUM", 0, {"input": (2, 3)}, dtype=dtype, axis=0)
