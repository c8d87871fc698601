"""Every example keeps its promises, in its quick setting."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from paths import ROOT

EXAMPLES = ROOT / "examples"
SCRIPTS = [
    "ptq_cnn.py",
    "qat_cnn.py",
    pytest.param("finetune_integer_tosa.py", marks=pytest.mark.slow),
    pytest.param("mixed_precision.py", marks=pytest.mark.slow),
    "gru_hifi.py",
    "sweep_shift.py",
    "find_the_bad_layer.py",
]


@pytest.mark.parametrize("script", SCRIPTS)
def test_quick(script):
    command = [sys.executable, str(EXAMPLES / script), "--quick"]
    environment = {**os.environ, "PYTHONWARNINGS": "default"}
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, check=False, cwd=EXAMPLES
    )
    assert done.returncode == 0, done.stdout + done.stderr
