"""Graphs of open batch that compute each example by itself, and inputs for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import tosajax
from tosajax import Builder, DType, Graph, Tensor
from tosajax.spec.enums import ResizeMode, RoundingMode

INT8, INT32 = DType.INT8, DType.INT32


def graph_of(make: Callable[[Builder, Tensor], Any], dtype: DType = INT32, shape=(-1, 4)) -> Graph:
    b = Builder()
    made = make(b, b.input("x", dtype, shape))
    return b.graph(list(made) if isinstance(made, tuple) else [made])


def values(b: Builder, shape: tuple[int, ...], dtype: DType = INT32, first: int = -3) -> Tensor:
    return b.const(np.arange(first, first + np.prod(shape)).reshape(shape), dtype)


def zero(b: Builder, dtype: DType = INT8) -> Tensor:
    return b.const([0], dtype)


def conv(b: Builder, x: Tensor) -> Tensor:
    weight = values(b, (3, 2, 2, 4), INT8)
    bias = values(b, (3,), INT32)
    return b.op(
        "CONV2D", x, weight, bias, zero(b), zero(b),
        pad=(1, 0, 1, 0), stride=(1, 1), dilation=(1, 1), acc_type=DType.INT32,
    )  # fmt: skip


def depthwise(b: Builder, x: Tensor) -> Tensor:
    weight = values(b, (2, 2, 4, 2), INT8)
    bias = values(b, (8,), INT32)
    return b.op(
        "DEPTHWISE_CONV2D", x, weight, bias, zero(b), zero(b),
        pad=(1, 0, 1, 0), stride=(1, 1), dilation=(1, 1), acc_type=DType.INT32,
    )  # fmt: skip


def resize(b: Builder, x: Tensor) -> Tensor:
    scale, offset, border = shape_of(b, 4, 2, 4, 2), shape_of(b, 0, 0), shape_of(b, 0, 2)
    return b.op(
        "RESIZE", x, scale, offset, border,
        mode=ResizeMode.BILINEAR, dtype=INT32, shape=(-1, 7, 8, 4),
    )  # fmt: skip


def largest(b: Builder, x: Tensor) -> Tensor:
    return b.op("GATHER", x, b.op("ARGMAX", x, axis=1))


def replaced(b: Builder, x: Tensor) -> Tensor:
    index = b.op(
        "SLICE", b.op("ARGMAX", x, axis=1), shape_of(b, 0, 0), shape_of(b, -1, 1), shape=(-1, 1)
    )
    row = b.op("SLICE", x, shape_of(b, 0, 0, 0), shape_of(b, -1, 1, 3), shape=(-1, 1, 3))
    return b.op("SCATTER", x, index, row)


def shape_of(b: Builder, *sizes: int) -> Tensor:
    return b.const_shape(sizes)


def rows(b: Builder, x: Tensor) -> Tensor:
    return b.op("RESHAPE", x, shape_of(b, -1, 2), shape=(-1, 2))


APART = {
    "unary": graph_of(lambda b, x: b.op("ABS", x)),
    "binary": graph_of(lambda b, x: b.op("ADD", x, x)),
    "a row for all": graph_of(lambda b, x: b.op("SUB", values(b, (1, 4)), x)),
    "product": graph_of(lambda b, x: b.op("MUL", x, values(b, (1, 4)), zero(b))),
    "table": graph_of(lambda b, x: b.op("TABLE", x, values(b, (256,), INT8, -128)), INT8),
    "chosen": graph_of(lambda b, x: b.op("SELECT", b.op("GREATER", x, values(b, (1, 4))), x, x)),
    "convolution": graph_of(conv, INT8, (-1, 5, 5, 4)),
    "depthwise": graph_of(depthwise, INT8, (-1, 5, 5, 4)),
    "resized": graph_of(resize, INT8, (-1, 4, 4, 4)),
    "gathered": graph_of(largest, INT8, (-1, 4, 3)),
    "scattered": graph_of(replaced, INT8, (-1, 4, 3)),
    "pool": graph_of(
        lambda b, x: b.op("MAX_POOL2D", x, kernel=(2, 2), stride=(1, 1), pad=(0, 0, 0, 0)),
        INT8,
        (-1, 5, 5, 4),
    ),
    "matmul": graph_of(lambda b, x: b.op("MATMUL", x, x, zero(b), zero(b)), INT8, (-1, 4, 4)),
    "matmul_t": graph_of(
        lambda b, x: b.op("MATMUL_T", x, b.op("REVERSE", x, axis=1), zero(b), zero(b)),
        INT8,
        (-1, 4, 4),
    ),
    "matmul_t by one matrix": graph_of(
        lambda b, x: b.op("MATMUL_T", x, values(b, (1, 3, 4), INT8), zero(b), zero(b)),
        INT8,
        (-1, 2, 4),
    ),
    "sum": graph_of(lambda b, x: b.op("REDUCE_SUM", x, axis=1)),
    "argmax": graph_of(lambda b, x: b.op("ARGMAX", x, axis=1), INT8),
    "concatenation": graph_of(lambda b, x: b.op("CONCAT", x, x, axis=1)),
    "reversed": graph_of(lambda b, x: b.op("REVERSE", x, axis=1)),
    "flat": graph_of(
        lambda b, x: b.op("RESHAPE", x, shape_of(b, -1, 4), shape=(-1, 4)), INT32, (-1, 2, 2)
    ),
    "padded": graph_of(lambda b, x: b.op("PAD", x, shape_of(b, 0, 0, 1, 2), b.const([7], INT32))),
    "part": graph_of(
        lambda b, x: b.op("SLICE", x, shape_of(b, 0, 1), shape_of(b, -1, 2), shape=(-1, 2))
    ),
    "tiled": graph_of(lambda b, x: b.op("TILE", x, shape_of(b, 1, 3))),
    "transposed": graph_of(lambda b, x: b.op("TRANSPOSE", x, perms=(0, 2, 1)), INT32, (-1, 2, 3)),
    "rows of examples": graph_of(
        lambda b, x: b.op(
            "RESHAPE", b.op("REVERSE", rows(b, x), axis=1), shape_of(b, -1, 4), shape=(-1, 4)
        )
    ),
    "two outputs": graph_of(lambda b, x: (b.op("ABS", x), b.op("REDUCE_MAX", x, axis=1))),
}  # fmt: skip
TOGETHER = {
    "sum over the batch": graph_of(lambda b, x: b.op("REDUCE_SUM", x, axis=0)),
    "reversed batch": graph_of(lambda b, x: b.op("REVERSE", x, axis=0)),
    "batch twice": graph_of(lambda b, x: b.op("CONCAT", x, x, axis=0, shape=(-1, 4))),
    "one more": graph_of(lambda b, x: b.op("CONCAT", x, values(b, (1, 4)), axis=0, shape=(-1, 4))),
    "tiled batch": graph_of(lambda b, x: b.op("TILE", x, shape_of(b, 2, 1), shape=(-1, 4))),
    "transposed batch": graph_of(lambda b, x: b.op("TRANSPOSE", x, perms=(1, 0))),
    "padded batch": graph_of(
        lambda b, x: b.op("PAD", x, shape_of(b, 1, 0, 0, 0), b.const([7], INT32), shape=(-1, 4))
    ),
    "examples of two rows": graph_of(
        lambda b, x: b.op("RESHAPE", x, shape_of(b, -1, 2), shape=(-1, 2))
    ),
    "argmax of the batch": graph_of(lambda b, x: b.op("ARGMAX", x, axis=0), INT8),
    "first of all": graph_of(
        lambda b, x: b.op("SLICE", x, shape_of(b, 0, 0), shape_of(b, 1, 4), shape=(1, 4))
    ),
    "an output without examples": graph_of(
        lambda b, x: (b.op("ABS", x), b.op("ABS", values(b, (1, 4))))
    ),
    "per channel of the batch": graph_of(
        lambda b, x: b.op(
            "RESCALE", x, b.const([2**30], INT32), b.const([30], INT8), zero(b), zero(b),
            scale32=True, rounding_mode=RoundingMode.SINGLE_ROUND, per_channel=True,
            input_unsigned=False, output_unsigned=False,
        ),
        INT8,
        (-1,),
    ),
}  # fmt: skip


def inputs_of(graph: Graph, batch: int) -> list[np.ndarray]:
    rng = np.random.default_rng(5)
    return [
        rng.integers(-128, 128, (batch, *(t.shape or ())[1:])).astype(t.dtype.storage)
        for t in graph.input_tensors
    ]


def digits(data):
    graph = tosajax.load(data / "et_digits_cnn_a8w8" / "model.tosa")
    return graph, np.load(data / "et_digits_cnn_a8w8" / "inputs_0.npy").reshape(-1, 8, 8, 1)


def with_shared_rows():
    b = Builder()
    x, rows = b.input("x", DType.INT32, (1, 4)), b.input("rows", DType.INT32, (2, 4))
    graph = b.graph([b.op("ADD", x, rows)])
    return graph, [np.arange(36, dtype=np.int32).reshape(9, 4), np.eye(2, 4, dtype=np.int32)]
