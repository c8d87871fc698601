"""Arguments of other types, of layers, training and TOSA graphs: errors that name them."""

from __future__ import annotations

import functools
import inspect
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hifi.recurrent import EACH, GRU, LSTM

from tosajax import DType
from tosajax.builder import Builder
from tosajax.hifi import kernels, layers, to_tosa, training
from tosajax.hifi.kernels import Quant
from tosajax.report import UnsupportedError

SIZE = {"in_feats": 4, "out_feats": 8}
IMAGE = {"input_size": (4, 4, 4), "output_channels": 4}
TWO = {**IMAGE, "kernel_size": (2, 2), "output_size": (3, 3), "strides": (1, 1), "padding": (0, 0)}
CNN = layers.conv2d_std_config(**TWO, precision=layers.Precision.P8bx8b)
KERNELS = layers.CNNWeights(np.zeros((4, 2, 2, 4), np.int8), np.zeros(4, np.int8))


def recurrent(layer, dtype):
    """A configuration, weights and a state of a layer, in integers or in floats."""
    config = layer.config(**SIZE)
    weights = {name: np.zeros(x, dtype) for name, x in layer.shapes(*SIZE.values()).items()}
    state = jax.tree.map(np.array, layer.init(config))
    if dtype is np.float32:
        state = layer.state(*(x.astype(dtype) for x in state))
    return config, layer.weights(**weights), state


def calls():
    """Functions with legal arguments."""
    found: list[tuple[Any, dict[str, Any]]] = []
    for layer in (GRU, LSTM):
        x, xs = np.zeros(4, np.float32), np.zeros((3, 4), np.float32)
        config, weights, state = recurrent(layer, np.float32)
        real = {"weights": weights, "state": state}
        found.append((layer.step_float, {**real, "x": x}))
        found.append((layer.scan_float, {**real, "xs": xs}))
        found.append((layer.trainable, {"config": config, **real, "xs": xs}))
        config, weights, state = recurrent(layer, np.int16)
        exact = {"config": config, "weights": weights, "state": state}
        found.append((layer.step, {**exact, "x": x.astype(np.int16)}))
        found.append((layer.scan, {**exact, "xs": xs.astype(np.int16)}))
        found.append((layer.init, {"config": config}))
        pointers = getattr(layers, f"{layer.name.lower()}_pointers")
        found += [
            (function, {"config": config, "weights": weights})
            for function in (pointers, training.quantize_weights)
        ]
    image = np.zeros((4, 4, 4), np.int8)
    found.append((layers.cnn_apply, {"config": CNN, "weights": KERNELS, "x": image}))
    found.append((layers.cnn_pointers, {"config": CNN, "weights": KERNELS}))
    found.append((layers.output_shape, {"config": CNN}))
    number, integers = jnp.zeros(3), training.quantize(np.zeros(3, np.float32), 3, np.int8)
    found.append((training.quantize, {"x": number, "fraction": 3, "dtype": np.int8}))
    found.append((training.real, {"x": integers, "fraction": 3}))
    more = {"exact": integers.q, "fraction": 3, "value": number}
    found.append((training.with_gradient_of, more))
    return found


@pytest.mark.parametrize(("function", "legal"), calls(), ids=lambda x: getattr(x, "__name__", ""))
def test_arguments_of_other_types(function, legal):
    for argument, value in legal.items():
        wrong = [None, "text", object(), 1.5 if not hasattr(value, "ndim") else {}]
        if argument not in ("exact", "value") and function is not training.quantize:
            wrong += [[1, 2]]
        for given in wrong:
            with pytest.raises((TypeError, ValueError), match=rf"\b{argument} is .*, expected "):
                function(**{**legal, argument: given})


@EACH
@pytest.mark.parametrize("dtype", [np.int16, np.float32])
def test_arrays_within_weights_and_states(layer, dtype):
    config, weights, state = recurrent(layer, dtype)
    is_float = dtype is np.float32
    step = layer.step_float if is_float else functools.partial(layer.step, config)
    x = np.zeros(4, dtype)
    for bundle, position in ((weights, 0), (state, 1)):
        for field in bundle._fields:
            for wrong in (None, [1, 2], "text"):
                operands = [weights, state]
                operands[position] = bundle._replace(**{field: wrong})
                with pytest.raises((TypeError, ValueError), match=rf"\b{field} is .*, expected "):
                    step(*operands, x)


