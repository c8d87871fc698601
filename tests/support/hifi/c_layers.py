"""The C functions of the layers: calls, set-ups, and arguments that they reject."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np
from oracle import hifi_recurrent as oracle

from hifi.memory import at
from tosajax.hifi import layers
from tosajax.hifi.errors import ErrorCode
from tosajax.hifi.layers import (
    CNNConfig,
    CNNParam,
    CNNWeights,
    GRUConfig,
    GRUParam,
    GRUWeights,
    Handle,
    LSTMConfig,
    LSTMParam,
    LSTMWeights,
    Pointer,
    Shape,
    cnn_pointers,
    conv2d_std_config,
    gru_pointers,
    lstm_pointers,
    matrix,
    output_shape,
    vector,
)

OK, ALLOC = ErrorCode.NO_ERROR, ErrorCode.FATAL_MEM_ALLOC
ALIGN, SHAPE = ErrorCode.FATAL_MEM_ALIGN, ErrorCode.FATAL_INVALID_SHAPE


class Layer(NamedTuple):
    """A layer, and a call of its C functions by the end of their names."""

    name: str
    config: Any
    param: Any
    weights: Any = None
    pointers: Any = None
    oracle: Any = None

    def call(self, function, *arguments):
        return getattr(layers, f"xa_nnlib_{self.name.lower()}_{function}")(*arguments)


GRU = Layer("GRU", GRUConfig, GRUParam, GRUWeights, gru_pointers, oracle.GRU)
LSTM = Layer("LSTM", LSTMConfig, LSTMParam, LSTMWeights, lstm_pointers, oracle.LSTM)
CNN = Layer("CNN", CNNConfig, CNNParam)
ALL = [GRU, LSTM, CNN]
RECURRENT = {"GRU": GRU, "LSTM": LSTM}
SIZE = {"in_feats": 12, "out_feats": 8}


def handle_of(layer, config, **options):
    """A layer that is set up, without its weights."""
    size = layer.call("get_persistent_fast", config)
    handle = Handle(at(np.zeros(size, np.uint8)), **options)
    assert layer.call("init", handle, config) == OK
    return handle


def set_weights(layer, handle, config, weights):
    matrices, biases = layer.pointers(config, layer.weights(**weights))
    assert layer.call("set_config", handle, layer.param.WEIGHT, matrices) == OK
    assert layer.call("set_config", handle, layer.param.BIAS, Pointer(biases)) == OK
    return matrices, biases


def process(layer, handle, x, out):
    scratch, shapes = at(np.zeros(16, np.uint8)), (Pointer(vector(x.size)), vector(out.size))
    return layer.call("process", handle, scratch, x, out, shapes[0], Pointer(shapes[1]))


def drawn(rng, layer, dtype=np.int16):
    weights = oracle.draw_weights(rng, layer.oracle, 12, 8, dtype)
    return oracle.scaled(weights, np.iinfo(dtype).bits // 2 - 2)


CNN_CONFIG = conv2d_std_config(
    input_size=(6, 5, 3), kernel_size=(3, 2), output_size=(4, 4), output_channels=5
)
WRONG: dict[str, list[tuple[dict[str, Any], str]]] = {
    "GRU": [
        ({"in_feats": 6}, "IN_FEATS"),
        ({"out_feats": 0}, "OUT_FEATS"),
        ({"precision": 103}, "PRECISION"),
        ({"coeff_Qformat": 16}, "COEFF_QFORMAT"),
        ({"io_Qformat": -1}, "IO_QFORMAT"),
        ({"pad": 2}, "MEMBANK_PADDING"),
    ],
    "CNN": [
        ({"algo": 202}, "ALGO"),
        ({"precision": 104}, "PRECISION"),
        ({"bias_shift": 32}, "BIAS_SHIFT"),
        ({"acc_shift": 32}, "ACC_SHIFT"),
        ({"x_stride": 0}, "STRIDE"),
        ({"y_padding": -1}, "PADDING"),
        ({"output_height": 0}, "OUTPUT_SHAPE"),
        ({"input_shape": Shape()}, "INPUT_SHAPE"),
        ({"kernel_std_shape": Shape()}, "KERNEL_SHAPE"),
        ({"bias_std_shape": Shape()}, "BIAS_SHAPE"),
        ({"bias_std_shape": vector(4)}, "PARAM_COMBINATION"),
    ],
}
WRONG["LSTM"] = [*WRONG["GRU"], ({"cell_Qformat": 26}, "CELL_QFORMAT")]


def wrong_configs(name):
    """Configurations that the library rejects, each with its code."""
    valid = CNN_CONFIG if name == "CNN" else RECURRENT[name].config(**SIZE)
    for changed, code in WRONG[name]:
        expected = ErrorCode[f"{name}_CONFIG_FATAL_INVALID_{code}"]
        yield dataclasses.replace(valid, **changed), expected


def process_faults(layer):
    """Arguments of process that the library rejects, in its order, each with its code."""
    spoiled = at(np.zeros(64, np.uint8), offset=4).view(np.int16)
    execute = f"{layer.name}_EXECUTE_FATAL_INSUFFICIENT"
    memories = ("scratch", "input", "output")
    shapes = ("p_in_shape", "p_out_shape")
    return [
        *(({name: None}, ALLOC) for name in ("handle", *memories, *shapes)),
        ({"handle": "shifted"}, ALIGN),
        *(({name: spoiled}, ALIGN) for name in memories),
        *(({name: Pointer(vector(12), address=6)}, ALIGN) for name in shapes),
        ({"p_in_shape": Pointer(matrix(1, 12))}, SHAPE),
        ({"p_out_shape": Pointer()}, SHAPE),
        ({"p_out_shape": Pointer(vector(7))}, ErrorCode[f"{execute}_OUTPUT_BUFFER_SPACE"]),
        ({"p_in_shape": Pointer(vector(11))}, ErrorCode[f"{execute}_DATA"]),
    ]


def process_arguments(handle, lengths):
    """Arguments of process by name, with shapes of these lengths."""
    return {
        "handle": handle,
        "scratch": at(np.zeros(8, np.uint8)),
        "input": at(np.zeros(12, np.int16)),
        "output": at(np.ones(8, np.int16)),
        "p_in_shape": Pointer(vector(lengths[0])),
        "p_out_shape": Pointer(vector(lengths[1])),
    }


def too_tall():
    """The code and the output's shape of kernels that are taller than the image.

    Only the kernels of the library reject them.
    """
    config = conv2d_std_config(
        input_size=(2, 5, 4), kernel_size=(3, 2), output_size=(1, 4), output_channels=5
    )
    handle = handle_of(CNN, config)
    weights = CNNWeights(np.zeros((5, 3, 2, 4), np.int8), np.zeros(5, np.int16))
    kernels, biases = cnn_pointers(config, weights)
    assert CNN.call("set_config", handle, CNNParam.KERNEL, kernels) == OK
    assert CNN.call("set_config", handle, CNNParam.BIAS, biases) == OK
    room = [at(np.zeros(40, np.int16)) for _ in range(3)]
    shape = Pointer(output_shape(config))
    code = CNN.call("process", handle, *room, Pointer(config.input_shape), shape)
    return code, shape.target
