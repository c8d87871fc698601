"""The layers GRU, LSTM and CNN: pure functions, and their C functions.

`gru_step`, `gru_scan`, `lstm_step`, `lstm_scan` and `cnn_apply` compute the library's equations in
integers, for one sequence or one image; `jax.vmap` adds a batch axis. By default sigmoid and tanh
use tosajax's own coefficients, so that GRU and LSTM may differ from the library; see docs/hifi.md.
The functions named *_float compute the same equations in floats. `tosajax.hifi.training` has layers
with the integer results and the gradients of the float functions. The functions named xa_nnlib_*
are the C functions, from `tosajax.hifi.capi.layers`; they return error codes.
"""

from __future__ import annotations

from tosajax.hifi.capi.layers._functions import Handle
from tosajax.hifi.capi.layers._recurrent import Coefficients
from tosajax.hifi.capi.layers.cnn import (
    CNNParam,
    cnn_pointers,
    xa_nnlib_cnn_get_config,
    xa_nnlib_cnn_get_persistent_fast,
    xa_nnlib_cnn_get_scratch_fast,
    xa_nnlib_cnn_init,
    xa_nnlib_cnn_process,
    xa_nnlib_cnn_set_config,
)
from tosajax.hifi.capi.layers.gru import (
    GRUBiasPointers,
    GRUMatrixPointers,
    GRUParam,
    gru_pointers,
    xa_nnlib_gru_get_config,
    xa_nnlib_gru_get_persistent_fast,
    xa_nnlib_gru_get_scratch_fast,
    xa_nnlib_gru_init,
    xa_nnlib_gru_process,
    xa_nnlib_gru_set_config,
)
from tosajax.hifi.capi.layers.lstm import (
    LSTMBiasPointers,
    LSTMMatrixPointers,
    LSTMParam,
    lstm_pointers,
    xa_nnlib_lstm_get_config,
    xa_nnlib_lstm_get_persistent_fast,
    xa_nnlib_lstm_get_scratch_fast,
    xa_nnlib_lstm_init,
    xa_nnlib_lstm_process,
    xa_nnlib_lstm_set_config,
)
from tosajax.hifi.capi.layers.version import (
    xa_nnlib_get_lib_api_version_string,
    xa_nnlib_get_lib_name_string,
    xa_nnlib_get_lib_version_string,
)
from tosajax.hifi.capi.memory import Pointer
from tosajax.hifi.layers._float import (
    gru_scan_float,
    gru_step_float,
    lstm_scan_float,
    lstm_step_float,
)
from tosajax.hifi.layers._precision import Precision
from tosajax.hifi.layers.cnn import (
    Algo,
    CNNConfig,
    CNNWeights,
    cnn_apply,
    conv1d_std_config,
    conv2d_ds_config,
    conv2d_std_config,
    output_shape,
)
from tosajax.hifi.layers.gru import GRUConfig, GRUState, GRUWeights, gru_init, gru_scan, gru_step
from tosajax.hifi.layers.lstm import (
    LSTMConfig,
    LSTMState,
    LSTMWeights,
    lstm_init,
    lstm_scan,
    lstm_states,
    lstm_step,
)
from tosajax.hifi.layers.shape import (
    Cube,
    Matrix,
    Shape,
    ShapeType,
    Vector,
    cube_dwh,
    cube_whd,
    matrix,
    vector,
)

__all__ = [
    "Algo",
    "CNNConfig",
    "CNNParam",
    "CNNWeights",
    "Coefficients",
    "Cube",
    "GRUBiasPointers",
    "GRUConfig",
    "GRUMatrixPointers",
    "GRUParam",
    "GRUState",
    "GRUWeights",
    "Handle",
    "LSTMBiasPointers",
    "LSTMConfig",
    "LSTMMatrixPointers",
    "LSTMParam",
    "LSTMState",
    "LSTMWeights",
    "Matrix",
    "Pointer",
    "Precision",
    "Shape",
    "ShapeType",
    "Vector",
    "cnn_apply",
    "cnn_pointers",
    "conv1d_std_config",
    "conv2d_ds_config",
    "conv2d_std_config",
    "cube_dwh",
    "cube_whd",
    "gru_init",
    "gru_pointers",
    "gru_scan",
    "gru_scan_float",
    "gru_step",
    "gru_step_float",
    "lstm_init",
    "lstm_pointers",
    "lstm_scan",
    "lstm_scan_float",
    "lstm_states",
    "lstm_step",
    "lstm_step_float",
    "matrix",
    "output_shape",
    "vector",
    "xa_nnlib_cnn_get_config",
    "xa_nnlib_cnn_get_persistent_fast",
    "xa_nnlib_cnn_get_scratch_fast",
    "xa_nnlib_cnn_init",
    "xa_nnlib_cnn_process",
    "xa_nnlib_cnn_set_config",
    "xa_nnlib_get_lib_api_version_string",
    "xa_nnlib_get_lib_name_string",
    "xa_nnlib_get_lib_version_string",
    "xa_nnlib_gru_get_config",
    "xa_nnlib_gru_get_persistent_fast",
    "xa_nnlib_gru_get_scratch_fast",
    "xa_nnlib_gru_init",
    "xa_nnlib_gru_process",
    "xa_nnlib_gru_set_config",
    "xa_nnlib_lstm_get_config",
    "xa_nnlib_lstm_get_persistent_fast",
    "xa_nnlib_lstm_get_scratch_fast",
    "xa_nnlib_lstm_init",
    "xa_nnlib_lstm_process",
    "xa_nnlib_lstm_set_config",
]
