"""Convolutions against their definitions, and the routes that integers take."""

from __future__ import annotations

import functools
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracle import conv_oracle, float_bounds
from oracle.device import to_device
from oracle.matmul_oracle import (
    check_dot_product,
    draw,
    draw_bias,
    magnitude,
    zero_points,
)
from oracle.table_rows import row_id, type_rows

from tosajax.dtypes import DType
from tosajax.ops import _skip, conv
from tosajax.ops.routes import loop
from tosajax.ops.routes.platform import Platform, tracing_for

NAMES = ("CONV2D", "CONV3D", "DEPTHWISE_CONV2D", "TRANSPOSE_CONV2D")
INTEGERS = {
    x: {"in_t": x, "weight_t": DType.INT8, "out_t": out, "acc_t": out}
    for x, out in ((DType.INT8, DType.INT32), (DType.INT16, DType.INT48))
}
DEFINITION = {
    "CONV2D": conv_oracle.conv,
    "CONV3D": conv_oracle.conv,
    "DEPTHWISE_CONV2D": conv_oracle.depthwise,
    "TRANSPOSE_CONV2D": conv_oracle.transpose,
}


def _plain(x, weight, bias, pad, stride, dilation):
    return x, weight, bias, {"pad": pad, "stride": stride, "dilation": dilation}


# (input shape, weight shape, length of the bias, attributes)
CASES = {
    "CONV2D": {
        "one-element": _plain((1, 1, 1, 5), (4, 1, 1, 5), 4, (0, 0, 0, 0), (1, 1), (1, 1)),
        "1x1": _plain((2, 3, 4, 3), (5, 1, 1, 3), 1, (0, 0, 0, 0), (1, 1), (1, 1)),
        "1x1-strided": _plain((2, 5, 4, 3), (2, 1, 1, 3), 2, (0, 0, 0, 0), (2, 3), (1, 1)),
        "3x3": _plain((2, 5, 6, 4), (3, 3, 3, 4), 3, (1, 1, 1, 1), (1, 1), (1, 1)),
        "uneven": _plain((1, 6, 7, 2), (3, 3, 2, 2), 1, (2, 1, 0, 3), (2, 3), (1, 3)),
        "one-channel": _plain((1, 4, 4, 1), (1, 2, 3, 1), 1, (3, 1, 0, 2), (1, 1), (2, 1)),
        "more-padding-than-kernel": _plain(
            (1, 2, 2, 2), (2, 2, 2, 2), 2, (4, 3, 4, 3), (1, 1), (1, 1)
        ),
        "9x9": _plain((1, 10, 9, 2), (2, 9, 9, 2), 2, (3, 4, 0, 2), (2, 1), (1, 1)),
        "wide": _plain((2, 1, 150, 2), (3, 1, 67, 2), 3, (0, 0, 5, 0), (1, 22), (1, 2)),
    },
    "CONV3D": {
        "one-element": _plain((1, 1, 1, 1, 3), (2, 1, 1, 1, 3), 2, (0,) * 6, (1,) * 3, (1,) * 3),
        "uneven": _plain(
            (2, 4, 5, 3, 2), (3, 2, 3, 2, 2), 3, (1, 0, 0, 2, 2, 1), (1, 2, 1), (2, 1, 3)
        ),
        "5x5x5": _plain((1, 5, 6, 4, 2), (2, 5, 5, 5, 2), 1, (1,) * 6, (1, 1, 1), (1, 1, 1)),
    },
    "DEPTHWISE_CONV2D": {
        "one-element": _plain((1, 1, 1, 3), (1, 1, 3, 2), 6, (0, 0, 0, 0), (1, 1), (1, 1)),
        "3x3": _plain((2, 5, 6, 4), (3, 3, 4, 1), 4, (1, 1, 1, 1), (1, 1), (1, 1)),
        "uneven": _plain((1, 6, 7, 2), (3, 2, 2, 3), 1, (2, 1, 0, 3), (2, 3), (1, 3)),
        "9x9": _plain((1, 10, 9, 2), (9, 9, 2, 2), 4, (3, 4, 0, 2), (2, 1), (1, 1)),
        "wide": _plain((2, 1, 150, 2), (1, 67, 2, 1), 1, (0, 0, 5, 0), (1, 22), (1, 2)),
    },
    "TRANSPOSE_CONV2D": {
        "one-element": ((1, 1, 1, 3), (2, 1, 1, 3), 2, {"out_pad": (0,) * 4, "stride": (1, 1)}),
        "3x3-stride-1": ((2, 4, 3, 2), (3, 3, 3, 2), 3, {"out_pad": (-1,) * 4, "stride": (1, 1)}),
        "2x2-stride-2": ((1, 3, 4, 3), (2, 2, 2, 3), 1, {"out_pad": (0,) * 4, "stride": (2, 2)}),
        "3x4-stride-2x3": (
            (2, 3, 2, 2),
            (3, 3, 4, 2),
            3,
            {"out_pad": (1, -2, -3, 5), "stride": (2, 3)},
        ),
        "stride-over-kernel": (
            (1, 3, 3, 2),
            (2, 2, 1, 2),
            1,
            {"out_pad": (-1, 2, 3, 0), "stride": (5, 3)},
        ),
        "cropped-to-the-limit": (
            (1, 5, 6, 2),
            (2, 5, 4, 2),
            2,
            {"out_pad": (-4, -4, -3, -3), "stride": (2, 1)},
        ),
        "9x17": ((1, 3, 2, 1), (1, 9, 17, 1), 1, {"out_pad": (-2, 1, 0, -7), "stride": (1, 1)}),
    },
}


