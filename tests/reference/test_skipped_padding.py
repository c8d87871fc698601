"""Infinite and NaN weights at every place of a kernel over padding, on Arm's reference model."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from oracle import float_bounds

import tosajax
from reference import arm
from tosajax import Builder, DType, Graph

needs_arm = pytest.mark.skipif(not arm.is_installed(), reason="tosa-tools is not installed")

# Taps of the kernel, the shape of the input, and attributes.
CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "CONV2D": ((3, 2), (1, 3, 4, 1), {"pad": (1, 2, 2, 0), "stride": (1, 2), "dilation": (2, 1)}),
    "CONV3D": (
        (2, 1, 3),
        (1, 2, 2, 2, 5),
        {"pad": (1, 0, 0, 0, 2, 1), "stride": (1, 1, 1), "dilation": (1, 1, 1)},
    ),
    "DEPTHWISE_CONV2D": (
        (2, 3),
        (2, 3, 3, 1),
        {"pad": (1, 0, 1, 1), "stride": (1, 1), "dilation": (1, 1)},
    ),
    "TRANSPOSE_CONV2D": ((3, 2), (1, 2, 3, 1), {"out_pad": (1, -1, 0, 2), "stride": (2, 3)}),
}
# Input, output and accumulator.
TYPES = {
    "fp32": (DType.FP32, DType.FP32, DType.FP32),
    "fp16": (DType.FP16, DType.FP16, DType.FP32),
    "bf16": (DType.BF16, DType.BF16, DType.FP32),
    "fp8e4m3": (DType.FP8E4M3, DType.FP16, DType.FP16),
    "fp8e5m2": (DType.FP8E5M2, DType.FP16, DType.FP16),
}


def operands(name: str, dtype: DType, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Small integers, whose sums are exact, and kernels with one special value each, by place."""
    kernel, shape, _ = CASES[name]
    places = np.prod(kernel)
    special = np.repeat([np.inf, -np.inf, np.nan], places).astype(dtype.storage)
    weight = rng.integers(-2, 3, (3 * places, places)).astype(dtype.storage)
    weight[np.arange(3 * places), np.tile(np.arange(places), 3)] = special
    weight = weight.reshape(-1, *kernel)
    if name == "DEPTHWISE_CONV2D":
        weight = np.moveaxis(weight, 0, -1)[:, :, None]
    else:
        weight = np.repeat(weight[..., None], shape[-1], axis=-1)
    return rng.integers(-2, 3, shape).astype(dtype.storage), weight


def graph_of(name: str, types: str, x: np.ndarray, weight: np.ndarray) -> Graph:
    """One convolution, of which the weight is a constant."""
    in_t, out_t, acc_t = TYPES[types]
    b = Builder()
    zero, bias = np.zeros(1, in_t.storage), np.zeros(1, out_t.storage)
    given = b.input("x", in_t, x.shape)
    constants = (b.const(weight, in_t), b.const(bias, out_t), *[b.const(zero, in_t)] * 2)
    y = b.op(name, given, *constants, dtype=out_t, acc_type=acc_t, **CASES[name][2])
    return b.graph([y])


@needs_arm
@pytest.mark.parametrize("types", TYPES)
@pytest.mark.parametrize("name", CASES)
def test_special_weights(name, types):
    rng = np.random.default_rng(8)
    x, weight = operands(name, TYPES[types][0], rng)
    graph = graph_of(name, types, x, weight)
    other = np.array(x)
    other.flat[[0, -1]] = np.array([np.inf, np.nan]).astype(x.dtype)
    program, params = tosajax.lower(graph)
    traced = jax.jit(program)
    for values in (x, other):
        (wanted,) = arm.run(graph, {"x": values}).outputs.values()
        wanted = float_bounds.widen(wanted.view(TYPES[types][1].storage))
        assert np.isnan(wanted).any()
        assert np.isfinite(wanted).any()
        results = [traced(params, values)]
        if types == "bf16" and values is x:
            results.append(tosajax.compile(graph)(values))
        for (result,) in results:
            np.testing.assert_array_equal(float_bounds.widen(np.asarray(result)), wanted)
