"""Sample files of MLIR, and tosa-opt."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tosajax.io.mlir import bytecode

DATA = Path(__file__).parent / "data"


@pytest.fixture(scope="session")
def sample() -> Callable[[str], bytes]:
    """The content of a sample."""
    pytest.importorskip("xdsl")
    return lambda name: (DATA / name).read_bytes()


@pytest.fixture(scope="session")
def tosa_opt(tosa_tools) -> Callable[..., str]:
    """Runs tosa-opt on text; returns what it prints."""
    tosa_tools("bin/tosa-opt")  # skips where it is not
    program = bytecode.program()

    def run(text: str, *options: str) -> str:
        command = [str(program), "-", *options]
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout

    return run
