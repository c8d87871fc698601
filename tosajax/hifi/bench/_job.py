"""What test benches share: files, frames, verification, and the call of a C function."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from tosajax.hifi import capi, kernels, layers
from tosajax.hifi.bench._files import (
    Array,
    Frame,
    check_writable,
    random_frames,
    read_frames,
    write_file,
)
from tosajax.hifi.bench._options import BenchError, Option, check, path
from tosajax.hifi.bench._verify import EXACT, Tolerance, compare
from tosajax.hifi.errors import NNLibConfigError, NNLibParamError

# Element types by their numbers in options, and as names of functions have them.
NAMES = {8: "8", 16: "16", 32: "32", 64: "64", -1: "f32", -3: "asym8u", -4: "asym8s", -5: "sym8s"}
TYPES: dict[int, type] = {
    8: np.int8,
    16: np.int16,
    32: np.int32,
    64: np.int64,
    -1: np.float32,
    -3: np.uint8,
    -4: np.int8,
    -5: np.int8,
}
# The precision of biases, by that of inputs.
BIASES = {8: 8, 16: 16, -1: -1, -3: 32, -4: 32}
# Of random biases of quantized functions, which else would be all of a result.
BIAS_LIMIT = 2**15
# How many elements a test bench takes on, in all arrays of all frames.
MOST_ELEMENTS = 2**26


class Input(NamedTuple):
    """Arrays that a file has once for each frame, or random ones.

    Args:
      arrays: in the order of the file.
      frames: how many.
      read: the file, or None.
      write: the file that they go to, or None.
    """

    arrays: Sequence[Array]
    frames: int
    read: str | None
    write: str | None = None


class Output(NamedTuple):
    """An array that there is once for each frame.

    Args:
      array: its type and shape.
      frames: how many.
      write: the file that they go to, or None.
      reference: the file that has what they ought to be, or None.
    """

    array: Array
    frames: int
    write: str | None = None
    reference: str | None = None


Inputs = Sequence[Sequence[Frame]]
Arrays = Sequence[Any]


@dataclasses.dataclass(frozen=True)
class Job:
    """What a test bench runs.

    Args:
      name: of the functions that run.
      inputs: what they read.
      outputs: what they give.
      run: computes the arrays of each output from the frames of each input.
      expected: computes the same by other means.
      tolerance: how far the outputs may be from `expected`; integers are those of a reference file.
      room: elements of arrays besides.
      text: what to say about the arrays of each output.
    """

    name: str
    inputs: Sequence[Input]
    outputs: Sequence[Output]
    run: Callable[[Inputs], Sequence[Arrays]]
    expected: Callable[[Inputs], Sequence[Arrays]]
    tolerance: Tolerance = EXACT
    room: int = 0
    text: Callable[[Sequence[Arrays]], str] | None = None

    @property
    def elements(self) -> int:
        """How many elements all arrays have."""
        inputs = sum(x.frames * sum(array.size for array in x.arrays) for x in self.inputs)
        return inputs + sum(x.frames * x.array.size for x in self.outputs) + self.room


def file_options(*inputs: str) -> tuple[Option, ...]:
    """The options of a kernel's test bench that name files."""
    return (
        *(
            path(f"read_{x}_file_name", "the file of inputs, instead of random ones")
            for x in inputs
        ),
        path("read_ref_file_name", "the file of outputs to verify against"),
        *(path(f"write_{x}_file_name", "where inputs go") for x in inputs),
        path("write_out_file_name", "where outputs go"),
    )


def kernel_job(
    name: str,
    options: SimpleNamespace,
    files: Mapping[str, Sequence[Array]],
    output: Array,
    run: Callable[[Frame], np.ndarray],
    expected: Callable[[Frame], Any],
    tolerance: Tolerance = EXACT,
    room: int = 0,
) -> Job:
    """The job of a kernel that runs for each frame by itself.

    Args:
      name: of the functions.
      options: those of `file_options`, frames and write_file among them.
      files: the arrays of each file of inputs, by its name in options.
      output: of a frame.
      run: computes it from the arrays of all files.
      expected: computes it by other means.
      tolerance: as in `Job`.
      room: as in `Job`.
    """
    _check_write_file(options, [*files, "out"])
    frames, given = options.frames, vars(options)
    return Job(
        name,
        [
            Input(arrays, frames, given[f"read_{x}_file_name"], given[f"write_{x}_file_name"])
            for x, arrays in files.items()
        ],
        [Output(output, frames, options.write_out_file_name, options.read_ref_file_name)],
        lambda found: [[run(frame) for frame in _merged(found)]],
        lambda found: [[expected(frame) for frame in _merged(found)]],
        tolerance,
        room,
    )


def run(job: Job, options: SimpleNamespace, sizes: Sequence[str]) -> int:
    """Runs a job, writes its files, verifies its outputs; returns the exit status.

    Args:
      job: what to run.
      options: the values of all options.
      sizes: the options by which there is more or less to do.

    Raises:
      BenchError: an option or a file that is of no use.
    """
    _check_size(job, {name: getattr(options, name) for name in sizes})
    _check_targets(job)
    rng = np.random.default_rng(0)
    inputs = [_frames_of(x, rng) for x in job.inputs]
    references = [_reference_of(x) for x in job.outputs]
    outputs = job.run(inputs)
    for source, frames in zip(job.inputs, inputs, strict=True):
        if source.write is not None:
            arrays = [frame[array.name] for frame in frames for array in source.arrays]
            write_file(source.write, arrays)
    for output, arrays in zip(job.outputs, outputs, strict=True):
        if output.write is not None:
            write_file(output.write, arrays)
    if job.text is not None:
        print(job.text(outputs))
    if not getattr(options, "verify", 1):
        print(f"{job.name}: not verified")
        return 0
    return _verify(job, inputs, outputs, references)


