"""C functions of the CNN layer: parameters, and outputs."""

from __future__ import annotations

import functools
from typing import Any

import jax
import numpy as np
import pytest
from hifi.c_layers import (
    ALIGN,
    ALLOC,
    CNN,
    GRU,
    OK,
    handle_of,
    too_tall,
)
from hifi.memory import at
from oracle.hifi_oracle import draw

from tosajax.hifi.errors import ErrorCode
from tosajax.hifi.kernels._precision import PRECISIONS as KERNELS
from tosajax.hifi.layers import (
    CNNParam,
    CNNWeights,
    Pointer,
    Precision,
    Shape,
    cnn_apply,
    cnn_pointers,
    conv1d_std_config,
    conv2d_ds_config,
    conv2d_std_config,
    cube_dwh,
    output_shape,
    vector,
)


@pytest.fixture
def rng():
    return np.random.default_rng(53)


TAGS = {
    "16x16": Precision.P16bx16b,
    "8x16": Precision.P8bx16b,
    "8x8": Precision.P8bx8b,
    "f32": Precision.F32xF32,
}


def cnn_case(rng, kind, precision, output_format=0):
    """A configuration, its weights and an input."""
    types = KERNELS[precision]

    def sample(dtype, *shape):
        floats = dtype is np.float32
        return rng.normal(0, 1, shape).astype(dtype) if floats else draw(rng, dtype, shape)

    def weight(*shape):
        return sample(types.weight, *shape)

    bias = sample(types.bias, 2, 5)
    size: dict[str, Any] = {"input_size": (6, 5, 3), "output_channels": 5}
    size |= {"precision": TAGS[precision], "acc_shift": -9, "bias_shift": 3}
    window: dict[str, Any] = {"kernel_size": (3, 2), "output_size": (4, 4)}
    if kind == "ds":
        size |= {"input_size": (6, 5, 2), "channels_multiplier": 2}
        weights = CNNWeights(weight(4, 3, 2), bias[0, :4], weight(5, 4), bias[1])
        return conv2d_ds_config(**window, **size), weights, sample(types.input, 2, 6, 5)
    size["output_format"] = output_format
    x = sample(types.input, 6, 5, 3)
    if kind == "1d":
        config = conv1d_std_config(kernel_height=3, output_height=4, **size)
        return config, CNNWeights(weight(5, 3, 5, 3), bias[0]), x
    return conv2d_std_config(**window, **size), CNNWeights(weight(5, 3, 2, 3), bias[0]), x


CASES = [
    ("std", "16x16", 1),
    ("std", "8x8", 0),
    ("std", "f32", 0),
    ("1d", "8x16", 1),
    ("1d", "f32", 0),
    ("ds", "16x16", 1),
    ("ds", "8x8", 1),
    ("ds", "f32", 1),
]


@pytest.mark.parametrize(("kind", "precision", "output_format"), CASES)
def test_process_of_convolutions(kind, precision, output_format, rng):
    config, weights, x = cnn_case(rng, kind, precision, output_format)
    handle = handle_of(CNN, config)
    kernels, biases = cnn_pointers(config, weights)
    used = {"std": 3, "1d": 15, "ds": 2}[kind]
    assert kernels[0].shape[1] == {"std": 4, "1d": 16, "ds": 4}[kind]
    assert not kernels[0][:, used:].any()
    # The padding is not read.
    kernels[0][:, used:] = -1
    assert CNN.call("set_config", handle, CNNParam.KERNEL, kernels) == OK
    assert CNN.call("set_config", handle, CNNParam.BIAS, Pointer(list(biases))) == OK
    wanted = np.asarray(jax.jit(functools.partial(cnn_apply, config))(weights, x))
    out = at(np.zeros(wanted.size + 1, wanted.dtype))
    out[-1] = 7
    shape = Pointer()
    scratch = at(np.zeros(8, np.uint8))
    call = functools.partial(CNN.call, "process", handle, scratch, at(x), out)
    assert call(Pointer(config.input_shape), shape) == OK
    np.testing.assert_array_equal(out[:-1], wanted.reshape(-1))
    assert out[-1] == 7
    assert shape.target == output_shape(config)
    found = Pointer()
    # For biases the library also returns the kernels.
    for param in (CNNParam.KERNEL, CNNParam.BIAS):
        assert CNN.call("get_config", handle, param, found) == OK
        assert [id(k) for k in found.target] == [id(k) for k in kernels]
    for param, expected in (
        (CNNParam.INPUT_SHAPE, config.input_shape),
        (CNNParam.OUTPUT_SHAPE, output_shape(config)),
    ):
        assert CNN.call("get_config", handle, param, found) == OK
        assert found.target == expected


