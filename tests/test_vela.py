"""Vela's estimates, and the rates that follow them."""

from __future__ import annotations

import numpy as np
import pytest
from graph.test_costs import INT16, conv, frozen

import tosajax
from tosajax import DType, UnsupportedError, vela
from tosajax.graph.costs import arena_bytes, cycles
from tosajax.spec.npu import NPUS
from tosajax.spec.rates import RATES, rates_of

pytestmark = pytest.mark.skipif(not vela.is_installed(), reason="ethos-u-vela is not installed")
RNG = np.random.default_rng(5)
X = RNG.normal(size=(1, 64, 64, 64)).astype(np.float32)
GRAPHS = {
    "conv": conv(3, 64, 64),
    "conv 1x1": conv(1, 64, 64),
    "depthwise": conv(3, 64, 64, groups=64),
    "sum": lambda x, y: x + y,
    "transpose": lambda x: x.transpose(0, 3, 1, 2),
}


def test_every_npu_has_rates():
    assert RATES.keys() == NPUS.keys()
    assert rates_of("ethos-u65-512").macs == 512
    with pytest.raises(ValueError, match=r"unknown NPU 'ethos-u85-25', expected one of ethos-u55"):
        rates_of("ethos-u85-25")


# Of U55, transposes have a rate of their own; U85 first copies what this product reads.
PAIRS = [(name, npu) for name in GRAPHS for npu in ("ethos-u55-128", "ethos-u85-256")]
PAIRS = [p for p in PAIRS if p not in (("transpose", PAIRS[0][1]), ("conv 1x1", PAIRS[1][1]))]


@pytest.mark.parametrize(("name", "npu"), PAIRS)
def test_cycles_are_near_those_of_vela(name, npu):
    """Within a third: Vela knows the blocks of each NPU, and what it has in each cycle."""
    for rules in ((), (INT16,)):
        graph = frozen(GRAPHS[name], *rules, x=X)
        found, wanted = cycles(graph, RATES[npu]), vela.estimate(graph, npu).npu_cycles
        assert wanted / 1.35 < found < 1.35 * wanted


def test_a_network(data):
    graph = tosajax.load(data / "et_digits_cnn_a8w8" / "model.tosa")
    estimate = vela.estimate(graph, "ethos-u55-128")
    assert estimate.npu == "ethos-u55-128"
    assert 0 < estimate.npu_cycles <= estimate.cycles
    assert arena_bytes(graph) / 2 < estimate.sram_bytes < 2 * arena_bytes(graph)
    assert estimate.other_bytes > 5000  # its weights
    assert str(estimate).startswith(f"{estimate.cycles:,} cycles, ")


def test_a_summary_of_another_version(monkeypatch, data):
    """One error for what its row lacks, and for a number that is none."""
    graph = tosajax.load(data / "et_digits_cnn_a8w8" / "model.tosa")

    for content in ("cycles_total\n5\n", "cycles_total,cycles_npu\n5,many\n", "cycles_total\n"):

        def run(command, folder, size, content=content):
            (folder / "graph_summary_x.csv").write_text(content)

        monkeypatch.setattr(vela.programs, "run", run)
        with pytest.raises(UnsupportedError, match="Vela, for ethos-u55-128: its summary has no"):
            vela.estimate(graph, "ethos-u55-128")
    monkeypatch.setattr(vela.programs, "run", lambda *_: None)
    with pytest.raises(UnsupportedError, match="no summary"):
        vela.estimate(graph, "ethos-u55-128")


def test_what_vela_does_not_compile():
    b = tosajax.Builder()
    x = b.input("x", DType.FP32, (2,))
    with pytest.raises(UnsupportedError, match="Vela, for ethos-u55-128: it ended with"):
        vela.estimate(b.graph([b.op("TANH", x)]), "ethos-u55-128")
    with pytest.raises(ValueError, match="ethos-u99"):
        vela.estimate(b.graph([x]), "ethos-u99")
