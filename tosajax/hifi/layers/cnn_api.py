"""The C functions of the CNN layer (guide 4.3.3), which return codes instead of raising.

They stand for xa_nnlib_cnn_*: sizes, init, set_config, get_config, and process for each image.
Pointers are as in `tosajax.hifi._memory`; arguments have no other meaning than in C.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from tosajax.hifi._memory import Pointer, check_memory, elements, pointer, target_of
from tosajax.hifi.errors import ErrorCode, NNLibParamError
from tosajax.hifi.kernels import (
    conv1d_std_getsize,
    conv2d_depthwise_getsize,
    conv2d_std_getsize,
)
from tosajax.hifi.kernels._check import check_type, integer
from tosajax.hifi.kernels._precision import PRECISIONS
from tosajax.hifi.layers import _handle, cnn
from tosajax.hifi.layers._handle import BUFFER, STRUCT, Handle, check_pointers
from tosajax.hifi.layers.cnn import STAGES, Algo, CNNConfig, CNNWeights
from tosajax.hifi.layers.shape import Shape

_PERSISTENT = 368
_NOTHING = Shape(n_shapes=0, shape_offset=0)


class CNNParam(enum.IntEnum):
    """What set_config and get_config take; the shapes can only be read."""

    KERNEL = 1
    BIAS = 2
    INPUT_SHAPE = 3
    OUTPUT_SHAPE = 4


@dataclasses.dataclass(eq=False)
class CNNLayer:
    """A layer in persistent memory.

    Args:
      config: as it was initialized.
      kernels: pointers to the standard kernel, or to the depthwise and the pointwise one.
      biases: the same.
    """

    config: CNNConfig
    kernels: tuple[Any, ...]
    biases: tuple[Any, ...]
    name: str = "CNN"


def cnn_pointers(
    config: CNNConfig, weights: CNNWeights
) -> tuple[tuple[np.ndarray, ...], tuple[np.ndarray, ...]]:
    """What set_config takes for weights: kernels as they lie in memory, and biases."""
    check_type("cnn_pointers", "config", config, CNNConfig)
    check_type("cnn_pointers", "weights", weights, CNNWeights)
    stages = _stages(config)
    kernels = (weights.kernel, weights.point_kernel)[:stages]
    biases = (weights.bias, weights.point_bias)[:stages]
    packed = (layout.pack(k) for layout, k in zip(_layouts(config), kernels, strict=True))
    return tuple(packed), tuple(np.array(bias) for bias in biases)


def xa_nnlib_cnn_get_persistent_fast(config: CNNConfig | Pointer | None) -> int:
    """Bytes of persistent memory, or a code below 0."""
    return _handle.check_config(CNNConfig, config) or _PERSISTENT


def xa_nnlib_cnn_get_scratch_fast(config: CNNConfig | Pointer | None) -> int:
    """Bytes of scratch memory, or a code below 0; not the library's number but for CONV1D_STD."""
    return _handle.check_config(CNNConfig, config) or _scratch(target_of(config))


def xa_nnlib_cnn_init(handle: Handle | None, config: CNNConfig | Pointer | None) -> ErrorCode:
    """Sets a layer up, whose kernels and biases are to be set.

    Args:
      handle: with the memory that xa_nnlib_cnn_get_persistent_fast asks for.
      config: the configuration, or a Pointer to it.

    Returns:
      A code.

    Raises:
      TypeError: a configuration of another layer.
      ValueError: a handle of too little memory.
    """
    error = _handle.check_init(CNNConfig, handle, config)
    if error or handle is None:
        return error
    known = target_of(config)
    nothing = (None,) * _stages(known)
    handle.put(CNNLayer(known, nothing, nothing), _PERSISTENT)
    return ErrorCode.NO_ERROR


