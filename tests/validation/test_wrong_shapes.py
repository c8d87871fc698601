"""Lists of a wrong length and tensors of a wrong rank: one rule, whichever way a graph is made.

Nobody gives the shape of an output that the inputs determine, so it is derived before the graph is
validated. A fault must end in its rule there as well, not in words of Python.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Container
from typing import Any

import numpy as np
import pytest
from oracle.legal_graphs import LEGAL, OPERATORS, ROW_IDS, ROWS, graph_of, legal_graph

import tosajax
from tosajax import Builder, DType, Tensor, TosaError, run_op
from tosajax.graph import Graph, shape_fits
from tosajax.spec import Form, Kind

ALL = [op for op in OPERATORS if op.name in LEGAL]
# Words of Python and of JAX, and names of Python's exceptions.
PYTHON = re.compile(
    r"zip\(\)|unpack|index out of range|not iterable|NoneType|subscript|unsupported operand|"
    r"object has no|positional|_Required|REQUIRED|'<' not|KeyError|must be integer"
)


def lists() -> list[Any]:
    cases = []
    for op in ALL:
        for a in op.arguments:
            if a.kind is Kind.OUTPUT or a.form not in (Form.SHAPE, Form.LIST):
                continue
            legal = list(LEGAL[op.name][a.name])
            for wrong in ([], legal[:-1], [*legal, legal[-1]]):
                cases.append(pytest.param(op, a, wrong, id=f"{op.name}-{a.name}-{len(wrong)}"))
    return cases


def ranks() -> list[Any]:
    cases = []
    for op in ALL:
        for a in op.inputs:
            if a.form not in (Form.TENSOR, Form.TENSOR_LIST):
                continue
            for change in (-1, 1):
                cases.append(pytest.param(op, a, change, id=f"{op.name}-{a.name}{change:+d}"))
    return cases


def ranked(value: Any, change: int) -> Any:
    """A legal tensor with a dimension more or less; of a list of tensors, its last one."""
    if isinstance(value, list):
        return [*value[:-1], ranked(value[-1], change)]
    if not isinstance(value, tuple):
        return np.asarray(value)[None] if change > 0 else np.asarray(value).reshape(-1)[0]
    return (*value, 1) if change > 0 else value[:-1]


def tensors_of(graph: Graph, b: Builder) -> list[Tensor]:
    """The operands of the last node, declared in another builder."""
    found = []
    for number, name in enumerate(graph.nodes[-1].inputs):
        tensor = graph.tensors[name]
        if tensor.values is None:
            found.append(b.input(f"x{number}", tensor.dtype, tensor.shape or ()))
        elif tensor.dtype is DType.SHAPE:
            found.append(b.const_shape(tensor.values.tolist()))
        else:
            found.append(b.const(tensor.values, tensor.dtype))
    return found


def ways(graph: Graph) -> dict[str, Any]:
    """Functions that make the last node of a graph again, and derive the shapes of its outputs."""
    node = graph.nodes[-1]
    outputs = [graph.tensors[name] for name in node.outputs]
    dtypes = [t.dtype for t in outputs]

    def built() -> None:
        b = Builder()
        made = b.ops(node.op, *tensors_of(graph, b), dtypes=dtypes, **node.attributes)
        tosajax.validate(b.graph(made)).raise_errors()

    def bound() -> None:
        unknown = {t.name: dataclasses.replace(t, shape=None) for t in outputs}
        whole = tosajax.bind(dataclasses.replace(graph, tensors={**graph.tensors, **unknown}))
        tosajax.validate(whole).raise_errors()

    def run() -> None:
        arrays = [
            np.zeros(t.shape or (), t.dtype.storage) if t.values is None else np.asarray(t.values)
            for t in (graph.tensors[name] for name in node.inputs)
        ]
        run_op(node.op, arrays, dict(node.attributes) | {"out_type": dtypes[0]})

    found = {"builder": built, "bind": bound}
    return found | ({"run_op": run} if len(dtypes) == 1 else {})


def check(graph: Graph, *, may_be_legal: bool = False) -> None:
    """Every way ends in a TosaError, with a rule that the graph breaks as well.

    In the graph the output has a legal shape, which may break other rules besides.
    """
    op = graph.nodes[-1].op.lower()
    in_a_file = {f.label for f in tosajax.validate(graph).errors}
    for way, make in ways(graph).items():
        error = raised_by(make)
        if error is None:
            assert may_be_legal, way
            continue
        found = {f.label for f in error.report.findings}
        assert found & in_a_file or op == "reshape", way
        assert all(label.startswith(f"{op}.") for label in found), way
        assert not PYTHON.search(str(error)), way


def raised_by(make: Callable[[], object]) -> TosaError | None:
    try:
        make()
    except TosaError as error:
        return error
    return None


@pytest.mark.parametrize(("op", "argument", "wrong"), lists())
def test_lists_of_a_wrong_length(op, argument, wrong):
    value = wrong if argument.form is Form.SHAPE else tuple(wrong)
    # Another shape of as many elements is legal.
    may_be_legal = op.name == "RESHAPE"
    check(graph_of(op.name, LEGAL[op.name] | {argument.name: value}), may_be_legal=may_be_legal)


@pytest.mark.parametrize(("op", "argument", "change"), ranks())
def test_tensors_of_a_wrong_rank(op, argument, change):
    legal = LEGAL[op.name]
    graph = graph_of(op.name, legal | {argument.name: ranked(legal[argument.name], change)})
    # An operator that takes any rank may take this one.
    check(graph, may_be_legal=argument.dims is None)


def opened(tensor: Tensor, axes: Container[int]) -> Tensor:
    """An operand, with open dimensions unless it is a constant."""
    if tensor.values is not None or tensor.shape is None:
        return tensor
    shape = tuple(-1 if axis in axes else n for axis, n in enumerate(tensor.shape))
    return dataclasses.replace(tensor, shape=shape)


def derived(graph: Graph, change: Callable[[Tensor], Tensor]) -> tuple[Tensor, ...]:
    """The outputs of the last node, made again by a builder of changed operands."""
    node, b = graph.nodes[-1], Builder()
    operands = tensors_of(graph, b)
    for tensor in operands:
        b._tensors[tensor.name] = change(tensor)
    dtypes = [graph.tensors[name].dtype for name in node.outputs]
    return b.ops(node.op, *operands, dtypes=dtypes, **node.attributes)


def faults() -> list[Any]:
    """Graphs with a list of a wrong length or a tensor of a wrong rank."""
    found = []
    for case in (*lists(), *ranks()):
        op, argument, wrong = case.values
        legal = LEGAL[op.name]
        if isinstance(wrong, list):
            wrong = wrong if argument.form is Form.SHAPE else tuple(wrong)
            may_be_legal = op.name == "RESHAPE"
        else:
            wrong, may_be_legal = ranked(legal[argument.name], wrong), argument.dims is None
        found.append(pytest.param(op, legal | {argument.name: wrong}, may_be_legal, id=case.id))
    return found


@pytest.mark.parametrize(("op", "arguments", "may_be_legal"), faults())
def test_faults_beside_open_dimensions(op, arguments, may_be_legal):
    """Whatever the sizes are, the fault is one: all are open, or the first of each tensor."""
    graph = graph_of(op.name, arguments)
    for axes in (range(9), [0]):
        error = raised_by(lambda axes=axes: derived(graph, lambda t: opened(t, axes)))
        if error is None:
            # A constant of a wrong shape may do for the shape of the output.
            assert may_be_legal or validate_opened(graph, axes), axes
            continue
        assert all(f.label.startswith(f"{op.name.lower()}.") for f in error.report.findings)
        assert not PYTHON.search(str(error))


def validate_opened(graph: Graph, axes: Container[int]) -> set[str]:
    """Errors of a graph whose inputs are open, without those of open dimensions."""
    inputs = {name: opened(graph.tensors[name], axes) for name in graph.inputs}
    report = tosajax.validate(dataclasses.replace(graph, tensors={**graph.tensors, **inputs}))
    return {f.label for f in report.errors} - {"tensor.dynamic"}


@pytest.mark.parametrize(("operator", "row"), ROWS, ids=ROW_IDS)
def test_open_dimensions_give_shapes_that_hold_for_all_sizes(operator, row):
    """A size that is derived is that of the closed graph; others are open."""
    graph = legal_graph(operator, row)
    if not graph.nodes or operator.name.startswith("CONST"):
        return
    closed = [t.shape for t in derived(graph, lambda t: t)]
    for axes in (range(9), *([n] for n in range(6))):
        found = derived(graph, lambda t, axes=axes: opened(t, axes))
        for tensor, shape in zip(found, closed, strict=True):
            assert shape is not None
            assert shape_fits(shape, tensor.shape), (axes, tensor)


@pytest.mark.parametrize(("operator", "row"), ROWS, ids=ROW_IDS)
def test_operands_without_a_rank(operator, row):
    graph = legal_graph(operator, row)
    wanted = rf"{operator.name} '.*': the output shape does not follow from .*: give shape=$"
    for name in graph.inputs:
        place = f"x{graph.nodes[-1].inputs.index(name)}"

        def unranked(tensor: Tensor, place: str = place) -> Tensor:
            return dataclasses.replace(tensor, shape=None) if tensor.name == place else tensor

        try:
            found = derived(graph, unranked)
        except ValueError as error:
            message = str(error)
        else:
            message = ""
            assert all(t.shape is not None for t in found)
        assert not message or re.match(wanted, message)


def test_arithmetic_on_an_open_dimension_is_open():
    b = Builder()
    x, zero = b.input("x", DType.FP32, (-1, 3)), b.const([0], DType.FP32)
    assert b.op("PAD", x, b.const_shape([1, 1, 2, 0]), zero).shape == (-1, 5)
    assert b.op("TILE", x, b.const_shape([2, 2])).shape == (-1, 6)
    assert b.op("CONCAT", x, b.const(np.zeros((2, 3)), DType.FP32), axis=0).shape == (-1, 3)
    assert b.op("SLICE", x, b.const_shape([0, 1]), b.const_shape([-1, 2])).shape == (-1, 2)
    assert b.op("ADD", x, b.const([[1, 2, 3]], DType.FP32)).shape == (-1, 3)
    assert b.ops("RFFT2D", b.input("z", DType.FP32, (1, 4, -1)))[0].shape == (1, 4, -1)


def test_an_open_dimension_beside_a_rule_that_is_broken():
    b = Builder()
    x = b.input("x", DType.FP32, (-1, 3))
    with pytest.raises(TosaError, match=r"ADD 'add_2': input2 has rank 1, expected 2 \[add\.e1\]"):
        b.op("ADD", x, b.const([1], DType.FP32))
    y = b.input("y", DType.FP32, (0, -1, 4))
    with pytest.raises(TosaError, match=r"tensor 'y' has shape \(0, -1, 4\), expected dimensions"):
        b.op("ADD", x, y)


X = np.ones((1, 4, 4), np.float32)


@pytest.mark.parametrize(
    ("op", "count", "options", "label"),
    [
        ("PAD", 1, {}, "pad.inputs"),
        ("PAD", 3, {}, "pad.types"),
        ("TRANSPOSE", 1, {}, "transpose.attributes"),
        ("TRANSPOSE", 1, {"perms": 3}, "transpose.attributes"),
        ("CONCAT", 0, {"axis": 1}, "concat.e1"),
        ("MATMUL", 1, {}, "matmul.inputs"),
        ("AVG_POOL2D", 3, {}, "avg_pool2d.attributes"),
        ("RESIZE", 4, {}, "resize.attributes"),
        ("COND_IF", 1, {}, "cond_if.attributes"),
        ("BITWISE_NOT", 1, {}, "bitwise_not.types"),
    ],
)
def test_operands_and_attributes_of_a_builder(op, count, options, label):
    b = Builder()
    x = b.input("x", DType.FP32, X.shape)
    with pytest.raises(TosaError) as caught:
        b.op(op, *[x] * count, **options)
    assert caught.value.report.findings[0].label == label
    assert not PYTHON.search(str(caught.value))


def test_outputs_of_a_builder():
    b = Builder()
    x = b.input("x", DType.FP32, X.shape)
    with pytest.raises(ValueError, match="RFFT2D has 2 outputs: use ops"):
        b.op("RFFT2D", x)
    with pytest.raises(ValueError, match="ABS has 1 outputs, and there are 2 names"):
        b.ops("ABS", x, names=["y", "z"])
    with pytest.raises(ValueError, match="RFFT2D has 2 outputs, and there are 1 shapes"):
        b.ops("RFFT2D", x, shapes=[(1, 4, 3)])
    assert [t.shape for t in b.ops("RFFT2D", x)] == [(1, 4, 3), (1, 4, 3)]


@pytest.mark.parametrize("shape", [3, [1.5], "ab", None])
def test_a_shape_that_is_no_list_of_integers(shape):
    with pytest.raises(TypeError, match=r"RESHAPE: shape is .*, expected a list of integers"):
        run_op("RESHAPE", [X, shape])


def test_a_shape_beyond_64_bits():
    with pytest.raises(ValueError, match=r"RESHAPE: shape is .*, expected integers of 64 bits"):
        run_op("RESHAPE", [X, [1 << 63]])


def test_the_fault_of_an_earlier_node_is_named():
    """A convolution of a wrong rank gives some shape; the node that fails comes after it."""
    b = Builder()
    x = b.input("x", DType.INT8, (-1, 4, 4, 3))
    y = b.op("TRANSPOSE", x, perms=(0, 1, 2, 2), shape=(-1, 4, 4, 3), name="turned")
    graph = b.graph([b.op("PAD", y, b.const_shape([0]), b.const([0], DType.INT8), shape=(-1,) * 4)])
    with pytest.raises(TosaError, match=r"TRANSPOSE 'turned': perms is .*transpose\.e5"):
        tosajax.bind(graph, batch=1)
