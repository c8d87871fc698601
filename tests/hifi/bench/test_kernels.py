"""The test benches of kernels: outputs, random inputs, verification."""

from __future__ import annotations

import inspect
import os

import numpy as np
import pytest
from hifi.bench_cases import (
    CASES,
    FAST,
    SLOW,
    SLOW_CASES,
    called,
    matxvec_case,
    raw,
    shifts_of,
    write_inputs,
)

from tosajax.hifi import capi, kernels
from tosajax.hifi.bench import _job
from tosajax.hifi.bench.cli import BENCHES
from tosajax.hifi.kernels import scratch


def test_cases_are_of_all_functions_that_test_benches_run():
    """All functions but sizes of memory and those without a test bench in the guide."""
    given = {case.name for case in CASES + SLOW_CASES if case.name.startswith("xa_nn")}
    others = set(kernels.NAMES) - given
    # Convolutions and what takes other names in options are cases by these.
    families = ("conv", "avgpool", "maxpool", "elm_add", "elm_mul", "elm_floor", "dot_prod")
    others = {x for x in others if not x.removeprefix("xa_nn_").startswith(families)}
    assert others == {
        "xa_nn_matXvec_out_stride_sym8sxasym8s_16",
        "xa_nn_matmul_8x8_8",
        "xa_nn_matmul_asym8uxasym8u_asym8u",
        "xa_nn_matmul_per_chan_sym8sxasym8s_asym8s",
        "xa_nn_vec_interpolation_q15",
        "xa_nn_elm_quantize_asym16s_asym8s",
    }


@pytest.mark.parametrize("case", FAST + SLOW)
def test_outputs_are_those_of_the_kernels(bench, rng, case):
    frames = [list(case.draw(rng)) for _ in range(2)]
    options = case.options | write_inputs(bench, case, frames)
    out = bench.path("out.bin")
    files = {"write_file": 1, "write_out_file_name": out}
    assert bench.run(case.bench, **options, **files) == 0, bench.err + bench.out
    assert "2 frames of out: not verified, there is no reference file" in bench.out
    expected = [case.expect(*frame) for frame in frames]
    result = bench.read("out.bin", case.out)
    np.testing.assert_array_equal(result, np.concatenate([x.reshape(-1) for x in expected]))
    # Neither 0 nor at a limit throughout.
    assert len(np.unique(result)) > 2
    # Each frame has inputs of its own.
    assert expected[0].tobytes() != expected[1].tobytes()


@pytest.mark.parametrize("name", BENCHES)
def test_defaults_run_and_pass(bench, name):
    small = {"in_feats": 8, "out_feats": 12} if name in ("gru", "lstm") else {}
    assert bench.run(name, **small) == 0
    frames = 5 if small else 2
    assert f"{frames} frames of out: not verified" in bench.out
    assert bench.files() == []


def one_product(mat1, vec1, bias, **shifts):
    return kernels.matXvec(mat1, vec1, bias=bias, **shifts)


def test_a_second_product_is_left_out_by_no_columns(bench, rng):
    case = matxvec_case("16x16_16")
    mat1, vec1, _, _, bias = case.draw(rng)
    options = case.options | {"cols2": 0, "frames": 1, "write_file": 1}
    options |= {"read_inp_file_name": bench.write("inp", mat1, vec1, bias)}
    assert bench.run("matXvec", **options, write_out_file_name=bench.path("out")) == 0
    expected = called(one_product, mat1, vec1, bias, **shifts_of("16x16_16"))
    np.testing.assert_array_equal(bench.read("out", np.int16), expected)


def test_random_inputs_are_of_all_magnitudes_in_turn(bench):
    options = {"write_file": 1, "write_inp_file_name": bench.path("inp"), "num_elements": 1000}
    assert bench.run("activations", **options, frames=4) == 0
    frames = np.abs(bench.read("inp", np.int32).astype(np.int64)).reshape(4, 1000)
    largest = frames.max(axis=1)
    assert (largest[::2] > 2**30).all()
    assert (largest[1::2] < 2**24).all()
    assert (largest[1::2] > 2**20).all()
    # Half of the elements have fewer bits by as many.
    assert (np.median(frames[1::2], axis=1) < 2**16).all()


