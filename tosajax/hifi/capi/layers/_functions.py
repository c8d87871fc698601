"""The six C functions of a layer, made from its declaration, and the handles that they take."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeAlias, TypeVar

import numpy as np

from tosajax.hifi.capi._function import described
from tosajax.hifi.capi.memory import (
    BUFFER,
    STRUCT,
    Memory,
    Pointer,
    address_of,
    check_memory,
    check_pointers,
    target_of,
)
from tosajax.hifi.errors import ErrorCode, Fault, wrong_type
from tosajax.hifi.kernels import ActivationCoefficients
from tosajax.hifi.kernels._check import check_type, integer
from tosajax.hifi.layers.shape import Shape

Activation: TypeAlias = str | ActivationCoefficients
# The parameters of set_config and get_config: memory, or structures of pointers.
Params: TypeAlias = np.ndarray | tuple[Any, ...] | list[Any] | Pointer | None


class _Checked(Protocol):
    def fault(self) -> Fault | None: ...


Config = TypeVar("Config", bound=_Checked)
P = ParamSpec("P")
Result = TypeVar("Result")


class Layer(Protocol):
    """A layer in persistent memory."""

    @property
    def name(self) -> str: ...

    def set(self, param_id: int, params: Params) -> ErrorCode: ...

    def get(self, param_id: int, params: Params) -> ErrorCode: ...

    def process(
        self,
        input: Memory,
        output: Memory,
        p_in_shape: Pointer | Shape | None,
        p_out_shape: Pointer | None,
    ) -> ErrorCode: ...


@dataclasses.dataclass(eq=False)
class Handle:
    """Persistent memory, and the layer that lives in it.

    The library keeps its layer in the memory itself. Here it is beside the memory, of which the
    functions only check address and size.

    Args:
      memory: bytes, as many as get_persistent_fast returns.
      activation: how sigmoid and tanh are computed; see `kernels.activations`.
      layer: set by init functions.

    Raises:
      TypeError: memory that is not a NumPy array.
    """

    memory: np.ndarray
    activation: Activation = "fixed"
    layer: Layer | None = None

    def __post_init__(self) -> None:
        check_memory("memory", self.memory)

    @property
    def address(self) -> int:
        return address_of(self.memory)


@dataclasses.dataclass(frozen=True)
class Declaration(Generic[Config]):
    """A layer, for its C functions.

    Args:
      name: such as "GRU".
      config: the class of its configurations.
      persistent: bytes of persistent memory.
      scratch: bytes of scratch memory.
      start: the layer as `init` sets it up.
    """

    name: str
    config: type[Config]
    persistent: Callable[[Config], int]
    scratch: Callable[[Config], int]
    start: Callable[[Config, Activation], Layer]

    def check(self, config: Config | Pointer | None) -> ErrorCode:
        """Checks a configuration, or the target of a Pointer."""
        known = target_of(config)
        if known is None:
            return ErrorCode.FATAL_MEM_ALLOC
        check_type(self.name, "config", known, self.config)
        fault = known.fault()
        return ErrorCode.NO_ERROR if fault is None else fault.code

    def layer_of(self, handle: Handle | None) -> Layer:
        """The layer of a handle, after `init`."""
        if not isinstance(handle, Handle):
            raise wrong_type(self.name, "handle", handle, "Handle")
        layer = handle.layer
        if layer is None or layer.name != self.name:
            found = "nothing" if layer is None else layer.name
            wanted = f"expected {self.name}: call xa_nnlib_{self.name.lower()}_init first"
            raise RuntimeError(f"the handle holds {found}, {wanted}")
        return layer


def functions(layer: Declaration[Config]):
    """The C functions of a layer, in the order in which programs call them."""
    return (
        _bound(_get_persistent_fast, layer),
        _bound(_get_scratch_fast, layer),
        _bound(_init, layer),
        _bound(_set_config, layer),
        _bound(_get_config, layer),
        _bound(_process, layer),
    )


def _get_persistent_fast(layer: Declaration[Config], config: Config | Pointer | None) -> int:
    """Bytes of persistent memory, or a code below 0."""
    return layer.check(config) or layer.persistent(target_of(config))


def _get_scratch_fast(layer: Declaration[Config], config: Config | Pointer | None) -> int:
    """Bytes of scratch memory, or a code below 0."""
    return layer.check(config) or layer.scratch(target_of(config))


def _init(
    layer: Declaration[Config], handle: Handle | None, config: Config | Pointer | None
) -> ErrorCode:
    """Sets a layer up: its state is 0, its weights are to be set.

    Args:
      handle: with the memory that get_persistent_fast asks for.
      config: the configuration, or a Pointer to it.

    Returns:
      A code.

    Raises:
      TypeError: a configuration of another layer.
      ValueError: a handle of too little memory.
    """
    if handle is not None:
        check_type(layer.name, "handle", handle, Handle)
    error = check_pointers((handle, BUFFER), (config, STRUCT)) or layer.check(config)
    if error or handle is None:
        return error
    known = target_of(config)
    size, wanted = handle.memory.nbytes, layer.persistent(known)
    if size < wanted:
        raise ValueError(f"the memory has {size} bytes, expected {wanted}")
    handle.layer = layer.start(known, handle.activation)
    return ErrorCode.NO_ERROR


def _set_config(
    layer: Declaration[Config], handle: Handle | None, param_id: int, params: Params
) -> ErrorCode:
    """Sets a parameter.

    Args:
      handle: of a layer.
      param_id: a `{layer}Param`, which describes `params`.
      params: the parameter; a structure, or a Pointer to it.

    Returns:
      A code; unless it is 0, nothing has changed.

    Raises:
      RuntimeError: a handle that does not hold a {layer}.
      TypeError: a parameter of another type.
      ValueError: memory of too few elements.
    """
    error = check_pointers((handle, BUFFER), (params, STRUCT))
    return error or layer.layer_of(handle).set(integer(layer.name, "param_id", param_id), params)


def _get_config(
    layer: Declaration[Config], handle: Handle | None, param_id: int, params: Params
) -> ErrorCode:
    """Reads a parameter.

    Args:
      handle: of a layer.
      param_id: a `{layer}Param`, which describes `params`.
      params: memory for a state; for all else a Pointer, to which the result is written.

    Returns:
      A code.

    Raises:
      RuntimeError: a handle that does not hold a {layer}.
      TypeError: `params` that the result cannot be written to.
      ValueError: memory of too few elements.
    """
    error = check_pointers((handle, BUFFER), (params, STRUCT))
    return error or layer.layer_of(handle).get(integer(layer.name, "param_id", param_id), params)


def _process(
    layer: Declaration[Config],
    handle: Handle | None,
    scratch: Memory,
    input: Memory,
    output: Memory,
    p_in_shape: Pointer | Shape | None,
    p_out_shape: Pointer | None,
) -> ErrorCode:
    """Computes one output.

    Args:
      handle: of a layer.
      scratch: memory, which stays as it is.
      input: memory of the input, in the type and the shape of the configuration.
      output: memory for the output.
      p_in_shape: of a recurrent layer a Pointer to a VECTOR of in_feats or more, which becomes
        in_feats; of a CNN the shape of the configuration, or a Pointer to it.
      p_out_shape: of a recurrent layer a Pointer to a VECTOR of out_feats or more, which becomes
        out_feats; of a CNN a Pointer, to which the shape of the output is written, or a shape of
        zeros where the library's kernels reject their arguments.

    Returns:
      A code. Weights that are not set give FATAL_MEM_ALLOC; the library's output is undefined.

    Raises:
      RuntimeError: a handle that does not hold a {layer}.
      TypeError: memory of another type.
      ValueError: memory of too few elements.
    """
    check_memory("scratch", scratch)
    memories = ((x, BUFFER) for x in (handle, scratch, input, output))
    error = check_pointers(*memories, (p_in_shape, STRUCT), (p_out_shape, STRUCT))
    return error or layer.layer_of(handle).process(input, output, p_in_shape, p_out_shape)


def _bound(
    function: Callable[Concatenate[Declaration[Config], P], Result], layer: Declaration[Config]
) -> Callable[P, Result]:
    """A function of one layer, with the name that it has in C."""
    whole = inspect.signature(function)
    signature = whole.replace(parameters=list(whole.parameters.values())[1:])

    def call(*args: P.args, **kwargs: P.kwargs) -> Result:
        # First, so that errors are about the arguments of C.
        signature.bind(*args, **kwargs)
        return function(layer, *args, **kwargs)

    name = layer.name.lower()
    doc = (function.__doc__ or "").replace("{layer}", layer.name)
    described(call, f"xa_nnlib_{name}{function.__name__}", f"{__package__}.{name}", doc, signature)
    return call
