"""The help of each command: it has examples, and they work."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest

import tosajax
from tosajax import reference_model
from tosajax.cli import _COMMANDS, main

MODULE = "import jax.numpy as jnp\n\ndef forward(x):\n    return jnp.tanh(x)\n"


def name_of(module: object) -> str:
    return module.__name__.rpartition(".")[2]  # pyright: ignore[reportAttributeAccessIssue]


@pytest.fixture
def files(folder, monkeypatch):
    """What the examples read, in the working directory."""
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    shutil.copy("model.tosa", "other.tosa")
    np.save("real.npy", np.load("x.npy").astype(np.float32) / 10)  # of scale 0.1
    np.save("y.npy", np.arange(6) % 4)
    floats = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
    np.save("f.npy", floats)
    tosajax.save(tosajax.export(lambda x: x @ floats[:4], floats[:1]), "float.tosa")
    (folder / "my_model.py").write_text(MODULE)


@pytest.mark.parametrize("module", _COMMANDS, ids=name_of)
def test_examples_are_shown_whole_and_fit_a_terminal(module, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        main([name_of(module), "--help"])
    _, found, text = capsys.readouterr().out.partition("\nexamples:\n")
    assert found
    assert text.splitlines() == [f"  tosajax {line}" for line in module.EXAMPLES]
    assert all(len(line) <= 80 for line in text.splitlines())


@pytest.mark.parametrize("line", [line for module in _COMMANDS for line in module.EXAMPLES])
def test_examples_run(line, files):
    if "--html" in line:
        pytest.importorskip("matplotlib")
    if "--against ref" in line and not reference_model.is_installed():
        pytest.skip("tosa-tools is not installed")
    if ".tflite" in line:
        tflite_files = pytest.importorskip("tflite_files")
        weight = np.arange(1, 17, dtype=np.uint8).reshape(4, 4)
        Path("int8.tflite").write_bytes(tflite_files.dense_of_bytes(weight, zero_point=3))
    assert main(shlex.split(line)) == 0


@pytest.mark.parametrize("module", _COMMANDS, ids=name_of)
def test_metavars_say_what_is_meant(module, capsys):
    """N stands for a number: no option that takes words has it."""
    with pytest.raises(SystemExit):
        main([name_of(module), "--help"])
    text = capsys.readouterr().out
    assert not re.search(r"--(rounding|metrics|strategy) N\b", text)
