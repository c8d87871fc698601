"""Graph, module, graph: equal but for IDENTITY, and for equal constants, which become one."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest
from oracle.legal_graphs import ROW_IDS, ROWS, legal_graph
from paths import CORPUS, DATA
from reference.growth import grow
from spirv_graphs import complete, without_identities

import tosajax
from tosajax import DType, spec
from tosajax.graph import DYNAMIC, Graph, Node, Tensor
from tosajax.graph.alike import difference
from tosajax.io import spirv
from tosajax.report import UnsupportedError
from tosajax.versions import V1_0

_MXFP = "et_digits_vit_mxfp8_e4m3"  # of TOSA 1.1


def _assert_survives(graph: Graph) -> None:
    again = spirv.read(*spirv.to_bytes(graph))
    assert difference(without_identities(graph), again) is None


def _legal(operator: spec.Operator, row: spec.TypeRow) -> Graph:
    changes = {}
    if operator.name == "TABLE":  # the table has to be constant
        size, dtype = row.types["TABLE_SIZE"], row.types["in_t"]
        assert isinstance(dtype, DType)
        assert isinstance(size, int)
        changes["table"] = np.arange(size).astype(dtype.storage)
    return complete(legal_graph(operator, row, **changes))


@pytest.mark.parametrize(("operator", "row"), ROWS, ids=ROW_IDS)
def test_every_row(operator, row):
    graph = _legal(operator, row)
    refused = None
    if operator.name == "CONST_SHAPE":
        refused = "SPIR-V has no graph without outputs"
    elif any(tensor.dtype is DType.INT4 for tensor in graph.tensors.values()):
        refused = "SPIR-V has no tensors of INT4"
    elif operator.since > V1_0:
        refused = f"{operator.name} .* needs TOSA {operator.since}: the instruction set"
    if refused is None:
        _assert_survives(graph)
        return
    with pytest.raises(UnsupportedError, match=refused):
        spirv.to_bytes(graph)


@pytest.mark.parametrize("count", [60, pytest.param(2000, marks=pytest.mark.slow)])
def test_grown_graphs(count):
    """Random graphs of up to twelve operators; most of those refused have operands to choose."""
    survived = 0
    for seed in range(count):
        graph = complete(grow(random.Random(f"spirv/{seed}")).graph)
        refused = _refusal(graph)
        if not refused:
            _assert_survives(graph)
            survived += 1
        elif not any(why in refused for why in ("EXT-DYNAMIC", "rank 0", "INT4", "TOSA 1.1")):
            raise AssertionError(refused)
    assert survived > count // 2


def _refusal(graph: Graph) -> str:
    """Why no module can hold a graph, "" where one can."""
    try:
        spirv.to_bytes(graph)
    except UnsupportedError as error:
        return str(error)
    return ""


def _models() -> list:
    paths = [*CORPUS.glob("*/*.tosa"), *DATA.glob("*/*.tosa")]
    found = {(p.parent.name, p.stem): p for p in paths if p.parent.name != _MXFP}
    skip = pytest.mark.skip(reason=f"no models in tests/data, nor in {CORPUS}")
    return [
        pytest.param(path, id=f"{folder}-{stem}") for (folder, stem), path in sorted(found.items())
    ] or [pytest.param(None, marks=skip)]


@pytest.mark.parametrize("path", _models())
def test_model(path):
    graph = tosajax.load(path)
    if graph.is_dynamic:
        assert "tensors with some open dimensions" in _refusal(graph)
    else:
        _assert_survives(graph)


# Constants.


def _constant(values: np.ndarray, dtype: DType) -> Graph:
    tensors = {"c": Tensor("c", dtype, values.shape, values)}
    return Graph((), ("c",), tensors, (Node("CONST", (), ("c",)),))


def _kept(values: np.ndarray, dtype: DType) -> tuple[bool, Graph]:
    """Whether the data of a constant is in the module, and the graph that is read again."""
    content, outside = spirv.to_bytes(_constant(values, dtype))
    return not outside, spirv.read(content, outside)


def _extremes(dtype: DType, count: int) -> np.ndarray:
    """Random bits, with the extremes first."""
    rng = np.random.default_rng(count)
    if dtype is DType.BOOL:
        return np.arange(count) % 3 == 0
    if dtype.is_integer:
        values = rng.integers(dtype.minimum, dtype.maximum, count, np.int64, endpoint=True)
        values[:3] = (dtype.minimum, dtype.maximum, -1)[:count]
        return values.astype(dtype.storage)
    bits = rng.integers(0, 256, (count, dtype.storage.itemsize), np.uint8)
    return bits.view(dtype.storage)[:, 0]


_DTYPES = [dtype for dtype in DType if dtype not in (DType.INT4, DType.SHAPE)]


@pytest.mark.parametrize("dtype", _DTYPES, ids=lambda dtype: dtype.name)
def test_constants(dtype):
    """In the module: lists of up to 16 elements, equal elements, zeros. Others are outside."""
    for shape, is_inside in {
        (1,): True,
        (2,): True,
        (16,): True,
        (17,): False,
        (2, 2): False,
        (3, 1, 5): False,
    }.items():
        values = _extremes(dtype, int(np.prod(shape))).reshape(shape)
        found = _kept(values, dtype)
        assert (shape, found[0]) == (shape, is_inside)
        assert found[1] == _constant(values, dtype)


@pytest.mark.parametrize("dtype", _DTYPES, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("shape", [(1,), (17,), (2, 3, 4), (1, 1), (1000, 1000)], ids=str)
def test_equal_elements_are_in_the_module(dtype, shape):
    for element in (0, 1, -1):
        if dtype is DType.BOOL and element < 0:
            continue
        values = np.full(shape, element).astype(dtype.storage)
        is_inside, again = _kept(values, dtype)
        assert is_inside
        assert again == _constant(values, dtype)


@pytest.mark.parametrize("dtype", [d for d in _DTYPES if d.is_float], ids=lambda d: d.name)
def test_negative_zeros_and_nans(dtype):
    """Elements count by their bits: a negative zero is not a zero."""
    zero = np.zeros(3, dtype.storage)
    bits = f"u{zero.itemsize}"
    for values in (-zero, np.array([0.0, -0.0, 0.0]).astype(dtype.storage), ~zero.view(bits)):
        for shape in ((3,), (3, 1)):
            wanted = values.view(dtype.storage).reshape(shape)
            assert _kept(wanted, dtype)[1] == _constant(wanted, dtype)


def test_equal_constants_become_one():
    values = np.arange(40, dtype=np.int32).reshape(2, 20)
    tensors = {name: Tensor(name, DType.INT32, (2, 20), values) for name in "ab"}
    tensors["c"] = Tensor("c", DType.INT32, (40,), values.reshape(40))
    nodes = tuple(Node("CONST", (), (name,)) for name in tensors)
    graph = Graph((), tuple(tensors), tensors, nodes)
    content, outside = spirv.to_bytes(graph)
    assert [x.shape for x in outside.values()] == [(2, 20), (40,)]
    again = spirv.read(content, outside)
    assert again.outputs == ("a", "a", "c")
    assert difference(graph, again) is None


# Ends, shapes, names, locations.


@pytest.mark.parametrize(
    "shape", [None, (DYNAMIC,), (DYNAMIC,) * 4, (2**32 - 1,), (1,) * 32], ids=str
)
def test_declared_shapes(shape):
    tensors = {name: Tensor(name, DType.FP32, shape) for name in "xy"}
    graph = Graph(("x",), ("y", "x", "y"), tensors, (Node("ABS", ("x",), ("y",)),))
    assert spirv.read(*spirv.to_bytes(graph)) == graph


def test_names_and_locations():
    names = ["ü→\U0001f600", 'quote " back \\', "line\nbreak\t", " ", "input_0", "x" * 100_000]
    tensors = {name: Tensor(name, DType.FP32, (1,)) for name in names}
    places = [None, "layer/ü", "layer/ü", "b" * 1000, None]
    nodes = [
        Node("ABS", (a,), (b,), location=place)
        for (a, b), place in zip(itertools.pairwise(names), places, strict=True)
    ]
    graph = Graph((names[0],), (names[-1],), tensors, tuple(nodes), name="main → 主")
    again = spirv.read(*spirv.to_bytes(graph))
    assert again == graph
    assert again.name == graph.name


def test_nodes_in_any_order():
    tensors = {name: Tensor(name, DType.FP32, (1,)) for name in "xyz"}
    nodes = Node("ABS", ("y",), ("z",)), Node("CEIL", ("x",), ("y",))
    graph = Graph(("x",), ("z",), tensors, nodes)
    assert spirv.read(*spirv.to_bytes(graph)).nodes == nodes[::-1]


def test_inputs_that_nothing_reads():
    tensors = {name: Tensor(name, DType.INT8, (3,)) for name in "xyz"}
    graph = Graph(("x", "y", "z"), ("y",), tensors, ())
    assert spirv.read(*spirv.to_bytes(graph)) == graph


def test_chain_of_identities():
    tensors = {name: Tensor(name, DType.INT8, (3,)) for name in "xabc"}
    values = np.array([1, 2, 3], np.int8)
    tensors |= {name: Tensor(name, DType.INT8, (3,), values) for name in "k"}
    tensors["l"] = Tensor("l", DType.INT8, (3,))
    pairs = [("x", "a"), ("a", "b"), ("k", "l")]
    nodes = [Node("CONST", (), ("k",)), *(Node("IDENTITY", (a,), (b,)) for a, b in pairs)]
    graph = Graph(("x",), ("b", "l", "k"), tensors, tuple(nodes))
    again = spirv.read(*spirv.to_bytes(graph))
    assert again.outputs == ("x", "k", "k")
    assert [n.op for n in again.nodes] == ["CONST"]
