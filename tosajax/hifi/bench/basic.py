"""The test bench of elementwise functions and dot products (guide 5.7)."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tosajax.hifi import kernels
from tosajax.hifi.bench import _reference
from tosajax.hifi.bench._files import Array, Frame
from tosajax.hifi.bench._job import (
    NAMES,
    TYPES,
    Job,
    call,
    check_name,
    check_precision,
    file_options,
    kernel_job,
    refusals,
)
from tosajax.hifi.bench._options import FRAMES, VERIFY, WRITE_FILE, Option, check, size, word
from tosajax.hifi.bench._verify import Tolerance

_KERNELS = ("elm_add", "elm_mul", "elm_floor", "dot_prod")
# The options that have other names than the arguments of C.
_RENAMED = {
    "out_zero_bias": "output_zero_bias",
    "out_shift": "output_left_shift",
    "out_multiplier": "output_multiplier",
    "out_activation_min": "output_activation_min",
    "out_activation_max": "output_activation_max",
    **{
        f"inp{i}_{argument}": f"input{i}_{option}"
        for i in (1, 2)
        for argument, option in (
            ("zero_bias", "zero_bias"),
            ("shift", "left_shift"),
            ("multiplier", "multiplier"),
        )
    },
}
# What the library has, but its guide has not.
_EXTRAS: dict[str, Callable[..., jax.Array]] = {
    "xa_nn_elm_add_f32xf32_f32": jnp.add,
    "xa_nn_elm_mul_f32xf32_f32": jnp.multiply,
    "xa_nn_elm_add_asym8uxasym8u_asym8u": kernels.elm_add,
    "xa_nn_elm_mul_asym8uxasym8u_asym8u": kernels.elm_mul,
}

ABOUT = """Elementwise functions and dot products.

Each of two files of inputs holds a vector for each frame, of dot_prod vec_count of them; elm_floor
takes the first one alone. The sums and products of floats and of asym8u are functions of the
library that its guide does not have. Quantized ones of asym8s have no output above 127, which
output_activation_max has to say."""

OPTIONS = (
    size("io_length", 1024, "length of vectors"),
    Option("inp_precision", -1, "of the inputs", choices=(16, -3, -1, -4)),
    Option("out_precision", -1, "of the output", choices=(-3, -1, -4)),
    size("vec_count", 1, "how many pairs of vectors there are, with dot_prod"),
    FRAMES,
    word("kernel_name", "elm_add", "what runs", _KERNELS),
    WRITE_FILE,
    *file_options("inp1", "inp2"),
    VERIFY,
    Option("output_zero_bias", 127, "of quantized outputs"),
    Option("output_left_shift", 1, "of quantized outputs, bits"),
    Option("output_multiplier", 0x7FFF, "of quantized outputs, Q31"),
    Option("output_activation_min", 0, "the least output of elm_add and elm_mul"),
    Option("output_activation_max", 225, "the greatest output of elm_add and elm_mul"),
    Option("input1_zero_bias", -127, "of elm_add and elm_mul"),
    Option("input1_left_shift", 0, "of elm_add, bits"),
    Option("input1_multiplier", 0x7FFF, "of elm_add, Q31"),
    Option("input2_zero_bias", -127, "of elm_add and elm_mul"),
    Option("input2_left_shift", 0, "of elm_add, bits"),
    Option("input2_multiplier", 0x7FFF, "of elm_add, Q31"),
    Option("left_shift", 0, "of both inputs of elm_add, bits"),
)


def job(options: SimpleNamespace) -> Job:
    """What to run for some options."""
    kind, precision = options.kernel_name, options.inp_precision
    name = _name_of(options)
    is_dot = kind == "dot_prod"
    shape = (options.vec_count, options.io_length) if is_dot else (options.io_length,)
    files = ("inp1",) if kind == "elm_floor" else ("inp1", "inp2")
    if kind == "elm_floor":
        for option in ("read_inp2_file_name", "write_inp2_file_name"):
            check(getattr(options, option) is None, f"-{option} is given, expected inp1 alone")
    arrays = {file: [Array(file, TYPES[precision], shape)] for file in files}
    output = Array("out", TYPES[options.out_precision], shape[:1])
    numbers = {argument: getattr(options, option) for argument, option in _RENAMED.items()}
    numbers |= {"left_shift": options.left_shift}

    def run(frame: Frame) -> np.ndarray:
        if name in _EXTRAS:
            return _run_extra(name, frame, numbers)
        out = np.zeros(output.shape, output.dtype)
        lengths = {"num_elm": out.size, "vec_length": options.io_length}
        counts = {"vec_count": options.vec_count, "num_vecs": options.vec_count}
        pointers = {"p_out": out, "bias_ptr": None, "p_inp": frame["inp1"]}
        pointers |= {f"p_{file}": frame[file] for file in files}
        call(name, {**numbers, **lengths, **counts, **pointers}, **_RENAMED)
        return out

    def expected(frame: Frame) -> Any:
        return _expected(kind, [frame[file] for file in files], numbers, is_float=precision == -1)

    tolerance = Tolerance(terms=options.io_length if is_dot else 1)
    return kernel_job(name, options, arrays, output, run, expected, tolerance)


def _name_of(options: SimpleNamespace) -> str:
    """The name of the function."""
    kind, inp = options.kernel_name, options.inp_precision
    if kind == "dot_prod" and inp == 16:
        check_precision(options, "out_precision", -4)
        return "xa_nn_dot_prod_16x16_asym8s"
    check_precision(options, "out_precision", inp)
    precision = NAMES[inp]
    operands = precision if kind == "elm_floor" else f"{precision}x{precision}"
    name = f"xa_nn_{kind}_{operands}_{precision}"
    if name not in _EXTRAS:
        check_name(name, "-kernel_name, -inp_precision and -out_precision")
    return name


def _run_extra(name: str, frame: Frame, numbers: Mapping[str, int]) -> np.ndarray:
    function, operands = _EXTRAS[name], (frame["inp1"], frame["inp2"])
    if name.endswith("f32"):
        return np.asarray(function(*operands))
    known = inspect.signature(function).parameters
    values = {key: value for key, value in numbers.items() if key in known}
    function = functools.partial(function, precision="asym8uxasym8u_asym8u", **values)
    with refusals(**_RENAMED):
        return np.asarray(jax.jit(function)(*operands))


def _expected(
    kind: str, inputs: Sequence[np.ndarray], numbers: Mapping[str, int], *, is_float: bool
) -> Any:
    if not is_float:
        return getattr(_reference, kind)(*inputs, numbers)
    a, *rest = map(_reference.wide, inputs)
    match kind:
        case "elm_floor":
            return np.floor(a)
        case "elm_add":
            return a + rest[0]
        case "elm_mul":
            return a * rest[0]
    return (a * rest[0]).sum(1)
