"""Elementwise functions and dot products (guide 3.6).

Pointers are aligned to elements, for interpolation to 8 bytes. Only the bias of a dot product may
be NULL.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tosajax.hifi.capi._function import Arguments, Prototype
from tosajax.hifi.capi._plan import Operand, Plan, given, operand
from tosajax.hifi.kernels import Quant, basic

_OUT = "p_out out_zero_bias out_shift out_multiplier out_activation_min out_activation_max"


def _interpolation(a: Arguments, _: str) -> Plan:
    """The plan of an interpolation; the library also overwrites the first input with the result."""

    def at(argument: str) -> Operand:
        return operand(a, argument, np.int16, (a.num_elements,), alignment=8)

    arrays = {"ifact": at("p_ifact"), "inp1": at("p_inp1"), "inp2": at("p_inp2")}
    return Plan(arrays, [at("p_out"), at("p_inp1")])


def _dot_prod_float(a: Arguments, _: str) -> Plan:
    return _dot_prod(a, a.num_vecs, np.float32, np.float32)


def _dot_prod_quantized(a: Arguments, _: str) -> Plan:
    plan = _dot_prod(a, a.vec_count, np.int16, np.int8)
    bias = given(bias=operand(a, "bias_ptr", np.int32, (a.vec_count,)))
    quant = Quant(0, 0, a.out_multiplier, a.out_shift, a.out_zero_bias)
    return plan._replace(arrays={**plan.arrays, **bias}, numbers={"quant": quant})


def _dot_prod(a: Arguments, count: int, dtype: type, out: type) -> Plan:
    shape = count, a.vec_length
    inputs = {name: operand(a, f"p_{name}", dtype, shape) for name in ("inp1", "inp2")}
    return Plan(inputs, [operand(a, "p_out", out, (count,))])


def _elementwise(dtype: type, out: type) -> Callable[[Arguments, str], Plan]:
    """Makes the body of an elementwise function, whose numbers are keywords of the kernel."""

    def body(a: Arguments, _: str) -> Plan:
        inputs = [name for name in vars(a) if name.startswith("p_inp")]
        rest = vars(a).keys() - {*inputs, "p_out", "num_elm"}
        return Plan(
            {name.removeprefix("p_"): operand(a, name, dtype, (a.num_elm,)) for name in inputs},
            [operand(a, "p_out", out, (a.num_elm,))],
            {name: getattr(a, name) for name in sorted(rest)},
        )

    return body


PROTOTYPES = (
    Prototype(
        "xa_nn_vec_interpolation_q15", "p_out p_ifact p_inp1 p_inp2 num_elements", _interpolation
    ),
    Prototype(
        "xa_nn_dot_prod_{}",
        "p_out p_inp1 p_inp2 vec_length num_vecs",
        _dot_prod_float,
        basic.DOT_PROD[:1],
    ),
    Prototype(
        "xa_nn_dot_prod_{}",
        "p_out p_inp1 p_inp2 bias_ptr vec_length out_multiplier out_shift out_zero_bias vec_count",
        _dot_prod_quantized,
        basic.DOT_PROD[1:],
    ),
    Prototype(
        "xa_nn_elm_quantize_{}",
        "p_out p_inp inp_zero_bias out_zero_bias out_shift out_multiplier num_elm",
        _elementwise(np.int16, np.int8),
        basic.ELM_QUANTIZE,
    ),
    Prototype(
        "xa_nn_elm_floor_{}",
        "p_out p_inp num_elm",
        _elementwise(np.float32, np.float32),
        basic.ELM_FLOOR,
    ),
    Prototype(
        "xa_nn_elm_add_{}",
        f"{_OUT} p_inp1 inp1_zero_bias inp1_shift inp1_multiplier "
        "p_inp2 inp2_zero_bias inp2_shift inp2_multiplier left_shift num_elm",
        _elementwise(np.int8, np.int8),
        basic.ELM_ADD[:1],
    ),
    Prototype(
        "xa_nn_elm_mul_{}",
        f"{_OUT} p_inp1 inp1_zero_bias p_inp2 inp2_zero_bias num_elm",
        _elementwise(np.int8, np.int8),
        basic.ELM_MUL[:1],
    ),
)
