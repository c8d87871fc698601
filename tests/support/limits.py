"""Limits of work that are the same on any machine, however busy it is."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

_SECONDS = 60.0  # of processor time, where milliseconds are enough


class BeyondLimit(AssertionError):
    """Code runs on beyond its limit."""


@contextmanager
def most_steps(limit: int) -> Iterator[None]:
    """Ends code that takes more steps than a limit.

    A step is a line of Python, or a turn of a loop in it. They are counted slowly: a million take a
    second.
    """
    steps, before = 0, sys.gettrace()

    def count(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal steps
        steps += event == "line"
        if steps > limit:
            sys.settrace(before)
            raise BeyondLimit(f"more than {limit:,} steps, now in {frame.f_code.co_qualname}")
        return count

    sys.settrace(count)
    try:
        yield
    finally:
        sys.settrace(before)


@contextmanager
def no_hang() -> Iterator[None]:
    """Ends code that does not end by itself, and allows any other to be slow."""

    def end(*_: Any) -> None:
        raise BeyondLimit(f"more than {_SECONDS:.0f} seconds of processor time")

    before = signal.signal(signal.SIGVTALRM, end)
    signal.setitimer(signal.ITIMER_VIRTUAL, _SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
