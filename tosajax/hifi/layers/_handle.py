"""Handles of layers, and the checks of pointers that the C functions of all layers make."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from tosajax.hifi._memory import address_of, check_memory, target_of
from tosajax.hifi.errors import ErrorCode, wrong_type
from tosajax.hifi.kernels import ActivationCoefficients
from tosajax.hifi.kernels._check import check_type

# Bytes that the library asks of the addresses of memory, and of structures.
BUFFER = 8
STRUCT = 4


@dataclasses.dataclass(eq=False)
class Handle:
    """Persistent memory, and the layer that lives in it.

    The library keeps its layer in the memory itself; here it is beside it, and the memory is for
    the checks of its address and size.

    Args:
      memory: bytes, as many as the query asks for.
      activation: how sigmoid and tanh are computed; see `kernels.activations`.
      layer: what init functions put there.

    Raises:
      TypeError: memory that is not a NumPy array.
    """

    memory: np.ndarray
    activation: str | ActivationCoefficients = "fixed"
    layer: Any = None

    def __post_init__(self) -> None:
        check_memory("memory", self.memory)

    @property
    def address(self) -> int:
        return address_of(self.memory)

    def put(self, layer: Any, size: int) -> None:
        """Puts a layer into the memory, which has to have `size` bytes."""
        if self.memory.nbytes < size:
            raise ValueError(f"the memory has {self.memory.nbytes} bytes, expected {size}")
        self.layer = layer


def check_pointers(*pointers: tuple[Any, int]) -> ErrorCode:
    """Checks pointers, each with its alignment: first all for NULL, then all for alignment."""
    addresses = [(address_of(x), alignment) for x, alignment in pointers]
    if any(address == 0 for address, _ in addresses):
        return ErrorCode.FATAL_MEM_ALLOC
    if any(address % alignment for address, alignment in addresses):
        return ErrorCode.FATAL_MEM_ALIGN
    return ErrorCode.NO_ERROR


def check_config(kind: type, config: Any) -> ErrorCode:
    """Checks a configuration, or what a Pointer leads to, that queries are given."""
    config = target_of(config)
    if config is None:
        return ErrorCode.FATAL_MEM_ALLOC
    if not isinstance(config, kind):
        raise wrong_type(kind.__name__.removesuffix("Config"), "config", config, kind.__name__)
    fault = config.fault()
    return ErrorCode.NO_ERROR if fault is None else fault.code


def check_init(kind: type, handle: Handle | None, config: Any) -> ErrorCode:
    """Checks what an init function is given."""
    if handle is not None:
        check_type(kind.__name__.removesuffix("Config"), "handle", handle, Handle)
    error = check_pointers((handle, BUFFER), (config, STRUCT))
    return error or check_config(kind, config)


def check_process(
    handle: Any, scratch: Any, input: Any, output: Any, p_in_shape: Any, p_out_shape: Any
) -> ErrorCode:
    """Checks the pointers that a process function is given."""
    check_memory("scratch", scratch)
    return check_pointers(
        (handle, BUFFER),
        (scratch, BUFFER),
        (input, BUFFER),
        (output, BUFFER),
        (p_in_shape, STRUCT),
        (p_out_shape, STRUCT),
    )


def layer_of(handle: Any, name: str) -> Any:
    """The layer of a handle, which has to be of this name."""
    check_type(name, "handle", handle, Handle)
    found = getattr(handle.layer, "name", "nothing")
    if found != name:
        init = f"xa_nnlib_{name.lower()}_init"
        raise RuntimeError(f"the handle holds {found}, expected {name}: call {init} first")
    return handle.layer


def align16(size: int) -> int:
    """A number of bytes, rounded up to a multiple of 16."""
    return -(-size // 16) * 16
