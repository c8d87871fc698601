"""Error codes: their bits, and that every one is returned."""

from __future__ import annotations

import numpy as np
import pytest
from hifi.c_layers import (
    CNN,
    GRU,
    LSTM,
    OK,
    RECURRENT,
    SIZE,
    drawn,
    handle_of,
    process_faults,
    set_weights,
    too_tall,
    wrong_configs,
)
from hifi.memory import at

from tosajax.hifi import errors, layers
from tosajax.hifi.errors import ErrorCode
from tosajax.hifi.layers import (
    Pointer,
    vector,
)


@pytest.fixture
def rng():
    return np.random.default_rng(53)


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


def test_bits_of_codes():
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
    # The same bits without a sign, and without the bit of fatal codes.
    assert errors.component(HEX[code.name]) == errors.Component[component]
    assert errors.is_fatal(HEX[code.name]) == (code != OK)
    assert not errors.is_fatal(HEX[code.name] & 0x7FFFFFFF)
    assert errors.error_class(HEX[code.name] & 0x7FFFFFFF) == errors.error_class(code)


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
        x = at(np.zeros(12, np.int16))
        for changed, _ in process_faults(layer):
            if "handle" not in changed:
                given = {"scratch": x, "input": x, "output": x}
                given |= {"p_in_shape": Pointer(vector(12)), "p_out_shape": Pointer(vector(8))}
                found.add(layer.call("process", handle, *(given | changed).values()))
        found.add(layer.call("get_config", handle, layer.param.INPUT_SHAPE, Pointer()))
    assert found == set(ErrorCode)
    assert all(type(code) is ErrorCode for code in found)


def test_names_and_versions_of_the_library():
    assert layers.xa_nnlib_get_lib_name_string() == "HiFi 5 Neural Network Library"
    assert layers.xa_nnlib_get_lib_version_string() == "1.3.0"
    assert layers.xa_nnlib_get_lib_api_version_string() == "1.0"
