"""The C functions of the layers: sizes, init, parameters, process, and every code they return."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracle import hifi_recurrent as oracle
from oracle.hifi_oracle import draw

from tosajax.hifi import errors, layers
from tosajax.hifi.errors import ErrorCode
from tosajax.hifi.kernels import conv2d_depthwise_getsize
from tosajax.hifi.kernels._precision import PRECISIONS as KERNELS
from tosajax.hifi.kernels.activations import FIXED
from tosajax.hifi.layers import (
    CNNConfig,
    CNNParam,
    CNNWeights,
    Coefficients,
    GRUConfig,
    GRUParam,
    GRUWeights,
    Handle,
    LSTMConfig,
    LSTMParam,
    LSTMWeights,
    Pointer,
    Precision,
    Shape,
    cnn_apply,
    cnn_pointers,
    conv1d_std_config,
    conv2d_ds_config,
    conv2d_std_config,
    cube_dwh,
    gru_pointers,
    lstm_pointers,
    matrix,
    output_shape,
    vector,
)

OK, ALLOC = ErrorCode.NO_ERROR, ErrorCode.FATAL_MEM_ALLOC
ALIGN, SHAPE = ErrorCode.FATAL_MEM_ALIGN, ErrorCode.FATAL_INVALID_SHAPE


class Layer(NamedTuple):
    """What the tests of all layers need of one, its functions aside."""

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
RECURRENT = {"GRU": GRU, "LSTM": LSTM}
SIZE = {"in_feats": 12, "out_feats": 8}


@pytest.fixture
def rng():
    return np.random.default_rng(53)


def memory(x, offset=0):
    """A copy of an array, `offset` bytes behind an address that is a multiple of 64."""
    x = np.ascontiguousarray(x)
    room = np.zeros(x.nbytes + 64 + offset, np.uint8)
    start = -room.ctypes.data % 64 + offset
    copy = room[start : start + x.nbytes].view(x.dtype).reshape(x.shape)
    copy[...] = x
    return copy


def handle_of(layer, config, **options):
    """A layer that is set up, without its weights."""
    size = layer.call("get_persistent_fast", config)
    handle = Handle(memory(np.zeros(size, np.uint8)), **options)
    assert layer.call("init", handle, config) == OK
    return handle


def set_weights(layer, handle, config, weights):
    matrices, biases = layer.pointers(config, layer.weights(**weights))
    assert layer.call("set_config", handle, layer.param.WEIGHT, matrices) == OK
    assert layer.call("set_config", handle, layer.param.BIAS, Pointer(biases)) == OK
    return matrices, biases


def process(layer, handle, x, out):
    scratch, shapes = memory(np.zeros(16, np.uint8)), (Pointer(vector(x.size)), vector(out.size))
    return layer.call("process", handle, scratch, x, out, shapes[0], Pointer(shapes[1]))


def drawn(rng, layer, dtype=np.int16):
    weights = oracle.draw_weights(rng, layer.oracle, 12, 8, dtype)
    return oracle.scaled(weights, np.iinfo(dtype).bits // 2 - 2)


# Codes.

HEX = {
    "NO_ERROR": 0,
    "FATAL_MEM_ALLOC": 0x80000000,
    "FATAL_MEM_ALIGN": 0x80000001,
    "FATAL_INVALID_SHAPE": 0x80000003,
    "GRU_CONFIG_FATAL_INVALID_IN_FEATS": 0x80001080,
    "GRU_CONFIG_FATAL_INVALID_OUT_FEATS": 0x80001081,
    "GRU_CONFIG_FATAL_INVALID_PRECISION": 0x80001082,
    "GRU_CONFIG_FATAL_INVALID_COEFF_QFORMAT": 0x80001083,
    "GRU_CONFIG_FATAL_INVALID_IO_QFORMAT": 0x80001084,
    "GRU_CONFIG_FATAL_INVALID_PARAM_ID": 0x80001085,
    "GRU_CONFIG_FATAL_INVALID_MEMBANK_PADDING": 0x80001086,
    "GRU_EXECUTE_FATAL_INSUFFICIENT_OUTPUT_BUFFER_SPACE": 0x80002080,
    "GRU_EXECUTE_FATAL_INSUFFICIENT_DATA": 0x80002081,
    "LSTM_CONFIG_FATAL_INVALID_IN_FEATS": 0x80001100,
    "LSTM_CONFIG_FATAL_INVALID_OUT_FEATS": 0x80001101,
    "LSTM_CONFIG_FATAL_INVALID_PRECISION": 0x80001102,
    "LSTM_CONFIG_FATAL_INVALID_COEFF_QFORMAT": 0x80001103,
    "LSTM_CONFIG_FATAL_INVALID_CELL_QFORMAT": 0x80001104,
    "LSTM_CONFIG_FATAL_INVALID_IO_QFORMAT": 0x80001105,
    "LSTM_CONFIG_FATAL_INVALID_PARAM_ID": 0x80001106,
    "LSTM_CONFIG_FATAL_INVALID_MEMBANK_PADDING": 0x80001107,
    "LSTM_EXECUTE_FATAL_INSUFFICIENT_OUTPUT_BUFFER_SPACE": 0x80002100,
    "LSTM_EXECUTE_FATAL_INSUFFICIENT_DATA": 0x80002101,
    "CNN_CONFIG_FATAL_INVALID_ALGO": 0x80001180,
    "CNN_CONFIG_FATAL_INVALID_PRECISION": 0x80001181,
    "CNN_CONFIG_FATAL_INVALID_BIAS_SHIFT": 0x80001182,
    "CNN_CONFIG_FATAL_INVALID_ACC_SHIFT": 0x80001183,
    "CNN_CONFIG_FATAL_INVALID_STRIDE": 0x80001184,
    "CNN_CONFIG_FATAL_INVALID_PADDING": 0x80001185,
    "CNN_CONFIG_FATAL_INVALID_INPUT_SHAPE": 0x80001186,
    "CNN_CONFIG_FATAL_INVALID_OUTPUT_SHAPE": 0x80001187,
    "CNN_CONFIG_FATAL_INVALID_KERNEL_SHAPE": 0x80001188,
    "CNN_CONFIG_FATAL_INVALID_BIAS_SHAPE": 0x80001189,
    "CNN_CONFIG_FATAL_INVALID_PARAM_ID": 0x8000118A,
    "CNN_CONFIG_FATAL_INVALID_PARAM_COMBINATION": 0x8000118B,
}


def test_codes_have_the_library_s_bits():
    assert {code.name: code & 0xFFFFFFFF for code in ErrorCode} == HEX
    assert all(-(2**31) <= code <= 0 for code in ErrorCode)


@pytest.mark.parametrize("code", ErrorCode, ids=lambda code: code.name)
def test_codes_are_read(code):
    name = code.name.split("_")
    generic = name[0] in ("NO", "FATAL")
    component, error_class = ("GENERIC", "NNLIB") if generic else name[:2]
    assert errors.component(code) == errors.Component[component]
    assert errors.error_class(code) == errors.ErrorClass[error_class]
    assert errors.subcode(code) == HEX[code.name] & 0x3F
    assert errors.is_fatal(code) == (code != OK)
    # The same bits without a sign, and the code that would not be fatal.
    assert errors.component(HEX[code.name]) == errors.Component[component]
    assert errors.is_fatal(HEX[code.name]) == (code != OK)
    assert not errors.is_fatal(HEX[code.name] & 0x7FFFFFFF)
    assert errors.error_class(HEX[code.name] & 0x7FFFFFFF) == errors.error_class(code)


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


@pytest.mark.parametrize("layer", [GRU, LSTM, CNN], ids=lambda layer: layer.name)
@pytest.mark.filterwarnings("ignore:cell_Qformat")
def test_queries_and_init_check_configurations(layer):
    handle = Handle(memory(np.zeros(4096, np.uint8)))
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


@pytest.mark.parametrize("layer", [GRU, LSTM, CNN], ids=lambda layer: layer.name)
def test_init_checks_pointers_first(layer):
    wrong, code = next(wrong_configs(layer.name))
    room = np.zeros(4096, np.uint8)
    good, shifted = Handle(memory(room)), Handle(memory(room, offset=4))
    assert layer.call("init", None, wrong) == ALLOC
    assert layer.call("init", Handle(None), wrong) == ALLOC  # pyright: ignore
    assert layer.call("init", shifted, None) == ALLOC
    assert layer.call("init", shifted, wrong) == ALIGN
    assert layer.call("init", good, Pointer(wrong, address=18)) == ALIGN
    assert layer.call("init", good, Pointer(wrong, address=20)) == code
    assert layer.call("init", Handle(memory(room, offset=8)), wrong) == code


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
            # The columns under a kernel, and what lies between two convolutions.
            assert CNN.call("get_scratch_fast", config) >= 6 * 2 * 4 * size
        # Of the last one, which is both.
        image, kernel, bits = (6, 5, 4), (3, 2), -1 if precision == Precision.F32xF32 else 8 * size
        depthwise = conv2d_depthwise_getsize(*image, *kernel, 1, 1, 1, 0, 0, 4, 4, bits, 1)
        assert CNN.call("get_scratch_fast", config) == 4 * 4 * 4 * size + depthwise


@pytest.mark.parametrize("layer", [GRU, LSTM, CNN], ids=lambda layer: layer.name)
def test_memory_has_to_have_its_size(layer):
    config = layer.config()
    size = layer.call("get_persistent_fast", config)
    with pytest.raises(ValueError, match=f"the memory has {size - 1} bytes, expected {size}"):
        layer.call("init", Handle(memory(np.zeros(size - 1, np.uint8))), config)


# Recurrent layers: parameters.


def contexts(layer):
    """The parameters that hold a state, with the types of their elements."""
    if layer is GRU:
        return {GRUParam.RESTORE_CONTEXT: np.int16}
    return {
        LSTMParam.RESTORE_CONTEXT_OUTPUT: np.int16,
        LSTMParam.RESTORE_CONTEXT_CELL: np.int32,
    }


@pytest.mark.parametrize("layer", RECURRENT.values(), ids=RECURRENT)
def test_parameters(layer, rng):
    config = layer.config(**SIZE)
    handle = handle_of(layer, config)
    get, put = (functools.partial(layer.call, f"{verb}_config", handle) for verb in ("get", "set"))
    for param, dtype in contexts(layer).items():
        read = memory(np.ones(8, dtype))
        assert get(param, read) == OK
        np.testing.assert_array_equal(read, np.zeros(8))
        given = memory(draw(rng, dtype, (10,)), offset=4)
        assert put(param, given) == OK
        wanted = given[:8].copy()
        given[:] = 0
        assert get(param, read) == OK
        np.testing.assert_array_equal(read, wanted)
    found = Pointer()
    assert get(layer.param.WEIGHT, found) == OK
    assert set(found.target) == {Coefficients()}
    matrices, biases = set_weights(layer, handle, config, drawn(rng, layer))
    for param, given in ((layer.param.WEIGHT, matrices), (layer.param.BIAS, biases)):
        assert get(param, found) == OK
        assert type(found.target) is type(given)
        for read, set_to in zip(found.target, given, strict=True):
            # The library keeps pointers, and no shapes.
            assert read.data is set_to.data
            assert read.shape == Shape()
    assert get(layer.param.INPUT_SHAPE, found) == OK
    assert found.target == vector(12)
    assert get(layer.param.OUTPUT_SHAPE, found) == OK
    assert found.target == vector(8)
    # Setting up again clears the state and the pointers.
    assert layer.call("init", handle, config) == OK
    for param, dtype in contexts(layer).items():
        read = memory(np.ones(8, dtype))
        assert get(param, read) == OK
        assert not read.any()
    assert get(layer.param.BIAS, found) == OK
    assert set(found.target) == {Coefficients()}


def test_numbers_of_parameters():
    assert [(p.name, p.value) for p in GRUParam] == [
        ("RESTORE_CONTEXT", 0),
        ("WEIGHT", 1),
        ("BIAS", 2),
        ("INPUT_SHAPE", 3),
        ("OUTPUT_SHAPE", 4),
    ]
    assert [(p.name, p.value) for p in LSTMParam] == [
        ("RESTORE_CONTEXT_OUTPUT", 0),
        ("RESTORE_CONTEXT_CELL", 1),
        ("WEIGHT", 2),
        ("BIAS", 3),
        ("INPUT_SHAPE", 4),
        ("OUTPUT_SHAPE", 5),
        ("CELL_SHAPE", 6),
    ]
    assert [(p.name, p.value) for p in CNNParam] == [
        ("KERNEL", 1),
        ("BIAS", 2),
        ("INPUT_SHAPE", 3),
        ("OUTPUT_SHAPE", 4),
    ]


def unknown_params(layer):
    """Identifiers that there are not, to get and to set."""
    read_only = [layer.param.INPUT_SHAPE, layer.param.OUTPUT_SHAPE]
    unknown = [-1, 99, *([LSTMParam.CELL_SHAPE] if layer is LSTM else [])]
    unknown += [0] if layer is CNN else []
    return unknown, unknown + read_only


@pytest.mark.parametrize("layer", [GRU, LSTM, CNN], ids=lambda layer: layer.name)
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
        handle.memory, kept = memory(handle.memory, offset=4), handle.memory
        assert layer.call(function, handle, 99, Pointer()) == ALIGN
        assert layer.call(function, handle, 99, None) == ALLOC
        handle.memory = kept


@pytest.mark.parametrize("layer", RECURRENT.values(), ids=RECURRENT)
def test_contexts_are_aligned_to_4_bytes(layer):
    handle = handle_of(layer, layer.config(**SIZE))
    for function in ("get_config", "set_config"):
        context = memory(np.zeros(8, np.int16), offset=2)
        assert layer.call(function, handle, 0, context) == ALIGN
        assert layer.call(function, handle, 0, memory(context, offset=4)) == OK


@pytest.mark.parametrize("layer", RECURRENT.values(), ids=RECURRENT)
@pytest.mark.parametrize("param", ["WEIGHT", "BIAS"])
def test_weights_are_checked(layer, param, rng):
    """NULL before alignment before shapes, whichever of the pointers it is."""
    config = layer.config(**SIZE)
    handle = handle_of(layer, config)
    number = layer.param[param]
    valid = layer.pointers(config, layer.weights(**drawn(rng, layer)))[param == "BIAS"]
    shape = (lambda length: vector(length)) if param == "BIAS" else (lambda rows: matrix(rows, 12))
    put = functools.partial(layer.call, "set_config", handle, number)
    assert put(valid) == OK

    def changed(name, **what):
        return {name: getattr(valid, name)._replace(**what)}

    first, last = valid._fields[0], valid._fields[-1]
    for name in valid._fields:
        null, wrong = changed(name, data=None), changed(name, shape=shape(12))
        other = last if name == first else first
        shifted = memory(getattr(valid, name).data, offset=4)
        assert put(valid._replace(**null)) == ALLOC
        assert put(valid._replace(**changed(name, data=shifted))) == ALIGN
        assert put(valid._replace(**wrong)) == SHAPE
        assert put(valid._replace(**changed(name, shape=Shape()))) == SHAPE
        misaligned = changed(other, data=memory(getattr(valid, other).data, offset=4))
        assert put(valid._replace(**null, **misaligned)) == ALLOC
        assert put(valid._replace(**wrong, **misaligned)) == ALIGN
        assert put(valid._replace(**null, **changed(other, shape=Shape()))) == ALLOC
    if param == "WEIGHT":
        of_x, of_h = layer.oracle[0][0], layer.oracle[1][0]
        for name, wanted in ((of_x, matrix(8, 12)), (of_h, matrix(8, 8))):
            row_offset = wanted.dim._replace(row_offset=wanted.dim.cols + 16)
            padded = dataclasses.replace(wanted, dim=row_offset)
            assert put(valid._replace(**changed(name, shape=padded))) == SHAPE
            many = dataclasses.replace(wanted, n_shapes=2)
            assert put(valid._replace(**changed(name, shape=many))) == SHAPE
            wide = matrix(8, wanted.dim.cols + 4)
            assert put(valid._replace(**changed(name, shape=wide))) == SHAPE
    # Nothing of this has taken effect.
    found = Pointer()
    assert layer.call("get_config", handle, number, found) == OK
    assert [c.data for c in found.target] == [c.data for c in valid]
    with pytest.raises(TypeError, match=f"params is NoneType, expected {type(valid).__name__}"):
        put(Pointer())
    with pytest.raises(TypeError, match=f"params is list, expected {type(valid).__name__}"):
        put([c.data for c in valid])


# Recurrent layers: processing.


def expected_of(layer, weights, xs, coeff, states):
    if layer is GRU:
        return oracle.gru_scan(weights, states[0], xs, coeff, 12)
    h, c = states
    return oracle.lstm_scan(weights, h, c, xs, coeff, 12)[0]


@pytest.mark.parametrize("layer", RECURRENT.values(), ids=RECURRENT)
@pytest.mark.parametrize(("dtype", "pad"), [(np.int16, 1), (np.int8, 0), (np.int8, 1)])
def test_process(layer, dtype, pad, rng):
    coeff = np.iinfo(dtype).bits - 1
    precision = Precision.P16bx16b if dtype is np.int16 else Precision.P8bx16b
    config = layer.config(**SIZE, pad=pad, precision=precision, coeff_Qformat=coeff)
    handle = handle_of(layer, config, activation="ideal")
    weights, xs = drawn(rng, layer, dtype), draw(rng, np.int16, (4, 12))
    matrices, biases = set_weights(layer, handle, config, weights)
    for name, (data, shape) in {**matrices._asdict(), **biases._asdict()}.items():
        np.testing.assert_array_equal(data[..., : weights[name].shape[-1]], weights[name])
        if data.ndim == 2:
            assert data.shape[1] == shape.dim.cols + 16 * pad
            # What is between the rows is not read.
            data[:, shape.dim.cols :] = -1
    zeros = np.zeros(8, np.int16), np.zeros(8, np.int32)
    out, scratch = memory(np.ones(12, np.int16)), memory(np.ones(4, np.uint8))
    for x, wanted in zip(xs, expected_of(layer, weights, xs, coeff, zeros), strict=True):
        shapes = Pointer(vector(100)), Pointer(vector(9))
        given = memory(np.append(x, [1, 2]).astype(np.int16))
        assert layer.call("process", handle, scratch, given, out, *shapes) == OK
        np.testing.assert_array_equal(out, [*wanted, 1, 1, 1, 1])
        np.testing.assert_array_equal(given[:12], x)
        assert [p.target for p in shapes] == [vector(12), vector(8)]
    read = memory(np.ones(8, np.int16))
    assert layer.call("get_config", handle, 0, read) == OK
    np.testing.assert_array_equal(read, out[:8])
    # A state of one's own, and setting up again.
    states = [memory(draw(rng, dtype, (8,))) for dtype in contexts(layer).values()]
    for param, state in zip(contexts(layer), states, strict=True):
        assert layer.call("set_config", handle, param, state) == OK
    assert process(layer, handle, memory(xs[0]), out[:8]) == OK
    np.testing.assert_array_equal(out[:8], expected_of(layer, weights, xs[:1], coeff, states)[0])
    assert layer.call("init", handle, config) == OK
    set_weights(layer, handle, config, weights)
    assert process(layer, handle, memory(xs[0]), out[:8]) == OK
    np.testing.assert_array_equal(out[:8], expected_of(layer, weights, xs[:1], coeff, zeros)[0])


@pytest.mark.parametrize("layer", RECURRENT.values(), ids=RECURRENT)
def test_process_equals_step(layer, rng):
    """By default with integer activations; with coefficients, which may be arrays."""
    config, weights = layer.config(**SIZE), drawn(rng, layer)
    xs, state = draw(rng, np.int16, (2, 12)), getattr(layers, f"{layer.name.lower()}_init")(config)
    step = getattr(layers, f"{layer.name.lower()}_step")
    arrays = jax.tree.map(lambda x: jnp.asarray(x, jnp.int32), FIXED)
    coarse = FIXED._replace(tanh_scale=FIXED.tanh_scale // 2)
    assert handle_of(layer, config).activation == "fixed"
    results = []
    for expected, handles in (
        ("fixed", [handle_of(layer, config), handle_of(layer, config, activation=arrays)]),
        (coarse, [handle_of(layer, config, activation=coarse)]),
    ):
        run, now = jax.jit(functools.partial(step, config, activation=expected)), state
        for handle in handles:
            set_weights(layer, handle, config, weights)
        for x in xs:
            now, y = run(layer.weights(**weights), now, x)
            for handle in handles:
                out = memory(np.zeros(8, np.int16))
                assert process(layer, handle, memory(x), out) == OK
                np.testing.assert_array_equal(out, y)
            results.append(np.asarray(y))
    assert (results[1] != results[-1]).any()


@pytest.mark.parametrize("layer", RECURRENT.values(), ids=RECURRENT)
def test_input_and_output_may_be_the_same_memory(layer, rng):
    config = layer.config(in_feats=8, out_feats=8)
    handle = handle_of(layer, config, activation="ideal")
    weights = oracle.scaled(oracle.draw_weights(rng, layer.oracle, 8, 8, np.int16), 6)
    set_weights(layer, handle, config, weights)
    both = memory(draw(rng, np.int16, (8,)))
    zeros = np.zeros(8, np.int16), np.zeros(8, np.int32)
    wanted = expected_of(layer, weights, [both.copy()], 15, zeros)[0]
    assert process(layer, handle, both, both) == OK
    np.testing.assert_array_equal(both, wanted)


def process_faults(layer):
    """Arguments of process that the library rejects, in its order, each with its code."""
    spoiled = memory(np.zeros(64, np.uint8), offset=4).view(np.int16)
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


@pytest.mark.parametrize("layer", RECURRENT.values(), ids=RECURRENT)
def test_order_of_checks(layer, rng):
    """Of two faults the first in the library's order is returned, and nothing has changed."""
    config = layer.config(**SIZE)
    good, shifted = handle_of(layer, config), handle_of(layer, config)
    for handle in (good, shifted):
        set_weights(layer, handle, config, drawn(rng, layer))
    shifted.memory = memory(shifted.memory, offset=4)
    faults = process_faults(layer)
    for (first, code), (second, _) in itertools.combinations(faults, 2):
        if first.keys() == second.keys():
            continue
        given = {
            "handle": good,
            "scratch": memory(np.zeros(8, np.uint8)),
            "input": memory(np.zeros(12, np.int16)),
            "output": memory(np.ones(8, np.int16)),
            "p_in_shape": Pointer(vector(20)),
            "p_out_shape": Pointer(vector(20)),
        }
        output, shapes = given["output"], [given["p_in_shape"], given["p_out_shape"]]
        given |= first | second
        given["handle"] = shifted if given["handle"] == "shifted" else given["handle"]
        assert layer.call("process", *given.values()) == code, (first, second)
        assert (output == 1).all()
        assert [p.target for p in shapes] == [vector(20), vector(20)]


