"""Every example keeps its promises, in its quick setting."""

from __future__ import annotations

import contextlib
import runpy
import subprocess
import sys

import jax
import pytest
from paths import ROOT
from quick_programs import quick_programs

EXAMPLES = ROOT / "examples"
SCRIPTS = [
    pytest.param("ptq_cnn.py", marks=pytest.mark.slow),
    "qat_cnn.py",
    pytest.param("finetune_integer_tosa.py", marks=pytest.mark.slow),
    pytest.param("mixed_precision.py", marks=pytest.mark.slow),
    "gru_hifi.py",
    "find_the_bad_layer.py",
    pytest.param("export_flax_cnn.py", marks=pytest.mark.slow),
    pytest.param("export_equinox_transformer.py", marks=pytest.mark.slow),
    pytest.param("export_keras_mobilenet.py", marks=pytest.mark.slow),
]
FRAMEWORKS = {
    "export_flax_cnn.py": "flax",
    "export_equinox_transformer.py": "equinox",
    "export_keras_mobilenet.py": "keras",
}
# These compile for longer than they run.
SHORT = ("ptq_cnn.py", "qat_cnn.py", "find_the_bad_layer.py", *FRAMEWORKS)


@pytest.mark.parametrize("script", SCRIPTS)
def test_quick(script, monkeypatch):
    if script == "export_keras_mobilenet.py":
        monkeypatch.setenv("KERAS_BACKEND", "jax")
    pytest.importorskip(FRAMEWORKS.get(script, "jax"))
    monkeypatch.chdir(EXAMPLES)
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.setattr(sys, "argv", [script, "--quick"])
    with (
        quick_programs() if script in SHORT else contextlib.nullcontext(),
        jax.numpy_dtype_promotion("standard"),
        jax.numpy_rank_promotion("allow"),
        pytest.raises(SystemExit) as done,
    ):
        runpy.run_path(script, run_name="__main__")
    assert not done.value.code


def test_quick_in_a_process_of_its_own():
    command = [sys.executable, "sweep_shift.py", "--quick"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=EXAMPLES)
    assert done.returncode == 0, done.stdout + done.stderr
