"""Structure and table checks: one test for each label that every operator shares."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import tosajax
from tosajax import Builder, DType, Graph, Node, Target, Tensor, TosaError, Verdict, spec

INT = Target.parse("PRO-INT")


def add_graph(dtype: DType = DType.INT32, shape: tuple[int, ...] = (2, 3)) -> Graph:
    b = Builder()
    x, y = b.input("x", dtype, shape), b.input("y", dtype, shape)
    return b.graph(outputs=[b.op("ADD", x, y, name="sum")])


def conv_graph(zero_point_constant: bool = True) -> Graph:
    b = Builder()
    x = b.input("x", DType.INT8, (1, 4, 4, 2))
    w = b.const(np.ones((3, 1, 1, 2)), DType.INT8, name="w")
    bias = b.const(np.zeros(3), DType.INT32, name="bias")
    zero = b.const([0], DType.INT8, name="zero")
    zp = zero if zero_point_constant else b.input("zp", DType.INT8, (1,))
    y = b.op(
        "CONV2D", x, w, bias, zp, zero, name="y",
        pad=(0, 0, 0, 0), stride=(1, 1), dilation=(1, 1), acc_type=DType.INT32,
    )  # fmt: skip
    return b.graph(outputs=[y])


def change(graph: Graph, tensor: str, **changes) -> Graph:
    changed = dataclasses.replace(graph.tensors[tensor], **changes)
    return dataclasses.replace(graph, tensors={**graph.tensors, tensor: changed})


def change_node(graph: Graph, position: int = -1, **changes) -> Graph:
    nodes = list(graph.nodes)
    nodes[position] = dataclasses.replace(nodes[position], **changes)
    return dataclasses.replace(graph, nodes=tuple(nodes))


def attributes(graph: Graph, **changes) -> Graph:
    return change_node(graph, attributes={**graph.nodes[-1].attributes, **changes})


def labels(graph: Graph, target: Target | None = None) -> set[str]:
    return {f.label for f in tosajax.validate(graph, target).findings}


def only(graph: Graph, label: str, *words: str, target: Target | None = None) -> None:
    """The graph breaks exactly one rule, and the message says what was found and wanted."""
    report = tosajax.validate(graph, target)
    assert {f.label for f in report.findings} == {label}
    assert report.verdict is Verdict.ERROR
    text = str(report)
    for word in words:
        assert word in text
    with pytest.raises(TosaError, match=label.replace(".", r"\.")):
        report.raise_errors()


def test_legal_graphs_are_valid():
    for graph in (add_graph(), conv_graph(), add_graph(DType.FP32, ())):
        report = tosajax.validate(graph)
        assert report.findings == ()
        assert report.verdict is Verdict.VALID
        assert str(report) == "VALID"


def test_graph_operator():
    only(change_node(add_graph(), op="ADDD"), "graph.operator", "ADDD")


def test_graph_undefined_tensor():
    only(change_node(add_graph(), inputs=("x", "nothing")), "graph.undefined", "'nothing'")


def test_graph_undefined_producer():
    graph = add_graph()
    lost = Tensor("lost", DType.INT32, (2, 3))
    graph = dataclasses.replace(graph, tensors={**graph.tensors, "lost": lost})
    only(change_node(graph, inputs=("x", "lost")), "graph.undefined", "'lost'", "no node")


def test_graph_undefined_output():
    graph = dataclasses.replace(add_graph(), outputs=("sum", "away"))
    only(graph, "graph.undefined", "graph output 'away'")


def test_graph_output_without_producer():
    graph = dataclasses.replace(conv_graph(), nodes=conv_graph().nodes[:-1])
    only(graph, "graph.undefined", "graph output 'y'")


def test_graph_duplicate_producer():
    graph = add_graph()
    graph = dataclasses.replace(graph, nodes=(graph.nodes[0], graph.nodes[0]))
    only(graph, "graph.duplicate", "'sum'", "ADD")


def test_graph_duplicate_input():
    graph = dataclasses.replace(add_graph(), inputs=("x", "y", "x"))
    only(graph, "graph.duplicate", "'x'", "2 times")


def test_graph_output_of_node_is_graph_input():
    graph = change_node(add_graph(), outputs=("x",))
    assert "graph.duplicate" in labels(graph)


def test_graph_cycle():
    b = Builder()
    x = b.input("x", DType.INT32, (2,))
    b.op("ADD", x, x, name="a")
    c = b.op("ADD", x, x, name="c")
    graph = b.graph(outputs=[c])
    nodes = (
        dataclasses.replace(graph.nodes[0], inputs=("x", "c")),
        dataclasses.replace(graph.nodes[1], inputs=("x", "a")),
    )
    only(dataclasses.replace(graph, nodes=nodes), "graph.cycle", "depends on itself")


def test_long_chain_in_reverse_order_is_sorted_without_recursion():
    b = Builder()
    t = b.input("x", DType.INT32, (2,))
    one = t
    for _ in range(5000):
        t = b.op("ADD", t, one)
    graph = b.graph(outputs=[t])
    backwards = dataclasses.replace(graph, nodes=graph.nodes[::-1])
    assert backwards.ordered_nodes() == graph.nodes


def test_graph_shape_as_output():
    b = Builder()
    x = b.input("x", DType.INT32, (2,))
    graph = b.graph(outputs=[b.op("ADD", x, x), b.const_shape([1, 2], name="dims")])
    only(graph, "graph.shape", "'dims'")


def test_graph_values_without_const():
    only(change(add_graph(), "x", values=np.zeros((2, 3))), "graph.constant", "'x'")


def test_tensor_rank_unknown():
    only(change(add_graph(), "x", shape=None), "tensor.rank", "'x'")


def test_tensor_dynamic():
    only(change(add_graph(), "x", shape=(-1, 3)), "tensor.dynamic", "INT32[?,3]", "batch=1")


@pytest.mark.parametrize("size", [0, -2])
def test_tensor_shape(size):
    only(change(add_graph(), "x", shape=(size, 3)), "tensor.shape", "'x'", str(size), "at least 1")


def test_tensor_size_is_a_level_limit():
    graph = add_graph(DType.INT32, (1 << 14, 1 << 15))
    report = tosajax.validate(graph)
    assert {f.label for f in report.findings} == {"tensor.size"}
    assert report.verdict is Verdict.UNPREDICTABLE
    report.raise_errors()
    assert labels(graph, Target.everything("none")) == set()
    assert labels(add_graph(DType.INT32, (1 << 14, (1 << 15) - 1))) == set()


@pytest.mark.parametrize("inputs", [("x",), ("x", "y", "y")])
def test_inputs_count(inputs):
    only(change_node(add_graph(), inputs=inputs), "add.inputs", str(len(inputs)), "expected 2")


def test_outputs_count():
    graph = change_node(add_graph(), outputs=("sum", "more"))
    more = Tensor("more", DType.INT32, (2, 3))
    graph = dataclasses.replace(graph, tensors={**graph.tensors, "more": more})
    only(graph, "add.outputs", "2 outputs", "expected 1")


def test_attribute_missing():
    graph = conv_graph()
    rest = {k: v for k, v in graph.nodes[-1].attributes.items() if k != "stride"}
    only(change_node(graph, attributes=rest), "conv2d.attributes", "stride is missing")


def test_attribute_with_default_may_be_missing():
    assert "local_bound" not in conv_graph().nodes[-1].attributes
    assert labels(attributes(conv_graph(), local_bound=True)) == set()


def test_attribute_unknown():
    only(attributes(conv_graph(), strides=(1, 1)), "conv2d.attributes", "'strides'", "stride")


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("pad", (0, 0), "4 integers"),
        ("pad", (0, 0, 0, 0.5), "4 integers"),
        ("stride", 1, "2 integers"),
        ("local_bound", 1, "boolean"),
        ("acc_type", DType.INT8, "INT32, FP16, FP32, INT48"),
        ("acc_type", 1, "INT32, FP16, FP32, INT48"),
    ],
)
def test_attribute_form(name, value, wanted):
    only(attributes(conv_graph(), **{name: value}), "conv2d.attributes", name, wanted)


def test_attribute_enum_form():
    b = Builder()
    x = b.input("x", DType.FP32, (2,))
    graph = b.graph(outputs=[b.op("MAXIMUM", x, x, nan_mode=1)])
    only(graph, "maximum.attributes", "nan_mode", "NanMode.PROPAGATE, NanMode.IGNORE")


def test_const_without_values():
    only(change(conv_graph(), "w", values=None), "const.values", "'w'", "no values")


def test_const_values_of_another_shape():
    graph = change(conv_graph(), "w", values=np.ones((3, 2)))
    only(graph, "const.values", "(3, 2)", "(3, 1, 1, 2)")


def test_types():
    only(change(add_graph(), "y", dtype=DType.INT16), "add.types", "INT16", "INT32")


def test_types_of_accumulator():
    graph = attributes(conv_graph(), acc_type=DType.INT48)
    only(graph, "conv2d.types", "acc_type INT48", "INT8 INT8 INT32 INT32")


def test_types_shape_for_tensor():
    b = Builder()
    x = b.input("x", DType.INT32, (2,))
    dims = b.const_shape([2], name="dims")
    graph = b.graph(outputs=[b.op("ADD", x, x, name="sum")])
    graph = dataclasses.replace(graph, tensors={**graph.tensors, "dims": graph.tensors[dims.name]})
    only(change_node(graph, inputs=("x", "dims")), "add.types", "'dims'", "expected a tensor")


def test_profile():
    graph = add_graph(DType.FP32)
    only(graph, "add.profile", "FP32", "PRO-FP", "PRO-INT@8K", target=INT)
    assert labels(graph, Target.parse("PRO-FP")) == set()


def test_profile_of_extension():
    graph = add_graph(DType.BF16)
    only(graph, "add.profile", "EXT-BF16", target=Target.parse("PRO-FP"))
    assert labels(graph, Target.parse("PRO-FP+EXT-BF16")) == set()


def test_profile_of_rounding_mode():
    graph = rescale_graph(spec.RoundingMode.DOUBLE_ROUND)
    only(graph, "rescale.profile", "DOUBLE_ROUND", "EXT-DOUBLEROUND", target=INT)
    assert labels(graph, Target.parse("PRO-INT+EXT-DOUBLEROUND")) == set()
    assert labels(rescale_graph(spec.RoundingMode.SINGLE_ROUND), INT) == set()


def rescale_graph(mode: spec.RoundingMode) -> Graph:
    b = Builder()
    x = b.input("x", DType.INT32, (2,))
    multiplier, shift = b.const([1 << 30], DType.INT32), b.const([30], DType.INT8)
    zero_in, zero_out = b.const([0], DType.INT32), b.const([0], DType.INT8)
    y = b.op(
        "RESCALE", x, multiplier, shift, zero_in, zero_out, scale32=True, rounding_mode=mode,
        per_channel=False, input_unsigned=False, output_unsigned=False,
    )  # fmt: skip
    return b.graph(outputs=[y])


def test_rank_fixed():
    graph = change(conv_graph(), "x", shape=(4, 4, 2))
    only(graph, "conv2d.rank", "'x'", "rank 3", "expected rank 4")


def test_rank_minimum():
    b = Builder()
    x = b.input("x", DType.INT8, ())
    graph = b.graph(outputs=[b.op("REVERSE", x, axis=0, shape=())])
    assert "reverse.rank" in labels(graph)


def test_rank_above_level():
    graph = add_graph(DType.INT32, (1,) * 7)
    only(graph, "add.rank", "of rank 7", "expected 0 to 6")
    assert labels(graph, Target.everything("none")) == set()
    assert labels(add_graph(DType.INT32, (1,) * 6)) == set()


def test_shape_of_named_dimension():
    graph = change(conv_graph(), "x", shape=(1, 4, 4, 5))
    only(graph, "conv2d.shape", "IC is 2", "expected 5", "input")


def test_shape_of_numbered_dimension():
    graph = change(conv_graph(), "zero", shape=(2,), values=np.zeros(2))
    only(graph, "conv2d.shape", "'zero'", "expected [1]")


def test_shape_of_whole_argument():
    b = Builder()
    x = b.input("x", DType.FP32, (2, 3))
    graph = b.graph(outputs=[b.op("EXP", x, shape=(3, 2))])
    only(graph, "exp.shape", "FP32[3,2]", "(2, 3)")


def test_shape_of_table():
    b = Builder()
    x = b.input("x", DType.INT8, (2,))
    table = b.const(np.zeros(255), DType.INT8)
    graph = b.graph(outputs=[b.op("TABLE", x, table)])
    assert "table.shape" in labels(graph)


def test_constant():
    graph = conv_graph(zero_point_constant=False)
    only(graph, "conv2d.constant", "input_zp 'zp'", "EXT-DYNAMIC", target=INT)
    assert labels(graph, Target.parse("PRO-INT+EXT-DYNAMIC")) == set()


def test_all_errors_are_listed():
    graph = attributes(conv_graph(), pad=(0, 0))
    graph = dataclasses.replace(graph, nodes=(*graph.nodes, Node("NOISE", outputs=("n",))))
    graph = dataclasses.replace(
        graph, tensors={**graph.tensors, "n": Tensor("n", DType.INT8, (0,))}
    )
    with pytest.raises(TosaError) as caught:
        tosajax.validate(graph).raise_errors()
    assert "graph.operator" in str(caught.value)
    assert "tensor.shape" in str(caught.value)
    assert len(caught.value.report.errors) == 2


@pytest.mark.parametrize(
    ("graph", "needs"),
    [
        (add_graph(), ("PRO-INT",)),
        (add_graph(DType.FP32), ("PRO-FP",)),
        (add_graph(DType.BF16), ("PRO-FP", "EXT-BF16")),
        (conv_graph(), ("PRO-INT",)),
        (conv_graph(False), ("PRO-INT", "EXT-DYNAMIC")),
        (rescale_graph(spec.RoundingMode.DOUBLE_ROUND), ("PRO-INT", "EXT-DOUBLEROUND")),
    ],
    ids=["add-i32", "add-fp32", "add-bf16", "conv2d-i8", "conv2d-dynamic", "rescale-double"],
)
def test_needs(graph, needs):
    report = tosajax.validate(graph)
    assert report.needs == needs
    target = Target(
        frozenset(n for n in needs if n.startswith("PRO")),
        frozenset(n for n in needs if n.startswith("EXT")),
    )
    assert tosajax.validate(graph, target).findings == ()


def test_reshape_to_a_scalar_is_checked():
    b = Builder()
    x = b.input("x", DType.INT8, (4, 6))
    graph = b.graph(outputs=[b.op("RESHAPE", x, b.const_shape([]), shape=())])
    only(graph, "reshape.e1", "1 elements", "24")


@pytest.mark.parametrize("value", ["a", None, (1, 2), True], ids=str)
def test_bounds_of_clamp_are_numbers(value):
    b = Builder()
    x = b.input("x", DType.FP32, (2,))
    graph = b.graph(outputs=[b.op("CLAMP", x, min_val=value, max_val=1.0)])
    only(graph, "clamp.attributes", "min_val", "expected a number")


def test_subgraph_must_be_there():
    b = Builder()
    x = b.input("x", DType.BOOL, (1,))
    y = b.op("COND_IF", x, then_graph=["a"], else_graph="b", shape=(1,), dtype=DType.BOOL)
    only(b.graph(outputs=[y]), "cond_if.attributes", "then_graph", "else_graph")
