"""C functions of kernels: memory and numbers of other types, and sizes of memory."""

from __future__ import annotations

import pickle
import re

import numpy as np
import pytest
from hifi.capi_cases import arguments_of, call, case_of
from hifi.memory import check_untouched
from hifi.prototypes import EXPECTED, NAMES

from tosajax.hifi import capi
from tosajax.hifi.capi.memory import Layout


@pytest.mark.parametrize("name", NAMES)
def test_memory_of_another_kind(name):
    case = case_of(name)
    for pointer in set(EXPECTED[name].pointers) - {"p_scratch"}:
        arguments, whole = arguments_of(name, case)
        position = EXPECTED[name].arguments.index(pointer)
        given = arguments[position]
        sample = given[-1] if isinstance(given, list) else given
        other = np.zeros(sample.size, np.uint8 if sample.dtype == np.int8 else np.int8)
        gaps = np.zeros(2 * sample.size, sample.dtype)[::2]
        wrong = [
            (other, TypeError, f"{pointer} is u?int8, expected a NumPy array of {sample.dtype}"),
            (sample[:0].copy(), ValueError, rf"{pointer} of shape \[0\] does not hold \d+ "),
            (gaps, ValueError, f"{pointer} of shape"),
        ]
        for memory, error, message in wrong:
            arguments[position] = [*given[:-1], memory] if isinstance(given, list) else memory
            with pytest.raises(error, match=message):
                getattr(capi, name)(*arguments)
        check_untouched(whole)


@pytest.mark.parametrize(
    ("name", "pointer", "count"),
    [
        ("xa_nn_matXvec_16x16_16", "p_mat1", 4 * 9 + 6),
        ("xa_nn_matXvec_16x16_16", "p_mat2", 4 * 4 + 3),
        ("xa_nn_matmul_8x8_8", "p_mat2", 2 * 8 + 6),
        ("xa_nn_conv2d_std_16x16", "p_ker", 3 * 3 * 2 * 8),
        ("xa_nn_conv2d_std_8x16", "p_ker", 3 * 3 * 2 * 8),
        ("xa_nn_conv2d_std_8x8", "p_ker", 3 * 3 * 2 * 5),
        ("xa_nn_conv2d_std_f32", "p_ker", 3 * 3 * 2 * 6),
        ("xa_nn_conv2d_std_per_chan_sym8sxasym8s", "p_ker", 3 * 3 * 2 * 5),
        ("xa_nn_conv1d_std_8x8", "p_ker", 3 * 3 * 12),
        ("xa_nn_conv1d_std_f32", "p_ker", 3 * 3 * 10),
        ("xa_nn_conv2d_depthwise_16x16", "p_ker", 3 * 2 * 6),
        ("xa_nn_conv2d_depthwise_16x16", "p_inp", 5 * 6 * 3),
        ("xa_nn_conv2d_pointwise_8x16", "p_ker", 3 * 4),
        ("xa_nn_avgpool_8", "p_inp", 5 * 6 * 3),
    ],
)
def test_sizes_of_memory(name, pointer, count):
    """A call needs `count` elements behind a pointer, and no more."""
    case = case_of(name)
    found = np.zeros(count, case.values[pointer].dtype)
    assert call(name, case, **{pointer: found})[0] == 0
    with pytest.raises(ValueError, match=f"{pointer} of shape .* does not hold {count} elements"):
        call(name, case, **{pointer: found[:-1].copy()})


@pytest.mark.parametrize(
    ("name", "pointer", "why"),
    [
        ("xa_nn_conv2d_std_f32", "p_ker", "the channels of a pixel, 5, are padded to 6"),
        ("xa_nn_conv2d_std_16x16", "p_ker", "the channels of a pixel, 5, are padded to 8"),
        ("xa_nn_conv1d_std_f32", "p_ker", "the elements of a row, 9, are padded to 10"),
        ("xa_nn_matmul_8x8_8", "p_mat2", r"shape \[6, 3\] has strides \[1, 8\]"),
        ("xa_nn_conv2d_std_8x8", "p_ker", ""),
    ],
)
def test_memory_that_is_padded_says_why(name, pointer, why):
    case = case_of(name)
    found = np.zeros(1, case.values[pointer].dtype)
    reason = f": {why}" if why else ""
    with pytest.raises(ValueError, match=f"without gaps{reason}$"):
        call(name, case, **{pointer: found})


@pytest.mark.parametrize("argument", ["vec_offset", "out_offset", "out_stride"])
def test_strides_that_lead_before_memory(argument):
    name = "xa_nn_matmul_8x8_8"
    pointer = "p_mat2" if argument == "vec_offset" else "p_out"
    with pytest.raises(ValueError, match=f"{pointer}: strides .* lead to before its memory"):
        call(name, case_of(name), **{argument: -1})


