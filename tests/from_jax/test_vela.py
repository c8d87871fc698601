"""Exported networks of integers compile for Ethos-U."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import jax
import numpy as np
import pytest
from jax_networks import as_users, build

import tosajax
from tosajax import Graph, quant

VELA = shutil.which("vela")
pytestmark = [
    pytest.mark.usefixtures("quick"),
    pytest.mark.skipif(VELA is None, reason="ethos-u-vela is not installed"),
]


def compiled(graph: Graph, folder: Path) -> subprocess.CompletedProcess[str]:
    tosajax.save(graph, folder / "model.tosa")
    line = [VELA, "model.tosa", "--accelerator-config", "ethos-u85-256", "--output-dir", "out"]
    return subprocess.run(line, cwd=folder, capture_output=True, text=True, timeout=300)


def exported(name: str) -> tuple[Graph, list[np.ndarray]]:
    with as_users():
        network = build(name, "small")
        graph = tosajax.export(network.fn, *network.args, params=network.params, check=False)
    return graph, [np.asarray(leaf) for leaf in jax.tree.leaves(network.args)]


def test_a_network_of_integers(tmp_path):
    graph, _ = exported("int8_network")
    assert tosajax.validate(graph).needs == ("PRO-INT",)
    result = compiled(graph, tmp_path)
    assert (result.returncode, "rror" in result.stdout + result.stderr) == (0, False)


@pytest.mark.parametrize("name", ["flax_cnn", "unet", "gru_scan"])
def test_a_quantized_network(name, tmp_path):
    pytest.importorskip("flax")
    graph, inputs = exported(name)
    model = quant.prepare(graph)
    frozen = model.freeze(quant.calibrate(model, [tuple(inputs)]))
    result = compiled(frozen, tmp_path)
    assert (result.returncode, "rror" in result.stdout + result.stderr) == (0, False)


def test_floats_are_refused(tmp_path):
    """So that the tests above would see an error."""
    graph, _ = exported("gru_scan")
    assert compiled(graph, tmp_path).returncode != 0
