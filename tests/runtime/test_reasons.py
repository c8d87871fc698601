"""The reasons in `explain`: one test for each way off each fast route, with its words."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import tosajax
from tosajax import Builder, DType, Graph
from tosajax.lowering.fusions import obstacle
from tosajax.native.codegen import isa
from tosajax.ops._window import window
from tosajax.ops.routes import choose
from tosajax.ops.routes.operands import INT8_CHUNK, Convolution
from tosajax.ops.routes.platform import Platform, tracing_for
from tosajax.runtime import program
from tosajax.runtime.program import why_not_native

CPU, GPU = Platform("cpu"), Platform("cuda")
OF_CPU = pytest.mark.skipif(jax.default_backend() != "cpu", reason="kernels of CPUs")


def abstract(shape: tuple[int, ...], dtype: Any = np.int8) -> Any:
    return jax.ShapeDtypeStruct(shape, dtype)


def convolution(
    channels: int = 16,
    oc: int = 16,
    kernel: tuple[int, ...] = (3, 3),
    side: int = 12,
    **changes: Any,
) -> Any:
    """An integer convolution by constant weights, with changes."""
    around = [n // 2 for n in kernel for _ in range(2)]
    ones = (1,) * len(kernel)
    operands = {
        "x": abstract((1, *(side for _ in kernel), channels)),
        "weight": np.ones((oc, *kernel, channels), np.int8),
        "x_zp": np.zeros(1, np.int8),
        "weight_zp": np.zeros(1, np.int8),
        "window": window(kernel, ones, ones, around),
    }
    return Convolution(**{**operands, **changes})


def of_floats(*arguments: Any, **changes: Any) -> Any:
    c = convolution(*arguments, **changes)
    return dataclasses.replace(c, x=abstract(c.x.shape, np.float32))


TRACED = abstract((16, 3, 3, 16))
ONE = np.ones(1, np.int8)
INTEGERS: dict[str, tuple[Any, Platform, str, str]] = {
    "fast": (convolution(), CPU, "convolution", "constant weights, 16 to 16 channels"),
    "weights traced": (convolution(weight=TRACED), CPU, "patches", "weights not constant"),
    "zero point traced": (
        convolution(weight_zp=abstract((1,))),
        CPU,
        "patches",
        "zero point of weights not constant",
    ),
    "zero point at its limit": (
        convolution(weight_zp=-126 * ONE),
        CPU,
        "convolution",
        "constant weights, 16 to 16 channels",
    ),
    "zero point beyond": (
        convolution(weight_zp=-127 * ONE),
        CPU,
        "patches",
        "weights less their zero point do not fit int8",
    ),
    "many terms": (
        convolution(INT8_CHUNK // 2 + 1, 1, (1, 2), 2),
        CPU,
        "patches",
        f"{INT8_CHUNK + 1} terms are too many for sums in int32",
    ),
    "terms at their limit": (
        convolution(INT8_CHUNK // 3, 8, (1, 3), 2),
        CPU,
        "convolution",
        f"constant weights, {INT8_CHUNK // 3} to 8 channels",
    ),
    "on a GPU": (convolution(), GPU, "patches", "only XLA for CPUs convolves integers"),
    "few to few": (convolution(11, 16), CPU, "patches", "11 to 16 channels are few"),
    "enough to few": (
        convolution(12, 16),
        CPU,
        "convolution",
        "constant weights, 12 to 16 channels",
    ),
    "few to many": (convolution(7, 17), CPU, "patches", "7 to 17 channels are few"),
    "enough to many": (
        convolution(8, 17),
        CPU,
        "convolution",
        "constant weights, 8 to 17 channels",
    ),
    "depth counts": (
        convolution(4, 32, (3, 3, 3)),
        CPU,
        "convolution",
        "constant weights, 12 to 32 channels",
    ),
    "one tap": (convolution(kernel=(1, 1)), CPU, "dot", "one tap"),
    "one tap, traced": (
        convolution(kernel=(1, 1), weight=abstract((16, 1, 1, 16))),
        CPU,
        "dot",
        "one tap",
    ),
    "most taps": (
        convolution(kernel=(8, 8)),
        CPU,
        "convolution",
        "constant weights, 16 to 16 channels",
    ),
    "more taps": (
        convolution(kernel=(5, 13)),
        CPU,
        "loop",
        "65 taps are too many to lay out at once",
    ),
    "large patches": (
        convolution(side=2048),
        CPU,
        "loop",
        "patches of 576 MiB, more than 256, are too large",
    ),
}


@pytest.mark.parametrize("case", INTEGERS)
def test_convolutions_of_integers(case):
    c, platform, name, reason = INTEGERS[case]
    with tracing_for(platform):
        route = choose.of_integers(c)
    assert (route.name, route.reason) == (name, reason)


FLOATS: dict[str, tuple[Any, Platform, str, str]] = {
    "fast": (of_floats(), CPU, "float convolution", "channels and results enough"),
    "on a GPU": (of_floats(), GPU, "float patches", "the platform is not a CPU"),
    "small result": (of_floats(side=9), CPU, "float patches", "a small result"),
    "larger result": (of_floats(side=10), CPU, "float convolution", "channels and results enough"),
    "few channels": (of_floats(7), CPU, "float patches", "7 input channels are few"),
    "enough channels": (of_floats(8), CPU, "float convolution", "channels and results enough"),
    "many taps of few channels": (
        of_floats(1, kernel=(5, 13)),
        CPU,
        "float convolution",
        "65 taps are too many to lay out at once",
    ),
    "spread": (of_floats(spread=(2, 2)), CPU, "float convolution", "of the spread input"),
    "spread on a GPU": (of_floats(spread=(2, 2)), GPU, "float patches", "of the spread input"),
}


@pytest.mark.parametrize("case", FLOATS)
def test_convolutions_of_floats(case):
    c, platform, name, reason = FLOATS[case]
    with tracing_for(platform):
        route = choose.of_floats(c)
    assert (route.name, route.reason) == (name, reason)


@pytest.mark.parametrize(
    ("kernel", "name", "reason"),
    [
        ((8, 8), "slices", "one multiply-add for each tap"),
        ((5, 13), "loop", "65 taps are too many to lay out at once"),
    ],
)
def test_depthwise_convolutions(kernel, name, reason):
    route = choose.of_depthwise(convolution(kernel=kernel))
    assert (route.name, route.reason) == (name, reason)


@pytest.mark.parametrize(
    ("dtype", "name", "reason"),
    [
        (np.int8, "dot", "int8"),
        (np.int16, "dots of bytes", "int16"),
        (np.float16, "float dot", "sums in float32"),
    ],
)
def test_products(dtype, name, reason):
    route = choose.of_products(abstract((1, 2, 3), dtype), abstract((1, 3, 2), dtype))
    assert (route.name, route.reason) == (name, reason)


def graph(
    op: str = "CONV2D",
    shape: tuple[int, ...] = (4, 3, 3, 4),
    *,
    dtype: DType = DType.INT8,
    weight_zp: int | None = 0,
    constant: bool = True,
) -> Graph:
    """A convolution of ones, of weights that are constant or an input."""
    b = Builder()
    channels = shape[2] if op == "DEPTHWISE_CONV2D" else shape[-1]
    kernel = shape[:2] if op == "DEPTHWISE_CONV2D" else shape[1:-1]
    wide = DType.INT48 if dtype is DType.INT16 else DType.INT32
    operands = [
        b.input("x", dtype, (1, *(n + 1 for n in kernel), channels)),
        b.const(np.ones(shape), DType.INT8) if constant else b.input("w", DType.INT8, shape),
        b.const([0], wide),
        b.const([0], dtype),
        b.input("zp", DType.INT8, (1,)) if weight_zp is None else b.const([weight_zp], DType.INT8),
    ]
    ones = (1,) * len(kernel)
    attributes: dict[str, Any] = {"pad": (0, 0) * len(kernel), "dilation": ones}
    if op == "TRANSPOSE_CONV2D":
        attributes = {"out_pad": (0, 0, 0, 0)}
    return b.graph([b.op(op, *operands, stride=ones, acc_type=wide, name="y", **attributes)])


def transposed_product() -> Graph:
    b = Builder()
    x, zero = b.input("x", DType.INT8, (2, 8, 16)), b.const([0], DType.INT8)
    w = b.const(np.arange(-64, 64).reshape(1, 8, 16), DType.INT8)
    return b.graph(outputs=[b.op("MATMUL_T", x, w, zero, zero)])


MANY = "terms are too many for sums in int32"
OBSTACLES: dict[str, tuple[Graph, str]] = {
    "none": (graph(), ""),
    "MATMUL_T": (transposed_product(), "none of MATMUL_T, only of MATMUL"),
    "zero point": (graph(weight_zp=-128), ""),
    "zero point traced": (graph(weight_zp=None), ""),
    "weights traced": (graph(constant=False), ""),
    "weights traced, and a zero point": (graph(constant=False, weight_zp=1), ""),
    "terms at their limit": (graph(shape=(1, 1, 1, INT8_CHUNK)), ""),
    "more terms": (graph(shape=(1, 1, 1, INT8_CHUNK + 1)), f"{INT8_CHUNK + 1} {MANY}"),
    "terms of int16 at their limit": (
        graph(shape=(1, 1, 1, INT8_CHUNK // 2), dtype=DType.INT16),
        "",
    ),
    "more terms of int16": (
        graph(shape=(1, 1, 1, INT8_CHUNK // 2 + 1), dtype=DType.INT16),
        f"{INT8_CHUNK // 2 + 1} {MANY}",
    ),
    "depth": (graph("CONV3D", (1, 1, 1, 2, INT8_CHUNK)), f"{2 * INT8_CHUNK} {MANY}"),
    "transposed": (graph("TRANSPOSE_CONV2D", (1, 1, 2, INT8_CHUNK)), f"{2 * INT8_CHUNK} {MANY}"),
    "depthwise": (graph("DEPTHWISE_CONV2D", (8, 16, 4, 1)), ""),
    "more taps": (graph("DEPTHWISE_CONV2D", (3, 43, 4, 1)), "129 taps, more than 128"),
    "depthwise of many channels": (graph("DEPTHWISE_CONV2D", (1, 3, INT8_CHUNK // 2, 1)), ""),
}


@pytest.mark.parametrize("case", OBSTACLES)
def test_what_keeps_a_product_from_native_kernels(case):
    g, reason = OBSTACLES[case]
    assert obstacle(g.nodes[-1], g.tensors) == reason


@OF_CPU
@pytest.mark.parametrize(
    ("case", "route", "reason"),
    [
        ("none", "native", "CONV2D"),
        ("weights traced, and a zero point", "native", "CONV2D"),
        (
            "more terms",
            "patches",
            f"{INT8_CHUNK + 1} {MANY}; not native: {INT8_CHUNK + 1} {MANY}",
        ),
        ("MATMUL_T", "dot", "int8; not native: none of MATMUL_T, only of MATMUL"),
        (
            "more taps",
            "loop",
            "129 taps are too many to lay out at once; not native: 129 taps, more than 128",
        ),
    ],
)
def test_explain_says_why_a_node_is_not_native(case, route, reason):
    run = tosajax.compile(OBSTACLES[case][0], native=True)
    (node,) = (node for node in run.cost().nodes if node.macs)
    assert (node.route.split()[0], node.reason) == (route.split()[0], reason)
    assert reason in run.explain()
    assert "\nnot native: " not in run.explain()


@OF_CPU
def test_depthwise_of_many_channels_has_a_native_kernel():
    g, _ = OBSTACLES["depthwise of many channels"]
    x = np.arange(g.input_tensors[0].shape[-1] * 8) % 251 - 125  # pyright: ignore
    x = x.astype(np.int8).reshape(1, 2, 4, -1)
    run = tosajax.compile(g, native=True)
    (node,) = (node for node in run.cost().nodes if node.macs)
    assert node.route.startswith("native")
    wide = x.astype(np.int32)
    np.testing.assert_array_equal(run(x)[0], wide[:, :, :2] + wide[:, :, 1:3] + wide[:, :, 2:])


def without_llvmlite(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(program, "can_compile", lambda: False)


def without_posix(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(program, "os", type("Os", (), {"name": "nt"}))


def on_a_slow_set(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(isa, "chosen", lambda _: None)


WAYS: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], dict[str, Any], str]] = {
    "argument": (lambda _: None, {"native": False}, "native=False"),
    "environment": (lambda p: p.setenv("TOSAJAX_NATIVE", "0"), {}, "TOSAJAX_NATIVE=0"),
    "not installed": (
        without_llvmlite,
        {},
        'llvmlite is not installed: pip install "tosajax[native]"',
    ),
    "processor": (
        on_a_slow_set,
        {},
        "kernels were not found faster on this processor: native=True takes them",
    ),
    "flags": (
        lambda _: None,
        {"report_unpredictable": True},
        "report_unpredictable looks at each node by itself",
    ),
}


@OF_CPU
@pytest.mark.parametrize("way", WAYS)
def test_explain_says_why_nothing_is_native(way, monkeypatch):
    monkeypatch.delenv("TOSAJAX_NATIVE", raising=False)
    change, options, reason = WAYS[way]
    change(monkeypatch)
    cost = tosajax.compile(graph(), **options).cost()
    assert cost.not_native == reason
    assert f"\nnot native: {reason}" in str(cost)
    assert reason.split(":")[0] in cost._repr_html_()
    (node,) = (node for node in cost.nodes if node.macs)
    assert not node.route.startswith("native")


def test_reasons_of_other_platforms_and_systems(monkeypatch):
    monkeypatch.delenv("TOSAJAX_NATIVE", raising=False)
    assert why_not_native(GPU) == "kernels are for CPUs, and this is cuda"
    without_posix(monkeypatch)
    assert why_not_native(CPU) == "kernels need a POSIX system"


@OF_CPU
def test_floats_have_no_native_kernels_to_miss():
    b = Builder()
    x = b.input("x", DType.FP32, (1, 8, 8))
    zero = b.const([0], DType.FP32)
    run = tosajax.compile(b.graph([b.op("MATMUL", x, x, zero, zero)]), native=False)
    assert run.cost().not_native == ""
    assert "not native" not in run.explain()
