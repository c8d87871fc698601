"""The C functions of the CNN layer (guide 4.3.3), xa_nnlib_cnn_*, which return codes.

The number of bytes of scratch memory equals the library's only for CONV1D_STD.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from tosajax.hifi.capi.layers._functions import Activation, Declaration, Params, functions
from tosajax.hifi.capi.memory import (
    BUFFER,
    Layout,
    Memory,
    Pointer,
    check_memory,
    check_pointers,
    elements,
    pointer,
    target_of,
)
from tosajax.hifi.errors import ErrorCode, NNLibParamError
from tosajax.hifi.kernels import (
    conv1d_std_getsize,
    conv2d_depthwise_getsize,
    conv2d_std_getsize,
)
from tosajax.hifi.kernels._check import check_type
from tosajax.hifi.layers import cnn
from tosajax.hifi.layers.cnn import STAGES, Algo, CNNConfig, CNNWeights
from tosajax.hifi.layers.shape import Shape

_PERSISTENT = 368
_NO_SHAPE = Shape(n_shapes=0, shape_offset=0)


class CNNParam(enum.IntEnum):
    """The parameters of set_config and get_config; the shapes can only be read.

    KERNEL and BIAS are tuples of memory: for the standard convolution, or for the depthwise and the
    pointwise convolution. `cnn_pointers` makes them. Reading BIAS returns the kernels, as in the
    library.
    """

    KERNEL = 1
    BIAS = 2
    INPUT_SHAPE = 3
    OUTPUT_SHAPE = 4


def cnn_pointers(
    config: CNNConfig, weights: CNNWeights
) -> tuple[tuple[np.ndarray, ...], tuple[np.ndarray, ...]]:
    """Makes the parameters KERNEL and BIAS from weights, with the memory layout of `config`."""
    check_type("cnn_pointers", "config", config, CNNConfig)
    check_type("cnn_pointers", "weights", weights, CNNWeights)
    layouts = _layouts(config)
    kernels = (weights.kernel, weights.point_kernel)[: len(layouts)]
    biases = (weights.bias, weights.point_bias)[: len(layouts)]
    packed = (layout.pack(kernel) for layout, kernel in zip(layouts, kernels, strict=True))
    return tuple(packed), tuple(np.array(bias) for bias in biases)


@dataclasses.dataclass(eq=False)
class _Layer:
    """A layer in persistent memory.

    Args:
      config: the configuration passed to init.
      kernels: pointers to the standard kernel, or to the depthwise and the pointwise kernel.
      biases: pointers to the biases, in the same order.
    """

    config: CNNConfig
    kernels: tuple[Memory, ...]
    biases: tuple[Memory, ...]
    name: str = "CNN"

    def set(self, param_id: int, params: Params) -> ErrorCode:
        if param_id not in (CNNParam.KERNEL, CNNParam.BIAS):
            return ErrorCode.CNN_CONFIG_FATAL_INVALID_PARAM_ID
        pointers, count = target_of(params), len(self.kernels)
        if not isinstance(pointers, tuple | list) or len(pointers) != count:
            kind = type(pointers).__name__
            raise TypeError(f"params is {kind}, expected {count} pointers in a tuple")
        for memory in pointers:
            check_memory("an element of params", memory)
        error = check_pointers(*((memory, BUFFER) for memory in pointers))
        if error:
            return error
        if param_id == CNNParam.KERNEL:
            self.kernels = tuple(pointers)
        else:
            self.biases = tuple(pointers)
        return ErrorCode.NO_ERROR

    def get(self, param_id: int, params: Params) -> ErrorCode:
        match param_id:
            case CNNParam.KERNEL | CNNParam.BIAS:
                target = self.kernels
            case CNNParam.INPUT_SHAPE:
                target = self.config.input_shape
            case CNNParam.OUTPUT_SHAPE:
                target = cnn.output_shape(self.config)
            case _:
                return ErrorCode.CNN_CONFIG_FATAL_INVALID_PARAM_ID
        pointer("params", params).target = target
        return ErrorCode.NO_ERROR

    def process(
        self,
        input: Memory,
        output: Memory,
        p_in_shape: Pointer | Shape | None,
        p_out_shape: Pointer | None,
    ) -> ErrorCode:
        config, p_out_shape = self.config, pointer("p_out_shape", p_out_shape)
        if any(memory is None for memory in (*self.kernels, *self.biases)):
            return ErrorCode.FATAL_MEM_ALLOC
        in_shape = target_of(p_in_shape)
        if in_shape is not None:
            check_type("CNN", "p_in_shape", in_shape, Shape)
        if in_shape != config.input_shape:
            return ErrorCode.CNN_CONFIG_FATAL_INVALID_INPUT_SHAPE
        x, weights = _input(config, input), self._weights()
        try:
            y = np.asarray(_compiled(config)(weights, x))
        except NNLibParamError:
            p_out_shape.target = _NO_SHAPE
            return ErrorCode.CNN_CONFIG_FATAL_INVALID_PARAM_COMBINATION
        elements("output", output, y.dtype, y.size)[:] = y.reshape(-1)
        p_out_shape.target = cnn.output_shape(config)
        return ErrorCode.NO_ERROR

    def _weights(self) -> CNNWeights:
        """Reads the weights from memory."""
        types, weights = cnn.types_of(self.config), {}
        stages = zip(STAGES, _layouts(self.config), self.kernels, self.biases, strict=False)
        for (kernel, bias), layout, of_kernel, of_bias in stages:
            weights[kernel] = layout.unpack("kernel", of_kernel, types.weight)
            weights[bias] = elements("bias", of_bias, types.bias, layout.shape[0])
        return CNNWeights(**weights)


def _start(config: CNNConfig, _: Activation) -> _Layer:
    null = (None,) * len(_layouts(config))
    return _Layer(config, null, null)


def _layouts(config: CNNConfig) -> tuple[Layout, ...]:
    """The memory layout of the kernels of each convolution."""
    _, shapes = cnn.array_shapes(config)
    if config.algo == Algo.CONV2D_DS:
        depthwise, pointwise = shapes
        row = config.kernel_ds_depth_shape.dim.height_offset
        return Layout(depthwise, 1, row), Layout(pointwise, 1, pointwise[-1])
    (shape,), kernel = shapes, config.kernel_std_shape.dim
    if config.algo == Algo.CONV1D_STD:
        return (Layout(shape, 2, kernel.height_offset),)
    return (Layout(shape, 1, kernel.width_offset),)


def _input(config: CNNConfig, memory: Memory) -> np.ndarray:
    shape, _ = cnn.array_shapes(config)
    dtype = cnn.types_of(config).input
    return elements("input", memory, dtype, math.prod(shape)).reshape(shape)


def _scratch(config: CNNConfig) -> int:
    dtype = np.dtype(cnn.types_of(config).input)
    bits = -1 if dtype == np.float32 else 8 * dtype.itemsize
    size, outputs = config.input_shape.dim, (config.output_height, config.output_width)
    if config.algo == Algo.CONV2D_DS:
        kernel = config.kernel_ds_depth_shape.dim
        strides, padding = (config.x_stride, config.y_stride), (config.x_padding, config.y_padding)
        image = size.height, size.width, size.depth
        window = kernel.height, kernel.width, config.channels_multiplier, *strides, *padding
        between = math.prod(outputs) * kernel.depth * dtype.itemsize
        return between + conv2d_depthwise_getsize(*image, *window, *outputs, bits, 1)
    kernel = config.kernel_std_shape.dim
    if config.algo == Algo.CONV1D_STD:
        return conv1d_std_getsize(kernel.height, size.width, size.depth, bits)
    rows = config.y_stride, config.y_padding, config.output_height
    return conv2d_std_getsize(size.height, size.depth, kernel.height, kernel.width, *rows, bits)


@functools.cache
def _compiled(config: CNNConfig) -> Callable[..., Any]:
    return jax.jit(functools.partial(cnn.cnn_apply, config))


(
    xa_nnlib_cnn_get_persistent_fast,
    xa_nnlib_cnn_get_scratch_fast,
    xa_nnlib_cnn_init,
    xa_nnlib_cnn_set_config,
    xa_nnlib_cnn_get_config,
    xa_nnlib_cnn_process,
) = functions(Declaration("CNN", CNNConfig, lambda _: _PERSISTENT, _scratch, _start))
