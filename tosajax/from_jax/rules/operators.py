"""Functions of tosajax that the exported function calls.

An operator of `tosajax.ops` is exported as the same operator, a kernel of the HiFi 5 NN Library as
a graph of operators. A layer of that library is exported as CUSTOM, which
`tosajax.hifi.custom.OPERATORS` implements, or as operators that compute the same bits, as the user
chooses (`hifi_layers`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from tosajax import spec
from tosajax.dtypes import DType
from tosajax.from_jax.step import Step
from tosajax.from_jax.values import ARRAY_TYPES, Value, of_tensor
from tosajax.graph import Graph
from tosajax.hifi import custom, to_tosa
from tosajax.report import UnsupportedError
from tosajax.spec import Argument


def tosa_operator(step: Step, *operands: Value) -> list[Value]:
    """The TOSA operator; several for a kernel of `tosajax.hifi`; CUSTOM or several for a layer."""
    op = step.params["op"]
    if op.startswith("hifi.kernels."):
        return _kernel(step, op, operands)
    if op.startswith("hifi.layers."):
        return _layer(step, op, operands)
    return _operator(step, operands)


def _operator(step: Step, operands: Sequence[Value]) -> list[Value]:
    """The node of a recorded operator."""
    operator = spec.OPERATORS[step.params["op"]]
    step = dataclasses.replace(step, primitive=operator.name.lower())
    arguments = step.params["call"].arguments(operands)
    inputs: list[Any] = []
    for argument in operator.inputs:
        value = arguments[argument.name]
        is_list = argument.form is spec.Form.TENSOR_LIST
        inputs += value if is_list else [value]
    attributes = {a.name: _attribute(step, a, arguments, operands) for a in operator.attributes}
    dtype = _out_type(step, arguments) if operator.needs_out_type else None
    return [*step.ops(operator.name, *inputs, dtype=dtype, **attributes)]


def _attribute(
    step: Step, argument: Argument, arguments: dict[str, Any], operands: Sequence[Value]
) -> Any:
    """The value of an attribute; an attribute of the element type may have been an array."""
    value = arguments[argument.name]
    if not isinstance(argument.dtype, str):
        return value
    if isinstance(value, Value):
        if value.scalar is None:
            problem = f"{argument.name} depends on the inputs"
            raise step.unsupported(problem, "a constant", "use maximum and minimum")
        value = value.scalar
    return np.asarray(value).astype(operands[0].dtype)[()]


def _out_type(step: Step, arguments: dict[str, Any]) -> np.dtype:
    """The output dtype of an operator whose operands do not determine it."""
    out_type = arguments.get("out_type")
    return ARRAY_TYPES[out_type] if isinstance(out_type, DType) else step.outs[0].dtype


def _kernel(step: Step, op: str, operands: Sequence[Value]) -> list[Value]:
    """A HiFi kernel as a graph of TOSA operators; if there is none, its JAX code inlined."""
    call = step.params["call"]
    try:
        graph = to_tosa.graph_of(op, call, _abstract_operands(operands))
    except UnsupportedError:
        return step.jaxs(call.opened, *operands)
    return _spliced(step, op, graph, operands)


def _layer(step: Step, op: str, operands: Sequence[Value]) -> list[Value]:
    """A HiFi layer as CUSTOM, or its JAX code inlined."""
    call = step.params["call"]
    if step.scope.options.hifi_layers == "operators":
        return step.jaxs(call.opened, *operands)
    graph = custom.graph_of(op, call, _abstract_operands(operands))
    return _spliced(step, op, graph, operands)


def _abstract_operands(operands: Sequence[Value]) -> list[Any]:
    """Arrays for constants, shapes and dtypes for all other operands."""
    return [x.elements if x.is_known else jax.ShapeDtypeStruct(x.shape, x.dtype) for x in operands]


def _spliced(step: Step, op: str, graph: Graph, operands: Sequence[Value]) -> list[Value]:
    """Adds a graph whose inputs are the operands that are not constant; returns the results."""
    inputs = [step.tensor(x) for x in operands if not x.is_known]
    place = dataclasses.replace(step.place, layers=step.place.layers or op)
    return [of_tensor(tensor) for tensor in step.scope.spliced(graph, inputs, place)]


RULES = {"tosa_operator": tosa_operator}
