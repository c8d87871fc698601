"""Programs of sweeps on native kernels, beside graphs that are compiled for each setting."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tosajax
from tosajax import Builder, DType, Graph
from tosajax.spec import RoundingMode
from tosajax.sweep.program import graph_program

pytest.importorskip("llvmlite")
pytestmark = pytest.mark.usefixtures("quick", "native_kernels")

RNG = np.random.default_rng(5)
IMAGES = RNG.integers(-128, 128, (7, 6, 6, 5)).astype(np.int8)


def layer(b: Builder, x: Any, name: str, *, depthwise: bool) -> Any:
    shape = (3, 3, 5, 1) if depthwise else (9, 3, 3, 5)
    channels = 5 if depthwise else 9
    weight = RNG.integers(-100, 100, shape).astype(np.int8)
    zero = b.const([0], DType.INT8)
    x = b.op(
        "DEPTHWISE_CONV2D" if depthwise else "CONV2D", x,
        b.const(weight, DType.INT8, name=f"{name}/weight"),
        b.const(RNG.integers(-999, 999, channels), DType.INT32, name=f"{name}/bias"),
        b.const([4], DType.INT8, name=f"{name}/zp"), zero, pad=(1, 1, 1, 1), stride=(1, 1),
        dilation=(1, 1), acc_type=DType.INT32,
    )  # fmt: skip
    x = b.op(
        "RESCALE", x,
        b.const(RNG.integers(2**30, 2**31, channels), DType.INT32, name=f"{name}/multiplier"),
        b.const(RNG.integers(38, 42, channels), DType.INT8, name=f"{name}/shift"),
        b.const([0], DType.INT32), b.const([4], DType.INT8), dtype=DType.INT8, scale32=True,
        rounding_mode=RoundingMode.SINGLE_ROUND, per_channel=True, input_unsigned=False,
        output_unsigned=False, name=f"{name}/scaled",
    )  # fmt: skip
    return b.op("CLAMP", x, min_val=-100, max_val=100, name=f"{name}/clamped")


def graph_of_layers() -> Graph:
    b = Builder()
    x = b.input("x", DType.INT8, (1, *IMAGES.shape[1:]))
    for name, depthwise in (("first", True), ("second", False)):
        x = layer(b, x, name, depthwise=depthwise)
    return b.graph([x])


GRAPH = graph_of_layers()
CONSTANTS = {
    n.outputs[0]: GRAPH.tensors[n.outputs[0]].values for n in GRAPH.nodes if n.op == "CONST"
}
CLAMPS = [n for n in GRAPH.nodes if n.op == "CLAMP"]
RESCALES = [n for n in GRAPH.nodes if n.op == "RESCALE"]


def changed(values: dict[str, np.ndarray], attributes: dict[str, dict[str, Any]]) -> Graph:
    """With other constants, and other attributes of the nodes with these outputs."""
    tensors = dict(GRAPH.tensors)
    for name, value in values.items():
        tensors[name] = dataclasses.replace(tensors[name], values=value)
    nodes = tuple(
        dataclasses.replace(
            n, attributes={**n.attributes, **attributes.get((*n.outputs, "")[0], {})}
        )
        for n in GRAPH.nodes
    )
    return dataclasses.replace(GRAPH, tensors=tensors, nodes=nodes)


def one_by_one(values: dict[str, np.ndarray], attributes: dict[str, dict[str, Any]]) -> Any:
    graph = changed(values, attributes)
    return tosajax.compile(graph, batch=len(IMAGES), native=False)(IMAGES)[0]


def other(name: str) -> np.ndarray:
    """Values of a constant for a setting."""
    values = np.asarray(CONSTANTS[name])
    if name.endswith("weight"):
        return RNG.integers(-128, 128, values.shape).astype(np.int8)
    step = RNG.integers(1, 3, values.shape)
    return (values - (step * 2**20 if name.endswith("multiplier") else step)).astype(values.dtype)


@pytest.mark.parametrize("what", [("multiplier", "shift"), ("weight", "bias", "zp")])
def test_constants_of_settings(what: tuple[str, ...]):
    names = [name for name in CONSTANTS if name.rsplit("/", 1)[-1] in what]
    assert len(names) == 2 * len(what)
    fixed = {name: CONSTANTS[name] for name in CONSTANTS if name not in names}
    run = jax.jit(graph_program(GRAPH, {}, fixed, len(IMAGES)))
    settings = [{name: other(name) for name in names} for _ in range(3)]
    for values in settings:
        varying = {name: jnp.asarray(value) for name, value in values.items()}
        np.testing.assert_array_equal(run(varying, IMAGES)[0], one_by_one(values, {}))
    text = run.lower(settings[0], IMAGES).as_text()
    assert "tosajax_chain" in text


def test_bounds_of_settings():
    """Kernels take them as operands."""
    traced = {
        n.outputs[0]: {key: f"{n.outputs[0]}/{key}" for key in ("min_val", "max_val")}
        for n in CLAMPS
    }
    run = jax.jit(graph_program(GRAPH, traced, CONSTANTS, len(IMAGES)))
    for low, high in ((-128, 127), (-8, 7), (3, 3)):
        varying = {
            key: jnp.int8(low if end == "min_val" else high)
            for keys in traced.values()
            for end, key in keys.items()
        }
        attributes = {name: {"min_val": low, "max_val": high} for name in traced}
        np.testing.assert_array_equal(run(varying, IMAGES)[0], one_by_one({}, attributes))
    text = run.lower(varying, IMAGES).as_text()
    assert "clamp" not in text
    assert "tosajax_chain" in text


def test_rounding_of_settings():
    """No kernel has both ways: RESCALE stays apart."""
    traced = {n.outputs[0]: {"rounding_mode": "twice"} for n in RESCALES}
    run = jax.jit(graph_program(GRAPH, traced, CONSTANTS, len(IMAGES)))
    for twice, mode in ((False, RoundingMode.SINGLE_ROUND), (True, RoundingMode.DOUBLE_ROUND)):
        attributes = {name: {"rounding_mode": mode} for name in traced}
        found = run({"twice": jnp.asarray(twice)}, IMAGES)[0]
        np.testing.assert_array_equal(found, one_by_one({}, attributes))
    text = run.lower({"twice": jnp.asarray(True)}, IMAGES).as_text()
    assert "tosajax_convolution" in text
    assert "_rescaled" not in text


def test_none(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TOSAJAX_NATIVE", "0")
    run = jax.jit(graph_program(GRAPH, {}, CONSTANTS, len(IMAGES)))
    assert "tosajax_" not in run.lower({}, IMAGES).as_text()
