"""The test bench of convolutions (guide 5.4)."""

from __future__ import annotations

import math
from types import SimpleNamespace

from tosajax.hifi.bench._job import Bench, Job
from tosajax.hifi.bench._kernel import (
    NAMES,
    Step,
    check_name,
    check_precision,
    file_options,
    kernel_job,
    library_step,
    then,
)
from tosajax.hifi.bench._options import FRAMES, VERIFY, WRITE_FILE, Option, flag, size, word
from tosajax.hifi.kernels.scratch import extent

# The names of options, by argument name in C, where they differ.
_RENAMED = {"weight_zero_bias": "kernel_zero_bias"}

_ABOUT = """Convolutions.

A file of inputs holds the input, the kernel and the bias, for each frame; with conv2d_depth also
the kernel and the bias of the pointwise function. Kernels are without the padding that they have
in memory: [out_channels, height, width, channels], or by inp_data_format the depthwise one [height,
width, channels] or [channels, height, width]. Inputs are [height, width, channels], of conv2d_depth
by inp_data_format. Kernels of conv1d_std are as wide as the input; it takes no other option of
widths, and none of x. With conv2d_depth the output is that of the pointwise function, which has
channels first, whatever out_data_format is, but for 8 bits. Quantized functions take the options
from input_zero_bias on, which the guide does not have."""

# The options of windows over an image, for convolutions and pools.
WINDOWS = (
    size("input_height", 16, "elements"),
    size("input_width", 16, "elements"),
    size("input_channels", 4, "elements"),
    size("kernel_height", 3, "elements"),
    size("kernel_width", 3, "elements"),
    size("x_stride", 2, "elements"),
    size("y_stride", 2, "elements"),
    size("x_padding", 2, "elements on the left", least=0),
    size("y_padding", 2, "elements at the top", least=0),
    size("out_height", 16, "elements"),
    size("out_width", 16, "elements"),
)
# The options for sizes of convolutions, by kernels or by the CNN layer.
SIZES = (
    *WINDOWS,
    size("out_channels", 4, "elements"),
    size("channels_multiplier", 1, "kernels for each channel, with conv2d_depth"),
    Option("bias_shift", 7, "bits to the left, of the bias"),
    Option("acc_shift", -7, "bits to the left, of the sum"),
)
FILES = (
    FRAMES,
    word("kernel_name", "conv2d_std", "the function", ("conv2d_std", "conv2d_depth", "conv1d_std")),
    WRITE_FILE,
    *file_options("inp"),
    VERIFY,
)

_OPTIONS = (
    *SIZES,
    flag("inp_data_format", 1, "of input and kernel with conv2d_depth: 1 for channels first"),
    flag("out_data_format", 0, "of the output: 1 for channels first"),
    Option("inp_precision", 16, "of the input", choices=(8, 16, -1, -3, -4)),
    Option("kernel_precision", 8, "of the kernel", choices=(8, 16, -1, -3, -5)),
    Option("out_precision", 16, "of the output", choices=(8, 16, -1, -3, -4)),
    Option("bias_precision", 16, "of the bias", choices=(8, 16, -1, 32)),
    *FILES,
    Option("input_zero_bias", -127, "of quantized inputs"),
    Option("kernel_zero_bias", -127, "of asym8u kernels"),
    Option("out_multiplier", 2**30, "of quantized outputs, of all channels"),
    Option("out_shift", -7, "of quantized outputs, of all channels"),
    Option("out_zero_bias", 127, "of quantized outputs"),
)


def _job(options: SimpleNamespace) -> Job:
    return job_of(options, step_of(options))


def job_of(options: SimpleNamespace, step: Step) -> Job:
    """Makes the job of a convolution."""
    weights = [array for array in step.inputs if array.name != "inp"]
    terms = sum(math.prod(array.shape[1:]) for array in weights)
    return kernel_job(options, step, terms=terms, room=room_of(options))


def step_of(options: SimpleNamespace) -> Step:
    """Makes the step of a convolution; of a depthwise and a pointwise one for conv2d_depth."""
    o = options
    check_precision(o, "out_precision", o.inp_precision)
    kernel, inp = NAMES[o.kernel_precision], NAMES[o.inp_precision]
    precision = "f32" if kernel == inp == "f32" else f"{kernel}x{inp}"
    precision = f"per_chan_{precision}" if kernel == "sym8s" else precision
    is_depth = o.kernel_name == "conv2d_depth"
    kinds = ("conv2d_depthwise", "conv2d_pointwise") if is_depth else (o.kernel_name,)
    names = [f"xa_nn_{kind}_{precision}" for kind in kinds]
    for name in names:
        check_name(name, "-kernel_name, -kernel_precision and -inp_precision")
    numbers = vars(o) | ({"out_data_format": 0} if is_depth else {})
    first = library_step(names[0], numbers, **_RENAMED)
    check_precision(o, "bias_precision", first.bias_precision)
    if not is_depth:
        return first
    is_first = 1 if inp in ("16", "f32") else o.out_data_format
    between = {
        "input_height": o.out_height,
        "input_width": o.out_width,
        "input_channels": o.input_channels * o.channels_multiplier,
        "out_data_format": is_first,
    }
    return then(first, library_step(names[1], vars(o) | between, **_RENAMED), "inp")


def room_of(options: SimpleNamespace) -> int:
    """The number of elements of a padded image and of all its windows."""
    o = options
    height = extent(o.input_height, o.kernel_height, o.y_stride, o.y_padding, o.out_height)
    rows = o.kernel_height * o.out_height
    if o.kernel_name == "conv1d_std":
        # A row is one element.
        return (height + rows) * o.input_width * o.input_channels
    width = extent(o.input_width, o.kernel_width, o.x_stride, o.x_padding, o.out_width)
    multiplier = o.channels_multiplier if o.kernel_name == "conv2d_depth" else 1
    windows = rows * o.kernel_width * o.out_width
    return (height * width + windows) * o.input_channels * multiplier


BENCH = Bench(_ABOUT, _OPTIONS, _job)
