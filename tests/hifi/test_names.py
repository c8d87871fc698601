"""Every name of the library is there, takes its own types, and returns its own."""

from __future__ import annotations

import functools
import inspect
import pickle
import re

import jax
import numpy as np
import pytest
from hifi.prototypes import EXPECTED, NAMES, SIZE_ARGUMENTS, TYPES

from tosajax.hifi import NNLibParamError, kernels
from tosajax.hifi.kernels import Quant, SigmoidQuant, SoftmaxQuant, activations

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
    assert len(EXPECTED) == 106
    sections = {name: x.section for name, x in EXPECTED.items()}
    assert {row.name: row.section for row in kernels.NAMES.values()} == sections
    assert all(row.name == name for name, row in kernels.NAMES.items())
    assert set(EXPECTED) <= set(dir(kernels))


@pytest.mark.parametrize("name", sorted({*NAMES} - {"xa_nn_vec_interpolation_q15"}))
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


# A function as help, pickle and callers see it.


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_functions_describe_themselves(name):
    function, row = getattr(kernels, name), kernels.NAMES[name]
    assert inspect.isfunction(function)
    assert (function.__name__, function.__qualname__, function.__module__) == (
        name,
        name,
        "tosajax.hifi.kernels",
    )
    assert pickle.loads(pickle.dumps(function)) is function is kernels.library_function(name)
    whole = inspect.signature(row.function).parameters
    assert list(inspect.signature(function).parameters) == [k for k in whole if k not in row.fixed]
    doc = inspect.getdoc(function) or ""
    assert doc.startswith(f"{name} of the library (guide {row.section}): `{row.function.__name__}`")
    described = {line.split(":")[0].strip() for line in doc.splitlines() if ": " in line}
    assert described >= set(inspect.signature(function).parameters)
    assert not described & row.fixed.keys()


def test_what_a_name_fixes_cannot_be_given():
    with pytest.raises(TypeError, match="precision"):
        kernels.xa_nn_elm_floor_f32_f32(np.zeros(1, np.float32), precision="f32_f32")


# Arguments of other types: each is an error that names it.

# As the library names them.
IN_C = {
    "x": "p_vec",
    "out_format": "out_data_format",
    "inp_format": "inp_data_format",
    "data_format": "inp_data_format",
    "input2_zero_bias": "vec2_zero_bias",
    "weight2_zero_bias": "mat2_zero_bias",
}
ARRAYS = {"mat1", "mat2", "vec1", "vec2", "bias", "weight", "inp", "ker", "inp1", "inp2", "x"}
ARRAYS |= {"ifact"}


def concrete(name):
    """All parameters of a function: those of `example`, arrays as zeros, and defaults."""
    if name in SIZE_ARGUMENTS:
        return inspect.signature(getattr(kernels, name)).bind(*SIZE_ARGUMENTS[name]).arguments
    vector = (of(np.int16, 4),) * 3
    arguments, keywords = (vector, {}) if "interpolation" in name else example(name)
    bound = inspect.signature(getattr(kernels, name)).bind(*arguments, **keywords)
    bound.apply_defaults()
    return {
        argument: np.zeros(x.shape, x.dtype) if isinstance(x, jax.ShapeDtypeStruct) else x
        for argument, x in bound.arguments.items()
    }


def wrong_values(argument, value, takes_floats):
    """Values that an argument must not have, and a legal one."""
    if argument in ARRAYS:
        # Some functions do without a bias; that others do not is in the tests of each family.
        return [[1, 2], "text", 3, *([None] if argument not in ("bias", "mat2", "vec2") else [])]
    if takes_floats:
        return ["text", True, 1j]
    if isinstance(value, str):
        return [1.5, ["text"], "text"]
    if isinstance(value, tuple):
        return [1.5, None, (1.5, 2), (1, True), (1, 2, 3), "text"]
    return [1.5, "text", True, np.float32(2), np.zeros((), np.float32)]


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_arguments_of_other_types(name):
    function, legal = getattr(kernels, name), concrete(name)
    limits = ("threshold", "activation_min", "activation_max")
    for argument, value in legal.items():
        if isinstance(value, Quant | SigmoidQuant | SoftmaxQuant):
            cases = [
                (field, value._replace(**{field: wrong}))
                for field in value._fields
                for wrong in (0.7, "text", True, None)
            ]
            cases += [("quant", wrong) for wrong in (tuple(value), 1.5, "text", None)]
        elif argument == "quant":
            cases = [("quant", (1, 2))]
        else:
            floats = "f32" in name and argument in limits
            cases = [(argument, wrong) for wrong in wrong_values(argument, value, floats)]
        for where, wrong in cases:
            with pytest.raises((TypeError, ValueError)) as error:
                function(**{**legal, argument: wrong})
            words = set(re.findall(r"\w+", str(error.value)))
            assert words & {where, f"p_{where}", f"{where}_ptr", IN_C.get(where)}
            assert "expected" in words


