"""Runs converters of other projects as processes of their own, within limits.

A process that ends by a signal, takes too long or too much memory is an error like any other; its
folder is temporary, so that nothing is left behind.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

_SECONDS = 600  # limit of time that passes
_CPU_SECONDS = 6  # limit of processor time, and for each MiB of the model
_CPU_SECONDS_PER_MIB = 6
_MEMORY = 1 << 30  # limit in bytes, and for each byte of the model
_MEMORY_TIMES = 64
_OUTPUT = 64 << 20
_OUTPUT_TIMES = 16
_KILLED = (-9, 247)  # by SIGKILL, and of a program that ends as one within it does
_LONGEST = 300  # characters of a message
# loc("tensor"("model.tflite":0:0)) or loc("node"): the first name is the model's.
_LOCATION = re.compile(r'loc\((?:fused\[)?"((?:[^"\\]|\\.)*)"')
_PLACE = re.compile(r"loc\([^ ]*\): ")
# What follows repeats the operation in MLIR.
_EXPLAINED = " that was explicitly marked illegal"


class Program(NamedTuple):
    """A program of another project.

    Args:
      name: the name of its file.
      distribution: the package that installs it.
      extra: the extra of tosajax that installs the package.
    """

    name: str
    distribution: str
    extra: str

    @property
    def version(self) -> str:
        """The package and its version.

        Raises:
          ImportError: the package is not installed.
        """
        return version_of(self.distribution, self.extra)

    @property
    def path(self) -> str:
        """The path of its file: beside Python's, else on the path of the environment.

        Raises:
          ImportError: there is none.
        """
        beside = Path(sys.executable).with_name(self.name)
        found = shutil.which(beside) or shutil.which(self.name)
        if found is None:
            raise missing(self.distribution, self.extra)
        return found


class Failure(NamedTuple):
    """The first error of a program.

    Args:
      message: its text.
      place: the name of the tensor or node that the program stopped at; "" if it names none.
    """

    message: str
    place: str = ""


def version_of(distribution: str, extra: str) -> str:
    """The name and the version of a package.

    Raises:
      ImportError: it is not installed; the message has the line that installs it.
    """
    try:
        return f"{distribution} {importlib.metadata.version(distribution)}"
    except importlib.metadata.PackageNotFoundError:
        raise missing(distribution, extra) from None


def missing(distribution: str, extra: str) -> ImportError:
    """The error of a package that is not installed."""
    return ImportError(f"{distribution} is not installed: pip install 'tosajax[{extra}]'")


def run_module(name: str, folder: Path, size: int) -> Failure | None:
    """Runs a module of this package as a program, with this process's paths of packages."""
    paths = os.pathsep.join(map(os.path.abspath, sys.path))
    command = [sys.executable, "-m", name]
    return run(command, folder, size, {**os.environ, "PYTHONPATH": paths})


def run(
    command: Sequence[str],
    folder: Path,
    size: int,
    environment: Mapping[str, str] | None = None,
) -> Failure | None:
    """Runs a program in a folder; None if it succeeds.

    Args:
      command: the program and its arguments.
      folder: the folder that it runs and writes in.
      size: the size of the model in bytes, by which the limits grow.
      environment: the variables of the process; by default those of this one.
    """
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as process:  # fmt: skip
        try:
            limit(process.pid, size, memory=_MEMORY, cpu_seconds=_cpu_seconds(size))
            printed, _ = process.communicate(timeout=_SECONDS)
        except subprocess.TimeoutExpired:
            return Failure(f"it took more than {_SECONDS} seconds")
        finally:
            process.kill()
    return _failure(process.returncode, printed.decode("utf-8", "replace"), size)


def limit(process: int, size: int, *, memory: int, cpu_seconds: int | None = None) -> None:
    """Limits a process that reads a model, on systems that can.

    Args:
      process: its number.
      size: the size of the model in bytes, by which the limits of memory and output grow.
      memory: the limit of its memory in bytes for a small model.
      cpu_seconds: the limit of its processor time.
    """
    # Other systems have no such limits, and the process may have ended, or has lower ones.
    with contextlib.suppress(ImportError, AttributeError, OSError, ValueError):
        import resource

        limits = {
            resource.RLIMIT_AS: memory + _MEMORY_TIMES * size,
            resource.RLIMIT_FSIZE: _OUTPUT + _OUTPUT_TIMES * size,
            resource.RLIMIT_CORE: 0,
        }
        if cpu_seconds is not None:
            limits[resource.RLIMIT_CPU] = cpu_seconds
        for kind, most in limits.items():
            resource.prlimit(process, kind, (most, most))


def _cpu_seconds(size: int) -> int:
    return _CPU_SECONDS + _CPU_SECONDS_PER_MIB * size // 2**20


def _failure(code: int, printed: str, size: int) -> Failure | None:
    """The first error that a program printed, or how it ended."""
    if code == 0:
        return None
    if code in _KILLED:
        return Failure(
            f"it was ended, perhaps at its limit of {_cpu_seconds(size)} seconds of processor time"
        )
    for line in printed.splitlines():
        _, found, message = line.rpartition("error: ")
        if found:
            name = _LOCATION.search(line)
            message = _PLACE.sub("", message.partition(_EXPLAINED)[0])
            return Failure(message[:_LONGEST], name[1] if name else "")
    ended = f"it ended by signal {-code}" if code < 0 else f"it ended with status {code}"
    last = printed.strip().splitlines()[-1:]
    return Failure(f"{ended}: {last[0][:_LONGEST]}" if last and code > 0 else ended)
