"""Element types of results, inputs and accumulators, by the type rows of an operator."""

from __future__ import annotations

import numpy as np

from tosajax.dtypes import DType
from tosajax.spec import OPERATORS


def check_result_type(op: str, found: np.dtype) -> None:
    """Refuses a result of a type that no row of the operator gives its outputs.

    Raises:
      TypeError: naming the operator, the type found and those wanted.
    """
    operator = OPERATORS[op]
    types = {row.type_of(output) for row in operator.types for output in operator.outputs}
    wanted = {dtype.storage for dtype in types if dtype is not None}
    if op == "RESCALE":  # unsigned results may come in unsigned types
        wanted |= {np.dtype(np.uint8), np.dtype(np.uint16)}
    if found not in wanted:
        names = ", ".join(sorted(w.name for w in wanted))
        raise TypeError(f"{op}: result of {found.name}, expected {names}")


def float_type(dtype: np.dtype) -> DType:
    """The element type that a NumPy float type holds.

    Raises:
      TypeError: it holds none.
    """
    for candidate in DType:
        if candidate.is_float and candidate.storage == dtype:
            return candidate
    raise TypeError(f"{dtype.name} is not a float type of TOSA")


def the_type(op: str, variable: str, **known: DType | None) -> DType:
    """The one type that an operator's rows give a type variable, where others are known.

    Args:
      op: name of the operator.
      variable: "in_t", "out_t" or "acc_t". The first two are "in_out_t" where an operator has one
        type for both, "in_t" is that of the first input where inputs have two, and "acc_t" is the
        output's type where it has no accumulator.
      **known: types of other variables, None where unknown.

    Raises:
      TypeError: there is no such row.
      ValueError: the rows leave a choice.
    """
    rows = [_variables(row.types) for row in OPERATORS[op].types]
    given = {name: dtype for name, dtype in known.items() if dtype is not None}
    fitting = {row[variable] for row in rows if given.items() <= row.items()}
    shown = ", ".join(f"{name} {dtype.name}" for name, dtype in given.items())
    if not fitting:
        raise TypeError(f"{op} has no row of types with {shown}")
    if len(fitting) > 1:
        names = ", ".join(sorted(dtype.name for dtype in fitting))
        raise ValueError(f"{op} of {shown}: {variable} may be {names}, say which")
    return fitting.pop()


def _variables(types: dict[str, DType | int]) -> dict[str, DType]:
    """A row of types by the names in_t, out_t and acc_t."""
    row = {name: dtype for name, dtype in types.items() if isinstance(dtype, DType)}
    both = row.get("in_out_t")
    found = {"in_t": row.get("in_t", row.get("a_t", both)), "out_t": row.get("out_t", both)}
    found["acc_t"] = row.get("acc_t", found["out_t"])
    return {name: dtype for name, dtype in found.items() if dtype is not None}
