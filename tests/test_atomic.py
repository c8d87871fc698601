"""Whole files: a failure leaves nothing behind, whoever else writes the same path."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tosajax import atomic
from tosajax.atomic import replacing

# Scripts of processes that import only the module.
_BEGINNING = f"""
import importlib.util, os, signal, sys
spec = importlib.util.spec_from_file_location("atomic", {atomic.__file__!r})
atomic = importlib.util.module_from_spec(spec)
spec.loader.exec_module(atomic)
path, letter = sys.argv[1:]
"""
_WRITES = """
for _ in range(20):
    with atomic.replacing(path) as file:
        for _ in range(4):
            file.write(letter.encode() * 10_000)
"""
_IS_KILLED = """
with atomic.replacing(path) as file:
    file.write(b"half")
    file.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""
needs_locks = pytest.mark.skipif(atomic.fcntl is None, reason="Windows has no such locks")


def start(script: str, path: Path, letter: str) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, "-c", _BEGINNING + script, str(path), letter])


def test_text_and_bytes(tmp_path):
    for mode, content in (("w", "ü\n"), ("wb", b"\xff")):
        with replacing(tmp_path / "a", mode) as file:
            file.write(content)
        assert [p.name for p in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_bytes() == b"\xff"


def test_a_name_as_long_as_the_system_allows(tmp_path):
    path = tmp_path / ("n" * 255)
    with replacing(path) as file:
        file.write(b"1")
    assert path.read_bytes() == b"1"


def test_processes_that_write_the_same_path(tmp_path):
    path = tmp_path / "a"
    processes = [start(_WRITES, path, letter) for letter in "xy"]
    seen = set()
    while any(p.poll() is None for p in processes):
        if path.exists():
            seen.add(path.read_bytes())
    assert [p.returncode for p in processes] == [0, 0]
    seen.add(path.read_bytes())
    assert seen <= {b"x" * 40_000, b"y" * 40_000}
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


def test_threads_that_write_the_same_path(tmp_path):
    path = tmp_path / "a"
    together = threading.Barrier(4)

    def write(letter: str) -> None:
        with replacing(path, "w") as file:
            together.wait(timeout=60)
            file.write(letter * 40_000)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, "abcd"))
    assert path.read_text() in {letter * 40_000 for letter in "abcd"}
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


@needs_locks
def test_the_draft_of_a_killed_process_is_removed(tmp_path):
    """Drafts in use and files of other names stay."""
    path, other = tmp_path / "a", tmp_path / ".tosajax-notes"
    other.write_text("mine")
    path.write_text("old")
    assert start(_IS_KILLED, path, "x").wait(timeout=60) == -9
    assert path.read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 3
    with replacing(tmp_path / "b") as file:
        file.write(b"1")
        drafts = set(tmp_path.iterdir()) - {path, other}
        assert len(drafts) == 1
        with replacing(path) as inner:
            inner.write(b"2")
        assert drafts <= set(tmp_path.iterdir())
    assert sorted(p.name for p in tmp_path.iterdir()) == [".tosajax-notes", "a", "b"]


@needs_locks
def test_a_draft_that_is_taken_away_before_it_is_locked(tmp_path, monkeypatch):
    lock, taken = atomic._lock, []

    def take_first(file, *, wait):
        if not taken:
            taken.append(Path(file.name))
            taken[0].unlink()
        return lock(file, wait=wait)

    monkeypatch.setattr(atomic, "_lock", take_first)
    with replacing(tmp_path / "a") as file:
        file.write(b"1")
    assert taken
    assert (tmp_path / "a").read_bytes() == b"1"


def test_errors_name_the_path(tmp_path, monkeypatch):
    with pytest.raises(FileNotFoundError, match="there is no folder for"):  # noqa: SIM117
        with replacing(tmp_path / "none" / "a"):
            pass
    with pytest.raises(IsADirectoryError) as caught, replacing(tmp_path):
        pass
    assert caught.value.filename == str(tmp_path)

    def fail(draft, target):
        raise PermissionError(1, "Operation not permitted", str(draft), None, str(target))

    for name in ("replace", "fsync"):
        monkeypatch.setattr(atomic.os, name, fail if name == "replace" else _full)
        with pytest.raises(OSError) as caught, replacing(tmp_path / "a") as file:
            file.write(b"1")
        assert ".tosajax" not in str(caught.value)
        assert not list(tmp_path.iterdir())
    monkeypatch.setattr(atomic, "open", _denied, raising=False)
    with pytest.raises(PermissionError) as caught, replacing(tmp_path / "a"):
        pass
    assert caught.value.filename == str(tmp_path / "a")


def _full(file: int) -> None:
    raise OSError(28, "No space left on device")


def _denied(path: Path, *_, **__) -> None:
    raise PermissionError(13, "Permission denied", str(path))


def test_a_device_stays_one(monkeypatch):
    monkeypatch.setattr(atomic.os, "replace", lambda *_: pytest.fail("the device was replaced"))
    with replacing("/dev/null") as file:
        file.write(b"1")
    assert Path("/dev/null").is_char_device()
