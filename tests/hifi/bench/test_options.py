"""The test benches of the guide's chapter 5: options, help, exit status."""

from __future__ import annotations

import os
import resource
import subprocess
import sys

import pytest

from tosajax.hifi.bench._options import parse
from tosajax.hifi.bench.cli import BENCHES, main

# The options and defaults of the guide's tables; NONE has no default there.
NONE = "None"
FILES = """
    read_inp_file_name None read_ref_file_name None
    write_inp_file_name None write_out_file_name None
"""
WINDOWS = """
    input_height 16 input_width 16 input_channels 4 kernel_height 3 kernel_width 3
    x_stride 2 y_stride 2 x_padding 2 y_padding 2 out_height 16 out_width 16
"""
CNN = f"""
    {WINDOWS} out_channels 4 channels_multiplier 1 bias_shift 7 acc_shift -7 out_data_format 0
    inp_precision 16 kernel_precision 8 out_precision 16 bias_precision 16
    frames 2 kernel_name conv2d_std write_file 0 {FILES} verify 1
"""
GRU = """
    in_feats 256 out_feats 256 membank_padding 1 mat_prec 16 vec_prec 16 verify 1
    input_file None filter_path None output_file None prev_h_file None ref_file None
"""
GUIDE = {
    "matXvec": f"""
        rows 32 cols1 32 cols2 32 row_stride1 32 row_stride2 32 vec_count 1
        acc_shift -7 bias_shift 7
        mat_precision 16 inp_precision 16 out_precision 16 bias_precision 16
        membank_padding 1 frames 2 activation bypass write_file 0 {FILES} verify 1 batch 0 fc 0
    """,
    "conv": f"{CNN} inp_data_format 1",
    "activations": f"""
        num_elements 32 relu_threshold 32768 inp_precision 32 out_precision 32 frames 2
        activation sigmoid write_file 0 {FILES} verify 1
        diffmin -15 input_left_shift 27 input_multiplier 2060158080
        activation_max 0 activation_min 0 input_range_radius 128 zero_point 0
    """,
    "pool": f"""
        {WINDOWS} acc_shift -7 inp_data_format 1 out_data_format 1
        inp_precision 16 out_precision 16 frames 2 kernel_name avgpool write_file 0 {FILES} verify 1
    """,
    "basic": """
        io_length 1024 inp_precision -1 out_precision -1 vec_count 1 frames 2
        kernel_name elm_add write_file 0
        read_inp1_file_name None read_inp2_file_name None read_ref_file_name None
        write_inp1_file_name None write_inp2_file_name None write_out_file_name None verify 1
        output_zero_bias 127 output_left_shift 1 output_multiplier 32767
        output_activation_min 0 output_activation_max 225
        input1_zero_bias -127 input1_left_shift 0 input1_multiplier 32767
        input2_zero_bias -127 input2_left_shift 0 input2_multiplier 32767 left_shift 0
    """,
    "gru": GRU,
    "lstm": f"{GRU} output_cell_file None prev_c_file None ref_cell_file None",
    "cnn": CNN,
}
# Options beyond the guide, whose benches cannot set these arguments.
EXTRA = {
    "matXvec": {
        *("mat1_zero_bias", "mat2_zero_bias", "vec1_zero_bias", "vec2_zero_bias"),
        *("out_multiplier", "out_shift", "out_zero_bias"),
    },
    "conv": {
        *("input_zero_bias", "kernel_zero_bias"),
        *("out_multiplier", "out_shift", "out_zero_bias"),
    },
}


def guide(name):
    words = GUIDE[name].split()
    return dict(zip(words[::2], words[1::2], strict=True))


@pytest.mark.parametrize("name", GUIDE)
def test_defaults_are_those_of_the_guide(name):
    found = {key: str(value) for key, value in vars(parse(BENCHES[name].options, [])).items()}
    assert {key: found[key] for key in found if key not in EXTRA.get(name, ())} == guide(name)
    assert found.keys() - guide(name).keys() == EXTRA.get(name, set())


def test_all_benches_are_listed(bench):
    assert set(BENCHES) == set(GUIDE)
    assert bench.run("-h") == 0
    listed = bench.out
    assert main([]) == 0
    assert all(f"\n  {name} " in listed for name in GUIDE)


@pytest.mark.parametrize("word", ["-h", "-help", "--help"])
@pytest.mark.parametrize("name", GUIDE)
def test_help_lists_options_with_their_defaults(bench, name, word):
    assert bench.run(name, "-verify", word) == 0
    lines = {line.split()[0]: line for line in bench.out.splitlines() if line.startswith("  -")}
    for option, default in guide(name).items():
        assert lines[f"-{option}"].endswith(f"({default})" if default != NONE else ""), option
    assert max(map(len, bench.out.splitlines())) < 140


