"""A storage that tosajax does not have goes the way of FP8: prepare, calibrate, train, freeze."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from quant.convert.helpers import constant, floats, legal, uniform, zeros

from tosajax import Builder, DType, UnsupportedError
from tosajax.grad import QTensor
from tosajax.grad.qtensor import tie
from tosajax.quant import (
    QModel,
    QParams,
    QSpec,
    calibrate,
    check_bit_exact,
    fake_quant,
    prepare,
    report,
    rule,
    with_bits,
)
from tosajax.quant.storages import Grid, Integers, OperandStorage

X, WEIGHT = uniform(1, 3, 1, 2, 5), uniform(2, 1, 5, 8)


@dataclasses.dataclass(frozen=True)
class Bfloat16:
    """BF16 without a scale: a CAST there and a CAST back."""

    dtype = DType.BF16
    name = label = "bf16"
    is_integer = False

    def check(self, spec: QSpec) -> None:
        del spec

    def grid(self, bits: jax.Array, *, narrow_range: bool) -> Grid:
        return Grid(-jnp.ones_like(bits), jnp.ones_like(bits))

    def quantize(self, x: jax.Array, qparams: QParams, estimator: Any) -> QTensor:
        rounded = lax.stop_gradient(x).astype(jnp.bfloat16)
        return QTensor(lax.optimization_barrier(rounded), x)

    def dequantize(self, x: QTensor, qparams: QParams) -> jax.Array:
        return tie(x)

    def levels(self, qparams: QParams) -> np.ndarray:
        del qparams
        every = (np.arange(2**16, dtype=np.uint32) << 16).view(np.float32)  # its upper half
        return np.unique(every[np.isfinite(every)]).astype(np.float64)

    def store(self, writer: Any, operand: Any) -> str:
        return writer.add("CAST", operand.name, name=f"{operand.name}/bf16", dtype=self.dtype)

    def widen(self, writer: Any, operand: Any, stored: str) -> str:
        return writer.add("CAST", stored, name=f"{operand.name}/wide", dtype=DType.FP32)


@dataclasses.dataclass(frozen=True)
class Blocks(Bfloat16):
    """Integers from -7 to 7 times a power of two for each block of the last axis."""

    size: int

    def quantize(self, x: jax.Array, qparams: QParams, estimator: Any) -> QTensor:
        blocks = lax.stop_gradient(x).reshape(-1, self.size)
        step = jnp.exp2(jnp.ceil(jnp.log2(jnp.abs(blocks).max(1, keepdims=True) / 7)))
        return super().quantize(
            x + (jnp.round(blocks / step) * step).reshape(x.shape) - lax.stop_gradient(x),
            qparams,
            estimator,
        )


def in_blocks(values: np.ndarray, size: int) -> np.ndarray:
    """The oracle, block by block."""
    found = values.astype(np.float64).reshape(-1, size)
    for block in found:
        step = 2.0 ** np.ceil(np.log2(np.abs(block).max() / 7))
        block[:] = np.rint(block / step) * step
    return found.reshape(values.shape)


@pytest.fixture(scope="module")
def case() -> tuple[QModel, Any]:
    b = Builder()
    y = b.op("MATMUL", floats(b, "x", 1, 2, 5), constant(b, WEIGHT, "w"), *zeros(b), name="y")
    rules = [rule(".*", weight=QSpec(Blocks(4)), act=QSpec(Bfloat16()))]
    with jax.numpy_dtype_promotion("strict"), jax.numpy_rank_promotion("raise"):
        model = prepare(legal(b.graph([y])), rules)
        return model, calibrate(model, [X])


def test_the_protocol():
    assert isinstance(Blocks(4), OperandStorage)
    assert not isinstance(Integers(DType.INT8), OperandStorage)
    assert QSpec(Blocks(4)) == QSpec(Blocks(4)) != QSpec(Blocks(2))
    assert QSpec(Blocks(4)).bits == 16
    with pytest.raises(ValueError, match="learned_bits True of bf16"):
        QSpec(Bfloat16(), learned_bits=True)


def test_values_and_gradients(case):
    model, params = case
    weight, x = in_blocks(WEIGHT, 4), X[0].astype(jnp.bfloat16).astype(np.float64)
    own = jnp.asarray(WEIGHT)
    np.testing.assert_array_equal(fake_quant(own, params["qparams"]["w"]), weight)

    @jax.jit
    def outputs_and_gradient(params: Any) -> Any:
        y, back = jax.vjp(lambda p: model.apply(p, X[0])[0], params)
        return y, back(jnp.ones_like(y))[0]["values"]["w"]

    y, gradient = outputs_and_gradient(params)
    np.testing.assert_allclose(y, x @ weight, rtol=1e-6)
    expected = np.broadcast_to(x.sum(1)[..., None], WEIGHT.shape)
    np.testing.assert_allclose(gradient, expected, rtol=1e-6)


def test_files(case):
    """Blocks are in the file as BF16, and all tensors are those that are trained."""
    model, params = case
    frozen = model.freeze(params)
    assert [node.op for node in frozen.nodes if node.op != "CONST"] == ["CAST"] * 3 + ["MATMUL"]
    assert frozen.tensors["w"].dtype is frozen.tensors["x/bf16"].dtype is DType.BF16
    np.testing.assert_array_equal(
        np.asarray(frozen.tensors["w"].values, np.float64), in_blocks(WEIGHT, 4)
    )
    assert check_bit_exact(model, params, X[0], against="frozen")


def test_reports(case):
    (row,) = report(*case, X).rows
    assert (row.tensor, row.dtype, row.bits, row.saturated) == ("x", "bf16", 16, 0)
    assert row.sqnr == row.local_sqnr > 50


def test_without_bits(case):
    model, params = case
    with pytest.raises(ValueError, match="'w' is bf16, which has no bits"):
        with_bits(model, params, {"w": 4})


def test_beside_integers():
    b = Builder()
    graph = b.graph([b.op("MATMUL", floats(b, "x", 1, 2, 5), constant(b, WEIGHT, "w"), *zeros(b))])
    with pytest.raises(UnsupportedError, match="'x': INT8, while 'w' is bf16"):
        prepare(graph, [rule(".*", weight=QSpec(Blocks(4)))])
