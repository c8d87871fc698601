"""The low-level kernels: pure functions of arrays without padding, one for each family.

Each of the library's names, such as `xa_nn_matXvec_8x16_16`, is also an attribute: the family's
function with the precision fixed. `names` lists them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tosajax.hifi.kernels._precision import Quant
from tosajax.hifi.kernels.activations import (
    ActivationCoefficients,
    SigmoidQuant,
    SoftmaxQuant,
    activation_min_max,
    relu,
    sigmoid,
    softmax,
    tanh,
)
from tosajax.hifi.kernels.basic import (
    dot_prod,
    elm_add,
    elm_floor,
    elm_mul,
    elm_quantize,
    interpolation_q15,
)
from tosajax.hifi.kernels.conv import conv1d_std, conv2d_depthwise, conv2d_pointwise, conv2d_std
from tosajax.hifi.kernels.dense import fully_connected
from tosajax.hifi.kernels.matxvec import (
    matmul,
    matXvec,
    matXvec_batch,
    matXvec_fused,
    matXvec_out_stride,
)
from tosajax.hifi.kernels.names import NAMES, library_function
from tosajax.hifi.kernels.pool import avgpool, maxpool
from tosajax.hifi.kernels.scratch import (
    conv1d_std_getsize,
    conv2d_depthwise_getsize,
    conv2d_std_getsize,
    pool_getsize,
)

__all__ = [
    "NAMES",
    "ActivationCoefficients",
    "Quant",
    "SigmoidQuant",
    "SoftmaxQuant",
    "activation_min_max",
    "avgpool",
    "conv1d_std",
    "conv1d_std_getsize",
    "conv2d_depthwise",
    "conv2d_depthwise_getsize",
    "conv2d_pointwise",
    "conv2d_std",
    "conv2d_std_getsize",
    "dot_prod",
    "elm_add",
    "elm_floor",
    "elm_mul",
    "elm_quantize",
    "fully_connected",
    "interpolation_q15",
    "library_function",
    "matXvec",
    "matXvec_batch",
    "matXvec_fused",
    "matXvec_out_stride",
    "matmul",
    "maxpool",
    "pool_getsize",
    "relu",
    "sigmoid",
    "softmax",
    "tanh",
]


def __getattr__(name: str) -> Callable[..., Any]:
    if name not in NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return library_function(name)


def __dir__() -> list[str]:
    return [*__all__, *NAMES]
