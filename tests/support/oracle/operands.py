"""Values for all operands of the one-node graphs of every operator and type row."""

from __future__ import annotations

from typing import Any

import numpy as np

from oracle.table_rows import boundaries
from tosajax import DType, Graph, spec
from tosajax.graph import Tensor

EXAMPLES = 2

# Windows of few taps, as each is an instruction to compile.
_CONV = {"pad": (1, 0, 0, 0), "stride": (1, 1), "dilation": (1, 1), "bias": (2,)}
_POOL = {"input": (1, 2, 3, 2), "kernel": (2, 1), "stride": (1, 1), "pad": (1, 0, 0, 0)}
SMALL: dict[str, dict[str, Any]] = {
    "AVG_POOL2D": _POOL | {"output": (1, 2, 3, 2)},
    "MAX_POOL2D": _POOL | {"output": (1, 2, 3, 2)},
    "CONV2D": _CONV | {"input": (1, 2, 3, 2), "weight": (2, 2, 1, 2), "output": (1, 2, 3, 2)},
    "CONV3D": {
        "input": (1, 1, 2, 3, 2),
        "weight": (2, 1, 2, 1, 2),
        "bias": (2,),
        "pad": (0, 0, 1, 0, 0, 0),
        "stride": (1, 1, 1),
        "dilation": (1, 1, 1),
        "output": (1, 1, 2, 3, 2),
    },
    "DEPTHWISE_CONV2D": _CONV
    | {"input": (1, 2, 3, 2), "weight": (2, 1, 2, 1), "output": (1, 2, 3, 2)},
    "TRANSPOSE_CONV2D": {
        "input": (1, 2, 2, 2),
        "weight": (2, 2, 1, 2),
        "bias": (2,),
        "out_pad": (0, 0, 0, 0),
        "stride": (2, 1),
        "output": (1, 4, 2, 2),
    },
}


def draw_operands(
    operator: spec.Operator, graph: Graph, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """EXAMPLES values of every operand that is not a shape, by tensor name."""
    node = graph.nodes[-1]
    names = [a.name for a in operator.inputs]
    names += names[-1:] * (len(node.inputs) - len(names))  # a tensor list is last
    return {
        tensor: _draw(operator.name, name, graph.tensors[tensor], rng)
        for tensor, name in zip(node.inputs, names, strict=True)
        if graph.tensors[tensor].dtype is not DType.SHAPE
    }


def _draw(operator: str, name: str, tensor: Tensor, rng: np.random.Generator) -> np.ndarray:
    """EXAMPLES values of an operand, all of them predictable."""
    assert tensor.shape is not None
    dtype, shape = tensor.dtype, (EXAMPLES, *tensor.shape)
    steps = np.arange(EXAMPLES).reshape(-1, *(1 for _ in tensor.shape))
    if name == "indices":
        # SCATTER wants each index at most once.
        order = (np.arange(shape[-1]) + steps) % shape[-1]
        return np.broadcast_to(order, shape).astype(np.int32)
    if name == "input2" and "SHIFT" in operator:
        return rng.integers(0, 8, shape).astype(dtype.storage)
    if operator == "INTDIV":  # never 0; and not the minimum by -1
        return rng.integers(1, 100, shape).astype(dtype.storage)
    if tensor.values is not None:
        free = (dtype is DType.INT8 and name.endswith("_zp")) or name in ("multiplier", "pad_const")
        more = steps if free and dtype is not DType.BOOL else 0 * steps
        return (np.broadcast_to(tensor.values, shape) + more.astype(dtype.storage)).astype(
            dtype.storage
        )
    if dtype is DType.BOOL:
        return rng.random(shape) < 0.5
    if dtype.is_float:
        return _floats(operator, dtype, shape, rng)
    narrow = {"input1", "input2"} >= {name} and operator in ("ADD", "SUB", "MUL", "REDUCE_SUM")
    return _integers(dtype, shape, rng, small=narrow)


def _floats(operator: str, dtype: DType, shape: tuple, rng: np.random.Generator) -> np.ndarray:
    values = rng.uniform(-4, 4, shape)
    edges = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5]
    values = np.where(rng.random(shape) < 0.3, rng.choice(edges, shape), values)
    # One NaN or infinity would spoil a whole transform; TRANSPOSE_CONV2D may leave out its product
    # with a zero between the inputs.
    if operator not in ("FFT2D", "RFFT2D", "TRANSPOSE_CONV2D"):
        special = [np.inf, -np.inf, np.nan]
        values = np.where(rng.random(shape) < 0.05, rng.choice(special, shape), values)
    with np.errstate(invalid="ignore"):
        return values.astype(dtype.storage)


def _integers(dtype: DType, shape: tuple, rng: np.random.Generator, *, small: bool) -> np.ndarray:
    if small and dtype in (DType.INT32, DType.INT48):  # their sums would overflow
        return rng.integers(-1000, 1000, shape).astype(dtype.storage)
    edges = np.clip(boundaries(dtype.storage), dtype.minimum, dtype.maximum)
    values = rng.integers(dtype.minimum, dtype.maximum, shape, dtype=np.int64, endpoint=True)
    return np.where(rng.random(shape) < 0.5, rng.choice(edges, shape), values).astype(dtype.storage)
