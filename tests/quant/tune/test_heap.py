"""Freed memory is given back."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from typing import Any

import pytest

from tosajax.quant.tune import heap

# Blocks that are too small for a mapping of their own; the last one keeps the others in the heap.
_RUN = """
import os, threading
from pathlib import Path
from tosajax.quant.tune.heap import trim

def resident_mib():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20

kept = []

def work():
    blocks = [bytearray(b"1" * 100_000) for _ in range(2000)]
    kept.append(blocks.pop())

thread = threading.Thread(target=work)
thread.start()
thread.join()
before = resident_mib()
trim()
print(before - resident_mib())
"""


@pytest.mark.skipif(
    sys.platform != "linux" or not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="needs glibc"
)
def test_freed_memory_is_given_back():
    done = subprocess.run(
        [sys.executable, "-c", _RUN],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    )
    assert int(done.stdout) > 100  # of 190 MiB


@pytest.mark.parametrize("platform", ["darwin", "win32"])
def test_other_systems_are_left_alone(platform, monkeypatch):
    def refuse(*_: Any) -> None:
        raise AssertionError("no library is opened")

    monkeypatch.setattr(heap.sys, "platform", platform)
    monkeypatch.setattr(heap.ctypes, "CDLL", refuse)
    heap.trim()


def test_a_library_without_it(monkeypatch):
    monkeypatch.setattr(heap.sys, "platform", "linux")
    monkeypatch.setattr(heap.ctypes, "CDLL", lambda _: object())
    heap.trim()
