"""A few attacks, of which `run.py` runs many; and the fuzzer notices faults."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fuzz import attacks, run, worker
from tosajax import FormatError


@pytest.mark.slow
def test_nothing_is_found(capsys):
    status = run.main(["--count", "40", "--seconds", "300", "--seed", "16"])
    assert status == 0, capsys.readouterr().out


def _raise(error: BaseException) -> None:
    raise error


def _compute() -> None:
    while True:
        pass


@pytest.mark.parametrize(
    ("reader", "expected"),
    [
        (lambda: None, "read"),
        (lambda: _raise(FormatError("x.json: no graph")), "refused"),
        (lambda: _raise(FormatError("")), "finding"),
        (lambda: _raise(KeyError("regions")), "finding"),
        (lambda: _raise(RecursionError()), "finding"),
        (lambda: np.ones(1 << 30), "finding"),
        (lambda: np.ones(1 << 27).sum(), "finding"),
        (_compute, "finding"),
    ],
    ids=["read", "refused", "silent", "key", "recursion", "addresses", "memory", "time"],
)
def test_outcomes(reader: Any, expected: str, monkeypatch):
    monkeypatch.setattr(attacks, "run_json", lambda _: reader())
    monkeypatch.setitem(worker.KINDS, "json", 0.5)
    result = worker.attack("json", 0, 0)
    assert result.outcome == expected, result.why
    assert (result.files is not None) == (expected == "finding")


def test_a_process_that_dies_is_a_finding():
    own = worker.Worker()
    try:
        result = own.attack("no such kind", 0, 0)
    finally:
        own.close()
    assert (result.outcome, result.why) == ("finding", "the process died: exit code 1")


def test_cases_are_the_same_again():
    for kind in worker.KINDS:
        make = getattr(attacks, f"make_{kind}")
        first, second = (make(attacks.Random(f"{kind}/3")) for _ in range(2))
        assert first == second