# For types that only differ in conversions: patches, a convolution, slices, a spread input.
CONVERTED = {
    "CONV2D": "uneven",
    "CONV3D": "5x5x5",
    "DEPTHWISE_CONV2D": "uneven",
    "TRANSPOSE_CONV2D": "3x4-stride-2x3",
}


def _float_cases():
    """Every case for FP32; one for types that only differ in conversions."""
    return [
        pytest.param(name, types, case, id=f"{row_id(name, types)}-{case}")
        for name, types in type_rows(*NAMES, where=lambda types: types["in_t"].is_float)
        for case in (CASES[name] if types["in_t"] is DType.FP32 else [CONVERTED[name]])
    ]


@pytest.fixture
def rng():
    return np.random.default_rng(11)


def operands(rng, types, shapes, length):
    x = draw(rng, types["in_t"], shapes[0])
    weight = draw(rng, types["weight_t"], shapes[1])
    return x, weight, draw_bias(rng, types["out_t"], (length,))


def point(dtype, value=0):
    return jax.device_put(np.full(1, value, dtype.storage))


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize(("name", "case"), [(name, case) for name in NAMES for case in CASES[name]])
def test_integers(name, case, dtype, rng):
    """Every type row of one input type, weights of int4 too, runs the same program."""
    x_shape, w_shape, length, attributes = CASES[name][case]
    rows = [types for _, types in type_rows(name) if types["in_t"] is dtype]
    assert {types["acc_t"] for types in rows} == {INTEGERS[dtype]["acc_t"]}
    acc_type = INTEGERS[dtype]["acc_t"]
    compiled: Any = jax.jit(
        functools.partial(getattr(conv, name.lower()), acc_type=acc_type, **attributes)
    )
    for types in rows:
        x, weight, bias = operands(rng, types, (x_shape, w_shape), length)
        wide = [v.astype(np.int64) for v in (x, weight, bias)]
        x_points, w_points = zero_points(types["in_t"]), zero_points(types["weight_t"])
        points = {(a, b) for a in x_points for b in w_points if 3 not in (a, b)} | {
            (x_points[-1], w_points[-1])
        }
        for x_zp, w_zp in sorted(points):
            zps = point(types["in_t"], x_zp), point(types["weight_t"], w_zp)
            result = compiled(jax.device_put(x), jax.device_put(weight), to_device(bias), *zps)
            assert result.dtype == types["out_t"].storage
            expected = DEFINITION[name](*wide, x_zp, w_zp, **attributes)
            note = f"{types['weight_t']}, {x_zp}, {w_zp}"
            np.testing.assert_array_equal(np.asarray(result), expected, note)
    assert compiled._cache_size() == 1


