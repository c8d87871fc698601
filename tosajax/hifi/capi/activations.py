"""Activations of vectors (guide 3.3). Pointers are aligned to elements.

The library checks less here than elsewhere: functions of 32_32 always return 0; sigmoid and tanh of
32_16 and 32_8 only check vec_length; relu of 16 and 8 bits does nothing for rejected arguments, and
returns 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tosajax.hifi.capi._function import Arguments, Prototype
from tosajax.hifi.capi._plan import Plan, check_pointer, operand
from tosajax.hifi.capi._types import TYPES
from tosajax.hifi.kernels import SigmoidQuant, SoftmaxQuant
from tosajax.hifi.kernels.activations import ACTIVATION_MIN_MAX, RELU, SIGMOID, SOFTMAX, TANH

_VECTOR = "p_out p_vec vec_length"


def _vector(a: Arguments, precision: str, **numbers: Any) -> Plan:
    """The plan of a function of a vector."""
    dtype, out = (TYPES[word] for word in precision.split("_"))
    more = {"is_checked": dtype is not np.int32}
    return Plan(
        {"x": operand(a, "p_vec", dtype, (a.vec_length,), **more)},
        [operand(a, "p_out", out, (a.vec_length,), **more)],
        numbers,
    )


def _sigmoid_quantized(a: Arguments, precision: str) -> Plan:
    quant = SigmoidQuant(a.zero_point, a.input_range_radius, a.input_multiplier, a.input_left_shift)
    return _vector(a, precision, quant=quant)


def _softmax_quantized(a: Arguments, precision: str) -> Plan:
    check_pointer("p_scratch", a.p_scratch, 1)
    quant = SoftmaxQuant(a.diffmin, a.input_left_shift, a.input_multiplier)
    return _vector(a, precision, quant=quant)


def _relu(a: Arguments, precision: str) -> Plan:
    dtype = TYPES[precision.split("_")[0]]
    if dtype is not np.float32 and not np.iinfo(dtype).min <= a.threshold <= np.iinfo(dtype).max:
        raise ValueError(f"threshold is {a.threshold}, which is not of {np.dtype(dtype)}")
    return _vector(a, precision, threshold=a.threshold)


def _min_max(a: Arguments, precision: str) -> Plan:
    bounds = {"activation_min": a.activation_min, "activation_max": a.activation_max}
    return _vector(a, precision, **bounds)


def _relu_code(precision: str) -> int:
    return -1 if precision == "f32_f32" else 0


PROTOTYPES = (
    *(
        Prototype(f"xa_nn_vec_{name}_{{}}", _VECTOR, _vector, precisions[:1], invalid=0)
        for name, precisions in (("sigmoid", SIGMOID), ("tanh", TANH), ("softmax", SOFTMAX))
    ),
    Prototype("xa_nn_vec_sigmoid_{}", _VECTOR, _vector, SIGMOID[1:4]),
    Prototype("xa_nn_vec_tanh_{}", _VECTOR, _vector, TANH[1:]),
    Prototype("xa_nn_vec_softmax_{}", _VECTOR, _vector, ("f32_f32",)),
    Prototype(
        "xa_nn_vec_sigmoid_{}",
        "p_out p_vec zero_point input_range_radius input_multiplier input_left_shift vec_length",
        _sigmoid_quantized,
        SIGMOID[4:],
    ),
    Prototype(
        "xa_nn_vec_softmax_{}",
        "p_out p_vec diffmin input_left_shift input_multiplier vec_length p_scratch",
        _softmax_quantized,
        SOFTMAX[2:],
    ),
    *(
        Prototype(
            f"xa_nn_vec_{kind}_{{}}", _VECTOR, _vector, (precision,), invalid=_relu_code(precision)
        )
        for kind in ("relu1", "relu6", "relu_std")
        for precision in RELU[kind]
    ),
    *(
        Prototype(
            "xa_nn_vec_relu_{}",
            "p_out p_vec threshold vec_length",
            _relu,
            (precision,),
            floats=("threshold",) if precision == "f32_f32" else (),
            invalid=_relu_code(precision),
        )
        for precision in RELU["relu"]
    ),
    *(
        Prototype(
            "xa_nn_vec_activation_min_max_{}",
            "p_out p_vec activation_min activation_max vec_length",
            _min_max,
            (precision,),
            floats=("activation_min", "activation_max") if precision == "f32_f32" else (),
        )
        for precision in ACTIVATION_MIN_MAX
    ),
)
