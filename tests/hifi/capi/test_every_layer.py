"""C functions of all layers: configurations, sizes, and identifiers of parameters."""

from __future__ import annotations

import pickle
import re
from typing import Any

import numpy as np
import pytest
from hifi.c_layers import (
    ALIGN,
    ALL,
    ALLOC,
    CNN,
    GRU,
    LSTM,
    RECURRENT,
    handle_of,
    wrong_configs,
)
from hifi.memory import at

from tosajax.hifi import layers
from tosajax.hifi.errors import ErrorCode
from tosajax.hifi.kernels import conv2d_depthwise_getsize
from tosajax.hifi.layers import (
    CNNConfig,
    CNNParam,
    GRUConfig,
    GRUParam,
    Handle,
    LSTMConfig,
    LSTMParam,
    Pointer,
    Precision,
    conv1d_std_config,
    conv2d_ds_config,
    conv2d_std_config,
)


@pytest.mark.parametrize("layer", ALL, ids=lambda layer: layer.name)
@pytest.mark.filterwarnings("ignore:cell_Qformat")
def test_queries_and_init_check_configurations(layer):
    handle = Handle(at(np.zeros(4096, np.uint8)))
    for config, expected in wrong_configs(layer.name):
        for given in (config, Pointer(config)):
            assert layer.call("get_persistent_fast", given) == expected
            assert layer.call("get_scratch_fast", given) == expected
            assert layer.call("init", handle, given) == expected
    assert handle.layer is None
    for nothing in (None, Pointer()):
        assert layer.call("get_persistent_fast", nothing) == ALLOC
        assert layer.call("get_scratch_fast", nothing) == ALLOC
        assert layer.call("init", handle, nothing) == ALLOC
    other = GRUConfig() if layer is LSTM else LSTMConfig()
    for function in ("get_persistent_fast", "get_scratch_fast"):
        with pytest.raises(TypeError, match=f"expected {layer.name}Config"):
            layer.call(function, other)
    with pytest.raises(TypeError, match=f"expected {layer.name}Config"):
        layer.call("init", handle, other)


@pytest.mark.parametrize("layer", ALL, ids=lambda layer: layer.name)
def test_init_checks_pointers_first(layer):
    wrong, code = next(wrong_configs(layer.name))
    room = np.zeros(4096, np.uint8)
    good, shifted = Handle(at(room)), Handle(at(room, offset=4))
    assert layer.call("init", None, wrong) == ALLOC
    assert layer.call("init", Handle(None), wrong) == ALLOC  # pyright: ignore
    assert layer.call("init", shifted, None) == ALLOC
    assert layer.call("init", shifted, wrong) == ALIGN
    assert layer.call("init", good, Pointer(wrong, address=18)) == ALIGN
    assert layer.call("init", good, Pointer(wrong, address=20)) == code
    assert layer.call("init", Handle(at(room, offset=8)), wrong) == code


# Sizes.


def test_sizes():
    assert GRU.call("get_persistent_fast", GRUConfig()) == 912
    assert LSTM.call("get_persistent_fast", LSTMConfig()) == 528 + 512 + 1024
    assert CNN.call("get_persistent_fast", CNNConfig()) == 368
    for layer in RECURRENT.values():
        assert layer.call("get_scratch_fast", layer.config()) == 2576
        # 2 * 12 bytes are rounded up to 32, 4 * 12 are 48.
        few = layer.config(in_feats=256, out_feats=12)
        assert layer.call("get_scratch_fast", Pointer(few)) == 16 + 3 * 32 + 48
    assert GRU.call("get_persistent_fast", GRUConfig(out_feats=12)) == 432
    assert LSTM.call("get_persistent_fast", LSTMConfig(out_feats=12)) == 528 + 32 + 48


