"""Writing MLIR text: reading it again gives an equal graph, and tosa-opt reads it as we do."""

from __future__ import annotations

import dataclasses
import itertools
import random

import numpy as np
import pytest
from oracle.legal_graphs import ROWS, legal_graph
from paths import CORPUS
from reference.growth import grow

from tosajax import io, spec
from tosajax.dtypes import DType
from tosajax.graph import Graph, Node, Tensor
from tosajax.graph.alike import difference
from tosajax.io import mlir

pytest.importorskip("xdsl")

_MXFP = "et_digits_vit_mxfp8_e4m3"  # of TOSA 1.1
_MODELS = sorted(path for path in CORPUS.glob("*/*.tosa") if path.parent.name != _MXFP)


def _again(graph: Graph) -> Graph:
    return mlir.read_text(mlir.to_text(graph))


def _complete(graph: Graph) -> Graph:
    """With the defaults of attributes, as files have them."""
    return io.load(io.to_bytes(graph))


def _constant(values: np.ndarray, dtype: DType) -> Graph:
    op = "CONST_SHAPE" if dtype is DType.SHAPE else "CONST"
    tensors = {"c": Tensor("c", dtype, values.shape, values)}
    return Graph((), ("c",), tensors, (Node(op, (), ("c",)),))


def _values(dtype: DType, shape: tuple[int, ...]) -> np.ndarray:
    """Random bits, with the extremes first: NaN of all payloads, -8 of int4."""
    generator = np.random.default_rng(len(shape))
    if dtype is DType.BOOL:
        return generator.integers(0, 2, shape).astype(np.bool_)
    if dtype.is_integer:
        low = dtype.minimum - (dtype is DType.INT4)
        values = generator.integers(low, dtype.maximum, shape, np.int64, endpoint=True)
        values.flat[:2] = (low, dtype.maximum)[: values.size]
        return values.astype(dtype.storage)
    bits = generator.integers(0, 256, (*shape, dtype.storage.itemsize), np.uint8)
    return bits.view(dtype.storage)[..., 0]


# Graphs.


def test_small_graph(small_graph):
    assert _again(small_graph) == small_graph


@pytest.mark.parametrize("name", ["allops", "extra", "types", "pre10_upgraded_to_1_0"])
def test_samples(name, sample):
    graph = mlir.read_text(sample(f"{name}.mlir"))
    again = _again(graph)
    assert again == graph
    assert again.source.version == "TOSA 1.0 dialect, generic form"


@pytest.mark.parametrize("path", _MODELS, ids=lambda p: f"{p.parent.name}-{p.stem}")
def test_models(path):
    graph = io.load(path)
    assert _again(graph) == dataclasses.replace(graph, quantization={})


def test_every_operator(tosa_opt):
    for operator, row in ROWS[::3]:
        graph = _complete(legal_graph(operator, row))
        text = mlir.to_text(graph)
        assert mlir.read_text(text) == graph
        assert difference(graph, mlir.read_text(tosa_opt(text))) is None, (operator.name, row.mode)


@pytest.mark.slow
def test_every_operator_of_every_type(tosa_opt):
    for operator, row in ROWS:
        graph = _complete(legal_graph(operator, row))
        text = mlir.to_text(graph)
        assert mlir.read_text(text) == graph
        for options in ((), ("--mlir-print-op-generic",), ("--mlir-print-debuginfo",)):
            printed = mlir.read_text(tosa_opt(text, *options))
            assert difference(graph, printed) is None, (operator.name, row.mode)


@pytest.mark.parametrize("seed", range(6))
def test_random_graphs(seed, tosa_opt):
    graph = _complete(grow(random.Random(seed)).graph)
    text = mlir.to_text(graph)
    assert mlir.read_text(text) == graph
    for options in ((), ("--mlir-print-op-generic",), ("--mlir-print-debuginfo",)):
        assert difference(graph, mlir.read_text(tosa_opt(text, *options))) is None


