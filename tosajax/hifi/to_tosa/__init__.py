"""TOSA graphs of the kernels that TOSA's operators compute exactly.

A function here has the name and the parameters of a kernel in `tosajax.hifi.kernels`, except for
`acc_shift` and `bias_shift`, which no supported precision takes; other precisions raise
UnsupportedError. It adds nodes to a Builder. Inputs of a run are Tensors; weights and biases are
NumPy arrays, which become constants, as parameters do. `to_graph` makes the graph of one kernel;
several calls make a network:

b = Builder()
x = b.input("x", DType.INT8, (64,))
y = fully_connected(b, weight, x, bias, quant=quant)
graph = b.graph([activation_min_max(b, y, 0, 90, precision="8_8")])

Scales become RESCALE, with DOUBLE_ROUND for right shifts. RESCALE supports left shifts of up to 29
bits. Its results are undefined for values outside [-2**(30 - shift), 2**(30 - shift)), which the
library shifts with saturation; such values do not occur with parameters derived from the ranges of
tensors, as TFLite's are.
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
    """Makes the graph of one kernel.

    Args:
      function: a function of this module.
      operands: its arguments after the Builder. Each jax.ShapeDtypeStruct becomes an input of the
        graph, named as the argument.
      parameters: further keywords.

    Returns:
      A graph with one output.

    Raises:
      NNLibParamError: the library rejects a parameter.
      TypeError: an argument has the wrong type.
      UnsupportedError: TOSA cannot express the call.

    Example:
      >>> import jax
      >>> import numpy as np
      >>> import tosajax
      >>> from tosajax.hifi import to_tosa
      >>> x = jax.ShapeDtypeStruct((4,), np.int8)
      >>> graph = to_tosa.to_graph(to_tosa.relu, x, threshold=100, precision="8_8")
      >>> tosajax.compile(graph)(np.int8([-1, 0, 99, 101]))[0].tolist()
      [0, 0, 99, 100]
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
    """Makes the graph of a recorded call of a kernel that this module supports.

    Args:
      op: the recorded name in the jaxpr equation, such as "hifi.kernels.relu".
      call: the recorded call of the equation.
      operands: the equation's operands: a `jax.ShapeDtypeStruct` for each input of the graph, an
        array for each constant.

    Returns:
      A graph whose output is the result of the equation.

    Raises:
      UnsupportedError: TOSA cannot express the precision, or a parameter is an input.
    """
    function = globals()[op.rpartition(".")[2]]
    parameters = inspect.signature(function).parameters
    b = Builder()
    arguments: dict[str, Any] = {}
    for name, value in call.arguments(operands).items():
        if name not in parameters:  # a shift, which precisions of this module do not take
            continue
        if parameters[name].annotation == "Tensor":
            arguments[name] = _tensor(b, name, value)
        else:
            arguments[name] = jax.tree.map(functools.partial(_known, op, name), value)
    return b.graph([function(b, **arguments)])


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
