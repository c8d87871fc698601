"""VARIABLE, VARIABLE_READ and VARIABLE_WRITE: values that last from call to call."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import programs
import pytest

import tosajax
from tosajax import Builder, DType, TosaError, UnsupportedError, Verdict, spec
from tosajax.runtime.dataset import Dataset

X = np.array([1, -2, 100], np.int8)


def wrapped(values) -> np.ndarray:
    return np.asarray(values).astype(np.int8)


def test_state_is_threaded():
    graph = programs.accumulator([5, 6, 7])
    fn, params = tosajax.lower(graph)
    state = tosajax.initial_state(graph)
    assert list(state) == ["sum"]
    for turn in (1, 2, 3):
        state, (found,) = jax.jit(fn)(params, state, jnp.asarray(X))
        wanted = wrapped([5, 6, 7] + turn * X.astype(np.int32))
        np.testing.assert_array_equal(found, wanted)
        np.testing.assert_array_equal(state["sum"].value, wanted)


def test_lowered_function_is_pure():
    graph = programs.accumulator([0, 0, 0])
    fn, params = tosajax.lower(graph)
    state = tosajax.initial_state(graph)
    first = fn(params, state, jnp.asarray(X))[1]
    np.testing.assert_array_equal(first, fn(params, state, jnp.asarray(X))[1])


def test_executable_keeps_its_state():
    run = tosajax.compile(programs.accumulator([0, 0, 0]))
    for turn in (1, 2, 3):
        np.testing.assert_array_equal(run(X)[0], wrapped(turn * X.astype(np.int32)))
    np.testing.assert_array_equal(run.state["sum"].value, wrapped(3 * X.astype(np.int32)))


def test_executables_do_not_share_by_chance():
    first, second = (tosajax.compile(programs.accumulator([0, 0, 0])) for _ in range(2))
    first(X)
    np.testing.assert_array_equal(second(X)[0], X)


def reader() -> tosajax.Graph:
    b = Builder()
    x = b.input("x", DType.INT8, (3,))
    b.variable("sum", DType.INT8, (3,))
    b.variable("own", DType.INT8, (3,), initial_value=[9, 9, 9])
    old = b.read("sum", DType.INT8, (3,))
    return b.graph([old, b.read("own", DType.INT8, (3,)), b.op("IDENTITY", x)])


def test_two_graphs_share_state():
    write = tosajax.compile(programs.accumulator([1, 2, 3]))
    read = tosajax.compile(reader(), state=write.state)
    write(X)
    old, own, _ = read(X)
    np.testing.assert_array_equal(old, wrapped(np.array([1, 2, 3]) + X))
    np.testing.assert_array_equal(own, [9, 9, 9])
    assert sorted(write.state) == ["own", "sum"]
    write(X)
    np.testing.assert_array_equal(read(X)[0], wrapped(np.array([1, 2, 3]) + 2 * X.astype(np.int32)))


def test_state_of_another_shape_is_refused():
    other = Builder()
    other.variable("sum", DType.FP32, (2,), initial_value=[1, 2])
    other.input("x", DType.INT8, (3,))
    graph = other.graph([other.read("sum", DType.FP32, (2,))])
    state = tosajax.compile(graph).state
    with pytest.raises(ValueError, match=r"variable 'sum'.*float32\[2\].*int8\[3\]"):
        tosajax.compile(programs.accumulator(), state=state)


def test_examples_side_by_side_have_their_own():
    b = Builder()
    x = b.input("x", DType.INT8, (1, 3))
    b.variable("last", DType.INT8, (1, 3), initial_value=[[7, 8, 9]])
    old = b.read("last", DType.INT8, (1, 3))
    b.write("last", x)
    run = tosajax.compile(b.graph([old]), batch=2)
    x = np.arange(6, dtype=np.int8).reshape(2, 3)
    np.testing.assert_array_equal(run(x)[0], [[7, 8, 9]] * 2)
    np.testing.assert_array_equal(run(-x)[0], x)
    np.testing.assert_array_equal(run(x)[0], -x)


def test_order_of_access():
    """Reads and writes of one graph happen in its order."""
    b = Builder()
    x = b.input("x", DType.FP32, (1,))
    b.variable("v", DType.FP32, (1,), initial_value=[1.5])
    before = b.read("v", DType.FP32, (1,))
    b.write("v", b.op("ADD", before, x))
    between = b.read("v", DType.FP32, (1,))
    b.write("v", x)
    run = tosajax.compile(b.graph([before, between, b.read("v", DType.FP32, (1,))]))
    x = np.array([2.0], np.float32)
    np.testing.assert_array_equal(np.concatenate(run(x)), [1.5, 3.5, 2.0])


def branch(name: str, writes: bool) -> tosajax.Graph:
    b = Builder(name)
    x = b.input("x", DType.INT8, (3,))
    if writes:
        b.write("sum", x)
    return b.graph([b.op("IDENTITY", x) if writes else b.read("sum", DType.INT8, (3,))])


def test_variables_in_a_choice():
    b = Builder()
    flag, x = b.input("flag", DType.BOOL, (1,)), b.input("x", DType.INT8, (3,))
    b.variable("sum", DType.INT8, (3,), initial_value=[1, 2, 3])
    b.subgraph(branch("store", True))
    b.subgraph(branch("recall", False))
    chosen = b.op("COND_IF", flag, x, then_graph="store", else_graph="recall")
    run = tosajax.compile(b.graph([chosen]))
    np.testing.assert_array_equal(run(np.array([False]), X)[0], [1, 2, 3])
    np.testing.assert_array_equal(run(np.array([True]), X)[0], X)
    np.testing.assert_array_equal(run(np.array([False]), 0 * X)[0], X)


def test_variables_in_a_loop():
    """The condition counts its own runs: one more than the turns of the loop."""
    b = Builder("condition")
    i = b.input("i", DType.INT32, (1,))
    count = b.read("count", DType.FP32, (1,))
    b.write("count", b.op("ADD", count, b.const([1.0], DType.FP32)))
    condition = b.graph([b.op("GREATER", b.const([5], DType.INT32), i)])
    b = Builder("body")
    i = b.input("i", DType.INT32, (1,))
    body = b.graph([b.op("ADD", i, b.const([1], DType.INT32))])
    b = Builder()
    i = b.input("i", DType.INT32, (1,))
    b.variable("count", DType.FP32, (1,), initial_value=[0.0])
    names: dict[str, Any] = {"cond_graph": b.subgraph(condition), "body_graph": b.subgraph(body)}
    run = tosajax.compile(b.graph([b.op("WHILE_LOOP", i, **names)]))
    (last,) = run(np.array([2], np.int32))
    np.testing.assert_array_equal(last, [5])
    np.testing.assert_array_equal(run.state["count"].value, [4.0])
    run(np.array([9], np.int32))
    np.testing.assert_array_equal(run.state["count"].value, [5.0])


@pytest.mark.parametrize("dtype", [DType.INT8, DType.FP16, DType.FP32], ids=lambda d: d.name)
def test_every_type(dtype):
    b = Builder()
    x = b.input("x", dtype, ())
    b.variable("v", dtype, (), initial_value=-3)
    old = b.read("v", dtype, ())
    b.write("v", x)
    graph = b.graph([old])
    assert tosajax.validate(graph).needs is not None
    run = tosajax.compile(graph)
    values = np.array([-128, 127, 0]).astype(dtype.storage)
    found = [np.asarray(run(v)[0]) for v in values]
    np.testing.assert_array_equal(found, np.array([-3, -128, 127]).astype(dtype.storage))


@pytest.mark.parametrize(
    "dtype", [DType.BOOL, DType.INT16, DType.INT32, DType.BF16], ids=lambda d: d.name
)
def test_types_that_no_variable_has(dtype):
    b = Builder()
    b.input("x", DType.INT8, (1,))
    b.variable("v", dtype, (1,))
    graph = b.graph([b.read("v", dtype, (1,))])
    labels = [f.label for f in tosajax.validate(graph).errors]
    assert labels == ["variable.types", "variable_read.types"]


def test_target_without_variables():
    report = tosajax.validate(programs.accumulator(), tosajax.Target.parse("PRO-INT"))
    assert {f.label for f in report.errors} == {
        *("variable.profile", "variable_read.profile", "variable_write.profile")
    }


def changed(graph: tosajax.Graph, op: str, **change) -> tosajax.Graph:
    nodes = [dataclasses.replace(n, **change) if n.op == op else n for n in graph.nodes]
    return dataclasses.replace(graph, nodes=tuple(nodes))


@pytest.mark.parametrize(
    ("op", "name", "labels"),
    [
        ("VARIABLE_READ", "lost", ["variable_read.r1"]),
        ("VARIABLE_WRITE", "lost", ["variable_write.r1"]),
        ("VARIABLE", "lost", ["variable_read.r1", "variable_write.r1"]),
    ],
)
def test_undeclared_variables_are_unpredictable(op, name, labels):
    graph = changed(programs.accumulator(), op, attributes={"name": name})
    if op == "VARIABLE":
        (old,) = (n for n in programs.accumulator().nodes if n.op == op)
        graph = changed(programs.accumulator(), op, attributes={**old.attributes, "name": name})
    report = tosajax.validate(graph)
    assert [f.label for f in report.findings] == labels
    assert report.verdict is Verdict.UNPREDICTABLE
    with pytest.raises(UnsupportedError, match=r"variable '.*' is declared as nothing"):
        tosajax.compile(graph)


def test_variable_declared_twice():
    graph = programs.accumulator()
    (old,) = (n for n in graph.nodes if n.op == "VARIABLE")
    again = dataclasses.replace(graph.tensors[old.outputs[0]], name="again")
    graph = dataclasses.replace(
        graph,
        tensors={**graph.tensors, "again": again},
        nodes=(*graph.nodes, dataclasses.replace(old, outputs=("again",))),
    )
    report = tosajax.validate(graph)
    assert [f.label for f in report.findings] == ["variable.r3", "variable.r3"]
    assert report.verdict is Verdict.UNPREDICTABLE
    with pytest.raises(UnsupportedError, match="expected once"):
        tosajax.compile(graph)


@pytest.mark.parametrize(
    ("dtype", "shape", "rule"), [(DType.INT8, (1, 3), "r3"), (DType.FP16, (3,), "r4")]
)
def test_access_of_another_kind(dtype, shape, rule):
    b = Builder()
    x = b.input("x", dtype, shape)
    b.variable("v", DType.INT8, (3,))
    old = b.read("v", dtype, shape)
    b.write("v", x)
    report = tosajax.validate(b.graph([old]))
    wanted = [f"variable_read.{rule}", f"variable_write.{rule}"]
    assert [f.label for f in report.findings] == wanted
    assert report.verdict is Verdict.UNPREDICTABLE


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"type": spec.VarType.FP32}, "type is FP32, the variable is INT8[3]"),
        ({"var_shape": (4,)}, "var_shape is (4,), the variable is INT8[3]"),
    ],
)
def test_attributes_that_contradict_the_tensor(change, message):
    graph = programs.accumulator()
    (old,) = (n for n in graph.nodes if n.op == "VARIABLE")
    report = tosajax.validate(changed(graph, "VARIABLE", attributes={**old.attributes, **change}))
    assert [(f.label, f.message) for f in report.errors] == [("variable.attributes", message)]


def test_variable_of_no_tensor():
    report = tosajax.validate(changed(programs.accumulator(), "VARIABLE", outputs=()))
    assert [f.label for f in report.errors] == ["variable.outputs"]


def test_only_its_operators_access_a_variable():
    graph = programs.accumulator()
    (name,) = (n.outputs[0] for n in graph.nodes if n.op == "VARIABLE")
    with pytest.raises(TosaError, match="is a variable, expected an output of VARIABLE_READ"):
        tosajax.compile(changed(graph, "VARIABLE_WRITE", inputs=(name,)))
    with pytest.raises(TosaError, match="graph output 'variable_1' is a variable"):
        tosajax.compile(dataclasses.replace(graph, outputs=(name,)))


def test_reading_what_was_never_written_is_flagged():
    graph = programs.accumulator()
    run = tosajax.compile(graph, report_unpredictable=True)
    (title,) = (n.title for n in graph.nodes if n.op == "VARIABLE_READ")
    for wanted in (True, False):
        _, flags = run(X)
        assert bool(flags[title, "variable_read.r2"]) is wanted
    run = tosajax.compile(programs.accumulator([0, 0, 0]), report_unpredictable=True)
    assert not bool(run(X)[1][title, "variable_read.r2"])


def test_files_keep_variables(tmp_path):
    graph = programs.accumulator([3, 4, 5])
    tosajax.save(graph, tmp_path / "graph.tosa")
    run = tosajax.compile(tosajax.load(tmp_path / "graph.tosa"))
    for turn in (1, 2):
        np.testing.assert_array_equal(run(X)[0], wrapped([3, 4, 5] + turn * X.astype(np.int32)))


def test_data_sets_run_in_order():
    """Examples that share a variable do not run side by side."""
    data = np.arange(12, dtype=np.int8).reshape(4, 3)
    dataset = Dataset.of(programs.accumulator([1, 1, 1]), [data])
    (found,) = dataset.run(programs.accumulator([1, 1, 1]), batch=3)
    np.testing.assert_array_equal(found, 1 + np.cumsum(data, axis=0))
