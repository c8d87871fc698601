"""Rules of "Variable Operators": names replace numbers."""

from __future__ import annotations

import dataclasses
from typing import Any

from tosajax import spec
from tosajax.dtypes import DType
from tosajax.graph import Tensor
from tosajax.io.pre_1_0.model import OldNode
from tosajax.io.pre_1_0.step import Step
from tosajax.report import FormatError, UnsupportedError
from tosajax.spec import VarType

_TYPES = tuple(DType(row.types["in_t"]) for row in spec.OPERATORS["VARIABLE"].types)


def variable(step: Step) -> None:
    """Upgrades VARIABLE; its tensor has the shape, type and initial value."""
    tensor = _declared(step)
    kind = VarType.of(tensor.dtype)
    stand_in = _stand_in(step, tensor)
    step.emit("VARIABLE", (), (stand_in,), name=tensor.name, var_shape=tensor.shape, type=kind)


def variable_read(step: Step) -> None:
    tensor = _declared(step)
    _stand_in(step, tensor)
    step.emit("VARIABLE_READ", (), name=tensor.name)


def variable_write(step: Step) -> None:
    tensor = _declared(step)
    _stand_in(step, tensor)
    step.emit("VARIABLE_WRITE", (step.input(0),), (), name=tensor.name)


def declared_variable(node: OldNode) -> Tensor:
    """The variable of a VARIABLE node, as a tensor with the variable's name.

    Raises:
      FormatError: an attribute is missing or invalid.
      UnsupportedError: TOSA 1.0 does not have variables of the type.
    """
    name = _name(node)
    dtype, shape = node.attributes.get("type"), node.attributes.get("var_shape")
    if shape is None:
        raise FormatError(f"{node.title}: variable {name!r} has no shape")
    types = [candidate for candidate in _TYPES if candidate.name == dtype]
    if not types:
        wanted = ", ".join(candidate.name for candidate in _TYPES)
        raise UnsupportedError(f"{node.title}: variable {name!r} is {dtype}, expected {wanted}")
    values = node.attributes.get("initial_value")
    try:
        return Tensor(name, types[0], tuple(int(dim) for dim in shape), values)
    except ValueError as error:
        raise FormatError(f"{node.title}: initial_value: {error}") from None


def _name(node: OldNode) -> str:
    """The name of a variable: `name`, or "var_7" for uid 7."""
    name: Any = node.attributes.get("name")
    if name is None and "uid" in node.attributes:
        name = f"var_{node.attributes['uid']}"
    if not isinstance(name, str) or not name:
        raise FormatError(f"{node.title}: the variable has no name")
    return name


def _declared(step: Step) -> Tensor:
    name = _name(step.node)
    if name not in step.work.variables:
        raise FormatError(f"no VARIABLE declares {name!r}")
    return step.work.variables[name]


def _stand_in(step: Step, variable: Tensor) -> str:
    """The name of a variable's tensor in this graph, declared on first use."""
    work = step.work
    if variable.name not in work.stand_ins:
        if step.node.op == "VARIABLE" and step.node.outputs:
            name = step.output
        else:
            name = work.add(f"variable_{variable.name}", variable.dtype, variable.shape)
        tensor = dataclasses.replace(variable, name=name, variable=variable.name)
        work.draft.tensors[name] = tensor
        work.stand_ins[variable.name] = name
    return work.stand_ins[variable.name]