def xa_nnlib_cnn_set_config(handle: Handle | None, param_id: int, params: Any) -> ErrorCode:
    """Sets a parameter.

    Args:
      handle: of a layer.
      param_id: a `CNNParam`.
      params: a tuple of memory, or a Pointer to one: for the standard convolution, or for the
        depthwise and the pointwise one. `cnn_pointers` lays it out.

    Returns:
      A code; where it is not 0, nothing has changed.

    Raises:
      RuntimeError: a handle that holds no CNN.
      TypeError: parameters of another type.
    """
    error = check_pointers((handle, BUFFER), (params, STRUCT))
    if error:
        return error
    layer = _handle.layer_of(handle, "CNN")
    param_id = integer("CNN", "param_id", param_id)
    if param_id not in (CNNParam.KERNEL, CNNParam.BIAS):
        return ErrorCode.CNN_CONFIG_FATAL_INVALID_PARAM_ID
    given, stages = target_of(params), _stages(layer.config)
    if not isinstance(given, tuple | list) or len(given) != stages:
        raise TypeError(f"params is {type(given).__name__}, expected {stages} pointers in a tuple")
    for memory in given:
        check_memory("an element of params", memory)
    error = check_pointers(*((memory, BUFFER) for memory in given))
    if error:
        return error
    if param_id == CNNParam.KERNEL:
        layer.kernels = tuple(given)
    else:
        layer.biases = tuple(given)
    return ErrorCode.NO_ERROR


def xa_nnlib_cnn_get_config(handle: Handle | None, param_id: int, params: Any) -> ErrorCode:
    """Reads a parameter.

    Args:
      handle: of a layer.
      param_id: a `CNNParam`; for BIAS the library also returns the kernels.
      params: a Pointer, to which the result is written.

    Returns:
      A code.

    Raises:
      RuntimeError: a handle that holds no CNN.
      TypeError: parameters that nothing can be written to.
    """
    error = check_pointers((handle, BUFFER), (params, STRUCT))
    if error:
        return error
    layer = _handle.layer_of(handle, "CNN")
    match integer("CNN", "param_id", param_id):
        case CNNParam.KERNEL | CNNParam.BIAS:
            found = layer.kernels
        case CNNParam.INPUT_SHAPE:
            found = layer.config.input_shape
        case CNNParam.OUTPUT_SHAPE:
            found = cnn.output_shape(layer.config)
        case _:
            return ErrorCode.CNN_CONFIG_FATAL_INVALID_PARAM_ID
    pointer("params", params).target = found
    return ErrorCode.NO_ERROR


def xa_nnlib_cnn_process(
    handle: Handle | None,
    scratch: np.ndarray | None,
    input: np.ndarray | None,
    output: np.ndarray | None,
    p_in_shape: Pointer | Shape | None,
    p_out_shape: Pointer | None,
) -> ErrorCode:
    """Convolves one image.

    Args:
      handle: of a layer.
      scratch: memory, which is left as it is.
      input: memory of the input, in the type and the shape of the configuration.
      output: the same for the output.
      p_in_shape: the shape of the configuration, or a Pointer to it.
      p_out_shape: a Pointer, to which the shape of the output is written; where the kernels of the
        library reject their arguments, one of zeros.

    Returns:
      A code. Kernels and biases that are not set give FATAL_MEM_ALLOC.

    Raises:
      RuntimeError: a handle that holds no CNN.
      TypeError: memory of another type.
      ValueError: memory of too few elements.
    """
    error = _handle.check_process(handle, scratch, input, output, p_in_shape, p_out_shape)
    if error:
        return error
    layer = _handle.layer_of(handle, "CNN")
    config, p_out_shape = layer.config, pointer("p_out_shape", p_out_shape)
    if any(memory is None for memory in (*layer.kernels, *layer.biases)):
        return ErrorCode.FATAL_MEM_ALLOC
    in_shape = target_of(p_in_shape)
    if in_shape is not None:
        check_type("CNN", "p_in_shape", in_shape, Shape)
    if in_shape != config.input_shape:
        return ErrorCode.CNN_CONFIG_FATAL_INVALID_INPUT_SHAPE
    x, weights = _input(config, input), _weights(layer)
    try:
        y = np.asarray(_compiled(config)(weights, x))
    except NNLibParamError:
        p_out_shape.target = _NOTHING
        return ErrorCode.CNN_CONFIG_FATAL_INVALID_PARAM_COMBINATION
    elements("output", output, y.dtype, y.size)[:] = y.reshape(-1)
    p_out_shape.target = cnn.output_shape(config)
    return ErrorCode.NO_ERROR


