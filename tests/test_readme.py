"""Every snippet and command of the README does what the README says."""

from __future__ import annotations

import re
import shlex

import jax
import numpy as np
import pytest
from paths import ROOT

import tosajax
from tosajax import DType
from tosajax.cli import main

README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)


def test_snippets_run(tmp_path, monkeypatch, capsys):
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    snippets = blocks("python")
    assert len(snippets) == 12
    for snippet in snippets:
        exec(compile(snippet, "README.md", "exec"), names)
    first, table = capsys.readouterr().out.split("\n", 1)
    assert first == "VALID"
    assert table.startswith("node ")
    assert "worst: " in table
    assert names["same"]
    assert all(np.isfinite(g).all() for g in jax.tree.leaves(names["gradients"]))
    assert tosajax.load(tmp_path / "digits_int8.tosa").input_tensors[0].dtype is DType.INT8
    expected = np.load(ROOT / "tests/data/et_digits_cnn_a8w8/expected_ref_0.npy")
    np.testing.assert_array_equal(names["scores"], expected)
    np.testing.assert_array_equal(np.asarray(names["y"].shape), (-1, 4))
    assert (tmp_path / "reversed.tosa").exists()
    np.testing.assert_array_equal(names["first"], expected.reshape(-1, 10)[:5])
    np.testing.assert_array_equal(names["total"], expected.sum(axis=1, keepdims=True))
    assert names["reason"] in README
    assert np.any(names["slopes"]["aten_convolution_default_4_weight_ohwi"])
    assert "entries" in names["rule"]
    assert all(np.any(g) for g in names["better"])
    assert "rescale_default_3" in names["culprit"].tensor
    right = [round(540 * row["accuracy"]) for row in names["results"]]
    assert right == [532, 524, 408, 532, 524, 405]
    assert names["row"].dtype == np.int16


@pytest.mark.parametrize(
    "command",
    [line for block in blocks("sh") for line in block.splitlines() if line.startswith("tosajax")],
)
def test_commands_run(command, data, tmp_path, monkeypatch, capsys):
    for name in ("model.tosa", "single.tosa"):
        (tmp_path / name).symlink_to(data / "et_digits_cnn_a8w8" / "model.tosa")
    (tmp_path / "x.npy").symlink_to(data / "digits_test" / "inputs_0.npy")
    np.save(tmp_path / "real.npy", np.load(tmp_path / "x.npy")[:4].astype(np.float32))
    (tmp_path / "labels.npy").symlink_to(data / "digits_test" / "labels.npy")
    monkeypatch.chdir(tmp_path)
    assert main(shlex.split(command)[1:]) == 0


def test_ci_finds_its_commands():
    """.ci/run takes these two blocks by their markers."""
    for marker, word in (("main job", "examples/run_int8_network.py"), ("tests", "pytest")):
        found = re.search(rf"^<!-- ci: {marker} -->\n```sh\n(.*?)^```$", README, re.S | re.M)
        assert found is not None
        assert word in found[1]


@pytest.mark.parametrize("document", ["README.md", "CONTRIBUTING.md"])
def test_links_and_paths_exist(document):
    text = (ROOT / document).read_text()
    for path in re.findall(r"\]\((?!http)([^)#]+)\)", text):
        assert (ROOT / path).exists(), path
    for path in re.findall(r"`((?:tosajax|tests|examples|tools|docs)/[\w./]*)`", text):
        assert (ROOT / path).exists(), path