@pytest.mark.parametrize("precision", TAGS)
def test_rows_of_kernels_are_padded(precision):
    """To a multiple of 4 elements; of floats to 2, except in depthwise kernels."""
    multiple, weight = 2 if precision == "f32" else 4, KERNELS[precision].weight
    size: dict[str, Any] = {"input_size": (3, 5, 6), "output_channels": 2}
    size["precision"] = TAGS[precision]
    two = {**size, "kernel_size": (1, 1), "output_size": (3, 5)}
    bias = np.zeros(2, KERNELS[precision].bias)
    for config, kernel, row in (
        (conv1d_std_config(**size, kernel_height=1, output_height=3), (2, 1, 5, 6), 30),
        (conv2d_std_config(**two), (2, 1, 1, 6), 6),
    ):
        (found,), _ = cnn_pointers(config, CNNWeights(np.ones(kernel, weight), bias))
        assert found.shape[1] == -(-row // multiple) * multiple
        np.testing.assert_array_equal(found.sum(1), np.full(found.shape[0], row))
        assert config.fault() is None
    config = conv2d_ds_config(**two, channels_multiplier=2)
    weights = CNNWeights(np.ones((12, 1, 1), weight), bias, np.ones((2, 12), weight), bias)
    (depthwise, pointwise), _ = cnn_pointers(config, weights)
    assert (depthwise.shape, pointwise.shape) == ((12, 4), (2, 12))
    assert config.fault() is None


def test_faults_of_convolutions(rng):
    config, weights, x = cnn_case(rng, "ds", "16x16")
    handle, x = handle_of(CNN, config), at(x)
    scratch, out = at(np.zeros(8, np.uint8)), at(np.zeros(80, np.int16))
    kernels, biases = cnn_pointers(config, weights)
    given = [handle, scratch, x, out, Pointer(config.input_shape), Pointer()]
    process = functools.partial(CNN.call, "process")
    assert process(*given) == ALLOC
    assert CNN.call("set_config", handle, CNNParam.KERNEL, kernels) == OK
    assert process(*given) == ALLOC
    put = functools.partial(CNN.call, "set_config", handle)
    shifted = at(kernels[0], offset=4)
    assert put(CNNParam.KERNEL, (kernels[0], None)) == ALLOC
    assert put(CNNParam.KERNEL, (shifted, None)) == ALLOC
    assert put(CNNParam.KERNEL, (kernels[0], at(kernels[1], offset=4))) == ALIGN
    assert put(CNNParam.BIAS, (None, biases[1])) == ALLOC
    assert put(CNNParam.BIAS, (at(biases[0], offset=2), biases[1])) == ALIGN
    found = Pointer()
    assert CNN.call("get_config", handle, CNNParam.KERNEL, found) == OK
    assert found.target[0] is kernels[0]
    for wrong in (kernels[0], kernels[:1], (*kernels, x)):
        with pytest.raises(TypeError, match="expected 2 pointers in a tuple"):
            put(CNNParam.KERNEL, wrong)
    assert put(CNNParam.BIAS, biases) == OK
    for number in range(6):
        assert process(*given[:number], None, *given[number + 1 :]) == ALLOC
    for number in (1, 2, 3):
        moved = at(given[number], offset=4)
        assert process(*given[:number], moved, *given[number + 1 :]) == ALIGN
        assert process(*given[:number], moved, *given[number + 1 : 5], None) == ALLOC
    assert process(*given[:4], Pointer(config.input_shape, address=2), given[5]) == ALIGN
    assert process(*given[:5], Pointer(address=2)) == ALIGN
    code = ErrorCode.CNN_CONFIG_FATAL_INVALID_INPUT_SHAPE
    assert process(*given[:4], Pointer(cube_dwh(6, 5, 2)), given[5]) == code
    assert not out.any()
    assert given[5].target is None
    assert process(*given) == OK
    assert out.any()
    with pytest.raises(RuntimeError, match="holds CNN, expected GRU: call xa_nnlib_gru_init first"):
        GRU.call("get_config", handle, 0, Pointer())
    with pytest.raises(TypeError, match="p_out_shape is Shape, expected a Pointer"):
        process(*given[:5], vector(1))
    with pytest.raises(ValueError, match=r"output of shape \[79\] does not hold 80 elements"):
        process(*given[:3], out[:79], *given[4:])
    with pytest.raises(TypeError, match="input is int8, expected a NumPy array of int16"):
        process(*given[:2], at(x.astype(np.int8)), *given[3:])


def test_rejected_images_have_an_output_without_a_shape():
    code, shape = too_tall()
    assert code == ErrorCode.CNN_CONFIG_FATAL_INVALID_PARAM_COMBINATION
    assert shape == Shape(n_shapes=0, shape_offset=0)
