"""Ray's workers, with a stand-in for Ray: a lost runner is stored again."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tosajax.sweep import farm


class Ray:
    """Runs each task at once; loses stored objects the first `losses` times."""

    def __init__(self, losses: int):
        self.losses, self.puts, self.made = losses, [], []

    def put(self, value: Any) -> int:
        self.puts.append(value)
        return len(self.puts)

    def remote(self, **_: Any) -> Any:
        def make(*arguments: Any) -> Any:
            self.made.append(arguments)
            return SimpleNamespace(rows=SimpleNamespace(remote=self._rows))

        return lambda worker: SimpleNamespace(remote=make)

    def _rows(self, held: list[int], part: Any, fixed: Any, chunk: int) -> Any:
        return (object(), None if held[0] <= self.losses else [{"key": key} for key in part])

    def wait(self, tasks: list[Any], num_returns: int) -> Any:
        return tasks[-1:], tasks[:-1]

    def get(self, task: Any) -> Any:
        return task[1] and list(task[1])


def keys(ray: Ray) -> list[str]:
    said: list[str] = []
    groups = [(list("abcde"), {}, 2), (list("fg"), {}, 1)]
    ray._rows, rows = lambda *a: _Task(rows(*a)), ray._rows  # type: ignore[method-assign]
    found = [
        row["key"] for part in farm.evaluated(ray, "sweep", groups, 2, said.append) for row in part
    ]
    assert said[0] == "2 workers, starting and compiling"
    return sorted(found)


class _Task(tuple):
    __hash__ = object.__hash__


def test_connecting(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that is open is used; workers' prints do not go among the rows."""
    asked: list[Any] = []
    ray = ModuleType("ray")
    ray.__dict__["init"] = lambda address, **options: asked.append((address, options))
    monkeypatch.setitem(sys.modules, "ray", ray)
    for is_open in (True, False):
        ray.__dict__["is_initialized"] = lambda is_open=is_open: is_open
        assert farm.connect("the address") is ray
    assert asked == [("the address", {"include_dashboard": False, "log_to_driver": False})]


@pytest.mark.parametrize("losses", [0, 1, 3])
def test_every_row_once_whatever_is_lost(losses: int) -> None:
    ray = Ray(losses)
    assert keys(ray) == list("abcdefg")
    assert len(ray.puts) > losses
    # A worker is made of text, which cannot be lost.
    assert all(isinstance(a, str) for arguments in ray.made for a in arguments)


def test_a_sweep_that_is_lost_again_and_again() -> None:
    with pytest.raises(RuntimeError, match="Ray lost the sweep"):
        keys(Ray(10**6))
