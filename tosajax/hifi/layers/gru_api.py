"""The C functions of the GRU layer (guide 4.1.3), which return codes instead of raising.

They stand for xa_nnlib_gru_*: sizes, init, set_config, get_config, and process for each frame.
Pointers are as in `tosajax.hifi._memory`; arguments have no other meaning than in C.
"""

from __future__ import annotations

import enum
from typing import Any, NamedTuple

import numpy as np

from tosajax.hifi._memory import Pointer
from tosajax.hifi.errors import ErrorCode
from tosajax.hifi.layers import _recurrent_api as api
from tosajax.hifi.layers import gru
from tosajax.hifi.layers._handle import Handle, align16
from tosajax.hifi.layers._recurrent_api import NULL, Coefficients
from tosajax.hifi.layers.gru import GRUConfig, GRUWeights


class GRUParam(enum.IntEnum):
    """What set_config and get_config take; the shapes can only be read."""

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


def gru_pointers(
    config: GRUConfig, weights: GRUWeights
) -> tuple[GRUMatrixPointers, GRUBiasPointers]:
    """What set_config takes for weights, laid out in memory as `config` says."""
    return api.pointers(_KIND, config, weights)


def xa_nnlib_gru_get_persistent_fast(config: GRUConfig | Pointer | None) -> int:
    """Bytes of persistent memory, or a code below 0."""
    return api.persistent_size(_KIND, config)


def xa_nnlib_gru_get_scratch_fast(config: GRUConfig | Pointer | None) -> int:
    """Bytes of scratch memory, or a code below 0."""
    return api.scratch_size(_KIND, config)


def xa_nnlib_gru_init(handle: Handle | None, config: GRUConfig | Pointer | None) -> ErrorCode:
    """Sets a layer up: its state is 0, its weights are to be set.

    Args:
      handle: with the memory that xa_nnlib_gru_get_persistent_fast asks for.
      config: the configuration, or a Pointer to it.

    Returns:
      A code.

    Raises:
      TypeError: a configuration of another layer.
      ValueError: a handle of too little memory.
    """
    return api.init(_KIND, handle, config)


def xa_nnlib_gru_set_config(handle: Handle | None, param_id: int, params: Any) -> ErrorCode:
    """Sets a parameter.

    Args:
      handle: of a layer.
      param_id: a `GRUParam`.
      params: RESTORE_CONTEXT: int16 memory of out_feats elements, which is copied. WEIGHT:
        GRUMatrixPointers, or a Pointer to them. BIAS: GRUBiasPointers, or a Pointer to
        them.

    Returns:
      A code; where it is not 0, nothing has changed.

    Raises:
      RuntimeError: a handle that holds no GRU.
      TypeError: parameters of another type.
      ValueError: memory of too few elements.
    """
    return api.set_config(_KIND, handle, param_id, params)


def xa_nnlib_gru_get_config(handle: Handle | None, param_id: int, params: Any) -> ErrorCode:
    """Reads a parameter.

    Args:
      handle: of a layer.
      param_id: a `GRUParam`.
      params: RESTORE_CONTEXT: int16 memory for out_feats elements. Else a Pointer, to which the
        result is written; pointers to weights come without the shapes that they were set with.

    Returns:
      A code.

    Raises:
      RuntimeError: a handle that holds no GRU.
      TypeError: parameters that the result cannot be written to.
      ValueError: memory of too few elements.
    """
    return api.get_config(_KIND, handle, param_id, params)


def xa_nnlib_gru_process(
    handle: Handle | None,
    scratch: np.ndarray | None,
    input: np.ndarray | None,
    output: np.ndarray | None,
    p_in_shape: Pointer | None,
    p_out_shape: Pointer | None,
) -> ErrorCode:
    """Computes one output and keeps it as the state.

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
      RuntimeError: a handle that holds no GRU.
      TypeError: memory of another type.
      ValueError: memory of too few elements.
    """
    return api.process(_KIND, handle, scratch, input, output, p_in_shape, p_out_shape)


def _persistent(config: GRUConfig) -> int:
    return 400 + align16(2 * config.out_feats)


_KIND = api.Kind(
    name="GRU",
    config=GRUConfig,
    params=GRUParam,
    weights=GRUWeights,
    matrices=GRUMatrixPointers,
    biases=GRUBiasPointers,
    inputs=tuple(of_x for of_x, *_ in (*gru.ZR, *gru.G)),
    contexts={GRUParam.RESTORE_CONTEXT: "prev_h"},
    init=gru.gru_init,
    step=gru.gru_step,
    persistent=_persistent,
)
