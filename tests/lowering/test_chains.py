"""Native kernels that follow each other: one call of all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from native_graphs import (
    IMAGE,
    averaged,
    check,
    clamped,
    convolved,
    graph_of,
    joined_sum,
    largest,
    mirrored,
    multiplied,
    pointwise,
    rescaled,
    whys,
)

import tosajax
from tosajax import Tensor
from tosajax.builder import Builder
from tosajax.dtypes import DType
from tosajax.lowering.build import build
from tosajax.lowering.variables import State

pytest.importorskip("llvmlite")

pytestmark = pytest.mark.usefixtures("quick", "native_kernels")


def depthwise(b: Builder, x: Tensor) -> Tensor:
    return rescaled(b, convolved(b, x, op="DEPTHWISE_CONV2D"))


def moved(b: Builder, x: Tensor, *shape: int) -> Tensor:
    return b.op("RESHAPE", x, b.const_shape(shape))


def residual(b: Builder, x: Tensor) -> Tensor:
    first = pointwise(b, x)
    return averaged(b, joined_sum(b, first, depthwise(b, first)))


def read_by_others(b: Builder, x: Tensor) -> list[Tensor]:
    """Some results are outputs, or read by a node that is none of a chain."""
    first = pointwise(b, x)
    second = pointwise(b, first)
    third = clamped(b, pointwise(b, second))
    others = moved(b, second, 1, 16, 4, 6), moved(b, x, 1, 16, 4, 6)
    return [mirrored(b, first), third, *(mirrored(b, other) for other in others)]


def reshaped(b: Builder, x: Tensor) -> Tensor:
    """Twice between kernels, and behind the last."""
    first = moved(b, moved(b, pointwise(b, x), 1, 384), 1, 16, 4, 6)
    return moved(b, largest(b, first, 2, 2), 1, 2, 81)


def apart(b: Builder, x: Tensor) -> Tensor:
    """XLA reverses what the first makes."""
    return averaged(b, pointwise(b, mirrored(b, depthwise(b, pointwise(b, x)))))


def of_other_images(b: Builder, x: Tensor) -> Tensor:
    """Two images, then one."""
    two = pointwise(b, moved(b, pointwise(b, x), 2, 4, 8, 6))
    return moved(b, largest(b, two), 1, 8, 8, 6)


def of_matrices(count: int) -> Callable[[Builder, Tensor], Tensor]:
    """Not of images."""

    def write(b: Builder, x: Tensor) -> Tensor:
        products = multiplied(b, pointwise(b, x), count=count)
        return averaged(b, moved(b, rescaled(b, products, per_channel=False), 1, 8, 8, 9))

    return write


def made_weights(b: Builder, x: Tensor) -> Tensor:
    """A kernel makes those of the last one."""
    weight = moved(b, pointwise(b, x), 16, 2, 2, 6)
    return with_operands(b, pointwise(b, x), weight, b.const([0], DType.INT32))


def made_bias(b: Builder, x: Tensor) -> Tensor:
    whole = b.const(np.ones((10, 8, 8, 6)), DType.INT8)
    bias = moved(b, with_operands(b, x, whole, b.const([0], DType.INT32)), 10)
    weight = b.const(np.ones((10, 1, 1, 6)), DType.INT8)
    return with_operands(b, pointwise(b, x), weight, bias)


def with_operands(b: Builder, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    zero_points = b.const([5], DType.INT8), b.const([0], DType.INT8)
    how = {"pad": (0, 0, 0, 0), "stride": (1, 1), "dilation": (1, 1), "acc_type": DType.INT32}
    return b.op("CONV2D", x, weight, bias, *zero_points, **how)


def of_int16(b: Builder, x: Tensor) -> list[Tensor]:
    """Sums in int48 among what others read."""
    wide = rescaled(b, convolved(b, x), dtype=DType.INT16, scale32=False)
    weight = b.const(np.arange(-45, 45).reshape(9, 1, 1, 10), DType.INT8)
    zero_points = b.const([0], DType.INT16), b.const([0], DType.INT8)
    how = {"pad": (0, 0, 0, 0), "stride": (1, 1), "dilation": (1, 1), "acc_type": DType.INT48}
    sums = b.op("CONV2D", wide, weight, b.const([2**40], DType.INT48), *zero_points, **how)
    return [largest(b, wide), sums]


CHAINS: dict[str, tuple[Callable[[Builder, Tensor], Any], list[int]]] = {
    "a residual": (residual, [4]),
    "what others read": (read_by_others, [3]),
    "reshaped": (reshaped, [2]),
    "apart": (apart, [2, 2]),
    "other images": (of_other_images, [1, 2]),
    "weights that are made": (made_weights, [2, 1]),
    "a bias that is made": (made_bias, [2, 1]),
    "int16": (of_int16, [3]),
    "a matrix": (of_matrices(1), [1, 1, 1]),
    "matrices": (of_matrices(4), [1, 1, 1]),
}


def lengths(hlo: str) -> list[int]:
    """Kernels of each call of a program, in order."""
    targets = (part.split('"')[1] for part in hlo.split("custom_call_target=")[1:])
    ours = [target for target in targets if target.startswith("tosajax_")]
    return [int(t.split("_")[3]) if t.startswith("tosajax_chain_of_") else 1 for t in ours]


@pytest.mark.parametrize("name", CHAINS)
def test_chains(name: str):
    write, wanted = CHAINS[name]
    graph = graph_of(write)
    assert lengths(tosajax.compile(graph).hlo()) == wanted
    # Each node is explained.
    assert len(whys(graph)) == sum(wanted)
    check(graph)
    check(graph, batch=24)


def test_who_watches_sees_what_is_inside():
    graph = graph_of(residual)
    program, params = build(graph, prepare=True, native=True)
    seen: dict[str, Any] = {}

    def watch(state: State, name: str, value: Any) -> State:
        seen[name] = value
        return state

    watched = program(params, {}, IMAGE, watch=watch)[2]
    np.testing.assert_array_equal(watched[0], program(params, {}, IMAGE)[2][0])
    ends = [n.outputs[0] for n in graph.nodes if n.op in ("RESCALE", "AVG_POOL2D")]
    # Those of the kernels: a term of the sum is none.
    assert len([name for name in ends if name in seen]) == 4
