"""Rules of variables: the shape of a read. Labels have their tests in test_variables."""

from __future__ import annotations

import pytest

from tosajax.checks import RULES, Call, Surroundings
from tosajax.dtypes import DType
from tosajax.graph import Node, Tensor


def shapes(name: str) -> tuple[tuple[int, ...], ...]:
    """Those that VARIABLE_READ gives in a program of two variables."""
    node = Node("VARIABLE_READ", outputs=("y",), attributes={"name": name})
    declared = (Tensor("v", DType.INT8, (2, 3)), Tensor("w", DType.FP32, (4,)))
    around = Surroundings(variables={tensor.name: (tensor,) for tensor in declared})
    rule = RULES["VARIABLE_READ"].shape
    assert rule is not None
    return rule(Call(node, {"y": Tensor("y", DType.INT8, None)}, around))


def test_shape():
    assert shapes("v") == ((2, 3),)
    assert shapes("w") == ((4,),)


def test_no_shape():
    with pytest.raises(ValueError, match="no VARIABLE declares 'lost'"):
        shapes("lost")
