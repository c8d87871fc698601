"""Makes the jobs of kernels: steps, each a library function, run for each frame separately."""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import numpy as np

from tosajax.hifi import capi, kernels
from tosajax.hifi.bench._files import Array, File, Frame
from tosajax.hifi.bench._job import Inputs, Job, Outputs
from tosajax.hifi.bench._library import refusals
from tosajax.hifi.bench._options import Option, check, path
from tosajax.hifi.capi._plan import Operand

# The precisions in function names, by the values of options.
NAMES = {8: "8", 16: "16", 32: "32", 64: "64", -1: "f32", -3: "asym8u", -4: "asym8s", -5: "sym8s"}
_CODES: dict[type, int] = {np.int8: 8, np.int16: 16, np.int32: 32, np.int64: 64, np.float32: -1}
# The bound of random biases of quantized functions; larger ones would hide the products.
_BIAS_LIMIT = 2**15
# Memory for pointers that a plan does not use.
_ANYWHERE = np.zeros(1, np.int64)
# A function that computes a result from arrays by name.
Compute = Callable[[Frame], np.ndarray]


class Step(NamedTuple):
    """A function of the library, or two functions in sequence.

    Args:
      name: the function's name.
      inputs: the input arrays.
      out: the result.
      run: function that computes the result from the inputs by name.
      room: elements of additional memory, for strided arrays.
    """

    name: str
    inputs: Sequence[Array]
    out: Array
    run: Compute
    room: int = 0

    @property
    def bias_precision(self) -> int:
        """The precision of the bias, as a value of options."""
        return next(_CODES[array.dtype] for array in self.inputs if array.name == "bias")


def library_step(
    name: str,
    arguments: Mapping[str, Any],
    *,
    null: Collection[str] = (),
    **renamed: str,
) -> Step:
    """Makes the step of a C function, with the arrays of the plan from `tosajax.hifi.capi`.

    Args:
      name: the function's name.
      arguments: numbers by argument name; names that are not arguments are ignored.
      null: the pointers that are NULL.
      renamed: the names of options, by argument name, where they differ.

    Raises:
      BenchError: the library rejects an argument.
    """
    values = {
        key: None if key in null else arguments.get(key, _ANYWHERE)
        for key in inspect.signature(capi.strict(name)).parameters
    }
    with refusals(name, **renamed):
        plan = capi.plan(name, **values)
    scales = [x for x in jax.tree.leaves(dict(plan.numbers)) if isinstance(x, Operand)]
    (out,) = plan.out

    def scale_of(x: Any) -> Any:
        return arguments[x.argument.removeprefix("p_")] if isinstance(x, Operand) else x

    def run(arrays: Frame) -> np.ndarray:
        result = _in_memory(out)
        memory = [_in_memory(x, arrays[key]) for key, x in plan.arrays.items()]
        memory += [result, *(_in_memory(x, scale_of(x)) for x in scales)]
        with refusals(name, **renamed):
            capi.strict(name)(**{**values, **{x.argument: x.memory for x in memory}})
        return result.read()

    def array(key: str, x: Operand) -> Array:
        limit = _BIAS_LIMIT if key == "bias" and "quant" in plan.numbers else None
        return Array(key, x.dtype, x.shape, limit)

    return Step(
        name,
        [array(key, x) for key, x in plan.arrays.items()],
        array("out", out),
        run,
        room=sum(_size(x) for x in plan.arrays.values() if x.strides is not None),
    )


def then(first: Step, second: Step, carried: str) -> Step:
    """Chains two steps: the first one's result becomes the second one's input `carried`.

    The names of the second step's other inputs get the suffix 2.
    """
    labels = {x.name: f"{x.name}2" for x in second.inputs if x.name != carried}

    def chain(before: Compute, after: Compute) -> Compute:
        def both(arrays: Frame) -> np.ndarray:
            own = {name: arrays[label] for name, label in labels.items()}
            return after({carried: before(arrays), **own})

        return both

    others = [x._replace(name=labels[x.name]) for x in second.inputs if x.name != carried]
    return Step(
        f"{first.name}, {second.name}",
        [*first.inputs, *others],
        second.out,
        chain(first.run, second.run),
        first.room + second.room + first.out.size,
    )


