"""Applies a function to tasks in processes: a crash or a hang ends only its own."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import multiprocessing
import os
import queue
import resource
import tempfile
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Generic, TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")

# A process that has used more is replaced: XLA keeps all that it has compiled.
_MEMORY_LIMIT_KIB = 3 << 20


@dataclasses.dataclass(frozen=True)
class Lost:
    """The result of a task whose process died, or was killed at the time limit."""

    reason: str  # "crash" or "timeout"
    message: str


def apply(
    function: Callable[[Task], Result],
    tasks: Sequence[Task],
    *,
    jobs: int,
    limit: float | None = None,
) -> Iterator[tuple[Task, Result | Lost]]:
    """Applies a function to tasks in the given order; gives results as they come.

    Args:
      function: of a module, or a partial of one; it is pickled, as tasks and results are.
      tasks: each is given to one process.
      jobs: number of processes; each does many tasks.
      limit: seconds for a task; None for no limit.
    """
    idle: queue.SimpleQueue[_Worker[Task, Result] | None] = queue.SimpleQueue()
    for _ in range(jobs):
        idle.put(None)

    def run(task: Task) -> Result | Lost:
        worker = idle.get()
        try:
            worker = worker or _Worker(function)
            return worker.run(task, limit)
        finally:
            idle.put(worker if worker and worker.is_usable else None)

    with concurrent.futures.ThreadPoolExecutor(jobs) as threads:
        running = {threads.submit(run, task): task for task in tasks}
        try:
            for future in concurrent.futures.as_completed(running):
                yield running[future], future.result()
        finally:
            threads.shutdown(cancel_futures=True)
            for _ in range(jobs):
                if worker := idle.get():
                    worker.stop()


class _Worker(Generic[Task, Result]):
    """A process that does one task after the other; it ends when this one does."""

    def __init__(self, function: Callable[[Task], Result]) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, there = context.Pipe()
        self._log = tempfile.NamedTemporaryFile(suffix=".log")  # noqa: SIM115
        self._process = context.Process(
            target=_serve, args=(there, function, self._log.name), daemon=True
        )
        self._process.start()
        there.close()
        try:
            self._connection.recv()  # it is ready
        except EOFError:
            raise RuntimeError("a process ended while it started; see above") from None
        self.is_usable = True

    def run(self, task: Task, limit: float | None) -> Result | Lost:
        try:
            self._connection.send(task)
            if not self._connection.poll(limit):
                self.stop()
                return Lost("timeout", f"more than {limit:g} s")
            result, memory = self._connection.recv()
        except (EOFError, OSError):
            self._process.join()
            words = Path(self._log.name).read_text(errors="replace")[-2000:].strip()
            self.stop()
            return Lost("crash", f"exit status {self._process.exitcode}: {words}")
        if memory > _MEMORY_LIMIT_KIB:
            self.stop()
        return result

    def stop(self) -> None:
        self.is_usable = False
        self._process.kill()
        self._process.join()
        self._connection.close()
        self._log.close()


def _serve(connection: Connection, function: Callable[[Task], Result], log: str) -> None:
    """A worker: sends that it is ready, then answers tasks with results."""
    # Output of libraries: the last words of a process that crashes.
    words = os.open(log, os.O_WRONLY | os.O_APPEND)
    os.dup2(words, 1)
    os.dup2(words, 2)
    connection.send(None)
    while True:
        try:
            task = connection.recv()
        except EOFError:  # the main process has ended
            return
        os.ftruncate(words, 0)
        result = function(task)
        connection.send((result, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss))
