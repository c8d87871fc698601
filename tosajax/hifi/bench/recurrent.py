"""The test benches of the GRU layer (guide 5.8) and the LSTM layer (guide 5.9)."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from types import SimpleNamespace

import numpy as np

from tosajax.hifi.bench._files import Array, File, Frame, size_of
from tosajax.hifi.bench._job import Bench, Inputs, Job
from tosajax.hifi.bench._library import ask, refusals, set_up
from tosajax.hifi.bench._options import VERIFY, Option, check, flag, path, size
from tosajax.hifi.capi.layers import gru, lstm
from tosajax.hifi.capi.layers._recurrent import Recurrent
from tosajax.hifi.errors import check_config
from tosajax.hifi.layers import Pointer, Precision, vector
from tosajax.hifi.layers._recurrent import RecurrentConfig

# The number of random frames.
_FRAMES = 5
_IO_FRACTION = 12
_PRECISIONS = {16: Precision.P16bx16b, 8: Precision.P8bx16b}
_COEFF_FRACTION = {16: 15, 8: 7}

_FILES_ABOUT = f"""The input file holds in_feats numbers of 16 bits for each frame, the output
file out_feats; the layer keeps its state from frame to frame. Without an input file there are
{_FRAMES} random frames. The filter path is a folder with a file for each matrix, without gaps, and
for each bias, such as"""

_GRU_ABOUT = f"""The GRU layer.

{_FILES_ABOUT} w_z.bin, u_z.bin and b_z.bin, and the same of r and h."""

_LSTM_ABOUT = f"""The LSTM layer.

{_FILES_ABOUT} w_xf.bin, w_hf.bin and b_f.bin, and the same of i, c and o.
Files of cells hold out_feats numbers of 32 bits, the cell after the last frame."""

_GRU_OPTIONS = (
    size("in_feats", 256, "length of the input: a multiple of 4 within [4, 2048]"),
    size("out_feats", 256, "length of the output: a multiple of 4 within [4, 2048]"),
    flag("membank_padding", 1, "1 for 16 more elements to each row of a matrix in memory"),
    Option("mat_prec", 16, "bits of matrices, in Q15 or Q7", choices=(8, 16)),
    Option("vec_prec", 16, "bits of input and output, in Q12", choices=(16,)),
    VERIFY,
    path("input_file", "inputs, instead of random ones"),
    path("filter_path", "the folder of matrices and biases, instead of random ones"),
    path("output_file", "where outputs go"),
    path("prev_h_file", "the output before the first one, instead of zeros"),
    path("ref_file", "outputs to verify against"),
)
_LSTM_OPTIONS = (
    *_GRU_OPTIONS,
    path("prev_c_file", "the cell before the first frame, instead of zeros"),
    path("output_cell_file", "where the last cell goes"),
    path("ref_cell_file", "the last cell to verify against"),
)


def _job(layer: Recurrent, options: SimpleNamespace) -> Job:
    values = vars(options)
    config = layer.config(
        in_feats=options.in_feats,
        out_feats=options.out_feats,
        pad=options.membank_padding,
        mat_prec=options.mat_prec,
        vec_prec=options.vec_prec,
        precision=_PRECISIONS[options.mat_prec],
        coeff_Qformat=_COEFF_FRACTION[options.mat_prec],
        io_Qformat=_IO_FRACTION,
    )
    name = f"xa_nnlib_{layer.name.lower()}_process"
    with refusals(name):
        check_config(layer.name, layer.config, config)
    inputs = Array("input", np.int16, (config.in_feats,))
    outputs = Array("out", np.int16, (config.out_feats,))
    frames = _FRAMES if options.input_file is None else _count_of(options.input_file, inputs)
    weights = [
        Array(x, np.int16 if x.startswith("b_") else config.weight_type, layer.shape_of(config, x))
        for x in layer.weights._fields
    ]
    states = {
        key: Array(key, x.dtype.type, x.shape) for key, x in layer.init(config)._asdict().items()
    }
    results = [File([outputs], frames, options.ref_file, options.output_file)]
    if layer is lstm.LSTM:
        cell = states["prev_c"]._replace(name="cell")
        results.append(File([cell], 1, options.ref_cell_file, options.output_cell_file))
    return Job(
        name,
        [
            File([inputs], frames, options.input_file),
            *(File([x], 1, _in(options.filter_path, x.name)) for x in weights),
            *(
                File([x], 1, values[f"{key}_file"])
                for key, x in states.items()
                if values[f"{key}_file"] is not None
            ),
        ],
        results,
        lambda inputs: _run(layer, config, *_parts(inputs)),
    )


def _count_of(file: str, x: Array) -> int:
    """The number of inputs in a file."""
    size = size_of(file)
    wanted = f"expected a multiple of {x.nbytes} for {x.shape[0]} in_feats"
    check(size > 0 and size % x.nbytes == 0, f"{file!r} has {size} bytes, {wanted}")
    return size // x.nbytes


def _in(folder: str | None, name: str) -> str | None:
    return None if folder is None else os.path.join(folder, f"{name}.bin")


def _run(
    layer: Recurrent, config: RecurrentConfig, xs: Sequence[np.ndarray], arrays: Frame
) -> list[list[np.ndarray]]:
    """Initializes and runs a layer, as a C program does."""
    name = layer.name.lower()
    handle, scratch = set_up(name, config)
    weights = layer.weights(*(arrays[field] for field in layer.weights._fields))
    for param, pointers in zip(layer.structures, layer.pointers(config, weights), strict=True):
        ask(name, "set_config", handle, param, pointers)
    for param, field in layer.contexts.items():
        if field in arrays:
            ask(name, "set_config", handle, param, arrays[field])
    outputs = [np.zeros(config.out_feats, np.int16) for _ in xs]
    for x, out in zip(xs, outputs, strict=True):
        shapes = Pointer(vector(x.size)), Pointer(vector(out.size))
        ask(name, "process", handle, scratch, x, out, *shapes)
    if layer is gru.GRU:
        return [outputs]
    cell = np.zeros(config.out_feats, np.int32)
    ask(name, "get_config", handle, lstm.LSTMParam.RESTORE_CONTEXT_CELL, cell)
    return [outputs, [cell]]


def _parts(inputs: Inputs) -> tuple[list[np.ndarray], Frame]:
    """Splits inputs into the input of each frame, and the arrays that all frames share, by name."""
    frames, *others = inputs
    return [frame["input"] for frame in frames], {
        k: x for (frame,) in others for k, x in frame.items()
    }


GRU = Bench(_GRU_ABOUT, _GRU_OPTIONS, functools.partial(_job, gru.GRU))
LSTM = Bench(_LSTM_ABOUT, _LSTM_OPTIONS, functools.partial(_job, lstm.LSTM))
