"""Networks as users write them, exported, beside JAX and Arm's model."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import jax
import numpy as np
import pytest
from exports import check, operators
from jax_networks import ROWS, Network, Size, as_users, build

import tosajax
from tosajax import Graph, reference_model

# For each network in its small size, the number of operators but constants, which may not grow.
OPERATORS = {
    "flax_cnn": 26,
    "resnet50": 69,
    "efficientnet_b0": 98,
    "vit": 172,
    "flax_vit": 173,
    "flax_vit_bfloat16": 211,
    "flax_language_model": 174,
    "flax_recurrent": 297,
    "swin": 392,
    "mobilenet_v2": 62,
    "unet": 57,
    "wavenet": 72,
    "segmentation": 84,
    "keras_cnn": 39,
    "keras_attention_lstm": 320,
    "mobilenet_v3": 91,
    "video": 23,
    "equinox_attention": 66,
    "equinox_gru": 153,
    "convnext": 138,
    "mixer": 146,
    "resnet18": 48,
    "autoencoder": 57,
    "decode_step": 63,
    "gpt_decode": 215,
    "gru_scan": 165,
    "lstm_scan": 274,
    "linear_recurrence": 154,
    "mixture_of_experts": 74,
    "generate": 3,
    "early_exit": 38,
    "detector": 71,
    "int8_network": 53,
}
# Units in the last place of an output's largest element; bfloat16 inside of a network has 2**16.
_ULP = {"flax_vit_bfloat16": 2.0**17}
# The others take as long, and have little that these have not.
_QUICK = {
    *("flax_cnn", "resnet18", "vit", "flax_language_model", "keras_cnn", "unet", "video"),
    *("equinox_attention", "gru_scan", "gpt_decode", "generate", "early_exit", "detector"),
    *("int8_network", "mixture_of_experts"),
}
_EACH = [pytest.param(n, marks=() if n in _QUICK else pytest.mark.slow) for n in ROWS]


def exported(name: str, size: Size = "small", **options: Any) -> tuple[Network, Graph]:
    package = ROWS[name].package
    if package is not None and find_spec(package) is None:
        pytest.skip(f"needs {package}")
    with as_users():
        network = build(name, size)
        graph = tosajax.export(network.fn, *network.args, params=network.params, **options)
    return network, graph


def test_every_network_is_here():
    assert OPERATORS.keys() == ROWS.keys()


@pytest.mark.parametrize("name", _EACH)
def test_small(name, quick):
    """`export` compares with JAX; Arm's model has the same graph."""
    network, graph = exported(name)
    assert len(operators(graph)) <= OPERATORS[name]
    ulp = _ULP.get(name, 16)
    assert max(each.ulp for each in graph.source.agreement) <= ulp
    inputs = [np.asarray(leaf) for leaf in jax.tree.leaves(network.args)]
    if reference_model.is_installed():
        with as_users():
            wanted = jax.tree.leaves(jax.jit(network.function())(*network.args))
        check(reference_model.run(graph, *inputs), wanted, ulp)
