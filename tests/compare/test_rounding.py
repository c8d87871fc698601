"""Which rounding equals which runtime, on made up runtimes and on the ones of the corpus."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import small_networks as small
from paths import CORPUS

import tosajax
from tosajax import Builder, DType
from tosajax.compare import which_rounding
from tosajax.rewrite import rounding
from tosajax.runtime.dump import dump

X = small.images(8)


def test_runtimes_that_round_once_and_twice():
    graph = small.two_layers()
    twice = rounding(graph, "double")
    stored = dump(twice, X)
    found = which_rounding(graph, {"once": graph, "twice": twice, "stored": stored}, X, batch=3)
    assert found.equal == [
        ("as it is", "once"), ("single", "once"), ("double", "twice"), ("double", "stored"),
    ]  # fmt: skip
    wrong = np.mean(stored["out"] != dump(graph, X)["out"])
    assert 0 < wrong == found.share("single", "twice") == found.share("double", "once")
    pairs = "as it is and once, single and once, double and twice, double and stored"
    assert repr(found) == f"RoundingTable(9 comparisons, equal: {pairs})"
    lines = str(found).splitlines()
    assert lines[0].split() == ["rounding", "once", "twice", "stored"]
    assert lines[1].split()[3:] == ["0.00", "%", *[f"{100 * wrong:.2f}", "%"] * 2]
    assert lines[4:] == [
        "once rounds once in RESCALE, as the graph does",
        "twice rounds twice in RESCALE",
        "stored rounds twice in RESCALE",
    ]


def test_sentences_of_what_no_rounding_explains():
    """A runtime that is near, few examples, RESCALEs that differ, and none that rounds twice."""
    graph = small.two_layers()
    near = {"out": dump(rounding(graph, "double"), X)["out"].copy()}
    near["out"][0, 0, 0, 0] ^= 1
    found = which_rounding(graph, {"near": near}, X)
    assert repr(found) == "RoundingTable(3 comparisons, equal: none)"
    assert found.answer("near") == (
        f"near equals none of these: double rounding comes nearest, {100 / 256:.3g} % differ"
    )
    still = np.zeros((1, *X.shape[1:]), np.int8)
    for count in (1, 4, 20):
        few = which_rounding(graph, {"own": graph}, np.repeat(still, count, axis=0))
        plural = "s" if count > 1 else ""
        assert few.answer("own") == (
            f"own: {count} example{plural} cannot tell: both roundings are equal; give "
            f"{max(32, 4 * count)}"
        )
    mixed = rounding(graph, "double", where="act1")
    assert which_rounding(mixed, {"own": mixed}, X).answer("own") == (
        "own equals the graph as it is, which rounds in more than one way"
    )
    with pytest.raises(KeyError):
        found.answer("far")


def test_floats_of_a_runtime_are_judged_in_steps():
    """Outputs that a runtime gives as real numbers, with their noise."""
    graph = small.two_layers()
    scale = tosajax.Quantization((0.05,), (-7,))
    graph = dataclasses.replace(graph, quantization={"out": scale})
    stored = dump(rounding(graph, "double"), X)["out"]
    real = (stored.astype(np.float32) + 7) * np.float32(0.05) * np.float32(1 + 2e-7)
    assert which_rounding(graph, {"floats": {"out": real}}, X).equal == [("double", "floats")]


def test_what_cannot_round_twice_does_not():
    b = Builder()
    x = b.input("x", DType.INT32, (1, 4))
    y = small.rescale(b, x, (1 << 14,), (15,), DType.INT32, scale32=False)
    graph = b.graph([y])
    table = which_rounding(graph, {"own": graph})
    assert table.answer("own") == "own equals the graph, whose RESCALEs cannot round twice"
    assert {mode for mode, _ in which_rounding(graph, {"own": graph}).comparisons} == {
        "as it is",
        "single",
    }
    b = Builder()
    with pytest.raises(ValueError, match="no RESCALE"):
        which_rounding(b.graph([b.op("ABS", b.input("x", DType.INT32, (1, 4)))]), {})


# Examples of the corpus that equal LiteRT's reference kernels, and its default ones.
LITERT = {
    "ad_autoencoder_int8": {("single", "ref"), ("single", "default")},
    "resnet8_int8": {("as it is", "ref"), ("double", "ref"), ("single", "default")},
}


@pytest.mark.skipif(not CORPUS.is_dir(), reason="the corpus is not here")
@pytest.mark.parametrize(
    "name",
    ["ad_autoencoder_int8", pytest.param("resnet8_int8", marks=pytest.mark.slow)],
)
def test_litert_as_it_was_stored(name):
    folder = CORPUS / name
    references = {k: folder / f"expected_litert_{k}_0.npy" for k in ("ref", "default")}
    graph, x = tosajax.load(folder / "model.tosa"), np.load(folder / "inputs_0.npy")
    assert set(which_rounding(graph, references, x).equal) == LITERT[name]
