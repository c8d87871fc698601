"""Every name of the library is there, takes its own types, and returns its own."""

from __future__ import annotations

import functools

import jax
import numpy as np
import pytest

from tosajax.hifi import NNLibParamError, kernels
from tosajax.hifi.kernels import Quant, SigmoidQuant, SoftmaxQuant

# Written down from the guide's lists of variants, section by section.
LIBRARY = {
    "3.1.1": """
        xa_nn_matXvec_16x16_16 xa_nn_matXvec_16x16_32 xa_nn_matXvec_16x16_64
        xa_nn_matXvec_8x16_16 xa_nn_matXvec_8x16_32 xa_nn_matXvec_8x16_64
        xa_nn_matXvec_8x8_8 xa_nn_matXvec_8x8_16 xa_nn_matXvec_8x8_32
        xa_nn_matXvec_f32xf32_f32
        xa_nn_matXvec_asym8uxasym8u_asym8u xa_nn_matXvec_sym8sxasym8s_asym8s
    """,
    "3.1.2": """
        xa_nn_matXvec_16x16_16_tanh xa_nn_matXvec_16x16_16_sigmoid
        xa_nn_matXvec_8x16_16_tanh xa_nn_matXvec_8x16_16_sigmoid
        xa_nn_matXvec_8x8_8_tanh xa_nn_matXvec_8x8_8_sigmoid
        xa_nn_matXvec_f32xf32_f32_tanh xa_nn_matXvec_f32xf32_f32_sigmoid
    """,
    "3.1.3": """
        xa_nn_matXvec_batch_16x16_64 xa_nn_matXvec_batch_8x16_64
        xa_nn_matXvec_batch_8x8_32 xa_nn_matXvec_batch_f32xf32_f32
    """,
    "3.1.4": """
        xa_nn_matmul_8x8_8 xa_nn_matmul_asym8uxasym8u_asym8u
        xa_nn_matmul_per_chan_sym8sxasym8s_asym8s
    """,
    "3.1.5": "xa_nn_matXvec_out_stride_sym8sxasym8s_16",
    "3.2.1": """
        xa_nn_conv2d_std_getsize
        xa_nn_conv2d_std_16x16 xa_nn_conv2d_std_8x16 xa_nn_conv2d_std_8x8 xa_nn_conv2d_std_f32
        xa_nn_conv2d_std_asym8uxasym8u xa_nn_conv2d_std_per_chan_sym8sxasym8s
    """,
    "3.2.2": """
        xa_nn_conv1d_std_getsize
        xa_nn_conv1d_std_16x16 xa_nn_conv1d_std_8x16 xa_nn_conv1d_std_8x8 xa_nn_conv1d_std_f32
    """,
    "3.2.3.1": """
        xa_nn_conv2d_depthwise_getsize
        xa_nn_conv2d_depthwise_16x16 xa_nn_conv2d_depthwise_8x16 xa_nn_conv2d_depthwise_8x8
        xa_nn_conv2d_depthwise_f32
        xa_nn_conv2d_depthwise_asym8uxasym8u xa_nn_conv2d_depthwise_per_chan_sym8sxasym8s
    """,
    "3.2.3.2": """
        xa_nn_conv2d_pointwise_16x16 xa_nn_conv2d_pointwise_8x16 xa_nn_conv2d_pointwise_8x8
        xa_nn_conv2d_pointwise_f32
        xa_nn_conv2d_pointwise_asym8uxasym8u xa_nn_conv2d_pointwise_per_chan_sym8sxasym8s
    """,
    "3.3.1": """
        xa_nn_vec_sigmoid_32_32 xa_nn_vec_sigmoid_32_16 xa_nn_vec_sigmoid_32_8
        xa_nn_vec_sigmoid_f32_f32 xa_nn_vec_sigmoid_asym8u_asym8u
    """,
    "3.3.2": """
        xa_nn_vec_tanh_32_32 xa_nn_vec_tanh_32_16 xa_nn_vec_tanh_32_8 xa_nn_vec_tanh_f32_f32
    """,
    "3.3.3": """
        xa_nn_vec_relu_32_32 xa_nn_vec_relu_f32_f32 xa_nn_vec_relu_16_16 xa_nn_vec_relu_8_8
        xa_nn_vec_relu1_32_32 xa_nn_vec_relu1_f32_f32
        xa_nn_vec_relu6_32_32 xa_nn_vec_relu6_f32_f32
        xa_nn_vec_relu_std_32_32 xa_nn_vec_relu_std_f32_f32
        xa_nn_vec_relu_std_16_16 xa_nn_vec_relu_std_8_8
    """,
    "3.3.4": """
        xa_nn_vec_softmax_32_32 xa_nn_vec_softmax_f32_f32 xa_nn_vec_softmax_asym8u_asym8u
        xa_nn_vec_softmax_asym8s_asym8s xa_nn_vec_softmax_asym8s_16
    """,
    "3.3.5": """
        xa_nn_vec_activation_min_max_f32_f32 xa_nn_vec_activation_min_max_asym8u_asym8u
        xa_nn_vec_activation_min_max_16_16 xa_nn_vec_activation_min_max_8_8
    """,
    "3.4.1": """
        xa_nn_avgpool_getsize
        xa_nn_avgpool_8 xa_nn_avgpool_16 xa_nn_avgpool_f32 xa_nn_avgpool_asym8u
    """,
    "3.4.2": """
        xa_nn_maxpool_getsize
        xa_nn_maxpool_8 xa_nn_maxpool_16 xa_nn_maxpool_f32 xa_nn_maxpool_asym8u
    """,
    "3.5.1": """
        xa_nn_fully_connected_16x16_16 xa_nn_fully_connected_8x16_16
        xa_nn_fully_connected_8x8_8 xa_nn_fully_connected_f32
        xa_nn_fully_connected_asym8uxasym8u_asym8u xa_nn_fully_connected_sym8sxasym8s_asym8s
    """,
    "3.6.1": "xa_nn_vec_interpolation_q15",
    "3.6.2": "xa_nn_dot_prod_f32xf32_f32 xa_nn_dot_prod_16x16_asym8s",
    "3.6.3": "xa_nn_elm_quantize_asym16s_asym8s",
    "3.6.4": """
        xa_nn_elm_floor_f32_f32 xa_nn_elm_add_asym8sxasym8s_asym8s
        xa_nn_elm_mul_asym8sxasym8s_asym8s
    """,
}
SECTIONS = {name: section for section, names in LIBRARY.items() for name in names.split()}
SIZES = [name for name in SECTIONS if name.endswith("getsize")]
TYPES = {
    "8": np.int8,
    "16": np.int16,
    "32": np.int32,
    "64": np.int64,
    "f32": np.float32,
    "asym8u": np.uint8,
    "asym8s": np.int8,
    "sym8s": np.int8,
    "asym16s": np.int16,
}
QUANT = Quant(0, 0, 2**30, 0, 0)
SCALE = {"out_zero_bias": 0, "out_shift": 0, "out_multiplier": 2**30}
LIMITS = {"out_activation_min": -9, "out_activation_max": 9}
INPUTS = {"inp1_zero_bias": 0, "inp2_zero_bias": 0}
SCALES = {f"inp{i}_{of}": 1 for i in (1, 2) for of in ("shift", "multiplier")}
WINDOW = {"out_size": (2, 2)}