@pytest.mark.parametrize("name", NAMES)
def test_largest_int48_sums(name):
    x_shape, w_shape, _, attributes = list(CASES[name].values())[-1]
    function = jax.jit(
        functools.partial(getattr(conv, name.lower()), acc_type=DType.INT48, **attributes)
    )
    bias = np.full(1, 2**46, np.int64)
    for x_value in (-32768, 32767):
        for weight_value, w_zp in ((-128, 127), (127, -128), (-128, 0)):
            x, weight = np.full(x_shape, x_value, np.int16), np.full(w_shape, weight_value, np.int8)
            zps = point(DType.INT16), point(DType.INT8, w_zp)
            result = function(jax.device_put(x), jax.device_put(weight), to_device(bias), *zps)
            wide = [v.astype(np.int64) for v in (x, weight, bias)]
            expected = DEFINITION[name](*wide, 0, w_zp, **attributes)
            np.testing.assert_array_equal(np.asarray(result), expected)


@pytest.mark.parametrize(("name", "types", "case"), _float_cases())
def test_floats(name, types, case, rng):
    check_floats(name, types, case, rng)


@pytest.mark.parametrize(("name", "case"), [(name, case) for name in NAMES for case in CASES[name]])
def test_floats_as_gpus_convolve_them(name, case, rng):
    types = next(types for _, types in type_rows(name) if types["in_t"] is DType.FP32)
    with tracing_for(Platform("cuda")):
        check_floats(name, types, case, rng)


def check_floats(name, types, case, rng):
    x_shape, w_shape, length, attributes = CASES[name][case]
    function = functools.partial(getattr(conv, name.lower()), acc_type=types["acc_t"], **attributes)
    compiled = jax.jit(function)
    zps = point(types["in_t"]), point(types["weight_t"])
    taps = w_shape[:2] if name == "DEPTHWISE_CONV2D" else w_shape[1:]
    for special in ("nowhere", "input", "weight"):
        x, weight, bias = operands(rng, types, (x_shape, w_shape), length)
        values = np.array([np.nan, np.inf, -np.inf]).astype(x.dtype)
        for where in {"nowhere": (), "input": (x,), "weight": (weight,)}[special]:
            # Few, so that most windows stay free of them.
            where[tuple(rng.integers(0, n, 2) for n in where.shape)] = rng.choice(values, 2)
        result = compiled(*map(jax.device_put, (x, weight, bias)), *zps)
        limits = magnitude(x, types["in_t"]), magnitude(weight, types["in_t"])
        with np.errstate(invalid="ignore"):
            reference = DEFINITION[name](
                *(v.astype(np.float64) for v in (x, weight, bias)), **attributes
            )
            limit = DEFINITION[name](
                *limits,
                magnitude(bias, types["out_t"]),
                **attributes,
                # The bound counts padding, but not by an infinite weight, which skips it.
                extra=special != "weight",
            )
        if special != "nowhere":
            found = float_bounds.widen(np.asarray(result))
            where = ~np.isfinite(reference)
            np.testing.assert_array_equal(found[where], reference[where])
        check_dot_product(
            result, reference, limit, size=np.prod(taps), out=types["out_t"], acc=types["acc_t"]
        )


def _small(name, types, rng, case=None):
    x_shape, w_shape, length, attributes = (
        CASES[name][case] if case else list(CASES[name].values())[1]
    )
    x, weight, bias = operands(rng, types, (x_shape, w_shape), length)
    function = functools.partial(getattr(conv, name.lower()), acc_type=types["acc_t"], **attributes)
    zps = point(types["in_t"]), point(types["weight_t"])
    return function, [jax.device_put(x), jax.device_put(weight), to_device(bias), *zps]


@pytest.mark.parametrize(
    ("name", "dtype"),
    [(name, d) for name in NAMES for d in INTEGERS if (name, d) != ("CONV3D", DType.INT16)],
)
def test_vmap_is_a_loop(name, dtype, rng):
    types = INTEGERS[dtype]
    function, inputs = _small(name, types, rng)
    inputs[3:] = point(dtype, -128 if dtype is DType.INT8 else 0), point(DType.INT8, 127)
    compiled = jax.jit(function)
    # The zero point of int16 must stay zero.
    points = (3, 4) if dtype is DType.INT8 else (4,)
    for batched in ((0,), points, (0, 1, 2, *points)):
        _assert_vmap(compiled, inputs, batched, jax.jit)


