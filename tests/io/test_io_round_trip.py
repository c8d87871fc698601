"""Writing, then reading, gives an equal graph."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path

import numpy as np
import pytest
from paths import CORPUS, DATA

from tosajax import io, spec
from tosajax.dtypes import DType
from tosajax.graph import Graph, Node, Tensor

_MXFP = "et_digits_vit_mxfp8_e4m3"  # of TOSA 1.1


def _models() -> list:
    # The corpus has the models of tests/data again, which take their place.
    paths = [*CORPUS.glob("*/*.tosa"), *DATA.glob("*/*.tosa")]
    found = {(path.parent.name, path.stem): path for path in paths}
    if not found:
        skip = pytest.mark.skip(reason=f"no models in tests/data, nor in {CORPUS}")
        return [pytest.param(None, marks=skip)]
    return [
        pytest.param(path, id=f"{folder}-{stem}")
        for (folder, stem), path in sorted(found.items())
        if folder != _MXFP
    ]


def _round_trips(graph: Graph, folder: Path) -> list[Graph]:
    paths = [folder / "graph.tosa", folder / "graph.json"]
    for path in paths:
        io.save(graph, path)
    return [io.load(path) for path in paths]


def _constant(values: np.ndarray, dtype: DType) -> Graph:
    op = "CONST_SHAPE" if dtype is DType.SHAPE else "CONST"
    return Graph(
        (), ("c",), {"c": Tensor("c", dtype, values.shape, values)}, (Node(op, (), ("c",)),)
    )


def _values(dtype: DType, shape: tuple[int, ...]) -> np.ndarray:
    """Random bits, with the extremes first."""
    generator = np.random.default_rng(len(shape))
    if dtype is DType.BOOL:
        return generator.integers(0, 2, shape).astype(np.bool_)
    if dtype.is_integer:
        low = dtype.minimum - (dtype is DType.INT4)  # -8 is illegal, and files can hold it
        values = generator.integers(low, dtype.maximum, shape, np.int64, endpoint=True)
        values.flat[:2] = (low, dtype.maximum)[: values.size]
        return values.astype(dtype.storage)
    bits = generator.integers(0, 256, (*shape, dtype.storage.itemsize), np.uint8)
    return bits.view(dtype.storage)[..., 0]


@pytest.mark.parametrize("path", _models())
def test_model(path, tmp_path):
    graph = io.load(path)
    assert graph.nodes
    for again in _round_trips(graph, tmp_path):
        assert again == graph


def test_small_graph(small_graph, tmp_path):
    for again in _round_trips(small_graph, tmp_path):
        assert again == small_graph


@pytest.mark.parametrize("shape", [(), (1,), (3,), (5, 1, 3), (0,)], ids=str)
@pytest.mark.parametrize("dtype", [d for d in DType if d is not DType.SHAPE], ids=lambda d: d.name)
def test_constant(dtype, shape, tmp_path):
    values = np.empty(shape, dtype.storage) if 0 in shape else _values(dtype, shape)
    graph = _constant(values, dtype)
    for again in _round_trips(graph, tmp_path):
        assert again == graph
        found = again.tensors["c"].values
        assert found is not None
        assert found.dtype == dtype.storage


@pytest.mark.parametrize("values", [[], [7], [-1, 0, 1 << 40, -(1 << 63), (1 << 63) - 1]], ids=str)
def test_shape(values, tmp_path):
    graph = _constant(np.array(values, np.int64), DType.SHAPE)
    for again in _round_trips(graph, tmp_path):
        assert again == graph


@pytest.mark.parametrize(
    "shape", [None, (), (-1,), (-1, 8, -1), (2147483647,), (-2147483648, 0)], ids=str
)
def test_declared_shape(shape, tmp_path):
    graph = Graph(("x",), ("x",), {"x": Tensor("x", DType.FP32, shape)}, ())
    for again in _round_trips(graph, tmp_path):
        assert again == graph


def test_shape_that_is_not_constant(tmp_path):
    graph = Graph(("s",), (), {"s": Tensor("s", DType.SHAPE, (3,))}, ())
    for again in _round_trips(graph, tmp_path):
        assert again == graph


def test_names(tmp_path):
    names = ["ü→\U0001f600", 'quote " back \\', "line\nbreak\t\0end", " "]
    tensors = {name: Tensor(name, DType.FP32, (1,)) for name in names}
    nodes = [Node("ABS", (a,), (b,), location=a) for a, b in itertools.pairwise(names)]
    ends = (names[0],), (names[-1],)
    graph = Graph(*ends, tensors, tuple(nodes), name="main → 主")
    for again in _round_trips(graph, tmp_path):
        assert again == graph


def _bounds() -> list[DType]:
    return [d for d in DType if d.is_integer or d.is_float]


@pytest.mark.parametrize("dtype", _bounds(), ids=lambda d: d.name)
def test_clamp_bounds(dtype, tmp_path):
    low, high = _values(dtype, (2,))
    bounds = {"min_val": low, "max_val": high, "nan_mode": spec.NanMode.PROPAGATE}
    tensors = {name: Tensor(name, dtype, (1,)) for name in "xy"}
    graph = Graph(("x",), ("y",), tensors, (Node("CLAMP", ("x",), ("y",), bounds),))
    for again in _round_trips(graph, tmp_path):
        assert again == graph
        assert type(again.nodes[0].attributes["min_val"]) is dtype.storage.type


_VALUES = {int: -3, bool: True, str: "text"}


def _attribute(argument: spec.Argument):
    """A value that is not the default of an attribute's field."""
    if argument.form is spec.Form.LIST:
        return (-1, 2147483647)
    if argument.form is spec.Form.GRAPH:
        return f"sub {argument.name}"
    if argument.name == "implementation_attrs":
        return bytes(range(256))
    if argument.dtype is spec.AccType:
        return DType.INT48
    if isinstance(argument.dtype, str):
        return np.float32(-0.0)
    if argument.dtype in _VALUES:
        return _VALUES[argument.dtype]
    return list(argument.dtype)[-1]  # type: ignore[arg-type]


