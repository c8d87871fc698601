"""The test bench of elementwise functions and dot products (guide 5.7)."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np

from tosajax.hifi import kernels
from tosajax.hifi.bench._files import Array, Frame
from tosajax.hifi.bench._job import Bench, Job
from tosajax.hifi.bench._kernel import (
    NAMES,
    Step,
    check_name,
    check_precision,
    file_options,
    kernel_job,
    library_step,
)
from tosajax.hifi.bench._library import refusals
from tosajax.hifi.bench._options import FRAMES, VERIFY, WRITE_FILE, Option, check, size, word

# The names of options, by argument name in C, where they differ.
_RENAMED = {
    "out_zero_bias": "output_zero_bias",
    "out_shift": "output_left_shift",
    "out_multiplier": "output_multiplier",
    "out_activation_min": "output_activation_min",
    "out_activation_max": "output_activation_max",
    "inp1_zero_bias": "input1_zero_bias",
    "inp1_shift": "input1_left_shift",
    "inp1_multiplier": "input1_multiplier",
    "inp2_zero_bias": "input2_zero_bias",
    "inp2_shift": "input2_left_shift",
    "inp2_multiplier": "input2_multiplier",
}
# Functions of the library that are not in its guide.
_EXTRAS: dict[str, Callable[..., jax.Array]] = {
    "xa_nn_elm_add_f32xf32_f32": jnp.add,
    "xa_nn_elm_mul_f32xf32_f32": jnp.multiply,
    "xa_nn_elm_add_asym8uxasym8u_asym8u": kernels.elm_add,
    "xa_nn_elm_mul_asym8uxasym8u_asym8u": kernels.elm_mul,
}

_ABOUT = """Elementwise functions and dot products.

Each of two files of inputs holds a vector for each frame, of dot_prod vec_count of them; elm_floor
takes the first one alone. The sums and products of floats and of asym8u are functions of the
library that its guide does not have. Quantized ones of asym8s have no output above 127, so that
output_activation_max has to be given."""

_OPTIONS = (
    size("io_length", 1024, "length of vectors"),
    Option("inp_precision", -1, "of the inputs", choices=(16, -3, -1, -4)),
    Option("out_precision", -1, "of the output", choices=(-3, -1, -4)),
    size("vec_count", 1, "how many pairs of vectors there are, with dot_prod"),
    FRAMES,
    word("kernel_name", "elm_add", "the function", ("elm_add", "elm_mul", "elm_floor", "dot_prod")),
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


def _job(options: SimpleNamespace) -> Job:
    name, length = _name_of(options), options.io_length
    if options.kernel_name == "elm_floor":
        for option in ("read_inp2_file_name", "write_inp2_file_name"):
            check(getattr(options, option) is None, f"-{option} is given, expected inp1 alone")
    numbers = {argument: getattr(options, option) for argument, option in _RENAMED.items()}
    numbers |= {"left_shift": options.left_shift}
    if name in _EXTRAS:
        step = _extra_step(name, options, numbers)
    else:
        lengths = {"num_elm": length, "vec_length": length}
        counts = {"vec_count": options.vec_count, "num_vecs": options.vec_count}
        arguments = {**numbers, **lengths, **counts}
        step = library_step(name, arguments, null=("bias_ptr",), **_RENAMED)
    files = ("inp1",) if options.kernel_name == "elm_floor" else ("inp1", "inp2")
    terms = length if options.kernel_name == "dot_prod" else 1
    return kernel_job(options, step, terms=terms, files=files)


def _name_of(options: SimpleNamespace) -> str:
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


def _extra_step(name: str, options: SimpleNamespace, numbers: Mapping[str, int]) -> Step:
    """Makes the step of a function that `tosajax.hifi.capi` does not have."""
    word = NAMES[options.inp_precision]
    dtype, shape = np.float32 if word == "f32" else np.uint8, (options.io_length,)
    precision = f"{word}x{word}_{word}"
    keywords = {"precision": precision, **numbers}
    parameters = inspect.signature(_EXTRAS[name]).parameters
    function = functools.partial(
        _EXTRAS[name], **{k: keywords[k] for k in parameters if k in keywords}
    )

    def run(arrays: Frame) -> np.ndarray:
        with refusals(name, **_RENAMED):
            return np.asarray(jax.jit(function)(*arrays.values()))

    inputs = [Array(argument, dtype, shape) for argument in ("inp1", "inp2")]
    return Step(name, inputs, Array("out", dtype, shape), run)


BENCH = Bench(_ABOUT, _OPTIONS, _job)