def kernel_job(
    options: SimpleNamespace,
    step: Step,
    *,
    terms: int = 1,
    room: int = 0,
    files: Sequence[str] = ("inp",),
) -> Job:
    """Makes the job of a step.

    Args:
      options: the values of options, including `file_options`, frames and write_file.
      step: the step that runs for each frame.
      terms: see `Job`.
      room: elements of arrays in addition to the step's.
      files: one file of all inputs, or one for each input.
    """
    _check_write_file(options, [*files, "out"])

    def over_frames(compute: Compute) -> Callable[[Inputs], Outputs]:
        return lambda inputs: [[compute(frame) for frame in _merged(inputs)]]

    frames, values = options.frames, vars(options)
    parts = [[array] for array in step.inputs] if len(files) > 1 else [step.inputs]
    return Job(
        step.name,
        [
            File(arrays, frames, values[f"read_{x}_file_name"], values[f"write_{x}_file_name"])
            for x, arrays in zip(files, parts, strict=True)
        ],
        [File([step.out], frames, options.read_ref_file_name, options.write_out_file_name)],
        over_frames(step.run),
        terms,
        room + step.room,
    )


def file_options(*inputs: str) -> tuple[Option, ...]:
    """The options of a kernel's test bench for file names."""
    return (
        *(
            path(f"read_{x}_file_name", "the file of inputs, instead of random ones")
            for x in inputs
        ),
        path("read_ref_file_name", "the file of outputs to verify against"),
        *(path(f"write_{x}_file_name", "where inputs go") for x in inputs),
        path("write_out_file_name", "where outputs go"),
    )


def check_name(name: str, hint: str) -> None:
    """Raises BenchError if the library does not have a function."""
    check(name in kernels.NAMES, f"there is no {name}, which is by {hint}")


def check_precision(options: SimpleNamespace, name: str, *wanted: int) -> None:
    """Raises BenchError if the option `name` is not one of the precisions `wanted`."""
    precision = getattr(options, name)
    check(precision in wanted, f"-{name} is {precision}, expected {' or '.join(map(str, wanted))}")


def _size(x: Operand) -> int:
    """The number of elements of memory that an operand spans."""
    if x.strides is None:
        return math.prod(x.shape)
    reach = sum((length - 1) * stride for length, stride in zip(x.shape, x.strides, strict=True))
    return max(reach + 1, x.count)


def _in_memory(x: Operand, values: Any = 0) -> Operand:
    """Copies an operand to new memory, and sets its values."""
    if x.by_row:
        row = math.prod(x.shape[1:])
        memory: Any = [np.zeros(row, x.dtype) for _ in range(x.shape[0])]
    else:
        memory = np.zeros(_size(x), x.dtype)
    stored = dataclasses.replace(x, memory=memory)
    views = stored.views()
    parts = np.broadcast_to(values, (len(views), *views[0].shape))
    for view, part in zip(views, parts, strict=True):
        view[...] = part
    return stored


def _merged(inputs: Inputs) -> list[Frame]:
    """Merges the frames of all files: each frame has the arrays of all."""
    return [
        {k: x for part in parts for k, x in part.items()} for parts in zip(*inputs, strict=True)
    ]


def _check_write_file(options: SimpleNamespace, files: Sequence[str]) -> None:
    """Raises BenchError for output files without write_file, or write_file without output files."""
    names = [f"write_{file}_file_name" for file in files]
    options_given = [f"-{name}" for name in names if getattr(options, name) is not None]
    if options.write_file:
        wanted = " or ".join(f"-{name}" for name in names)
        check(bool(options_given), f"-write_file is 1, expected {wanted} with it")
    else:
        check(
            not options_given,
            f"{' and '.join(options_given)} is given, expected -write_file 1 with it",
        )
