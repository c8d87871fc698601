"""The test benches of recurrent layers."""

from __future__ import annotations

import numpy as np
import pytest
from hifi.bench_cases import compiled, values
from hifi.recurrent import GRU, LSTM

from tosajax.hifi import layers

RECURRENT = {"gru": GRU, "lstm": LSTM}


def recurrent_files(bench, rng, name, precision, frames):
    """Random files; their options, and by the pure functions the outputs and the last cell."""
    layer, size = RECURRENT[name], {"in_feats": 8, "out_feats": 12}
    weights = {}
    for field, shape in layer.shapes(**size).items():
        dtype = np.int8 if len(shape) == 2 and precision == "8" else np.int16
        weights[field] = values(rng, dtype, *shape)
        bench.write(f"{field}.bin", weights[field])
    xs, h = values(rng, np.int16, frames, 8), values(rng, np.int16, 12) >> 2
    c = values(rng, np.int32, 12)
    options = {**size, "mat_prec": precision, "filter_path": str(bench.folder)}
    options |= {"input_file": bench.write("x", xs), "prev_h_file": bench.write("h", h)}
    if name == "lstm":
        options["prev_c_file"] = bench.write("c", c)
    tags = {"16": (100, 15), "8": (101, 7)}[precision]
    config = layer.config(**size, precision=tags[0], coeff_Qformat=tags[1])
    state = layer.state(*(h, c)[: len(layer.state._fields)])
    last, found = compiled(layer.states, config)(layer.weights(**weights), state, xs)
    return options, np.array(found.prev_h), np.array(getattr(last, "prev_c", c))


@pytest.mark.parametrize("padding", [0, 1])
@pytest.mark.parametrize("precision", ["16", "8"])
@pytest.mark.parametrize("name", RECURRENT)
def test_outputs_are_those_of_the_layer(bench, rng, name, precision, padding):
    options, outputs, cell = recurrent_files(bench, rng, name, precision, frames=3)
    options |= {"membank_padding": padding, "output_file": bench.path("y")}
    if name == "lstm":
        options["output_cell_file"] = bench.path("last_c")
    assert bench.run(name, **options) == 0, bench.err + bench.out
    assert "3 frames of out: not verified" in bench.out
    np.testing.assert_array_equal(bench.read("y", np.int16).reshape(3, 12), outputs)
    assert len(np.unique(outputs)) > 12
    if name == "lstm":
        assert "1 frames of cell: not verified" in bench.out
        np.testing.assert_array_equal(bench.read("last_c", np.int32), cell)


def test_a_layer_starts_with_zeros(bench, rng):
    options, *_ = recurrent_files(bench, rng, "lstm", "16", frames=2)
    bench.write("zeros", np.zeros(24, np.int16))
    bench.write("h", np.zeros(12, np.int16))
    bench.write("c", np.zeros(12, np.int32))
    given = options | {"output_file": bench.path("given")}
    del options["prev_h_file"], options["prev_c_file"]
    assert (
        bench.run("lstm", **given) == bench.run("lstm", **options, output_file=bench.path("y")) == 0
    )
    assert (bench.folder / "y").read_bytes() == (bench.folder / "given").read_bytes()


@pytest.mark.parametrize("name", RECURRENT)
def test_references_of_a_layer_are_compared(bench, rng, name):
    options, outputs, cell = recurrent_files(bench, rng, name, "16", frames=2)
    options["ref_file"] = bench.write("ref", outputs)
    assert bench.run(name, **options) == 0
    assert f"2 frames of out: as in {options['ref_file']}" in bench.out
    outputs[1, 3] += 1
    bench.write("ref", outputs)
    assert bench.run(name, **options) == 1
    assert "1 of 24 outputs differ, the first in frame 1 at 3" in bench.out
    assert bench.run(name, **options, verify=0) == 0
    bench.write("ref", outputs[:1])
    assert bench.run(name, **options) == 2
    assert bench.refused("has 24 bytes, expected 48: 2 x 24 for out")
    if name == "lstm":
        del options["ref_file"]
        options["ref_cell_file"] = bench.write("ref", cell)
        assert bench.run(name, **options) == 0
        bench.write("ref", cell ^ np.int32(1))
        assert bench.run(name, **options) == 1
        assert "2 frames of out: not verified" in bench.out
        assert "12 of 12 outputs differ" in bench.out


@pytest.mark.parametrize("name", ["gru", "lstm"])
def test_configurations_are_of_the_options(bench, monkeypatch, name):
    found, init = [], getattr(layers, f"xa_nnlib_{name}_init")
    monkeypatch.setattr(layers, f"xa_nnlib_{name}_init", lambda *a: found.append(a[1]) or init(*a))
    for padding, precision in ((0, 8), (1, 16)):
        options = {"membank_padding": padding, "mat_prec": precision}
        assert bench.run(name, in_feats=8, out_feats=4, **options) == 0
    assert [(x.in_feats, x.out_feats, x.pad, x.mat_prec, x.vec_prec) for x in found] == [
        (8, 4, 0, 8, 16),
        (8, 4, 1, 16, 16),
    ]
    assert [(x.precision, x.coeff_Qformat, x.io_Qformat) for x in found] == [
        (101, 7, 12),
        (100, 15, 12),
    ]
