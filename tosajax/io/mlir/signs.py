"""Detects whether a function uses the dialect before TOSA 1.0, from features of its operations.

LLVM preserves attributes that an operation does not define. So an operation of 1.0 may have
attributes of the old dialect, left by rewrites; an operation counts as 1.0 if it has all operands
and attributes of 1.0.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tosajax import spec
from tosajax.io import schema
from tosajax.io.mlir import old_properties
from tosajax.io.mlir.tree import Operation, Region
from tosajax.report import UnsupportedError
from tosajax.spec import REQUIRED, Form, Operator

# Operators of TOSA 1.1 in the dialect; ARGMIN is not in files.
DRAFT_OPERATORS = (*schema.DRAFT_OPERATORS, "ARGMIN")
# Operations and attributes that only the dialect before 1.0 has.
_OLD_OPERATIONS = (
    "tosa.fully_connected",
    "tosa.int_div",
    "tosa.reduce_prod",
    "tosa.variable.read",
    "tosa.variable.write",
)
_OLD_ATTRIBUTES = (
    *("quantization_info", "value", "new_shape", "start", "size", "multiples", "out_shape"),
    *("min_int", "max_int", "min_fp", "max_fp", "double_round", "multiplier", "shift"),
    *("input_zp", "output_zp", "identifier", "config"),
)
# Attributes that only the dialect of 1.0 has. The `values` of constants is not one of them: modules
# between the two versions also have it.
_NEW_ATTRIBUTES = ("perms", "min_val", "max_val", "rounding_mode")


class Signs(NamedTuple):
    """Descriptions of operations that only one of the two dialects has.

    Args:
      old: operations of the dialect before TOSA 1.0.
      new: operations of the dialect of TOSA 1.0.
    """

    old: Sequence[str]
    new: Sequence[str]

    def __bool__(self) -> bool:
        return bool(self.old or self.new)

    @property
    def is_old(self) -> bool:
        """Whether the dialect is older than TOSA 1.0; without any sign, it is TOSA 1.0's.

        Raises:
          UnsupportedError: there are signs of both.
        """
        if self.old and self.new:
            sides = (("before TOSA 1.0", self.old), ("of TOSA 1.0", self.new))
            counts = " and ".join(f"{len(s)} of the dialect {which} ({s[0]})" for which, s in sides)
            raise UnsupportedError(f"operations of two dialects are mixed: {counts}")
        return bool(self.old)


def signs_of(operations: Iterable[Operation]) -> Signs:
    """Collects the signs of operations, including operations in their regions."""
    tosa = [op for op in Region((), tuple(operations)).walk() if op.name.startswith("tosa.")]
    old = [(op, _old_sign(op)) for op in tosa]
    new = [(op, _new_sign(op)) for op in tosa]
    return Signs(*([f"{op.title}{why}" for op, why in s if why is not None] for s in (old, new)))


def left_over(operation: Operation) -> list[str]:
    """The attributes of a 1.0 operation that only the dialect before 1.0 reads."""
    operator = spec.OPERATORS.get(operation.name.removeprefix("tosa.").upper())
    if operator is None or not _is_whole(operation, operator):
        return []
    own = [argument.name for argument in operator.attributes]
    names = old_properties.names(operation.name)
    return [name for name in operation.attributes if name in names and name not in own]


def _old_sign(operation: Operation) -> str | None:
    """The feature that only the dialect before 1.0 has; "" for the operation's name, or None."""
    if operation.name in _OLD_OPERATIONS:
        return ""
    operator = spec.OPERATORS.get(operation.name.removeprefix("tosa.").upper())
    if operator is not None and _is_whole(operation, operator):
        return None
    if names := [name for name in operation.attributes if name in _OLD_ATTRIBUTES]:
        return f" with {', '.join(names)}"
    if operator is None or any(a.form is Form.TENSOR_LIST for a in operator.inputs):
        return None
    types = [operand.type for operand in operation.operands]
    if operator.name == "TRANSPOSE" and "perms" not in operation.attributes:
        return " without perms"
    if operator.name == "PAD" and not all(t.startswith("!tosa.shape") for t in types[1:2]):
        return f" with a padding of {types[1]}"
    count, wanted = len(types), len(operator.inputs)
    return f" with {count} of {wanted} operands" if 0 < count < wanted else None


def _new_sign(operation: Operation) -> str | None:
    """The feature that only the dialect of 1.0 has; "" for the operation's name, or None."""
    name = operation.name.removeprefix("tosa.").upper()
    operator = spec.OPERATORS.get(name)
    if operator is None:
        return "" if name in DRAFT_OPERATORS else None
    try:
        most = old_properties.counts(operation.name).operands[1]
    except UnsupportedError:
        return ""
    if names := [name for name in operation.attributes if name in _NEW_ATTRIBUTES]:
        return f" with {', '.join(names)}"
    # Shapes became operands earlier than other attributes, so they are not a sign.
    takes_shapes = any(argument.form is Form.SHAPE for argument in operator.inputs)
    count = len(operation.operands)
    return f" with {count} operands" if count > most and not takes_shapes else None


def _is_whole(operation: Operation, operator: Operator) -> bool:
    """Whether an operation has all operands and required attributes of the operator in 1.0."""
    wanted = (a for a in operator.attributes if a.default is REQUIRED and a.form is not Form.GRAPH)
    if any(argument.name not in operation.attributes for argument in wanted):
        return False
    if any(argument.form is Form.TENSOR_LIST for argument in operator.inputs):
        return True
    pairs = zip(operator.inputs, operation.operands, strict=False)
    return len(operation.operands) == len(operator.inputs) and all(
        argument.form is not Form.SHAPE or operand.type.startswith("!tosa.shape")
        for argument, operand in pairs
    )
