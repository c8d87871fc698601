"""Checks of parameters: of those that are static, and of numbers that are not traced."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
from jax.core import Tracer

from tosajax.hifi.errors import NNLibParamError

SHIFT = (-31, 31)


def check(holds: bool, kernel: str, argument: str, found: object, wanted: str) -> None:
    """Raises NNLibParamError where `holds` is false."""
    if not holds:
        raise NNLibParamError(kernel, argument, found, wanted)


def check_in(kernel: str, argument: str, found: str, known: Collection[str]) -> None:
    """Checks a name, such as that of a precision."""
    check(found in known, kernel, argument, repr(found), f"one of {', '.join(known)}")


def check_range(kernel: str, argument: str, value: Any, low: int, high: int) -> None:
    """Checks that all elements of a number or an array lie in [low, high], unless traced."""
    if isinstance(value, Tracer):
        return
    values = np.asarray(value)
    outside = values[(values < low) | (values > high)]
    check(outside.size == 0, kernel, argument, outside[:1].tolist(), f"within [{low}, {high}]")


def check_multiple(kernel: str, argument: str, value: int, of: int) -> None:
    """Checks that a length is a multiple of `of`."""
    check(value % of == 0, kernel, argument, value, f"a multiple of {of}")


def check_shift(kernel: str, argument: str, value: Any) -> None:
    """Checks a shift, in bits."""
    check_range(kernel, argument, value, *SHIFT)


def check_array(kernel: str, argument: str, x: Any, dtype: type, shape: tuple[int, ...]) -> None:
    """Checks the type and the shape of an array; -1 in `shape` is any length of at least 1."""
    if x is None:
        raise NNLibParamError(kernel, argument, "missing", "an array")
    if x.dtype != dtype:
        raise TypeError(f"{kernel}: {argument} is {x.dtype}, expected {np.dtype(dtype)}")
    fits = len(x.shape) == len(shape) and all(
        n == m or (m == -1 and n > 0) for n, m in zip(x.shape, shape, strict=True)
    )
    wanted = ", ".join("any" if m == -1 else str(m) for m in shape)
    check(fits, kernel, argument, f"of shape {list(x.shape)}", f"[{wanted}]")
