"""Rules of CONST_SHAPE: its shape."""

from __future__ import annotations

import pytest

from tosajax.builder import Builder
from tosajax.checks import RULES, Call
from tosajax.dtypes import DType
from tosajax.graph import Node, Tensor

LEGAL = {}


@pytest.mark.parametrize("values", [[], [4], [1, 2, 3]], ids=str)
def test_shape(values):
    b = Builder()
    graph = b.graph(outputs=[b.const_shape(values)])
    rule = RULES["CONST_SHAPE"].shape
    assert rule is not None
    assert rule(Call(graph.nodes[0], graph.tensors)) == ((len(values),),)


def test_no_shape():
    rule = RULES["CONST_SHAPE"].shape
    assert rule is not None
    with pytest.raises(ValueError, match="no values"):
        rule(Call(Node("CONST_SHAPE", outputs=("c",)), {"c": Tensor("c", DType.SHAPE, (2,))}))
