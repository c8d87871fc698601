"""A block-scaled element type, registered for a test: TOSA 1.0 has none, so that tests bring one.

Values are float4 in blocks of 32, as of OCP's MXFP4. Operators of data layout take it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import jax
import ml_dtypes
import numpy as np
import pytest
from jax import lax

from tosajax import Builder, Graph, dtypes, ops, spec
from tosajax.block_scaled import BlockScaled
from tosajax.dtypes import DType
from tosajax.spec import TypeRow

NAME = "MXFP4E2M1"
OPERATORS = {"CONST": "out_t", "IDENTITY": "in_out_t", "RESHAPE": "in_out_t"} | {
    "TRANSPOSE": "in_out_t",
    "CONCAT": "in_out_t",
}


def register(monkeypatch: pytest.MonkeyPatch) -> DType:
    """Adds the type to DType, and to the rows of operators that move elements."""
    mx = object.__new__(DType)
    mx._name_ = mx._value_ = NAME
    monkeypatch.setitem(DType._member_map_, NAME, mx)
    monkeypatch.setitem(DType._value2member_map_, NAME, mx)
    monkeypatch.setattr(DType, "_member_names_", [*DType._member_names_, NAME])
    form = dtypes._Format(np.dtype(ml_dtypes.float4_e2m1fn), 4, is_float=True, block=32)
    monkeypatch.setitem(dtypes._FORMATS, mx, form)
    for name, variable in OPERATORS.items():
        operator = spec.OPERATORS[name]
        row = TypeRow((frozenset({"PRO-FP"}),), "mx", {variable: mx})
        whole = dataclasses.replace(operator, types=(*operator.types, row))
        monkeypatch.setitem(spec.OPERATORS, name, whole)
    monkeypatch.setattr(ops, "reshape", _reshape)
    monkeypatch.setattr(ops, "transpose", _transpose)
    monkeypatch.setattr(ops, "concat", _concat)
    return mx


def _reshape(input1, shape):
    return input1.reshape(shape)


def _transpose(input1, *, perms):
    return input1.transpose(perms)


def _concat(input1, *, axis):
    return jax.tree.map(lambda *parts: lax.concatenate(parts, axis), *input1)


def drawn(*shape: int, seed: int = 0) -> BlockScaled:
    rng = np.random.default_rng(seed)
    values = rng.integers(0, 16, shape).astype(np.uint8).astype(ml_dtypes.float4_e2m1fn)
    exponents = rng.integers(-3, 4, (*shape[:-1], shape[-1] // 32))
    return BlockScaled(values, np.exp2(exponents).astype(ml_dtypes.float8_e8m0fnu)).check()


def joined(values: Sequence[BlockScaled], axis: int) -> BlockScaled:
    return jax.tree.map(lambda *parts: np.concatenate(parts, axis), *values)


def graph(mx: DType, constant: BlockScaled | None = None) -> Graph:
    """y: x (1, 2, 64) and a transposed constant in one tensor; z: the same in another shape."""
    b = Builder()
    x = b.input("x", mx, (1, 2, 64))
    c = b.const(drawn(1, 1, 64, seed=9) if constant is None else constant, mx, name="c")
    turned = b.op("TRANSPOSE", c, perms=(1, 0, 2), name="turned")
    y = b.op("CONCAT", x, turned, axis=1, name="y")
    z = b.op("RESHAPE", y, b.const_shape((3, 64)), name="z")
    return b.graph([y, z])


def expected(x: BlockScaled) -> dict[str, BlockScaled]:
    """What `graph` makes of examples (n, 2, 64): y (n, 3, 64), z (n, 3, 64)."""
    count = x.shape[0]
    constants = joined([drawn(1, 1, 64, seed=9)] * count, 0)
    y = joined([x, constants], 1)
    return {"y": y, "z": y}
