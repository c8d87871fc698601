"""C functions of kernels: arguments that they reject with a code, and those that they ignore."""

from __future__ import annotations

import numpy as np
import pytest
from hifi.capi_cases import (
    SCRATCH,
    WINDOW,
    arguments_of,
    call,
    case_of,
    parts,
    result_of,
)
from hifi.memory import SENTINEL, at, check_out, check_untouched, out_memory
from hifi.prototypes import EXPECTED, NAMES

from tosajax.hifi import capi

# Pointers.

# Bytes, 0 for the size of an element; None for unchecked pointers.
BY_ELEMENT, NOT_AT_ALL = 0, None


def alignment_of(name, pointer):
    """The alignment of a pointer, by the rules of HIFI 5 for each family."""
    found = parts(name)
    if pointer == "p_scratch":
        return {"matXvec_fused": 4}.get(found.family, 8 if "conv" in name else 1)
    if pointer in ("p_out_multiplier", "p_out_shift"):
        return 4
    if found.precision in ("32_32", "32_16", "32_8"):
        return NOT_AT_ALL
    if found.family in ("conv2d_std", "conv1d_std"):
        return BY_ELEMENT if found.is_quantized else 8
    if found.family == "conv2d_pointwise":
        return BY_ELEMENT if found.is_quantized or found.precision == "8x8" else 8
    if found.family == "fully_connected":
        return BY_ELEMENT if found.is_quantized or found.precision == "f32" else 8
    return 8 if found.family in ("matXvec_batch", "interpolation_q15") else BY_ELEMENT


def may_be_null(name, pointer):
    if pointer in ("p_mat2", "p_vec2"):
        return "asym8u" not in name or pointer == "p_mat2" if "matXvec" in name else False
    if pointer == "bias_ptr":
        return True
    return pointer == "p_bias" and (
        ("matXvec" in name or "matmul" in name)
        and ("sym8" in name or name.endswith("matXvec_f32xf32_f32"))
    )


def checked_pointers_of(name):
    return [x for x in EXPECTED[name].pointers if alignment_of(name, x) is not NOT_AT_ALL]


# The codes for arguments that functions reject.
INVALID = dict.fromkeys(NAMES, -1)
OF_32_32 = ["sigmoid", "tanh", "softmax", "relu1", "relu6", "relu_std", "relu"]
INVALID |= {f"xa_nn_vec_{kind}_32_32": 0 for kind in OF_32_32}
INVALID |= {f"xa_nn_vec_{kind}_{n}_{n}": 0 for kind in ("relu", "relu_std") for n in (16, 8)}


@pytest.mark.parametrize("name", NAMES)
def test_null(name):
    for pointer in checked_pointers_of(name):
        if may_be_null(name, pointer):
            continue
        code, whole = call(name, case_of(name), **{pointer: None})
        assert (pointer, code) == (pointer, INVALID[name])
        check_untouched(whole)


