"""Ranges of what functions alone read: no more than where the functions change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tosajax
from tosajax import DType, quant, reference_model
from tosajax.quant.model.parts import heads

W = 20 * np.random.default_rng(0).normal(size=(8, 8)).astype(np.float32)
X = np.random.default_rng(1).normal(size=(256, 8)).astype(np.float32)
AGAINST = ("frozen", "reference_model") if reference_model.is_installed() else ("frozen",)
Function = Callable[[Any], Any]

# The real ends of the range of an INT8 input; None: those of all values.
FUNCTIONS: dict[str, tuple[Function, float | None, float | None]] = {
    "sigmoid": (jax.nn.sigmoid, -6.9, 6.9),  # ln(4 * 255)
    "tanh": (jnp.tanh, -3.45, 3.45),
    "silu": (jax.nn.silu, 0, None),  # -0.28 is less than half a step of 200 / 255
    "hard swish": (jax.nn.hard_swish, 0, None),
    "exp": (lambda x: jnp.exp(x / 20), None, None),
    "square": (lambda x: x * x * 0.1, None, None),
}


def calibrated(fn: Function, *rules: quant.Rule) -> tuple[quant.PreparedModel, Any]:
    model = quant.prepare(lambda x: fn(x @ W), rules, example_args=(X[:1],))
    return model, quant.calibrate(model, [X])


def ends_of(model: quant.PreparedModel, params: Any) -> tuple[float, float]:
    (name,) = model.plan.limited
    own = params["qparams"][name]
    zero_point = 0 if own.symmetric else own.zero_point
    low, high = (float((end - zero_point) * own.scale) for end in own.grid)
    return low, high


def noise(model: quant.PreparedModel, params: Any) -> float:
    (y,), (wanted,) = (model.apply(params, X, mode=mode) for mode in ("exact", "float"))
    return float(np.square(y - wanted).sum() / np.square(wanted).sum())


@pytest.mark.parametrize("name", FUNCTIONS)
def test_ranges_end_where_functions_do_not_change(name):
    fn, least, most = FUNCTIONS[name]
    model, params = calibrated(fn)
    sums = X @ W
    if name == "exp":
        assert ends_of(model, params)[0] > sums.min() + 10
        return
    low, high = ends_of(model, params)
    for found, limit, end in ((low, least, np.quantile(sums, 5e-5)), (high, most, sums.max())):
        wanted = end if limit is None else limit
        assert abs(found - wanted) < 0.1 * abs(wanted) + 0.5, (found, wanted)
    assert noise(model, params) < 1.01 * _noise_of_all_values(fn)
    assert quant.check_bit_exact(model, params, X[:8], against=AGAINST)


def _noise_of_all_values(fn: Function) -> float:
    """The noise where the sums are an output as well, so that their range holds all."""
    model = quant.prepare(lambda x: (fn(x @ W), x @ W), example_args=(X[:1],))
    assert not model.plan.limited
    params = quant.calibrate(model, [X])
    y, wanted = (model.apply(params, X, mode=mode)[0] for mode in ("exact", "float"))
    return float(np.square(y - wanted).sum() / np.square(wanted).sum())


def test_a_sigmoid_of_large_logits_gains_three_db():
    model, params = calibrated(jax.nn.sigmoid)
    assert noise(model, params) < 0.55 * _noise_of_all_values(jax.nn.sigmoid)


def test_int16():
    model, params = calibrated(jax.nn.sigmoid, quant.rule(".*", act=quant.QSpec("i16")))
    assert model.specs["output"].dtype is DType.INT16
    low, high = ends_of(model, params)
    assert 11 < high < 13  # ln(4 * 65535)
    assert low == pytest.approx(-high, rel=1e-3)


def test_two_functions_have_the_range_of_both():
    model, params = calibrated(lambda x: jnp.stack([jnp.tanh(x), jax.nn.sigmoid(x)]))
    low, high = ends_of(model, params)
    assert 6 < high < 7.5
    assert -7.5 < low < -6


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: jax.nn.sigmoid(x) * x[:, ::-1],  # another reader
        lambda x: (jax.nn.sigmoid(x), x),  # an output
        lambda x: jax.nn.softmax(x),  # logits have a rule of their own
    ],
    ids=["reader", "output", "softmax"],
)
def test_ranges_of_other_tensors_hold_all_values(fn):
    model = quant.prepare(lambda x: fn(x @ W), example_args=(X[:1],))
    sums = {node.outputs[0] for node in model.float_graph.nodes if node.op == "CONV2D"}
    assert sums.isdisjoint(model.plan.limited)


def test_scales_that_are_known_stay():
    known = quant.QSpec("i8", symmetric=False, observer=quant.fixed(0.5, 3))
    model, params = calibrated(jax.nn.sigmoid, quant.rule("dot_general_1", act=known))
    assert not model.plan.limited
    assert float(params["qparams"]["dot_general_1"].scale) == 0.5


def test_states_of_loops_hold_all_values():
    """A function alone reads the result, but the loop reads the state in all turns."""

    def fn(x):
        return jnp.tanh(jax.lax.fori_loop(0, 100, lambda _, h: 0.9 * h + x @ W, x))

    model = quant.prepare(tosajax.export(fn, X[:1], max_unroll=2))
    assert any(node.op == "WHILE_LOOP" for node in model.float_graph.nodes)
    assert not model.plan.limited


def test_inputs_hold_all_values():
    model = quant.prepare(jax.nn.sigmoid, example_args=(X[:1],))
    assert not model.plan.limited
    params = quant.calibrate(model, [100 * X])
    assert float(params["qparams"]["x"].scale) * 255 > 400


def test_ranges_within_the_function_stay():
    """Sums are from -1 to 1, where a sigmoid is nearly straight."""
    model = quant.prepare(lambda x: jax.nn.sigmoid(x @ W / 100), example_args=(X[:1],))
    params = quant.calibrate(model, [X])
    (name,) = model.plan.limited
    (sums,) = model.with_outputs(name).apply(params, X, mode="float")
    low, high = ends_of(model, params)
    assert low == pytest.approx(float(sums.min()), rel=0.1)
    assert high == pytest.approx(float(sums.max()), rel=0.1)


def test_what_saturates_is_no_error():
    """Neither in a report, nor for `auto`, which measures noise before final functions."""
    model, params = calibrated(jax.nn.sigmoid)
    (name,) = model.plan.limited
    rows = {row.tensor: row for row in quant.report(model, params, X).rows}
    assert rows[name].local_sqnr > 30
    assert rows[name].output_sqnr > 30
    assert heads(model) == ("output",)
