"""jax.image.resize against JAX: axes, sizes, modes and types; what RESIZE does not compute."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from exports import agrees, drawn, operators

from tosajax import quant
from tosajax.from_jax.export import export
from tosajax.spec import ResizeMode

pytestmark = pytest.mark.usefixtures("quick")

SHAPES = (
    ((1, 8, 8, 3), (1, 16, 16, 3)),
    ((2, 8, 6, 3), (2, 8, 18, 3)),
    ((1, 8, 8, 3), (1, 12, 20, 3)),
    ((8, 8, 3), (24, 16, 3)),
    ((1, 3, 8, 8), (1, 3, 16, 24)),
    ((1, 2, 8, 3, 8), (1, 2, 16, 3, 16)),
    ((4, 5), (12, 10)),
    ((7,), (21,)),
    ((1, 1, 1, 2), (1, 5, 33, 2)),
)
SMALLER = (((1, 8, 8, 3), (1, 4, 2, 3)), ((1, 9, 8, 3), (1, 6, 6, 3)), ((9,), (1,)))


def resized(shape: tuple[int, ...], method: str) -> Any:
    return lambda x: jax.image.resize(x, shape, method)


def test_nearest():
    for dtype in (np.float32, np.int8, np.int16, np.float16):
        for shape, wanted in SHAPES + SMALLER:
            graph = agrees(resized(wanted, "nearest"), drawn(shape, dtype))
            assert operators(graph).count("RESIZE") == 1, (shape, wanted)


def test_linear():
    for shape, wanted in SHAPES:
        graph = agrees(resized(wanted, "linear"), drawn(shape, np.float32), ulp=8)
        assert operators(graph).count("RESIZE") == 1, (shape, wanted)
    (node,) = [
        n
        for n in export(resized((1, 16, 16, 3), "bilinear"), np.zeros((1, 8, 8, 3), "f4")).nodes
        if n.op == "RESIZE"
    ]
    assert node.attributes["mode"] is ResizeMode.BILINEAR


def test_images_need_no_moves():
    graph = export(resized((1, 16, 16, 3), "linear"), np.zeros((1, 8, 8, 3), np.float32))
    assert operators(graph) == ["RESIZE"]


def test_other_functions_are_products_and_gathers():
    x = drawn((1, 8, 8, 3), np.float32)
    for method, wanted in (("linear", (1, 4, 4, 3)), ("cubic", (1, 16, 16, 3))):
        assert "RESIZE" not in operators(agrees(resized(wanted, method), x, ulp=16))
    # More than two axes, 300 times as large, and integers that RESIZE does not have.
    cube = drawn((4, 4, 4), np.float32)
    assert "RESIZE" not in operators(agrees(resized((8, 8, 8), "nearest"), cube))
    assert "RESIZE" not in operators(agrees(resized((1, 8, 2400, 3), "nearest"), x))
    assert "RESIZE" not in operators(agrees(resized((1, 1, 8, 3), "linear"), x, ulp=16))
    assert "RESIZE" not in operators(agrees(resized((1, 16, 16, 3), "nearest"), x.astype(np.int32)))
    assert "RESIZE" not in operators(agrees(resized(x.shape, "nearest"), x))


def test_functions_of_the_user_of_the_same_name():
    """Only what moves and sums elements is looked at."""

    @jax.jit
    def _resize(x: jax.Array) -> jax.Array:
        return jnp.clip(jax.image.resize(x, (1, 16, 16, 3), "nearest"), -9, 9)

    @jax.jit
    def _shifted(x: jax.Array) -> jax.Array:
        return jnp.roll(jax.image.resize(x, (1, 16, 16, 3), "nearest"), 1, 1)

    def _reshaped(x: jax.Array) -> jax.Array:
        return x.reshape(8, -1)

    x = drawn((1, 8, 8, 3), np.float32)
    _reshaped.__name__ = "_resize"
    assert operators(agrees(jax.jit(_reshaped), x)) == ["RESHAPE"]
    assert operators(agrees(_resize, x)) == ["RESIZE", "CLAMP"]
    assert operators(agrees(_shifted, x))[0] == "RESIZE"


def test_integers_interpolate_exactly():
    """INT8 weights of a product with a matrix would round them."""
    x = drawn((4, 1, 8, 8, 3), np.float32)
    model = quant.prepare(resized((1, 16, 16, 3), "linear"), example_args=(x[0],))
    params = quant.calibrate(model, list(x))
    assert [node.op for node in model.float_graph.nodes if node.op == "RESIZE"]
    (y,), (wanted,) = model.apply(params, x[0]), model.apply(params, x[0], mode="float")
    step = float(params["qparams"]["x"].scale)
    assert np.abs(y - wanted).max() <= 1.51 * step
    assert quant.check_bit_exact(model, params, x[0], against="frozen")
