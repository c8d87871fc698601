"""The test bench of pooling (guide 5.6)."""

from __future__ import annotations

from types import SimpleNamespace

from tosajax.hifi.bench import conv
from tosajax.hifi.bench._job import Bench, Job
from tosajax.hifi.bench._kernel import (
    NAMES,
    check_precision,
    file_options,
    kernel_job,
    library_step,
)
from tosajax.hifi.bench._options import FRAMES, VERIFY, WRITE_FILE, Option, check, flag, word

_ABOUT = """Pooling of images.

A file of inputs holds an image for each frame. The formats of input and output are the same.
acc_shift has no effect."""

_OPTIONS = (
    *conv.WINDOWS,
    Option("acc_shift", -7, "without effect"),
    flag("inp_data_format", 1, "of the input: 1 for channels first"),
    flag("out_data_format", 1, "of the output: 1 for channels first"),
    Option("inp_precision", 16, "of the input", choices=(8, 16, -1, -3)),
    Option("out_precision", 16, "of the output", choices=(8, 16, -1, -3)),
    FRAMES,
    word("kernel_name", "avgpool", "the function", ("avgpool", "maxpool")),
    WRITE_FILE,
    *file_options("inp"),
    VERIFY,
)


def _job(options: SimpleNamespace) -> Job:
    check_precision(options, "out_precision", options.inp_precision)
    is_first, same = options.inp_data_format, options.out_data_format
    check(same == is_first, f"-out_data_format is {same}, expected inp_data_format, {is_first}")
    name = f"xa_nn_{options.kernel_name}_{NAMES[options.inp_precision]}"
    return kernel_job(
        options,
        library_step(name, vars(options)),
        terms=options.kernel_height * options.kernel_width,
        room=conv.room_of(options),
    )


BENCH = Bench(_ABOUT, _OPTIONS, _job)
