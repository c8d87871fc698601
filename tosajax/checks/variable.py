"""Rules of "Variable Operators" (TOSA 1.0.1).

A VARIABLE counts as declared before any node runs, wherever it is in the program.
"""

from __future__ import annotations

from collections.abc import Iterator

from tosajax.checks._common import Shapes
from tosajax.checks.call import Call, Problem
from tosajax.graph import Tensor


def variable_errors(c: Call) -> Iterator[Problem]:
    """Checks that the attributes agree with the variable's tensor."""
    for tensor in c.around.variables.get(c.name, ()):
        if tensor.dtype is not c.type.dtype:
            yield c.problem("attributes", f"type is {c.type.name}, the variable is {tensor}")
        if tensor.shape != c.var_shape:
            yield c.problem("attributes", f"var_shape is {c.var_shape}, the variable is {tensor}")


def variable_undefined(c: Call) -> Iterator[Problem]:
    """Checks that the variable's name is declared once."""
    count = len(c.around.variables.get(c.name, ()))
    if count > 1:
        yield c.problem("r3", f"variable {c.name!r} is declared {count} times, expected once")


def variable_write_undefined(c: Call) -> Iterator[Problem]:
    return _access(c, "input1", ("r1", "r3", "r4"))


def variable_read_shape(c: Call) -> Shapes:
    return (_variable(c).shape or (),)


def variable_read_undefined(c: Call) -> Iterator[Problem]:
    return _access(c, "output1", ("r1", "r3", "r4"))


def _access(c: Call, name: str, rules: tuple[str, str, str]) -> Iterator[Problem]:
    """Checks that the variable is declared, with the shape and type of the tensor."""
    declared, shape, dtype = rules
    tensor = getattr(c, name)
    try:
        variable = _variable(c)
    except ValueError as error:
        yield c.problem(declared, str(error))
        return
    if tensor.shape != variable.shape:
        message = f"{name} has shape {tensor.shape}"
        yield c.problem(shape, f"{message}, expected {variable.shape}, that of variable {c.name!r}")
    if tensor.dtype is not variable.dtype:
        message = f"{name} is {tensor.dtype.name}"
        yield c.problem(dtype, f"{message}, expected {variable.dtype.name} as variable {c.name!r}")


def _variable(c: Call) -> Tensor:
    """The variable that a node reads or writes.

    Raises:
      ValueError: the program does not declare it.
    """
    for tensor in c.around.variables.get(c.name, ()):
        return tensor
    raise ValueError(f"no VARIABLE declares {c.name!r}")
