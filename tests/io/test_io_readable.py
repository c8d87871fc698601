"""What `save` writes, `load` reads; the rest is refused as it is saved, by name."""

from __future__ import annotations

import dataclasses
import importlib.util

import numpy as np
import pytest

import tosajax
from tosajax import DType
from tosajax.graph import Graph, Node, Tensor
from tosajax.report import UnsupportedError
from tosajax.spec import VarType

_SUFFIXES = [".tosa", ".json", ".spv", *([".mlir"] if importlib.util.find_spec("xdsl") else [])]
_HALF = "\ud800"  # of a surrogate pair


def _tensor(name, shape=(2,), dtype=DType.INT8, values=None, variable=None) -> Tensor:
    return Tensor(name, dtype, shape, values, variable)


def _graph(inputs, outputs, tensors, nodes, name="main") -> Graph:
    named = {tensor.name: tensor for tensor in tensors}
    return Graph(tuple(inputs), tuple(outputs), named, tuple(nodes), name=name)


def _copy(name="a", shape=(2,), location=None, graph="main") -> Graph:
    node = Node("IDENTITY", (name,), ("b",), location=location)
    return _graph([name], ["b"], [_tensor(name, shape), _tensor("b", shape)], [node], graph)


def _pool(kernel: int) -> Graph:
    window = {"kernel": (kernel, 1), "stride": (1, 1), "pad": (0, 0, 0, 0)}
    tensors = [_tensor(n, (1, 4, 4, 1), DType.FP32) for n in "ab"]
    return _graph("a", "b", tensors, [Node("MAX_POOL2D", ("a",), ("b",), window)])


def _sum(axis: int) -> Graph:
    node = Node("REDUCE_SUM", ("a",), ("b",), {"axis": axis})
    return _graph("a", "b", [_tensor("a", (4,)), _tensor("b", (1,))], [node])


def _reshape(size: int) -> Graph:
    tensors = [_tensor("a"), _tensor("b"), _tensor("s", (1,), DType.SHAPE, np.array([size]))]
    nodes = [Node("CONST_SHAPE", (), ("s",)), Node("RESHAPE", ("a", "s"), ("b",))]
    return _graph("a", "b", tensors, nodes)


def _variable(tensor: Tensor, *nodes: Node, outputs=(), others=()) -> Graph:
    attributes = {"name": tensor.variable, "var_shape": (2,), "type": VarType.of(DType.INT8)}
    declaration = Node("VARIABLE", (), (tensor.name,), attributes)
    return _graph((), outputs, [tensor, *others], [declaration, *nodes])


def _constant(op="CONST", **kinds) -> Graph:
    return _graph((), (), [_tensor("c", **kinds)], [Node(op, (), ("c",))])


def _condition() -> Graph:
    node = Node("COND_IF", ("a",), ("b",), {"then_graph": "t", "else_graph": "e"})
    return _graph("a", "b", [_tensor("a", (), DType.BOOL), _tensor("b")], [node])


def _custom(name: str) -> Graph:
    words = {"operator_name": name, "domain_name": "", "implementation_attrs": b""}
    node = Node("CUSTOM", ("a",), ("b",), words)
    return dataclasses.replace(_copy(), nodes=(node,))


def _clamp(bound: int) -> Graph:
    node = Node("CLAMP", ("a",), ("b",), {"min_val": -bound, "max_val": bound})
    return dataclasses.replace(_copy(), nodes=(node,))


