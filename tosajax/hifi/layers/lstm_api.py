"""The C functions of the LSTM layer (guide 4.2.3), which return codes instead of raising.

They stand for xa_nnlib_lstm_*: sizes, init, set_config, get_config, and process for each frame.
Pointers are as in `tosajax.hifi._memory`; arguments have no other meaning than in C.
"""

from __future__ import annotations

import enum
from typing import Any, NamedTuple

import numpy as np

from tosajax.hifi._memory import Pointer
from tosajax.hifi.errors import ErrorCode
from tosajax.hifi.layers import _recurrent_api as api
from tosajax.hifi.layers import lstm
from tosajax.hifi.layers._handle import Handle, align16
from tosajax.hifi.layers._recurrent_api import NULL, Coefficients
from tosajax.hifi.layers.lstm import LSTMConfig, LSTMWeights


class LSTMParam(enum.IntEnum):
    """What set_config and get_config take; the shapes can only be read."""

    RESTORE_CONTEXT_OUTPUT = 0
    RESTORE_CONTEXT_CELL = 1
    WEIGHT = 2
    BIAS = 3
    INPUT_SHAPE = 4
    OUTPUT_SHAPE = 5
    CELL_SHAPE = 6


class LSTMMatrixPointers(NamedTuple):
    """The pointers and shapes of matrices (xa_nnlib_lstm_weights_t), as in LSTMWeights."""

    w_xf: Coefficients = NULL
    w_xi: Coefficients = NULL
    w_xc: Coefficients = NULL
    w_xo: Coefficients = NULL
    w_hf: Coefficients = NULL
    w_hi: Coefficients = NULL
    w_hc: Coefficients = NULL
    w_ho: Coefficients = NULL


class LSTMBiasPointers(NamedTuple):
    """The pointers and shapes of biases (xa_nnlib_lstm_biases_t), as in LSTMWeights."""

    b_f: Coefficients = NULL
    b_i: Coefficients = NULL
    b_c: Coefficients = NULL
    b_o: Coefficients = NULL


def lstm_pointers(
    config: LSTMConfig, weights: LSTMWeights
) -> tuple[LSTMMatrixPointers, LSTMBiasPointers]:
    """What set_config takes for weights, laid out in memory as `config` says."""
    return api.pointers(_KIND, config, weights)


def xa_nnlib_lstm_get_persistent_fast(config: LSTMConfig | Pointer | None) -> int:
    """Bytes of persistent memory, or a code below 0."""
    return api.persistent_size(_KIND, config)


def xa_nnlib_lstm_get_scratch_fast(config: LSTMConfig | Pointer | None) -> int:
    """Bytes of scratch memory, or a code below 0."""
    return api.scratch_size(_KIND, config)


def xa_nnlib_lstm_init(handle: Handle | None, config: LSTMConfig | Pointer | None) -> ErrorCode:
    """Sets a layer up: its state is 0, its weights are to be set.

    Args:
      handle: with the memory that xa_nnlib_lstm_get_persistent_fast asks for.
      config: the configuration, or a Pointer to it.

    Returns:
      A code.

    Raises:
      TypeError: a configuration of another layer.
      ValueError: a handle of too little memory.
    """
    return api.init(_KIND, handle, config)


def xa_nnlib_lstm_set_config(handle: Handle | None, param_id: int, params: Any) -> ErrorCode:
    """Sets a parameter.

    Args:
      handle: of a layer.
      param_id: an `LSTMParam`.
      params: RESTORE_CONTEXT_OUTPUT: int16 memory of out_feats elements, which is copied.
        RESTORE_CONTEXT_CELL: int32, likewise. WEIGHT: LSTMMatrixPointers, or a Pointer to them.
        BIAS: LSTMBiasPointers, or a Pointer to them.

    Returns:
      A code; where it is not 0, nothing has changed.

    Raises:
      RuntimeError: a handle that holds no LSTM.
      TypeError: parameters of another type.
      ValueError: memory of too few elements.
    """
    return api.set_config(_KIND, handle, param_id, params)


def xa_nnlib_lstm_get_config(handle: Handle | None, param_id: int, params: Any) -> ErrorCode:
    """Reads a parameter.

    Args:
      handle: of a layer.
      param_id: an `LSTMParam`.
      params: RESTORE_CONTEXT_OUTPUT: int16 memory for out_feats elements. RESTORE_CONTEXT_CELL:
        int32, likewise. Else a Pointer, to which the result is written; pointers to weights come
        without the shapes that they were set with. CELL_SHAPE is not a parameter of version 1.3.

    Returns:
      A code.

    Raises:
      RuntimeError: a handle that holds no LSTM.
      TypeError: parameters that the result cannot be written to.
      ValueError: memory of too few elements.
    """
    return api.get_config(_KIND, handle, param_id, params)


def xa_nnlib_lstm_process(
    handle: Handle | None,
    scratch: np.ndarray | None,
    input: np.ndarray | None,
    output: np.ndarray | None,
    p_in_shape: Pointer | None,
    p_out_shape: Pointer | None,
) -> ErrorCode:
    """Computes one output and keeps it, with its cell, as the state.

    Args:
      handle: of a layer.
      scratch: memory, which is left as it is.
      input: int16 memory of in_feats elements.
      output: int16 memory for out_feats elements.
      p_in_shape: to a VECTOR of in_feats or more, which becomes in_feats.
      p_out_shape: to a VECTOR of out_feats or more, which becomes out_feats.

    Returns:
      A code. Weights that are not set give FATAL_MEM_ALLOC; the library's output is undefined.

    Raises:
      RuntimeError: a handle that holds no LSTM.
      TypeError: memory of another type.
      ValueError: memory of too few elements.
    """
    return api.process(_KIND, handle, scratch, input, output, p_in_shape, p_out_shape)


def _persistent(config: LSTMConfig) -> int:
    return 528 + align16(2 * config.out_feats) + align16(4 * config.out_feats)


_KIND = api.Kind(
    name="LSTM",
    config=LSTMConfig,
    params=LSTMParam,
    weights=LSTMWeights,
    matrices=LSTMMatrixPointers,
    biases=LSTMBiasPointers,
    inputs=tuple(of_x for of_x, *_ in lstm.GATES),
    contexts={
        LSTMParam.RESTORE_CONTEXT_OUTPUT: "prev_h",
        LSTMParam.RESTORE_CONTEXT_CELL: "prev_c",
    },
    init=lstm.lstm_init,
    step=lstm.lstm_step,
    persistent=_persistent,
)
