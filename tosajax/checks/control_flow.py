"""Rules of "Control Flow Operators" (TOSA 1.0.1).

Lists of tensors agree if their lengths, shapes and types are equal.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from tosajax.checks._common import Shapes, list_limits
from tosajax.checks.call import Call, Problem
from tosajax.dtypes import DType
from tosajax.graph import Tensor
from tosajax.spec import Level


def cond_if_shape(c: Call) -> Shapes:
    return _shapes(c.then_graph.output_tensors)


def cond_if_errors(c: Call) -> Iterator[Problem]:
    then, other = c.then_graph, c.else_graph
    yield from _nesting_errors(c)
    yield from _list_errors(c, "e2", "input_list", "inputs of then_graph", then.input_tensors)
    yield from _list_errors(c, "e3", "input_list", "inputs of else_graph", other.input_tensors)
    yield from _list_errors(c, "e4", "output_list", "outputs of then_graph", then.output_tensors)
    yield from _list_errors(c, "e5", "output_list", "outputs of else_graph", other.output_tensors)
    size = math.prod(c.condition.shape)
    if size != 1:
        yield c.problem("e6", f"condition has {size} elements, expected 1")


def cond_if_levels(c: Call, level: Level) -> Iterator[Problem]:
    return list_limits(c, level)


def while_loop_shape(c: Call) -> Shapes:
    return _shapes(c.input_list)


def while_loop_errors(c: Call) -> Iterator[Problem]:
    condition, body = c.cond_graph, c.body_graph
    yield from _nesting_errors(c)
    yield from _list_errors(c, "e2", "input_list", "output_list", c.output_list)
    yield from _list_errors(c, "e3", "input_list", "inputs of cond_graph", condition.input_tensors)
    yield from _list_errors(c, "e4", "input_list", "inputs of body_graph", body.input_tensors)
    yield from _list_errors(c, "e5", "input_list", "outputs of body_graph", body.output_tensors)
    results = condition.output_tensors
    if [math.prod(t.shape or ()) for t in results] != [1]:
        yield c.problem(
            "e6", f"cond_graph gives {_text(results)}, expected one tensor of 1 element"
        )
    if any(t.dtype is not DType.BOOL for t in results):
        yield c.problem("e7", f"cond_graph gives {_text(results)}, expected BOOL")


def while_loop_levels(c: Call, level: Level) -> Iterator[Problem]:
    return list_limits(c, level)


def _nesting_errors(c: Call) -> Iterator[Problem]:
    depth, most = c.around.depth, c.around.max_nesting
    if depth >= most:
        message = f"the node is in a graph of nesting depth {depth}"
        yield c.problem("e1", f"{message}, expected less than {most} (MAX_NESTING)")


def _list_errors(
    c: Call, rule: str, name: str, what: str, wanted: Sequence[Tensor]
) -> Iterator[Problem]:
    tensors = getattr(c, name)
    if [(t.shape, t.dtype) for t in tensors] != [(t.shape, t.dtype) for t in wanted]:
        yield c.problem(rule, f"{name} is {_text(tensors)}, expected {_text(wanted)}, the {what}")


def _shapes(tensors: Sequence[Tensor]) -> Shapes:
    """The shapes of tensors.

    Raises:
      ValueError: a tensor has no rank.
    """
    for tensor in tensors:
        if tensor.shape is None:
            raise ValueError(f"{tensor.name!r} has no rank")
    return tuple(tensor.shape or () for tensor in tensors)


def _text(tensors: Sequence[Tensor]) -> str:
    return f"({', '.join(str(t) for t in tensors)})"
