"""Rules of "Custom Operators" (TOSA 1.0.1)."""

from __future__ import annotations

from collections.abc import Iterator

from tosajax.checks._common import list_limits
from tosajax.checks.call import Call, Problem
from tosajax.spec import Level


def custom_levels(c: Call, level: Level) -> Iterator[Problem]:
    return list_limits(c, level)
