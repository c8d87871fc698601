"""NEGATE, and functions of one tensor in a TABLE, some with poles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quant.convert.helpers import (
    VARIANTS,
    Trial,
    against,
    assert_looked_up,
    assert_rounded,
    clamp,
    constant,
    floats,
    legal,
    times,
    uniform,
    zeros,
)

from tosajax import Builder, Graph, Tensor
from tosajax.quant import QSpec, rule

SHAPE = (4, 16)


class Case(NamedTuple):
    """A function, in operators and in NumPy."""

    node: Callable[[Builder, Tensor, str], Tensor]
    function: Callable[[np.ndarray], np.ndarray]


def operator(op: str, function: Any) -> Case:
    return Case(lambda b, x, name: b.op(op, x, name=name), function)


def power(b: Builder, x: Tensor, name: str) -> Tensor:
    return b.op("POW", constant(b, [[2]]), x, name=name)


def swish(b: Builder, x: Tensor, name: str) -> Tensor:
    return times(b, x, b.op("SIGMOID", x), name)


SMOOTH = {
    "abs": operator("ABS", np.abs),
    "ceil": operator("CEIL", np.ceil),
    "cos": operator("COS", np.cos),
    "exp": operator("EXP", np.exp),
    "floor": operator("FLOOR", np.floor),
    "power": Case(power, np.exp2),
    "sin": operator("SIN", np.sin),
    "square": Case(lambda b, x, name: times(b, x, x, name), np.square),
    "swish": Case(swish, lambda x: x / (1 + np.exp(-x))),
}  # fmt: skip
# Not finite everywhere.
OTHERS = {
    "log": operator("LOG", np.log),
    "reciprocal": operator("RECIPROCAL", np.reciprocal),
    "rsqrt": operator("RSQRT", lambda x: 1 / np.sqrt(x)),
}  # fmt: skip
FUNCTIONS = SMOOTH | OTHERS


def graph(cases: dict[str, Case]) -> Graph:
    b = Builder()
    x = floats(b, "x", *SHAPE)
    return legal(b.graph([case.node(b, x, name) for name, case in cases.items()]))


@pytest.fixture(scope="module")
def int8() -> Trial:
    return Trial(graph(FUNCTIONS), uniform(0, *SHAPE), against=against("i8"))


@pytest.fixture(scope="module", params=["i16", "i16-to-i8"])
def int16(request) -> Trial:
    rules = [rule(".*" if request.param == "i16" else "x", act=QSpec("i16"))]
    return Trial(graph(SMOOTH), uniform(0, *SHAPE), rules=rules)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_int8(int8, name):
    assert_looked_up(int8, name, "x", FUNCTIONS[name].function)


@pytest.mark.parametrize("name", SMOOTH)
def test_functions_of_int16(int16, name):
    assert_looked_up(int16, name, "x", SMOOTH[name].function)


def test_functions_ship_as_they_train(int8, int16):
    assert int8.report, str(int8.report)
    assert int16.report, str(int16.report)
    assert set(int8.model.plan.functions) == set(FUNCTIONS)


def test_a_pole_of_int16_is_what_tosa_defines():
    """Entries that differ by more than int16 holds have no defined value between them."""
    trial = Trial(
        graph({"reciprocal": FUNCTIONS["reciprocal"]}),
        uniform(0, *SHAPE),
        rules=VARIANTS["i16"],
        against=("frozen", "reference_model"),
    )
    assert trial.report


@pytest.mark.parametrize("variant", VARIANTS)
def test_gradients_at_a_pole_are_finite(variant):
    """Samples at a pole are so large that their quotients overflow; they saturate."""
    trial = Trial(
        graph({"reciprocal": FUNCTIONS["reciprocal"]}), uniform(0, *SHAPE), rules=VARIANTS[variant]
    )
    tables = {name: x.at[0].set(3e38) for name, x in trial.params["tables"].items()}
    params = jax.tree.map(jnp.asarray, {**trial.params, "tables": tables})

    def loss(params: Any) -> jax.Array:
        outputs = trial.model.apply(params, *trial.inputs)
        return jnp.square(jnp.concatenate([y.ravel() for y in outputs])).sum()

    slopes = jax.grad(loss)(params)
    assert all(jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(slopes))
    assert any((leaf != 0).any() for leaf in jax.tree.leaves(slopes["qparams"]))


# NEGATE is not a function in a TABLE, as integers compute it as well.


@pytest.fixture(scope="module", params=VARIANTS)
def negated(request) -> Trial:
    b = Builder()
    x = floats(b, "x", *SHAPE)
    plain = b.op("NEGATE", x, *zeros(b), name="plain")
    before = b.op("NEGATE", x, *zeros(b), name="before")
    graph = b.graph([plain, clamp(b, before, 0, np.inf, "relu")])
    return Trial(
        legal(graph),
        uniform(0, *SHAPE),
        rules=VARIANTS[request.param],
        against=against(request.param),
    )


def test_negate(negated):
    assert negated.report, str(negated.report)
    assert_rounded(negated, "plain", -negated["x"])
    assert_rounded(negated, "relu", np.maximum(-negated["x"], 0))
    assert "TABLE" not in [n.op for n in negated.frozen.nodes]


def test_negate_of_the_lowest_integer_saturates():
    """-(-128) is not an int8 where the scale is the same on both sides."""
    b = Builder()
    y = b.op("NEGATE", floats(b, "x", *SHAPE), *zeros(b), name="y")
    trial = Trial(b.graph([y]), uniform(0, *SHAPE, low=-1), rules=VARIANTS["i8-symmetric"])
    assert trial["x"].min() == -128 * trial.step("x")
    assert trial["y"].max() == 127 * trial.step("y")
