"""Errors of the library's functions: codes, and Python exceptions.

A code is an int32: bit 31 is set if fatal, bits 12 to 15 are the class, bits 7 to 11 the component,
lower bits the subcode. The guide (2.3) states bits 27 to 30 for the class; the library differs.
"""

from __future__ import annotations

import enum
from typing import Any, NamedTuple

_LONGEST = 40


class ErrorClass(enum.IntEnum):
    """The source of an error: a call, a configuration, or the processing of data."""

    NNLIB = 0
    CONFIG = 1
    EXECUTE = 2


class Component(enum.IntEnum):
    """The layer that reports an error."""

    GENERIC = 0
    GRU = 1
    LSTM = 2
    CNN = 3


def _fatal(component: int, error_class: int, subcode: int) -> int:
    """The code of a fatal error, as an int32, which is negative."""
    return (1 << 31 | error_class << 12 | component << 7 | subcode) - (1 << 32)


class ErrorCode(enum.IntEnum):
    """The error codes of the layers, XA_NNLIB_* in C. All except NO_ERROR are fatal."""

    NO_ERROR = 0

    FATAL_MEM_ALLOC = _fatal(0, 0, 0)
    FATAL_MEM_ALIGN = _fatal(0, 0, 1)
    FATAL_INVALID_SHAPE = _fatal(0, 0, 3)

    GRU_CONFIG_FATAL_INVALID_IN_FEATS = _fatal(1, 1, 0)
    GRU_CONFIG_FATAL_INVALID_OUT_FEATS = _fatal(1, 1, 1)
    GRU_CONFIG_FATAL_INVALID_PRECISION = _fatal(1, 1, 2)
    GRU_CONFIG_FATAL_INVALID_COEFF_QFORMAT = _fatal(1, 1, 3)
    GRU_CONFIG_FATAL_INVALID_IO_QFORMAT = _fatal(1, 1, 4)
    GRU_CONFIG_FATAL_INVALID_PARAM_ID = _fatal(1, 1, 5)
    GRU_CONFIG_FATAL_INVALID_MEMBANK_PADDING = _fatal(1, 1, 6)
    GRU_EXECUTE_FATAL_INSUFFICIENT_OUTPUT_BUFFER_SPACE = _fatal(1, 2, 0)
    GRU_EXECUTE_FATAL_INSUFFICIENT_DATA = _fatal(1, 2, 1)

    LSTM_CONFIG_FATAL_INVALID_IN_FEATS = _fatal(2, 1, 0)
    LSTM_CONFIG_FATAL_INVALID_OUT_FEATS = _fatal(2, 1, 1)
    LSTM_CONFIG_FATAL_INVALID_PRECISION = _fatal(2, 1, 2)
    LSTM_CONFIG_FATAL_INVALID_COEFF_QFORMAT = _fatal(2, 1, 3)
    LSTM_CONFIG_FATAL_INVALID_CELL_QFORMAT = _fatal(2, 1, 4)
    LSTM_CONFIG_FATAL_INVALID_IO_QFORMAT = _fatal(2, 1, 5)
    LSTM_CONFIG_FATAL_INVALID_PARAM_ID = _fatal(2, 1, 6)
    LSTM_CONFIG_FATAL_INVALID_MEMBANK_PADDING = _fatal(2, 1, 7)
    LSTM_EXECUTE_FATAL_INSUFFICIENT_OUTPUT_BUFFER_SPACE = _fatal(2, 2, 0)
    LSTM_EXECUTE_FATAL_INSUFFICIENT_DATA = _fatal(2, 2, 1)

    CNN_CONFIG_FATAL_INVALID_ALGO = _fatal(3, 1, 0)
    CNN_CONFIG_FATAL_INVALID_PRECISION = _fatal(3, 1, 1)
    CNN_CONFIG_FATAL_INVALID_BIAS_SHIFT = _fatal(3, 1, 2)
    CNN_CONFIG_FATAL_INVALID_ACC_SHIFT = _fatal(3, 1, 3)
    CNN_CONFIG_FATAL_INVALID_STRIDE = _fatal(3, 1, 4)
    CNN_CONFIG_FATAL_INVALID_PADDING = _fatal(3, 1, 5)
    CNN_CONFIG_FATAL_INVALID_INPUT_SHAPE = _fatal(3, 1, 6)
    CNN_CONFIG_FATAL_INVALID_OUTPUT_SHAPE = _fatal(3, 1, 7)
    CNN_CONFIG_FATAL_INVALID_KERNEL_SHAPE = _fatal(3, 1, 8)
    CNN_CONFIG_FATAL_INVALID_BIAS_SHAPE = _fatal(3, 1, 9)
    CNN_CONFIG_FATAL_INVALID_PARAM_ID = _fatal(3, 1, 10)
    CNN_CONFIG_FATAL_INVALID_PARAM_COMBINATION = _fatal(3, 1, 11)


