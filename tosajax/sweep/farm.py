"""Distributes settings to Ray workers: a machine compiles once, and dead workers restart.

`pip install 'tosajax[ray]'`. Ray starts and restarts workers. A worker fetches the runner with its
first part, and again after a restart, so nothing it is made of can be lost. A runner that is lost
with the machine that held it is stored again.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import tempfile
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax

try:
    import fcntl
except ImportError:  # Windows: workers compile side by side
    fcntl = None

_RETRIES = 8  # retries of a part whose worker died, and of a lost runner

Part = tuple[Sequence[Any], Mapping[str, str], int]  # settings, digests of fixed arrays, the chunk


def connect(address: str | None) -> Any:
    """Connects Ray to a cluster, or starts one on this machine; returns the ray module.

    Args:
      address: the address, as for `ray.init`; None for this machine. An open connection is used.

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
    runner: Any,
    groups: Sequence[Part],
    workers: int | None,
    say: Callable[[str], None],
) -> Iterator[list[dict[str, Any]]]:
    """Yields the rows of settings, part by part, as workers finish them.

    Args:
      ray: the module, from `connect`.
      runner: a `Runner`; workers get a copy.
      groups: for each group, settings that share a program, the digests of arrays that they share,
        and the number of settings that run at a time.
      workers: the number of workers; by default, one for each CPU of the cluster.
      say: shows a short text about progress.

    Raises:
      RuntimeError: the runner was lost repeatedly.
    """
    count = workers or max(1, int(ray.cluster_resources().get("CPU", 1)))
    waiting = deque(part for group in groups for part in _parts(*group, count))
    actor = ray.remote(num_cpus=1, max_restarts=-1, max_task_retries=_RETRIES)(_Worker)
    # A worker is created from text: objects in Ray's store may be lost, and the worker with them.
    folder = f"tosajax-{uuid.uuid4().hex}"
    idle = [actor.remote(folder) for _ in range(min(count, len(waiting)))]
    crew = f"{len(idle)} worker{'' if len(idle) == 1 else 's'}"
    say(f"{crew}, starting and compiling")
    held, lost, busy = ray.put(runner), 0, {}
    while waiting or busy:
        while idle and waiting:
            worker, part = idle.pop(), waiting.popleft()
            # In a list, Ray does not fetch it.
            busy[worker.rows.remote([held], *part)] = worker, part
        (done,), _ = ray.wait(list(busy), num_returns=1)
        worker, part = busy.pop(done)
        idle.append(worker)
        if (rows := ray.get(done)) is not None:
            say(crew)
            yield rows
            continue
        lost += 1
        if lost > _RETRIES * len(idle + list(busy)):
            raise RuntimeError(f"Ray lost the sweep {lost} times: is its object store too small?")
        held = ray.put(runner)
        waiting.appendleft(part)


class _Worker:
    """A worker, which keeps the runner and its programs from one part to the next.

    Args:
      folder: the name of a folder, in which workers of one machine share compiled programs.
    """

    def __init__(self, folder: str):
        self._folder = os.path.join(tempfile.gettempdir(), folder)
        self._runner: Any = None

    def rows(
        self, held: Sequence[Any], part: Sequence[Any], fixed: Mapping[str, str], chunk: int
    ) -> list[Any] | None:
        """The rows of a part; None if the runner is lost."""
        if self._runner is None:
            self._share_programs()
            self._runner = _get_or_none(*held)
            if self._runner is None:
                return None
            self._runner.compiling = self._compile_lock
        return self._runner.rows(part, fixed, chunk)

    def _share_programs(self) -> None:
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        atexit.register(shutil.rmtree, self._folder, ignore_errors=True)
        # This process is the worker's own, but a cache that the user has set is kept.
        if not jax.config.values["jax_compilation_cache_dir"]:
            jax.config.update("jax_compilation_cache_dir", self._folder)
            jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)

    @contextlib.contextmanager
    def _compile_lock(self) -> Iterator[None]:
        """Lets one worker of a machine compile at a time; the rest load its programs afterwards."""
        with open(os.path.join(self._folder, "lock"), "ab") as file:
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _get_or_none(held: Any) -> Any:
    import ray  # pyright: ignore[reportMissingImports]

    try:
        return ray.get(held)
    except ray.exceptions.ObjectLostError:
        return None


def _parts(group: Sequence[Any], fixed: Mapping[str, str], most: int, workers: int) -> list[Part]:
    """Splits a group into parts, small enough for workers to finish at about the same time."""
    size = max(1, min(most, len(group) // (4 * workers)))
    return [(group[i : i + size], fixed, most) for i in range(0, len(group), size)]
