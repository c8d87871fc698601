"""Makes the six C functions of a layer from its declaration, and defines their handles."""

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
    """Persistent memory, and its layer.

    The library stores a layer in the memory itself. Here the layer is a separate object; functions
    only check the memory's address and size.

    Args:
      memory: an array of as many bytes as get_persistent_fast returns.
      activation: the method of computing sigmoid and tanh; see `kernels.activations`.
      layer: the layer, set by the init function.

    Raises:
      TypeError: `memory` is not a NumPy array.
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
    """The declaration of a layer, from which its C functions are made.

    Args:
      name: the layer's name, such as "GRU".
      config: the class of its configurations.
      persistent: function that returns the bytes of persistent memory.
      scratch: function that returns the bytes of scratch memory.
      start: function that makes an initialized layer.
    """

    name: str
    config: type[Config]
    persistent: Callable[[Config], int]
    scratch: Callable[[Config], int]
    start: Callable[[Config, Activation], Layer]

    def check(self, config: Config | Pointer | None) -> ErrorCode:
        """Checks a configuration, or the target of a Pointer; returns a code."""
        target = target_of(config)
        if target is None:
            return ErrorCode.FATAL_MEM_ALLOC
        check_type(self.name, "config", target, self.config)
        fault = target.fault()
        return ErrorCode.NO_ERROR if fault is None else fault.code

    def layer_of(self, handle: Handle | None) -> Layer:
        """The layer of an initialized handle.

        Raises:
          RuntimeError: the handle does not have a layer of this kind.
          TypeError: `handle` is not a Handle.
        """
        if not isinstance(handle, Handle):
            raise wrong_type(self.name, "handle", handle, "Handle")
        layer = handle.layer
        if layer is None or layer.name != self.name:
            content = "nothing" if layer is None else layer.name
            wanted = f"expected {self.name}: call xa_nnlib_{self.name.lower()}_init first"
            raise RuntimeError(f"the handle holds {content}, {wanted}")
        return layer


def functions(layer: Declaration[Config]):
    """Makes the C functions of a layer, in the order in which programs call them."""
    return (
        _bound(_get_persistent_fast, layer),
        _bound(_get_scratch_fast, layer),
        _bound(_init, layer),
        _bound(_set_config, layer),
        _bound(_get_config, layer),
        _bound(_process, layer),
    )


def _get_persistent_fast(layer: Declaration[Config], config: Config | Pointer | None) -> int:
    """Returns the bytes of persistent memory, or a negative error code."""
    return layer.check(config) or layer.persistent(target_of(config))


def _get_scratch_fast(layer: Declaration[Config], config: Config | Pointer | None) -> int:
    """Returns the bytes of scratch memory, or a negative error code."""
    return layer.check(config) or layer.scratch(target_of(config))


def _init(
    layer: Declaration[Config], handle: Handle | None, config: Config | Pointer | None
) -> ErrorCode:
    """Initializes a layer: its state is 0, its weights are not set.

    Args:
      handle: a handle with as much memory as get_persistent_fast returns.
      config: the configuration, or a Pointer to it.

    Returns:
      An error code.

    Raises:
      TypeError: the configuration is for a different layer.
      ValueError: the handle has too little memory.
    """
    if handle is not None:
        check_type(layer.name, "handle", handle, Handle)
    error = check_pointers((handle, BUFFER), (config, STRUCT)) or layer.check(config)
    if error or handle is None:
        return error
    target = target_of(config)
    size, wanted = handle.memory.nbytes, layer.persistent(target)
    if size < wanted:
        raise ValueError(f"the memory has {size} bytes, expected {wanted}")
    handle.layer = layer.start(target, handle.activation)
    return ErrorCode.NO_ERROR


def _set_config(
    layer: Declaration[Config], handle: Handle | None, param_id: int, params: Params
) -> ErrorCode:
    """Sets a parameter.

    Args:
      handle: the layer's handle.
      param_id: a `{layer}Param`, which describes `params`.
      params: the parameter; a structure, or a Pointer to it.

    Returns:
      An error code; unless it is 0, nothing has changed.

    Raises:
      RuntimeError: the handle does not have a {layer}.
      TypeError: the parameter has the wrong type.
      ValueError: the memory has too few elements.
    """
    error = check_pointers((handle, BUFFER), (params, STRUCT))
    return error or layer.layer_of(handle).set(integer(layer.name, "param_id", param_id), params)


def _get_config(
    layer: Declaration[Config], handle: Handle | None, param_id: int, params: Params
) -> ErrorCode:
    """Reads a parameter.

    Args:
      handle: the layer's handle.
      param_id: a `{layer}Param`, which describes `params`.
      params: memory for a state; for other parameters a Pointer, whose target the result becomes.

    Returns:
      An error code.

    Raises:
      RuntimeError: the handle does not have a {layer}.
      TypeError: the result cannot be written to `params`.
      ValueError: the memory has too few elements.
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
      handle: the layer's handle.
      scratch: scratch memory, which is not written.
      input: memory of the input, with the type and shape of the configuration.
      output: memory for the output.
      p_in_shape: for a recurrent layer a Pointer to a VECTOR of in_feats or more, whose length
        becomes in_feats; for a CNN the shape in the configuration, or a Pointer to it.
      p_out_shape: for a recurrent layer a Pointer to a VECTOR of out_feats or more, whose length
        becomes out_feats; for a CNN a Pointer, whose target becomes the shape of the output, or a
        shape of zeros if the library's kernels reject their arguments.

    Returns:
      An error code: FATAL_MEM_ALLOC if weights are not set, where the library's output is
      undefined.

    Raises:
      RuntimeError: the handle does not have a {layer}.
      TypeError: memory has the wrong type.
      ValueError: memory has too few elements.
    """
    check_memory("scratch", scratch)
    memories = ((x, BUFFER) for x in (handle, scratch, input, output))
    error = check_pointers(*memories, (p_in_shape, STRUCT), (p_out_shape, STRUCT))
    return error or layer.layer_of(handle).process(input, output, p_in_shape, p_out_shape)


def _bound(
    function: Callable[Concatenate[Declaration[Config], P], Result], layer: Declaration[Config]
) -> Callable[P, Result]:
    """Binds a function to a layer, and gives it its name in C."""
    whole = inspect.signature(function)
    signature = whole.replace(parameters=list(whole.parameters.values())[1:])

    def call(*args: P.args, **kwargs: P.kwargs) -> Result:
        # Binds first, so that errors name the arguments of the C function.
        signature.bind(*args, **kwargs)
        return function(layer, *args, **kwargs)

    name = layer.name.lower()
    doc = (function.__doc__ or "").replace("{layer}", layer.name)
    described(call, f"xa_nnlib_{name}{function.__name__}", f"{__package__}.{name}", doc, signature)
    return call
