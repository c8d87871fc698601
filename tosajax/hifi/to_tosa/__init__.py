"""TOSA graphs of the kernels whose integers TOSA's operators compute exactly.

A function here has the name and the parameters of one in `tosajax.hifi.kernels`, without
`acc_shift` and `bias_shift`, which no precision here takes; other precisions are an
UnsupportedError. It adds nodes to a Builder. Inputs of a run are Tensors; weights and biases are
NumPy arrays, which become constants like parameters. `to_graph` makes the graph
of one kernel; several make a network:

b = Builder()
x = b.input("x", DType.INT8, (64,))
y = fully_connected(b, weight, x, bias, quant=quant)
graph = b.graph([activation_min_max(b, y, 0, 90, precision="8_8")])

Scales become RESCALE, with DOUBLE_ROUND where a result is shifted to the right. RESCALE takes no
shift to the left beyond 29. It does not define results for values outside
[-2**(30 - shift), 2**(30 - shift)), which the library shifts with saturation; parameters made from
the ranges of tensors, like TFLite's, lead to no such values.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import jax

from tosajax.builder import Builder
from tosajax.dtypes import DType
from tosajax.graph import Graph, Tensor
from tosajax.hifi.to_tosa.activations import activation_min_max, interpolation_q15, relu
from tosajax.hifi.to_tosa.basic import elm_add, elm_mul, elm_quantize
from tosajax.hifi.to_tosa.conv import conv2d_depthwise, conv2d_pointwise, conv2d_std
from tosajax.hifi.to_tosa.dense import fully_connected
from tosajax.hifi.to_tosa.matxvec import matmul
from tosajax.hifi.to_tosa.pool import maxpool

__all__ = [
    "activation_min_max",
    "conv2d_depthwise",
    "conv2d_pointwise",
    "conv2d_std",
    "elm_add",
    "elm_mul",
    "elm_quantize",
    "fully_connected",
    "interpolation_q15",
    "matmul",
    "maxpool",
    "relu",
    "to_graph",
]


def to_graph(function: Callable[..., Tensor], *operands: Any, **parameters: Any) -> Graph:
    """The graph of one kernel.

    Args:
      function: one of this module.
      operands: its arguments after the Builder. Each jax.ShapeDtypeStruct becomes an input of the
        graph, named like the argument.
      parameters: further keywords.

    Returns:
      A graph of one output.

    Raises:
      NNLibParamError: a parameter that the library rejects.
      TypeError: an argument of another type.
      UnsupportedError: one that TOSA has no form for.
    """
    b = Builder()
    names = list(inspect.signature(function).parameters)[1:]
    tensors = [
        b.input(name, DType[x.dtype.name.upper()], x.shape)
        if isinstance(x, jax.ShapeDtypeStruct)
        else x
        for name, x in zip(names, operands, strict=False)
    ]
    return b.graph([function(b, *tensors, **parameters)])
