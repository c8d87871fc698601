"""Arm's libraries as a fixture, in a process of their own."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

_WORKER = Path(__file__).parent / "arm_worker.py"


class Arm:
    """Calls functions of the worker; what they raise is raised here."""

    def __init__(self) -> None:
        pipe = subprocess.PIPE
        self._process = subprocess.Popen([sys.executable, str(_WORKER)], stdin=pipe, stdout=pipe)

    def __call__(self, function: str, *arguments: object) -> Any:
        requests, answers = self._process.stdin, self._process.stdout
        assert requests is not None
        assert answers is not None
        pickle.dump((function, arguments), requests)
        requests.flush()
        answer = pickle.load(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self) -> None:
        self._process.communicate()


@pytest.fixture(scope="session")
def arm() -> Iterator[Arm]:
    worker = Arm()
    yield worker
    worker.close()
