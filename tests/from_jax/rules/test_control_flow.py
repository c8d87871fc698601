"""Loops and branches: decided by constants, as control flow of TOSA, and without it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from exports import agrees, operators
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

import tosajax
from tosajax import ops
from tosajax.from_jax.export import export
from tosajax.report import UnsupportedError

pytestmark = pytest.mark.usefixtures("quick")

X = np.array([-2.5, 0.0, 1.0, 3.25], np.float32)
ROWS = np.arange(20, dtype=np.float32).reshape(5, 4) - 7
KNOWN = np.linspace(-1, 1, 20, dtype=np.float32).reshape(5, 4)
NO_CONTROL_FLOW = "PRO-INT+PRO-FP@8K"


def all_operators(graph):
    """The operators of a graph and of all graphs in it."""
    return [op for part in graph.walk() for op in operators(part)]


def both_ways(fn, *args, **options):
    """Unrolled, and as a loop."""
    unrolled = agrees(fn, *args, max_unroll=64, **options)
    looped = agrees(fn, *args, model=True, max_unroll=1, **options)
    assert "WHILE_LOOP" not in all_operators(unrolled)
    assert "WHILE_LOOP" in all_operators(looped)
    return unrolled, looped


# scan


def summed(rows):
    return lax.scan(lambda total, row: (total + row, total * row), jnp.ones(4), rows)


def backwards(rows):
    return lax.scan(lambda c, row: (c * 0.5 + row, c), jnp.zeros(4), rows, reverse=True)


def mapped(rows):
    return lax.map(lambda row: (row * 2, row[:1] + row[1:2]), rows)


def without_rows(x):
    return lax.scan(lambda c, _: (c * 0.5, c), x, length=5)[0]


def carried_only(rows):
    return lax.scan(lambda c, row: (jnp.maximum(c, row), None), jnp.full(4, -jnp.inf), rows)[0]


def of_constants(x):
    """Rows of a constant, and a constant and an input that no turn changes."""
    return lax.scan(lambda c, row: (jnp.maximum(c * x, row) - KNOWN[1], c), jnp.zeros(4), KNOWN)


def of_equal_rows(x):
    """Repeated rows, of a constant and of an input, are not stored."""
    equal = jnp.broadcast_to(x, (5, 4)), jnp.full((5, 4), 0.5)
    return lax.scan(lambda c, rows: (c * rows[1] + rows[0], rows[0]), jnp.zeros(4), equal)


def scalars(rows):
    return lax.scan(lambda c, row: (c + row, c - row), jnp.float32(0), rows[:, 0])


def matrices(rows):
    def turn(c, row):
        return c + row, (row[:, None] * c[None, :], c[None, None])

    return lax.scan(turn, jnp.zeros(4), rows)


def other_types(rows):
    """Integers that wrap, bools and halves as rows, carry and results."""

    def turn(carry, row):
        bits, is_last, half = row
        total, was, sums = carry
        total, sums = total + bits, sums + half
        return (total, was ^ is_last, sums), (total, is_last | was, sums, total > 0)

    first = (rows * 9).astype(np.int8), rows > 0, rows.astype(np.float16)
    start = jnp.full(4, 100, jnp.int8), jnp.zeros(4, bool), jnp.zeros(4, jnp.float16)
    return lax.scan(turn, start, first)


def unchanged(rows):
    """A carry that stays what it is, next to one that is constant after the first turn."""

    def turn(carry, row):
        kept, constant, total = carry
        return (kept, jnp.ones(4), total + row * constant + kept), constant

    return lax.scan(turn, (rows[0], jnp.zeros(4), jnp.zeros(4)), rows)


def two_of_one(rows):
    """Two carries that begin as one tensor, results that are one, and one that is a row."""

    def turn(carry, row):
        a, b = carry
        return (a + row, b - row), (a, a, row, row)

    return lax.scan(turn, (rows[0], rows[0]), rows)


SCANS = [
    summed,
    backwards,
    mapped,
    without_rows,
    carried_only,
    of_constants,
    of_equal_rows,
    scalars,
    matrices,
    other_types,
    unchanged,
    two_of_one,
]


@pytest.mark.parametrize("fn", SCANS, ids=lambda fn: fn.__name__)
def test_scans(fn):
    both_ways(fn, X if fn in (without_rows, of_constants, of_equal_rows) else ROWS)


@settings(deadline=None, max_examples=4)
@given(
    length=st.integers(1, 7),
    shape=st.lists(st.integers(1, 4), max_size=3),
    reverse=st.booleans(),
    dtype=st.sampled_from([np.int32, np.int8, np.float32]),
    most=st.integers(1, 8),
    seed=st.integers(0, 2**16),
)
def test_scans_of_any_shape(length, shape, reverse, dtype, most, seed):
    rows = np.random.default_rng(seed).integers(-99, 99, (length, *shape)).astype(dtype)

    def fn(rows, start):
        def turn(carry, row):
            return carry + row, (carry - row, row + row)

        return lax.scan(turn, start, rows, reverse=reverse)

    graph = agrees(fn, rows, rows[0], model=True, max_unroll=most)
    assert ("WHILE_LOOP" in operators(graph)) == (length > most)


def test_scans_of_no_turns():
    def fn(x):
        carry, rows = lax.scan(lambda c, row: (c * row, c), x, jnp.zeros((0, 4)))
        return carry * 2, x + len(rows)

    assert operators(agrees(fn, X)) == ["MUL", "ADD"]
    agrees(lambda x: lax.fori_loop(3, 3, lambda i, c: c * 2, x), X)


def test_rows_of_constants_are_constants():
    def fn(x):
        rows = jnp.arange(5), jnp.arange(10.0).reshape(5, 2)
        return lax.scan(
            lambda c, row: (c + row[1][0] * row[0].astype(jnp.float32), row[0] * 3), x, rows
        )

    graph = agrees(fn, X, model=True)
    assert operators(graph) == ["ADD"] * 5


def test_constants_of_a_body_are_written_once():
    weight = np.random.default_rng(0).normal(size=(16, 16)).astype(np.float32)

    def fn(x):
        def turn(c, _):
            return c * jnp.exp(weight.T), None

        return lax.scan(turn, x, length=7)[0]

    graph = agrees(fn, weight, ulp=1)
    sizes = [t.values.size for t in graph.tensors.values() if t.values is not None]
    assert sorted(sizes)[-2:] == [1, 256]


def test_long_stacks_keep_the_lists_of_the_level_short():
    for length, wanted in ((130, [64, 64, 2, 3]), (129, [64, 64, 3])):

        def fn(x, length=length):
            return lax.scan(lambda c, _: (c + 1, c), x, length=length)[1]

        graph = agrees(fn, X, model=True, max_unroll=200)
        lists = [len(node.inputs) for node in graph.nodes if node.op == "CONCAT"]
        assert lists == wanted


def test_what_no_turn_changes_passes_once():
    def fn(x, rows):
        limit, by = jnp.abs(x), jnp.abs(x)
        return lax.while_loop(lambda c: jnp.all(c < limit), lambda c: c + by + 1, jnp.zeros(4))

    graph = agrees(fn, X, ROWS, model=True)
    (loop,) = (node for node in graph.nodes if node.op == "WHILE_LOOP")
    assert len(loop.inputs) == 2


def test_a_loop_over_int48_is_an_error():
    def fn(x):
        zero = jnp.zeros(1, jnp.int16)

        def turn(c, _):
            wide = ops.matmul(x, x, zero, zero, out_type=tosajax.DType.INT48)
            return c, wide

        return lax.scan(turn, jnp.zeros(1), length=5)[1]

    x = jax.ShapeDtypeStruct((1, 2, 2), np.int16)
    with pytest.raises(UnsupportedError, match=r"scan .*: a loop over rows of INT48"):
        export(fn, x, max_unroll=4)


# while


def counted(x, n):
    return lax.fori_loop(0, n, lambda i, c: c + i, x)


def from_to(x, n):
    return lax.fori_loop(n - 5, n, lambda i, c: c * 0.5 + i.astype(c.dtype), x)


@pytest.mark.parametrize("n", [-3, 0, 1, 6])
def test_traced_bounds(n):
    graph = agrees(counted, X, np.int32(n), model=True)
    assert operators(graph) == ["WHILE_LOOP"]
    agrees(from_to, X, np.int32(n), model=True)


def early_exit(x):
    """The first condition is constant, later ones are not."""

    def is_next(carry):
        turn, error, _ = carry
        return (turn < 9) & (error > 0.1)

    def turn(carry):
        turn, _, value = carry
        following = value * 0.5
        return turn + 1, jnp.max(jnp.abs(following - value)), following

    return lax.while_loop(is_next, turn, (0, jnp.float32(jnp.inf), x))


def collatz(n):
    def turn(carry):
        n, steps = carry
        return jnp.where(n % 2 == 0, n // 2, 3 * n + 1), steps + 1

    return lax.while_loop(lambda carry: carry[0] != 1, turn, (n, 0))


def test_loops_that_inputs_end():
    assert "WHILE_LOOP" in operators(agrees(early_exit, X, model=True))
    assert "WHILE_LOOP" in operators(agrees(early_exit, np.zeros(4, np.float32), model=True))
    for n in (1, 6, 27):
        agrees(collatz, np.int32(n), model=True)


def test_loops_that_constants_end():
    limit = jnp.int32(5)

    @jax.jit
    def turn(carry):
        count, x = carry
        return count + 1, x * 2 + count

    def fn(x):
        return lax.while_loop(lambda carry: carry[0] < limit, turn, (0, x))[1]

    graph = agrees(fn, X, model=True, max_unroll=5)
    assert operators(graph) == ["MUL", "ADD"] * 5
    assert operators(agrees(fn, X, model=True, max_unroll=4)) == ["WHILE_LOOP"]


def test_loops_that_never_begin():
    graph = agrees(lambda x: lax.while_loop(lambda c: False, lambda c: c * 2, x), X, model=True)
    assert operators(graph) == ["IDENTITY"]


@pytest.mark.filterwarnings("ignore:random bits that depend on no argument")
def test_keys_of_a_constant_seed_count_turns():
    def fn(x):
        def turn(carry):
            count, key, x = carry
            key, used = jax.random.split(key)
            return count + 1, key, x + jax.random.normal(used, (4,))

        start = 0, jax.random.key(0), x
        return lax.while_loop(lambda carry: carry[0] < 3, turn, start)[2]

    assert operators(agrees(fn, X, ulp=1)) == ["ADD"] * 3


# cond


def halves(x):
    return lax.cond(x[3] > 0, lambda x: (x * 2, x), lambda x: (x - 1, -x), x)


def chosen(count):
    scales = range(2, 2 + count)
    branches = [lambda x, y, scale=scale: (x * scale, y + scale) for scale in scales]
    return lambda index, x, y: lax.switch(index, branches, x, y)


def test_two_branches():
    for x in (X, -X, 0 * X):
        graph = agrees(halves, x, model=True)
        assert operators(graph) == ["SLICE", "RESHAPE", "GREATER", "COND_IF"]
        one = agrees(halves, x, model=True, target=NO_CONTROL_FLOW)
        assert operators(one).count("SELECT") == 2
        assert "computes all branches" in str(one.source.rewrites)


def test_a_bool_is_the_condition():
    graph = agrees(lambda b, x: lax.cond(b, jnp.negative, lambda x: x * 2, x), np.True_, X)
    assert operators(graph) == ["COND_IF"]


@pytest.mark.parametrize("count", [1, 2, 3, 9])
def test_switch(count):
    fn = chosen(count)
    indices = np.array([-(2**31), -1, *range(count + 1), 2**31 - 1], np.int32)
    wanted = jax.vmap(fn, (0, None, None))(indices, X, X + 1)
    for target, op, places in ((None, "COND_IF", 1), (NO_CONTROL_FLOW, "SELECT", 2)):
        graph = export(fn, np.int32(0), X, X, target=target)
        assert all_operators(graph).count(op) == places * (count - 1)
        by_model = tosajax.reference_model.run(graph, indices, X, X + 1)
        run = tosajax.compile(graph)
        ours = [np.stack(rows) for rows in zip(*(run(i, X, X + 1) for i in indices), strict=True)]
        for found in (ours, by_model.values()):
            for rows, others in zip(found, wanted, strict=True):
                np.testing.assert_array_equal(rows, others)


@pytest.mark.parametrize("index", [-5, 0, 1, 2, 7])
def test_a_constant_index_takes_its_branch(index):
    fn = chosen(3)
    graph = agrees(lambda x: fn(jnp.int32(index), x, x), X)
    assert operators(graph) == ["MUL", "ADD"]


def test_operands_that_no_branch_reads():
    def fn(b, x, y, z):
        scale = y * 2
        return lax.cond(b, lambda x, y, z: x, lambda x, y, z: z * scale, x, y, z)

    graph = agrees(fn, np.False_, X, X + 1, X + 2, model=True)
    (branch,) = (node for node in graph.nodes if node.op == "COND_IF")
    assert len(branch.inputs) == 4
    assert "y" not in branch.inputs


def test_branches_of_constants():
    def fn(b):
        return lax.cond(b, lambda: (jnp.ones(2), jnp.ones(2)), lambda: (jnp.zeros(2), KNOWN[0, :2]))

    for b in (np.True_, np.False_):
        agrees(fn, b, model=True)
        agrees(fn, b, model=True, target=NO_CONTROL_FLOW)


def test_types_of_branches():
    def fn(b, x):
        values = x > 0, (x * 30).astype(np.int8), x.astype(np.float16), x.astype(np.int16)
        return lax.cond(b, lambda *v: v, lambda a, b, c, d: (~a, b + b, -c, d * d), *values)

    for b in (np.True_, np.False_):
        agrees(fn, b, X, model=True)
        agrees(fn, b, X, model=True, target="PRO-INT+PRO-FP+EXT-INT16@8K")


def test_repeated_operands():
    def fn(b, x):
        wide = jnp.broadcast_to(x, (3, 4))
        return lax.cond(b, lambda a, b: a + b, lambda a, b: a * 2, wide, wide)

    graph = agrees(fn, np.True_, X, model=True)
    assert "TILE" not in operators(graph)
    agrees(fn, np.False_, X, model=True)


def test_unchosen_branches_do_not_show():
    def fn(x):
        return lax.cond(x[0] > 0, lambda x: x / 0, lambda x: jnp.sqrt(jnp.abs(x)) * 0, x)

    agrees(fn, X, model=True, target=NO_CONTROL_FLOW)


# In each other


def cond_in_scan(rows):
    def turn(c, row):
        c = lax.cond(row[0] > 0, lambda c: c + row, lambda c: c - 1, c)
        return c, lax.cond(c[0] > c[1], lambda: row, lambda: c)

    return lax.scan(turn, jnp.zeros(4), rows)


def scan_in_cond(rows):
    def backward(rows):
        return summed(rows[::-1])

    return lax.cond(rows[0, 0] < 0, summed, backward, rows)


def loops_in_loops(x):
    def outer(i, c):
        return lax.fori_loop(0, 3, lambda j, c: c * 0.5 + (i + j), c)

    return lax.fori_loop(0, 4, outer, x)


def test_control_flow_in_control_flow():
    both_ways(cond_in_scan, ROWS)
    both_ways(scan_in_cond, ROWS)
    agrees(scan_in_cond, -ROWS, model=True, max_unroll=1)
    both_ways(loops_in_loops, X)


def nested(depth, x):
    if depth == 0:
        return x * 2
    return lax.cond(x[0] < depth, lambda x: nested(depth - 1, x) + 1, lambda x: x - depth, x)


def test_branches_that_are_too_deep_are_selected():
    for x in (X, X + 6):
        graph = agrees(lambda x: nested(8, x), x, model=True)
        found = all_operators(graph)
        assert found.count("COND_IF") == 6
        assert found.count("SELECT") == 2
        assert all_operators(agrees(lambda x: nested(8, x), x, target=None)) == found
    everything = tosajax.Target.everything("none")
    deep = export(lambda x: nested(8, x), X, target=everything, check=False)
    assert all_operators(deep).count("COND_IF") == 8


def test_loops_that_are_too_deep():
    def fn(depth, x):
        if depth == 0:
            return x + 2
        return lax.while_loop(lambda x: x[0] < depth, lambda x: fn(depth - 1, x) + 1, x)

    agrees(lambda x: fn(6, x), X, model=True)
    message = "while .*nests no more than 6 graphs"
    with pytest.raises(UnsupportedError, match=message):
        export(lambda x: fn(7, x), X)


# Errors


def test_loops_need_control_flow():
    message = (
        r"while \(.*test_control_flow.py:\d+\): a loop of turns that are not constant, or too "
        r"many, expected at most max_unroll, 64, as a constant; PRO-INT\+PRO-FP@8K lacks "
        r"EXT-CONTROLFLOW, as do Vela and VGF"
    )
    with pytest.raises(UnsupportedError, match=message):
        export(counted, X, np.int32(3), target=NO_CONTROL_FLOW)
    with pytest.raises(UnsupportedError, match=r"scan .*a loop of 5 turns, .*max_unroll, 4,"):
        export(summed, ROWS, target=NO_CONTROL_FLOW, max_unroll=4)
    agrees(summed, ROWS, target=NO_CONTROL_FLOW, max_unroll=5)


# As users write it


def test_operators_of_control_flow():
    def fn(condition, x, y):
        first, second = ops.cond_if(
            condition,
            [x, y],
            then_graph=lambda x, y: (x + y, x),
            else_graph=lambda x, y: (x - y, y),
        )
        return ops.while_loop(
            [first, second],
            cond_graph=lambda a, b: (a < 100).reshape(1),
            body_graph=lambda a, b: [a * b, b],
        )

    for condition in (np.True_, np.False_):
        graph = agrees(fn, condition.reshape(1), np.int32(5), np.int32(3), model=True)
        assert [op for op in operators(graph) if "_" in op] == ["COND_IF", "WHILE_LOOP"]


def gru(rows, state, weights):
    into, over, bias = weights

    def turn(h, row):
        r, z, n = jnp.split(row @ into + bias, 3, -1)
        hr, hz, hn = jnp.split(h @ over, 3, -1)
        r, z = jax.nn.sigmoid(r + hr), jax.nn.sigmoid(z + hz)
        h = (1 - z) * jnp.tanh(n + r * hn) + z * h
        return h, h

    return lax.scan(turn, state, rows)


def test_gru():
    rng = np.random.default_rng(0)
    shapes = (6, 2, 3), (2, 4), (3, 12), (4, 12), (1, 12)
    rows, state, *weights = (rng.normal(size=s).astype(np.float32) for s in shapes)

    def with_constants(rows, state):
        return gru(rows, state, weights)

    both_ways(with_constants, rows, state, ulp=16)
    agrees(gru, rows, state, weights, ulp=16, max_unroll=1)


def test_slopes_of_a_scan():
    def loss(rows):
        last, outputs = lax.scan(lambda h, row: (jnp.tanh(h * row), h), jnp.ones(4), rows)
        return jnp.sum(last) + jnp.sum(outputs * outputs)

    both_ways(jax.value_and_grad(loss), ROWS / 9, ulp=32)
    agrees(jax.grad(jax.checkpoint(loss)), ROWS / 9, ulp=32)


def shrunk(x, limit):
    """A matrix as state, and a limit that no turn changes."""
    start = jnp.full((2, 2), x)
    return lax.while_loop(lambda c: c[0, 1] > limit, lambda c: c - 1, start)


def few(n, x):
    """As many turns as a constant batch decides on."""
    return lax.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, c[1] * 2), (0, x))[1]


def test_batches():
    counts = jnp.array([0, 3, 1, 2])
    graph = agrees(lambda x: jax.vmap(few)(counts, x), X, model=True)
    assert "WHILE_LOOP" not in operators(graph)

    def one(x):
        halved = lax.while_loop(lambda c: c > 1, lambda c: c * 0.5, x)
        return halved, lax.cond(x > 0, lambda x: x * 2, lambda x: x - 1, x)

    graph = agrees(jax.vmap(one), X * 4, model=True)
    assert "COND_IF" not in operators(graph)
    agrees(jax.vmap(collatz), np.array([6, 1, 27, 2], np.int32), model=True)
    agrees(jax.vmap(jax.vmap(shrunk, (0, None)), (None, 0)), X, X[:3], model=True)

    agrees(jax.vmap(summed), np.stack([ROWS, ROWS[::-1]]), max_unroll=1)


def test_associative_scan():
    rows = ROWS.astype(np.int32)
    graph = agrees(lambda rows: lax.associative_scan(jnp.add, rows), rows, model=True)
    assert "WHILE_LOOP" not in operators(graph)
    agrees(lambda rows: lax.associative_scan(jnp.maximum, rows, reverse=True), ROWS)


def search(logits, length=4, width=2):
    """A beam search that ends when all beams do."""
    end, logits = 0, jnp.asarray(logits)

    def is_next(carry):
        turn, beams, _ = carry
        return (turn < length) & jnp.any(beams[:, -1] != end)

    def turn(carry):
        turn, beams, scores = carry
        following = scores[:, None] + logits[beams[:, -1]]
        best, at = lax.top_k(following.reshape(-1), width)
        tokens = (at % logits.shape[1]).astype(jnp.int32)
        beams = beams[at // logits.shape[1]]
        return turn + 1, jnp.concatenate([beams[:, 1:], tokens[:, None]], 1), best

    beams = jnp.ones((width, length), jnp.int32)
    return lax.while_loop(is_next, turn, (0, beams, jnp.array([0.0, -1e9])))


def test_beam_search():
    logits = np.random.default_rng(1).normal(size=(5, 5)).astype(np.float32)
    agrees(search, logits, model=True)
    agrees(search, logits + 9 * (np.arange(5) == 0).astype(np.float32), model=True)