def test_read_only_memory():
    name = "xa_nn_vec_interpolation_q15"
    inp1 = np.zeros(12, np.int16)
    inp1.flags.writeable = False
    case = case_of(name)
    arguments, whole = arguments_of(name, case, p_inp1=inp1)
    with pytest.raises(ValueError, match="p_inp1 is read-only memory"):
        capi.xa_nn_vec_interpolation_q15(*arguments)
    check_untouched(whole)
    # Inputs may be read-only.
    ifact = case.values["p_ifact"].copy()
    ifact.flags.writeable = False
    assert call(name, case, p_ifact=ifact)[0] == 0


def test_codes_before_errors():
    """Arguments that the library rejects are found before memory is read."""
    name = "xa_nn_conv2d_std_per_chan_sym8sxasym8s"
    nothing = np.zeros(0, np.int8)
    few = {"p_inp": nothing, "p_ker": nothing}
    assert call(name, case_of(name), **few, input_height=2)[0] == -1
    assert call(name, case_of(name), **few, input_zero_bias=129)[0] == -1


def test_numbers_of_other_types():
    name = "xa_nn_matXvec_16x16_16"
    case = case_of(name)
    assert call(name, case, rows=np.int64(5), acc_shift=np.int8(-9))[0] == 0
    for value, found in ((1.5, "1.5"), ("1", "'1'"), (None, "None"), (True, "True")):
        with pytest.raises(TypeError, match=f"{name}: acc_shift is {found}, expected an integer"):
            call(name, case, acc_shift=value)
    for value in (2**31, -(2**31) - 1):
        with pytest.raises(ValueError, match=f"bias_shift is {value}, expected a WORD32"):
            call(name, case, bias_shift=value)
    assert call(name, case, bias_shift=2**31 - 1)[0] == -1


@pytest.mark.parametrize("name", NAMES)
def test_arguments_of_other_types(name):
    """Each error names the argument; nothing is run."""
    arguments, _ = arguments_of(name, case_of(name))
    for at, argument in enumerate(EXPECTED[name].arguments):
        pointer = argument.startswith("p_") or argument.endswith("_ptr")
        limits = ("threshold", "activation_min", "activation_max")
        takes_floats = "f32" in name and argument in limits
        for wrong in (["text"], "text", 1.5 if pointer else 1j, *([] if takes_floats else [1.5])):
            values = [*arguments[:at], wrong, *arguments[at + 1 :]]
            with pytest.raises((TypeError, ValueError), match=rf"{argument} .*, expected "):
                getattr(capi, name)(*values)


def test_functions_survive_pickling():
    for name in NAMES:
        assert pickle.loads(pickle.dumps(getattr(capi, name))) is getattr(capi, name)


def test_numbers_of_float_functions():
    x, out = np.array([-1, 0.25, 3], np.float32), np.zeros(3, np.float32)
    assert capi.xa_nn_vec_relu_f32_f32(out, x, np.float32(0.5), 3) == 0
    np.testing.assert_array_equal(out, [0, 0.25, 0.5])
    assert capi.xa_nn_vec_activation_min_max_f32_f32(out, x, -0.5, 1, 3) == 0
    np.testing.assert_array_equal(out, [-0.5, 0.25, 1])
    for value in ("0.5", None, 1j):
        with pytest.raises(TypeError, match=f"threshold is {re.escape(repr(value))}, expected a n"):
            capi.xa_nn_vec_relu_f32_f32(out, x, value, 3)
    with pytest.raises(TypeError, match=r"threshold is 0\.5, expected an integer"):
        capi.xa_nn_vec_relu_32_32(None, None, 0.5, 3)


@pytest.mark.parametrize(("bits", "threshold"), [(16, 2**15), (16, -(2**15) - 1), (8, 128)])
def test_thresholds_of_the_type_of_the_vector(bits, threshold):
    function = getattr(capi, f"xa_nn_vec_relu_{bits}_{bits}")
    x = np.zeros(4, f"int{bits}")
    with pytest.raises(ValueError, match=f"threshold is {threshold}, which is not of int{bits}"):
        function(x, x, threshold, 4)
    for value in (np.iinfo(x.dtype).min, np.iinfo(x.dtype).max):
        assert function(x, x, int(value), 4) == 0


def test_wrong_arguments():
    with pytest.raises(TypeError, match="missing a required argument: 'vec_length'"):
        capi.xa_nn_vec_tanh_32_16(None, None)
    with pytest.raises(TypeError, match="too many positional arguments"):
        capi.xa_nn_vec_tanh_32_16(None, None, 1, 2)
    with pytest.raises(TypeError, match="unexpected keyword argument 'length'"):
        capi.xa_nn_vec_tanh_32_16(None, None, 1, length=2)


def test_rows_that_are_padded_say_why():
    layout = Layout((2, 3), 1, 4)
    short = np.zeros(7, np.int16)
    message = "kernel .* 8 elements without gaps: rows of 3 elements are padded to 4$"
    with pytest.raises(ValueError, match=message):
        layout.unpack("kernel", short, np.int16)
    with pytest.raises(ValueError, match=r"6 elements without gaps$"):
        layout._replace(stride=3).unpack("kernel", short[:5], np.int16)
