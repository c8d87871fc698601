"""Scales at the command line: of the file beside the model, of options, of a TFLite model."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import small_networks as small
from paths import DATA as ALL_DATA

import tosajax
from tosajax import Quantization, rewrite
from tosajax.cli import main

DATA = ALL_DATA / "et_scales"
X, OUT = Quantization((0.125,), (-3,)), Quantization((0.5,), (-7,))


@pytest.fixture
def scaled(folder):
    """scaled.tosa: model.tosa with scales beside it; float.npy: real values of x.npy."""
    graph = dataclasses.replace(small.two_layers(), quantization={"x": X, "out": OUT})
    tosajax.save(graph, folder / "scaled.tosa")
    np.save(folder / "float.npy", (np.load(folder / "x.npy").astype(np.float32) + 3) * 0.125)
    return graph


def test_real_numbers_in_and_out(command, scaled):
    assert command("run", "model.tosa", "--input", "x.npy", "--output", "y.npy")[0] == 0
    real = (np.load("y.npy").astype(np.float32) + 7) * 0.5
    options = ["--input-quant", "0.125,-3", "--output-quant", "0.5,-7"]
    for model, given in (("scaled.tosa", []), ("model.tosa", options)):
        status, _, _ = command(
            "run", model, "--input", "float.npy", "--output", "z.npy", "--real", *given
        )
        assert status == 0
        np.testing.assert_array_equal(np.load("z.npy"), real, strict=True)
    command("dump", "scaled.tosa", "--input", "float.npy", "-o", "all.npz", "--tensors", "out")
    with np.load("all.npz") as file:
        np.testing.assert_array_equal(file["out"], np.load("y.npy"))


def test_shown(command, scaled):
    for arguments in (["info", "scaled.tosa"], ["explain", "scaled.tosa", "--batch", "1"]):
        out = command(*arguments)[1]
        assert "x: INT8[1,4,4,2], scale 0.125, zero point -3\n" in out
        assert "out: INT8[1,4,4,2], scale 0.5, zero point -7\n" in out
    assert "scales      of 2 tensors" in command("info", "scaled.tosa")[1]


def test_a_rewritten_model_keeps_its_scales(command, scaled):
    assert command("rewrite", "scaled.tosa", "-o", "new.tosa", "--rounding", "double")[0] == 0
    assert dict(tosajax.load("new.tosa").quantization) == {"x": X, "out": OUT}
    # Written over by a graph that has none.
    tosajax.save(rewrite.rounding(small.two_layers(), "double"), "new.tosa")
    assert not Path("new.tosa.quant.json").exists()


def test_sweep_takes_them(command, scaled, monkeypatch):
    """Real data are quantized by the scale of the file, and rows are those of the integers."""
    np.save("labels.npy", np.zeros((6,), np.int32))
    found = []
    for model, data in (("scaled.tosa", "float.npy"), ("model.tosa", "x.npy")):
        command("run", model, "--input", "x.npy", "--output", "y.npy")
        status, _, err = command(
            "sweep", model, "--data", data, "--reference", "y.npy", "--rounding", "double",
            "--metrics", "max_lsb", "--csv", "rows.csv",
        )  # fmt: skip
        assert (status, err) == (0, "")
        found.append(Path("rows.csv").read_text().splitlines()[1].split(",")[:3])
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--input", "float.npy"], ["float32", "expected int8", "--input-quant"]),
        (["--input", "x.npy", "--real"], ["--real", "'out'", "--output-quant"]),
        (["--input", "x.npy", *["--input-quant", "1,0"] * 2], ["2 --input-quant", "1 inputs (x)"]),
        (["--input", "x.npy", "--input-quant", "1,999"], ["'x' is INT8[1,4,4,2]", "zero point"]),
        (["--input", "x.npy", "--scales", "x.npy"], ["x.npy is neither a TFLite model nor"]),
    ],
)
def test_trouble(command, scaled, arguments, words):
    status, out, err = command("run", "model.tosa", "--output", "y.npy", *arguments)
    assert (status, out) == (1, "")
    for word in words:
        assert word in err


def test_layers_of_pytorch_beside_those_of_an_etrecord(command, folder):
    """With its scales, floats of PyTorch are inputs and are compared with inner integers."""
    with np.load(DATA / "inner_modules.npz") as file:
        np.save("images.npy", file["x"])
    arguments = [
        "compare", str(DATA / "inner.tosa"), "--against", str(DATA / "inner_modules.npz"),
        "--input", "images.npy", "--clip",
    ]  # fmt: skip
    status, _, err = command(*arguments)
    assert status == 2
    assert "expected int8 (INT8), or its scale" in err
    out = command(*arguments, "--scales", str(DATA / "inner.etrecord"))[1]
    for layer in ("stem", "block.conv", "pool", "fc"):
        assert f"[{layer}]" in out


@pytest.mark.filterwarnings("default")
def test_a_stale_file_is_not_used_in_silence(folder, scaled, capsys, monkeypatch):
    monkeypatch.chdir(folder)
    Path("scaled.tosa").write_bytes(Path("twice.tosa").read_bytes())
    arguments = ["run", "scaled.tosa", "--input", "float.npy", "--output", "y.npy"]
    assert main(arguments) == 1
    warning, error = capsys.readouterr().err.splitlines()
    assert warning.startswith("tosajax: warning: scaled.tosa.quant.json belongs to another content")
    assert "expected int8 (INT8), or its scale" in error


COMMANDS = {
    "run": ["--output", "y.npy", "--input"],
    "dump": ["-o", "all.npz", "--input"],
    "compare": ["--against", "model.tosa", "--input"],
    "rounding": ["--against", "model.tosa", "--input"],
    "sweep": ["--reference", "r.npy", "--metrics", "max_lsb", "--data"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_images_of_bytes_are_not_saturated_in_silence(command, scaled, name):
    """0..255 where the scale stands for 0..1."""
    np.save("bytes.npy", (np.load("x.npy").astype(np.float32) + 128))
    np.save("r.npy", np.zeros((6, 4, 4, 2), np.int8))
    arguments = [name, "model.tosa", "--input-quant", "0.0039,-128", *COMMANDS[name], "bytes.npy"]
    status, out, err = command(*arguments)
    assert (status, out) == (2 if name == "compare" else 1, "")
    for words in ("% of the elements are beyond", "holds [0, 0.9945]", "x / 255", "--clip"):
        assert words in err
    status, _, err = command(*arguments, "--clip")
    assert (status, err) == (0, "")


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("name", COMMANDS)
def test_a_few_that_saturate_are_said(folder, monkeypatch, capsys, name):
    monkeypatch.chdir(folder)
    images = np.zeros((6, 4, 4, 2), np.float32)
    images[0, 0, 0, 0] = 2  # of 192 elements
    np.save("few.npy", images)
    np.save("r.npy", np.zeros((6, 4, 4, 2), np.int8))
    arguments = [name, "model.tosa", "--input-quant", "0.0039,-128", *COMMANDS[name], "few.npy"]
    assert main(arguments) == 0
    warning = "tosajax: warning: input 'x': 0.521 % of the elements are beyond the range"
    assert capsys.readouterr().err.count(warning) == 1
