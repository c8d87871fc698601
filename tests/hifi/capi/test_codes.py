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
    process_arguments,
    process_faults,
    set_weights,
    too_tall,
    wrong_configs,
)

from tosajax.hifi import errors, layers
from tosajax.hifi.errors import ErrorCode
from tosajax.hifi.layers import (
    Pointer,
)


@pytest.fixture
def rng():
    return np.random.default_rng(53)


# The first code of each group; the others follow in this order.
GROUPS = {
    "FATAL": (0x80000000, "MEM_ALLOC MEM_ALIGN - INVALID_SHAPE"),
    "GRU_CONFIG_FATAL_INVALID": (
        0x80001080,
        "IN_FEATS OUT_FEATS PRECISION COEFF_QFORMAT IO_QFORMAT PARAM_ID MEMBANK_PADDING",
    ),
    "GRU_EXECUTE_FATAL_INSUFFICIENT": (0x80002080, "OUTPUT_BUFFER_SPACE DATA"),
    "LSTM_CONFIG_FATAL_INVALID": (
        0x80001100,
        "IN_FEATS OUT_FEATS PRECISION COEFF_QFORMAT CELL_QFORMAT IO_QFORMAT PARAM_ID "
        "MEMBANK_PADDING",
    ),
    "LSTM_EXECUTE_FATAL_INSUFFICIENT": (0x80002100, "OUTPUT_BUFFER_SPACE DATA"),
    "CNN_CONFIG_FATAL_INVALID": (
        0x80001180,
        "ALGO PRECISION BIAS_SHIFT ACC_SHIFT STRIDE PADDING INPUT_SHAPE OUTPUT_SHAPE KERNEL_SHAPE "
        "BIAS_SHAPE PARAM_ID PARAM_COMBINATION",
    ),
}
HEX = {"NO_ERROR": 0} | {
    f"{group}_{name}": code
    for group, (first, names) in GROUPS.items()
    for code, name in enumerate(names.split(), first)
    if name != "-"
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
        for changed, _ in process_faults(layer):
            if "handle" not in changed:
                given = process_arguments(handle, (12, 8)) | changed
                found.add(layer.call("process", *given.values()))
        found.add(layer.call("get_config", handle, layer.param.INPUT_SHAPE, Pointer()))
    assert found == set(ErrorCode)
    assert all(type(code) is ErrorCode for code in found)


def test_names_and_versions_of_the_library():
    assert layers.xa_nnlib_get_lib_name_string() == "HiFi 5 Neural Network Library"
    assert layers.xa_nnlib_get_lib_version_string() == "1.3.0"
    assert layers.xa_nnlib_get_lib_api_version_string() == "1.0"