@pytest.mark.parametrize("op", [o for o in spec.OPERATORS if not o.startswith("VARIABLE")])
def test_operator(op, tmp_path):
    operator = spec.OPERATORS[op]
    stored = [a for a in operator.attributes if a.form is not spec.Form.VALUES]
    attributes = {a.name: _attribute(a) for a in stored}
    tensors = {name: Tensor(name, DType.FP32, (1,)) for name in "xyz"}
    empty = Graph((), (), {}, ())
    called = [str(attributes[a.name]) for a in stored if a.form is spec.Form.GRAPH]
    subgraphs = {name: dataclasses.replace(empty, name=name) for name in called}
    if op in ("CONST", "CONST_SHAPE"):
        values = np.array([1], np.int64)
        tensors["z"] = Tensor("z", DType.SHAPE if op == "CONST_SHAPE" else DType.INT8, (1,), values)
    nodes = (Node(op, ("x", "y"), ("z",), attributes),)
    graph = Graph(("x", "y"), ("z",), tensors, nodes, subgraphs)
    for again in _round_trips(graph, tmp_path):
        assert again == graph


def test_defaults_are_written(tmp_path):
    tensors = {name: Tensor(name, DType.FP32, (1,)) for name in "xy"}
    graph = Graph(("x",), ("y",), tensors, (Node("MAXIMUM", ("x", "x"), ("y",)),))
    for again in _round_trips(graph, tmp_path):
        assert dict(again.nodes[0].attributes) == {"nan_mode": spec.NanMode.PROPAGATE}


def _calls(name: str, *callees: str) -> Graph:
    """A graph of no use that refers to graphs."""
    tensors = {"flag": Tensor("flag", DType.BOOL, (1,))}
    nodes = tuple(
        Node("COND_IF", ("flag",), (), {"then_graph": callee, "else_graph": callee})
        for callee in callees
    )
    return Graph(("flag",), (), tensors, nodes, name=name)


def test_subgraphs_belong_to_the_graph_that_names_them(tmp_path):
    leaf = _calls("leaf")
    middle = dataclasses.replace(_calls("middle", "leaf"), subgraphs={"leaf": leaf})
    unnamed = _calls("unnamed")
    parts = {"middle": middle, "leaf": leaf, "unnamed": unnamed}
    graph = dataclasses.replace(_calls("main", "middle", "leaf"), subgraphs=parts)
    for again in _round_trips(graph, tmp_path):
        assert again == graph
        assert list(again.subgraphs["middle"].subgraphs) == ["leaf"]


def test_variable_without_initial_value(tmp_path):
    attributes = {"name": "v", "var_shape": (2,), "type": spec.VarType.BOOLEAN}
    tensors = {"v": Tensor("v", DType.BOOL, (2,), variable="v")}
    graph = Graph((), (), tensors, (Node("VARIABLE", (), ("v",), attributes),))
    for again in _round_trips(graph, tmp_path):
        assert again == graph


def test_variable_in_a_subgraph_is_declared_once(tmp_path):
    state = Tensor("state", DType.FP32, (1,), np.array([0.5]), "memory")
    declared = {"name": "memory", "var_shape": (1,), "type": spec.VarType.FP32}
    read = Node("VARIABLE_READ", (), ("r",), {"name": "memory"})
    inner = Graph((), ("r",), {"state": state, "r": Tensor("r", DType.FP32, (1,))}, (read,))
    inner = dataclasses.replace(inner, name="inner")
    graph = _calls("main", "inner")
    graph = dataclasses.replace(
        graph,
        tensors={**graph.tensors, "state": state},
        nodes=(Node("VARIABLE", (), ("state",), declared), *graph.nodes),
        subgraphs={"inner": inner},
    )
    for again in _round_trips(graph, tmp_path):
        assert again == graph


def test_writing_is_deterministic(small_graph):
    assert io.to_bytes(small_graph) == io.to_bytes(io.load(io.to_bytes(small_graph)))


def test_source(small_graph, tmp_path):
    binary, text = _round_trips(small_graph, tmp_path)
    assert (binary.source.format, text.source.format) == ("TOSA flatbuffer", "TOSA JSON")
    assert binary.source.version == text.source.version == "1.0.0"
    assert binary.source.producer == ""
