"""run_op: runs one operator, with the full validation of a graph."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from operator import index
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from tosajax import spec
from tosajax.arguments.types import check_type, shown
from tosajax.block_scaled import BlockScaled, arrays_of, described, on_host
from tosajax.builder import Builder, possible_output_types
from tosajax.dtypes import DType
from tosajax.graph import Graph, Tensor
from tosajax.lowering.build import build, to_device
from tosajax.lowering.run import CustomOps
from tosajax.passes.binding import bind
from tosajax.spec import Argument, Form, Operator
from tosajax.spec.target import Target
from tosajax.validation import validate

# Element types by NumPy type. SHAPE inputs are lists of integers; int4 is a type of ml_dtypes.
_DTYPES = {d.storage: d for d in DType if d not in (DType.INT4, DType.SHAPE) and d.block is None}
_INT4 = np.dtype("int4")


def run_op(
    op: str,
    inputs: Sequence[Any],
    attrs: Mapping[str, Any] | None = None,
    target: Target | str | None = None,
    *,
    outputs: Sequence[tuple[DType, Sequence[int]]] | None = None,
    custom_ops: CustomOps | None = None,
) -> Any:
    """Runs one operator after checking it as a graph of one node.

    y = run_op("CLAMP", [x], {"min_val": 0.0, "max_val": 6.0})

    Works under `jit`, `vmap` and `grad`. An input that must be a compile-time constant becomes one
    if its value is known; if it is traced, it needs EXT-DYNAMIC.

    Args:
      op: operator, "CONV2D".
      inputs: arrays in the specification's order, with an element type of TOSA (`ml_dtypes.int4`
        for INT4, int64 for INT48); a shape_t input is a list of integers.
      attrs: attributes by the specification's names; also `out_type`, a DType, if the inputs do
        not determine the output type. Graphs of control flow are `Graph`s.
      target: the target to check against, also as text ("PRO-INT@8K"); by default everything at
        level 8K.
      outputs: element type and shape of each output of CUSTOM.
      custom_ops: the function of CUSTOM; see `tosajax.lower`.

    Returns:
      The output, an array in its `dtype.storage`, or a tuple of several.

    Raises:
      TosaError: the operator is illegal, or the target does not support it.
      TypeError: an input has no element type of TOSA.
      ValueError: TOSA has no such operator, it cannot run alone, or the output type is open.

    Example:
      >>> import jax.numpy as jnp
      >>> import tosajax
      >>> x = jnp.float32([-1, 3, 9])
      >>> tosajax.run_op("CLAMP", [x], {"min_val": 0.0, "max_val": 6.0}).tolist()
      [0.0, 3.0, 6.0]
    """
    check_type("op", op, str, 'the name of an operator, such as "ADD"')
    check_type("inputs", inputs, (list, tuple), "a list of arrays")
    operator = spec.operator_named(op)
    if op in spec.CONSTANT_OPERATORS or operator.chapter == "variable":
        raise ValueError(f"{op!r} is not an operator that computes something by itself")
    graph, traced = _graph_of(operator, inputs, dict(attrs or {}), outputs)
    graph = bind(graph)
    validate(graph, target).raise_errors()
    program, params = build(graph, custom_ops=custom_ops)
    _, _, results = program(params, {}, *traced)
    return results[0] if len(results) == 1 else results


def _graph_of(
    operator: Operator,
    inputs: Sequence[Any],
    attrs: dict[str, Any],
    outputs: Sequence[tuple[DType, Sequence[int]]] | None,
) -> tuple[Graph, list[Any]]:
    """The graph of one node, and the arrays to call it with."""
    b = Builder("run_op")
    arrays: list[Any] = []
    tensors = [_input(b, operator, i, value, arrays) for i, value in enumerate(inputs)]
    graphs = {name: graph for name, graph in attrs.items() if isinstance(graph, Graph)}
    for name, graph in graphs.items():
        attrs[name] = b.subgraph(dataclasses.replace(graph, name=name))
    out_type = attrs.pop("out_type", None)
    shapes: Sequence[Sequence[int] | None]
    if outputs is not None:
        dtypes, shapes = [d for d, _ in outputs], [s for _, s in outputs]
    else:
        dtypes = _output_types(operator, tensors, attrs, graphs) if out_type is None else [out_type]
        shapes = [None] * len(dtypes)
    results = b.ops(operator.name, *tensors, shapes=shapes, dtypes=dtypes, **attrs)
    return b.graph(outputs=results), arrays


def _output_types(
    operator: Operator,
    tensors: Sequence[Tensor],
    attrs: Mapping[str, Any],
    graphs: Mapping[str, Graph],
) -> Sequence[DType]:
    """The output types; of an arbitrary row if no row fits, as validation then finds the fault."""
    name = operator.name
    choices = possible_output_types(name, tensors, attrs, graphs)
    complete = len(tensors) >= len(operator.inputs)
    if name == "CUSTOM" or (len(choices) > 1 and complete):
        wanted = "outputs" if name == "CUSTOM" else "attrs['out_type']"
        raise ValueError(f"{name}: the inputs leave the output type open: give {wanted}")
    return (choices or possible_output_types(name, (), attrs, graphs))[0]


def _input(b: Builder, operator: Operator, position: int, value: Any, arrays: list[Any]) -> Tensor:
    """Declares an input: a constant if it must be one and is known, else appends it to `arrays`."""
    argument = _argument(operator, position)
    if argument is not None and argument.form is Form.SHAPE:
        return b.const_shape(_integers(f"{operator.name}: {argument.name}", value))
    name = f"{argument.name if argument else 'input'}_{position}"
    dtype = _dtype(operator, name, value)
    if argument is not None and argument.constant_in and not _is_traced(value):
        return b.const(_stored(value, dtype), dtype, name=name)
    arrays.append(_array(value, dtype))
    return b.input(name, dtype, value.shape)


def _integers(name: str, value: Any) -> list[int]:
    """The elements of a shape_t input, which must be known while it is traced."""
    try:
        numbers = [index(v) for v in value]
    except TypeError:
        raise TypeError(f"{name} is {shown(value)}, expected a list of integers") from None
    if any(not -(1 << 63) <= v < 1 << 63 for v in numbers):
        raise ValueError(f"{name} is {shown(value)}, expected integers of 64 bits")
    return numbers


def _argument(operator: Operator, position: int) -> Argument | None:
    """The argument of an input; None for the second and later tensors of a list."""
    if position < len(operator.inputs):
        return operator.inputs[position]
    return None


def _dtype(operator: Operator, name: str, value: Any) -> DType:
    held = getattr(value, "dtype", None)
    if isinstance(value, BlockScaled):
        dtype = next((dtype for dtype in DType if dtype.accepts(value)), None)
    else:
        dtype = DType.INT4 if held == _INT4 else _DTYPES.get(held)  # pyright: ignore
    if dtype is None:
        what = described(value) if held is None else str(held)
        raise TypeError(f"{operator.name}: {name} is {what}, expected an array of a TOSA type")
    return dtype


def _is_traced(value: Any) -> bool:
    return any(isinstance(array, Tracer) for array in arrays_of(value))


def _array(value: Any, dtype: DType) -> Any:
    if isinstance(value, jax.Array):
        return value.astype(dtype.storage) if dtype is DType.INT4 else value
    return value if _is_traced(value) else to_device(_stored(value, dtype), dtype)


def _stored(value: Any, dtype: DType) -> Any:
    whole = on_host(value)
    return whole.astype(dtype.storage) if dtype.block is None else whole
