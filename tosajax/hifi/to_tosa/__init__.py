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

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from tosajax.builder import Builder
from tosajax.dtypes import DType
from tosajax.graph import Graph, Tensor
from tosajax.hifi.to_tosa.activations import activation_min_max, interpolation_q15, relu
from tosajax.hifi.to_tosa.basic import elm_add, elm_mul, elm_quantize
from tosajax.hifi.to_tosa.conv import conv2d_depthwise, conv2d_pointwise, conv2d_std
from tosajax.hifi.to_tosa.dense import fully_connected
from tosajax.hifi.to_tosa.matxvec import matmul
from tosajax.hifi.to_tosa.pool import maxpool
from tosajax.ops.recording import Call
from tosajax.report import UnsupportedError

__all__ = [
    "activation_min_max",
    "conv2d_depthwise",
    "conv2d_pointwise",
    "conv2d_std",
    "elm_add",
    "elm_mul",
    "elm_quantize",
    "fully_connected",
    "graph_of",
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


def graph_of(op: str, call: Call, operands: Sequence[Any]) -> Graph:
    """The graph of a recorded call of a kernel that this module has.

    Args:
      op: of the equation, "hifi.kernels.relu".
      call: of the equation.
      operands: of the equation: a `jax.ShapeDtypeStruct` for each input of the graph, and arrays.

    Returns:
      A graph whose output is the result of the equation.

    Raises:
      UnsupportedError: a precision that TOSA has no form for, or a parameter that is an input.
    """
    function = globals()[op.rpartition(".")[2]]
    parameters = inspect.signature(function).parameters
    b = Builder()
    found: dict[str, Any] = {}
    for name, value in call.arguments(operands).items():
        if name not in parameters:  # A shift, which the precisions of this module do not take.
            continue
        if parameters[name].annotation == "Tensor":
            found[name] = _tensor(b, name, value)
        else:
            found[name] = jax.tree.map(functools.partial(_known, op, name), value)
    return b.graph([function(b, **found)])


def _tensor(b: Builder, name: str, x: Any) -> Tensor:
    dtype = _DTYPES.get(np.dtype(x.dtype))
    if dtype is None:
        raise UnsupportedError(f"{name} is {x.dtype}, expected int8, int16 or int32")
    is_input = isinstance(x, jax.ShapeDtypeStruct)
    return b.input(name, dtype, x.shape) if is_input else b.const(np.asarray(x), dtype)


def _known(op: str, name: str, leaf: Any) -> Any:
    if isinstance(leaf, jax.ShapeDtypeStruct):
        raise UnsupportedError(f"{op}: {name} is computed, expected constants")
    if isinstance(leaf, jax.Array | np.ndarray):
        return np.asarray(leaf)[()]
    return leaf


_DTYPES = {np.dtype(dtype.storage): dtype for dtype in (DType.INT8, DType.INT16, DType.INT32)}