@pytest.mark.parametrize(
    "name",
    ["matxvec", "XA_NN_MATXVEC_TEST", "xa_nn_activation_test", "activation", "xa_nn_pool_test"],
)
def test_names_of_the_programs_of_the_guide_work(bench, name):
    assert bench.run(name, "-h") == 0


def test_options_have_one_dash_or_two_or_an_equals_sign():
    options = BENCHES["matXvec"].options
    argv = ["-rows", "4", "--cols1", "0x10", "-acc_shift=-3", "-verify", "--fc", "0", "--batch"]
    found = parse(options, [*argv, "-activation", "Sigmoid", "-rows", "8", "-write_file"])
    assert (found.rows, found.cols1, found.acc_shift) == (8, 16, -3)
    assert (found.verify, found.fc, found.batch, found.write_file) == (1, 0, 1, 1)
    assert found.activation == "sigmoid"


REFUSED = {
    "matXvec -rows 0": ["-rows is 0, expected within [1, 2147483647]"],
    "matXvec -rows -2": ["-rows is -2"],
    "matXvec -cols2 -1": ["-cols2 is -1, expected within [0,"],
    "matXvec -rows 9999999999999": ["-rows is 9999999999999"],
    "matXvec -acc_shift -2147483649": ["-acc_shift is -2147483649, expected within [-2147483648,"],
    "matXvec -acc_shift 2147483648": ["-acc_shift is 2147483648, expected within"],
    "matXvec -rows 1.5": ["-rows is '1.5', expected an integer"],
    "matXvec -rows": ["-rows is the last word, expected a value"],
    "matXvec -rowz 3": ["'-rowz' is not an option"],
    "matXvec rows 3": ["'rows' is not an option"],
    "matXvec ---rows 3": ["'---rows' is not an option"],
    "matXvec -verify 2": ["-verify is 2, expected one of 0, 1"],
    "matXvec -activation relu7": ["-activation is relu7, expected one of bypass, sigmoid"],
    "matXvec -mat_precision 9": ["-mat_precision is 9, expected one of 8, 16, -1, -3, -5"],
    "matXvec -mat_precision 16 -inp_precision 8": ["there is no xa_nn_matXvec_16x8_16", "-inp_pre"],
    "matXvec -fc -out_precision 32": ["there is no xa_nn_fully_connected_16x16_32"],
    "matXvec -batch -fc": ["-batch is 1, expected 0 with -fc 1"],
    "matXvec -fc -activation tanh": ["-activation is tanh, expected bypass"],
    "matXvec -activation softmax": ["-out_precision is 16, expected 32 or -1"],
    "matXvec -activation relu -out_precision 64": ["there is no xa_nn_vec_relu_std_64_64"],
    "matXvec -bias_precision 64": ["-bias_precision is 64, expected 16"],
    "matXvec -bias_precision 32 -activation tanh": ["-bias_precision is 32, expected 16 or 64"],
    "matXvec -cols1 36": ["-row_stride1 is 32, expected at least cols1, 36"],
    "matXvec -cols2 36": ["-row_stride2 is 32, expected at least cols2, 36"],
    "matXvec -acc_shift 32": ["-acc_shift is [32], expected within [-31, 31]"],
    "matXvec -batch -out_precision 64 -cols1 5 -row_stride1 6": ["-row_stride1 is 22", "of 4"],
    "matXvec -fc -cols1 6": ["-cols1 is 6, expected a multiple of 4"],
    "conv -kernel_height 17": ["-kernel_height is 17, expected at most input_height, 16"],
    "conv -x_stride 4": ["-x_stride is 4, expected at most"],
    "conv -y_padding -1": ["-y_padding is -1"],
    "conv -out_precision 8": ["-out_precision is 8, expected 16"],
    "conv -bias_precision 32": ["-bias_precision is 32, expected 16"],
    "conv -inp_precision -3 -kernel_precision -3 -out_precision -3 -bias_precision 32"
    " -kernel_zero_bias 5": ["-kernel_zero_bias is [5], expected within [-255, 0]"],
    "conv -inp_precision -3 -kernel_precision -3 -out_precision -3 -bias_precision 32"
    " -kernel_name conv1d_std": ["there is no xa_nn_conv1d_std_asym8uxasym8u"],
    "conv -kernel_name conv2d_depth -input_channels 3": ["-input_channels is 3", "of 4"],
    "activations -activation relu -inp_precision 16 -out_precision 16": [
        "-relu_threshold is 32768, expected an integer within [-32768, 32767]"
    ],
    "activations -activation relu -relu_threshold 0.5": ["-relu_threshold is 0.5"],
    "activations -relu_threshold nan": ["-relu_threshold is 'nan', expected a number"],
    "activations -relu_threshold 1e39": ["-relu_threshold is '1e39', expected a number"],
    "activations -activation activation_min_max -inp_precision 8 -out_precision 8"
    " -activation_min 1": ["-activation_max is 0, expected at least 1"],
    "activations -inp_precision 8 -out_precision 8": ["there is no xa_nn_vec_sigmoid_8_8"],
    "activations -inp_precision -3 -out_precision -3 -zero_point 256": ["-zero_point is [256]"],
    "pool -out_data_format 0": ["-out_data_format is 0, expected inp_data_format, 1"],
    "pool -inp_precision 8": ["-out_precision is 16, expected 8"],
    "pool -kernel_width 17": ["-kernel_width is 17, expected at most"],
    "basic -kernel_name elm_floor -inp_precision -3 -out_precision -3": ["elm_floor_asym8u_asym8u"],
    "basic -kernel_name dot_prod -inp_precision 16": ["-out_precision is -1, expected -4"],
    "basic -inp_precision -4": ["-out_precision is -1, expected -4"],
    "basic -inp_precision -4 -out_precision -4": ["-output_activation_max is [225]"],
    "basic -inp_precision -3 -out_precision -3 -input2_left_shift 32": ["-input2_left_shift is"],
    "basic -kernel_name elm_floor -read_inp2_file_name x": ["-read_inp2_file_name is given"],
    "gru -in_feats 10": ["-in_feats is 10, expected a multiple of 4 within [4, 2048]"],
    "gru -mat_prec 4": ["-mat_prec is 4, expected one of 8, 16"],
    "lstm -out_feats 2052": ["-out_feats is 2052, expected a multiple of 4 within [4, 2048]"],
    "lstm -vec_prec 8": ["-vec_prec is 8, expected one of 16"],
    "cnn -x_stride 4": ["-x_stride is 4", "INVALID_STRIDE"],
    "cnn -kernel_width 17": ["-kernel_width is 17, expected at most input_width, 16"],
    "cnn -kernel_precision 16 -inp_precision 8 -out_precision 8 -bias_precision 8": [
        "-kernel_precision is 16"
    ],
    "cnn -kernel_name conv2d_depth -input_channels 6": [
        "-input_channels * channels_multiplier is 6, expected a multiple of 4"
    ],
    "cnn -inp_precision -3": ["-inp_precision is -3"],
    "matXmat": ["there is no test bench 'matXmat', expected one of matXvec, conv,"],
}


