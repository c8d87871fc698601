"""The C functions of the GRU layer (guide 4.1.3), xa_nnlib_gru_*, which return codes."""

from __future__ import annotations

import enum
from typing import NamedTuple

from tosajax.hifi.capi.layers._recurrent import NULL, Coefficients, Recurrent
from tosajax.hifi.layers import gru
from tosajax.hifi.layers.gru import GRUConfig, GRUWeights


class GRUParam(enum.IntEnum):
    """The parameters of set_config and get_config; the shapes can only be read.

    RESTORE_CONTEXT is int16 memory of out_feats elements, which is copied; WEIGHT and BIAS are
    GRUMatrixPointers and GRUBiasPointers; get_config returns these without shapes.
    """

    RESTORE_CONTEXT = 0
    WEIGHT = 1
    BIAS = 2
    INPUT_SHAPE = 3
    OUTPUT_SHAPE = 4


class GRUMatrixPointers(NamedTuple):
    """The pointers and shapes of matrices (xa_nnlib_gru_weights_t), as in GRUWeights."""

    w_z: Coefficients = NULL
    u_z: Coefficients = NULL
    w_r: Coefficients = NULL
    u_r: Coefficients = NULL
    w_h: Coefficients = NULL
    u_h: Coefficients = NULL


class GRUBiasPointers(NamedTuple):
    """The pointers and shapes of biases (xa_nnlib_gru_biases_t), as in GRUWeights."""

    b_z: Coefficients = NULL
    b_r: Coefficients = NULL
    b_h: Coefficients = NULL


GRU = Recurrent(
    name="GRU",
    config=GRUConfig,
    weights=GRUWeights,
    gates=(*gru.ZR, *gru.G),
    init=gru.gru_init,
    step=gru.gru_step,
    contexts={GRUParam.RESTORE_CONTEXT: "prev_h"},
    structures={GRUParam.WEIGHT: GRUMatrixPointers, GRUParam.BIAS: GRUBiasPointers},
    lengths={GRUParam.INPUT_SHAPE: "in_feats", GRUParam.OUTPUT_SHAPE: "out_feats"},
    persistent=400,
)
(
    xa_nnlib_gru_get_persistent_fast,
    xa_nnlib_gru_get_scratch_fast,
    xa_nnlib_gru_init,
    xa_nnlib_gru_set_config,
    xa_nnlib_gru_get_config,
    xa_nnlib_gru_process,
) = GRU.functions()


def gru_pointers(
    config: GRUConfig, weights: GRUWeights
) -> tuple[GRUMatrixPointers, GRUBiasPointers]:
    """Makes the parameters WEIGHT and BIAS from weights, with the memory layout of `config`."""
    matrices, biases = GRU.pointers(config, weights)
    return matrices, biases
