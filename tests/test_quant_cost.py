"""The benchmark of training, and how large the programs are that it times."""

from __future__ import annotations

import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from paths import ROOT

sys.path.insert(0, str(ROOT))

from benchmarks import fake_quant, float_jax, networks, quant_cost, timing
from tosajax import ops

pytestmark = pytest.mark.usefixtures("quick")

BLOCKS = (1, 2)


def images(network: networks.Network, batch: int) -> jax.Array:
    rng = np.random.default_rng(0)
    return jnp.asarray(
        network.images(rng.integers(-128, 128, (batch, *network.shape)).astype(np.int8))
    )


def instructions(blocks: int) -> tuple[int, int]:
    """Of the compiled loss and of its gradient, those of fusions included."""
    network = networks.residual(blocks, 8, 8)
    x = images(network, 2)
    model, params = quant_cost._model(network, x)

    def loss(params, x):
        return jnp.square(model.apply(params, x)[0]).mean()

    programs = (jax.jit(f).lower(params, x).compile().as_text() for f in (loss, jax.grad(loss)))
    forward, both = (str(text).count(" = ") for text in programs)
    return forward, both


def test_a_block_of_a_network_has_few_instructions():
    """Two convolutions and a sum in INT16, with its copy in INT8, which are a tenth of them.

    Each instruction costs a fraction of a millisecond to compile.
    """
    (forward, both), (more_forward, more_both) = map(instructions, BLOCKS)
    assert more_forward - forward <= 940
    assert more_both - both <= 2050


def test_layers_of_one_kind_are_traced_and_lowered_once(monkeypatch):
    """Traced functions, and functions of the lowered gradient, are those of fewer blocks."""
    traced = []
    rescale = ops.rescale
    monkeypatch.setattr(ops, "rescale", lambda *a, **k: traced.append(1) or rescale(*a, **k))

    def count(blocks: int) -> tuple[int, int]:
        network = networks.residual(blocks, 8, 8)
        x = images(network, 2)
        model, params = quant_cost._model(network, x)
        traced.clear()
        slopes = jax.jit(jax.grad(lambda p: model.apply(p, x)[0].sum())).lower(params)
        return len(traced), slopes.as_text().count("func.func private")

    assert count(4) == count(3) > (0, 0)


def test_the_contender_is_the_network_but_for_rounding(monkeypatch):
    network = networks.residual(1, 8, 8)
    x = images(network, 4)
    params = fake_quant.parameters(network, 8)
    slopes = jax.grad(lambda p: jnp.square(fake_quant.run(network, 8, p, x)).mean())(params)
    assert all(jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(slopes))
    values = [x]
    for layer, own in zip(network.layers, params["layers"], strict=True):
        sources = [values[i] for i in layer.sources]
        values.append(float_jax.apply(layer, own, sources, float_jax.grouped_depthwise))
    assert (fake_quant.run(network, 8, params, x) != values[-1]).any()
    monkeypatch.setattr(fake_quant, "rounded", lambda x, *_: x)
    np.testing.assert_array_equal(fake_quant.run(network, 8, params, x), values[-1])


def test_each_ratio_has_a_target(monkeypatch):
    monkeypatch.setattr(timing, "FULL", timing.QUICK)
    monkeypatch.setitem(quant_cost.NETWORKS, "small", (lambda: networks.residual(1, 8, 8), 2))
    found = quant_cost.measure("small")
    assert found.keys() == quant_cost.TARGETS.keys()
    assert all(fake > 0 and exact > 0 for fake, exact, _ in found.values())


@pytest.mark.parametrize(("step", "status"), [(12.0, 0), (12.1, 1)])
def test_ratios_are_checked(step, status, monkeypatch, capsys):
    figures = dict.fromkeys(quant_cost.TARGETS, (10.0, 10.0, "s")) | {"step": (10.0, step, "s")}
    monkeypatch.setattr(quant_cost, "measure", lambda name: figures)
    assert quant_cost.main(["residual-3", "--check"]) == status
    assert quant_cost.main(["residual-3"]) == 0
    assert f"{step / 10:.2f}" in capsys.readouterr().out


def test_unknown_networks_are_refused(capsys):
    with pytest.raises(SystemExit):
        quant_cost.main(["large"])
    assert "no network large" in capsys.readouterr().err
