"""What INT16 may cost."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tosajax
from tosajax import DType
from tosajax import quant as tq
from tosajax.quant.tune.costs import Limits, Macs
from tosajax.quant.tune.lifts import refused
from tosajax.spec.rates import RATES

RNG = np.random.default_rng(6)
X = RNG.normal(size=(4, 8, 8, 4)).astype(np.float32)
WEIGHTS = [RNG.normal(0, 0.3, (3, 3, *each)).astype(np.float32) for each in ((4, 16), (16, 4))]
RATES_OF_U85 = RATES["ethos-u85-256"]


def conv(x: Any, at: int) -> jax.Array:
    return jax.lax.conv_general_dilated(
        x, jnp.asarray(WEIGHTS[at]), (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def network(x: Any) -> jax.Array:
    """Two products with a tensor of 16 channels between them, which is the largest."""
    return conv(jax.nn.sigmoid(conv(x, 0)), 1) + x


MODEL = tq.prepare(network, example_args=[X[:1]])
# What the table reads, and what it writes.
SOURCE, BETWEEN = (
    name for name in MODEL.activations if 16 in (MODEL.float_graph.tensors[name].shape or ())
)


def limits(refused: tuple[str, ...] = (), **budget: Any) -> Limits:
    return Limits(MODEL, tq.Budget(**{"wide_macs": 1.0, **budget}), refused)


def test_multiply_accumulates_that_read_some():
    inputs = MODEL.owners[MODEL.graph.inputs[0]]
    macs = Macs(MODEL)
    assert macs.share([inputs]) == macs.share([BETWEEN]) == 0.5
    assert macs.share([inputs, BETWEEN]) == 1
    assert macs.share([]) == 0
    assert limits(wide_macs=0.5).fits([BETWEEN])
    assert not limits(wide_macs=0.49).fits([BETWEEN])
    assert limits(wide_macs=0.5).cost(BETWEEN) == 0.5


def test_what_the_target_refuses():
    assert limits().fits([BETWEEN])
    assert not limits((BETWEEN,)).fits([BETWEEN])


def test_cycles():
    own: Any = {"target": RATES_OF_U85}
    # The second product takes twice as long; the table writes INT16, and the first one its input.
    share = limits(**own).more_cycles([BETWEEN])
    assert 0.1 < share < 1
    assert limits(**own, more_cycles=1.001 * share).fits([BETWEEN])
    assert not limits(**own, more_cycles=0.999 * share).fits([BETWEEN])
    assert limits(**own, more_cycles=0).fits([])
    assert limits(**own, more_cycles=1).cost(BETWEEN) == share
    assert limits(**own).cost(BETWEEN) == 0.5  # multiply-accumulates


def test_bytes():
    before, after = (limits()._cost(names).arena_bytes for names in ((), (BETWEEN,)))
    assert before < after
    assert limits(arena_bytes=after).fits([BETWEEN])
    assert not limits(arena_bytes=after - 1).fits([BETWEEN])
    assert limits(arena_bytes=0).fits([])  # what is needed in any case


def test_types_that_an_npu_does_not_take():
    """Ethos-U55 has no TABLE of INT16."""
    params = tq.calibrate(MODEL, [X])
    names = [name for name in MODEL.activations if MODEL.specs[name].dtype is DType.INT8]
    assert {SOURCE, BETWEEN} == refused(MODEL, params, names, "ethos-u55-128")
    assert not refused(MODEL, params, names, "ethos-u85-256")


def test_what_an_npu_refuses_in_any_case_bars_nothing():
    """Its table is of INT16 by a rule."""
    rules = [tq.rule(f"^({SOURCE}|{BETWEEN})$", act=tq.QSpec("i16"))]
    model = tq.prepare(network, rules, example_args=[X[:1]])
    params = tq.calibrate(model, [X])
    assert tosajax.validate(model.freeze(params), "ethos-u55-128").errors
    names = [name for name in model.activations if model.specs[name].dtype is DType.INT8]
    assert names
    assert not refused(model, params, names, "ethos-u55-128")


@pytest.mark.parametrize(
    ("budget", "error", "message"),
    [
        ({"target": "ethos-u85-25"}, ValueError, "unknown NPU 'ethos-u85-25', expected one of "),
        ({"target": 5}, TypeError, "the name of an NPU, or quant.Rates"),
        ({"more_cycles": 0.1}, ValueError, "more_cycles is 0.1, but there is no target"),
        ({"more_cycles": -0.1, "target": "ethos-u55-32"}, ValueError, "more_cycles is -0.1"),
        ({"arena_bytes": -1}, ValueError, "arena_bytes is -1"),
    ],
)
def test_budgets_out_of_range(budget, error, message):
    with pytest.raises(error, match=message):
        tq.Budget(**budget)


@pytest.mark.parametrize(
    ("rates", "error"),
    [
        ({"macs": 0}, ValueError),
        ({"elements": float("nan")}, ValueError),
        ({"moves": "1"}, TypeError),
        ({"depth": -1}, ValueError),
    ],
)
def test_rates_out_of_range(rates, error):
    (name,) = rates
    with pytest.raises(error, match=name):
        tq.Rates(**{"macs": 1, "elements": 1, "moves": 1, **rates})


# `auto` within them.


def _examples() -> list[np.ndarray]:
    return [x[None] for x in np.random.default_rng(7).normal(size=(6, 8, 8, 4)).astype(np.float32)]


def found(**budget: Any) -> tq.Auto:
    options = {"example_args": [X[:1]], "budget": tq.Budget(wide_macs=1.0, **budget)}
    return tq.auto(network, _examples(), **options)


def test_a_search_for_an_npu():
    result = found(target="ethos-u55-128")
    assert not {SOURCE, BETWEEN}.intersection(result.lifted)
    assert result.spent.errors == 0
    before, after = result.spent.cycles or (0, 0)
    assert before > 0
    assert result.spent.npu == "ethos-u55-128"
    assert f"{after:,} cycles of ethos-u55-128" in str(result)


def test_what_an_npu_does_not_run_is_counted():
    def wide(x: Any) -> jax.Array:
        return jax.nn.sigmoid(conv(x, 0))

    rules, budget = [tq.rule(".*", act=tq.QSpec("i16"))], tq.Budget(0, target="ethos-u55-128")
    result = tq.auto(wide, _examples(), rules, example_args=[X[:1]], budget=budget)
    errors = tosajax.validate(result.graph, "ethos-u55-128").errors
    assert len(errors) == result.spent.errors > 0
    assert f"{len(errors)} error" in str(result.spent)
    assert result.spent.vela is None


def test_a_search_within_bytes_and_cycles():
    free = found()
    assert free.spent.arena_bytes[1] > free.spent.arena_bytes[0]
    assert free.spent.cycles is None
    tight = found(arena_bytes=0, target=RATES_OF_U85, more_cycles=0.0)
    assert tight.spent.arena_bytes[1] == tight.spent.arena_bytes[0] < free.spent.arena_bytes[1]
    assert tight.spent.npu is None
    before, after = tight.spent.cycles or (0, 0)
    assert after <= before
    assert "cycles of the target" in str(tight)


def test_vela_estimates_the_result(monkeypatch):
    from tosajax import vela

    monkeypatch.setattr(vela, "is_installed", lambda: True)
    monkeypatch.setattr(vela, "estimate", lambda graph, npu: vela.Estimate(npu, 7, 5, 1024, 0))
    result = found(target="ethos-u85-256", seconds=0)
    assert (result.spent.errors, result.spent.vela) == (
        0,
        vela.Estimate("ethos-u85-256", 7, 5, 1024, 0),
    )
    assert "by Vela 7 cycles, 5 without memory, 1.0 KiB of SRAM" in str(result)
    assert found(target=RATES_OF_U85, seconds=0).spent.vela is None

    def refuses(graph: Any, npu: str) -> None:
        raise tosajax.UnsupportedError("vela says no")

    monkeypatch.setattr(vela, "estimate", refuses)
    with pytest.warns(UserWarning, match="auto: vela says no"):
        assert found(target="ethos-u85-256", seconds=0).spent.vela is None
