"""Strict JAX settings for every test, and the path of the oracles."""

from __future__ import annotations

import itertools
import os
import sys
from pathlib import Path

import jax
import pytest

sys.path.insert(0, str(Path(__file__).parent))
# Arm's model starts a debugger at each rejected graph unless told not to.
os.environ["TOSA_MODEL_NO_BACKTRACE"] = "1"
# A 64-bit type named outside the int48 scope is a bug, never a silent int32.
jax.config.update("jax_explicit_x64_dtypes", "error")


# JAX keeps what it compiled for 8,192 calls at hand; of more of them, the newest are not.
_TESTS = 2000
_finished = itertools.count(1)


def pytest_runtest_teardown():
    if next(_finished) % _TESTS == 0:
        jax.clear_caches()


@pytest.fixture(autouse=True)
def _strict_jax():
    with (
        jax.numpy_dtype_promotion("strict"),
        jax.numpy_rank_promotion("raise"),
    ):
        yield


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of committed graphs with their inputs and expected outputs."""
    return Path(__file__).parent / "data"
