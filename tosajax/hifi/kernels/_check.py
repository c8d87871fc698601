"""Checks arguments: the types of all, and the values of untraced ones.

Arguments that the library rejects raise NNLibParamError; arguments that C cannot express, such as a
shift that is not an integer, raise TypeError.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from tosajax.hifi.errors import NNLibParamError, wrong_type

SHIFT = (-31, 31)
INT32 = (-(2**31), 2**31 - 1)


def check(holds: bool, kernel: str, argument: str, found: object, wanted: str) -> None:
    """Raises NNLibParamError if `holds` is false."""
    if not holds:
        raise NNLibParamError(kernel, argument, found, wanted)


def check_in(kernel: str, argument: str, name: str, names: Collection[str]) -> None:
    """Checks that a name, such as a precision, is known."""
    if name is not None:
        check_type(kernel, argument, name, str)
    check(name in names, kernel, argument, repr(name), f"one of {', '.join(names)}")


def check_type(function: str, argument: str, value: Any, kind: type) -> None:
    """Raises TypeError unless a value is an instance of `kind`."""
    if not isinstance(value, kind):
        raise wrong_type(function, argument, value, kind.__name__)


def integer(function: str, argument: str, value: Any) -> int:
    """Converts an untraced integer to int; a member of an IntEnum is unchanged.

    Raises:
      TypeError: the value is traced, a bool, a float, or anything else that is not an integer.
    """
    if not isinstance(value, bool | np.bool_):
        if isinstance(value, int):
            return value
        try:
            return operator.index(value)
        except TypeError:
            pass
    wanted = "an integer that is not traced" if isinstance(value, Tracer) else "an integer"
    raise wrong_type(function, argument, value, wanted)


def integers(function: str, argument: str, values: Any, count: int) -> tuple[int, ...]:
    """Converts a sequence of `count` untraced integers to a tuple.

    Raises:
      TypeError: the argument is not a sequence of integers.
      ValueError: its length is not `count`.
    """
    try:
        numbers = tuple(integer(function, argument, value) for value in values)
    except TypeError:
        raise wrong_type(function, argument, values, f"{count} integers") from None
    if len(numbers) != count:
        raise ValueError(f"{function}: {argument} is {list(numbers)}, expected {count} integers")
    return numbers


def pairs(function: str, **values: Any) -> list[tuple[int, ...]]:
    """Converts arguments of two integers each, such as strides; see `integers`."""
    return [integers(function, name, value, 2) for name, value in values.items()]


def check_integers(function: str, arguments: Mapping[str, Any]) -> None:
    """Checks that all arguments, by name, are untraced integers."""
    for name, value in arguments.items():
        integer(function, name, value)


def check_number(kernel: str, argument: str, value: Any) -> None:
    """Checks that a value, which may be traced, is a real number."""
    dtype = value.dtype if isinstance(value, Tracer) else np.asarray(value).dtype
    if not any(jnp.issubdtype(dtype, kind) for kind in (np.integer, np.floating)):
        raise wrong_type(kernel, argument, value, "a number")


def check_range(kernel: str, argument: str, value: Any, low: int, high: int) -> None:
    """Checks that a number, or each element, is an integer and, unless traced, in [low, high]."""
    if isinstance(value, list | tuple) and any(isinstance(x, jax.Array) for x in value):
        for x in value:
            check_range(kernel, argument, x, low, high)
        return
    if isinstance(value, Tracer):
        if not jnp.issubdtype(value.dtype, np.integer):
            raise wrong_type(kernel, argument, value, "an integer")
        return
    values = np.asarray(value)
    # NumPy stores Python integers beyond 64 bits as objects.
    is_long = values.dtype == object and all(type(x) is int for x in values.ravel())
    if not (is_long or jnp.issubdtype(values.dtype, np.integer)):
        raise wrong_type(kernel, argument, value, "an integer")
    outside = values[(values < low) | (values > high)]
    check(outside.size == 0, kernel, argument, outside[:1].tolist(), f"within [{low}, {high}]")


def check_multiple(kernel: str, argument: str, value: int, of: int) -> None:
    """Checks that a length is a multiple of `of`."""
    check(value % of == 0, kernel, argument, value, f"a multiple of {of}")


def check_shift(kernel: str, argument: str, value: Any) -> None:
    """Checks a shift, in bits."""
    check_range(kernel, argument, value, *SHIFT)


def check_dtype(kernel: str, argument: str, x: Any, dtype: type) -> None:
    """Checks that an argument is an array of type `dtype`, traced or not."""
    if x is None:
        raise NNLibParamError(kernel, argument, "missing", "an array")
    if not isinstance(x, jax.Array | np.ndarray | np.generic):
        raise wrong_type(kernel, argument, x, f"an array of {np.dtype(dtype)}")
    if x.dtype != dtype:
        raise TypeError(f"{kernel}: {argument} is {x.dtype}, expected {np.dtype(dtype)}")


def check_real(function: str, argument: str, x: Any, rank: int) -> None:
    """Checks that an argument is an array of floats of rank `rank`."""
    is_array = isinstance(x, jax.Array | np.ndarray | np.generic)
    if not (is_array and jnp.issubdtype(x.dtype, np.floating) and x.ndim == rank):
        raise wrong_type(function, argument, x, f"an array of floats of rank {rank}")


def check_not_empty(kernel: str, argument: str, x: Any, dtype: type) -> None:
    """Checks that an argument is a nonempty array of type `dtype`."""
    check_dtype(kernel, argument, x, dtype)
    check_array(kernel, argument, x, dtype, (-1,) * x.ndim)


def check_array(kernel: str, argument: str, x: Any, dtype: type, shape: tuple[int, ...]) -> None:
    """Checks an array's type and shape; -1 in `shape` allows any length of at least 1."""
    check_dtype(kernel, argument, x, dtype)
    fits = len(x.shape) == len(shape) and all(
        n == m or (m == -1 and n > 0) for n, m in zip(x.shape, shape, strict=True)
    )
    wanted = ", ".join("any" if m == -1 else str(m) for m in shape)
    check(fits, kernel, argument, f"of shape {list(x.shape)}", f"[{wanted}]")
