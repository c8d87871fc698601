"""Steps of VARIABLE_READ and VARIABLE_WRITE."""

from __future__ import annotations

import jax.numpy as jnp

from tosajax.graph import Node, Tensor
from tosajax.lowering.run import Context, Run, Step, store
from tosajax.lowering.variables import Variable
from tosajax.report import UnsupportedError


def read_step(node: Node, tensor: Tensor, context: Context) -> Step:
    name = _checked_variable(node, tensor, context)

    def step(run: Run) -> None:
        store(run, node, run.state[name].value)
        if context.report_unpredictable:
            run.flags[node.title, "variable_read.r2"] = ~run.state[name].written

    return step


def write_step(node: Node, tensor: Tensor, context: Context) -> Step:
    name = _checked_variable(node, tensor, context)

    def step(run: Run) -> None:
        (value,) = run.read(node.inputs)
        run.state = {**run.state, name: Variable(value, jnp.asarray(True))}

    return step


def _checked_variable(node: Node, tensor: Tensor, context: Context) -> str:
    """The name of a node's variable.

    Raises:
      UnsupportedError: there is not exactly one declaration, of the tensor's shape and type.
    """
    name = node.attributes["name"]
    declared = context.variables.get(name, ())
    if [(t.shape, t.dtype) for t in declared] != [(tensor.shape, tensor.dtype)]:
        listed = ", ".join(map(str, declared)) or "nothing"
        raise UnsupportedError(
            f"{node.title}: variable {name!r} is declared as {listed}, expected once as {tensor}; "
            "the specification leaves the result open"
        )
    return name
