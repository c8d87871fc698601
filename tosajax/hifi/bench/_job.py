"""Runs a test bench: reads files, computes each frame, writes files, verifies outputs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from tosajax.hifi.bench._files import (
    File,
    Frame,
    check_writable,
    random_frames,
    read_frames,
    write_file,
)
from tosajax.hifi.bench._options import BenchError, Option, check

# The limit of elements in a run, in all arrays of all frames.
MOST_ELEMENTS = 2**26

# The frames of each input file, and the arrays of each output file.
Inputs = Sequence[Sequence[Frame]]
Outputs = Sequence[Sequence[Any]]


@dataclasses.dataclass(frozen=True)
class Job:
    """The work of a test bench.

    Args:
      name: the names of the functions that run.
      inputs: the files of inputs.
      outputs: the files of results, with one array each.
      run: function that computes the outputs from the inputs.
      terms: the number of products in sums of floats, with which their epsilon grows.
      room: elements of additional arrays.
    """

    name: str
    inputs: Sequence[File]
    outputs: Sequence[File]
    run: Callable[[Inputs], Outputs]
    terms: int = 1
    room: int = 0

    @property
    def elements(self) -> int:
        """The number of elements in all arrays."""
        return self.room + sum(file.elements for file in (*self.inputs, *self.outputs))


class Bench(NamedTuple):
    """A test bench.

    Args:
      about: the help: a line for the list, then a description of the files.
      options: the command-line options.
      job: function that makes a Job from the values of options.
    """

    about: str
    options: Sequence[Option]
    job: Callable[[SimpleNamespace], Job]


def run(job: Job, options: SimpleNamespace, sizes: Sequence[str]) -> int:
    """Runs a job, writes its files and verifies its outputs; returns the exit status.

    Args:
      job: the job.
      options: the values of all options.
      sizes: the names of the options that determine array sizes.

    Raises:
      BenchError: an option or a file cannot be used.
    """
    _check_size(job, {name: getattr(options, name) for name in sizes})
    _check_targets(job)
    rng = np.random.default_rng(0)
    inputs = [
        random_frames(rng, file) if file.read is None else read_frames(file.read, file)
        for file in job.inputs
    ]
    references = [
        None
        if file.read is None
        else [x for frame in read_frames(file.read, file) for x in frame.values()]
        for file in job.outputs
    ]
    outputs = job.run(inputs)
    for file, frames in zip(job.inputs, inputs, strict=True):
        if file.write is not None:
            write_file(file.write, (x for frame in frames for x in frame.values()))
    for file, arrays in zip(job.outputs, outputs, strict=True):
        if file.write is not None:
            write_file(file.write, arrays)
    if not options.verify:
        print(f"{job.name}: not verified")
        return 0
    return _verify(job, outputs, references)


def compare(outputs: Sequence[np.ndarray], wanted: Sequence[Any], terms: int = 1) -> str | None:
    """Describes how outputs differ from a reference; None if they do not.

    Args:
      outputs: the output of each frame.
      wanted: the reference, integers or floats of the same shapes, in the range of the output.
      terms: the error of floats may be (terms + 8) * 2**-23 of the largest number in a frame.
    """
    off = [_off(x, y, terms) for x, y in zip(outputs, wanted, strict=True)]
    count = sum(int(np.count_nonzero(x)) for x in off)
    if count == 0:
        return None
    total = sum(x.size for x in outputs)
    frame = next(i for i, x in enumerate(off) if x.any())
    at = int(np.argmax(off[frame]))
    first, instead = (np.asarray(x).reshape(-1)[at] for x in (outputs[frame], wanted[frame]))
    where = f"the first in frame {frame} at {at}: {first} where the reference has {instead}"
    return f"{count} of {total} outputs differ, {where}"


def _off(output: np.ndarray, wanted: Any, terms: int) -> np.ndarray:
    """Bool array, true where elements differ by more than the bound."""
    if output.dtype != np.float32:
        return output != np.asarray(wanted).astype(np.int64)
    with np.errstate(over="ignore"):
        # Numbers beyond the range of float32 become infinite.
        a, b = (np.asarray(x).astype(np.float32).astype(np.float64) for x in (output, wanted))
    finite = np.isfinite(b)
    largest = np.abs(b[finite]).max(initial=2.0**-126)
    with np.errstate(invalid="ignore"):
        near = np.abs(a - b) <= (terms + 8) * 2.0**-23 * largest
    return ~np.where(finite, near, (a == b) | (np.isnan(a) & np.isnan(b)))


def _verify(job: Job, outputs: Outputs, references: Sequence[Sequence[Any] | None]) -> int:
    """Compares outputs with reference files, and prints the results; returns the exit status."""
    status = 0
    for file, frames, reference in zip(job.outputs, outputs, references, strict=True):
        (array,) = file.arrays
        result = "not verified, there is no reference file"
        if reference is not None:
            difference = compare(frames, reference, job.terms)
            result = f"as in {file.read}" if difference is None else f"{difference} ({file.read})"
            status = status if difference is None else 1
        print(f"{job.name}: {file.frames} frames of {array.name}: {result}")
    return status


def _check_size(job: Job, sizes: Mapping[str, int]) -> None:
    if job.elements <= MOST_ELEMENTS:
        return
    name = max(sizes, key=lambda name: sizes[name])
    largest = f"-{name} is {sizes[name]}, which makes {job.elements} elements in all arrays"
    raise BenchError(f"{largest}, expected at most {MOST_ELEMENTS}")


def _check_targets(job: Job) -> None:
    """Raises BenchError if a file cannot be written, or two files have the same path."""
    targets = [file.write for file in (*job.inputs, *job.outputs) if file.write is not None]
    for target in targets:
        check_writable(target)
    paths = [Path(target).resolve() for target in targets]
    for target, at in zip(targets, paths, strict=True):
        check(paths.count(at) == 1, f"{target!r} is the name of two files to be written")
