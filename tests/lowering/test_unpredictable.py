"""Flags of broken REQUIRE rules: which node, which rule, which example."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import programs
import pytest

import tosajax
from tosajax import Builder, DType

BIG = (1 << 31) - 1
ADD = ("ADD 'sum'", "add.r1")
DIVIDE = ("INTDIV 'ratio'", "intdiv.r1")


def chain() -> tosajax.Graph:
    """x, y -> (x + y) / y"""
    b = Builder()
    x, y = b.input("x", DType.INT32, (1, 2)), b.input("y", DType.INT32, (1, 2))
    return b.graph([b.op("INTDIV", b.op("ADD", x, y, name="sum"), y, name="ratio")])


def array(*values: int) -> np.ndarray:
    return np.array([values], np.int32)


CASES = [
    (array(1, 2), array(3, 4), set()),
    (array(BIG, 2), array(0, 4), {DIVIDE}),
    (array(BIG, BIG), array(1, -1), {ADD}),
    (array(BIG, 5), array(1, 0), {ADD, DIVIDE}),
]


def raised(flags) -> set[tuple[str, str]]:
    return {name for name, flag in flags.items() if bool(flag)}


@pytest.mark.parametrize(("x", "y", "wanted"), CASES)
def test_flags(x, y, wanted):
    fn, params = tosajax.lower(chain(), report_unpredictable=True)
    for form in (fn, jax.jit(fn)):
        _, flags = form(params, jnp.asarray(x), jnp.asarray(y))
        assert raised(flags) == wanted
        assert all(flag.shape == () and flag.dtype == bool for flag in flags.values())
    run = tosajax.compile(chain(), report_unpredictable=True)
    outputs, flags = run(x, y)
    assert raised(flags) == wanted
    np.testing.assert_array_equal(outputs[0], tosajax.compile(chain())(x, y)[0])


def test_flags_of_each_example():
    x, y = (np.concatenate([case[i] for case in CASES]) for i in (0, 1))
    run = tosajax.compile(chain(), batch=len(CASES), report_unpredictable=True)
    _, flags = run(x, y)
    for name in (ADD, DIVIDE):
        np.testing.assert_array_equal(flags[name], [name in case[2] for case in CASES])
    fn, params = tosajax.lower(chain(), report_unpredictable=True)
    mapped = jax.vmap(fn, in_axes=(None, 0, 0))
    _, flags = mapped(params, *(jnp.asarray(v)[:, None] for v in (x, y)))
    np.testing.assert_array_equal(flags[ADD], [ADD in case[2] for case in CASES])


def test_nothing_is_reported_by_default():
    run = tosajax.compile(chain())
    (found,) = run(array(BIG, 5), array(1, 1))
    assert found.shape == (1, 2)


SUM = programs.plus(1, "then"), programs.unary("ABS", "else")
X = np.array([BIG, 0, 0], np.int32)


@pytest.mark.parametrize(
    ("taken", "x", "wanted"), [(True, X, True), (False, X, False), (True, 0 * X, False)]
)
def test_flags_of_the_branch_that_runs(taken, x, wanted):
    run = tosajax.compile(programs.choice(*SUM), report_unpredictable=True)
    _, flags = run(np.array([taken]), x)
    assert bool(flags["COND_IF 'chosen' > ADD 'y'", "add.r1"]) is wanted


def test_flags_of_both_branches():
    graph = programs.choice(programs.plus(1, "then"), programs.plus(-1, "else"))
    run = tosajax.compile(graph, report_unpredictable=True)
    name = ("COND_IF 'chosen' > ADD 'y'", "add.r1")
    for taken, value, wanted in ((True, BIG, True), (False, BIG, False), (False, -BIG - 1, True)):
        _, flags = run(np.array([taken]), np.array([value, 0, 0], np.int32))
        assert bool(flags[name]) is wanted


@pytest.mark.parametrize(("start", "wanted"), [(3, False), (2, True), (0, True), (9, False)])
def test_flags_of_any_turn(start, wanted):
    """x doubles in each turn: the second overflows, and a third does not take that back."""
    graph = programs.loop(programs.below(4), programs.doubled())
    run = tosajax.compile(graph, report_unpredictable=True)
    _, flags = run(np.array([start], np.int32), np.array([1 << 29, 0, 0], np.int32))
    assert raised(flags) == ({(flag_of_doubling(graph), "add.r1")} if wanted else set())


@pytest.mark.parametrize(("last", "start", "wanted"), [(4, 0, True), (4, 9, True), (3, 0, False)])
def test_flags_of_conditions(last, start, wanted):
    """The sum overflows above 3: before the first turn, after the last one, or never."""
    b = Builder("below")
    i, _ = b.input("i", DType.INT32, (1,)), b.input("x", DType.INT32, (3,))
    b.op("ADD", i, b.const([BIG - 3], DType.INT32), name="sum")
    below = b.graph([b.op("GREATER", b.const([last], DType.INT32), i)])
    graph = programs.loop(below, programs.doubled())
    run = tosajax.compile(graph, report_unpredictable=True)
    name = (f"{graph.nodes[0].title} > ADD 'sum'", "add.r1")
    _, flags = run(np.array([start], np.int32), np.zeros(3, np.int32))
    assert bool(flags[name]) is wanted


def flag_of_doubling(graph: tosajax.Graph) -> str:
    (loop,) = graph.nodes
    *_, node = graph.subgraphs["doubled"].nodes
    return f"{loop.title} > {node.title}"
