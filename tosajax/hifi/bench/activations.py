"""The test bench of activations (guide 5.5)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from tosajax.hifi.bench import _reference
from tosajax.hifi.bench._files import Array, Frame
from tosajax.hifi.bench._job import (
    NAMES,
    TYPES,
    Job,
    call,
    check_name,
    file_options,
    kernel_job,
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
from tosajax.hifi.bench._verify import Tolerance

_KINDS = (
    "sigmoid",
    "tanh",
    "relu",
    "relu_std",
    "relu1",
    "relu6",
    "activation_min_max",
    "softmax",
)
# Of limits, which are floats or integers, by the name of the argument.
_LIMITS = {
    "threshold": "relu_threshold",
    "activation_min": "activation_min",
    "activation_max": "activation_max",
}

ABOUT = """Activations of vectors.

A file of inputs holds a vector for each frame. The input is Q6.25 where it has 32 bits; of 32 bits
the output is Q16.15, of 16 Q15, of 8 Q7. relu_threshold, activation_min and activation_max are in
the format of the output; of floats they are floats."""

OPTIONS = (
    size("num_elements", 32, "length of the vector"),
    Option("relu_threshold", 32768, "of relu: 32768 is 1 in Q16.15", number),
    Option("inp_precision", 32, "of the input", choices=(8, 16, 32, -1, -3, -4)),
    Option("out_precision", 32, "of the output", choices=(8, 16, 32, -1, -3, -4)),
    FRAMES,
    word("activation", "sigmoid", "what runs", _KINDS),
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


def job(options: SimpleNamespace) -> Job:
    """What to run for some options."""
    inp, out = (NAMES[x] for x in (options.inp_precision, options.out_precision))
    name = f"xa_nn_vec_{options.activation}_{inp}_{out}"
    check_name(name, "-activation, -inp_precision and -out_precision")
    dtype, shape = TYPES[options.inp_precision], (options.num_elements,)
    output = Array("out", TYPES[options.out_precision], shape)
    limits = {key: _limit(options, option, dtype) for key, option in _LIMITS.items()}

    def run(frame: Frame) -> np.ndarray:
        out = np.zeros(shape, output.dtype)
        pointers = {"p_out": out, "p_vec": frame["inp"], "p_scratch": np.zeros(8, np.int8)}
        values = {**vars(options), **limits, **pointers, "vec_length": out.size}
        call(name, values, **_LIMITS)
        return out

    def expected(frame: Frame) -> Any:
        return _expected(options, frame["inp"], output.dtype, limits)

    # Curves are those of reals, of which fixed point is off by a unit; a unit of 16 bits is less.
    units = 2 if name.endswith("asym8s_16") else 1
    tolerance = Tolerance(units if options.activation in ("sigmoid", "tanh", "softmax") else 0)
    tolerance = tolerance._replace(terms=options.num_elements)
    return kernel_job(
        name, options, {"inp": [Array("inp", dtype, shape)]}, output, run, expected, tolerance
    )


def _limit(options: SimpleNamespace, name: str, dtype: type) -> int | float:
    """A limit in the type of the output, where the function looks at it."""
    value = getattr(options, name)
    is_used = options.activation == ("relu" if name == "relu_threshold" else "activation_min_max")
    if not is_used or dtype is np.float32:
        return value
    info = np.iinfo(dtype)
    holds = isinstance(value, int) and info.min <= value <= info.max
    check(holds, f"-{name} is {value}, expected an integer within [{info.min}, {info.max}]")
    return value


def _expected(
    options: SimpleNamespace, x: np.ndarray, out: type, limits: dict[str, int | float]
) -> Any:
    is_quantized = options.inp_precision in (-3, -4)
    dtype, wide = x.dtype.type, _reference.wide(x)
    one = 2**15 if dtype is np.int32 else 1
    match options.activation:
        case "sigmoid" if is_quantized:
            return _reference.sigmoid_asym8u(x, options)
        case "softmax" if is_quantized:
            return _reference.softmax_quantized(x, options, out)
        case "activation_min_max":
            return np.clip(wide, limits["activation_min"], limits["activation_max"])
        case "relu":
            return _reference.relu(wide, dtype, limits["threshold"])
        case "relu_std":
            return _reference.relu(wide, dtype)
        case "relu1" | "relu6" as kind:
            return _reference.relu(wide, dtype, int(kind[-1]) * one)
    return _reference.activation(options.activation, x, dtype, out)
