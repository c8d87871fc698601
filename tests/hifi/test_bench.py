"""The test benches of the guide's chapter 5: options, files, outputs, verification, exit status."""

from __future__ import annotations

import functools
import os
import resource
import subprocess
import sys
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest

from tosajax import atomic
from tosajax.fixedpoint import _x64
from tosajax.hifi import kernels, layers
from tosajax.hifi.bench import _files, _job, _verify, matxvec
from tosajax.hifi.bench._options import parse
from tosajax.hifi.bench._window import Axis
from tosajax.hifi.bench.cli import BENCHES, main
from tosajax.hifi.kernels import Quant, SigmoidQuant, SoftmaxQuant, activations, conv, pool
from tosajax.hifi.layers import GRUConfig, GRUWeights, LSTMConfig, LSTMWeights

# The options and defaults of the guide's tables; NONE has no default there.
NONE = "None"
GUIDE = {
    "matXvec": """
        rows 32 cols1 32 cols2 32 row_stride1 32 row_stride2 32 vec_count 1
        acc_shift -7 bias_shift 7
        mat_precision 16 inp_precision 16 out_precision 16 bias_precision 16
        membank_padding 1 frames 2 activation bypass write_file 0
        read_inp_file_name None read_ref_file_name None
        write_inp_file_name None write_out_file_name None
        verify 1 batch 0 fc 0
    """,
    "conv": """
        input_height 16 input_width 16 input_channels 4 kernel_height 3 kernel_width 3
        out_channels 4 channels_multiplier 1 x_stride 2 y_stride 2 x_padding 2 y_padding 2
        out_height 16 out_width 16 bias_shift 7 acc_shift -7
        inp_data_format 1 out_data_format 0
        inp_precision 16 kernel_precision 8 out_precision 16 bias_precision 16
        frames 2 kernel_name conv2d_std write_file 0
        read_inp_file_name None read_ref_file_name None
        write_inp_file_name None write_out_file_name None verify 1
    """,
    "activations": """
        num_elements 32 relu_threshold 32768 inp_precision 32 out_precision 32 frames 2
        activation sigmoid write_file 0
        read_inp_file_name None read_ref_file_name None
        write_inp_file_name None write_out_file_name None verify 1
        diffmin -15 input_left_shift 27 input_multiplier 2060158080
        activation_max 0 activation_min 0 input_range_radius 128 zero_point 0
    """,
    "pool": """
        input_height 16 input_width 16 input_channels 4 kernel_height 3 kernel_width 3
        x_stride 2 y_stride 2 x_padding 2 y_padding 2 out_height 16 out_width 16
        acc_shift -7 inp_data_format 1 out_data_format 1 inp_precision 16 out_precision 16
        frames 2 kernel_name avgpool write_file 0
        read_inp_file_name None read_ref_file_name None
        write_inp_file_name None write_out_file_name None verify 1
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
    "gru": """
        in_feats 256 out_feats 256 membank_padding 1 mat_prec 16 vec_prec 16 verify 1
        input_file None filter_path None output_file None prev_h_file None ref_file None
    """,
    "lstm": """
        in_feats 256 out_feats 256 membank_padding 1 mat_prec 16 vec_prec 16 verify 1
        input_file None filter_path None output_file None output_cell_file None
        prev_h_file None prev_c_file None ref_file None ref_cell_file None
    """,
    "cnn": """
        input_height 16 input_width 16 input_channels 4 kernel_height 3 kernel_width 3
        out_channels 4 channels_multiplier 1 x_stride 2 y_stride 2 x_padding 2 y_padding 2
        out_height 16 out_width 16 bias_shift 7 acc_shift -7 out_data_format 0
        inp_precision 16 kernel_precision 8 out_precision 16 bias_precision 16
        frames 2 kernel_name conv2d_std write_file 0
        read_inp_file_name None read_ref_file_name None
        write_inp_file_name None write_out_file_name None verify 1
    """,
    "model_conv": "read_inp_file_name None model Yes_No precision -1 frames 1",
    "model_tiny_conv": "read_inp_file_name None model Yes_No precision -1 frames 1",
}
# What is here beyond the guide, as its benches have no options for these arguments.
EXTRA = {
    "matXvec": {
        *("mat1_zero_bias", "mat2_zero_bias", "vec1_zero_bias", "vec2_zero_bias"),
        *("out_multiplier", "out_shift", "out_zero_bias"),
    },
    "conv": {
        *("input_zero_bias", "kernel_zero_bias"),
        *("out_multiplier", "out_shift", "out_zero_bias"),
    },
    "model_conv": {"read_weights_file_name"},
    "model_tiny_conv": {"read_weights_file_name"},
}
CODES = {"8": 8, "16": 16, "32": 32, "64": 64, "f32": -1, "asym8u": -3, "asym8s": -4, "sym8s": -5}
TYPES = {
    "8": np.int8,
    "16": np.int16,
    "32": np.int32,
    "64": np.int64,
    "f32": np.float32,
    "asym8u": np.uint8,
    "asym8s": np.int8,
    "sym8s": np.int8,
}


def guide(name):
    words = GUIDE[name].split()
    return dict(zip(words[::2], words[1::2], strict=True))


@pytest.fixture
def rng():
    return np.random.default_rng(29)


@pytest.fixture
def bench(tmp_path, capsys):
    """Runs a test bench within `tmp_path`; options are words or keywords."""

    class Bench:
        folder = tmp_path
        out = err = ""

        def run(self, name, *words, **options):
            given = [x for key, value in options.items() for x in (f"-{key}", str(value))]
            status = main([name, *map(str, words), *given])
            self.out, self.err = capsys.readouterr()
            return status

        def path(self, name):
            return str(tmp_path / name)

        def write(self, name, *arrays):
            (tmp_path / name).write_bytes(raw(*arrays))
            return str(tmp_path / name)

        def read(self, name, dtype):
            return np.fromfile(tmp_path / name, np.dtype(dtype).newbyteorder("<")).astype(dtype)

        def files(self):
            return sorted(os.listdir(tmp_path))

        def refused(self, *parts):
            """Whether the last run said in one line of stderr what was wrong."""
            return self.err.count("\n") == 1 and all(part in self.err for part in parts)

    return Bench()


def raw(*arrays):
    return b"".join(x.astype(x.dtype.newbyteorder("<")).tobytes() for x in arrays)


def values(rng, dtype, *shape):
    """Random elements of all magnitudes, the least and the largest among them."""
    if dtype is np.float32:
        return (rng.uniform(-4, 4, shape) * 2.0 ** rng.integers(-6, 1, shape)).astype(dtype)
    info = np.iinfo(dtype)
    x = rng.integers(info.min, info.max, shape, dtype, endpoint=True)
    x = x >> rng.integers(0, info.bits - 1, shape).astype(dtype)
    x.flat[:2] = info.min, info.max
    return x


# Options.


@pytest.mark.parametrize("name", GUIDE)
def test_defaults_are_those_of_the_guide(name):
    found = {key: str(value) for key, value in vars(parse(BENCHES[name].OPTIONS, [])).items()}
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
    options = BENCHES["matXvec"].OPTIONS
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
    "model_conv -precision 8": ["-precision is 8, expected one of -1"],
    "model_conv -frames 0": ["-frames is 0"],
    "model_conv -model Maybe": ["-model is Maybe, expected one of Yes_No, Ten_Word"],
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
        "model_tiny_conv -frames 2147483647",
    ],
)
def test_huge_sizes_are_refused_before_memory_is_taken(bench, line):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert bench.run(*line.split()) == 2
    assert bench.refused(" elements in all arrays, expected at most 67108864"), bench.err
    assert line.split()[-2] in bench.err or "kernel_height" in line
    # KiB.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1 << 17


# Kernels: what goes through files is what the kernels give.


class Case(NamedTuple):
    """A run of a test bench, and what it has to give.

    Args:
      name: of the library's function.
      bench: the test bench.
      options: those that are not of files.
      draw: makes the arrays of a frame, in the order of the file.
      expect: what they become.
      out: the type of the output.
      files: of inputs; where there are several, each has one of the arrays.
    """

    name: str
    bench: str
    options: dict[str, Any]
    draw: Any
    expect: Any
    out: Any
    files: tuple[str, ...] = ("inp",)


QUANT = {"out_multiplier": 1518500250, "out_shift": -6, "out_zero_bias": 3}
# By precision: shifts by which results neither all saturate nor all vanish.
SHIFTS = {
    "16x16_16": (-17, 12),
    "16x16_32": (-3, 12),
    "16x16_64": (-3, 12),
    "8x16_16": (-10, 6),
    "8x16_32": (5, 6),
    "8x16_64": (-3, 6),
    "8x8_8": (-9, 5),
    "8x8_16": (-1, 5),
    "8x8_32": (3, 5),
}


def shifts_of(precision):
    acc, bias = SHIFTS[precision]
    return {"acc_shift": acc, "bias_shift": bias}


def split(precision):
    """The words of weight x input _ output."""
    weight, _, rest = precision.partition("x")
    return weight, *rest.split("_")


def bias_word(inp):
    return "32" if inp in ("asym8u", "asym8s") else inp


def draw_bias(rng, dtype, *shape):
    x = values(rng, dtype, *shape)
    return x >> 16 if dtype is np.int32 else x


def matxvec_case(precision, kind="dual", activation="bypass", bias=None):
    weight, inp, out = split(precision) if precision != "f32" else ("f32",) * 3
    bias = bias or bias_word(inp)
    rows, cols1, cols2, count = 5, 8, 6, 3
    is_dual, is_fused = kind == "dual", activation in ("tanh", "sigmoid")
    options = {
        "rows": rows,
        "cols1": cols1,
        "cols2": cols2,
        "row_stride1": 12,
        "row_stride2": 7,
        "membank_padding": len(precision) % 2,
        "batch": int(kind == "batch"),
        "fc": int(kind == "fc"),
        "vec_count": count,
        "activation": activation,
        **{
            f"{key}_precision": CODES[word]
            for key, word in (("mat", weight), ("inp", inp), ("out", out), ("bias", bias))
        },
    }
    keywords: dict[str, Any] = {}
    if inp.startswith("asym"):
        is_unsigned = inp == "asym8u"
        biases = (-7, -130, -101, -200) if is_unsigned else (-7, -8, 101, -99)
        names = ("mat1_zero_bias", "mat2_zero_bias", "vec1_zero_bias", "vec2_zero_bias")
        shift = -9 if is_unsigned else -7
        options |= dict(zip(names, biases, strict=True)) | {**QUANT, "out_shift": shift}
        mat1, mat2, vec1, vec2 = biases
        mat1, mat2 = (mat1, mat2) if is_unsigned else (0, 0)
        # One product has no second biases.
        second = (vec2, mat2) if is_dual else (0, 0)
        keywords = {"quant": Quant(vec1, mat1, QUANT["out_multiplier"], shift, 3, *second)}
    elif inp != "f32":
        # Of functions with an activation the sum is Q6.25.
        shifts = shifts_of(precision)
        if is_fused:
            wide = {"64": -31, "32": -14}
            shifts = {"acc_shift": 10 if inp == "8" else 2, "bias_shift": wide.get(bias, 3)}
        if activation == "softmax":
            shifts["acc_shift"] = -8
        options, keywords = options | shifts, shifts

    def draw(rng):
        vectors = (count, cols1) if kind == "batch" else (cols1,)
        yield values(rng, TYPES[weight], rows, cols1)
        yield values(rng, TYPES[inp], *vectors)
        if is_dual:
            yield values(rng, TYPES[weight], rows, cols2)
            yield values(rng, TYPES[inp], cols2)
        yield draw_bias(rng, TYPES[bias], rows)

    stem = {"dual": "matXvec", "batch": "matXvec_batch", "fc": "fully_connected"}[kind]
    name = f"xa_nn_{stem}_{precision}" + (f"_{activation}" if is_fused else "")

    def expect(*arrays):
        result = called(name, *arrays, **keywords)
        if activation in ("relu", "softmax"):
            then = activation.replace("relu", "relu_std")
            result = called(f"xa_nn_vec_{then}_{out}_{out}", result)
        return result

    return Case(name, "matXvec", options, draw, expect, TYPES[out])


def conv_case(kernel, precision, inp_format=1, out_format=0, bench="conv"):
    words = {"f32": ("f32", "f32"), "per_chan_sym8sxasym8s": ("sym8s", "asym8s")}
    weight, inp = words.get(precision) or tuple(precision.split("x"))
    bias = bias_word(inp)
    is_depth, is_1d = kernel == "conv2d_depth", kernel == "conv1d_std"
    channels = 4 if is_depth or bench == "cnn" else 3
    multiplier, outputs = 2 if is_depth else 1, 5
    options = {
        "input_height": 7,
        "input_width": 6,
        "input_channels": channels,
        "kernel_height": 3,
        "kernel_width": 2,
        "out_channels": outputs,
        "channels_multiplier": multiplier,
        "x_stride": 2,
        "y_stride": 3,
        "x_padding": 1,
        "y_padding": 2,
        "out_height": 3,
        "out_width": 4,
        "out_data_format": out_format,
        "kernel_name": kernel,
        **{
            f"{key}_precision": CODES[word]
            for key, word in (("kernel", weight), ("inp", inp), ("out", inp), ("bias", bias))
        },
    }
    keywords: dict[str, Any] = {}
    if bias == "32":
        inp_bias = -101 if inp == "asym8u" else 77
        options |= {"input_zero_bias": inp_bias, "kernel_zero_bias": -130, **QUANT}
        multiplier_of, shift, zero = QUANT.values()
        keywords["quant"] = Quant(
            inp_bias, -130 if inp == "asym8u" else 0, multiplier_of, shift, zero
        )
    elif inp != "f32":
        keywords = shifts_of({"16": f"{weight}x16_16", "8": "8x8_8"}[inp])
        options |= keywords
    if bench == "conv":
        options["inp_data_format"] = inp_format
    else:
        inp_format = int(is_depth)
    window = {"strides": (3, 2), "padding": (2, 1), "out_size": (3, 4)}
    formats = ("DWH", "WHD")

    def draw(rng):
        image, ker = (7, 6, channels), (3, 2, channels * multiplier)
        if is_depth and inp_format:
            image, ker = (x[-1:] + x[:-1] for x in (image, ker))
        yield values(rng, TYPES[inp], *image)
        if is_depth:
            yield values(rng, TYPES[weight], *ker)
            yield draw_bias(rng, TYPES[bias], channels * multiplier)
            yield values(rng, TYPES[weight], outputs, channels * multiplier)
        else:
            yield values(rng, TYPES[weight], outputs, 3, 6 if is_1d else 2, channels)
        yield draw_bias(rng, TYPES[bias], outputs)

    def expect(*arrays):
        one = {"stride": 3, "padding": 2, "out_height": 3} if is_1d else window
        more = (
            {"inp_format": formats[inp_format]} if is_depth else {"out_format": formats[out_format]}
        )
        stem = "xa_nn_conv2d_depthwise" if is_depth else f"xa_nn_{kernel}"
        result = called(f"{stem}_{precision}", *arrays[:3], **one, **more, **keywords)
        if not is_depth:
            return result
        # But for 8 bits the pointwise function has channels first only.
        is_first = out_format or inp in ("16", "f32") or bench == "cnn"
        name = f"xa_nn_conv2d_pointwise_{precision}"
        return called(name, result, *arrays[3:], out_format=formats[is_first], **keywords)

    name = f"{bench}_{kernel}_{precision}_{inp_format}{out_format}"
    return Case(name, bench, options, draw, expect, TYPES[inp])


def activation_case(kind, precision, length=64, **options):
    inp, out = precision.split("_")
    keywords: dict[str, Any] = {}
    if kind == "sigmoid" and inp == "asym8u":
        quant = SigmoidQuant(100, 90, 1518500250, 22)
        names = ("zero_point", "input_range_radius", "input_multiplier", "input_left_shift")
        options, keywords = {**dict(zip(names, quant, strict=True))}, {"quant": quant}
    if kind == "softmax" and inp.startswith("asym"):
        quant = SoftmaxQuant(diffmin=-40, input_left_shift=22, input_multiplier=1518500250)
        options, keywords = quant._asdict(), {"quant": quant}
    for option in ("relu_threshold", "activation_min", "activation_max"):
        if option in options:
            keywords[option.removeprefix("relu_")] = options[option]
    name = f"xa_nn_vec_{kind}_{precision}"
    dtype = TYPES[inp]

    def draw(rng):
        x = values(rng, dtype, length)
        if dtype().itemsize == 1:
            # At diffmin, and beyond it.
            x[2:4] = np.iinfo(dtype).max - np.array([40, 41])
        yield x

    def expect(x):
        return called(name, x, **keywords)

    given = {"num_elements": length, "activation": kind, **options}
    given |= {"inp_precision": CODES[inp], "out_precision": CODES[out]}
    return Case(name, "activations", given, draw, expect, TYPES[out])


def pool_case(kind, precision, data_format):
    window = {"kernel": (3, 2), "strides": (2, 3), "padding": (2, 1), "out_size": (4, 3)}
    options = {
        "input_height": 6,
        "input_width": 7,
        "input_channels": 3,
        "kernel_name": kind,
        "kernel_height": 3,
        "kernel_width": 2,
        "y_stride": 2,
        "x_stride": 3,
        "y_padding": 2,
        "x_padding": 1,
        "out_height": 4,
        "out_width": 3,
        "inp_data_format": data_format,
        "out_data_format": data_format,
        "inp_precision": CODES[precision],
        "out_precision": CODES[precision],
    }

    def draw(rng):
        yield values(rng, TYPES[precision], *((3, 6, 7) if data_format else (6, 7, 3)))

    def expect(x):
        formats = ("DWH", "WHD")
        function = f"xa_nn_{kind}_{precision}"
        return called(function, x, **window, data_format=formats[data_format])

    name = f"xa_nn_{kind}_{precision}_{data_format}"
    return Case(name, "pool", options, draw, expect, TYPES[precision])


SCALES = {
    "out_zero_bias": 5,
    "out_shift": -15,
    "out_multiplier": 1518500250,
    "out_activation_min": 2,
    "out_activation_max": 120,
    "inp1_zero_bias": -100,
    "inp1_shift": -1,
    "inp1_multiplier": 1618500250,
    "inp2_zero_bias": -30,
    "inp2_shift": 1,
    "inp2_multiplier": 1718500250,
    "left_shift": 15,
}


def option_of(argument):
    return (
        argument.replace("out_", "output_")
        .replace("inp", "input")
        .replace("_shift", "_left_shift" if argument != "left_shift" else "_shift")
    )


def basic_case(kind, precision, **changed):
    name, word = f"{kind}_{precision}", precision.split("_")[-1].split("x")[0]
    inp = precision.split("x")[0].split("_")[0]
    is_dot = kind == "dot_prod"
    numbers = {**SCALES, **changed}
    options = {option_of(key): value for key, value in numbers.items()} if inp != "f32" else {}
    options |= {"kernel_name": kind, "io_length": 40, "vec_count": 3}
    options |= {"inp_precision": CODES[inp], "out_precision": CODES[word]}

    def draw(rng):
        for _ in range(1 if kind == "elm_floor" else 2):
            x = values(rng, TYPES[inp], *((3, 40) if is_dot else (40,)))
            if is_dot and inp == "16":
                # The sum is beyond int32.
                x[1] = 32767
            yield x

    def expect(*arrays):
        if kind in ("elm_add", "elm_mul") and inp == "f32":
            return np.add(*arrays) if kind == "elm_add" else np.multiply(*arrays)
        function, keywords = getattr(kernels, kind), {}
        if is_dot and inp == "16":
            scale = (numbers[f"out_{x}"] for x in ("multiplier", "shift", "zero_bias"))
            keywords = {"quant": Quant(0, 0, *scale)}
        elif not is_dot and kind != "elm_floor":
            keywords = {k: x for k, x in numbers.items() if kind == "elm_add" or "inp" not in k}
            keywords |= {k: numbers[k] for k in ("inp1_zero_bias", "inp2_zero_bias")}
            if kind == "elm_mul":
                del keywords["left_shift"]
        return called(function, *arrays, precision=precision, **keywords)

    files = ("inp1",) if kind == "elm_floor" else ("inp1", "inp2")
    return Case(name, "basic", options, draw, expect, TYPES[word], files)


def called(function, *arrays, **keywords):
    """The result of a kernel, or of a name of the library."""
    # JAX would narrow int64 silently.
    arrays = [_x64.from_numpy(x) if x.dtype == np.int64 else x for x in arrays]
    return np.asarray(compiled(function, **keywords)(*arrays))


@functools.cache
def compiled(function, *static, **keywords):
    if isinstance(function, str):
        function = kernels.library_function(function)
    return jax.jit(functools.partial(function, *static, **keywords))


CONV2D, CONV1D = conv.CONV2D, conv.CONV1D
CASES = [
    *(matxvec_case(precision) for precision in SHIFTS),
    matxvec_case("f32xf32_f32"),
    matxvec_case("asym8uxasym8u_asym8u"),
    matxvec_case("sym8sxasym8s_asym8s"),
    matxvec_case("16x16_16", activation="tanh"),
    matxvec_case("8x16_16", activation="tanh", bias="64"),
    matxvec_case("8x8_8", activation="tanh", bias="32"),
    matxvec_case("f32xf32_f32", activation="sigmoid"),
    matxvec_case("8x8_8", activation="sigmoid"),
    matxvec_case("16x16_32", activation="softmax"),
    matxvec_case("8x16_32", activation="relu"),
    matxvec_case("f32xf32_f32", activation="relu"),
    *(matxvec_case(x, "batch") for x in ("16x16_64", "8x8_32", "f32xf32_f32")),
    *(matxvec_case(x, "fc") for x in ("16x16_16", "f32", "sym8sxasym8s_asym8s")),
    *(conv_case("conv2d_std", x, out_format=i % 2) for i, x in enumerate(CONV2D)),
    *(conv_case("conv1d_std", x, out_format=i % 2) for i, x in enumerate(CONV1D[1:])),
    conv_case("conv2d_depth", "8x16", 1, 1),
    conv_case("conv2d_depth", "8x8", 1, 1),
    conv_case("conv2d_depth", "f32", 1, 0),
    conv_case("conv2d_depth", "asym8uxasym8u", 0, 0),
    conv_case("conv2d_std", "8x16", out_format=1, bench="cnn"),
    conv_case("conv2d_std", "f32", bench="cnn"),
    conv_case("conv1d_std", "8x8", out_format=1, bench="cnn"),
    conv_case("conv2d_depth", "16x16", bench="cnn"),
    *(activation_case("sigmoid", x) for x in activations.SIGMOID),
    *(activation_case("tanh", x) for x in activations.TANH),
    *(activation_case("softmax", x) for x in activations.SOFTMAX),
    activation_case("relu", "32_32", relu_threshold=40000),
    activation_case("relu", "f32_f32", relu_threshold=1.5),
    activation_case("relu", "16_16", relu_threshold=100),
    activation_case("relu", "8_8", relu_threshold=100),
    *(
        activation_case(kind, x)
        for kind in ("relu_std", "relu1", "relu6")
        for x in activations.RELU[kind]
    ),
    activation_case("activation_min_max", "f32_f32", activation_min=-0.5, activation_max=0.25),
    *(
        activation_case("activation_min_max", x, activation_min=3, activation_max=100)
        for x in activations.ACTIVATION_MIN_MAX[1:]
    ),
    *(pool_case("avgpool", x, i % 2) for i, x in enumerate(pool.POOL)),
    *(pool_case("maxpool", x, i // 2) for i, x in enumerate(pool.POOL)),
    basic_case("elm_add", "f32xf32_f32"),
    basic_case("elm_mul", "f32xf32_f32"),
    basic_case("elm_add", "asym8sxasym8s_asym8s"),
    basic_case("elm_mul", "asym8sxasym8s_asym8s", out_shift=-6),
    basic_case("elm_add", "asym8uxasym8u_asym8u"),
    basic_case("elm_mul", "asym8uxasym8u_asym8u", out_shift=-6),
    basic_case("elm_floor", "f32_f32"),
    basic_case("dot_prod", "f32xf32_f32"),
    basic_case("dot_prod", "16x16_asym8s", out_shift=-25),
]
SLOW_CASES = [
    matxvec_case("16x16_16", activation="sigmoid", bias="64"),
    matxvec_case("f32xf32_f32", activation="softmax"),
    conv_case("conv1d_std", "16x16", out_format=1),
    conv_case("conv2d_depth", "16x16"),
    conv_case("conv2d_depth", "8x8", 0, 0),
    conv_case("conv2d_depth", "per_chan_sym8sxasym8s", 0, 0),
    matxvec_case("16x16_16", activation="tanh", bias="64"),
    matxvec_case("8x8_8", activation="tanh"),
    matxvec_case("f32xf32_f32", activation="tanh"),
    matxvec_case("16x16_16", activation="sigmoid"),
    matxvec_case("8x16_16", activation="sigmoid"),
    matxvec_case("8x8_8", activation="sigmoid", bias="32"),
    matxvec_case("16x16_16", activation="relu"),
    matxvec_case("8x8_8", activation="relu"),
    matxvec_case("8x16_64", "batch"),
    *(matxvec_case(x, "fc") for x in ("8x16_16", "8x8_8", "asym8uxasym8u_asym8u")),
    *(conv_case("conv2d_std", x, bench="cnn") for x in ("16x16", "8x8")),
    *(conv_case("conv1d_std", x, bench="cnn") for x in ("16x16", "8x16", "f32")),
    *(conv_case("conv2d_depth", x, bench="cnn") for x in ("8x16", "8x8", "f32")),
    *(pool_case("avgpool", x, 1 - i % 2) for i, x in enumerate(pool.POOL)),
    *(pool_case("maxpool", x, 1 - i // 2) for i, x in enumerate(pool.POOL)),
]


def parameters(cases, *marks):
    return [pytest.param(x, id=f"{i}-{x.bench}-{x.name}", marks=marks) for i, x in enumerate(cases)]


FAST = parameters(CASES)
SLOW = parameters(SLOW_CASES, pytest.mark.slow)


def test_cases_are_of_all_functions_that_test_benches_run():
    """All of the library, but the sizes of memory and what no test bench of the guide has."""
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


def write_inputs(bench, case, frames):
    """Writes the files of inputs; returns the options that name them."""
    if len(case.files) == 1:
        parts = [[x for frame in frames for x in frame]]
    else:
        parts = zip(*frames, strict=True)
    return {
        f"read_{file}_file_name": bench.write(f"{file}.bin", *arrays)
        for file, arrays in zip(case.files, parts, strict=True)
    }


@pytest.mark.parametrize("case", FAST + SLOW)
def test_outputs_are_those_of_the_kernels(bench, rng, case):
    frames = [list(case.draw(rng)) for _ in range(2)]
    options = case.options | write_inputs(bench, case, frames)
    out = bench.path("out.bin")
    files = {"write_file": 1, "write_out_file_name": out}
    assert bench.run(case.bench, **options, **files) == 0, bench.err + bench.out
    assert "2 frames of out: as in NumPy" in bench.out
    expected = [case.expect(*frame) for frame in frames]
    result = bench.read("out.bin", case.out)
    np.testing.assert_array_equal(result, np.concatenate([x.reshape(-1) for x in expected]))
    # Neither 0 nor at a limit throughout.
    assert len(np.unique(result)) > 2
    # A frame is not what it is by the other's inputs.
    assert expected[0].tobytes() != expected[1].tobytes()


@pytest.mark.parametrize("name", [name for name in GUIDE if "model" not in name])
def test_defaults_run_and_pass(bench, name):
    small = {"in_feats": 8, "out_feats": 12} if name in ("gru", "lstm") else {}
    assert bench.run(name, **small) == 0
    frames = 5 if small else 2
    assert f"{frames} frames of out: as in NumPy" in bench.out
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
    found = []

    def call(name, values, **renamed):
        found.append((values["row_stride1"], values["row_stride2"]))
        _job.call(name, values, **renamed)

    monkeypatch.setattr(matxvec, "call", call)
    options = {"cols1": 8, "cols2": 4, "row_stride1": 12, "row_stride2": 8, "frames": 1}
    for padding in (0, 1):
        assert bench.run("matXvec", **options, membank_padding=padding) == 0
    assert found == [(12, 8), (28, 24)]


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


def test_windows_reach_as_far_as_image_and_windows_do():
    assert Axis(16, 3, 2, 2, 16).reach == 33
    assert Axis(16, 3, 1, 2, 4).reach == 18


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


@pytest.mark.parametrize("case", FAST[3::9])
def test_a_function_that_is_wrong_by_some_bits_gives_1(bench, rng, case, monkeypatch):
    """Without a reference file outputs are compared with NumPy's."""

    def wrong(compute):
        def run(*arguments):
            frames = [frame.copy() for frame in compute(*arguments)[0]]
            last = frames[1].reshape(-1)[-1:]
            last[...] = last + np.float32(0.5) if case.out is np.float32 else last ^ case.out(4)
            return [frames]

        return run

    module = BENCHES[case.bench]
    monkeypatch.setattr(module, "job", functools.partial(with_run, module.job, wrong))
    files = write_inputs(bench, case, [list(case.draw(rng)) for _ in range(2)])
    assert bench.run(case.bench, **case.options, **files) == 1
    assert "1 of " in bench.out
    assert "(NumPy)" in bench.out
    assert "the first in frame 1 at " in bench.out


def with_run(job, change, options):
    found = job(options)
    return _job.dataclasses.replace(found, run=change(found.run))


def test_outputs_are_written_though_they_are_not_as_wanted(bench):
    reference = bench.write("ref", np.zeros(64, np.int32))
    files = {"read_ref_file_name": reference, "write_out_file_name": bench.path("out")}
    assert bench.run("activations", write_file=1, **files) == 1
    assert bench.read("out", np.int32).size == 64


def compare(found, wanted, dtype, **tolerance):
    arrays = [np.array(found, dtype)], [np.array(wanted)]
    return _verify.compare(*arrays, _verify.Tolerance(**tolerance))


def test_integers_are_compared_by_units():
    assert compare([1, 2], [1, 2], np.int16) is None
    assert compare([1, 2], [1, 3], np.int16) == (
        "1 of 2 outputs differ, the first in frame 0 at 1: 2 where the reference has 3"
    )
    assert compare([1, 2], [2, 1], np.int16, units=1) is None
    assert compare([1, 2], [1, 4], np.int16, units=1) is not None
    assert compare([1, 4], [1, 2], np.uint8, units=1) is not None
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
    options = {"inp_precision": -1, "out_precision": -1, "frames": 1, "read_inp_file_name": inp}
    for activation in ("sigmoid", "tanh", "relu_std", "softmax"):
        assert bench.run("activations", **options, num_elements=6, activation=activation) == 0
        bench.write("inp", np.array([np.inf, 1, 2, 3, 4, -np.inf], np.float32))
        assert bench.run("activations", **options, num_elements=6, activation=activation) == 0
        bench.write("inp", x)
    del options["read_inp_file_name"]
    files = {"read_inp1_file_name": inp, "read_inp2_file_name": inp}
    for kernel in ("elm_add", "elm_mul"):
        assert bench.run("basic", **options, **files, io_length=6, kernel_name=kernel) == 0


# Files.

FILE_OPTIONS = [
    (name, option)
    for name in GUIDE
    for option, default in guide(name).items()
    if default == NONE and not option.startswith(("write", "output"))
]


@pytest.mark.parametrize(("name", "option"), FILE_OPTIONS)
def test_files_that_cannot_be_read_give_2(bench, name, option):
    size = {"in_feats": 4, "out_feats": 4} if name in ("gru", "lstm") else {}
    is_folder = option == "filter_path"
    missing = bench.path("missing")
    target = (
        os.path.join(missing, {"gru": "w_z.bin", "lstm": "w_xf.bin"}[name])
        if is_folder
        else missing
    )
    assert bench.run(name, **size, **{option: missing}) == 2
    assert bench.refused(repr(target), "No such file or directory"), bench.err
    if is_folder:
        os.makedirs(target)
    else:
        os.makedirs(missing)
    assert bench.run(name, **size, **{option: missing}) == 2
    assert bench.refused(repr(target), "is not a regular file"), bench.err
    os.rmdir(target)
    for length in (0, 1, 99999):
        with open(target, "wb") as file:
            file.write(bytes(length))
        assert bench.run(name, **size, **{option: missing}) == 2
        assert bench.refused(repr(target), f"has {length} bytes, expected "), bench.err
    assert bench.files() == ["missing"]


def test_a_huge_file_is_refused_before_it_is_read(bench):
    with open(bench.path("huge"), "wb") as file:
        file.truncate(1 << 40)
    assert bench.run("activations", read_inp_file_name=bench.path("huge")) == 2
    assert bench.refused("has 1099511627776 bytes, expected 256: 2 x 128 for inp")


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads and writes everything")
def test_files_without_permission_give_2(bench):
    path = bench.write("inp", np.zeros(64, np.int32))
    os.chmod(path, 0)
    assert bench.run("activations", read_inp_file_name=path) == 2
    assert bench.refused(path, "Permission denied")


def test_files_that_fail_as_they_are_read_give_2(bench, monkeypatch):
    path = bench.write("inp", np.zeros(64, np.int32))

    def fail(_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(_files.Path, "read_bytes", fail)
    assert bench.run("activations", read_inp_file_name=path) == 2
    assert bench.refused(repr(path), "Permission denied")


def test_files_that_cannot_be_written_give_2_before_any_work(bench, monkeypatch):
    monkeypatch.setattr(_job, "random_frames", None)
    os.mkdir(bench.path("folder"))
    os.mkfifo(bench.path("fifo"))
    for path, text in (
        (bench.path("no/out"), "there is no folder"),
        (bench.path("folder"), "is not a regular file"),
        (bench.path("fifo"), "is not a regular file"),
        ("/dev/null", "is not a regular file"),
        ("\0", "null"),
    ):
        assert bench.run("pool", write_file=1, write_out_file_name=path) == 2
        assert bench.refused(repr(path), text), bench.err
    assert bench.files() == ["fifo", "folder"]
    other = os.path.join(bench.path("folder"), os.pardir, "out")
    options = {"write_inp_file_name": bench.path("out"), "write_out_file_name": other}
    assert bench.run("pool", write_file=1, **options) == 2
    assert bench.refused("is the name of two files to be written")


def test_files_are_written_by_write_file_alone(bench):
    out = {"write_out_file_name": bench.path("out")}
    assert bench.run("activations", **out) == 2
    assert bench.refused("-write_out_file_name is given, expected -write_file 1")
    assert bench.run("activations", write_file=1) == 2
    assert bench.refused("-write_file is 1, expected -write_inp_file_name or -write_out_file_name")
    assert bench.files() == []
    assert bench.run("activations", write_file=1, **out) == 0
    assert bench.files() == ["out"]


@pytest.mark.parametrize("before", [None, b"before"])
def test_a_file_is_written_whole_or_not_at_all(bench, monkeypatch, before):
    if before is not None:
        (bench.folder / "out").write_bytes(before)

    def fail(*_, **__):
        raise OSError(28, "No space left on device")

    options = {"write_file": 1, "write_out_file_name": bench.path("out")}
    for place, name in ((atomic, "open"), (atomic.os, "replace")):
        with monkeypatch.context() as patch:
            patch.setattr(place, name, fail, raising=False)
            assert bench.run("activations", **options) == 2
        assert bench.refused(repr(bench.path("out")), "No space left on device")
        assert bench.files() == ([] if before is None else ["out"])
        assert before is None or (bench.folder / "out").read_bytes() == before
    assert bench.run("activations", **options) == 0
    assert os.path.getsize(bench.path("out")) == 256


def test_nothing_is_written_where_something_is_of_no_use(bench):
    options = {"write_file": 1, "write_out_file_name": bench.path("out")}
    options["write_inp_file_name"] = bench.path("inp")
    assert bench.run("activations", **options, read_ref_file_name=bench.path("missing")) == 2
    assert bench.run("conv", **options, kernel_height=17) == 2
    assert bench.run("cnn", **options, kernel_height=17) == 2
    assert bench.files() == []


def test_written_files_have_the_permissions_of_new_ones(bench):
    options = {"write_file": 1, "write_out_file_name": bench.path("out")}
    assert bench.run("activations", **options) == 0
    bench.write("new", np.zeros(1, np.int8))
    assert os.stat(bench.path("out")).st_mode == os.stat(bench.path("new")).st_mode
    os.chmod(bench.path("out"), 0o640)
    assert bench.run("activations", **options) == 0
    assert os.stat(bench.path("out")).st_mode & 0o777 == 0o640


def test_elements_are_little_endian():
    x = np.array([1, -2, 2**31 - 1], np.int32)
    assert raw(x) == b"\x01\0\0\0\xfe\xff\xff\xff\xff\xff\xff\x7f"
    assert raw(x.astype(">i4")) != x.astype(">i4").tobytes()


# Recurrent layers.


class Recurrent(NamedTuple):
    config: Any
    weights: Any
    inputs: tuple[str, ...]
    run: Any


RECURRENT = {
    "gru": Recurrent(GRUConfig, GRUWeights, ("w_z", "w_r", "w_h"), layers.gru_scan),
    "lstm": Recurrent(
        LSTMConfig, LSTMWeights, ("w_xf", "w_xi", "w_xc", "w_xo"), layers.lstm_states
    ),
}


def recurrent_files(bench, rng, name, precision, frames):
    """Random files; their options, and by the pure functions the outputs and the last cell."""
    layer, size = RECURRENT[name], {"in_feats": 8, "out_feats": 12}
    dtype = TYPES[precision]
    weights = {}
    for field in layer.weights._fields:
        columns = 8 if field in layer.inputs else 12
        shape = (12,) if field.startswith("b_") else (12, columns)
        weights[field] = values(rng, np.int16 if len(shape) == 1 else dtype, *shape)
        bench.write(f"{field}.bin", weights[field])
    xs, h = values(rng, np.int16, frames, 8), values(rng, np.int16, 12) >> 2
    c = values(rng, np.int32, 12)
    options = {**size, "mat_prec": precision, "filter_path": str(bench.folder)}
    options |= {"input_file": bench.write("x", xs), "prev_h_file": bench.write("h", h)}
    states = [h]
    if name == "lstm":
        options["prev_c_file"] = bench.write("c", c)
        states.append(c)
    tags = {"16": (100, 15), "8": (101, 7)}[precision]
    config = layer.config(**size, precision=tags[0], coeff_Qformat=tags[1])
    state = (layers.GRUState if name == "gru" else layers.LSTMState)(*states)
    last, found = compiled(layer.run, config)(layer.weights(**weights), state, xs)
    outputs = found if name == "gru" else found.prev_h
    return options, np.array(outputs), np.array(getattr(last, "prev_c", c))


@pytest.mark.parametrize("padding", [0, 1])
@pytest.mark.parametrize("precision", ["16", "8"])
@pytest.mark.parametrize("name", RECURRENT)
def test_outputs_are_those_of_the_layer(bench, rng, name, precision, padding):
    options, outputs, cell = recurrent_files(bench, rng, name, precision, frames=3)
    options |= {"membank_padding": padding, "output_file": bench.path("y")}
    if name == "lstm":
        options["output_cell_file"] = bench.path("last_c")
    assert bench.run(name, **options) == 0, bench.err + bench.out
    assert "3 frames of out: as in NumPy" in bench.out
    np.testing.assert_array_equal(bench.read("y", np.int16).reshape(3, 12), outputs)
    assert len(np.unique(outputs)) > 12
    if name == "lstm":
        assert "1 frames of cell: as in NumPy" in bench.out
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
        assert "2 frames of out: as in NumPy" in bench.out
        assert "12 of 12 outputs differ" in bench.out


# Networks.


@pytest.mark.parametrize("model", ["Yes_No", "Ten_Word"])
@pytest.mark.parametrize("name", ["model_tiny_conv", "model_conv"])
def test_networks_tell_the_likeliest_word(bench, rng, name, model):
    labels = ["silence", "unknown", "yes", "no"]
    if model == "Ten_Word":
        labels += ["up", "down", "left", "right", "on", "off", "stop", "go"]
    sizes = {"model_tiny_conv": [(10, 8, 2, 8)], "model_conv": [(20, 8, 1, 64), (10, 4, 1, 64)]}
    image, weights, x = (98, 40, 1), [], values(rng, np.float32, 98, 40)
    y = x[..., None]
    for i, (height, width, stride, channels) in enumerate(sizes[name]):
        kernel = values(rng, np.float32, channels, height, width, image[2])
        kernel = kernel / np.float32((height * width * image[2]) ** 0.5)
        bias = values(rng, np.float32, channels)
        weights += [kernel, bias]
        if i:
            y = np.maximum.reduce([y[a:98:2, b:40:2] for a in (0, 1) for b in (0, 1)])
        operands = y[None], kernel
        dims = ("NHWC", "OHWI", "NHWC")
        y = jax.lax.conv_general_dilated(
            *operands, (stride, stride), "SAME", dimension_numbers=dims
        )
        y = np.maximum(np.asarray(y)[0] + bias[None, None], 0)
        image = y.shape
    dense = values(rng, np.float32, len(labels), y.size) / np.float32(4 * y.size**0.5)
    bias = values(rng, np.float32, len(labels))
    logits = dense.astype(np.float64) @ y.reshape(-1).astype(np.float64) + bias
    scores = np.exp(logits) / np.exp(logits).sum()
    files = {"read_inp_file_name": bench.write("inp", x)}
    files["read_weights_file_name"] = bench.write("weights", *weights, dense, bias)
    assert bench.run(name, **files, model=model) == 0, bench.out
    best = int(np.argmax(scores))
    assert bench.out.splitlines()[0] == f"frame 0: {labels[best]} ({scores[best]:.2f})"
    assert "1 frames of scores: as in NumPy" in bench.out
    job = BENCHES[name].job(parse(BENCHES[name].OPTIONS, ["-model", model]))
    given = [array.name for array in job.inputs[1].arrays]
    arrays = dict(zip(given, [*weights, dense, bias], strict=True))
    found = job.run([[{"spectrogram": x}], [arrays]])
    np.testing.assert_allclose(found[0][0], scores, rtol=1e-4, atol=1e-6)
    # One word is not all there is.
    assert np.sort(scores)[-2] > 1e-3


@pytest.mark.parametrize("model", ["Yes_No", "Ten_Word"])
def test_labels_are_those_of_the_model(bench, model):
    labels = ["silence", "unknown", "yes", "no"]
    if model == "Ten_Word":
        labels += ["up", "down", "left", "right", "on", "off", "stop", "go"]
    count = len(labels)
    zeros = np.zeros(8 * 10 * 8 + 8 + count * 49 * 20 * 8, np.float32)
    for i, label in enumerate(labels):
        path = bench.write("weights", zeros, 10 * np.eye(count, dtype=np.float32)[i])
        assert bench.run("model_tiny_conv", read_weights_file_name=path, model=model) == 0
        assert bench.out.startswith(f"frame 0: {label} (1.00)\n")


def test_networks_run_on_random_numbers(bench):
    assert bench.run("model_tiny_conv", frames=2) == 0
    assert [line.split(":")[0] for line in bench.out.splitlines()[:2]] == ["frame 0", "frame 1"]
    weights = bench.write("weights", np.zeros(5, np.float32))
    assert bench.run("model_tiny_conv", read_weights_file_name=weights) == 2
    assert bench.refused("has 20 bytes, expected ", "kernel0, bias0, weight, bias")


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