def test_alone_faults_of_process_have_their_codes(rng):
    for layer in RECURRENT.values():
        config = layer.config(**SIZE)
        handle = handle_of(layer, config)
        set_weights(layer, handle, config, drawn(rng, layer))
        for changed, code in process_faults(layer)[-4:]:
            given = {
                "handle": handle,
                "scratch": memory(np.zeros(8, np.uint8)),
                "input": memory(np.zeros(12, np.int16)),
                "output": memory(np.ones(8, np.int16)),
                "p_in_shape": Pointer(vector(12)),
                "p_out_shape": Pointer(vector(8)),
            }
            assert layer.call("process", *(given | changed).values()) == code


@pytest.mark.parametrize("layer", RECURRENT.values(), ids=RECURRENT)
def test_misuse(layer, rng):
    config, other = layer.config(**SIZE), LSTM if layer is GRU else GRU
    x, out = memory(np.zeros(12, np.int16)), memory(np.zeros(8, np.int16))
    handle = handle_of(layer, config)
    # Weights that are not set, all of them or biases only.
    assert process(layer, handle, x, out) == ALLOC
    matrices, _ = layer.pointers(config, layer.weights(**drawn(rng, layer)))
    assert layer.call("set_config", handle, layer.param.WEIGHT, matrices) == OK
    assert process(layer, handle, x, out) == ALLOC
    set_weights(layer, handle, config, drawn(rng, layer))
    empty = Handle(memory(np.zeros(4096, np.uint8)))
    with pytest.raises(RuntimeError, match=f"holds nothing, expected {layer.name}: call xa_nnlib"):
        process(layer, empty, x, out)
    for function in ("get_config", "set_config"):
        with pytest.raises(RuntimeError, match=f"holds {layer.name}, expected {other.name}: call"):
            other.call(function, handle, 0, x)
    with pytest.raises(RuntimeError, match=f"holds {layer.name}, expected CNN: call xa_nnlib_cnn"):
        CNN.call("get_config", handle, CNNParam.KERNEL, Pointer())
    with pytest.raises(TypeError, match="input is float32, expected a NumPy array of int16"):
        process(layer, handle, x.astype(np.float32), out)
    shapes = Pointer(vector(12)), Pointer(vector(8))
    with pytest.raises(TypeError, match="output is list, expected a NumPy array of int16"):
        layer.call("process", handle, x, x, [0] * 8, *shapes)
    with pytest.raises(ValueError, match=r"input of shape \[4\] does not hold 12 elements"):
        layer.call("process", handle, x, x[:4], out, *shapes)
    with pytest.raises(ValueError, match="without gaps"):
        process(layer, handle, memory(np.zeros(24, np.int16))[::2], out)
    with pytest.raises(TypeError, match="p_out_shape is Shape, expected a Pointer to write"):
        layer.call("process", handle, x, x, out, Pointer(vector(12)), vector(8))
    with pytest.raises(TypeError, match="params is Shape, expected a Pointer to write through"):
        layer.call("get_config", handle, layer.param.INPUT_SHAPE, vector(8))
    with pytest.raises(TypeError, match="params is int8, expected a NumPy array of int16"):
        layer.call("set_config", handle, 0, memory(np.zeros(8, np.int8)))
    with pytest.raises(ValueError, match=r"params of shape \[7\] does not hold 8 elements"):
        layer.call("get_config", handle, 0, memory(np.zeros(7, np.int16)))
    short = matrices._replace(**{layer.oracle[0][0]: Coefficients(x, matrix(8, 12))})
    assert layer.call("set_config", handle, layer.param.WEIGHT, short) == OK
    with pytest.raises(ValueError, match=f"{layer.oracle[0][0]} of shape"):
        process(layer, handle, x, out)


