"""C functions of kernels: names, signatures and results."""

from __future__ import annotations

import inspect
import re

import numpy as np
import pytest
from hifi.capi_cases import arguments_of, call, case_of, check_call, drawn_case, parts
from hifi.memory import at, check_out
from hifi.prototypes import EXPECTED, NAMES, SIZE_ARGUMENTS

from tosajax.hifi import NNLibParamError, capi, kernels
from tosajax.hifi.capi import _plan

# Names and signatures.


def test_all_names_are_there():
    assert len(EXPECTED) == 106
    assert EXPECTED.keys() == kernels.NAMES.keys()
    assert set(EXPECTED) <= set(dir(capi))
    for name in ("matXvec", "xa_nn_matXvec_4x4_4"):
        with pytest.raises(AttributeError, match=f"has no attribute '{name}'"):
            getattr(capi, name)
    with pytest.raises(KeyError):
        capi.strict("xa_nn_matXvec_4x4_4")


@pytest.mark.parametrize("name", EXPECTED)
def test_signature(name):
    section, arguments = EXPECTED[name]
    for function in (getattr(capi, name), capi.strict(name)):
        parameters = inspect.signature(function).parameters
        assert list(parameters) == arguments
        assert all(p.kind is p.POSITIONAL_OR_KEYWORD for p in parameters.values())
        assert function.__name__ == function.__qualname__ == name
        assert f"{name} of the library (guide {section}): " in str(function.__doc__)


# Results.


@pytest.mark.parametrize("name", NAMES)
def test_call(name):
    check_call(name, case_of(name))


@pytest.mark.parametrize(
    "name",
    [
        *(x for x in NAMES if re.search("conv2d_std|conv1d_std|depthwise", x)),
        "xa_nn_conv2d_pointwise_8x8",
        "xa_nn_conv2d_pointwise_asym8uxasym8u",
        "xa_nn_conv2d_pointwise_per_chan_sym8sxasym8s",
        "xa_nn_avgpool_8",
        "xa_nn_maxpool_8",
    ],
)
def test_channels_last(name):
    check_call(name, drawn_case(name, 6, 0))


@pytest.mark.parametrize(
    ("name", "wide", "bias_precision"),
    [
        ("xa_nn_matXvec_16x16_16_tanh", np.int64, 64),
        ("xa_nn_matXvec_8x16_16_sigmoid", np.int64, 64),
        ("xa_nn_matXvec_8x8_8_tanh", np.int32, 32),
        # Precisions that the library does not know.
        ("xa_nn_matXvec_16x16_16_tanh", np.int16, 32),
        ("xa_nn_matXvec_8x8_8_tanh", np.int8, 64),
        ("xa_nn_matXvec_8x8_8_tanh", np.int8, -1),
    ],
)
def test_bias_precision(name, wide, bias_precision):
    size = {np.int64: 2**40, np.int32: 2**30}.get(wide, 100)
    bias = np.array([size, -size, 3, size >> 16, -7], wide)
    case = drawn_case(name, 8, bias, bias_precision)
    check_call(name, case)
    other = np.int16 if wide is np.int8 else np.int8
    with pytest.raises(TypeError, match="p_bias is int"):
        call(name, case, p_bias=bias.astype(other))


@pytest.mark.parametrize("name", NAMES)
def test_by_keywords_and_again(name):
    case = case_of(name)
    arguments, whole = arguments_of(name, case)
    named = dict(zip(EXPECTED[name].arguments, arguments, strict=True))
    assert capi.strict(name)(**named) == 0
    check_out(case.out, case.strides, whole)


def test_memory_of_any_shape():
    case = case_of("xa_nn_matXvec_16x16_16")
    mat1 = np.zeros((5, 9), np.int16)
    mat1.reshape(-1)[: case.values["p_mat1"].size] = case.values["p_mat1"]
    check_call("xa_nn_matXvec_16x16_16", case, p_mat1=mat1)


def test_calls_of_other_numbers_do_not_compile_again():
    x, out = np.arange(-3, 4, dtype=np.int16), np.zeros(7, np.int16)
    assert capi.xa_nn_vec_relu_16_16(out, x, 9, 7) == 0
    compiled = _plan._compiled("xa_nn_vec_relu_16_16", ())
    count = compiled._cache_size()  # type: ignore[attr-defined]
    for threshold in range(4):
        assert capi.xa_nn_vec_relu_16_16(out, x, threshold, 7) == 0
        np.testing.assert_array_equal(out, np.clip(x, 0, threshold))
    assert compiled._cache_size() == count  # type: ignore[attr-defined]


def test_interpolation_writes_its_first_input():
    name = "xa_nn_vec_interpolation_q15"
    case = case_of(name)
    inp1 = case.values["p_inp1"].copy()
    code, whole = call(name, case, p_inp1=inp1)
    assert code == 0
    np.testing.assert_array_equal(inp1[:12], case.out)
    np.testing.assert_array_equal(inp1[12:], case.values["p_inp1"][12:])
    check_out(case.out, case.strides, whole)


