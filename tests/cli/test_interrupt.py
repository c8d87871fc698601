"""Ctrl-C: one line, status 130, no crash; rows of a sweep are kept."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

SCRIPT = Path(__file__).with_name("interrupted.py")

pytestmark = pytest.mark.skipif(os.name != "posix", reason="sends signals")


@pytest.fixture
def interrupted(data, tmp_path):
    """Runs a command on a network, interrupted at a moment: status, stderr."""
    model = str(data / "et_digits_cnn_a8w8" / "model.tosa")

    def run(moment: str, command: str, *options: str) -> tuple[int, str]:
        arguments = [sys.executable, str(SCRIPT), moment, command, model, *options]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TOSAJAX_NATIVE": "0"}
        done = subprocess.run(
            arguments, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.stdout == ""
        return done.returncode, done.stderr

    return run


@pytest.fixture
def swept(data, tmp_path, interrupted):
    """Runs a sweep of seven settings: status, stderr, rows in the store."""
    labels = np.load(data / "digits_test" / "labels.npy")
    np.save(tmp_path / "x.npy", np.load(data / "digits_test" / "inputs_0.npy")[:20])
    np.save(tmp_path / "y.npy", labels[:20])

    def run(moment: str, *options: str) -> tuple[int, str, list[dict]]:
        given = ["--data", "x.npy", "--labels", "y.npy", "--weight-bits", *"2345678", *options]
        status, err = interrupted(moment, "sweep", *given, "--store", "run.jsonl")
        rows = [json.loads(line) for line in (tmp_path / "run.jsonl").read_text().splitlines()]
        return status, err, rows

    return run


def test_while_xla_compiles_a_sweep(swept):
    status, err, rows = swept("compiling")
    assert (status, len(rows)) == (130, 0)
    assert err == "tosajax: error: interrupted (0 of 7 rows are in run.jsonl: run again to go on)\n"


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("run", ["-o", "y.npy"]),
        ("dump", ["-o", "all.npz"]),
        ("compare", ["--against", "ref"]),
    ],
)
def test_while_xla_compiles(interrupted, data, command, options):
    images = str(data / "digits_test" / "inputs_0.npy")
    status, err = interrupted("compiling", command, "--input", images, *options)
    assert (status, err) == (130, "tosajax: error: interrupted\n")


@pytest.mark.parametrize("moment", ["storing", "stored", "twice"])
def test_between_rows(swept, moment):
    status, err, rows = swept(moment)
    assert status == 130
    assert 1 <= len(rows) < 7
    kept = (
        f"tosajax: error: interrupted ({len(rows)} of 7 rows are in run.jsonl: run again to go on)"
    )
    assert err == ("" if moment == "twice" else f"{kept}\n")


def test_within_a_callback_that_drops_exceptions(swept):
    status, err, rows = swept("collecting")
    assert status == 130
    assert 1 <= len(rows) <= 7
    kept = f"{len(rows)} of 7 rows are in run.jsonl: run again to go on"
    assert err == f"tosajax: error: interrupted ({kept})\n"


def test_what_was_printed_before_is_not_lost():
    script = "from tosajax import cli; cli.main = lambda: print('a row') or 130; cli.process()"
    path = os.pathsep.join(sys.path)
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": ""}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, b"a row\n", b"")
