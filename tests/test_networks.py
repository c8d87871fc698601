"""Whole networks against Arm's reference model: ours always, the corpus where it is at hand."""

from __future__ import annotations

import itertools
import json
import zlib

import network_bounds
import networks
import numpy as np
import pytest
from oracle import forced
from paths import CORPUS, DATA

import tosajax
from tosajax import UnsupportedError, spec
from tosajax.graph.summary import summarize

OURS = {n.name: n for n in networks.find(DATA)}
THEIRS = {n.name: n for n in networks.find(CORPUS) if n.name not in OURS}
DRAFT = "et_digits_vit_mxfp8_e4m3"

ours = pytest.mark.parametrize("name", [n for n in OURS if n != DRAFT])
NO_CORPUS = pytest.param("", marks=pytest.mark.skip(f"no third-party networks at {CORPUS}"))
theirs = pytest.mark.parametrize("name", list(THEIRS) or [NO_CORPUS])


def is_float(graph: tosajax.Graph) -> bool:
    return any(t.dtype.is_float for t in graph.output_tensors)


def convolves_integers(network: networks.Network) -> bool:
    graph = tosajax.load(network.model)
    found = [n for n in graph.nodes if spec.OPERATORS[n.op].chapter == "conv"]
    return any(not graph.tensors[node.inputs[0]].dtype.is_float for node in found)


def check(network: networks.Network, batches: tuple[int, ...]) -> None:
    """Integers equal the reference, floats are close, and batches have the same bits."""
    graph = tosajax.load(network.model)
    assert tosajax.validate(graph).findings == ()
    results = networks.run_each(network, graph)
    expected = networks.typed(network.expected, graph.output_tensors)
    for result, want in zip(results, expected, strict=True):
        assert result.dtype == want.dtype
        assert result.shape == want.shape
        if is_float(graph):
            assert networks.ulps(result, want) <= networks.FLOAT_LIMIT
        else:
            np.testing.assert_array_equal(result, want)
    for batch in batches if networks.carries_batch(graph) else ():
        pick = np.arange(batch) % network.count
        for joined, alone in zip(networks.run_batch(network, graph, batch), results, strict=True):
            assert joined.tobytes() == alone[pick].tobytes(), batch


@ours
def test_our_networks(name):
    check(OURS[name], (1, 7, 64))


@theirs
def test_third_party_networks(name):
    """Ours take every size of a batch; these take turns, by their names."""
    check(THEIRS[name], ((7, 64)[turn_of(name) % 2],))


@pytest.mark.slow
@theirs
def test_third_party_networks_in_every_batch(name):
    check(THEIRS[name], (7, 64))


@pytest.mark.parametrize("route", forced.ROUTES)
@pytest.mark.parametrize("name", ["et_digits_cnn_a8w8", "et_digits_cnn_a16w8"])
def test_our_integer_convolutions_by_each_route(name, route):
    check_route(OURS[name], route)


def routes_in_turns() -> list[tuple[str, str]]:
    """Third-party networks, each with native kernels and two of the other routes."""
    names = [n for n in THEIRS if convolves_integers(THEIRS[n])]
    pairs = list(itertools.combinations([r for r in forced.ROUTES if r != "native"], 2))
    turns = [(name, pairs[turn_of(name) % len(pairs)]) for name in names]
    return [(name, route) for name, pair in turns for route in ("native", *pair)]


def turn_of(name: str) -> int:
    """A number that stays when other networks come or go."""
    return zlib.crc32(name.encode())


@pytest.mark.parametrize(
    ("name", "route"), routes_in_turns() or [pytest.param("", "", marks=NO_CORPUS.marks)]
)
def test_third_party_integer_convolutions_by_routes_in_turns(name, route):
    check_route(THEIRS[name], route)


@pytest.mark.slow
@pytest.mark.parametrize("route", forced.ROUTES)
@theirs
def test_third_party_integer_convolutions_by_each_route(name, route):
    if convolves_integers(THEIRS[name]):
        check_route(THEIRS[name], route)


def check_route(network: networks.Network, route: str) -> None:
    if not forced.is_here(route):
        pytest.skip(f"no {route} that is exact and fast on this machine")
    graph = tosajax.load(network.model)
    with forced.route(route):
        results = networks.run_batch(network, graph, network.count)
    expected = networks.typed(network.expected, graph.output_tensors)
    for result, want in zip(results, expected, strict=True):
        if is_float(graph):
            assert networks.ulps(result, want) <= networks.FLOAT_LIMIT
        else:
            np.testing.assert_array_equal(result, want)


@pytest.mark.parametrize(
    "name", ["et_digits_ae_fp32", "et_digits_cnn_bf16", "et_digits_vit_fp32", "jax_attn"]
)
def test_every_float_operator_is_within_its_bound(name):
    network = OURS[name]
    graph = tosajax.load(network.model)
    inputs = [a[0] for a in networks.typed(network.inputs, graph.input_tensors)]
    share, node = network_bounds.worst(graph, inputs)
    assert 0 < share <= 1, node


def test_operators_of_tosa_1_1_are_refused_by_name():
    with pytest.raises(UnsupportedError, match="CAST_TO_BLOCK_SCALED"):
        tosajax.load(OURS[DRAFT].model)


@ours
def test_figures(name):
    """Multiply-accumulates equal the exporter's statistics."""
    meta = json.loads((DATA / name / "meta.json").read_text())
    graph = tosajax.load(OURS[name].model)
    figures = summarize(graph)
    assert figures.macs == meta["macs"]
    assert sum(figures.operators.values()) == meta["n_ops"]


@ours
@pytest.mark.parametrize("suffix", [".tosa", ".json"])
def test_written_networks_read_the_same(name, suffix, tmp_path):
    graph = tosajax.load(OURS[name].model)
    tosajax.save(graph, tmp_path / f"copy{suffix}")
    assert tosajax.load(tmp_path / f"copy{suffix}") == graph
