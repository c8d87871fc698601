"""What the test benches of recurrent layers share."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from tosajax.hifi.bench._files import Array, Frame, size_of
from tosajax.hifi.bench._job import Input, Inputs, Job, Output, ask, refusals
from tosajax.hifi.bench._options import Option, check, flag, path, size
from tosajax.hifi.errors import check_config
from tosajax.hifi.layers import Handle, Pointer, Precision, vector

# How often a layer runs on random inputs.
_FRAMES = 5
_IO_FRACTION = 12
_PRECISIONS = {16: Precision.P16bx16b, 8: Precision.P8bx16b}
_COEFF_FRACTION = {16: 15, 8: 7}

FILES_ABOUT = f"""The input file holds in_feats numbers of 16 bits for each frame, the output
file out_feats; the layer keeps its state from frame to frame. Without an input file there are
{_FRAMES} random frames. The filter path is a folder with a file for each matrix, without gaps, and
for each bias, such as"""

OPTIONS = (
    size("in_feats", 256, "length of the input: a multiple of 4 within [4, 2048]"),
    size("out_feats", 256, "length of the output, likewise"),
    flag("membank_padding", 1, "1 for 16 more elements to each row of a matrix in memory"),
    Option("mat_prec", 16, "bits of matrices, in Q15 or Q7", choices=(8, 16)),
    Option("vec_prec", 16, "bits of input and output, in Q12", choices=(16,)),
    flag("verify", 1, "1 to verify the output, bit for bit"),
    path("input_file", "inputs, instead of random ones"),
    path("filter_path", "the folder of matrices and biases, instead of random ones"),
    path("output_file", "where outputs go"),
    path("prev_h_file", "the output before the first one, instead of zeros"),
    path("ref_file", "outputs to verify against"),
)


class Layer(NamedTuple):
    """A recurrent layer, for its test bench.

    Args:
      name: as the names of functions have it.
      config: the class of configurations.
      weights: the NamedTuple of matrices and biases.
      inputs: the matrices that the input is multiplied by; all others have the state.
      pointers: makes structures of pointers of weights.
      params: the identifiers of parameters.
      states: the arrays of the state, each with its identifier and its type.
      kept: the states that are an output after the last frame, each with its name in options.
      expected: computes the frames of each output by other means.
    """

    name: str
    config: type
    weights: Any
    inputs: Sequence[str]
    pointers: Callable[..., Any]
    params: Any
    states: Mapping[str, tuple[int, type]]
    kept: Mapping[str, str]
    expected: Callable[..., Sequence[Any]]


def job(layer: Layer, options: SimpleNamespace) -> Job:
    """What to run for some options."""
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
    with refusals():
        check_config(layer.name.upper(), layer.config, config)
    inputs = Array("input", np.int16, (config.in_feats,))
    outputs = Array("out", np.int16, (config.out_feats,))
    frames = _FRAMES if options.input_file is None else _count_of(options.input_file, inputs)
    states = {
        name: Array(name, dtype, (config.out_feats,)) for name, (_, dtype) in layer.states.items()
    }
    known = {name: getattr(options, f"{name}_file") for name in states}
    return Job(
        f"xa_nnlib_{layer.name}_process",
        [
            Input([inputs], frames, options.input_file),
            *(Input([x], 1, _in(options.filter_path, x.name)) for x in _weights(layer, config)),
            *(Input([states[name]], 1, file) for name, file in known.items() if file is not None),
        ],
        [
            Output(outputs, frames, options.output_file, options.ref_file),
            *(
                Output(
                    states[state]._replace(name=name),
                    1,
                    getattr(options, f"output_{name}_file"),
                    getattr(options, f"ref_{name}_file"),
                )
                for state, name in layer.kept.items()
            ),
        ],
        lambda found: _run(layer, config, *_parts(found)),
        lambda found: _expected(layer, config, *_parts(found)),
    )


def _count_of(file: str, x: Array) -> int:
    """How many inputs a file has."""
    found = size_of(file)
    whole = found > 0 and found % x.nbytes == 0
    check(
        whole,
        f"{file!r} has {found} bytes, expected a multiple of {x.nbytes} for {x.shape[0]} in_feats",
    )
    return found // x.nbytes


def _in(folder: str | None, name: str) -> str | None:
    return None if folder is None else os.path.join(folder, f"{name}.bin")


def _weights(layer: Layer, config: Any) -> Iterator[Array]:
    """The matrices and the biases."""
    rows = config.out_feats
    for name in layer.weights._fields:
        if name.startswith("b_"):
            yield Array(name, np.int16, (rows,))
        else:
            columns = config.in_feats if name in layer.inputs else rows
            yield Array(name, config.weight_type, (rows, columns))


def _run(
    layer: Layer, config: Any, xs: Sequence[np.ndarray], given: Frame
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


def _expected(
    layer: Layer, config: Any, xs: Sequence[np.ndarray], given: Frame
) -> Sequence[Sequence[Any]]:
    nothing = np.zeros(config.out_feats, np.int64)
    states = [given.get(name, nothing) for name in layer.states]
    return layer.expected(given, *states, xs, config.coeff_Qformat, config.io_Qformat)


def _parts(inputs: Inputs) -> tuple[list[np.ndarray], Frame]:
    """The inputs of all frames, and by name what is there once."""
    frames, *others = inputs
    return [frame["input"] for frame in frames], {
        k: x for (frame,) in others for k, x in frame.items()
    }