def test_output_over_an_input():
    x = np.arange(-6, 6, dtype=np.float32) / np.float32(4)
    expected = np.floor(x)
    assert capi.xa_nn_elm_floor_f32_f32(x, x, 12) == 0
    np.testing.assert_array_equal(x, expected)


# One product, or two; without a bias.

PRODUCTS = [
    "xa_nn_matXvec_16x16_16",
    "xa_nn_matXvec_8x8_8",
    "xa_nn_matXvec_f32xf32_f32",
    "xa_nn_matXvec_sym8sxasym8s_asym8s",
    "xa_nn_matXvec_asym8uxasym8u_asym8u",
    "xa_nn_matXvec_16x16_16_tanh",
]


def written(name, **changed):
    """The memory of p_out after a call with other arguments."""
    code, whole = call(name, case_of(name), **changed)
    assert code == 0
    return whole


@pytest.mark.parametrize("name", PRODUCTS)
def test_a_second_product_takes_both_pointers(name):
    case = case_of(name)
    one = written(name, p_mat2=None, p_vec2=None)
    both = written(name)
    assert not np.array_equal(one, both)
    np.testing.assert_array_equal(written(name, p_mat2=None), one)
    if "asym8u" in name:
        assert call(name, case, p_vec2=None)[0] == -1
    else:
        np.testing.assert_array_equal(written(name, p_vec2=None), one)
    # The other arguments of a missing product are ignored.
    odd = {"cols2": -4, "row_stride2": -5}
    if parts(name).is_quantized:
        odd |= {"vec2_zero_bias": 999}
        odd |= {"mat2_zero_bias": 999} if "asym8u" in name else {}
    np.testing.assert_array_equal(written(name, p_mat2=None, p_vec2=None, **odd), one)
    np.testing.assert_array_equal(written(name, p_mat2=None, p_vec2="nothing", **odd), one)


@pytest.mark.parametrize(
    "name",
    [
        "xa_nn_matXvec_f32xf32_f32",
        "xa_nn_matXvec_sym8sxasym8s_asym8s",
        "xa_nn_matXvec_asym8uxasym8u_asym8u",
        "xa_nn_matmul_asym8uxasym8u_asym8u",
        "xa_nn_matmul_per_chan_sym8sxasym8s_asym8s",
        "xa_nn_matXvec_out_stride_sym8sxasym8s_16",
        "xa_nn_dot_prod_16x16_asym8s",
    ],
)
def test_no_bias_is_one_of_zeros(name):
    pointer = "bias_ptr" if "dot_prod" in name else "p_bias"
    bias = case_of(name).values[pointer]
    without = written(name, **{pointer: None})
    np.testing.assert_array_equal(without, written(name, **{pointer: np.zeros_like(bias)}))
    assert not np.array_equal(without, written(name))


# Errors, and sizes.


def test_strict_names_the_argument():
    function = capi.strict("xa_nn_vec_relu_16_16")
    x = np.zeros(4, np.int16)
    assert function(x, x, 9, 4) == 0
    with pytest.raises(NNLibParamError, match="p_vec is NULL, expected a pointer"):
        function(x, None, 9, 4)
    with pytest.raises(NNLibParamError, match="p_out is 1 bytes off, expected aligned to 2 bytes"):
        function(at(x, 1), x, 9, 4)
    with pytest.raises(NNLibParamError, match=r"shape of p_vec is \(0,\), expected at least 1"):
        function(x, x, 9, 0)
    name = "xa_nn_matXvec_16x16_16"
    arguments, _ = arguments_of(name, case_of(name), acc_shift=32)
    with pytest.raises(NNLibParamError, match=r"matXvec 16x16_16: acc_shift is \[32\]"):
        capi.strict(name)(*arguments)


@pytest.mark.parametrize("name", SIZE_ARGUMENTS)
def test_sizes(name):
    arguments, function = SIZE_ARGUMENTS[name], getattr(capi, name)
    assert function(*arguments) == getattr(kernels, name)(*arguments) > 0
    named = dict(zip(EXPECTED[name].arguments, arguments, strict=True))
    assert function(**named) == function(*arguments)
    for argument in EXPECTED[name].arguments:
        if argument.endswith(("precision", "format")):
            assert function(**{**named, argument: 99}) == -1
    with pytest.raises(NNLibParamError, match="precision is 99"):
        capi.strict(name)(**{**named, next(a for a in named if a.endswith("precision")): 99})


def test_size_of_conv1d():
    assert capi.xa_nn_conv1d_std_getsize(3, 5, 3, 16) == 19 + 3 * 16 * 2 + 16
    assert capi.xa_nn_conv1d_std_getsize(2, 5, 1, -1) == 19 + 2 * 6 * 4 + 16
