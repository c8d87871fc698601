"""Losses that take an array for the tuple of outputs: the error says to take outputs[0]."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from tosajax import Builder, DType
from tosajax import quant as tq

IMAGES = np.random.default_rng(0).normal(0, 1, (8, 1, 4)).astype(np.float32)
MESSAGE = r"outputs is a tuple of 1 array, one for each output of the graph: take outputs\[0\]"


@pytest.fixture(scope="module")
def model() -> tq.QModel:
    b = Builder()
    x = b.input("x", DType.FP32, (1, 1, 4))
    w = b.const(np.eye(4)[None], DType.FP32, name="w")
    zero = b.const([0.0], DType.FP32)
    return tq.prepare(b.graph([b.op("MATMUL", x, w, zero, zero, name="y")]))


@pytest.fixture(scope="module")
def params(model: tq.QModel) -> Any:
    return tq.calibrate(model, [IMAGES])


def forgetful(outputs: Any, *others: Any) -> Any:
    return jnp.square(outputs - 1.0).mean()


@pytest.mark.parametrize(
    "loss",
    [
        forgetful,
        lambda outputs, targets: outputs.mean(),
        lambda outputs, targets: jnp.mean(outputs),
        tq.distillation(forgetful),
    ],
)
def test_fit(model, params, loss):
    teacher = "float" if "combined" in loss.__qualname__ else None
    with pytest.raises(TypeError, match=MESSAGE):
        tq.fit(model, params, [(IMAGES, IMAGES)], loss, steps=1, teacher=teacher)


def test_a_loss_of_the_teachers_outputs(model, params):
    def loss(outputs: Any, targets: Any, taught: Any) -> Any:
        return jnp.square(outputs - taught).mean()

    with pytest.raises(TypeError, match=MESSAGE):
        tq.fit(model, params, [(IMAGES, IMAGES)], loss, steps=1, teacher="float")


def test_tuning(model, params):
    for call in (
        lambda: tq.sensitivity(model, params, IMAGES, bits=(4,), loss=forgetful),
        lambda: tq.rescue(model, params, IMAGES, budget=1e-9, loss=forgetful),
        lambda: tq.mixed_precision(model, params, IMAGES, budget=1e9, loss=forgetful),
        lambda: tq.reconstruct(model, params, [IMAGES], steps=1, loss=forgetful),
    ):
        with pytest.raises(TypeError, match=MESSAGE):
            call()


def test_another_error_of_a_loss_stays_what_it_is(model, params):
    def broken(outputs: Any, targets: Any) -> Any:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        tq.fit(model, params, [(IMAGES, IMAGES)], broken, steps=1)
