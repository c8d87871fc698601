"""The C functions of the LSTM layer (guide 4.2.3), xa_nnlib_lstm_*, which return codes."""

from __future__ import annotations

import enum
from typing import NamedTuple

from tosajax.hifi.capi.layers._recurrent import NULL, Coefficients, Recurrent
from tosajax.hifi.layers import lstm
from tosajax.hifi.layers.lstm import LSTMConfig, LSTMWeights


class LSTMParam(enum.IntEnum):
    """The parameters of set_config and get_config; the shapes can only be read.

    RESTORE_CONTEXT_OUTPUT and RESTORE_CONTEXT_CELL are memory of out_feats elements, int16 and
    int32, which is copied; WEIGHT and BIAS are LSTMMatrixPointers and LSTMBiasPointers; get_config
    returns these without shapes. Version 1.3 does not support CELL_SHAPE.
    """

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


LSTM = Recurrent(
    name="LSTM",
    config=LSTMConfig,
    weights=LSTMWeights,
    gates=lstm.GATES,
    init=lstm.lstm_init,
    step=lstm.lstm_step,
    contexts={
        LSTMParam.RESTORE_CONTEXT_OUTPUT: "prev_h",
        LSTMParam.RESTORE_CONTEXT_CELL: "prev_c",
    },
    structures={LSTMParam.WEIGHT: LSTMMatrixPointers, LSTMParam.BIAS: LSTMBiasPointers},
    lengths={LSTMParam.INPUT_SHAPE: "in_feats", LSTMParam.OUTPUT_SHAPE: "out_feats"},
    persistent=528,
)
(
    xa_nnlib_lstm_get_persistent_fast,
    xa_nnlib_lstm_get_scratch_fast,
    xa_nnlib_lstm_init,
    xa_nnlib_lstm_set_config,
    xa_nnlib_lstm_get_config,
    xa_nnlib_lstm_process,
) = LSTM.functions()


def lstm_pointers(
    config: LSTMConfig, weights: LSTMWeights
) -> tuple[LSTMMatrixPointers, LSTMBiasPointers]:
    """Makes the parameters WEIGHT and BIAS from weights, with the memory layout of `config`."""
    matrices, biases = LSTM.pointers(config, weights)
    return matrices, biases