CONFIGS = [
    (layers.GRUConfig, SIZE),
    (layers.LSTMConfig, SIZE),
    (layers.CNNConfig, {}),
    (layers.conv1d_std_config, {**IMAGE, "kernel_height": 2, "output_height": 3}),
    (layers.conv2d_std_config, TWO),
    (layers.conv2d_ds_config, TWO),
    (layers.vector, {"length": 3}),
    (layers.matrix, {"rows": 3, "cols": 4}),
    (layers.cube_dwh, {"height": 3, "width": 4, "depth": 4}),
    (layers.cube_whd, {"height": 3, "width": 4, "depth": 4}),
]
# As the fields of CNNConfig are named.
FIELDS = {"stride": "y_stride", "padding": "y_padding"}


@pytest.mark.parametrize(("function", "legal"), CONFIGS, ids=lambda x: getattr(x, "__name__", ""))
def test_fields_are_integers(function, legal):
    for argument in inspect.signature(function).parameters:
        offset = argument.endswith("_offset")
        for wrong in (12.5, "text", True, np.float32(3), *([] if offset else [None])):
            named = rf"\b({argument}|{FIELDS.get(argument, argument)}|\w+_offset) is .*, expected "
            with pytest.raises(TypeError, match=named):
                function(**{**legal, argument: wrong})


def test_integers_of_numpy_are_kept_as_integers_of_python():
    config = layers.GRUConfig(in_feats=np.int64(12), io_Qformat=np.uint8(9))  # pyright: ignore
    assert config == layers.GRUConfig(in_feats=12, io_Qformat=9)
    assert (type(config.in_feats), type(config.io_Qformat)) == (int, int)
    assert config.precision is layers.Precision.P16bx16b
    shape = layers.vector(np.int32(3))  # pyright: ignore
    assert shape == layers.vector(3)
    assert type(shape.dim.length) is int
    with pytest.raises(TypeError, match=r"^GRUConfig: io_Qformat is 12\.5, expected an integer$"):
        layers.GRUConfig(io_Qformat=12.5)  # pyright: ignore


# The functions of C.


@pytest.mark.parametrize("name", ["gru", "lstm", "cnn"])
def test_functions_of_c(name):
    def function(kind):
        return getattr(layers, f"xa_nnlib_{name}_{kind}")

    config = CNN if name == "cnn" else getattr(layers, f"{name.upper()}Config")(**SIZE)
    # Aligned to 8 bytes, as NumPy's memory is.
    memory = np.zeros(4096, np.int64).view(np.uint8)
    handle = layers.Handle(memory)
    assert function("init")(handle, config) == 0
    for wrong in ([], "text", 1.5):
        for kind in ("get_persistent_fast", "get_scratch_fast"):
            with pytest.raises(TypeError, match=r"config is .*, expected "):
                function(kind)(wrong)
        with pytest.raises(TypeError, match=r"handle is .*, expected Handle"):
            function("init")(wrong, config)
        with pytest.raises(TypeError, match=r"config is .*, expected "):
            function("init")(handle, wrong)
        with pytest.raises(TypeError, match=r"memory is .*, expected a NumPy array"):
            layers.Handle(wrong)  # pyright: ignore
        for kind in ("set_config", "get_config"):
            with pytest.raises(TypeError, match=r"handle is .*, expected Handle"):
                function(kind)(wrong, 1, memory)
            with pytest.raises(TypeError, match=r"param_id is .*, expected an integer"):
                function(kind)(handle, wrong, memory)
            with pytest.raises(TypeError, match=r"params is .*, expected "):
                function(kind)(handle, 2, wrong)
        shape = layers.Pointer(layers.vector(8))
        operands = [handle, memory, memory, memory, shape, shape]
        for at, argument in ((0, "handle"), (1, "scratch"), (4, "p_in_shape"), (5, "p_out_shape")):
            given = [*operands[:at], wrong, *operands[at + 1 :]]
            if name == "cnn" and argument == "p_in_shape":
                # Kernels come first.
                function("set_config")(handle, layers.CNNParam.KERNEL, (memory,))
                function("set_config")(handle, layers.CNNParam.BIAS, (memory,))
            with pytest.raises(TypeError, match=rf"{argument} is .*, expected "):
                function("process")(*given)