@pytest.mark.parametrize("line", REFUSED)
def test_options_of_no_use_give_2(bench, line):
    assert bench.run(*line.split()) == 2
    assert bench.refused(*REFUSED[line]), bench.err
    assert bench.out == ""


@pytest.mark.parametrize(
    "line",
    [
        "matXvec -rows 2147483647",
        "matXvec -row_stride1 2147483647",
        "matXvec -frames 2147483647",
        "matXvec -batch -out_precision 64 -vec_count 100000000",
        "conv -input_height 1000000000",
        "conv -y_padding 2147483647",
        "conv -x_stride 3 -out_width 1000000000",
        "conv -y_stride 2000000000",
        "conv -kernel_name conv1d_std -input_width 100000000",
        "conv -kernel_name conv2d_depth -channels_multiplier 1000000000",
        "conv -kernel_name conv2d_depth -channels_multiplier 1000000 -kernel_height 1",
        "cnn -out_channels 2147483647",
        "cnn -y_stride 2000000000",
        "activations -num_elements 2147483647",
        "pool -kernel_name maxpool -kernel_height 1000000000",
        "pool -x_stride 1000000000",
        "basic -io_length 2147483647",
        "basic -kernel_name dot_prod -vec_count 2147483647",
    ],
)
def test_huge_sizes_are_refused_before_memory_is_taken(bench, line):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert bench.run(*line.split()) == 2
    assert bench.refused(" elements in all arrays, expected at most 67108864"), bench.err
    assert line.split()[-2] in bench.err or "kernel_height" in line
    # KiB.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1 << 17


# The process.


def test_a_reader_that_leaves_gives_2(monkeypatch):
    source, target = os.pipe()
    os.close(source)
    with os.fdopen(target, "w") as stdout:
        monkeypatch.setattr(sys, "stdout", stdout)
        assert main(["-h"]) == 2


def test_the_command_gives_its_status_to_the_shell(tmp_path):
    reference = tmp_path / "ref"
    reference.write_bytes(bytes(64))
    command = [sys.executable, "-m", "tosajax.hifi.bench", "activations", "-num_elements", "8"]
    found = subprocess.run(
        [*command, "--read_ref_file_name", str(reference)], capture_output=True, text=True
    )
    assert found.returncode == 1
    assert " of 16 outputs differ" in found.stdout
    assert found.stderr == ""
