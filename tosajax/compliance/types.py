"""Element types of results, inputs and accumulators, from the type rows of an operator."""

from __future__ import annotations

import numpy as np

from tosajax.dtypes import DType
from tosajax.spec import OPERATORS


def check_result_type(op: str, found: np.dtype) -> None:
    """Checks that a type row of the operator allows the type of a result.

    Raises:
      TypeError: no row allows it; the message has the type found and the types expected.
    """
    operator = OPERATORS[op]
    types = {row.type_of(output) for row in operator.types for output in operator.outputs}
    wanted = {dtype.storage for dtype in types if dtype is not None}
    if op == "RESCALE":  # unsigned results may have unsigned types
        wanted |= {np.dtype(np.uint8), np.dtype(np.uint16)}
    if found not in wanted:
        names = ", ".join(sorted(w.name for w in wanted))
        raise TypeError(f"{op}: result of {found.name}, expected {names}")


def float_type(dtype: np.dtype) -> DType:
    """The element type whose storage is a given NumPy float type.

    Raises:
      TypeError: no element type has this storage.
    """
    for candidate in DType:
        if candidate.is_float and candidate.block is None and candidate.storage == dtype:
            return candidate
    raise TypeError(f"{dtype.name} is not a float type of TOSA")


def the_type(op: str, variable: str, **known: DType | None) -> DType:
    """The type of a type variable in the operator's rows that match other known types.

    Args:
      op: the operator's name.
      variable: "in_t", "out_t" or "acc_t". If an operator has a single "in_out_t", "in_t" and
        "out_t" both mean it; if its inputs have two types, "in_t" is the first input's; if it has
        no accumulator, "acc_t" means the output type.
      **known: types of other variables, None if unknown.

    Raises:
      TypeError: no row matches.
      ValueError: the matching rows have several types.
    """
    rows = [_variables(row.types) for row in OPERATORS[op].types]
    fixed = {name: dtype for name, dtype in known.items() if dtype is not None}
    fitting = {row[variable] for row in rows if fixed.items() <= row.items()}
    shown = ", ".join(f"{name} {dtype.name}" for name, dtype in fixed.items())
    if not fitting:
        raise TypeError(f"{op} has no row of types with {shown}")
    if len(fitting) > 1:
        names = ", ".join(sorted(dtype.name for dtype in fitting))
        raise ValueError(f"{op} of {shown}: {variable} may be {names}, say which")
    return fitting.pop()


def _variables(types: dict[str, DType | int]) -> dict[str, DType]:
    """Normalizes a row of types to the variables in_t, out_t and acc_t."""
    row = {name: dtype for name, dtype in types.items() if isinstance(dtype, DType)}
    both = row.get("in_out_t")
    types_of = {"in_t": row.get("in_t", row.get("a_t", both)), "out_t": row.get("out_t", both)}
    types_of["acc_t"] = row.get("acc_t", types_of["out_t"])
    return {name: dtype for name, dtype in types_of.items() if dtype is not None}