def test_messages_of_other_types():
    ones = np.ones((1, 4), np.int8), np.ones(4, np.int8), None, None, np.ones(1, np.int8)
    for acc_shift, found in (
        (-1.5, r"-1\.5"),
        (np.float32(2), r"np\.float32\(2\.0\)"),
        (True, "True"),
        (np.zeros(3), r"an array of float64, shape \[3\]"),
    ):
        with pytest.raises(TypeError, match=rf"8x8_8: acc_shift is {found}, expected an integer"):
            kernels.xa_nn_matXvec_8x8_8(*ones, acc_shift=acc_shift)
    with pytest.raises(TypeError, match=r"p_mat1 is \[\[1\]\], expected an array of int8"):
        kernels.xa_nn_matXvec_8x8_8([[1]], *ones[1:])
    with pytest.raises(TypeError, match="strides is 1, expected 2 integers"):
        kernels.xa_nn_maxpool_8(
            np.zeros((2, 2, 1), np.int8), kernel=(1, 1), strides=1, out_size=(1, 1)
        )


def test_integers_of_any_kind_are_taken():
    ones = np.ones((1, 4), np.int8), np.ones(4, np.int8), None, None, np.ones(1, np.int8)
    function = kernels.xa_nn_matXvec_8x8_8
    shifts = 1, np.int8(1), np.uint64(1), np.ones((), np.int16), jax.numpy.int32(1)
    for acc_shift in shifts:
        np.testing.assert_array_equal(function(*ones, acc_shift=acc_shift), [10])
    traced = jax.jit(lambda shift: function(*ones, acc_shift=shift))
    np.testing.assert_array_equal(traced(np.int32(1)), [10])
    with pytest.raises(TypeError, match=r"acc_shift is .* expected an integer"):
        traced(np.float32(1))


def test_coefficients_are_integers():
    x = jax.numpy.zeros(4, np.int32)
    fixed = activations.FIXED
    for field in fixed._fields:
        value = getattr(fixed, field)
        wrong = (0.5, *value[1:]) if isinstance(value, tuple) else 0.5
        with pytest.raises(TypeError, match=f"tanh 32_16: {field} is .* expected an integer"):
            kernels.tanh(x, activation=fixed._replace(**{field: wrong}))
    with pytest.raises(NNLibParamError, match="sigmoid_scale is"):
        kernels.tanh(x, activation=fixed._replace(sigmoid_scale=2**31))


# Sizes of scratch memory.


@pytest.mark.parametrize(
    ("arguments", "size"),
    [((3, 5, 3, 16), 131), ((3, 5, 3, 8), 83), ((2, 5, 1, -1), 83), ((1, 4, 4, 16), 67)],
)
def test_size_of_conv1d(arguments, size):
    assert kernels.xa_nn_conv1d_std_getsize(*arguments) == size


@pytest.mark.parametrize(
    ("length", "kernel", "stride", "padding", "out", "extent"),
    [(10, 3, 2, 1, 4, 11), (5, 3, 2, 1, 4, 9), (4, 3, 1, 2, 6, 8)],
)
def test_bounds_hold_all_that_windows_reach(length, kernel, stride, padding, out, extent):
    """The image with its padding, or as far as the last window reaches; a column of 6 channels."""
    size = kernels.xa_nn_conv2d_std_getsize(length, 6, kernel, 5, stride, padding, out, 8)
    assert size == 4 * (extent * 5 * 8) + 16


PRECISION_AT = {
    name: 3 if "conv1d" in name else 7 if "_std" in name else 12 for name in SIZE_ARGUMENTS
}
PRECISION_AT |= {"xa_nn_avgpool_getsize": 1, "xa_nn_maxpool_getsize": 1}


@pytest.mark.parametrize("name", SIZE_ARGUMENTS)
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


def test_the_kind_of_a_name_is_in_it():
    kinds = {name: row.fixed["kind"] for name, row in kernels.NAMES.items() if "kind" in row.fixed}
    assert set(kinds.values()) >= {"relu", "relu1", "relu6"}
    for name, kind in kinds.items():
        assert kind == name.removeprefix("xa_nn_vec_").rsplit("_", 2)[0]
