"""The low-level kernels with C signatures: pointers, sizes, strides and error codes.

Each of the library's names, such as `xa_nn_matXvec_8x16_16`, is a function here with the arguments
of the C function in the same order. Pointers are contiguous NumPy arrays of any shape; None is
NULL. Arrays of pointers are lists. Functions write to p_out and return 0, or -1 if the library
rejects an argument; functions from `strict` raise an error that names the argument. Scratch memory
is not written. Memory of the wrong type, or smaller than the C function accesses, is a Python
error. The functions of layers are in `tosajax.hifi.layers`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tosajax.hifi.capi import activations, basic, conv, dense, matxvec, pool
from tosajax.hifi.capi._plan import Plan

__all__ = ["plan", "strict"]

_PROTOTYPES = (
    *matxvec.PROTOTYPES,
    *conv.PROTOTYPES,
    *activations.PROTOTYPES,
    *pool.PROTOTYPES,
    *dense.PROTOTYPES,
    *basic.PROTOTYPES,
)
_STRICT = {
    name: function for row in _PROTOTYPES for name, function in row.strict_functions().items()
}
_PLANS = {name: function for row in _PROTOTYPES for name, function in row.plans().items()}
_FUNCTIONS = {name: function for row in _PROTOTYPES for name, function in row.functions().items()}


def strict(name: str) -> Callable[..., int]:
    """Returns a function that raises NNLibParamError for arguments that the library rejects.

    Args:
      name: the function's name in the library.

    Raises:
      KeyError: the library does not have the function.

    Example:
      >>> import numpy as np
      >>> from tosajax.hifi import capi
      >>> x, out = np.int16([1, -2]), np.zeros(2, np.int16)
      >>> relu = capi.strict("xa_nn_vec_relu_16_16")
      >>> relu(out, x, 100, 2), out.tolist()
      (0, [1, 0])
    """
    return _STRICT[name]


def plan(name: str, **arguments: Any) -> Plan:
    """The plan of a call: types, shapes and strides of its arrays; does not read memory.

    Args:
      name: the name in the library of a function that computes arrays.
      arguments: all arguments of the C function.

    Raises:
      KeyError: the library does not have the function.
      NNLibParamError: an argument is rejected before operands and ranges are checked.
      ValueError: the function returns a size.

    Example:
      >>> import numpy as np
      >>> from tosajax.hifi import capi
      >>> x, out = np.int16([1, -2]), np.zeros(2, np.int16)
      >>> plan = capi.plan("xa_nn_vec_relu_16_16", p_out=out, p_vec=x, threshold=100, vec_length=2)
      >>> {name: (operand.dtype, operand.shape) for name, operand in plan.arrays.items()}
      {'x': (<class 'numpy.int16'>, (2,))}
    """
    result = _PLANS[name](**arguments)
    if not isinstance(result, Plan):
        raise ValueError(f"{name} returns a size, expected a function that computes arrays")
    return result


def __getattr__(name: str) -> Callable[..., int]:
    if name not in _FUNCTIONS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _FUNCTIONS[name]


def __dir__() -> list[str]:
    return [*__all__, *_FUNCTIONS]