def test_tosa_opt_carries_names_and_locations_along(small_graph, tosa_opt):
    """Of control flow, variables and what has no legal name, in the metadata of locations."""
    tensors = {name: Tensor(name, DType.FP32, (1,)) for name in ("a b", "ü", 'say "x"')}
    nodes = [
        Node("ABS", ("a b",), ("ü",), location="first"),
        Node("ABS", ("ü",), ('say "x"',), location=""),
    ]
    graph = Graph(("a b",), ('say "x"',), tensors, tuple(nodes), name="main → 主")
    printed = tosa_opt(mlir.to_text(graph), "--mlir-print-debuginfo")
    assert mlir.read_text(printed) == graph
    printed = mlir.read_text(tosa_opt(mlir.to_text(small_graph), "--mlir-print-debuginfo"))
    assert printed.subgraphs.keys() == small_graph.subgraphs.keys()
    assert printed.tensors["state"].variable == "memory"
    assert [n.location for n in printed.nodes if n.op == "MAXIMUM"] == ["layer/ü"]


# Constants.


@pytest.mark.parametrize("shape", [(), (1,), (3,), (5, 1, 3), (4, 11), (0,), (2, 0)], ids=str)
@pytest.mark.parametrize("dtype", [d for d in DType if d is not DType.SHAPE], ids=lambda d: d.name)
def test_constant(dtype, shape):
    values = np.empty(shape, dtype.storage) if 0 in shape else _values(dtype, shape)
    graph = _constant(values, dtype)
    assert _again(graph) == graph
    if values.size:
        equal = _constant(np.full(shape, values.flat[0]), dtype)
        assert _again(equal) == equal


@pytest.mark.parametrize("dtype", [d for d in DType if d is not DType.SHAPE], ids=lambda d: d.name)
def test_constants_that_tosa_opt_prints(dtype, tosa_opt):
    """In numbers and in hexadecimal digits, few and many."""
    for shape, most in itertools.product([(2, 3), (8, 9)], [1, 1000]):
        graph = _constant(_values(dtype, shape), dtype)
        option = f"--mlir-print-elementsattrs-with-hex-if-larger={most}"
        printed = tosa_opt(mlir.to_text(graph), option)
        assert difference(graph, mlir.read_text(printed)) is None