# CNN.


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
    # What is between the rows is not read.
    kernels[0][:, used:] = -1
    assert CNN.call("set_config", handle, CNNParam.KERNEL, kernels) == OK
    assert CNN.call("set_config", handle, CNNParam.BIAS, Pointer(list(biases))) == OK
    wanted = np.asarray(jax.jit(functools.partial(cnn_apply, config))(weights, x))
    out = memory(np.zeros(wanted.size + 1, wanted.dtype))
    out[-1] = 7
    shape = Pointer()
    scratch = memory(np.zeros(8, np.uint8))
    call = functools.partial(CNN.call, "process", handle, scratch, memory(x), out)
    assert call(Pointer(config.input_shape), shape) == OK
    np.testing.assert_array_equal(out[:-1], wanted.reshape(-1))
    assert out[-1] == 7
    assert shape.target == output_shape(config)
    found = Pointer()
    # For biases, too, the library returns the kernels.
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
    """To a multiple of 4 elements, or of 2 for floats, but those of depthwise kernels to 4."""
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
    handle, x = handle_of(CNN, config), memory(x)
    scratch, out = memory(np.zeros(8, np.uint8)), memory(np.zeros(80, np.int16))
    kernels, biases = cnn_pointers(config, weights)
    given = [handle, scratch, x, out, Pointer(config.input_shape), Pointer()]
    process = functools.partial(CNN.call, "process")
    assert process(*given) == ALLOC
    assert CNN.call("set_config", handle, CNNParam.KERNEL, kernels) == OK
    assert process(*given) == ALLOC
    put = functools.partial(CNN.call, "set_config", handle)
    shifted = memory(kernels[0], offset=4)
    assert put(CNNParam.KERNEL, (kernels[0], None)) == ALLOC
    assert put(CNNParam.KERNEL, (shifted, None)) == ALLOC
    assert put(CNNParam.KERNEL, (kernels[0], memory(kernels[1], offset=4))) == ALIGN
    assert put(CNNParam.BIAS, (None, biases[1])) == ALLOC
    assert put(CNNParam.BIAS, (memory(biases[0], offset=2), biases[1])) == ALIGN
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
        moved = memory(given[number], offset=4)
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
        process(*given[:2], memory(x.astype(np.int8)), *given[3:])


