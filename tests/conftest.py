"""Strict JAX settings for every test, and the paths of what tests import."""

from __future__ import annotations

import collections
import ctypes
import functools
import gc
import math
import os
import sys
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import pytest
from jax.experimental.compilation_cache import compilation_cache

_TESTS = Path(__file__).parent
sys.path[:0] = [str(_TESTS / "support"), str(_TESTS), str(_TESTS.parent / "tools")]
# Arm's model starts a debugger at each rejected graph unless told not to.
os.environ["TOSA_MODEL_NO_BACKTRACE"] = "1"
# A 64-bit type named outside the int48 scope is a bug, never a silent int32.
jax.config.update("jax_explicit_x64_dtypes", "error")
# Computing keys for JAX's own cache of programs takes time even where it has no folder.
jax.config.update("jax_enable_compilation_cache", False)
# Tracing makes many objects and little garbage; JAX's caches are long to search.
gc.set_threshold(50_000, 20, 20)


def pytest_configure(config: pytest.Config):
    from kept_programs import FOLDER, keep_programs, remove_unused
    from shared_contexts import share_contexts

    if FOLDER not in os.environ:
        temporary = tempfile.TemporaryDirectory(prefix="tosajax-programs-")
        os.environ[FOLDER] = temporary.name
        config.add_cleanup(temporary.cleanup)
    folder = Path(os.environ[FOLDER])
    if not hasattr(config, "workerinput"):  # once a run
        folder.mkdir(parents=True, exist_ok=True)
        remove_unused(folder)
    keep_programs(folder)
    share_contexts()


# Folders in which a part of the variants of a test runs, at most _MOST, and all others with the
# slow tests. Conformance tests run all types and modes of operators in any case, with native
# kernels where there are any, and the matrix of transforms all operators. Tests with the same
# variants begin with different ones.
_THINNED = (
    *("compliance", "fixedpoint", "from_jax", "grad", "hifi", "lowering", "native", "ops"),
    *("passes", "quant", "reference", "reference_model", "rewrite", "runtime", "sweep", "viz"),
)
_THINNING = 4
_OF_OPERATORS = 2  # where each variant is an operator
_MOST = 12


@pytest.hookimpl(tryfirst=True)  # before marks choose
def pytest_collection_modifyitems(items: list[pytest.Item]):
    """Starts with what runs whole programs, so that workers end together; marks variants slow."""
    parts = functools.cache(lambda path: path.relative_to(_TESTS).parts)  # of each file once
    items.sort(key=lambda item: len(parts(item.path)) > 1)
    variants = collections.defaultdict(list)
    for item in items:
        folder, *rest = parts(item.path)
        test, _, variant = item.nodeid.partition("[")
        if rest and folder in _THINNED:
            variants[test, variant.removesuffix("]") in _operators()].append(item)
    for (test, of_operators), several in variants.items():
        count = len(several)
        thinned = min(math.ceil(count / _THINNING), _MOST)
        kept = math.ceil(count / _OF_OPERATORS) if of_operators else thinned
        first = zlib.crc32(test.encode()) % count
        for number, item in enumerate(several[first:] + several[:first]):
            if number * kept // count == (number - 1) * kept // count:  # they are evenly spaced
                item.add_marker(pytest.mark.slow)


@functools.cache
def _operators() -> frozenset[str]:
    from tosajax import spec

    return frozenset(spec.OPERATORS)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Neighbours run in one process, which traces and compiles what they share once."""
    from xdist.scheduler import WorkStealingScheduling

    return WorkStealingScheduling(config, log)


def pytest_collection_finish():
    """Leaves the collected tests out of each garbage collection: half a second."""
    gc.collect()
    gc.freeze()


# JAX keeps each compiled program, some megabytes of a worker.
_PROGRAMS = 250
_compiled: list[float] = []  # seconds of each


def _note(event: str, duration_secs: float, **_: str | int) -> None:
    if event == "/jax/core/compile/backend_compile_duration":
        _compiled.append(duration_secs)


jax.monitoring.register_event_duration_secs_listener(_note)


def pytest_runtest_teardown():
    if len(_compiled) >= _PROGRAMS:
        _compiled.clear()
        jax.clear_caches()
        gc.collect()
        if sys.platform == "linux":
            # Unless asked, the C library keeps freed memory, up to a gigabyte.
            getattr(ctypes.CDLL(None), "malloc_trim", lambda _: None)(0)


@pytest.fixture(autouse=True)
def _strict_jax():
    with (
        jax.numpy_dtype_promotion("strict"),
        jax.numpy_rank_promotion("raise"),
    ):
        yield


@pytest.fixture(scope="module")
def quick() -> Iterator[None]:
    """For modules that `quick_programs` suits."""
    from quick_programs import quick_programs

    with quick_programs():
        yield


@pytest.fixture
def jax_cache() -> Iterator[None]:
    """JAX's own cache of programs is enabled, as users have it."""
    jax.config.update("jax_enable_compilation_cache", True)
    yield
    jax.config.update("jax_enable_compilation_cache", False)
    compilation_cache.reset_cache()  # otherwise JAX goes on with keys


@pytest.fixture
def native_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are the default, on any processor."""
    monkeypatch.setenv("TOSAJAX_NATIVE", "1")


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of committed graphs with their inputs and expected outputs."""
    from paths import DATA

    return DATA