# One kernel of one tap, one of several, and one that loops; test_exact_conv.py has more.
CONSTANT = {
    "CONV2D": ("1x1-strided", "uneven", "9x9"),
    "CONV3D": ("uneven",),
    "DEPTHWISE_CONV2D": ("uneven", "9x9"),
    "TRANSPOSE_CONV2D": ("3x4-stride-2x3", "stride-over-kernel", "9x17"),
}


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize(
    ("name", "case"), [(name, case) for name in NAMES for case in CONSTANT[name]]
)
def test_constant_operands(name, case, dtype, rng):
    """NumPy arrays, by which compiled graphs pass constants, give the definition's results."""
    function, (x, weight, bias, *_) = _small(name, INTEGERS[dtype], rng, case)
    constant = np.asarray(weight)
    wide = [np.asarray(v).astype(np.int64) for v in (x, weight, bias)]
    for x_zp, weight_zp in ((-128, 0), (127, -128)):
        if case in ("9x9", "9x17") and (weight_zp == 0) == (dtype is DType.INT16):
            continue  # loops take long to compile, and their weights are not prepared
        x_zp = x_zp if dtype is DType.INT8 else 0
        zps = np.full(1, x_zp, dtype.storage), np.full(1, weight_zp, np.int8)
        found = jax.jit(lambda x, bias, zps=zps: function(x, constant, bias, *zps))(x, bias)
        expected = DEFINITION[name](*wide, x_zp, weight_zp, **CASES[name][case][3])
        np.testing.assert_array_equal(np.asarray(found), expected)


@pytest.mark.parametrize("dtype", [DType.INT8, DType.INT16])
@pytest.mark.parametrize("name", ["CONV2D", "DEPTHWISE_CONV2D"])
def test_loops_under_transforms(name, dtype, monkeypatch, rng):
    monkeypatch.setattr(loop, "MAX_TAPS", 4)
    function, inputs = _small(name, INTEGERS[dtype], rng, "uneven")
    inputs[4] = point(DType.INT8, -128)
    function = jax.jit(function)
    _assert_vmap(function, inputs, (0,), lambda f: f)
    _assert_vmap(function, inputs, (0, 1), jax.jit)
    xs = np.stack([inputs[0], ~np.asarray(inputs[0])])
    rest = inputs[1:]

    @jax.jit
    def scan(xs):
        return jax.lax.scan(lambda carry, x: (carry, function(x, *rest)), 0, xs)[1]

    np.testing.assert_array_equal(scan(xs), np.stack([function(x, *rest) for x in xs]))
    assert "while" in function.lower(*inputs).as_text()


@pytest.mark.parametrize("name", NAMES)
def test_vmap_of_floats(name, rng):
    types = dict.fromkeys(("in_t", "weight_t", "out_t", "acc_t"), DType.FP32)
    function, inputs = _small(name, types, rng)
    xs = np.stack([inputs[0], -np.asarray(inputs[0])])
    result = jax.jit(jax.vmap(lambda x: function(x, *inputs[1:])))(xs)
    alone = jax.jit(function)
    expected = np.stack([alone(x, *inputs[1:]) for x in xs])
    # A sum of at most 60 products of at most 4.
    np.testing.assert_allclose(result, expected, rtol=0, atol=60 * 240 * 2.0**-24)


def _assert_vmap(function, inputs, batched, wrap):
    """Asserts that `wrap(vmap(function))` over some inputs equals a loop."""
    axes = tuple(0 if i in batched else None for i in range(len(inputs)))
    others = [
        ~x if x.size == 1 and i > 2 else np.flip(x) for i, x in enumerate(map(np.asarray, inputs))
    ]
    stacked = [
        to_device(np.stack([np.asarray(x), other])) if i in batched else x
        for i, (x, other) in enumerate(zip(inputs, others, strict=True))
    ]
    result = np.asarray(wrap(jax.vmap(function, axes))(*stacked))
    for n in range(2):
        one = [to_device(np.asarray(x)[n]) if i in batched else x for i, x in enumerate(stacked)]
        expected = function(*one)
        assert result.dtype == expected.dtype
        np.testing.assert_array_equal(result[n], expected)


