"""The operators in Arm's tosa-tools, independent of the specification's text."""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tosajax import spec


@pytest.fixture(scope="session")
def arm_file() -> Callable[[str], Path]:
    """Finds a file of tosa-tools by the end of its path."""
    files = importlib.metadata.files("tosa-tools") or []

    def find(name: str) -> Path:
        (found,) = [f for f in files if f.as_posix().endswith(name)]
        return Path(str(found.locate()))

    return find


@pytest.fixture(scope="session")
def generator() -> dict[str, Any]:
    """The statements of the generator of conformance tests; see `dump_generator.py`.

    A process of its own, since tosa-tools installs top-level packages with names as common as
    `generator` and `tests`, and sets up logging when imported.
    """
    script = Path(__file__).with_name("dump_generator.py")
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="session")
def conformance(arm_file) -> dict[str, Any]:
    """The configuration of the conformance suite, by operator in upper case."""
    operators = json.loads(arm_file("conformance/cts-config_v1.0.json").read_text())
    return {name.upper(): entry for name, entry in operators.items() if not name.startswith("$")}


@pytest.fixture(scope="session")
def with_profile() -> Callable[[frozenset[str]], list[frozenset[str]]]:
    """Completes a need by the profile it names or, one for each, those its extensions allow."""

    def complete(need: frozenset[str]) -> list[frozenset[str]]:
        if not need.isdisjoint(spec.PROFILES):
            return [need]
        allowed = [p for p in spec.PROFILES if all(p in spec.EXTENSIONS[name] for name in need)]
        return [need | {profile} for profile in allowed]

    return complete