@pytest.mark.parametrize("name", NAMES)
def test_alignment(name):
    case = case_of(name)
    for pointer in checked_pointers_of(name):
        arguments, whole = arguments_of(name, case)
        position = EXPECTED[name].arguments.index(pointer)
        given = arguments[position]
        sample = given[-1] if isinstance(given, list) else given
        alignment = alignment_of(name, pointer) or sample.itemsize
        for by in sorted({alignment // 2, alignment, 64} - {0}):
            moved = at(sample, by)
            arguments[position] = [*given[:-1], moved] if isinstance(given, list) else moved
            code = getattr(capi, name)(*arguments)
            assert (pointer, code) == (pointer, 0 if by >= alignment else INVALID[name])
            if by < alignment:
                check_untouched(whole)


@pytest.mark.parametrize("name", [name for name in NAMES if "batch" in name])
def test_null_among_pointers(name):
    case = case_of(name)
    p_vec1 = case.values["p_vec1"]
    assert call(name, case, p_vec1=[*p_vec1[:2], None])[0] == -1
    code, whole = call(name, case, p_out=[None] * 3)
    assert code == -1
    check_untouched(whole)
    # Further pointers are ignored.
    assert call(name, case, p_vec1=[*p_vec1, None])[0] == 0
    with pytest.raises(ValueError, match="p_vec1 has 2 pointers, expected 3"):
        call(name, case, p_vec1=p_vec1[:2])
    with pytest.raises(TypeError, match="p_vec1 is ndarray, expected a list of pointers"):
        call(name, case, p_vec1=np.stack([x[:8] for x in p_vec1]))


# Numbers.

SHIFT = (-32, 32)
ASYM8U, ASYM8S = (-256, 1), (-128, 129)
BYTE = {"asym8u": (-1, 256), "asym8s": (-129, 128)}
SIZES = (0, -1)


def outside(name):
    """Values that the library rejects, for each argument."""
    found = parts(name)
    precision, arguments = found.precision, EXPECTED[name].arguments
    limits: dict[str, tuple[int, ...]] = dict.fromkeys(("acc_shift", "bias_shift"), SHIFT)
    signed = "asym8s" in precision
    zero_bias = ASYM8S if signed else ASYM8U
    limits |= dict.fromkeys(("vec1_zero_bias", "vec2_zero_bias", "input_zero_bias"), zero_bias)
    limits |= dict.fromkeys(("inp1_zero_bias", "inp2_zero_bias"), ASYM8S)
    weights = ("mat1_zero_bias", "mat2_zero_bias", "weight_zero_bias", "kernel_zero_bias")
    limits |= dict.fromkeys(weights, ASYM8U)
    limits |= {"inp_zero_bias": (-32769, 32768)}
    limits |= dict.fromkeys([f"{x}_multiplier" for x in ("out", "inp1", "inp2")], (0, -1))
    limits |= {"input_multiplier": (-1,), "zero_point": (-1, 256), "input_range_radius": (-1, 256)}
    limits |= dict.fromkeys([f"{x}_shift" for x in ("out", "inp1", "inp2", "input_left")], SHIFT)
    limits |= {"left_shift": (-1, 32), "out_zero_bias": BYTE["asym8s" if signed else "asym8u"]}
    limits |= {"out_activation_min": (-129, 80), "out_activation_max": (-90, 128)}
    sizes = "rows cols1 cols2 cols vec_count num_vecs vec_length num_elm num_elements"
    sizes += " input_height input_width input_channels kernel_height kernel_width out_channels"
    sizes += " channels_multiplier out_height out_width weight_depth out_depth x_stride y_stride"
    limits |= dict.fromkeys(sizes.split(), SIZES)
    limits |= {"row_stride1": (5,), "row_stride2": (2,), "row_stride": (5,)}
    limits |= dict.fromkeys(("vec_offset", "out_offset"), (0,))
    limits |= dict.fromkeys(("x_padding", "y_padding"), (-1,))
    limits |= {"inp_data_format": (-1, 2), "out_data_format": (-1, 2), "num_elements": (0, -4, 6)}
    limits |= {"activation_max": (1,), "activation_min": (51,)}
    limits |= {"out_stride": (0,) if found.family == "matmul" else ()}
    if found.family == "matXvec_batch":
        is_float = precision.startswith("f32")
        limits |= {"row_stride1": (4, 11 if is_float else 14), "cols1": (0, 5 if is_float else 6)}
    if found.family == "fully_connected" and not found.is_quantized:
        limits |= {"weight_depth": (0, -4, 7)}
    if found.family in ("conv2d_std", "conv1d_std", "conv2d_depthwise", "avgpool"):
        limits |= {"kernel_height": (0, -1, 6), "kernel_width": (0, -1, 7)}
    is_fixed = precision in ("16x16", "8x16", "8x8")
    if (found.family == "conv2d_std" and is_fixed) or found.family == "conv2d_depthwise":
        limits |= {"x_stride": (0, -1, 3)}
    if found.family in ("conv1d_std", "conv2d_depthwise"):
        limits |= {"y_stride": (0, -1, 4)}
    if found.family == "conv2d_depthwise":
        limits |= {"out_data_format": (-1, 1, 2)}
    if found.family == "conv2d_pointwise" and not (precision == "8x8" or found.is_quantized):
        limits |= {"out_data_format": (-1, 0, 2), "input_channels": (0, 3)}
    if found.family in ("avgpool", "maxpool"):
        limits |= {"out_data_format": (-1, 0, 2), "inp_data_format": (-1, 0, 2)}
    return [(arg, value) for arg in arguments for value in limits.get(arg, ())]


@pytest.mark.parametrize("name", NAMES)
def test_numbers_outside_their_range(name):
    case = case_of(name)
    for argument, value in outside(name):
        code, whole = call(name, case, **{argument: value})
        assert (argument, value, code) == (argument, value, INVALID[name])
        check_untouched(whole)


def test_every_number_has_a_range():
    free = {"diffmin", "bias_precision", "threshold", "out_stride"}
    for name in NAMES:
        tested = {argument for argument, _ in outside(name)} | free
        assert {*EXPECTED[name].arguments} - {*EXPECTED[name].pointers} <= tested


# Arguments that the library does not check.


@pytest.mark.parametrize("name", [name for name in NAMES if name.endswith("_32_32")])
def test_functions_of_32_32_return_0(name):
    function, x = getattr(capi, name), np.arange(-4, 4, dtype=np.int32) << 24
    more = (9,) if name == "xa_nn_vec_relu_32_32" else ()
    whole, p_out = out_memory(x, None)
    for length in (0, -1, -(2**31)):
        assert function(None, None, *more, length) == 0
        assert function(p_out, x, *more, length) == 0
    check_untouched(whole)
    with pytest.raises(TypeError, match="p_vec is NoneType, expected a NumPy array of int32"):
        function(p_out, None, *more, 8)
    with pytest.raises(TypeError, match="p_out is NoneType, expected a NumPy array of int32"):
        function(None, x, *more, 8)
    expected = result_of(name, (x,), {"threshold": 9} if more else {})
    assert function(p_out, at(x, 2), *more, 8) == 0
    check_out(expected, None, whole)


@pytest.mark.parametrize("kind", ["sigmoid", "tanh"])
@pytest.mark.parametrize("bits", [16, 8])
def test_sigmoid_and_tanh_only_check_the_length(kind, bits):
    function = getattr(capi, f"xa_nn_vec_{kind}_32_{bits}")
    x, out = np.zeros(4, np.int32), np.zeros(4, f"int{bits}")
    assert function(None, None, 0) == -1
    assert function(out, x, -1) == -1
    assert function(out, at(x, 1), 4) == 0
    with pytest.raises(TypeError, match="p_vec is NoneType"):
        function(out, None, 4)
    with pytest.raises(TypeError, match="p_out is NoneType"):
        function(None, x, 4)


@pytest.mark.parametrize("name", ["xa_nn_maxpool_8", "xa_nn_maxpool_f32"])
def test_windows_of_maxpool_may_be_larger_than_the_image(name):
    assert call(name, case_of(name), kernel_height=6, kernel_width=7)[0] == 0


def test_windows_of_integers_have_at_most_256_rows():
    def code(name, dtype, length):
        inp, out = np.ones(257, dtype), np.ones(1, dtype)
        window = {**WINDOW, "input_height": 257, "input_width": 1, "input_channels": 1}
        window |= {"kernel_height": length, "kernel_width": 1, "out_height": 1, "out_width": 1}
        values = {**window, "p_out": out, "p_inp": inp, "p_scratch": SCRATCH}
        values |= {"inp_data_format": 0, "out_data_format": 0}
        return getattr(capi, name)(*(values[argument] for argument in EXPECTED[name].arguments))

    assert code("xa_nn_avgpool_16", np.int16, 257) == -1
    assert code("xa_nn_avgpool_16", np.int16, 256) == 0
    assert code("xa_nn_avgpool_f32", np.float32, 257) == 0


@pytest.mark.parametrize("precision", ["f32", "asym8uxasym8u", "per_chan_sym8sxasym8s"])
def test_strides_wider_than_kernels(precision):
    name = f"xa_nn_conv2d_std_{precision}"
    assert call(name, case_of(name), x_stride=3)[0] == 0


@pytest.mark.parametrize("name", ["xa_nn_conv2d_std_8x8", "xa_nn_matXvec_16x16_16_tanh"])
def test_scratch_memory_is_left_alone(name):
    scratch = np.full(3, SENTINEL, np.int64)
    assert call(name, case_of(name), p_scratch=scratch)[0] == 0
    assert (scratch == SENTINEL).all()


def test_softmax_has_no_size_of_scratch_memory():
    name = "xa_nn_vec_softmax_asym8s_16"
    assert call(name, case_of(name), p_scratch=at(np.zeros(1, np.int8), 1))[0] == 0


def test_channels_whose_weights_are_all_0():
    name = "xa_nn_conv2d_std_per_chan_sym8sxasym8s"
    multipliers = np.array([0, 2**30, 0], np.int32)
    assert call(name, case_of(name), p_out_multiplier=multipliers)[0] == 0
    multipliers[1] = -1
    assert call(name, case_of(name), p_out_multiplier=multipliers)[0] == -1
    for shift in (-32, 32):
        assert call(name, case_of(name), p_out_shift=np.array([0, 0, shift], np.int32))[0] == -1