@pytest.mark.parametrize("name", ["CONV2D", "CONV3D"])
def test_patches_stay_small(name, monkeypatch, rng):
    types = INTEGERS[DType.INT8]
    x_shape, w_shape, length, attributes = CASES[name]["uneven"]
    x, weight, bias = operands(rng, types, (x_shape, w_shape), length)
    inputs = [*map(jax.device_put, (x, weight, bias)), point(DType.INT8, -7), point(DType.INT8, 9)]
    function = functools.partial(getattr(conv, name.lower()), acc_type=DType.INT32, **attributes)
    expected = jax.jit(function)(*inputs)
    for limit in (1, 150):
        monkeypatch.setattr(loop, "MAX_PATCH_BYTES", limit)
        # A new function: the limit is not an argument of the old one.
        again = jax.jit(lambda *inputs: function(*inputs))
        np.testing.assert_array_equal(again(*inputs), expected)


KNOWN = np.zeros(1, np.int8)


@pytest.mark.parametrize("name", NAMES)
def test_zero_points_known_to_be_zero(name, rng):
    types = INTEGERS[DType.INT8]
    function, (*inputs, _, _) = _small(name, types, rng)
    found = jax.jit(lambda *inputs: function(*inputs, KNOWN, KNOWN))(*inputs)
    wide = [np.asarray(v).astype(np.int64) for v in inputs]
    attributes = list(CASES[name].values())[1][3]
    np.testing.assert_array_equal(found, DEFINITION[name](*wide, **attributes))


# Types that take longest to compile once for each shape, and once for each operator.
@pytest.mark.parametrize(
    ("name", "shape", "dtype"),
    [
        (name, shape, dtype)
        for name, shape, dtypes in (
            ("CONV2D", (2, 64, 64, 2), (DType.INT8, DType.FP32)),
            ("CONV2D", (2, 1, 8192, 2), (DType.INT16, DType.FP32)),
            ("DEPTHWISE_CONV2D", (64, 64, 2, 2), (DType.INT8, DType.INT16, DType.FP32)),
            ("DEPTHWISE_CONV2D", (8192, 1, 2, 2), (DType.INT8, DType.INT16, DType.FP32)),
            ("TRANSPOSE_CONV2D", (2, 64, 64, 2), (DType.INT8, DType.FP32)),
        )
        for dtype in dtypes
    ],
)
def test_huge_kernels_make_small_programs(name, shape, dtype):
    kernel = shape[:2] if name == "DEPTHWISE_CONV2D" else shape[1:3]
    transposed = name == "TRANSPOSE_CONV2D"
    space = (2, 2) if transposed else [size + 3 for size in kernel]
    attributes = (
        {"out_pad": (0, 0, 0, 0), "stride": (1, 1)}
        if transposed
        else {"pad": (0, 0, 0, 0), "stride": (1, 1), "dilation": (1, 1)}
    )
    out = {DType.INT8: DType.INT32, DType.INT16: DType.INT48, DType.FP32: DType.FP32}[dtype]
    weight = dtype if dtype.is_float else DType.INT8
    inputs = (
        jnp.ones((1, *space, 2), dtype.storage),
        jnp.ones(shape, weight.storage),
        to_device(np.zeros(1, out.storage)),
        point(dtype),
        point(weight),
    )
    function = functools.partial(getattr(conv, name.lower()), acc_type=out, **attributes)
    lowered = jax.jit(function).lower(*inputs)
    assert len(lowered.as_text()) < 60_000
    compiled = lowered.compile()
    memory: Any = compiled.memory_analysis()
    assert memory.temp_size_in_bytes < 20_000_000
    largest = np.prod(kernel) * (1 if name == "DEPTHWISE_CONV2D" else 2)
    assert np.asarray(compiled(*inputs)).max() == min(largest, 2 * 2 * 2 if transposed else largest)


