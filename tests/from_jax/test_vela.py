"""Exported networks of integers compile for Ethos-U."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from jax_networks import as_users, build

import tosajax
from tosajax import Graph, UnsupportedError, quant, vela

pytestmark = [
    pytest.mark.usefixtures("quick"),
    pytest.mark.skipif(not vela.is_installed(), reason="ethos-u-vela is not installed"),
]
NPU = "ethos-u85-256"


def exported(name: str) -> tuple[Graph, list[np.ndarray]]:
    with as_users():
        network = build(name, "small")
        graph = tosajax.export(network.fn, *network.args, params=network.params, check=False)
    return graph, [np.asarray(leaf) for leaf in jax.tree.leaves(network.args)]


def test_a_network_of_integers():
    graph, _ = exported("int8_network")
    assert tosajax.validate(graph).needs == ("PRO-INT",)
    assert vela.estimate(graph, NPU).cycles > 0


@pytest.mark.parametrize("name", ["flax_cnn", "unet", "gru_scan"])
def test_a_quantized_network(name):
    pytest.importorskip("flax")
    graph, inputs = exported(name)
    model = quant.prepare(graph)
    frozen = model.freeze(quant.calibrate(model, [tuple(inputs)]))
    assert vela.estimate(frozen, NPU).cycles > 0


def test_floats_are_refused():
    """So that the tests above would see an error."""
    graph, _ = exported("gru_scan")
    with pytest.raises(UnsupportedError, match="Vela"):
        vela.estimate(graph, NPU)
