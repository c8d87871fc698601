"""The test bench of convolutions (guide 5.4)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from types import SimpleNamespace

import numpy as np

from tosajax.hifi.bench import _reference
from tosajax.hifi.bench._files import Array, Frame
from tosajax.hifi.bench._job import (
    BIAS_LIMIT,
    BIASES,
    NAMES,
    TYPES,
    Job,
    call,
    check_name,
    check_precision,
    file_options,
    kernel_job,
)
from tosajax.hifi.bench._options import FRAMES, VERIFY, WRITE_FILE, Option, flag, size, word
from tosajax.hifi.bench._verify import Tolerance
from tosajax.hifi.bench._window import Axes, axes_of, room_of

_KERNELS = ("conv2d_std", "conv2d_depth", "conv1d_std")

ABOUT = """Convolutions.

A file of inputs holds the input, the kernel and the bias, for each frame; with conv2d_depth the
kernel and the bias of the pointwise function, too. Kernels are without the padding that they have
in memory: [out_channels, height, width, channels], or by inp_data_format the depthwise one [height,
width, channels] or [channels, height, width]. Inputs are [height, width, channels], of conv2d_depth
by inp_data_format. With conv2d_depth the output is that of the pointwise function, which but for 8
bits has channels first, whatever out_data_format is. Quantized functions take the options from
input_zero_bias on, which the guide does not have."""

# What the CNN layer has, too.
SIZES = (
    size("input_height", 16, "elements"),
    size("input_width", 16, "elements; of conv1d_std the kernel's, too"),
    size("input_channels", 4, "elements"),
    size("kernel_height", 3, "elements"),
    size("kernel_width", 3, "elements; not of conv1d_std"),
    size("out_channels", 4, "elements"),
    size("channels_multiplier", 1, "kernels for each channel, with conv2d_depth"),
    size("x_stride", 2, "elements; not of conv1d_std"),
    size("y_stride", 2, "elements"),
    size("x_padding", 2, "elements on the left; not of conv1d_std", least=0),
    size("y_padding", 2, "elements at the top", least=0),
    size("out_height", 16, "elements"),
    size("out_width", 16, "elements; not of conv1d_std"),
    Option("bias_shift", 7, "bits to the left, of the bias"),
    Option("acc_shift", -7, "bits to the left, of the sum"),
)
KERNEL_NAME = word("kernel_name", "conv2d_std", "what runs", _KERNELS)
FILES = (FRAMES, KERNEL_NAME, WRITE_FILE, *file_options("inp"), VERIFY)

OPTIONS = (
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


def job(options: SimpleNamespace) -> Job:
    """What to run for some options."""
    check_precisions(options)
    kernel, inp = NAMES[options.kernel_precision], NAMES[options.inp_precision]
    precision = "f32" if kernel == inp == "f32" else f"{kernel}x{inp}"
    precision = f"per_chan_{precision}" if kernel == "sym8s" else precision
    is_depth = options.kernel_name == "conv2d_depth"
    steps = ("conv2d_depthwise", "conv2d_pointwise") if is_depth else (options.kernel_name,)
    names = [f"xa_nn_{step}_{precision}" for step in steps]
    for name in names:
        check_name(name, "-kernel_name, -kernel_precision and -inp_precision")
    if is_depth and options.inp_precision in (16, -1):
        options = SimpleNamespace(**{**vars(options), "out_data_format": 1})

    def run(frame: Frame) -> np.ndarray:
        return _run(names, options, frame)

    return convolution_job(", ".join(names), options, run)


def check_precisions(options: SimpleNamespace) -> None:
    """Refuses precisions of output and bias that are not those of the input."""
    check_precision(options, "out_precision", options.inp_precision)
    check_precision(options, "bias_precision", BIASES[options.inp_precision])


def convolution_job(name: str, options: SimpleNamespace, run: Callable[[Frame], np.ndarray]) -> Job:
    """The job of a convolution, or of a layer that is one; `run` is as for `kernel_job`."""
    arrays, output = _arrays(options), _output(options)
    more = {"conv1d_std": options.input_width, "conv2d_depth": options.channels_multiplier}
    return kernel_job(
        name,
        options,
        {"inp": arrays},
        output,
        run,
        lambda frame: _expected(options, frame, output),
        Tolerance(terms=sum(math.prod(array.shape[1:]) for array in arrays[1:])),
        room=room_of(_axes(options)) * options.input_channels * more.get(options.kernel_name, 1),
    )


def _is_1d(options: SimpleNamespace) -> bool:
    return options.kernel_name == "conv1d_std"


def _axes(options: SimpleNamespace) -> Axes:
    return axes_of(options, is_1d=_is_1d(options))


def _arrays(options: SimpleNamespace) -> list[Array]:
    """The arrays of a file."""
    inp, ker = TYPES[options.inp_precision], TYPES[options.kernel_precision]
    bias = TYPES[options.bias_precision]
    limit = BIAS_LIMIT if options.inp_precision in (-3, -4) else None
    image = options.input_height, options.input_width, options.input_channels
    window, channels = (options.kernel_height, options.kernel_width), options.out_channels
    if options.kernel_name != "conv2d_depth":
        window = (window[0], image[1]) if _is_1d(options) else window
        return [
            Array("input", inp, image),
            Array("kernel", ker, (channels, *window, image[2])),
            Array("bias", bias, (channels,), limit),
        ]
    between = image[2] * options.channels_multiplier
    is_first = options.inp_data_format
    return [
        Array("input", inp, _cube(is_first, *image)),
        Array("kernel", ker, _cube(is_first, *window, between)),
        Array("bias", bias, (between,), limit),
        Array("point_kernel", ker, (channels, between)),
        Array("point_bias", bias, (channels,), limit),
    ]


def _output(options: SimpleNamespace) -> Array:
    height, width = options.out_height, options.out_width
    size = (height,) if _is_1d(options) else (height, width)
    shape = _cube(options.out_data_format, *size, options.out_channels)
    return Array("out", TYPES[options.out_precision], shape)


def _cube(is_first: int, *shape: int) -> tuple[int, ...]:
    """A shape whose channels are last, or first."""
    return (shape[-1], *shape[:-1]) if is_first else shape


def _run(names: Sequence[str], options: SimpleNamespace, frame: Frame) -> np.ndarray:
    """Calls a function, or the depthwise one and then the pointwise one."""
    output = _output(options)
    out = np.zeros(output.shape, output.dtype)
    inp, ker, bias = (frame[name] for name in ("input", "kernel", "bias"))
    if len(names) == 1:
        _call(names[0], options, inp, _padded(ker, options), bias, out)
        return out
    between = np.zeros((options.out_height, options.out_width, bias.size), output.dtype)
    _call(names[0], options, inp, ker, bias, between, out_data_format=0)
    image = dict(zip(("input_height", "input_width", "input_channels"), between.shape, strict=True))
    operands = between, frame["point_kernel"], frame["point_bias"]
    _call(names[1], options, *operands, out, **image)
    return out


def _call(
    name: str,
    options: SimpleNamespace,
    inp: np.ndarray,
    ker: np.ndarray,
    bias: np.ndarray,
    out: np.ndarray,
    **more: int,
) -> None:
    pointers = {"p_inp": inp, "p_ker": ker, "p_bias": bias, "p_out": out}
    scales = {
        f"p_{name}": np.full(bias.size, getattr(options, name), np.int32)
        for name in ("out_multiplier", "out_shift")
    }
    scratch = {"p_scratch": np.zeros(8, np.int8)}
    values = {**vars(options), **pointers, **scales, **scratch, **more}
    call(name, values, weight_zero_bias="kernel_zero_bias")


def in_memory(kernel: np.ndarray, multiple: int, axes: int = 1) -> np.ndarray:
    """A kernel as it lies in memory: its last `axes` are a row, of a multiple of elements."""
    rows = kernel.reshape(*kernel.shape[:-axes], -1)
    return np.pad(rows, [*[(0, 0)] * (rows.ndim - 1), (0, -rows.shape[-1] % multiple)])


def _padded(kernel: np.ndarray, options: SimpleNamespace) -> np.ndarray:
    """The kernel of a standard convolution in memory."""
    is_1d = _is_1d(options)
    multiples = {-1: 2, 16: 4, 8: 4 if is_1d else 1}
    return in_memory(kernel, multiples.get(options.inp_precision, 1), 2 if is_1d else 1)


def _expected(options: SimpleNamespace, frame: Frame, output: Array) -> np.ndarray:
    is_quantized = options.inp_precision in (-3, -4)
    names = _reference.SCALE if is_quantized else _reference.SHIFTS
    numbers = {name: getattr(options, name) for name in names}
    inp_bias = options.input_zero_bias if is_quantized else 0
    # Weights of sym8s have none.
    ker_bias = options.kernel_zero_bias if options.kernel_precision == -3 else 0
    image = _reference.wide(frame["input"]) + inp_bias
    kernel = _reference.wide(frame["kernel"]) + ker_bias
    if _is_1d(options):
        image, kernel = (x.reshape(*x.shape[:-2], 1, -1) for x in (image, kernel))
    if options.kernel_name == "conv2d_depth":
        if options.inp_data_format:
            image, kernel = (np.moveaxis(x, 0, -1) for x in (image, kernel))
        sums = _reference.depthwise(image, kernel, _axes(options))
        between = _reference.finish(sums, frame["bias"], output.dtype, numbers)
        sums = _reference.dot(frame["point_kernel"], between, ker_bias, inp_bias)
        out = _reference.finish(sums, frame["point_bias"], output.dtype, numbers)
    else:
        sums = _reference.conv2d(image, kernel, _axes(options))
        out = _reference.finish(sums, frame["bias"], output.dtype, numbers)
    if _is_1d(options):
        out = out[:, 0]
    return np.moveaxis(out, -1, 0) if options.out_data_format else out