def test_a_long_kernel_is_exact(rng):
    x, weight = (draw(rng, DType.INT8, s) for s in ((1, 1, 400, 3), (2, 1, 350, 3)))
    for dtype, values in ((DType.INT8, x), (DType.INT16, x.astype(np.int16) * np.int16(255))):
        out = DType.INT32 if dtype is DType.INT8 else DType.INT48
        attributes = {"pad": (0, 0, 0, 0), "stride": (1, 25), "dilation": (1, 1)}
        function = jax.jit(functools.partial(conv.conv2d, acc_type=out, **attributes))
        zps = point(dtype), point(DType.INT8, 127)
        bias = to_device(np.zeros(1, out.storage))
        result = function(jax.device_put(values), jax.device_put(weight), bias, *zps)
        wide = values.astype(np.int64), weight.astype(np.int64), np.zeros(1, np.int64)
        expected = conv_oracle.conv(*wide, 0, 127, **attributes)
        np.testing.assert_array_equal(np.asarray(result), expected)


def _lowered(name, batch, dtype=DType.INT8):
    """Lowers an operator, vmapped over inputs with unbatched weights where `batch` is given."""
    shape, weight, attributes = {
        "CONV2D": ((1, 16, 16, 16), (16, 3, 3, 16), None),
        "CONV3D": ((1, 8, 8, 8, 8), (16, 3, 3, 3, 8), None),
        "TRANSPOSE_CONV2D": (
            (1, 8, 8, 16),
            (16, 3, 3, 16),
            {"out_pad": (0, -1, 0, -1), "stride": (2, 2)},
        ),
        "DEPTHWISE_CONV2D": ((1, 16, 16, 16), (3, 3, 16, 1), None),
    }[name]
    rank = len(shape) - 2
    attributes = attributes or {
        "pad": (1, 1) * rank,
        "stride": (1,) * rank,
        "dilation": (1,) * rank,
    }
    function = functools.partial(getattr(conv, name.lower()), acc_type=DType.INT32, **attributes)
    if batch is not None:
        function = jax.vmap(function, (0, None, None, None, None))
        shape = (batch, *shape)
    zp = jax.ShapeDtypeStruct((1,), np.int8)
    return jax.jit(function).lower(
        jax.ShapeDtypeStruct(shape, np.int8),
        jax.ShapeDtypeStruct(weight, np.int8),
        jax.ShapeDtypeStruct((16,), np.int32),
        zp,
        zp,
    )


@pytest.mark.parametrize("batch", [None, 8])
@pytest.mark.parametrize("name", ["CONV2D", "CONV3D", "TRANSPOSE_CONV2D"])
def test_int8_takes_the_fast_path(name, batch):
    if jax.default_backend() != "cpu":
        pytest.skip("looks for the fast kernels of XLA:CPU")
    text = str(_lowered(name, batch).compile().as_text())
    # Every dot of int8 is inside a kernel of the library, so none is left in plain HLO.
    dots = re.findall(r"^.*\bdot\(.*$", text, re.MULTILINE)
    assert text.count("ynn_fusion") >= 2
    entry = text[text.index("ENTRY") :]
    assert not re.search(r"\b(dot|convolution)\(", entry)
    # The product of patches and weights is one dot, whatever the batch.
    assert sum("s8" in d or "s32" in d for d in dots) <= 3


@pytest.mark.parametrize("name", NAMES)
def test_int8_uses_no_64_bit_type(name):
    text = _lowered(name, 4).as_text()
    assert not re.search(r"tensor<([0-9x]*x)?(i64|ui64|f64|f32)>", text)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("case", ["first", "last"])
