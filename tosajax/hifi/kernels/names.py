"""The library's function names, with the kernel that computes each and the keywords it fixes.

A library function is `row.function` with the keywords `row.fixed`; it takes arrays and keywords,
not the library's pointers, sizes and strides.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from tosajax.hifi.kernels import activations, basic, conv, matxvec, pool, scratch
from tosajax.hifi.kernels.dense import FULLY_CONNECTED, fully_connected


class Family(NamedTuple):
    """Library functions that differ only in their precision.

    Args:
      name: the functions' name, with {} for the precision.
      section: the section of the guide.
      function: the kernel that computes them.
      precisions: the precisions in the names; empty for a name without one.
      fixed: further keywords that the name implies.
    """

    name: str
    section: str
    function: Callable[..., Any]
    precisions: tuple[str, ...] = ()
    fixed: Mapping[str, Any] = MappingProxyType({})


class LibraryFunction(NamedTuple):
    """A function of the library.

    Args:
      name: the name in the library.
      section: the section of the guide.
      function: the kernel that computes it.
      fixed: the kernel's keywords that the name implies.
    """

    name: str
    section: str
    function: Callable[..., Any]
    fixed: Mapping[str, Any]


FAMILIES = (
    Family("xa_nn_matXvec_{}", "3.1.1", matxvec.matXvec, matxvec.MATXVEC),
    Family(
        "xa_nn_matXvec_{}_tanh",
        "3.1.2",
        matxvec.matXvec_fused,
        matxvec.FUSED,
        {"function": "tanh"},
    ),
    Family(
        "xa_nn_matXvec_{}_sigmoid",
        "3.1.2",
        matxvec.matXvec_fused,
        matxvec.FUSED,
        {"function": "sigmoid"},
    ),
    Family("xa_nn_matXvec_batch_{}", "3.1.3", matxvec.matXvec_batch, matxvec.BATCH),
    Family("xa_nn_matmul_{}", "3.1.4", matxvec.matmul, matxvec.MATMUL),
    Family("xa_nn_matXvec_out_stride_{}", "3.1.5", matxvec.matXvec_out_stride, matxvec.OUT_STRIDE),
    Family("xa_nn_conv2d_std_{}", "3.2.1", conv.conv2d_std, conv.CONV2D),
    Family("xa_nn_conv2d_std_getsize", "3.2.1", scratch.conv2d_std_getsize),
    Family("xa_nn_conv1d_std_{}", "3.2.2", conv.conv1d_std, conv.CONV1D),
    Family("xa_nn_conv1d_std_getsize", "3.2.2", scratch.conv1d_std_getsize),
    Family("xa_nn_conv2d_depthwise_{}", "3.2.3.1", conv.conv2d_depthwise, conv.CONV2D),
    Family("xa_nn_conv2d_depthwise_getsize", "3.2.3.1", scratch.conv2d_depthwise_getsize),
    Family("xa_nn_conv2d_pointwise_{}", "3.2.3.2", conv.conv2d_pointwise, conv.CONV2D),
    Family("xa_nn_vec_sigmoid_{}", "3.3.1", activations.sigmoid, activations.SIGMOID),
    Family("xa_nn_vec_tanh_{}", "3.3.2", activations.tanh, activations.TANH),
    *(
        Family(f"xa_nn_vec_{kind}_{{}}", "3.3.3", activations.relu, precisions, {"kind": kind})
        for kind, precisions in activations.RELU.items()
    ),
    Family("xa_nn_vec_softmax_{}", "3.3.4", activations.softmax, activations.SOFTMAX),
    Family(
        "xa_nn_vec_activation_min_max_{}",
        "3.3.5",
        activations.activation_min_max,
        activations.ACTIVATION_MIN_MAX,
    ),
    Family("xa_nn_avgpool_{}", "3.4.1", pool.avgpool, pool.POOL),
    Family("xa_nn_avgpool_getsize", "3.4.1", scratch.pool_getsize),
    Family("xa_nn_maxpool_{}", "3.4.2", pool.maxpool, pool.POOL),
    Family("xa_nn_maxpool_getsize", "3.4.2", scratch.pool_getsize),
    Family("xa_nn_fully_connected_{}", "3.5.1", fully_connected, FULLY_CONNECTED),
    Family("xa_nn_vec_interpolation_q15", "3.6.1", basic.interpolation_q15),
    Family("xa_nn_dot_prod_{}", "3.6.2", basic.dot_prod, basic.DOT_PROD),
    Family("xa_nn_elm_quantize_{}", "3.6.3", basic.elm_quantize, basic.ELM_QUANTIZE),
    Family("xa_nn_elm_floor_{}", "3.6.4", basic.elm_floor, basic.ELM_FLOOR),
    # The library also has asym8u additions and multiplications, which the guide omits.
    Family("xa_nn_elm_add_{}", "3.6.4", basic.elm_add, basic.ELM_ADD[:1]),
    Family("xa_nn_elm_mul_{}", "3.6.4", basic.elm_mul, basic.ELM_MUL[:1]),
)


def _functions(family: Family) -> list[LibraryFunction]:
    if not family.precisions:
        return [LibraryFunction(family.name, family.section, family.function, family.fixed)]
    return [
        LibraryFunction(
            family.name.format(precision),
            family.section,
            family.function,
            {"precision": precision, **family.fixed},
        )
        for precision in family.precisions
    ]


NAMES = {row.name: row for family in FAMILIES for row in _functions(family)}


@functools.cache
def library_function(name: str) -> Callable[..., Any]:
    """The kernel for a name of the library, with its keywords fixed; KeyError for other names.

    Example:
      >>> import numpy as np
      >>> from tosajax.hifi import kernels
      >>> floor = kernels.library_function("xa_nn_elm_floor_f32_f32")
      >>> floor(np.float32([-1.5, 1.5])).tolist()
      [-2.0, 1.0]
    """
    row = NAMES[name]

    def function(*args: Any, **kwargs: Any) -> Any:
        return row.function(*args, **kwargs, **row.fixed)

    function.__name__ = function.__qualname__ = name
    # The module where pickle finds it.
    function.__module__ = __package__ or ""
    function.__doc__ = _doc(row)
    function.__signature__ = _signature(row)  # type: ignore[attr-defined]
    return function


def _signature(row: LibraryFunction) -> inspect.Signature:
    """The kernel's signature without the keywords that the name fixes."""
    whole = inspect.signature(row.function)
    return whole.replace(
        parameters=[p for p in whole.parameters.values() if p.name not in row.fixed]
    )


def _doc(row: LibraryFunction) -> str:
    """The kernel's docstring without the arguments that the name fixes."""
    doc = inspect.getdoc(row.function) or ""
    for argument in row.fixed:
        doc = re.sub(rf"^  {argument}: .*\n(?:    .*\n)*", "", doc, flags=re.MULTILINE)
    fixed = "".join(f", {key}={value!r}" for key, value in row.fixed.items())
    family = f"`{row.function.__name__}`{fixed.replace(',', ' with', 1)}"
    return f"{row.name} of the library (guide {row.section}): {family}.\n\n{doc}"
