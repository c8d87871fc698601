"""The study of quantized accuracy, on tiny networks."""

from __future__ import annotations

import dataclasses
import json
import sys

import jax
import numpy as np
import pytest
from paths import ROOT

sys.path.insert(0, str(ROOT))

from benchmarks import float_networks, quant_study, study_report
from tosajax import quant as tq

TINY = dataclasses.replace(
    quant_study.QUICK,
    networks={
        "mobilenet": lambda seed: float_networks.mobilenet(seed, blocks=(), last=4),
    },
    train=8,
    test=6,
    batch=4,
    float_steps={"mobilenet": 2},
    tuned_steps=1,
    learned_steps=1,
    calibrated=4,
)
WAYS = ("nearest", "learned", "fake", "exact")


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_a_study_is_measured_once(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(quant_study, "QUICK", TINY)
    out, picture = tmp_path / "results.json", tmp_path / "plot.png"
    arguments = ["--quick", "--out", str(out), "--plot", str(picture)]
    with jax.numpy_dtype_promotion("standard"):
        assert quant_study.main(arguments) == 0
    first = capsys.readouterr().out
    rows = json.loads(out.read_text())["rows"]
    again = [f"W2A4, reconstructed first/{way}" for way in ("fake", "exact")]
    ways = ["float", *(f"W2A4/{way}" for way in WAYS), *again]
    assert list(rows) == [f"mobilenet/0/{way}" for way in ways]
    assert all(0 <= row["accuracy"] <= 1 for row in rows.values())
    exact = rows["mobilenet/0/W2A4/exact"]
    assert exact["elements"] > exact["mismatches"] == 0
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert first.rstrip().endswith(study_report.table(rows))

    monkeypatch.setattr(quant_study, "_trained_values", None)
    assert quant_study.main(["--quick", "--out", str(out)]) == 0
    assert capsys.readouterr().out.rstrip() == study_report.table(rows)


def test_the_page_has_the_results():
    rows = json.loads((ROOT / "benchmarks" / "quant_study.json").read_text())["rows"]
    assert study_report.table(rows) in (ROOT / "docs" / "accuracy.md").read_text()
    assert not any(row.get("mismatches") for row in rows.values())


def test_results_of_other_sizes_are_refused(tmp_path):
    path = tmp_path / "results.json"
    results = quant_study.Results(path, quant_study.QUICK)
    results.row("a/0/float", lambda: {"accuracy": 0.5})
    assert quant_study.Results(path, quant_study.QUICK).rows == results.rows
    with pytest.raises(ValueError, match="other sizes"):
        quant_study.Results(path, quant_study.FULL)


def test_arrays_are_kept_beside_the_results(tmp_path):
    path = tmp_path / "results.json"
    made = {"block0/weight": np.arange(3.0)}
    quant_study.Results(path, TINY).arrays("net-0", lambda: made)
    found = quant_study.Results(path, TINY).arrays("net-0", lambda: pytest.fail("made again"))
    np.testing.assert_array_equal(found["block0/weight"], made["block0/weight"])


def test_each_epoch_has_all_images_once():
    images = quant_study.Images(TINY)
    batches = list(images.batches(4, seed=0))
    sums = [sum(float(x.sum()) for x, _ in batches[at : at + 2]) for at in (0, 2)]
    np.testing.assert_allclose(sums[0], sums[1], rtol=1e-5)
    assert sum(len(x) for x in images.test()) == TINY.test


@pytest.mark.parametrize(("name", "millions"), [("mobilenet", 6.08), ("transformer", 18.5)])
def test_sizes_of_the_networks(name, millions):
    graph = quant_study.FULL.networks[name](0)
    assert round(float_networks.multiplications(graph) / 1e6, 2) == pytest.approx(millions, 0.01)


def test_few_bits_are_of_what_products_read():
    model = tq.prepare(float_networks.transformer(blocks=1), quant_study.rules(2, 4))
    few = {name for name in model.activations if model.specs[name].bits == 4}
    block = {"norm1/normed", "norm2/normed", "gelu"} | {
        f"attention/{name}" for name in ("query", "key", "value", "shares", "weighted")
    }
    assert {name for name in few if name.startswith("block0/")} == {f"block0/{n}" for n in block}
    bits = {name: model.specs[name].bits for name in model.weights}
    assert {bits["stem/weight"], bits["scores/weight"]} == {8}
    assert bits["halved/weight"] == bits["tokens/weight"] == 2
    assert bits["block0/hidden/weight"] == 2


def test_the_table_has_the_mean_of_the_seeds():
    rows = {
        "net/0/float": {"accuracy": 0.9},
        "net/1/float": {"accuracy": 0.8},
        "net/0/W8A8/nearest": {"accuracy": 0.75},
        "net/1/W8A8/nearest": {"accuracy": 0.65},
        "net/0/W8A8/fake": {"accuracy": 0.5, "before": 0.6, "changed": 0.2},
        "net/0/W8A8/exact": {"accuracy": 0.7, "elements": 11e6, "mismatches": 0},
    }
    *_, floats, tuned = study_report.table(rows).split("\n")
    assert floats == "| net | float | 85.0 ± 7.1 |" + " |" * 6
    some = "(1 of 2 seeds)"
    cells = ["70.0 ± 7.1", "", *(f"{number} {some}" for number in ("50.0", "70.0", "60.0", "20.0"))]
    assert tuned == f"| net | W8A8 | {' | '.join(cells)} | 0 of 11 M |"
