"""Programs for GPUs, where XLA may double sums of int8 and cuDNN spreads infinities."""

from __future__ import annotations

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracle import matmul_oracle as oracle
from oracle.device import on_cpu, to_device

from tosajax.dtypes import DType
from tosajax.ops import conv
from tosajax.ops._window import Window
from tosajax.ops.indices import argmax
from tosajax.ops.products import matmul, matmul_t
from tosajax.ops.routes import choose, definition
from tosajax.ops.routes.dot import dot
from tosajax.ops.routes.operands import Convolution
from tosajax.ops.routes.platform import ANY, Platform, current, tracing_for

# Where float32 still holds every sum, where it no longer would, and parts of unequal length.
LENGTHS = (1, 9, 1023, 1024, 1025, 3000)


@pytest.mark.parametrize("b_axis", [-2, -1])
@pytest.mark.parametrize("length", LENGTHS)
def test_sums_as_gpus_add_them(length, b_axis):
    rng = np.random.default_rng(length)
    # Odd products as large as they come: each unit of a sum counts, up to the last bit.
    for low, high in ((-128, -127), (127, 128), (-127, -126), (-128, 128)):
        a = rng.integers(low, high, (3, length)).astype(np.int8)
        b = rng.integers(low, high, (length, 2)).astype(np.int8)
        a[0, -1] = 1  # an odd sum beside the largest
        with tracing_for(Platform("cuda")):
            result = jax.jit(functools.partial(dot, b_axis=b_axis))(
                a, b if b_axis == -2 else b.T.copy()
            )
        np.testing.assert_array_equal(result, a.astype(np.int64) @ b.astype(np.int64))


WINDOW = {"pad": (1, 1, 1, 1), "stride": (1, 1), "dilation": (1, 1)}
OPERATORS = {
    "MATMUL": (matmul, (1, 4, 6), (1, 6, 5), {}),
    "MATMUL_T": (matmul_t, (1, 4, 6), (1, 5, 6), {}),
    "CONV2D": (conv.conv2d, (1, 4, 4, 8), (20, 3, 3, 8), WINDOW),
    "CONV2D 1x1": (conv.conv2d, (1, 4, 4, 8), (4, 1, 1, 8), {**WINDOW, "stride": (2, 2)}),
    "CONV3D": (
        conv.conv3d,
        (1, 3, 4, 4, 8),
        (4, 2, 3, 3, 8),
        {"pad": (0, 1, 1, 1, 1, 1), "stride": (1, 1, 1), "dilation": (1, 1, 1)},
    ),
    "DEPTHWISE_CONV2D": (conv.depthwise_conv2d, (1, 4, 4, 8), (3, 3, 8, 1), WINDOW),
    "TRANSPOSE_CONV2D": (
        conv.transpose_conv2d,
        (1, 4, 4, 8),
        (4, 3, 3, 8),
        {"out_pad": (0, 0, 0, 0), "stride": (2, 2)},
    ),
}


@pytest.mark.parametrize(("known", "platform"), [(None, "cpu"), (None, "cuda"), ("cuda", "cuda")])
@pytest.mark.parametrize("dtype", [DType.INT8, DType.INT16, DType.FP32])
@pytest.mark.parametrize("name", OPERATORS)
def test_programs_for_gpus_avoid_what_fails_there(name, dtype, known, platform):
    """Also where the platform is known only when the program is lowered."""
    function, shape, weight_shape, attributes = OPERATORS[name]
    acc = {DType.INT8: DType.INT32, DType.INT16: DType.INT48, DType.FP32: DType.FP32}[dtype]
    weight_t = dtype if "MATMUL" in name or dtype.is_float else DType.INT8
    rng = np.random.default_rng(1)
    x, weight = oracle.draw(rng, dtype, shape), oracle.draw(rng, weight_t, weight_shape)
    zps = np.zeros(1, dtype.storage), np.zeros(1, weight_t.storage)
    if "MATMUL" in name:
        call, operands = functools.partial(function, out_type=acc), (x, weight, *zps)
    else:
        call = functools.partial(function, acc_type=acc, **attributes)
        operands = (x, weight, to_device(np.zeros(1, acc.storage)), *zps)
    with tracing_for(Platform(known)):
        traced = jax.jit(call).trace(*operands)
    text = traced.lower(lowering_platforms=(platform,)).as_text()
    of_int8 = re.search(r"dot_general.*xi8>", text) is not None
    if platform == "cuda":
        assert not of_int8
        assert "stablehlo.convolution" not in text
    else:  # else the test for "cuda" would pass without a reason
        assert of_int8 == (not dtype.is_float and name != "DEPTHWISE_CONV2D")


def test_largest_values_are_found_among_integers():
    """XLA:GPU finds any one of several NaN."""
    traced = jax.jit(functools.partial(argmax, axis=1)).trace(np.zeros((3, 8), np.float32))
    text = traced.lower(lowering_platforms=("cuda",)).as_text()
    reduced = re.findall(r"stablehlo.reduce\((.*?)\n", text)
    assert reduced
    assert not [line for line in reduced if "f32" in line]


def test_skipped_padding_is_traced_for_each_platform():
    """JAX keeps the trace of the jitted function that skips padding."""
    x, weight = np.ones((1, 4, 4, 8), np.float32), np.ones((20, 3, 3, 8), np.float32)
    zero = jnp.zeros(1, jnp.float32)

    for name, count in (("cpu", 1), ("cuda", 0), ("cpu", 1)):
        with tracing_for(Platform(name)):
            call = functools.partial(conv.conv2d, acc_type=DType.FP32, **WINDOW)
            text = str(
                jax.make_jaxpr(lambda *xs, call=call: call(*xs))(x, weight, zero, zero, zero)
            )
        assert text.count("conv_general_dilated[") == count


def test_the_platform_of_a_trace_ends_with_it():
    assert current() == ANY
    seen = []

    def fail():
        with tracing_for(Platform("cuda")):
            seen.append(current())
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert seen == [Platform("cuda")]
    assert current() == ANY


@pytest.mark.parametrize(("name", "count"), [("cpu", 1), ("cuda", 0), (None, 1)])
def test_a_known_platform_has_its_route_alone(name, count):
    rng = np.random.default_rng(41)
    x = oracle.draw(rng, DType.INT8, (2, 8, 8, 32))
    weight = oracle.draw(rng, DType.INT8, (32, 3, 3, 32))
    zero = np.zeros(1, np.int8)
    window = Window((3, 3), (1, 1), (1, 1), ((1, 1), (1, 1)))

    def call(x):
        with tracing_for(Platform(name)):
            return choose.convolve_integers(Convolution(x, weight, zero, zero, window))

    text = str(jax.make_jaxpr(call)(x))
    assert text.count("conv_general_dilated[") == count
    assert ("dot_general[" in text) == (name != "cpu")
    operands = on_cpu(x), on_cpu(weight), on_cpu(zero), on_cpu(zero)
    want = definition.convolution(Convolution(*operands, window))
    np.testing.assert_array_equal(np.asarray(call(x)), np.asarray(want))