def check_name(name: str, hint: str) -> None:
    """Refuses a combination of precisions of which there is no function."""
    check(name in kernels.NAMES, f"there is no {name}, which is by {hint}")


def check_precision(options: SimpleNamespace, name: str, *wanted: int) -> None:
    """Refuses a precision that functions do not have with the others that are given."""
    found = getattr(options, name)
    check(found in wanted, f"-{name} is {found}, expected {' or '.join(map(str, wanted))}")


def call(name: str, values: Mapping[str, Any], **renamed: str) -> None:
    """Calls a C function with those of some values that are its arguments.

    Args:
      name: of the function.
      values: by the names of arguments.
      renamed: the options whose names are not those of the arguments, by the latter.

    Raises:
      BenchError: arguments that the library rejects.
    """
    function = capi.strict(name)
    with refusals(**renamed):
        function(**{key: values[key] for key in inspect.signature(function).parameters})


def ask(name: str, *arguments: Any) -> int:
    """Calls a C function of a layer; returns a number of bytes, or 0.

    Raises:
      BenchError: a call that the library rejects.
    """
    found = getattr(layers, name)(*arguments)
    check(found >= 0, f"{name} returns {found!r}")
    return found


@contextlib.contextmanager
def refusals(**renamed: str) -> Iterator[None]:
    """Makes a BenchError of what the library rejects; `renamed` is as for `call`."""
    try:
        yield
    except (NNLibParamError, NNLibConfigError) as error:
        function, _, message = str(error).partition(": ")
        option = renamed.get(error.argument, error.argument)
        message = message.removeprefix(error.argument)
        raise BenchError(f"-{option}{message} ({function})") from None


def _merged(inputs: Inputs) -> list[Frame]:
    """Frames with the arrays of all files."""
    return [
        {k: x for part in parts for k, x in part.items()} for parts in zip(*inputs, strict=True)
    ]


def _check_write_file(options: SimpleNamespace, files: Sequence[str]) -> None:
    """Refuses files to be written without write_file, and write_file without any."""
    names = [f"write_{file}_file_name" for file in files]
    given = [f"-{name}" for name in names if getattr(options, name) is not None]
    if options.write_file:
        wanted = " or ".join(f"-{name}" for name in names)
        check(bool(given), f"-write_file is 1, expected {wanted} with it")
    else:
        check(not given, f"{' and '.join(given)} is given, expected -write_file 1 with it")


def _check_targets(job: Job) -> None:
    """Refuses files that cannot be written."""
    targets = [x.write for x in (*job.inputs, *job.outputs) if x.write is not None]
    for target in targets:
        check_writable(target)
    paths = [Path(target).resolve() for target in targets]
    for target, at in zip(targets, paths, strict=True):
        check(paths.count(at) == 1, f"{target!r} is the name of two files to be written")


def _check_size(job: Job, sizes: Mapping[str, int]) -> None:
    if job.elements <= MOST_ELEMENTS:
        return
    name = max(sizes, key=lambda name: sizes[name])
    found = f"-{name} is {sizes[name]}, which makes {job.elements} elements in all arrays"
    raise BenchError(f"{found}, expected at most {MOST_ELEMENTS}")


def _frames_of(source: Input, rng: np.random.Generator) -> list[Frame]:
    if source.read is None:
        return random_frames(rng, source.arrays, source.frames)
    return read_frames(source.read, source.arrays, source.frames)


def _reference_of(output: Output) -> list[np.ndarray] | None:
    if output.reference is None:
        return None
    frames = read_frames(output.reference, [output.array], output.frames)
    return [frame[output.array.name] for frame in frames]


def _verify(
    job: Job, inputs: Inputs, outputs: Sequence[Arrays], references: Sequence[Arrays | None]
) -> int:
    """Compares outputs with reference files, and with NumPy where there are none."""
    is_complete = all(reference is not None for reference in references)
    # Floats of a file may be anything.
    with np.errstate(all="ignore"):
        computed = [] if is_complete else job.expected(inputs)
    status = 0
    for i, (output, found, reference) in enumerate(
        zip(job.outputs, outputs, references, strict=True)
    ):
        if reference is None:
            against, wanted, tolerance = "NumPy", computed[i], job.tolerance
        else:
            exact = job.tolerance._replace(units=0)
            against, wanted, tolerance = str(output.reference), reference, exact
        difference = compare(found, wanted, tolerance)
        has_units = tolerance.units and output.array.dtype is not np.float32
        near = f", within {tolerance.units} of its units" if has_units else ""
        result = f"as in {against}{near}" if difference is None else f"{difference} ({against})"
        print(f"{job.name}: {output.frames} frames of {output.array.name}: {result}")
        status = status if difference is None else 1
    return status
