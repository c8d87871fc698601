"""Files of small networks for commands."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import small_networks as small

import tosajax
from tosajax import rewrite
from tosajax.cli import main


@pytest.fixture
def folder(tmp_path) -> Path:
    """Has model.tosa, twice.tosa (rounded twice) and x.npy (6 examples)."""
    graph = small.two_layers()
    tosajax.save(graph, tmp_path / "model.tosa")
    tosajax.save(rewrite.rounding(graph, "double"), tmp_path / "twice.tosa")
    np.save(tmp_path / "x.npy", small.images(6))
    return tmp_path


@pytest.fixture
def command(folder, monkeypatch, capsys) -> Callable[..., tuple[int, str, str]]:
    """Runs `tosajax` in the folder: exit status, stdout, stderr."""
    monkeypatch.chdir(folder)

    def run(*arguments: str) -> tuple[int, str, str]:
        status = main(arguments)
        captured = capsys.readouterr()
        if captured.err:
            assert captured.err.startswith("tosajax: error: ")
            assert captured.err.count("\n") == 1
        return status, captured.out, captured.err

    return run
