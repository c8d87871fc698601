"""A small network with a TABLE, and examples of what it shall learn."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tosajax import Builder, DType
from tosajax import quant as tq


@pytest.fixture(scope="package")
def model() -> tq.QModel:
    rng = np.random.default_rng(1)
    b = Builder("small")
    x = b.input("x", DType.FP32, (1, 1, 1, 6))
    zero = [b.const([0.0], DType.FP32, name=f"zero{i}") for i in range(2)]
    static = {"pad": (0, 0, 0, 0), "stride": (1, 1), "dilation": (1, 1), "acc_type": DType.FP32}
    for n, (inputs, outputs) in enumerate([(6, 8), (8, 3)]):
        w = b.const(rng.normal(0, 0.5, (outputs, 1, 1, inputs)), DType.FP32, name=f"w{n}")
        bias = b.const(rng.normal(0, 0.1, outputs), DType.FP32, name=f"b{n}")
        x = b.op("CONV2D", x, w, bias, *zero, name=f"conv{n}", **static)
        x = b.op("TANH", x, name="grown") if n == 0 else x
    weight = tq.QSpec("i8", bits=4, per_channel=True, narrow_range=True)
    act = tq.QSpec("i8", bits=6, symmetric=False, observer=tq.moving_average())
    return tq.prepare(b.graph([x]), [tq.rule(".*", weight=weight, act=act)])


@pytest.fixture(scope="package")
def batches() -> list[Any]:
    rng = np.random.default_rng(2)
    mixed = rng.normal(0, 1, (6, 3)).astype(np.float32)
    images = rng.normal(0.2, 1, (5, 16, 1, 1, 6)).astype(np.float32)
    return [(x, np.tanh(x @ mixed)) for x in images]


@pytest.fixture(scope="package")
def params(model: tq.QModel, batches: list[Any]) -> Any:
    return tq.calibrate(model, [x for x, _ in batches])


@pytest.fixture(scope="package")
def loss() -> Any:
    def squares(outputs: tuple[jax.Array, ...], targets: jax.Array) -> jax.Array:
        return jnp.square(outputs[0] - targets).mean()

    return squares