# TOSA graphs.

QUANT = Quant(0, 0, 2**30, 0, 0)
SCALES = {f"{of}_{n}": 0 for of in ("out", "inp1", "inp2") for n in ("zero_bias", "shift")}
SCALES |= {f"{of}_multiplier": 2**30 for of in ("out", "inp1", "inp2")}
LIMITS = {"out_activation_min": -9, "out_activation_max": 9}


def tosa_calls():
    """Functions with the types and shapes of Tensors, and all else that they take."""
    matrix, kernel = np.zeros((2, 4), np.int8), np.zeros((2, 1, 1, 4), np.int8)
    bias, four = np.zeros(2, np.int32), np.zeros(4, np.int32)
    vector, image, window = {"inp": (4,)}, {"inp": (2, 2, 4)}, {"out_size": (2, 2)}
    quantize = {name: SCALES[name] for name in ("out_zero_bias", "out_shift", "out_multiplier")}
    pair = {"inp1": (4,), "inp2": (4,)}
    mul = {k: v for k, v in SCALES.items() if k.startswith("out") or k.endswith("zero_bias")}
    return {
        "relu": ({"x": (4,)}, {"threshold": 3, "precision": "8_8"}),
        "activation_min_max": (
            {"x": (4,)},
            {"activation_min": 1, "activation_max": 3, "precision": "8_8"},
        ),
        "interpolation_q15": ({"ifact": (4,), "inp1": (4,), "inp2": (4,)}, {}),
        "elm_quantize": (vector, {"inp_zero_bias": 0, **quantize}),
        "elm_add": (pair, {**SCALES, **LIMITS, "left_shift": 20}),
        "elm_mul": (pair, {**mul, **LIMITS}),
        "fully_connected": (vector, {"weight": matrix, "bias": bias, "quant": QUANT}),
        "matmul": ({"mat2": (4, 3)}, {"mat1": matrix, "bias": bias, "quant": QUANT}),
        "conv2d_std": (image, {"ker": kernel, "bias": bias, "quant": QUANT, **window}),
        "conv2d_depthwise": (
            image,
            {"ker": np.zeros((1, 1, 4), np.int8), "bias": four, "quant": QUANT, **window},
        ),
        "conv2d_pointwise": (image, {"ker": matrix, "bias": bias, "quant": QUANT}),
        "maxpool": (image, {"kernel": (1, 1), **window}),
    }


def legal_call(name):
    """A Builder and the legal arguments of a function."""
    b = Builder()
    tensors, more = tosa_calls()[name]
    dtype = DType.INT16 if name in ("interpolation_q15", "elm_quantize") else DType.INT8
    return b, {key: b.input(key, dtype, shape) for key, shape in tensors.items()} | more


def test_all_functions_have_a_case():
    assert {*tosa_calls(), "graph_of", "to_graph"} == set(to_tosa.__all__)


@pytest.mark.parametrize("name", tosa_calls())
def test_graphs_have_the_parameters_of_kernels(name):
    """As the package says: all but the shifts, which are of other precisions."""
    own = list(inspect.signature(getattr(to_tosa, name)).parameters)
    of_kernel = list(inspect.signature(getattr(kernels, name)).parameters)
    assert own[0] == "b"
    assert own[1:] == [p for p in of_kernel if p not in ("acc_shift", "bias_shift")]
    b, legal = legal_call(name)
    if "precision" in own:
        with pytest.raises(UnsupportedError, match=rf"{name}.*precision is 'f32', expected one of"):
            getattr(to_tosa, name)(b, **{**legal, "precision": "f32"})


@pytest.mark.parametrize("name", tosa_calls())
def test_arguments_of_graphs_of_other_types(name):
    function = getattr(to_tosa, name)
    b, legal = legal_call(name)
    assert function(b, **legal).shape is not None
    for argument, value in {"b": b, **legal}.items():
        wrong: list[Any] = [[1.5], "text", 1.5]
        if argument not in ("bias", "threshold"):
            wrong.append(None)
        if argument in tosa_calls()[name][0]:
            wrong.append(np.zeros(value.shape, np.int8))
        for given in wrong:
            with pytest.raises((TypeError, ValueError, UnsupportedError)) as error:
                function(**{"b": b, **legal, argument: given})
            assert f"{argument} is " in str(error.value)
            assert "expected" in str(error.value)