_ENDS = [2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**63 - 1, 2**63, 2**64, -(2**31), -(2**31) - 1]
_STATE = _tensor("v", variable="v")
_GRAPHS = {
    **{f"dimension-{n}": _copy(shape=(n, 2)) for n in (*_ENDS, 0, -1, -5)},
    **{f"kernel-{n}": _pool(n) for n in _ENDS},
    **{f"axis-{n}": _sum(n) for n in _ENDS},
    **{f"shape-{n}": _reshape(n) for n in _ENDS if -(2**63) <= n < 2**63},
    **{f"variable-{n}": _variable(_tensor("v", (n,), variable="v")) for n in _ENDS},
    **{f"rank-{n}": _copy(shape=(1,) * n) for n in (64, 65)},
    "graph-without-name": _copy(graph=""),
    "graph-not-unicode": _copy(graph=_HALF),
    "tensor-without-name": _copy(""),
    "tensor-not-unicode": _copy(_HALF),
    "location-not-unicode": _copy(location=_HALF),
    "custom-not-unicode": _custom(_HALF),
    "undeclared-input": dataclasses.replace(_copy(), inputs=("x",)),
    "undeclared-output": dataclasses.replace(_copy(), outputs=("x",)),
    "constant-without-values": _constant(),
    "constant-without-rank": _constant(shape=None),
    "constant-of-open-shape": _constant(shape=(-1,)),
    "shape-without-values": _constant("CONST_SHAPE", shape=(1,), dtype=DType.SHAPE),
    "shape-of-open-length": _graph("s", (), [_tensor("s", (-1,), DType.SHAPE)], ()),
    "variable-without-name": _variable(_tensor("v", variable="")),
    "variable-without-rank": _variable(_tensor("v", None, variable="v")),
    "variable-of-int4": _variable(_tensor("v", dtype=DType.INT4, variable="v")),
    "variable-of-two-tensors": _variable(_STATE, others=[_tensor("w", variable="v")]),
    "variable-as-output": _variable(_STATE, outputs="v"),
    "variable-read-by-identity": _variable(
        _STATE, Node("IDENTITY", ("v",), ("b",)), outputs="b", others=[_tensor("b")]
    ),
    "variable-not-declared": dataclasses.replace(
        _copy(), nodes=(Node("VARIABLE_READ", (), ("b",), {"name": "v"}),)
    ),
    "subgraph-not-there": _condition(),
    "bound-beyond-its-type": _clamp(1000),
}


@pytest.mark.parametrize("suffix", _SUFFIXES)
@pytest.mark.parametrize("name", _GRAPHS)
def test_what_is_written_is_read(name, suffix, tmp_path):
    graph, path = _GRAPHS[name], tmp_path / f"x{suffix}"
    try:
        tosajax.save(graph, path)
    except UnicodeError:
        raise
    except (ValueError, UnsupportedError):
        assert not path.exists()
        return
    again = tosajax.load(path)
    kept = ("dimension", "kernel", "axis", "rank") if suffix != ".spv" else ()
    if name.startswith(kept):
        assert {n: t.shape for n, t in again.tensors.items()} == {
            n: t.shape for n, t in graph.tensors.items()
        }
        for mine, read in zip(graph.nodes, again.nodes, strict=True):
            assert read.attributes.items() >= mine.attributes.items()


_INT32 = "is beyond int32, the integers of TOSA files"


@pytest.mark.parametrize("suffix", [".tosa", ".json"])
@pytest.mark.parametrize(
    ("name", "message"),
    {
        "dimension-2147483648": rf"tensor 'a' is INT8\[2147483648,2\]: 2147483648 {_INT32}",
        "dimension--2147483649": rf"tensor 'a' is INT8\[\?,2\]: -2147483649 {_INT32}",
        "variable-2147483648": rf"tensor 'v' is INT8\[2147483648\]: 2147483648 {_INT32}",
        "axis-2147483648": rf"REDUCE_SUM 'b': axis is 2147483648: 2147483648 {_INT32}",
        "kernel-2147483648": rf"MAX_POOL2D 'b': kernel is \(2147483648, 1\): 2147483648 {_INT32}",
        "shape-of-open-length": r"shape 's' is SHAPE\[\?\], expected a list of known length",
        "constant-without-values": "no file can hold the graph: region 'main': tensor 'c': 0 bytes",
        "undeclared-output": "graph outputs: tensor 'x' is not declared",
        "variable-of-two-tensors": "variable 'v' has two tensors in 'main'",
        "graph-not-unicode": "ud800' has half of a surrogate pair",
    }.items(),
)
def test_the_error_names_what_does_not_fit(name, message, suffix, tmp_path):
    with pytest.raises(ValueError, match=message):
        tosajax.save(_GRAPHS[name], tmp_path / f"x{suffix}")


def test_bytes_are_checked_as_files_are():
    for name in ("dimension-2147483648", "undeclared-input", "tensor-not-unicode"):
        with pytest.raises(ValueError, match=r"beyond int32|not declared|surrogate"):
            tosajax.io.to_bytes(_GRAPHS[name])
