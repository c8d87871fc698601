"""Calls the library's functions, and reports rejected arguments as options."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from tosajax.hifi import layers
from tosajax.hifi.bench._options import BenchError, check
from tosajax.hifi.errors import NNLibConfigError, NNLibParamError
from tosajax.hifi.layers import Handle


@contextlib.contextmanager
def refusals(function: str, **renamed: str) -> Iterator[None]:
    """Converts errors of the library to BenchError.

    Args:
      function: the called function, for the message.
      renamed: the names of options, by argument name, where they differ.
    """
    try:
        yield
    except (NNLibParamError, NNLibConfigError) as error:
        option = renamed.get(error.argument, error.argument)
        message = str(error).partition(": ")[2].removeprefix(error.argument)
        raise BenchError(f"-{option}{message} ({function})") from None


def ask(layer: str, function: str, *arguments: Any) -> int:
    """Calls the C function xa_nnlib_<layer>_<function>; returns a number of bytes, or 0.

    Raises:
      BenchError: the library rejects the call.
    """
    name = f"xa_nnlib_{layer}_{function}"
    size = getattr(layers, name)(*arguments)
    check(size >= 0, f"{name} returns {size!r}")
    return size


def set_up(layer: str, config: Any) -> tuple[Handle, np.ndarray]:
    """Initializes a layer; returns its handle and its scratch memory."""
    handle = Handle(np.zeros(ask(layer, "get_persistent_fast", config), np.uint8))
    scratch = np.zeros(ask(layer, "get_scratch_fast", config), np.uint8)
    ask(layer, "init", handle, config)
    return handle, scratch
