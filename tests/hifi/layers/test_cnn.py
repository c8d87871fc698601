"""The CNN layer: convolutions by a configuration, and faults."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import numpy as np
import pytest
from oracle import hifi_oracle
from oracle.hifi_oracle import conv2d, depthwise, draw

from tosajax.hifi.errors import ErrorCode, NNLibConfigError, NNLibParamError
from tosajax.hifi.kernels._precision import PRECISIONS as KERNELS
from tosajax.hifi.layers import (
    Algo,
    CNNConfig,
    CNNWeights,
    Matrix,
    Precision,
    Shape,
    ShapeType,
    Vector,
    cnn_apply,
    conv1d_std_config,
    conv2d_ds_config,
    conv2d_std_config,
    cube_dwh,
    cube_whd,
    matrix,
    output_shape,
    vector,
)

PRECISIONS = {
    "16x16": Precision.P16bx16b,
    "8x16": Precision.P8bx16b,
    "8x8": Precision.P8bx8b,
    "f32": Precision.F32xF32,
}
# Shifts of the accumulator and of the bias: most results within the range, and most outside.
SHIFTS = {
    "16x16": [(-16, 12), (-3, -5)],
    "8x16": [(-9, 7), (2, -31)],
    "8x8": [(-8, 4), (0, 31)],
    "f32": [(0, 0)],
}
# For images of 6 by 5 and kernels of 3 by 2.
WINDOWS: list[dict[str, Any]] = [
    {"strides": (1, 1), "padding": (0, 0), "output_size": (4, 4)},
    {"strides": (3, 2), "padding": (2, 1), "output_size": (3, 4)},
]
STD: dict[str, Any] = {"input_size": (6, 5, 3), "kernel_size": (3, 2), "output_channels": 5}
DS: dict[str, Any] = {**STD, "input_size": (6, 5, 2), "channels_multiplier": 2}
ONE_D: dict[str, Any] = {"input_size": (6, 5, 3), "kernel_height": 3, "output_channels": 5}


@pytest.fixture
def rng():
    return np.random.default_rng(47)


def sample(rng, dtype, shape):
    """Values of the full range, with its ends; floats are sums of few powers of 2."""
    if dtype is np.float32:
        return rng.integers(-16, 17, shape).astype(np.float32) / 8
    return draw(rng, dtype, shape)


def finished(sums, bias, config, types):
    if types.out is np.float32:
        return (sums + hifi_oracle.integers(bias)).astype(np.float32)
    return hifi_oracle.fixed(sums, bias, config.acc_shift, config.bias_shift, types.out)


def check(config, weights, x, wanted):
    result = jax.jit(functools.partial(cnn_apply, config))(weights, x)
    assert result.dtype == x.dtype
    np.testing.assert_array_equal(result, wanted)
    shape = output_shape(config)
    if isinstance(shape.dim, Matrix):
        assert (shape.dim.rows, shape.dim.cols) == wanted.shape
    else:
        size = shape.dim.height, shape.dim.width, shape.dim.depth
        order = (2, 0, 1) if shape.shape_type == ShapeType.CUBE_WHD else (0, 1, 2)
        assert tuple(size[axis] for axis in order) == wanted.shape


def channels_first(x, output_format):
    return np.moveaxis(x, -1, 0) if output_format else x


# Values.


@pytest.mark.parametrize("precision", ["16x16", "8x16", "8x8"])
def test_vectors_of_a_numpy_model(precision, data):
    v = np.load(data / f"hifi/model_conv2d_std_{precision}_hwc.npz")
    config = conv2d_std_config(
        input_size=v["x"].shape,
        kernel_size=v["kernel"].shape[1:3],
        output_size=v["y"].shape[:2],
        output_channels=v["kernel"].shape[0],
        precision=PRECISIONS[precision],
        strides=tuple(v["strides_yx"].tolist()),
        padding=tuple(v["pad_yx"].tolist()),
        acc_shift=int(v["acc_shift"]),
        bias_shift=int(v["bias_shift"]),
    )
    check(config, CNNWeights(v["kernel"], v["bias"]), v["x"], v["y"])


@pytest.mark.parametrize("output_format", [0, 1])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_conv2d_std(precision, output_format, rng):
    types, window = KERNELS[precision], WINDOWS[output_format]
    x, bias = sample(rng, types.input, (6, 5, 3)), sample(rng, types.bias, (5,))
    kernel = sample(rng, types.weight, (5, 3, 2, 3))
    sums = conv2d(x, kernel, window["strides"], window["padding"], window["output_size"])
    for acc_shift, bias_shift in SHIFTS[precision]:
        shifts: dict[str, Any] = {"acc_shift": acc_shift, "bias_shift": bias_shift}
        config = conv2d_std_config(
            **STD, **window, **shifts, precision=PRECISIONS[precision], output_format=output_format
        )
        wanted = finished(sums.copy(), bias, config, types)
        check(config, CNNWeights(kernel, bias), x, channels_first(wanted, output_format))


@pytest.mark.parametrize("output_format", [0, 1])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_conv1d_std(precision, output_format, rng):
    types = KERNELS[precision]
    stride, padding, height = [(1, 0, 4), (3, 2, 4)][output_format]
    x, bias = sample(rng, types.input, (6, 5, 3)), sample(rng, types.bias, (5,))
    kernel = sample(rng, types.weight, (5, 3, 5, 3))
    sums = conv2d(x, kernel, (stride, 1), (padding, 0), (height, 1))[:, 0]
    acc_shift, bias_shift = SHIFTS[precision][0]
    config = conv1d_std_config(
        **ONE_D,
        output_height=height,
        precision=PRECISIONS[precision],
        stride=stride,
        padding=padding,
        acc_shift=acc_shift,
        bias_shift=bias_shift,
        output_format=output_format,
    )
    wanted = finished(sums, bias, config, types)
    check(config, CNNWeights(kernel, bias), x, channels_first(wanted, output_format))


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("precision", PRECISIONS)
def test_conv2d_ds(precision, window, rng):
    """Between the two convolutions sums are rounded and saturated to the type of the output."""
    types = KERNELS[precision]
    x, kernel = sample(rng, types.input, (2, 6, 5)), sample(rng, types.weight, (4, 3, 2))
    point, biases = sample(rng, types.weight, (5, 4)), sample(rng, types.bias, (2, 5))
    x_last, kernel_last = np.moveaxis(x, 0, -1), np.moveaxis(kernel, 0, -1)
    geometry = window["strides"], window["padding"], window["output_size"]
    sums = depthwise(x_last, kernel_last, *geometry)
    # Some sums of the first convolution saturate.
    acc_shift, bias_shift = SHIFTS[precision][0]
    shifts: dict[str, Any] = {"acc_shift": acc_shift + 2, "bias_shift": bias_shift}
    config = conv2d_ds_config(**DS, **window, **shifts, precision=PRECISIONS[precision])
    between = finished(sums, biases[0, :4], config, types)
    if precision != "f32":
        info = np.iinfo(types.out)
        assert 0 < np.isin(between, [info.min, info.max]).mean() < 0.9
    one = (1, 1), (0, 0), window["output_size"]
    wanted = finished(conv2d(between, point[:, None, None], *one), biases[1], config, types)
    weights = CNNWeights(kernel, biases[0, :4], point, biases[1])
    check(config, weights, x, channels_first(wanted, 1))


def test_the_defaults_of_the_guide(rng):
    config = CNNConfig()
    x, kernel = draw(rng, np.int16, (16, 16, 4)), draw(rng, np.int8, (4, 16, 16, 4))
    bias = draw(rng, np.int16, (4,))
    sums = conv2d(x, kernel, (2, 2), (2, 2), (16, 16))
    wanted = hifi_oracle.fixed(sums, bias, -7, 7, np.int16)
    check(config, CNNWeights(kernel, bias), x, wanted)


def test_transforms(rng):
    config = conv2d_ds_config(**DS, **WINDOWS[1], acc_shift=-9)
    xs, kernel = draw(rng, np.int16, (3, 2, 6, 5)), draw(rng, np.int8, (4, 3, 2))
    point, bias = draw(rng, np.int8, (5, 4)), draw(rng, np.int16, (5,))
    weights = CNNWeights(kernel, bias[:4], point, bias)
    apply = functools.partial(cnn_apply, config, weights)
    wanted = np.stack([jax.jit(apply)(x) for x in xs])
    for x64 in (False, True):
        with jax.enable_x64(x64):
            np.testing.assert_array_equal(jax.jit(jax.vmap(apply))(xs), wanted)


# Configurations.


def test_helpers_make_valid_configurations():
    for precision in PRECISIONS.values():
        for config in (
            conv1d_std_config(**ONE_D, output_height=4, precision=precision),
            conv2d_std_config(**STD, **WINDOWS[0], precision=precision),
            conv2d_ds_config(**DS, **WINDOWS[0], precision=precision),
        ):
            assert config.fault() is None
            hash(config)
    assert CNNConfig().fault() is None


FAULTS: list[tuple[str, dict[str, Any], str, str]] = [
    ("std", {"algo": 202}, "ALGO", "algo"),
    ("std", {"algo": 0}, "ALGO", "algo"),
    ("std", {"precision": 104}, "PRECISION", "precision"),
    ("std", {"bias_shift": -32}, "BIAS_SHIFT", "bias_shift"),
    ("std", {"bias_shift": 32}, "BIAS_SHIFT", "bias_shift"),
    ("std", {"acc_shift": -32}, "ACC_SHIFT", "acc_shift"),
    ("std", {"acc_shift": 32}, "ACC_SHIFT", "acc_shift"),
    ("std", {"x_stride": 0}, "STRIDE", "x_stride"),
    ("std", {"y_stride": 0}, "STRIDE", "y_stride"),
    ("std", {"x_padding": -1}, "PADDING", "x_padding"),
    ("std", {"y_padding": -1}, "PADDING", "y_padding"),
    ("std", {"output_height": 0}, "OUTPUT_SHAPE", "output_height"),
    ("std", {"output_width": 0}, "OUTPUT_SHAPE", "output_width"),
    ("std", {"output_channels": 0}, "OUTPUT_SHAPE", "output_channels"),
    ("std", {"input_shape": cube_whd(6, 5, 3)}, "INPUT_SHAPE", "input_shape"),
    ("std", {"input_shape": Shape()}, "INPUT_SHAPE", "input_shape"),
    ("std", {"input_shape": cube_dwh(6, 5, 3, width_offset=4)}, "INPUT_SHAPE", "input_shape"),
    ("std", {"input_shape": cube_dwh(6, 5, 3, height_offset=16)}, "INPUT_SHAPE", "input_shape"),
    ("std", {"kernel_std_shape": cube_whd(3, 2, 3)}, "KERNEL_SHAPE", "kernel_std_shape"),
    ("std", {"bias_std_shape": matrix(1, 5)}, "BIAS_SHAPE", "bias_std_shape"),
    (
        "std",
        {"kernel_std_shape": cube_dwh(3, 2, 4)},
        "PARAM_COMBINATION",
        "depth of kernel_std_shape",
    ),
    ("std", {"bias_std_shape": vector(4)}, "PARAM_COMBINATION", "length of bias_std_shape"),
    ("std", {"x_stride": 3}, "STRIDE", "x_stride"),
    ("std", {"output_format": 2}, "OUTPUT_SHAPE", "output_format"),
    (
        "std",
        {"kernel_std_shape": cube_dwh(3, 2, 3)},
        "KERNEL_SHAPE",
        "width_offset of kernel_std_shape",
    ),
    ("1d", {"output_width": 2}, "OUTPUT_SHAPE", "output_width"),
    (
        "1d",
        {"kernel_std_shape": cube_dwh(3, 4, 3, height_offset=12)},
        "PARAM_COMBINATION",
        "width of kernel_std_shape",
    ),
    (
        "1d",
        {"kernel_std_shape": cube_dwh(3, 5, 3)},
        "KERNEL_SHAPE",
        "height_offset of kernel_std_shape",
    ),
    ("ds", {"input_shape": cube_dwh(6, 5, 2)}, "INPUT_SHAPE", "input_shape"),
    ("ds", {"input_shape": cube_whd(6, 5, 2, height_offset=6)}, "INPUT_SHAPE", "input_shape"),
    (
        "ds",
        {"kernel_ds_depth_shape": cube_dwh(3, 2, 4)},
        "KERNEL_SHAPE",
        "kernel_ds_depth_shape",
    ),
    ("ds", {"output_format": 0}, "OUTPUT_SHAPE", "output_format"),
    ("ds", {"bias_ds_depth_shape": Shape()}, "BIAS_SHAPE", "bias_ds_depth_shape"),
    ("ds", {"bias_ds_point_shape": Shape()}, "BIAS_SHAPE", "bias_ds_point_shape"),
    ("ds", {"kernel_ds_point_shape": vector(20)}, "KERNEL_SHAPE", "kernel_ds_point_shape"),
    ("ds", {"channels_multiplier": 3}, "INPUT_SHAPE", "channels * multiplier"),
    (
        "ds",
        {"bias_ds_depth_shape": vector(5)},
        "PARAM_COMBINATION",
        "length of bias_ds_depth_shape",
    ),
    (
        "ds",
        {"bias_ds_point_shape": vector(4)},
        "PARAM_COMBINATION",
        "length of bias_ds_point_shape",
    ),
    ("ds", {"y_stride": 4}, "STRIDE", "y_stride"),
    (
        "ds",
        {"kernel_ds_depth_shape": cube_whd(3, 2, 4)},
        "KERNEL_SHAPE",
        "height_offset of kernel_ds_depth_shape",
    ),
]
CONFIGS = {
    "1d": conv1d_std_config(**ONE_D, output_height=4),
    "std": conv2d_std_config(**STD, **WINDOWS[0]),
    "ds": conv2d_ds_config(**DS, **WINDOWS[0]),
}


@pytest.mark.parametrize(("kind", "changed", "code", "argument"), FAULTS)
def test_invalid_configurations(kind, changed, code, argument):
    config = dataclasses.replace(CONFIGS[kind], **changed)
    with pytest.raises(NNLibConfigError, match=f"^CNN: .* is .*{code}") as error:
        cnn_apply(config, CNNWeights(np.zeros(1), np.zeros(1)), np.zeros(1))
    assert error.value.code == ErrorCode[f"CNN_CONFIG_FATAL_INVALID_{code}"]
    assert error.value.argument == argument


@pytest.mark.parametrize("kind", CONFIGS)
def test_the_first_fault_is_reported(kind):
    """Of two faults the library finds the first in its order."""
    faults = [(changed, argument) for k, changed, _, argument in FAULTS if k == kind]
    if kind != "std":
        shared = [(changed, argument) for k, changed, _, argument in FAULTS if k == "std"]
        faults = [*shared[:14], *faults]
    for number, (first, argument) in enumerate(faults):
        for later, _ in faults[number + 1 :]:
            # Two faults of one field cannot be given at once.
            if not first.keys() & later.keys():
                fault = dataclasses.replace(CONFIGS[kind], **first, **later).fault()
                assert fault is not None
                assert fault.argument == argument, (first, later)


def test_ineffective_fields_are_not_checked():
    float32 = conv2d_std_config(**STD, **WINDOWS[0], precision=Precision.F32xF32)
    assert dataclasses.replace(float32, bias_shift=99, acc_shift=-99).fault() is None
    tall = dataclasses.replace(CONFIGS["std"], y_stride=4)
    assert tall.fault() is None
    ends = dataclasses.replace(CONFIGS["std"], acc_shift=-31, bias_shift=31, x_stride=2)
    assert ends.fault() is None


@pytest.mark.parametrize("kind", CONFIGS)
def test_arrays_of_other_shapes_and_types(kind):
    config = CONFIGS[kind]
    arrays = {
        "x": np.zeros((2, 6, 5) if kind == "ds" else (6, 5, 3), np.int16),
        "kernel": np.zeros({"1d": (5, 3, 5, 3), "std": (5, 3, 2, 3), "ds": (4, 3, 2)}[kind], "i1"),
        "bias": np.zeros(4 if kind == "ds" else 5, np.int16),
    }
    if kind == "ds":
        arrays |= {"point_kernel": np.zeros((5, 4), np.int8), "point_bias": np.zeros(5, np.int16)}

    def call(**changed):
        operands = {**arrays, **changed}
        x = operands.pop("x")
        return jax.eval_shape(functools.partial(cnn_apply, config), CNNWeights(**operands), x)

    call()
    for name, array in arrays.items():
        with pytest.raises(NNLibParamError, match=f"cnn: {name} is of shape") as error:
            call(**{name: np.zeros((*array.shape[:-1], array.shape[-1] + 1), array.dtype)})
        assert error.value.argument == name
        with pytest.raises(TypeError, match=f"cnn: {name} is int32, expected"):
            call(**{name: array.astype(np.int32)})
    if kind == "ds":
        with pytest.raises(NNLibParamError, match="cnn: point_bias is missing"):
            call(point_bias=None)


def test_images_that_kernels_reject():
    """The library only checks it when it convolves."""
    config = conv2d_std_config(
        input_size=(6, 5, 3), kernel_size=(7, 2), output_size=(1, 4), output_channels=5
    )
    assert config.fault() is None
    weights = CNNWeights(np.zeros((5, 7, 2, 3), np.int8), np.zeros(5, np.int16))
    with pytest.raises(NNLibParamError, match="kernel_height is 7, expected at most input_height"):
        cnn_apply(config, weights, np.zeros((6, 5, 3), np.int16))


# Shapes.


def test_shapes_have_the_dimensions_of_their_type():
    assert Shape(ShapeType.VECTOR, Vector(3)) == vector(3)
    assert Algo.CONV2D_DS == 203
    cube = cube_dwh(2, 3, 4).dim
    assert (cube.height_offset, cube.width_offset, cube.depth_offset) == (12, 4, 1)
    cube = cube_dwh(2, 3, 4, width_offset=6).dim
    assert (cube.height_offset, cube.width_offset, cube.depth_offset) == (18, 6, 1)
    cube = cube_whd(2, 3, 4).dim
    assert (cube.height_offset, cube.width_offset, cube.depth_offset) == (3, 1, 6)
    cube = cube_whd(2, 3, 4, height_offset=5).dim
    assert (cube.height_offset, cube.width_offset, cube.depth_offset) == (5, 1, 10)
    assert matrix(2, 3).dim.row_offset == 3
    with pytest.raises(TypeError, match="dim of MATRIX is Vector, expected Matrix"):
        Shape(ShapeType.MATRIX, Vector(3))
    with pytest.raises(TypeError, match="dim of VECTOR is NoneType, expected Vector"):
        Shape(ShapeType.VECTOR)
    with pytest.raises(ValueError, match="5 is not a valid ShapeType"):
        Shape(5)