def words(name):
    return name.removeprefix("xa_nn_").removesuffix("_tanh").removesuffix("_sigmoid").split("_")


def of(dtype, *shape):
    return jax.ShapeDtypeStruct(shape, dtype)


def types_of(name):
    """Weight, input and output of a name, by its words: 8x16_16, 32_8, asym8uxasym8u, f32."""
    parts = [word for word in words(name) if word.split("x")[0] in TYPES]
    weight, inp = (parts[0].split("x") * 2)[:2]
    out = parts[1] if len(parts) > 1 else inp
    return TYPES[weight], TYPES[inp], TYPES[out]


def bias_of(name, weight, inp):
    return np.int32 if "asym8" in name else weight if weight is np.float32 else inp


def scales_of(name):
    return {"quant": QUANT} if "xasym8" in name else {}


def example(name):
    """Arguments of a library function: arrays by shape and type, and numbers."""
    weight, inp, out = types_of(name)
    bias = bias_of(name, weight, inp)
    kind = "_".join(word for word in words(name) if word.split("x")[0] not in TYPES)
    matrix, vector = of(weight, 5, 4), of(inp, 4)
    image, kernel, four = of(inp, 4, 4, 8), of(weight, 4, 2, 2, 8), of(bias, 4)
    quant = scales_of(name)
    softmax = {"quant": SoftmaxQuant(-99, 20, 2**30)} if "asym8" in name else {}
    match kind:
        case "matXvec" | "fully_connected" | "matXvec_out_stride":
            return (matrix, vector), {"bias": of(bias, 5), **quant}
        case "matXvec_batch":
            return (matrix, of(inp, 3, 4), of(bias, 5)), {}
        case "matmul" | "matmul_per_chan":
            return (matrix, of(inp, 4, 3), of(bias, 5)), quant
        case "conv2d_std" | "conv2d_std_per_chan":
            return (image, kernel, four), {**WINDOW, **quant}
        case "conv1d_std":
            return (image, of(weight, 4, 2, 4, 8), four), {"out_height": 2}
        case "conv2d_depthwise" | "conv2d_depthwise_per_chan":
            return (image, of(weight, 2, 2, 16), of(bias, 16)), {**WINDOW, **quant}
        case "conv2d_pointwise" | "conv2d_pointwise_per_chan":
            return (image, of(weight, 4, 8), four), quant
        case "vec_sigmoid":
            sigmoid = {"quant": SigmoidQuant(0, 99, 2**30, 20)}
            return (vector,), sigmoid if "asym8" in name else {}
        case "vec_softmax":
            return (vector,), softmax
        case "vec_relu":
            return (vector, 3), {}
        case "vec_tanh" | "vec_relu1" | "vec_relu6" | "vec_relu_std" | "elm_floor":
            return (vector,), {}
        case "vec_activation_min_max":
            return (vector, 1, 3), {}
        case "avgpool" | "maxpool":
            return (image,), {"kernel": (2, 2), **WINDOW}
        case "dot_prod":
            pair = of(inp, 3, 4), of(inp, 3, 4)
            return pair, {"quant": QUANT} if out is np.int8 else {}
        case "elm_quantize":
            return (of(weight, 4),), {"inp_zero_bias": 0, **SCALE}
        case "elm_add":
            return (vector, vector), {**SCALE, **LIMITS, **INPUTS, **SCALES, "left_shift": 20}
        case "elm_mul":
            return (vector, vector), {**SCALE, **LIMITS, **INPUTS}
    raise AssertionError(f"{name} has no example")


