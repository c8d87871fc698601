"""`tosajax compare` and `tosajax sweep` write pages."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest
import small_networks as small

import tosajax
from tosajax import rewrite
from tosajax.cli import main


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Has model.tosa, twice.tosa (rounded twice), x.npy (6 examples) and labels."""
    graph = small.two_layers()
    tosajax.save(graph, tmp_path / "model.tosa")
    tosajax.save(rewrite.rounding(graph, "double"), tmp_path / "twice.tosa")
    np.save(tmp_path / "x.npy", small.images(6))
    np.save(tmp_path / "y.npy", np.arange(6) % 4)
    monkeypatch.chdir(tmp_path)
    return tmp_path


COMPARE = ["compare", "model.tosa", "--against", "twice.tosa", "--input", "x.npy"]
SWEEP = ["sweep", "model.tosa", "--data", "x.npy", "--labels", "y.npy", "--rounding", "single"]


def test_compare(folder):
    pytest.importorskip("matplotlib")
    assert main([*COMPARE, "--html", "page.html", "--model-explorer", "nodes.json"]) == 1
    page = (folder / "page.html").read_text()
    assert "Signal to quantization noise" in page
    assert "<dt>a</dt><dd><code>model.tosa</code></dd>" in page
    assert "<code>twice.tosa</code></dd>" in page
    command = "tosajax compare model.tosa --against twice.tosa --input x.npy --html page.html"
    assert f"Made by tosajax {tosajax.__version__} with <code>{command}" in page
    results = json.loads((folder / "nodes.json").read_text())["results"]
    graph = tosajax.load("model.tosa")
    (at,) = [k for k, node in enumerate(graph.nodes) if "act1" in node.outputs]
    assert results[f"main/op{at}"]["value"] > 0


def test_sweep(folder):
    pytest.importorskip("matplotlib")
    axis = ["--weight-bits", "4", "8", "--cost", "weight_bits"]
    assert main([*SWEEP, "double", *axis, "--html", "page.html"]) == 0
    page = (folder / "page.html").read_text()
    assert "<td>double</td>" in page
    assert "<h2>accuracy against weight_bits</h2>" in page
    assert "accuracy by rounding" in page
    for name in ("model.tosa", "x.npy", "y.npy"):
        assert f"<dd><code>{name}</code></dd>" in page
    assert "with <code>tosajax sweep model.tosa --data" in page


@pytest.mark.parametrize("given", [["--html", "page.html"], ["--weight-bits", "4", "8"]])
def test_a_cost_is_an_axis_on_a_page(given, folder, monkeypatch, capsys):
    monkeypatch.setattr("tosajax.load", lambda path: pytest.fail("loaded"))
    assert main([*SWEEP, *given, "--cost", "weight_bits"]) == 1
    message = "--cost weight_bits is for a page of that axis: give --html and --weight-bits"
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(("arguments", "status"), [(COMPARE, 2), (SWEEP, 1)])
def test_no_matplotlib_is_said_before_any_work(arguments, status, folder, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setattr("tosajax.load", lambda path: pytest.fail("loaded"))
    assert main([*arguments, "--html", "page.html"]) == status
    assert "pip install 'tosajax[viz]'" in capsys.readouterr().err
    assert not (folder / "page.html").exists()
