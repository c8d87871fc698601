"""The test benches of the GRU layer (guide 5.8) and the LSTM layer (guide 5.9)."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from tosajax.hifi.bench._files import Array, File, Frame, size_of
from tosajax.hifi.bench._job import Bench, Inputs, Job
from tosajax.hifi.bench._library import ask, refusals
from tosajax.hifi.bench._options import VERIFY, Option, check, flag, path, size
from tosajax.hifi.bench.definitions import recurrent
from tosajax.hifi.errors import check_config
from tosajax.hifi.layers import (
    GRUConfig,
    GRUParam,
    GRUWeights,
    Handle,
    LSTMConfig,
    LSTMParam,
    LSTMWeights,
    Pointer,
    Precision,
    gru_pointers,
    lstm_pointers,
    vector,
)

# How often a layer runs on random inputs.
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


class _Layer(NamedTuple):
    """A recurrent layer, for its test bench.

    Args:
      name: as in the names of functions.
      config: the class of configurations.
      weights: the NamedTuple of matrices and biases.
      inputs: how the names of matrices begin that the input is multiplied by.
      pointers: makes structures of pointers to weights.
      params: the identifiers of parameters.
      states: the arrays of the state, each with its identifier and its type.
      kept: the states that are outputs after the last frame, each with its name in options.
      expected: computes the outputs by the definition.
    """

    name: str
    config: type
    weights: Any
    inputs: str
    pointers: Callable[..., Any]
    params: Any
    states: Mapping[str, tuple[int, type]]
    kept: Mapping[str, str]
    expected: Callable[..., Sequence[Any]]


def _job(layer: _Layer, options: SimpleNamespace) -> Job:
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
    name, given = f"xa_nnlib_{layer.name}_process", vars(options)
    with refusals(name):
        check_config(layer.name.upper(), layer.config, config)
    inputs = Array("input", np.int16, (config.in_feats,))
    outputs = Array("out", np.int16, (config.out_feats,))
    frames = _FRAMES if options.input_file is None else _count_of(options.input_file, inputs)
    states = {
        key: Array(key, dtype, (config.out_feats,)) for key, (_, dtype) in layer.states.items()
    }
    started = [key for key in states if given[f"{key}_file"] is not None]
    return Job(
        name,
        [
            File([inputs], frames, options.input_file),
            *(File([x], 1, _in(options.filter_path, x.name)) for x in _weights(layer, config)),
            *(File([states[key]], 1, given[f"{key}_file"]) for key in started),
        ],
        [
            File([outputs], frames, options.ref_file, options.output_file),
            *(
                File(
                    [states[key]._replace(name=x)],
                    1,
                    given[f"ref_{x}_file"],
                    given[f"output_{x}_file"],
                )
                for key, x in layer.kept.items()
            ),
        ],
        lambda found: _run(layer, config, *_parts(found)),
        lambda found: _expected(layer, config, *_parts(found)),
    )


def _count_of(file: str, x: Array) -> int:
    """How many inputs a file has."""
    found = size_of(file)
    wanted = f"expected a multiple of {x.nbytes} for {x.shape[0]} in_feats"
    check(found > 0 and found % x.nbytes == 0, f"{file!r} has {found} bytes, {wanted}")
    return found // x.nbytes


def _in(folder: str | None, name: str) -> str | None:
    return None if folder is None else os.path.join(folder, f"{name}.bin")


def _weights(layer: _Layer, config: Any) -> Iterator[Array]:
    """The matrices and the biases."""
    rows = config.out_feats
    for name in layer.weights._fields:
        if name.startswith("b_"):
            yield Array(name, np.int16, (rows,))
        else:
            columns = config.in_feats if name.startswith(layer.inputs) else rows
            yield Array(name, config.weight_type, (rows, columns))


def _run(
    layer: _Layer, config: Any, xs: Sequence[np.ndarray], given: Frame
) -> list[list[np.ndarray]]:
    """Runs a layer from its set-up on, as a program in C does."""
    function = f"xa_nnlib_{layer.name}_{{}}".format
    handle = Handle(np.zeros(ask(function("get_persistent_fast"), config), np.uint8))
    scratch = np.zeros(ask(function("get_scratch_fast"), config), np.uint8)
    ask(function("init"), handle, config)
    weights = layer.weights(*(given[name] for name in layer.weights._fields))
    matrices, biases = layer.pointers(config, weights)
    ask(function("set_config"), handle, layer.params.WEIGHT, matrices)
    ask(function("set_config"), handle, layer.params.BIAS, biases)
    for name, (param, _) in layer.states.items():
        if name in given:
            ask(function("set_config"), handle, param, given[name])
    outputs = [np.zeros(config.out_feats, np.int16) for _ in xs]
    for x, out in zip(xs, outputs, strict=True):
        shapes = Pointer(vector(x.size)), Pointer(vector(out.size))
        ask(function("process"), handle, scratch, x, out, *shapes)
    kept = [np.zeros(config.out_feats, layer.states[name][1]) for name in layer.kept]
    for name, found in zip(layer.kept, kept, strict=True):
        ask(function("get_config"), handle, layer.states[name][0], found)
    return [outputs, *([found] for found in kept)]


def _expected(layer: _Layer, config: Any, xs: Sequence[np.ndarray], given: Frame) -> Sequence[Any]:
    nothing = np.zeros(config.out_feats, np.int64)
    states = [given.get(name, nothing) for name in layer.states]
    formats = config.coeff_Qformat, config.io_Qformat
    return layer.expected(given, *states, xs, *formats, activation="fixed")


def _gru(*operands: Any, **keywords: Any) -> Sequence[Any]:
    return [recurrent.gru_scan(*operands, **keywords)]


def _lstm(*operands: Any, **keywords: Any) -> Sequence[Any]:
    outputs, cells = recurrent.lstm_scan(*operands, **keywords)
    return [outputs, cells[-1:]]


def _parts(inputs: Inputs) -> tuple[list[np.ndarray], Frame]:
    """The inputs of all frames, and the arrays that there are once, by name."""
    frames, *others = inputs
    return [frame["input"] for frame in frames], {
        k: x for (frame,) in others for k, x in frame.items()
    }


_GRU = _Layer(
    name="gru",
    config=GRUConfig,
    weights=GRUWeights,
    inputs="w_",
    pointers=gru_pointers,
    params=GRUParam,
    states={"prev_h": (GRUParam.RESTORE_CONTEXT, np.int16)},
    kept={},
    expected=_gru,
)
_LSTM = _Layer(
    name="lstm",
    config=LSTMConfig,
    weights=LSTMWeights,
    inputs="w_x",
    pointers=lstm_pointers,
    params=LSTMParam,
    states={
        "prev_h": (LSTMParam.RESTORE_CONTEXT_OUTPUT, np.int16),
        "prev_c": (LSTMParam.RESTORE_CONTEXT_CELL, np.int32),
    },
    kept={"prev_c": "cell"},
    expected=_lstm,
)

GRU = Bench(_GRU_ABOUT, _GRU_OPTIONS, functools.partial(_job, _GRU))
LSTM = Bench(_LSTM_ABOUT, _LSTM_OPTIONS, functools.partial(_job, _LSTM))