def test_the_inventory_is_complete():
    assert len(SECTIONS) == 106
    assert {row.name: row.section for row in kernels.NAMES.values()} == SECTIONS
    assert all(row.name == name for name, row in kernels.NAMES.items())
    assert set(SECTIONS) <= set(dir(kernels))


@pytest.mark.parametrize("name", sorted(SECTIONS.keys() - {*SIZES, "xa_nn_vec_interpolation_q15"}))
def test_types(name):
    arguments, keywords = example(name)
    arrays = {i: x for i, x in enumerate(arguments) if isinstance(x, jax.ShapeDtypeStruct)}
    traced = {k: x for k, x in keywords.items() if isinstance(x, jax.ShapeDtypeStruct)}
    rest = {k: x for k, x in keywords.items() if k not in traced}

    def call(arrays, traced):
        positional = [arrays.get(i, x) for i, x in enumerate(arguments)]
        return getattr(kernels, name)(*positional, **traced, **rest)

    assert jax.eval_shape(call, arrays, traced).dtype == types_of(name)[2]


def test_interpolation():
    vector = of(np.int16, 4)
    function = kernels.xa_nn_vec_interpolation_q15
    assert jax.eval_shape(function, vector, vector, vector).dtype == np.int16


def test_a_name_fixes_its_precision():
    ones = np.ones((1, 4), np.int8), np.ones(4, np.int16)
    with pytest.raises(TypeError, match="matXvec 8x8_16"):
        kernels.xa_nn_matXvec_8x8_16(*ones)
    large, bias = np.full((1, 4), 100, np.int8), np.zeros(1, np.int8)
    call = functools.partial(kernels.xa_nn_matXvec_8x8_8_sigmoid, large, ones[0][0], bias=bias)
    # 400 / 2**25 is nearly 0 in Q6.25, 400 * 2**16 / 2**25 is 0.78.
    np.testing.assert_array_equal(call(), [64])
    np.testing.assert_array_equal(call(acc_shift=16), [88])
    tanh = kernels.xa_nn_matXvec_8x8_8_tanh(large, ones[0][0], bias=bias, acc_shift=16)
    np.testing.assert_array_equal(tanh, [84])


