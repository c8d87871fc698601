"""The low-level kernels with the signatures of C: pointers, sizes, strides and codes.

Each of the library's names, such as `xa_nn_matXvec_8x16_16`, is a function here that takes the
arguments of C in the order of C. Pointers are NumPy arrays, flat or of any shape without gaps;
None is NULL. Arrays of pointers are lists. Functions write to p_out and return 0, or -1 where the
library rejects an argument; those of `strict` name it in an error. Scratch memory stays as it is.
Memory of another type is a Python error, and so is memory that C would read or write beyond its
end. The functions of layers are in `tosajax.hifi.layers`.
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
_STRICT = {name: found for row in _PROTOTYPES for name, found in row.strict_functions().items()}
_PLANS = {name: found for row in _PROTOTYPES for name, found in row.plans().items()}
_FUNCTIONS = {name: found for row in _PROTOTYPES for name, found in row.functions().items()}


def strict(name: str) -> Callable[..., int]:
    """A function that raises NNLibParamError for arguments that the library rejects.

    Args:
      name: in the library.

    Raises:
      KeyError: a name that the library does not have.
    """
    return _STRICT[name]


def plan(name: str, **arguments: Any) -> Plan:
    """The plan of a call: types, shapes and strides of its arrays; it reads no memory.

    Args:
      name: in the library, of a function that computes arrays.
      arguments: all those of C.

    Raises:
      KeyError: a name that the library does not have.
      NNLibParamError: an argument that is rejected before operands and ranges are checked.
      ValueError: a function that returns a size.
    """
    found = _PLANS[name](**arguments)
    if not isinstance(found, Plan):
        raise ValueError(f"{name} returns a size, expected a function that computes arrays")
    return found


def __getattr__(name: str) -> Callable[..., int]:
    if name not in _FUNCTIONS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _FUNCTIONS[name]


def __dir__() -> list[str]:
    return [*__all__, *_FUNCTIONS]
