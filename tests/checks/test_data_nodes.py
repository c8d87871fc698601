"""Rules of CONST and IDENTITY: shapes."""

from __future__ import annotations

import numpy as np
import pytest

from tosajax.builder import Builder
from tosajax.checks import RULES, Call
from tosajax.dtypes import DType
from tosajax.graph import Node, Tensor

LEGAL = {"IDENTITY": {"input1": (2, 3), "output": (2, 3)}}


@pytest.mark.parametrize("shape", [(), (4,), (1, 2, 3, 4)], ids=str)
def test_shape(derived, shape):
    assert derived("IDENTITY", {"input1": shape}) == shape


@pytest.mark.parametrize("shape", [(), (4,), (1, 2, 3, 4)], ids=str)
@pytest.mark.parametrize("dtype", [DType.INT8, DType.INT48, DType.FP8E4M3])
def test_const_shape(shape, dtype):
    b = Builder()
    graph = b.graph(outputs=[b.const(np.zeros(shape), dtype)])
    rule = RULES["CONST"].shape
    assert rule is not None
    assert rule(Call(graph.nodes[0], graph.tensors)) == (shape,)


def test_const_shape_is_that_of_its_values():
    rule = RULES["CONST"].shape
    assert rule is not None
    tensor = Tensor("c", DType.INT8, None, np.zeros((2, 3), np.int8))
    assert rule(Call(Node("CONST", outputs=("c",)), {"c": tensor})) == ((2, 3),)


def test_no_shape():
    rule = RULES["CONST"].shape
    assert rule is not None
    with pytest.raises(ValueError, match="no values"):
        rule(Call(Node("CONST", outputs=("c",)), {"c": Tensor("c", DType.INT8, (2,))}))