def test_other_names_are_no_attributes():
    with pytest.raises(AttributeError, match="xa_nn_matXvec_4x4_4"):
        kernels.xa_nn_matXvec_4x4_4  # noqa: B018
    with pytest.raises(KeyError):
        kernels.library_function("matXvec")


# Sizes of scratch memory.


@pytest.mark.parametrize(
    ("arguments", "size"),
    [((3, 5, 3, 16), 131), ((3, 5, 3, 8), 83), ((2, 5, 1, -1), 83), ((1, 4, 4, 16), 67)],
)
def test_size_of_conv1d(arguments, size):
    assert kernels.xa_nn_conv1d_std_getsize(*arguments) == size


SIZE_ARGUMENTS = {
    "xa_nn_conv2d_std_getsize": (9, 8, 3, 4, 2, 1, 5, 16),
    "xa_nn_conv2d_depthwise_getsize": (9, 8, 4, 3, 4, 2, 1, 2, 1, 1, 5, 6, 16, 0),
    "xa_nn_avgpool_getsize": (8, 16, 16, 9, 8, 3, 4, 1, 2, 1, 1, 5, 6, 1, 1),
    "xa_nn_maxpool_getsize": (8, 16, 16, 9, 8, 3, 4, 1, 2, 1, 1, 5, 6, 1, 1),
    "xa_nn_conv1d_std_getsize": (3, 5, 3, 16),
}
PRECISION_AT = {name: 3 if "conv1d" in name else 7 if "_std" in name else 12 for name in SIZES}
PRECISION_AT |= {"xa_nn_avgpool_getsize": 1, "xa_nn_maxpool_getsize": 1}


@pytest.mark.parametrize("name", SIZES)
def test_sizes_grow_with_the_image_and_know_their_precisions(name):
    function, arguments = getattr(kernels, name), list(SIZE_ARGUMENTS[name])
    assert function(*arguments) > 0
    larger = list(arguments)
    larger[0] *= 3
    assert function(*larger) > function(*arguments)
    arguments[PRECISION_AT[name]] = 32
    with pytest.raises(NNLibParamError, match="precision is 32"):
        function(*arguments)


@pytest.mark.parametrize(
    ("name", "at"),
    [
        ("xa_nn_conv2d_depthwise_getsize", 13),
        ("xa_nn_avgpool_getsize", 13),
        ("xa_nn_maxpool_getsize", 14),
    ],
)
def test_sizes_know_their_formats(name, at):
    arguments = list(SIZE_ARGUMENTS[name])
    arguments[at] = 2
    with pytest.raises(NNLibParamError, match="data_format is 2"):
        getattr(kernels, name)(*arguments)
