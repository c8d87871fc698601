"""Calls of the library's functions; arguments that it rejects are those of an option."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from tosajax.hifi import layers
from tosajax.hifi.bench._options import BenchError, check
from tosajax.hifi.errors import NNLibConfigError, NNLibParamError


@contextlib.contextmanager
def refusals(function: str, **renamed: str) -> Iterator[None]:
    """Turns errors of the library into BenchError.

    Args:
      function: that rejects an argument.
      renamed: the options that have other names than the arguments, by the latter.
    """
    try:
        yield
    except (NNLibParamError, NNLibConfigError) as error:
        option = renamed.get(error.argument, error.argument)
        message = str(error).partition(": ")[2].removeprefix(error.argument)
        raise BenchError(f"-{option}{message} ({function})") from None


def ask(name: str, *arguments: Any) -> int:
    """Calls a C function of a layer; returns a number of bytes, or 0.

    Raises:
      BenchError: a call that the library rejects.
    """
    found = getattr(layers, name)(*arguments)
    check(found >= 0, f"{name} returns {found!r}")
    return found