def is_fatal(code: int) -> bool:
    """Whether a code is fatal, so that the layer must be initialized again."""
    return bool(code >> 31 & 1)


def error_class(code: int) -> ErrorClass:
    """The class of a code."""
    return ErrorClass(code >> 12 & 0xF)


def component(code: int) -> Component:
    """The component of a code."""
    return Component(code >> 7 & 0x1F)


def subcode(code: int) -> int:
    """The subcode of a code within its class and component; the library reads 6 bits."""
    return code & 0x3F


class NNLibParamError(ValueError):
    """The error for a parameter that the library rejects with -1.

    Args:
      kernel: the function's name, with its precision.
      argument: the parameter's name in the library.
      found: the parameter's value.
      wanted: a description of the accepted values.

    Example:
      >>> import numpy as np
      >>> from tosajax import hifi
      >>> from tosajax.hifi import kernels
      >>> try:
      ...     kernels.relu(np.int16([1, -2]), threshold=1, precision="9_9")
      ... except hifi.NNLibParamError as error:
      ...     print(error)
      relu 9_9: precision is '9_9', expected one of 32_32, f32_f32, 16_16, 8_8
    """

    code = -1

    def __init__(self, kernel: str, argument: str, found: object, wanted: str) -> None:
        self.kernel = kernel
        self.argument = argument
        self._given = kernel, argument, found, wanted
        super().__init__(f"{kernel}: {argument} is {found}, expected {wanted}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._given, self.__dict__


class Fault(NamedTuple):
    """A field of a configuration that the library rejects.

    Args:
      code: the error code that the library returns.
      argument: the field's name in the library.
      found: the field's value.
      wanted: a description of the accepted values.
    """

    code: ErrorCode
    argument: str
    found: object
    wanted: str


class NNLibConfigError(ValueError):
    """The error for a configuration that the library rejects.

    Args:
      layer: the layer's name, such as "GRU".
      fault: the rejected field, and the error code.
    """

    def __init__(self, layer: str, fault: Fault) -> None:
        self.code = fault.code
        self.argument = fault.argument
        self._given = layer, fault
        problem, wanted = f"{fault.argument} is {fault.found}", f"expected {fault.wanted}"
        super().__init__(f"{layer}: {problem}, {wanted} [{fault.code.name}]")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._given, self.__dict__


def wrong_type(function: str, argument: str, value: object, wanted: str) -> TypeError:
    """Makes the TypeError for an argument of the wrong type."""
    return TypeError(f"{function}: {argument} is {_described(value)}, expected {wanted}")


def _described(value: Any) -> str:
    """Describes a value for messages: plain values by value, others by type, arrays by shape."""
    if hasattr(value, "dtype") and hasattr(value, "shape") and value.shape:
        return f"an array of {value.dtype}, shape {list(value.shape)}"
    plain = isinstance(value, bool | int | float | complex | str | list | tuple | None)
    shown = repr(value) if plain or hasattr(value, "dtype") else type(value).__name__
    return shown if len(shown) <= _LONGEST else f"{shown[:_LONGEST]}... ({type(value).__name__})"


def check_config(layer: str, kind: type, config: Any) -> None:
    """Checks the configuration of a layer.

    Raises:
      NNLibConfigError: the library rejects a field.
      TypeError: `config` is not a `kind`.
    """
    if not isinstance(config, kind):
        raise wrong_type(layer, "config", config, kind.__name__)
    fault = config.fault()
    if fault is not None:
        raise NNLibConfigError(layer, fault)
