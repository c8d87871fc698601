"""A process that tries cases one after another, within bounds of time and memory.

The bounds are for one case: its processor time, and the memory it adds to the process. Address
space has a wider bound, as each thread of XLA takes some. The owner of a process that dies or never
answers reports the finding.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import random as python_random
import resource
import signal
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

# The kinds, with the most seconds of processor time; more if XLA may compile.
_QUICK = ("tosa", "json", "old", "mlir", "spirv", "vgf", "scales", "edit", "store", "model")
KINDS = {**dict.fromkeys(_QUICK, 2), "tjx": 6, "array": 6}
_BYTES = 500 << 20
_ADDRESSES = 4 << 30
_SILENCE = 90.0  # seconds after which a silent worker is ended
_FAREWELL = 10.0  # seconds that a worker has to end
_CASES = 500  # of one process


class Result(NamedTuple):
    """The result of a case: "read", "refused", or "finding", with its place."""

    outcome: str
    why: str = ""
    place: str = ""  # the same for findings that are alike
    files: dict[str, bytes] | None = None


class Worker:
    """Tries cases in a process of its own, and replaces one that dies."""

    def __init__(self) -> None:
        self._left = 0
        self._process: Any = None
        self._pipe: Any = None

    def attack(self, kind: str, seed: int, index: int) -> Result:
        """The result of a case; the death of the process is a finding."""
        if not self._left:
            self.close()
            self._start()
        process, pipe = self._process, self._pipe
        self._left -= 1
        pipe.send((kind, seed, index))
        try:
            if pipe.poll(_SILENCE):
                return Result(*pipe.recv())
            why = f"no end within {_SILENCE:.0f} s"
            process.kill()
        except (EOFError, ConnectionResetError):
            process.join()
            why = f"the process died: exit code {process.exitcode}"
        self.close()
        return Result("finding", why, f"{kind}: {why}")

    def close(self) -> None:
        """Ends the process: without its pipe it ends by itself."""
        if self._process is not None:
            self._pipe.close()
            self._process.join(_FAREWELL)
            self._process.kill()
            self._process.join()
            self._process, self._left = None, 0

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()
        self._left = _CASES


class _TooLong(BaseException):
    """A limit; no reader takes it for one of its own errors."""


def _serve(pipe: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(EOFError, BrokenPipeError):  # the owner closed the pipe
        while True:
            pipe.send(tuple(attack(*pipe.recv())))


def attack(kind: str, seed: int, index: int) -> Result:
    """Makes a case and tries it, in this process."""
    seconds = KINDS[kind]
    # Imported late: the parent imports KINDS from here, and needs no XLA.
    from fuzz import attacks

    make, run = (getattr(attacks, f"{verb}_{kind}") for verb in ("make", "run"))
    files: dict[str, bytes] = {}
    before = _resident("VmRSS")
    with tempfile.TemporaryDirectory() as name, warnings.catch_warnings(action="ignore"):
        folder = Path(name)
        began = time.process_time()
        try:
            files = make(python_random.Random(f"{kind}/{seed}/{index}"))
            for file, content in files.items():
                (folder / file).write_bytes(content)
            began, before = time.process_time(), _resident("VmRSS")
            Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
            with _bounded(seconds):
                run(folder)
            outcome = Result("read")
        except attacks.REFUSALS as error:
            outcome = _refusal(kind, error)
        except (Exception, _TooLong) as error:
            outcome = Result("finding", _why(error), _place(kind, error))
        took = time.process_time() - began
        if outcome.outcome != "finding" and took > seconds:
            outcome = Result("finding", f"took {took:.1f} s of processor time", f"{kind}: time")
        grown = _resident("VmHWM") - before
        if outcome.outcome != "finding" and grown > _BYTES:
            outcome = Result("finding", f"took {grown >> 20} MiB", f"{kind}: memory")
    return outcome._replace(files=files) if outcome.outcome == "finding" else outcome


def _refusal(kind: str, error: Exception) -> Result:
    """An error of ours must have a message in one readable line."""
    text = str(error)
    if not text.strip() or len(text) > 20_000:
        why = f"{type(error).__name__} of {len(text)} characters"
        return Result("finding", why, f"{kind}: message")
    return Result("refused")


@contextlib.contextmanager
def _bounded(seconds: float) -> Iterator[None]:
    def stop(*_: Any) -> None:
        raise _TooLong(f"more than {seconds} s of processor time")

    old = resource.getrlimit(resource.RLIMIT_AS)
    signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    resource.setrlimit(resource.RLIMIT_AS, (_address_space() + _ADDRESSES, old[1]))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        resource.setrlimit(resource.RLIMIT_AS, old)


def _address_space() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _resident(field: str) -> int:
    """Bytes of memory that the process holds (VmRSS), or held at most (VmHWM)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (size,) = (line.split()[1] for line in lines if line.startswith(f"{field}:"))
    return int(size) << 10


def _why(error: BaseException) -> str:
    text = "".join(traceback.format_exception_only(error)).strip()
    return f"{text[:400]}\n" + "".join(traceback.format_tb(error.__traceback__)[-4:])


def _place(kind: str, error: BaseException) -> str:
    """The kind of error and the innermost function of tosajax in its traceback."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [f for f in frames if "/tosajax/" in f.filename and "/tests/" not in f.filename]
    last = ours[-1] if ours else frames[-1]
    return f"{kind}: {type(error).__name__} in {Path(last.filename).name}:{last.name}"