def _stages(config: CNNConfig) -> int:
    return 2 if config.algo == Algo.CONV2D_DS else 1


class _Layout(NamedTuple):
    """A kernel in memory: its last `axes` are a row, and rows are `stride` elements apart."""

    shape: tuple[int, ...]
    axes: int
    stride: int

    @property
    def rows(self) -> int:
        return math.prod(self.shape[: -self.axes])

    @property
    def columns(self) -> int:
        return math.prod(self.shape[-self.axes :])

    def pack(self, kernel: Any) -> np.ndarray:
        rows = np.asarray(kernel).reshape(self.rows, self.columns)
        return np.pad(rows, [(0, 0), (0, self.stride - self.columns)])

    def unpack(self, memory: Any, dtype: type) -> np.ndarray:
        padded = elements("kernel", memory, dtype, self.rows * self.stride)
        return padded.reshape(self.rows, self.stride)[:, : self.columns].reshape(self.shape)


def _layouts(config: CNNConfig) -> tuple[_Layout, ...]:
    _, shapes = cnn.array_shapes(config)
    if config.algo == Algo.CONV2D_DS:
        depthwise, pointwise = shapes
        row = config.kernel_ds_depth_shape.dim.height_offset
        return _Layout(depthwise, 1, row), _Layout(pointwise, 1, pointwise[-1])
    (shape,), kernel = shapes, config.kernel_std_shape.dim
    if config.algo == Algo.CONV1D_STD:
        return (_Layout(shape, 2, kernel.height_offset),)
    return (_Layout(shape, 1, kernel.width_offset),)


def _weights(layer: CNNLayer) -> CNNWeights:
    """The weights that pointers lead to."""
    types, weights = _types(layer.config), {}
    stages = zip(STAGES, _layouts(layer.config), layer.kernels, layer.biases, strict=False)
    for (kernel, bias), layout, of_kernel, of_bias in stages:
        weights[kernel] = layout.unpack(of_kernel, types.weight)
        weights[bias] = elements("bias", of_bias, types.bias, layout.shape[0])
    return CNNWeights(**weights)


def _input(config: CNNConfig, memory: Any) -> np.ndarray:
    shape, _ = cnn.array_shapes(config)
    return elements("input", memory, _types(config).input, math.prod(shape)).reshape(shape)


def _scratch(config: CNNConfig) -> int:
    dtype = np.dtype(_types(config).input)
    bits = -1 if dtype == np.float32 else 8 * dtype.itemsize
    size = config.input_shape.dim
    if config.algo == Algo.CONV2D_DS:
        kernel = config.kernel_ds_depth_shape.dim
        between = config.output_height * config.output_width * kernel.depth * dtype.itemsize
        return between + conv2d_depthwise_getsize(
            size.height,
            size.width,
            size.depth,
            kernel.height,
            kernel.width,
            config.channels_multiplier,
            config.x_stride,
            config.y_stride,
            config.x_padding,
            config.y_padding,
            config.output_height,
            config.output_width,
            bits,
            1,
        )
    kernel = config.kernel_std_shape.dim
    if config.algo == Algo.CONV1D_STD:
        return conv1d_std_getsize(kernel.height, size.width, size.depth, bits)
    return conv2d_std_getsize(
        size.height,
        size.depth,
        kernel.height,
        kernel.width,
        config.y_stride,
        config.y_padding,
        config.output_height,
        bits,
    )


def _types(config: CNNConfig) -> Any:
    return PRECISIONS[cnn.KERNEL_PRECISIONS[config.precision]]


@functools.cache
def _compiled(config: CNNConfig) -> Callable[..., Any]:
    return jax.jit(functools.partial(cnn.cnn_apply, config))
