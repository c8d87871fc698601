"""Which variants run every time, and which with the slow tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

# Partly covered by the others: another observer's scale, other ends of the range.
_SLOW = ("i8-symmetric", "i8-of-4-bits", "mixed")


@pytest.hookimpl(tryfirst=True)  # before marks choose
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    folder = f"{Path(__file__).parent}{os.sep}"
    for item in items:
        if str(item.path).startswith(folder) and any(v in item.name for v in _SLOW):
            item.add_marker(pytest.mark.slow)
