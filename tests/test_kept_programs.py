"""Compiled programs that runs of the tests share are found again where they would be the same."""

from __future__ import annotations

import os
import time
from pathlib import Path

import kept_programs


def test_unused_programs_are_removed(tmp_path: Path):
    for name, days in (("old", 8), ("new", 6)):
        (tmp_path / name).write_bytes(b"")
        at = time.time() - days * 86400
        os.utime(tmp_path / name, (at, at))
    kept_programs.remove_unused(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["new"]


def test_flags_and_versions_make_other_programs(monkeypatch):
    compilers = {kept_programs._compiler()}
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_max_isa=AVX2")
    compilers.add(kept_programs._compiler())
    monkeypatch.setattr(kept_programs, "version", lambda _: "0.0.1")
    compilers.add(kept_programs._compiler())
    assert len(compilers) == 3
