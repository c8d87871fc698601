"""The test bench of pooling (guide 5.6)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from tosajax.hifi.bench import _reference
from tosajax.hifi.bench._files import Array, Frame
from tosajax.hifi.bench._job import (
    NAMES,
    TYPES,
    Job,
    call,
    check_precision,
    file_options,
    kernel_job,
)
from tosajax.hifi.bench._options import FRAMES, VERIFY, WRITE_FILE, Option, check, flag, size, word
from tosajax.hifi.bench._verify import Tolerance
from tosajax.hifi.bench._window import axes_of, room_of

ABOUT = """Pooling of images.

A file of inputs holds an image for each frame. The formats of input and output are the same.
acc_shift is of no effect."""

OPTIONS = (
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
    Option("acc_shift", -7, "of no effect"),
    flag("inp_data_format", 1, "of the input: 1 for channels first"),
    flag("out_data_format", 1, "of the output: 1 for channels first"),
    Option("inp_precision", 16, "of the input", choices=(8, 16, -1, -3)),
    Option("out_precision", 16, "of the output", choices=(8, 16, -1, -3)),
    FRAMES,
    word("kernel_name", "avgpool", "what runs", ("avgpool", "maxpool")),
    WRITE_FILE,
    *file_options("inp"),
    VERIFY,
)


def job(options: SimpleNamespace) -> Job:
    """What to run for some options."""
    check_precision(options, "out_precision", options.inp_precision)
    is_first, same = options.inp_data_format, options.out_data_format
    check(same == is_first, f"-out_data_format is {same}, expected inp_data_format, {is_first}")
    name = f"xa_nn_{options.kernel_name}_{NAMES[options.inp_precision]}"
    dtype, axes = TYPES[options.inp_precision], axes_of(options)

    def cube(height: int, width: int) -> tuple[int, ...]:
        channels = options.input_channels
        return (channels, height, width) if is_first else (height, width, channels)

    output = Array("out", dtype, cube(options.out_height, options.out_width))

    def run(frame: Frame) -> np.ndarray:
        out = np.zeros(output.shape, dtype)
        pointers = {"p_out": out, "p_inp": frame["inp"], "p_scratch": np.zeros(8, np.int8)}
        call(name, {**vars(options), **pointers})
        return out

    def expected(frame: Frame) -> Any:
        image = np.moveaxis(frame["inp"], 0, -1) if is_first else frame["inp"]
        out = getattr(_reference, options.kernel_name)(image, axes)
        return np.moveaxis(out, -1, 0) if is_first else out

    return kernel_job(
        name,
        options,
        {"inp": [Array("inp", dtype, cube(options.input_height, options.input_width))]},
        output,
        run,
        expected,
        Tolerance(terms=options.kernel_height * options.kernel_width),
        room=room_of(axes) * options.input_channels,
    )
