"""Every snippet and command of the README and of docs/ works as its text claims."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jax_networks import as_users
from paths import DATA, ROOT
from quick_programs import quick_programs

import tosajax
from tosajax import DType, quant
from tosajax.cli import main
from tosajax.graph.alike import difference

PAGES = ["README.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]
DIGITS = DATA / "et_digits_cnn_a8w8"


def blocks(page: str, language: str) -> list[str]:
    text = (ROOT / page).read_text()
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


WITH_SNIPPETS = [page for page in PAGES if blocks(page, "python")]


@pytest.mark.parametrize("page", WITH_SNIPPETS)
@quick_programs()
def test_snippets_run(page, tmp_path, monkeypatch, capsys):
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    with as_users():
        for snippet in blocks(page, "python"):
            exec(compile(snippet, page, "exec"), names)
    CHECKS[page](names, capsys.readouterr().out)


@pytest.mark.parametrize(
    "command",
    [
        line
        for page in ("docs/command_line.md", "docs/formats.md", "docs/pretrained.md")
        for block in blocks(page, "sh")
        for line in block.replace("\\\n", " ").splitlines()
        if line.startswith("tosajax")
    ],
)
def test_commands_run(command, tmp_path, monkeypatch, capsys):
    for name in ("model.tosa", "single.tosa"):
        (tmp_path / name).symlink_to(DIGITS / "model.tosa")
    (tmp_path / "x.npy").symlink_to(DATA / "digits_test" / "inputs_0.npy")
    np.save(tmp_path / "real.npy", np.load(tmp_path / "x.npy")[:4].astype(np.float32) / 16)
    tosajax.save(tosajax.load(tmp_path / "model.tosa"), tmp_path / "model.mlir")
    (tmp_path / "labels.npy").symlink_to(DATA / "digits_test" / "labels.npy")
    floats = np.random.default_rng(0).normal(size=(16, 4)).astype(np.float32)
    tosajax.save(tosajax.export(lambda x: x @ floats[:4], floats[:1]), tmp_path / "float.tosa")
    np.save(tmp_path / "floats.npy", floats)
    _stand_in(tmp_path, floats)
    _write_foreign(tmp_path, command)
    monkeypatch.chdir(tmp_path)
    assert main(shlex.split(command)[1:]) == 0


def _write_foreign(folder: Path, command: str) -> None:
    """The file of another project that a command reads, if the packages for it are installed."""
    if "net.tflite" in command:
        pytest.importorskip("tosa_converter_for_tflite")
        import tflite_files

        (folder / "net.tflite").write_bytes(tflite_files.convolution())
    if "net.onnx" in command:
        pytest.importorskip("torch_mlir")
        import onnx_files

        add = onnx_files.node("Abs", ["x"], ["y"])
        content = onnx_files.model([add], {"x": ["N", 3, None, None]}, {"y": 1})
        (folder / "net.onnx").write_bytes(content)


def _stand_in(folder: Path, floats: np.ndarray) -> None:
    """A small network and rows in the place of a pretrained one and photographs."""
    graph = tosajax.load(folder / "float.tosa")
    tosajax.save(graph, folder / "selfie.mlir")
    model = quant.prepare(graph)
    tosajax.save(model.freeze(quant.calibrate(model, [floats])), folder / "selfie.tosa")
    for name in ("photos.npy", "new.npy"):
        np.save(folder / name, floats)


def test_ci_finds_its_commands():
    """.ci/run finds these two blocks by their markers."""
    for marker, word in (("main job", "examples/run_int8_network.py"), ("tests", "pytest")):
        text = (ROOT / "README.md").read_text()
        found = re.search(rf"^<!-- ci: {marker} -->\n```sh\n(.*?)^```$", text, re.S | re.M)
        assert found is not None
        assert word in found[1]


def test_every_check_has_its_page():
    assert sorted(CHECKS) == sorted(WITH_SNIPPETS)


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().split()) <= 900


@pytest.mark.parametrize("page", [*PAGES, "CONTRIBUTING.md"])
def test_links_and_paths_exist(page):
    text = (ROOT / page).read_text()
    for path in re.findall(r"\]\((?!http)([^)#]+)\)", text):
        assert ((ROOT / page).parent / path).exists(), path
    for path in re.findall(r"`((?:tosajax|tests|examples|tools|docs)/[\w./]*)`", text):
        assert (ROOT / path).exists(), path


# Checks of the names that the snippets of a page leave, and of their output.


def _readme(names: dict[str, Any], printed: str) -> None:
    assert printed.startswith("VALID\n")
    expected = np.load(DIGITS / "expected_ref_0.npy").reshape(-1, 10)
    np.testing.assert_array_equal(names["scores"], expected)
    assert any(np.any(g) for g in jax.tree.leaves(names["gradients"]))
    assert tosajax.load("digits_int8.tosa").input_tensors[0].dtype is DType.INT8
    right = [round(540 * row["accuracy"]) for row in names["results"]]
    assert right == [532, 524, 408, 532, 524, 405]


def _graphs(names: dict[str, Any], printed: str) -> None:
    assert printed.startswith("VALID\n")
    expected = np.load(DIGITS / "expected_ref_0.npy")
    np.testing.assert_array_equal(names["scores"], expected)
    np.testing.assert_array_equal(names["total"], expected.sum(axis=1, keepdims=True))
    np.testing.assert_array_equal(np.asarray(names["y"].shape), (-1, 4))
    assert names["reason"] in (ROOT / "docs/graphs.md").read_text()
    assert tosajax.load("reversed.tosa").input_tensors[0].shape == (-1, 4)


def _speed(names: dict[str, Any], printed: str) -> None:
    assert printed.startswith("node ")
    expected = np.load(DIGITS / "expected_ref_0.npy").reshape(-1, 10)
    np.testing.assert_array_equal(names["first"], expected[:5])


def _gradients(names: dict[str, Any], printed: str) -> None:
    assert np.any(names["slopes"]["aten_convolution_default_4_weight_ohwi"])
    assert "entries" in names["rule"]


def _quantization(names: dict[str, Any], printed: str) -> None:
    assert "worst: " in printed
    assert names["same"]
    assert tosajax.load("digits_int8.tosa").input_tensors[0].dtype is DType.INT8


def _sweeps(names: dict[str, Any], printed: str) -> None:
    right = [round(540 * row["accuracy"]) for row in names["results"]]
    assert right == [532, 524, 408, 532, 524, 405]


def _comparing(names: dict[str, Any], printed: str) -> None:
    assert "rescale_default_3" in names["culprit"].tensor
    rows = [line.split() for line in printed.splitlines()]
    by_name = {row[0].removeprefix("tosa_").replace("_default", ""): row for row in rows if row}
    told = re.findall(
        r"^\| (\w+) \| [A-Z0-9]+ \|(.*?)\| et_", (ROOT / "README.md").read_text(), re.M
    )
    assert len(told) == 4
    for name, cells in told:  # the table of the README
        found = by_name[name]
        differ, largest, sqnr, alone = (cell.strip(" *") for cell in cells.strip("| ").split("|"))
        assert (differ, largest) == (f"{float(found[4]):.2f}", found[5])
        assert (sqnr, alone) == (found[7], found[10])


def _formats(names: dict[str, Any], printed: str) -> None:
    assert printed.startswith("TOSA flatbuffer 1.0.0\n")
    assert difference(names["graph"], names["again"]) is None
    assert "FULLY_CONNECTED" not in {node.op for node in names["old"].nodes}
    assert len(printed.splitlines()) == 1 + len(names["old"].source.rewrites) > 1


def _hifi_guide(names: dict[str, Any], printed: str) -> None:
    assert all(np.any(g) for g in names["better"])
    assert names["row"].dtype == np.int16


def _exporting(names: dict[str, Any], printed: str) -> None:
    lines = printed.splitlines()
    assert lines[0] == "Graph('main', (image: FP32[1,32,32,3]) -> (logits: FP32[1,10]), 30 nodes)"
    assert lines[1].startswith("logits: ")
    assert "EXT-BF16" in lines[2]
    assert lines[-2].startswith("cholesky")
    assert lines[-1] == "['RESHAPE', 'CONV2D', 'RESHAPE', 'RESCALE']"
    assert names["integers"].source.agreement[0].ulp == 0
    assert tosajax.validate(tosajax.load("network_int8.tosa")).needs == ("PRO-INT",)
    for name, array in names["params"].items():
        np.testing.assert_allclose(names["again"][name], array, rtol=1e-5)


CHECKS: dict[str, Callable[[dict[str, Any], str], None]] = {
    "README.md": _readme,
    "docs/comparing.md": _comparing,
    "docs/compliance.md": lambda names, printed: None,  # the snippet itself asserts
    "docs/exporting.md": _exporting,
    "docs/formats.md": _formats,
    "docs/gradients.md": _gradients,
    "docs/graphs.md": _graphs,
    "docs/hifi_guide.md": _hifi_guide,
    "docs/quantization.md": _quantization,
    "docs/speed.md": _speed,
    "docs/sweeps.md": _sweeps,
}