def test_gradients_of_floats(name, case, rng):
    types = dict.fromkeys(("in_t", "weight_t", "out_t", "acc_t"), DType.FP32)
    chosen = list(CASES[name].values())[0 if case == "first" else -1]
    x_shape, w_shape, length, attributes = chosen
    x, weight, bias = operands(rng, types, (x_shape, w_shape), length)
    zps = point(DType.FP32), point(DType.FP32)
    function = functools.partial(getattr(conv, name.lower()), acc_type=DType.FP32, **attributes)
    forward = jax.jit(lambda *inputs: function(*inputs, *zps))
    backward = jax.jit(lambda inputs, by: jax.vjp(forward, *inputs)[1](by))
    inputs = x, weight, bias
    along = [rng.choice([-1, 1], v.shape).astype(np.float32) for v in inputs]
    ahead, behind = (
        np.asarray(forward(*(v + step * a for v, a in zip(inputs, along, strict=True))))
        for step in np.array([2.0**-6, -(2.0**-6)], np.float32)
    )
    by = rng.choice([-1, 1], ahead.shape).astype(np.float32)
    slopes = backward(inputs, by)
    # The sum is linear in each operand, so that the middle of two steps is exact but for rounding.
    found = sum(np.vdot(slope, a) for slope, a in zip(slopes, along, strict=True))
    want = np.vdot(by, ahead - behind) * 2.0**5
    np.testing.assert_allclose(found, want, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("name", ["CONV2D", "DEPTHWISE_CONV2D"])
def test_gradients_and_vmap_where_padding_is_skipped(name, rng):
    """Gradients are those of the plain product; one answer for all weights of a batch."""
    types = dict.fromkeys(("in_t", "weight_t", "out_t", "acc_t"), DType.FP32)
    function, (x, weight, *rest) = _small(name, types, rng, "3x3")
    infinite = weight.at[0, 0, 0, 0].set(jnp.inf)
    alone = jax.jit(lambda weight: function(x, weight, *rest))
    results = jax.jit(jax.vmap(alone))(np.stack([infinite, weight]))
    for result, one in zip(np.asarray(results), (infinite, weight), strict=True):
        # Two sums of at most 60 products of at most 4.
        expected = alone(one)
        np.testing.assert_allclose(result, expected, rtol=0, atol=60 * 240 * 2.0**-23)

    def loss(x, weight):
        return function(x, weight, *rest).sum()

    gradients = jax.jit(jax.grad(loss, (0, 1)))
    by_x, by_weight = gradients(x, infinite)
    finite = gradients(x, weight)
    np.testing.assert_array_equal(by_weight, finite[1])
    assert np.isinf(by_x).any()
    assert np.isfinite(by_x).any()


def test_constant_finite_weights_cost_nothing(rng):
    """The second way, for weights that are infinite or NaN, is not in the program."""
    types = dict.fromkeys(("in_t", "weight_t", "out_t", "acc_t"), DType.FP32)
    for name, case in zip(NAMES, ("3x3", "uneven", "3x3", "2x2-stride-2"), strict=True):
        function, (x, weight, *rest) = _small(name, types, rng, case)
        known = np.asarray(weight)
        program = jax.jit(lambda x, f=function, w=known, r=rest: f(x, w, *r)).lower(x)
        assert " conditional(" not in str(program.compile().as_text())
        program = jax.jit(function).lower(x, weight, *rest)
        assert " conditional(" in str(program.compile().as_text())


@pytest.mark.parametrize("name", NAMES)
def test_finite_weights_keep_their_bits(name, rng, monkeypatch):
    """The second way changes nothing of the first, also where the input is batched alone."""
    types = dict.fromkeys(("in_t", "weight_t", "out_t", "acc_t"), DType.FP32)
    function, (x, *rest) = _small(name, types, rng, "3x3" if "3x3" in CASES[name] else None)
    results = []
    for skips in (True, False):
        if not skips:
            monkeypatch.setattr(conv, "skip_padding", lambda total, *_, **__: total)

        def both(xs, *rest):
            mapped = jax.vmap(lambda x, *rest: function(x, *rest), (0, *[None] * len(rest)))
            return function(xs[0], *rest), mapped(xs, *rest)

        results.append(jax.jit(both)(jnp.stack([x, -x]), *rest))
    jax.tree.map(np.testing.assert_array_equal, *results)


def test_called_again_it_compiles_nothing(rng):
    """Without `jit`, a second call of the same shapes finds the program of both ways."""
    types = dict.fromkeys(("in_t", "weight_t", "out_t", "acc_t"), DType.FP32)
    function, inputs = _small("CONV2D", types, rng, "3x3")
    function(*inputs)
    kept: Any = _skip._skipped_if_needed
    programs = kept._cache_size()
    function(*inputs)
    assert kept._cache_size() == programs > 0
