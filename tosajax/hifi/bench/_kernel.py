"""Jobs of kernels: steps, each a function of the library, that run for each frame by itself."""

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

# Precisions of options, as names of functions have them.
NAMES = {8: "8", 16: "16", 32: "32", 64: "64", -1: "f32", -3: "asym8u", -4: "asym8s", -5: "sym8s"}
_CODES: dict[type, int] = {np.int8: 8, np.int16: 16, np.int32: 32, np.int64: 64, np.float32: -1}
# Of random biases of quantized functions; larger ones would hide the products.
_BIAS_LIMIT = 2**15
# Memory that a function does not read or write.
_ANYWHERE = np.zeros(1, np.int64)
# Computes a result from arrays by name.
Compute = Callable[[Frame], np.ndarray]


class Step(NamedTuple):
    """A function of the library, or two of them.

    Args:
      name: of the function.
      inputs: the arrays that it reads.
      out: its result.
      run: computes the result from the inputs by name.
      room: elements of memory with gaps.
    """

    name: str
    inputs: Sequence[Array]
    out: Array
    run: Compute
    room: int = 0

    @property
    def bias_precision(self) -> int:
        """The precision of its bias, as a value of options."""
        return next(_CODES[array.dtype] for array in self.inputs if array.name == "bias")


def library_step(
    name: str,
    arguments: Mapping[str, Any],
    *,
    null: Collection[str] = (),
    **renamed: str,
) -> Step:
    """The step of a C function; its arrays are those that `tosajax.hifi.capi` plans.

    Args:
      name: of the function.
      arguments: numbers by the names of arguments, and others, which are left out.
      null: the pointers that are NULL.
      renamed: the options that have other names than the arguments, by the latter.

    Raises:
      BenchError: numbers that the library rejects.
    """
    given = {
        key: None if key in null else arguments.get(key, _ANYWHERE)
        for key in inspect.signature(capi.strict(name)).parameters
    }
    with refusals(name, **renamed):
        plan = capi.plan(name, **given)
    scales = [x for x in jax.tree.leaves(dict(plan.numbers)) if isinstance(x, Operand)]
    (out,) = plan.out

    def scale_of(x: Any) -> Any:
        return arguments[x.argument.removeprefix("p_")] if isinstance(x, Operand) else x

    def run(arrays: Frame) -> np.ndarray:
        result = _in_memory(out)
        memory = [_in_memory(x, arrays[key]) for key, x in plan.arrays.items()]
        memory += [result, *(_in_memory(x, scale_of(x)) for x in scales)]
        with refusals(name, **renamed):
            capi.strict(name)(**{**given, **{x.argument: x.memory for x in memory}})
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
    """A step after another, whose result is its input `carried`; its other inputs get a 2."""
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
    """The job of a step.

    Args:
      options: those of `file_options`, frames and write_file among them.
      step: what runs for each frame.
      terms: as in `Job`.
      room: elements of arrays besides those of the step.
      files: one of all inputs, or one of each.
    """
    _check_write_file(options, [*files, "out"])

    def over_frames(compute: Compute) -> Callable[[Inputs], Outputs]:
        return lambda inputs: [[compute(frame) for frame in _merged(inputs)]]

    frames, given = options.frames, vars(options)
    parts = [[array] for array in step.inputs] if len(files) > 1 else [step.inputs]
    return Job(
        step.name,
        [
            File(found, frames, given[f"read_{x}_file_name"], given[f"write_{x}_file_name"])
            for x, found in zip(files, parts, strict=True)
        ],
        [File([step.out], frames, options.read_ref_file_name, options.write_out_file_name)],
        over_frames(step.run),
        terms,
        room + step.room,
    )


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


def check_name(name: str, hint: str) -> None:
    """Refuses a combination of precisions that no function has."""
    check(name in kernels.NAMES, f"there is no {name}, which is by {hint}")


def check_precision(options: SimpleNamespace, name: str, *wanted: int) -> None:
    """Refuses a precision that no function has together with the others."""
    found = getattr(options, name)
    check(found in wanted, f"-{name} is {found}, expected {' or '.join(map(str, wanted))}")


def _size(x: Operand) -> int:
    """The elements of memory that an operand reaches over."""
    if x.strides is None:
        return math.prod(x.shape)
    reach = sum((length - 1) * stride for length, stride in zip(x.shape, x.strides, strict=True))
    return max(reach + 1, x.count)


def _in_memory(x: Operand, values: Any = 0) -> Operand:
    """An operand in memory of its own."""
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
