"""Settings farmed out through Ray: each worker compiles once, and a worker that dies is replaced.

`pip install 'tosajax[ray]'`. Ray keeps the queue, the workers and their restarts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_RETRIES = 8  # of a part whose worker died


def connect(address: str | None) -> Any:
    """The ray module, connected to a cluster, or to one on this machine that it starts.

    Args:
      address: as `ray.init` takes it; None for this machine. A connection that there is already
        is used as it is.

    Raises:
      ImportError: Ray is not installed.
    """
    try:
        import ray  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise ImportError("Ray is not installed: pip install 'tosajax[ray]'") from error
    if not ray.is_initialized():
        ray.init(address, include_dashboard=False, log_to_driver=False)
    return ray


def evaluated(
    ray: Any,
    sweep: Any,
    groups: Sequence[tuple[Sequence[Any], Mapping[str, str], int]],
    workers: int | None,
) -> Iterator[list[dict[str, Any]]]:
    """The rows of settings, part by part, as they are finished.

    Args:
      ray: from `connect`.
      sweep: with a method `chunk_rows(part, fixed, chunk)`; workers get a copy.
      groups: settings that share a program, the arrays that they share, and how many of them go
        into it at a time.
      workers: how many; by default, one for each CPU of the cluster.
    """
    from ray.util import ActorPool  # pyright: ignore[reportMissingImports]

    count = workers or max(1, int(ray.cluster_resources().get("CPU", 1)))
    parts = [part for group in groups for part in _parts(*group, count)]
    worker = ray.remote(num_cpus=1, max_restarts=-1, max_task_retries=_RETRIES)(_Worker)
    shared = ray.put(sweep)
    pool = ActorPool([worker.remote(shared) for _ in range(min(count, len(parts)))])
    yield from pool.map_unordered(lambda actor, part: actor.rows.remote(*part), parts)


class _Worker:
    """Keeps the programs from one part to the next."""

    def __init__(self, sweep: Any):
        self._sweep = sweep

    def rows(self, part: Sequence[Any], fixed: Mapping[str, str], chunk: int) -> list[Any]:
        return self._sweep.chunk_rows(part, fixed, chunk)


def _parts(
    group: Sequence[Any], fixed: Mapping[str, str], most: int, workers: int
) -> list[tuple[Sequence[Any], Mapping[str, str], int]]:
    """Small enough that workers end at about the same time."""
    size = max(1, min(most, len(group) // (4 * workers)))
    return [(group[i : i + size], fixed, most) for i in range(0, len(group), size)]
