"""Importing tosajax changes nothing in JAX, is quick, and pulls in only what it needs."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

LIMIT = 0.3  # seconds of processor time beyond importing JAX, whatever else the machine does
RUNS = 3
# What importing the dependencies brings along is theirs.
SCRIPT = """
import json, sys, time
import jax

config = {name: repr(value) for name, value in jax.config.values.items()}
start = time.process_time()
import tosajax

seconds = time.process_time() - start
after = {name: repr(value) for name, value in jax.config.values.items()}
loaded = {name.split(".")[0] for name in sys.modules}
changed = sorted(name for name in {**config, **after} if config.get(name) != after.get(name))
print(json.dumps({"seconds": seconds, "changed": changed, "loaded": sorted(loaded)}))
"""
DEPENDENCIES = "import sys, jax, jaxlib, ml_dtypes, numpy, flatbuffers; print(*sys.modules)"


def _run(script: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True
    )
    return done.stdout


@pytest.fixture(scope="module")
def runs() -> list[dict[str, Any]]:
    return [json.loads(_run(SCRIPT)) for _ in range(RUNS)]


def test_configuration_of_jax_is_left_alone(runs):
    assert runs[0]["changed"] == []


def test_quick(runs):
    assert min(run["seconds"] for run in runs) < LIMIT


def test_nothing_but_dependencies_is_loaded(runs):
    theirs = {name.split(".")[0] for name in _run(DEPENDENCIES).split()}
    added = set(runs[0]["loaded"]) - theirs - sys.stdlib_module_names
    assert added == {"tosajax"}
