"""One more setting of a sweep: other multipliers in the same graph."""

from __future__ import annotations

import time

import jax
import numpy as np

import tosajax
from benchmarks import works
from benchmarks.layers import Network
from benchmarks.results import OtherSetting

_BATCH = 16
_EVENT = "/jax/core/compile/backend_compile_duration"


def measure(network: Network) -> OtherSetting:
    """Compilations and seconds of the first call with a setting, and of one with another."""
    work = works.network_work(network, "sweep", _BATCH)
    fn, params = tosajax.lower(work.whole_graph)
    compiled, image = jax.jit(fn), jax.device_put(work.inputs[0])
    others = {name: _other(values) for name, values in params.items()}
    compilations: list[str] = []

    def count(event: str, duration_secs: float, **kwargs: str | int) -> None:
        if event == _EVENT:
            compilations.append(event)

    jax.monitoring.register_event_duration_secs_listener(count)
    first, expected = _timed(compiled, params, image)
    at_first = len(compilations)
    more, found = _timed(compiled, others, image)
    return {
        "compilations_first": at_first,
        "compilations_more": len(compilations) - at_first,
        "seconds_first": first,
        "seconds_more": more,
        "changed": bool((found != expected).any()),
    }


def _other(values: jax.Array) -> jax.Array:
    """Multipliers of RESCALE a quarter smaller; other constants unchanged."""
    known = np.asarray(values)
    if known.dtype != np.int32 or known.min() < 1 << 30:
        return values
    return jax.device_put(np.maximum(known // 4 * 3, 1 << 29))


def _timed(compiled, params, image) -> tuple[float, np.ndarray]:
    started = time.perf_counter()
    (scores,) = jax.block_until_ready(compiled(params, image))
    return time.perf_counter() - started, np.asarray(scores)
