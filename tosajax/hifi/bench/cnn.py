"""The test bench of the CNN layer (guide 5.10)."""

from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np

from tosajax.hifi import layers
from tosajax.hifi.bench import conv
from tosajax.hifi.bench._files import Frame
from tosajax.hifi.bench._job import Bench, Job
from tosajax.hifi.bench._library import ask, refusals, set_up
from tosajax.hifi.bench._options import Option, check, flag
from tosajax.hifi.layers import CNNConfig, CNNParam, CNNWeights, Pointer, Precision

_NAME = "xa_nnlib_cnn_process"
# The layer's precision, by the precisions of kernel and input.
_PRECISIONS = {
    (16, 16): Precision.P16bx16b,
    (8, 16): Precision.P8bx16b,
    (8, 8): Precision.P8bx8b,
    (-1, -1): Precision.F32xF32,
}
# The names of options, by field name of a configuration, where they differ.
_RENAMED = {
    "output_height": "out_height",
    "output_width": "out_width",
    "channels * multiplier": "input_channels * channels_multiplier",
}

_ABOUT = """The CNN layer.

A file of inputs holds the input, the kernel and the bias, for each frame; with conv2d_depth also
the kernel and the bias of the pointwise convolution. Kernels are without the padding that they
have in memory: [out_channels, height, width, channels], or the depthwise one [channels, height,
width]. Inputs are [height, width, channels]; with conv2d_depth they and the output have channels
first, whatever out_data_format is. Kernels of conv1d_std are as wide as the input; it takes no
other option of widths, and none of x."""

_OPTIONS = (
    *conv.SIZES,
    flag("out_data_format", 0, "of the output: 1 for channels first"),
    Option("inp_precision", 16, "of the input", choices=(8, 16, -1)),
    Option("kernel_precision", 8, "of the kernel", choices=(8, 16, -1)),
    Option("out_precision", 16, "of the output", choices=(8, 16, -1)),
    Option("bias_precision", 16, "of the bias", choices=(8, 16, -1)),
    *conv.FILES,
)


def _job(options: SimpleNamespace) -> Job:
    kernel, inp = options.kernel_precision, options.inp_precision
    holds = (kernel, inp) in _PRECISIONS
    check(holds, f"-kernel_precision is {kernel}, expected another with inp_precision {inp}")
    is_depth = options.kernel_name == "conv2d_depth"
    formats = {"inp_data_format": int(is_depth)} | ({"out_data_format": 1} if is_depth else {})
    options = SimpleNamespace(**{**vars(options), **formats})
    run = functools.partial(_run, _config(options, _PRECISIONS[kernel, inp]))
    # The step of the kernels has the same arrays; only its function is replaced.
    return conv.job_of(options, conv.step_of(options)._replace(name=_NAME, run=run))


def _config(options: SimpleNamespace, precision: int) -> CNNConfig:
    o = options
    common: dict[str, Any] = {
        "input_size": (o.input_height, o.input_width, o.input_channels),
        "output_channels": o.out_channels,
        "precision": precision,
        "acc_shift": o.acc_shift,
        "bias_shift": o.bias_shift,
    }
    if o.kernel_name == "conv1d_std":
        return layers.conv1d_std_config(
            kernel_height=o.kernel_height,
            output_height=o.out_height,
            stride=o.y_stride,
            padding=o.y_padding,
            output_format=o.out_data_format,
            **common,
        )
    common |= {
        "kernel_size": (o.kernel_height, o.kernel_width),
        "output_size": (o.out_height, o.out_width),
        "strides": (o.y_stride, o.x_stride),
        "padding": (o.y_padding, o.x_padding),
    }
    if o.kernel_name == "conv2d_std":
        return layers.conv2d_std_config(output_format=o.out_data_format, **common)
    return layers.conv2d_ds_config(channels_multiplier=o.channels_multiplier, **common)


def _run(config: CNNConfig, frame: Frame) -> np.ndarray:
    """Initializes a layer and convolves one image, as a C program does."""
    x, *operands = frame.values()
    weights = CNNWeights(*operands)
    with refusals(_NAME, **_RENAMED):
        # Raises errors with messages; the C functions below return only codes.
        out = jax.eval_shape(functools.partial(layers.cnn_apply, config), weights, x)
    handle, scratch = set_up("cnn", config)
    kernels, biases = layers.cnn_pointers(config, weights)
    ask("cnn", "set_config", handle, CNNParam.KERNEL, kernels)
    ask("cnn", "set_config", handle, CNNParam.BIAS, biases)
    result = np.zeros(out.shape, out.dtype)
    ask("cnn", "process", handle, scratch, x, result, config.input_shape, Pointer())
    return result


BENCH = Bench(_ABOUT, _OPTIONS, _job)
