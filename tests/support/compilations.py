"""Counts the programs that XLA compiles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax


def compiled_of(run: Callable[[], Any]) -> int:
    """How many programs XLA compiles in a call."""
    count = 0

    def counted(event: str, duration_secs: float, **kwargs: Any) -> None:
        nonlocal count
        count += event == "/jax/core/compile/backend_compile_duration"

    jax.monitoring.register_event_duration_secs_listener(counted)
    try:
        run()
    finally:
        jax.monitoring.unregister_event_duration_listener(counted)
    return count
