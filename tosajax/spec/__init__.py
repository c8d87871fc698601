"""The operator table of TOSA, the only place for facts about operators.

It has all operators of 1.0.1, and the operators of the draft of 1.1 that tosajax supports; the
column `since` has the version.
"""

from __future__ import annotations

from tosajax.arguments.names import near
from tosajax.spec import (
    activation,
    comparison,
    control_flow,
    conv,
    custom,
    data_layout,
    data_nodes,
    elementwise_binary,
    elementwise_ternary,
    elementwise_unary,
    fft,
    image,
    indices,
    pool,
    products,
    reduction,
    scatter_gather,
    shape,
    type_conversion,
    variable,
)
from tosajax.spec.enums import (
    REQUIRED_EXTENSION,
    AccType,
    NanMode,
    ResizeMode,
    RoundingMode,
    VarType,
)
from tosajax.spec.levels import EXTENSIONS, LEVELS, PROFILES, Level
from tosajax.spec.model import (
    EXACT,
    MAX_RANK,
    REQUIRED,
    Accuracy,
    Argument,
    Form,
    Kind,
    LevelBound,
    Operator,
    Rank,
    TypeRow,
)

_CHAPTERS = (
    indices,
    pool,
    conv,
    fft,
    products,
    activation,
    elementwise_binary,
    elementwise_unary,
    elementwise_ternary,
    comparison,
    reduction,
    data_layout,
    scatter_gather,
    image,
    type_conversion,
    data_nodes,
    custom,
    control_flow,
    variable,
    shape,
)

SPECIFICATION_VERSION = (1, 0, 1)

OPERATORS: dict[str, Operator] = {
    operator.name: operator for chapter in _CHAPTERS for operator in chapter.OPERATORS
}

# The operators whose outputs are known at compile time.
CONSTANT_OPERATORS = tuple(
    operator.name for operator in OPERATORS.values() if any(a.constant_in for a in operator.outputs)
)


def operator_named(name: str) -> Operator:
    """Looks up an operator by name.

    Raises:
      ValueError: TOSA has no operator of that name.
    """
    if name not in OPERATORS:
        version = ".".join(map(str, SPECIFICATION_VERSION[:2]))
        similar = near(name.upper(), OPERATORS)
        raise ValueError(f"{name!r} is not an operator of TOSA {version}{similar}")
    return OPERATORS[name]


__all__ = [
    "CONSTANT_OPERATORS",
    "EXACT",
    "EXTENSIONS",
    "LEVELS",
    "MAX_RANK",
    "OPERATORS",
    "PROFILES",
    "REQUIRED",
    "REQUIRED_EXTENSION",
    "SPECIFICATION_VERSION",
    "AccType",
    "Accuracy",
    "Argument",
    "Form",
    "Kind",
    "Level",
    "LevelBound",
    "NanMode",
    "Operator",
    "Rank",
    "ResizeMode",
    "RoundingMode",
    "TypeRow",
    "VarType",
    "operator_named",
]


def __dir__() -> list[str]:
    return __all__
