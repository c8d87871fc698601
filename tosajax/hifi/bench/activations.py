"""The test bench of activations (guide 5.5)."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from tosajax.hifi.bench._job import Bench, Job
from tosajax.hifi.bench._kernel import (
    NAMES,
    check_name,
    file_options,
    kernel_job,
    library_step,
)
from tosajax.hifi.bench._options import (
    FRAMES,
    VERIFY,
    WRITE_FILE,
    Option,
    check,
    number,
    size,
    word,
)

_KINDS = (
    *("sigmoid", "tanh", "relu", "relu_std", "relu1", "relu6"),
    *("activation_min_max", "softmax"),
)
# The options for the limits of an activation; the arguments' names lack "relu_".
_LIMITS = {
    "relu": ("relu_threshold",),
    "activation_min_max": ("activation_min", "activation_max"),
}

_ABOUT = """Activations of vectors.

A file of inputs holds a vector for each frame. The input is Q6.25 where it has 32 bits; of 32 bits
the output is Q16.15, of 16 Q15, of 8 Q7. relu_threshold, activation_min and activation_max are in
the format of the output; of floats they are floats."""

_OPTIONS = (
    size("num_elements", 32, "length of the vector"),
    Option("relu_threshold", 32768, "of relu: 32768 is 1 in Q16.15", number),
    Option("inp_precision", 32, "of the input", choices=(8, 16, 32, -1, -3, -4)),
    Option("out_precision", 32, "of the output", choices=(8, 16, 32, -1, -3, -4)),
    FRAMES,
    word("activation", "sigmoid", "the function", _KINDS),
    WRITE_FILE,
    *file_options("inp"),
    VERIFY,
    Option("diffmin", -15, "of quantized softmax: below the largest, how far an element counts"),
    Option("input_left_shift", 27, "of quantized inputs, bits"),
    Option("input_multiplier", 2060158080, "of quantized inputs, Q31"),
    Option("activation_max", 0, "of activation_min_max", number),
    Option("activation_min", 0, "of activation_min_max", number),
    Option("input_range_radius", 128, "of sigmoid of asym8u: from here on it is 0 or 255"),
    Option("zero_point", 0, "of sigmoid of asym8u"),
)


def _job(options: SimpleNamespace) -> Job:
    inp, out = (NAMES[x] for x in (options.inp_precision, options.out_precision))
    name = f"xa_nn_vec_{options.activation}_{inp}_{out}"
    check_name(name, "-activation, -inp_precision and -out_precision")
    limits = _LIMITS.get(options.activation, ())
    values = {option.removeprefix("relu_"): getattr(options, option) for option in limits}
    arguments = {**vars(options), **values, "vec_length": options.num_elements}
    # Checks the limits against the vector's type first; the library checks their values.
    if inp != "f32":
        for option in limits:
            _check_limit(option, getattr(options, option), inp)
    step = library_step(name, arguments, threshold="relu_threshold")
    return kernel_job(options, step, terms=options.num_elements)


def _check_limit(option: str, value: float, precision: str) -> None:
    """Raises BenchError if a limit does not fit the type of the vector."""
    bits = np.iinfo(np.uint8 if precision == "asym8u" else f"int{precision}")
    holds = isinstance(value, int) and bits.min <= value <= bits.max
    check(holds, f"-{option} is {value}, expected an integer within [{bits.min}, {bits.max}]")


BENCH = Bench(_ABOUT, _OPTIONS, _job)