def too_tall():
    """What only the kernels of the library reject: kernels that are taller than the image."""
    config = conv2d_std_config(
        input_size=(2, 5, 4), kernel_size=(3, 2), output_size=(1, 4), output_channels=5
    )
    handle = handle_of(CNN, config)
    weights = CNNWeights(np.zeros((5, 3, 2, 4), np.int8), np.zeros(5, np.int16))
    kernels, biases = cnn_pointers(config, weights)
    assert CNN.call("set_config", handle, CNNParam.KERNEL, kernels) == OK
    assert CNN.call("set_config", handle, CNNParam.BIAS, biases) == OK
    room = [memory(np.zeros(40, np.int16)) for _ in range(3)]
    shape = Pointer(output_shape(config))
    code = CNN.call("process", handle, *room, Pointer(config.input_shape), shape)
    return code, shape.target


def test_what_kernels_reject_leaves_an_output_of_no_shape():
    code, shape = too_tall()
    assert code == ErrorCode.CNN_CONFIG_FATAL_INVALID_PARAM_COMBINATION
    assert shape == Shape(n_shapes=0, shape_offset=0)


# All codes.


@pytest.mark.filterwarnings("ignore:cell_Qformat")
def test_every_code_is_returned(rng):
    found = {too_tall()[0]}
    for layer in (GRU, LSTM, CNN):
        found |= {layer.call("get_persistent_fast", c) for c, _ in wrong_configs(layer.name)}
        handle = handle_of(layer, layer.config())
        found.add(layer.call("set_config", handle, 99, Pointer()))
    for layer in RECURRENT.values():
        config = layer.config(**SIZE)
        handle = handle_of(layer, config)
        set_weights(layer, handle, config, drawn(rng, layer))
        x = memory(np.zeros(12, np.int16))
        for changed, _ in process_faults(layer):
            if "handle" not in changed:
                given = {"scratch": x, "input": x, "output": x}
                given |= {"p_in_shape": Pointer(vector(12)), "p_out_shape": Pointer(vector(8))}
                found.add(layer.call("process", handle, *(given | changed).values()))
        found.add(layer.call("get_config", handle, layer.param.INPUT_SHAPE, Pointer()))
    assert found == set(ErrorCode)
    assert all(type(code) is ErrorCode for code in found)


def test_what_the_library_says_of_itself():
    assert layers.xa_nnlib_get_lib_name_string() == "HiFi 5 Neural Network Library"
    assert layers.xa_nnlib_get_lib_version_string() == "1.3.0"
    assert layers.xa_nnlib_get_lib_api_version_string() == "1.0"