def test_scratch_of_convolutions():
    one: dict[str, Any] = {"input_size": (6, 5, 3), "kernel_height": 3, "output_height": 4}
    two: dict[str, Any] = {"input_size": (6, 5, 4), "kernel_size": (3, 2), "output_size": (4, 4)}
    sizes = {Precision.P16bx16b: 2, Precision.P8bx16b: 2, Precision.P8bx8b: 1, Precision.F32xF32: 4}
    for precision, size in sizes.items():
        # Rows of 15 elements become 16.
        config = conv1d_std_config(**one, output_channels=5, precision=precision)
        assert CNN.call("get_scratch_fast", config) == 35 + 3 * 16 * size
        for config in (
            conv2d_std_config(**two, output_channels=5, precision=precision),
            conv2d_ds_config(**two, output_channels=5, precision=precision),
        ):
            # The columns under a kernel, and the image between two convolutions.
            assert CNN.call("get_scratch_fast", config) >= 6 * 2 * 4 * size
        # The depthwise convolution has both.
        image, kernel, bits = (6, 5, 4), (3, 2), -1 if precision == Precision.F32xF32 else 8 * size
        depthwise = conv2d_depthwise_getsize(*image, *kernel, 1, 1, 1, 0, 0, 4, 4, bits, 1)
        assert CNN.call("get_scratch_fast", config) == 4 * 4 * 4 * size + depthwise


@pytest.mark.parametrize("layer", ALL, ids=lambda layer: layer.name)
def test_memory_of_too_few_bytes(layer):
    config = layer.config()
    size = layer.call("get_persistent_fast", config)
    with pytest.raises(ValueError, match=f"the memory has {size - 1} bytes, expected {size}"):
        layer.call("init", Handle(at(np.zeros(size - 1, np.uint8))), config)


@pytest.mark.parametrize(
    ("param", "first", "names"),
    [
        (GRUParam, 0, "RESTORE_CONTEXT WEIGHT BIAS INPUT_SHAPE OUTPUT_SHAPE"),
        (
            LSTMParam,
            0,
            "RESTORE_CONTEXT_OUTPUT RESTORE_CONTEXT_CELL WEIGHT BIAS INPUT_SHAPE OUTPUT_SHAPE "
            "CELL_SHAPE",
        ),
        (CNNParam, 1, "KERNEL BIAS INPUT_SHAPE OUTPUT_SHAPE"),
    ],
)
def test_numbers_of_parameters(param, first, names):
    assert [(p.value, p.name) for p in param] == list(enumerate(names.split(), first))


def unknown_params(layer):
    """Unknown identifiers, to get and to set."""
    read_only = [layer.param.INPUT_SHAPE, layer.param.OUTPUT_SHAPE]
    unknown = [-1, 99, *([LSTMParam.CELL_SHAPE] if layer is LSTM else [])]
    unknown += [0] if layer is CNN else []
    return unknown, unknown + read_only


@pytest.mark.parametrize("layer", ALL, ids=lambda layer: layer.name)
def test_unknown_parameters(layer):
    config = layer.config()
    handle = handle_of(layer, config)
    code = ErrorCode[f"{layer.name}_CONFIG_FATAL_INVALID_PARAM_ID"]
    to_get, to_set = unknown_params(layer)
    for param in to_get:
        assert layer.call("get_config", handle, param, Pointer()) == code
    for param in to_set:
        assert layer.call("set_config", handle, param, Pointer()) == code
    # Pointers come first.
    for function in ("get_config", "set_config"):
        assert layer.call(function, None, 99, Pointer()) == ALLOC
        assert layer.call(function, handle, 99, None) == ALLOC
        assert layer.call(function, handle, 99, Pointer(address=18)) == ALIGN
        assert layer.call(function, None, 99, Pointer(address=18)) == ALLOC
        handle.memory, kept = at(handle.memory, offset=4), handle.memory
        assert layer.call(function, handle, 99, Pointer()) == ALIGN
        assert layer.call(function, handle, 99, None) == ALLOC
        handle.memory = kept


@pytest.mark.parametrize(
    "name", [x for x in layers.__all__ if re.match("xa_nnlib_(gru|lstm|cnn)_", x)]
)
def test_generated_functions_are_found_by_name(name):
    function = getattr(layers, name)
    assert function.__name__ == function.__qualname__ == name
    assert pickle.loads(pickle.dumps(function)) is function
    assert "{layer}" not in function.__doc__