@pytest.mark.parametrize("dtype", [d for d in DType if d.is_float], ids=lambda d: d.name)
def test_all_floats_of_few_bits(dtype):
    bits = dtype.storage.itemsize * 8
    count = 1 << min(bits, 16)
    patterns = np.arange(count).astype(f"u{bits // 8}") << max(bits - 16, 0)
    parts = np.split(patterns.view(dtype.storage), count // 32)[:: 1 if bits == 8 else 37]
    tensors = {f"c{n}": Tensor(f"c{n}", dtype, (32,), part) for n, part in enumerate(parts)}
    nodes = tuple(Node("CONST", (), (name,)) for name in tensors)
    graph = Graph((), tuple(tensors), tensors, nodes)
    assert '"0x' not in mlir.to_text(graph)
    assert _again(graph) == graph


@pytest.mark.parametrize("values", [[], [7], [-1, 0, 1 << 40, -(1 << 63), (1 << 63) - 1]], ids=str)
def test_shape(values):
    graph = _constant(np.array(values, np.int64), DType.SHAPE)
    assert _again(graph) == graph


@pytest.mark.parametrize("dtype", [d for d in DType if d.is_float], ids=lambda d: d.name)
def test_zeros_of_both_signs(dtype):
    graph = _constant(np.array([0.0, -0.0, 0.0]).astype(dtype.storage), dtype)
    assert _again(graph) == graph


def test_how_constants_are_written():
    def body(values: list, dtype: DType) -> str:
        text = mlir.to_text(_constant(np.array(values, dtype.storage), dtype))
        return text.partition("dense<")[2].partition(">")[0]

    assert body([1, -2], DType.INT8) == "[1, -2]"
    assert body([[1.5, -0.0]], DType.BF16) == "[[1.5, -0.0]]"
    assert body([1e-7, 1e30], DType.FP32) == "[1.0000000116860974e-07, 1.0000000150474662e+30]"
    assert body([np.inf, np.nan], DType.FP16) == "[0x7C00, 0x7E00]"
    assert body([7] * 99, DType.INT48) == "7"
    assert body([True, False] * 50, DType.BOOL).startswith("[true, false, ")
    assert body([-8, 7] * 50, DType.INT4) == '"0x' + "0807" * 50 + '"'
    assert body([-2, 3] * 50, DType.INT16) == '"0x' + "FEFF0300" * 50 + '"'


def test_long_shape():
    graph = _constant(np.arange(-50, 50), DType.SHAPE)
    assert _again(graph) == graph


# Tensors, names, attributes.


@pytest.mark.parametrize("shape", [None, (), (-1,), (-1, 8, -1), (2147483647,), (0, 3)], ids=str)
@pytest.mark.parametrize("dtype", [DType.FP32, DType.INT48, DType.FP8E4M3], ids=lambda d: d.name)
def test_declared_shape(shape, dtype):
    graph = Graph(("x",), ("x",), {"x": Tensor("x", dtype, shape)}, ())
    assert _again(graph) == graph


def test_shape_that_is_not_constant():
    graph = Graph(("s",), (), {"s": Tensor("s", DType.SHAPE, (3,))}, ())
    assert _again(graph) == graph


_NAMES = ["ü→\U0001f600", 'quote " back \\', "line\nbreak\t\0end", " ", "0", "7#1", "a-b", "v_0"]
_NAMES += [
    "x" * 300,
    "x" * 299 + "y",
    "a b",
    "a_b",
    "v_a_b",
    "v__",
    "%a",
    "-",
    "$",
    "arg0",
    "dense<",
]


def test_names():
    tensors = {name: Tensor(name, DType.FP32, (1,)) for name in _NAMES}
    nodes = [Node("ABS", (a,), (b,), location=a) for a, b in itertools.pairwise(_NAMES)]
    ends = (_NAMES[0],), (_NAMES[-1],)
    graph = Graph(*ends, tensors, tuple(nodes), name="main → 主")
    assert _again(graph) == graph
    assert _again(_again(graph)) == graph


def test_names_that_graphs_and_subgraphs_share(tosa_opt):
    """A value of a region cannot have the name of one outside of it."""

    def part(name: str, kept: str) -> Graph:
        tensors = {n: Tensor(n, DType.FP32, (2,)) for n in ("x", "0", "y")}
        nodes = (Node("ABS", (kept,), ("y",)),)
        return Graph(("x", "0"), ("y",), tensors, nodes, name=name)

    tensors = {n: Tensor(n, DType.FP32, (2,)) for n in ("x", "0", "y")}
    tensors["flag"] = Tensor("flag", DType.BOOL, ())
    choice = {"then_graph": "then x", "else_graph": "0"}
    node = Node("COND_IF", ("flag", "x", "0"), ("y",), choice, "here")
    parts = {"then x": part("then x", "x"), "0": part("0", "0")}
    graph = Graph(("flag", "x", "0"), ("y",), tensors, (node,), parts)
    assert _again(graph) == graph
    assert difference(graph, mlir.read_text(tosa_opt(mlir.to_text(graph)))) is None


@pytest.mark.parametrize(
    "dtype", [d for d in DType if d.is_integer or d.is_float], ids=lambda d: d.name
)
def test_clamp_bounds(dtype):
    low, high = _values(dtype, (2,))
    bounds = {"min_val": low, "max_val": high, "nan_mode": spec.NanMode.PROPAGATE}
    tensors = {name: Tensor(name, dtype, (1,)) for name in "xy"}
    graph = Graph(("x",), ("y",), tensors, (Node("CLAMP", ("x",), ("y",), bounds),))
    again = _again(graph)
    assert again == graph
    assert type(again.nodes[0].attributes["min_val"]) is dtype.storage.type


_VALUES = {int: -3, bool: True, str: "text"}


def _attribute(argument: spec.Argument):
    """A value that is not the default of an attribute."""
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


@pytest.mark.parametrize(
    "op", [o for o in spec.OPERATORS if o not in ("CONST", "CONST_SHAPE") and o[:4] != "VARI"]
)
def test_attributes(op):
    operator = spec.OPERATORS[op]
    attributes = {a.name: _attribute(a) for a in operator.attributes}
    tensors = {name: Tensor(name, DType.FP32, (1,)) for name in "xyz"}
    called = [str(attributes[a.name]) for a in operator.attributes if a.form is spec.Form.GRAPH]
    subgraphs = {name: Graph((), (), {}, (), name=name) for name in called}
    tensors["s"] = Tensor("s", DType.SHAPE, (2,))
    inputs = ("s" if a.form is spec.Form.SHAPE else "x" for a in operator.inputs)
    nodes = (Node(op, tuple(inputs), ("z",), attributes),)
    graph = Graph(("x", "y", "s"), ("z",), tensors, nodes, subgraphs)
    assert _again(graph) == graph


def test_defaults_are_written():
    tensors = {name: Tensor(name, DType.FP32, (1,)) for name in "xy"}
    graph = Graph(("x",), ("y",), tensors, (Node("MAXIMUM", ("x", "x"), ("y",)),))
    assert dict(_again(graph).nodes[0].attributes) == {"nan_mode": spec.NanMode.PROPAGATE}


# Subgraphs and variables.


def _calls(name: str, *callees: str) -> Graph:
    """A graph of no use that refers to graphs."""
    tensors = {"flag": Tensor("flag", DType.BOOL, (1,))}
    nodes = tuple(
        Node("COND_IF", ("flag",), (), {"then_graph": callee, "else_graph": callee})
        for callee in callees
    )
    return Graph(() if name != "main" else ("flag",), (), tensors, nodes, name=name)


def test_subgraphs_that_several_nodes_name():
    """Each has regions of its own, which are read as one graph where they are equal."""
    leaf = dataclasses.replace(_calls("leaf"), inputs=(), tensors={})
    flag = Tensor("own flag", DType.BOOL, (1,), np.array([True]))
    call = {"then_graph": "leaf", "else_graph": "leaf"}
    nodes = Node("CONST", (), ("own flag",)), Node("COND_IF", ("own flag",), (), call)
    middle = Graph((), (), {"own flag": flag}, nodes, {"leaf": leaf}, "middle")
    parts = {"middle": middle, "leaf": leaf}
    graph = dataclasses.replace(_calls("main", "middle", "leaf"), subgraphs=parts)
    again = _again(graph)
    assert again == graph
    assert list(again.subgraphs["middle"].subgraphs) == ["leaf"]


def _reading(name: str, tensor: str) -> Graph:
    """A graph that reads the variable "memory"."""
    state = Tensor(tensor, DType.FP32, (1,), np.array([0.5]), "memory")
    read = Node("VARIABLE_READ", (), ("r",), {"name": "memory"})
    tensors = {tensor: state, "r": Tensor("r", DType.FP32, (1,))}
    return Graph((), ("r",), tensors, (read,), name=name)


@pytest.mark.parametrize("home", ["main", "inner"])
def test_variables_of_subgraphs(home):
    """Each graph has a tensor of its own for a variable, and one of them the declaration."""
    attributes = {"name": "memory", "var_shape": (1,), "type": spec.VarType.FP32}
    inner = _reading("inner", "state of inner")
    graph = _reading("main", "state")
    tensors = {**graph.tensors} | {n: Tensor(n, DType.FP32, (1,)) for n in ("s", "flag")}
    tensors["flag"] = Tensor("flag", DType.BOOL, (1,))
    call = Node("COND_IF", ("flag",), ("s",), {"then_graph": "inner", "else_graph": "inner"})
    nodes = (*graph.nodes, call)
    if home == "main":
        nodes = (Node("VARIABLE", (), ("state",), attributes, "declared"), *nodes)
    else:
        declaration = Node("VARIABLE", (), ("state of inner",), attributes)
        inner = dataclasses.replace(inner, nodes=(declaration, *inner.nodes))
    graph = Graph(("flag",), ("s",), tensors, nodes, {"inner": inner})
    assert _again(graph) == graph


@pytest.mark.parametrize("kind", spec.VarType)
def test_variables_of_every_type(kind):
    attributes = {"name": 'v "1"', "var_shape": (2, 1), "type": kind}
    for values in (None, _values(kind.dtype, (2, 1))):
        tensors = {"v": Tensor("v", kind.dtype, (2, 1), values, 'v "1"')}
        graph = Graph((), (), tensors, (Node("VARIABLE", (), ("v",), attributes),))
        assert _again(graph) == graph


def _variable(*shape: int) -> Graph:
    attributes = {"name": "v", "var_shape": shape, "type": spec.VarType.INT8}
    tensors = {"v": Tensor("v", DType.INT8, shape, None, "v")}
    return Graph((), (), tensors, (Node("VARIABLE", (), ("v",), attributes),))


@pytest.mark.parametrize("shape", [(), (0, 2), ((1 << 63) - 1,)])
def test_variables_of_the_least_and_the_most_elements(shape):
    assert _again(_variable(*shape)) == _variable(*shape)


# What MLIR cannot express.


def _node(node: Node, **tensors: Tensor) -> Graph:
    known = {"x": Tensor("x", DType.FP32, (1,)), "y": Tensor("y", DType.FP32, (1,))}
    return Graph(("x",), (), known | tensors, (node,))


_VALUELESS = Tensor("y", DType.FP32, (1,))
_OTHER = Tensor("y", DType.FP32, (2,), np.zeros(3, np.float32))
_FFT = {"inverse": True, "local_bound": False}
_NEGATIVE = {"x": Tensor("x", DType.FP32, (-2,))}
_REFUSED = {
    "'FOO' is not an operator of TOSA 1.0": _node(Node("FOO", ("x",), ("y",))),
    "tensor 'z' is not declared": _node(Node("ABS", ("z",), ("y",))),
    "no node makes tensor 'y'": _node(Node("ABS", ("y",), ("x",))),
    "tensor 'y' of graph 'main' is made twice": _node(Node("FFT2D", ("x", "x"), ("y", "y"), _FFT)),
    "attribute axis is missing": _node(Node("REDUCE_SUM", ("x",), ("y",))),
    "axis cannot be 'a'": _node(Node("REDUCE_SUM", ("x",), ("y",), {"axis": "a"})),
    "nan_mode cannot be 7": _node(Node("MAXIMUM", ("x", "x"), ("y",), {"nan_mode": 7})),
    "perms cannot be 3": _node(Node("TRANSPOSE", ("x",), ("y",), {"perms": 3})),
    "expected one output with values": _node(Node("CONST", (), ("y",)), y=_VALUELESS),
    "has values of shape (3,), expected (2,)": _node(Node("CONST", (), ("y",)), y=_OTHER),
    "shape (-2,), which MLIR cannot express": Graph(("x",), (), _NEGATIVE, ()),
    "expected a list of known length": Graph(("x",), (), {"x": Tensor("x", DType.SHAPE, None)}, ()),
    "then_graph 'a' is not a subgraph": _node(
        Node("COND_IF", ("x",), (), {"then_graph": "a", "else_graph": "b"})
    ),
    "subgraph 'lost', which no node names": Graph(
        (), (), {}, (), {"lost": Graph((), (), {}, (), name="lost")}
    ),
    "a subgraph by another name than its own": dataclasses.replace(
        _calls("main", "a"), subgraphs={"a": Graph((), (), {}, (), name="b")}
    ),
    "two graphs are named 'main'": dataclasses.replace(
        _calls("main", "main"), subgraphs={"main": Graph((), (), {}, (), name="main")}
    ),
    "variable 'memory' has 0 VARIABLE nodes, expected one": _reading("main", "state"),
    "variable 'v' is INT8[?], which MLIR cannot express": _variable(-1),
    "variable 'v' is INT8[9223372036854775808], which MLIR": _variable(1 << 63),
    "can't encode": _node(Node("ABS", ("x",), ("y",), location="\ud800")),
}  # fmt: skip


@pytest.mark.parametrize("message", _REFUSED)
def test_what_mlir_cannot_express(message):
    with pytest.raises(ValueError) as caught:
        mlir.to_text(_REFUSED[message])
    assert message in str(caught.value)


def test_graphs_that_name_others_again_and_again():
    """Thirty graphs would be regions without end."""
    graph = Graph((), (), {}, (), name="g0")
    for n in range(1, 30):
        flag = Tensor("flag", DType.BOOL, (1,))
        call = Node("COND_IF", ("flag",), (), {"then_graph": graph.name, "else_graph": graph.name})
        graph = Graph(("flag",), (), {"flag": flag}, (call, call), {graph.name: graph}, f"g{n}")
    with pytest.raises(ValueError, match="control flow leads to more than 4096 graphs"):
        mlir.to_text(graph)