@pytest.mark.parametrize("name", ["matXvec", "conv"])
def test_random_biases_of_quantized_functions_are_not_all_of_a_sum(bench, name):
    weight = {"matXvec": "mat_precision", "conv": "kernel_precision"}[name]
    options = {weight: -5, "inp_precision": -4, "out_precision": -4, "bias_precision": 32}
    files = {"write_file": 1, "write_inp_file_name": bench.path("inp")}
    assert bench.run(name, **options, **files) == 0
    size = 32 if name == "matXvec" else 4
    data = (bench.folder / "inp").read_bytes()
    bias = np.frombuffer(data[len(data) // 2 - 4 * size : len(data) // 2], "<i4")
    assert 2**12 < np.abs(bias).max() <= 2**15 + 1


def test_sums_of_softmax_saturate_at_256(bench):
    zeros = bench.write("zeros", np.zeros(300, np.int32))
    options = {"num_elements": 300, "frames": 1, "activation": "softmax"}
    files = {"read_inp_file_name": zeros, "write_file": 1, "write_out_file_name": bench.path("out")}
    assert bench.run("activations", **options, **files) == 0
    assert (bench.read("out", np.int32) == 128).all()


def test_rows_are_padded_in_memory_by_membank_padding(bench, monkeypatch):
    found, strict = [], capi.strict

    def call(name):
        def function(p_mat1, **arguments):
            found.append((arguments["row_stride1"], arguments["row_stride2"]))
            return strict(name)(p_mat1=p_mat1, **arguments)

        function.__signature__ = inspect.signature(strict(name))
        return function

    monkeypatch.setattr(capi, "strict", call)
    options = {"cols1": 8, "cols2": 4, "row_stride1": 12, "row_stride2": 8, "frames": 1}
    for padding in (0, 1):
        assert bench.run("matXvec", **options, membank_padding=padding) == 0
    assert found == [(12, 8), (28, 24)]


def test_windows_reach_as_far_as_image_and_windows_do():
    assert scratch.extent(16, 3, 2, 2, 16) == 33
    assert scratch.extent(16, 3, 1, 2, 4) == 18


@pytest.mark.parametrize("name", ["matXvec", "conv", "activations", "pool", "basic", "cnn"])
def test_random_inputs_that_are_written_give_the_same_outputs(bench, name):
    inputs = ("inp1", "inp2") if name == "basic" else ("inp",)
    written = {f"write_{x}_file_name": bench.path(x) for x in (*inputs, "out")}
    assert bench.run(name, write_file=1, frames=3, **written) == 0
    assert bench.files() == sorted([*inputs, "out"])
    before = (bench.folder / "out").read_bytes()
    read = {f"read_{x}_file_name": bench.path(x) for x in inputs}
    again = {"write_file": 1, "write_out_file_name": bench.path("again")}
    again["read_ref_file_name"] = bench.path("out")
    assert bench.run(name, frames=3, **read, **again) == 0
    assert f"as in {bench.path('out')}" in bench.out
    assert (bench.folder / "again").read_bytes() == before
    # As many frames as the files have.
    assert bench.run(name, frames=2, **read) == 2
    sizes = {x: os.path.getsize(bench.path(x)) for x in inputs}
    first = inputs[0]
    parts = (bench.path(first), f"has {sizes[first]} bytes", f"expected {sizes[first] // 3 * 2}")
    assert bench.refused(*parts), bench.err


# Verification.


@pytest.mark.parametrize("case", FAST[::6])
def test_a_reference_of_another_bit_gives_1(bench, rng, case):
    frames = [list(case.draw(rng)) for _ in range(2)]
    options = case.options | write_inputs(bench, case, frames)
    expected = raw(*(case.expect(*frame) for frame in frames))
    reference = bench.path("ref")
    for at, status in ((None, 0), (0, 1), (len(expected) - 1, 1)):
        changed = bytearray(expected)
        if at is not None:
            # The highest byte of a float, whose lowest bits may differ.
            at += 3 if case.out is np.float32 and at == 0 else 0
            changed[at] ^= 0x40 if case.out is np.float32 else 1
        (bench.folder / "ref").write_bytes(changed)
        assert bench.run(case.bench, **options, read_ref_file_name=reference) == status
        assert ("1 of " in bench.out) == (status == 1), bench.out
        assert reference in bench.out
        assert bench.run(case.bench, **options, read_ref_file_name=reference, verify=0) == 0
        assert "not verified" in bench.out


def test_outputs_are_written_though_they_are_not_as_wanted(bench):
    reference = bench.write("ref", np.zeros(64, np.int32))
    files = {"read_ref_file_name": reference, "write_out_file_name": bench.path("out")}
    assert bench.run("activations", write_file=1, **files) == 1
    assert bench.read("out", np.int32).size == 64


def compare(found, wanted, dtype, **terms):
    return _job.compare([np.array(found, dtype)], [np.array(wanted)], **terms)


def test_integers_are_compared_bit_for_bit():
    assert compare([1, 2], [1, 2], np.int16) is None
    assert compare([1, 2], [1, 3], np.int16) == (
        "1 of 2 outputs differ, the first in frame 0 at 1: 2 where the reference has 3"
    )
    assert compare([1, 2], [1, 3], np.uint8) is not None
    low, high = -(2**63), 2**63 - 1
    assert compare([low], [0], np.int64) is not None
    assert compare([low], [high], np.int64) is not None
    assert compare([low, high], np.array([low, high], object), np.int64) is None


def test_floats_are_compared_by_an_epsilon_that_grows_with_sums():
    eps = 2.0**-23
    assert compare([1, 4.0], [1 + 30 * eps, 4.0], np.float32) is None
    assert compare([1, 4.0], [1 + 50 * eps, 4.0], np.float32) is not None
    assert compare([1, 4.0], [1 + 50 * eps, 4.0], np.float32, terms=5) is None
    assert compare([0.0, 0.0], [0.0, 1e-30], np.float32) is not None
    assert compare([0.0, -0.0], [-0.0, 0.0], np.float32) is None
    inf, nan = np.inf, np.nan
    assert compare([inf, -inf, nan, 1.0], [inf, -inf, nan, 1.0], np.float32) is None
    assert compare([inf], [1e39], np.float32) is None
    for found, wanted in ((inf, -inf), (inf, 1.0), (1.0, inf), (nan, 1.0), (1.0, nan), (nan, inf)):
        assert compare([found, 1.0], [wanted, 1.0], np.float32) is not None


def test_floats_of_files_may_be_anything(bench):
    x = np.array([np.inf, -np.inf, np.nan, 3e38, -0.0, 1e-45], np.float32)
    inp = bench.write("inp", x)
    options = {"inp_precision": -1, "out_precision": -1, "frames": 1, "write_file": 1}
    for activation in ("sigmoid", "tanh", "relu_std", "softmax"):
        files = {"read_inp_file_name": inp, "write_out_file_name": bench.path(activation)}
        of = {"num_elements": 6, "activation": activation}
        assert bench.run("activations", **options, **files, **of) == 0
        files = {"read_inp_file_name": inp, "read_ref_file_name": bench.path(activation)}
        assert bench.run("activations", **{**options, "write_file": 0}, **files, **of) == 0
        assert "as in" in bench.out
    files = {"read_inp1_file_name": inp, "read_inp2_file_name": inp}
    with np.errstate(all="ignore"):
        references = {"elm_add": x + x, "elm_mul": x * x}
    for kernel, reference in references.items():
        files["read_ref_file_name"] = bench.write("ref", reference)
        of = {"io_length": 6, "kernel_name": kernel}
        assert bench.run("basic", **{**options, "write_file": 0}, **files, **of) == 0
        assert "as in" in bench.out
