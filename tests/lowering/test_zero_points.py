"""Zero points that EXT-DYNAMIC leaves open: the rules of constants hold for values of a run."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracle.legal_graphs import LEGAL, ROWS, graph_of, of_row

import tosajax
from tosajax import Builder, DType, TosaError, reference_model, run_op, validate
from tosajax.checks import RULES
from tosajax.graph import Graph
from tosajax.lowering.build import to_device

CASES = [
    pytest.param(operator, row, a.name, {}, id=f"{operator.name}-{row.mode}-{a.name}")
    for operator, row in ROWS
    for a in operator.inputs
    if a.name.endswith("_zp")
] + [
    pytest.param(operator, row, f"{end}_zp", {f"{end}_unsigned": True}, id=f"u{row.mode}-{end}_zp")
    for operator, row in ROWS
    if operator.name == "RESCALE"
    for end, of, other in (("input", "in_t", "out_t"), ("output", "out_t", "in_t"))
    if row.types[of] is DType.INT16 and row.types[other] in (DType.INT8, DType.INT16)
]
X = np.ones((1, 2, 2), np.float32)
ZERO, ONE = np.zeros(1, np.float32), np.ones(1, np.float32)
MESSAGE = "MATMUL 'y': a_zp is 1.0, expected 0 for FP32 [matmul.e1]"


def test_every_operator_with_a_zero_point_has_a_rule():
    operators = {getattr(case.values[0], "name", "") for case in CASES}
    assert operators == {name for name, rules in RULES.items() if rules.zero_points is not None}


def values_of(dtype: DType) -> np.ndarray:
    """0, the values beside it, and the ends of the type."""
    if dtype.is_integer:
        ends = (dtype.minimum, dtype.minimum + 1, dtype.maximum)
        return np.array([0, 1, -1, 2, *ends], dtype.storage)
    info = jnp.finfo(dtype.storage)
    least = float(info.smallest_subnormal)
    small = np.array([0.0, -0.0, least, -least, info.tiny, 1, -1, info.max], np.float64)
    specials = [np.nan] if dtype is DType.FP8E4M3 else [np.nan, np.inf]
    return np.array([*small, *specials], dtype.storage)


def errors(graph: Graph) -> list[tuple[str, str]]:
    return [(f.label, f.message) for f in validate(graph).errors]


@pytest.mark.parametrize(("operator", "row", "name", "unsigned"), CASES)
def test_the_rule_of_constants_holds_in_a_run(operator, row, name, unsigned, tmp_path):
    legal = LEGAL[operator.name] | of_row(operator, row) | unsigned
    graph = graph_of(operator.name, legal | {name: (1,)})
    dtype = graph.tensors[name].dtype
    values = values_of(dtype)[:, None]
    wanted = [errors(graph_of(operator.name, legal | {name: value})) for value in values]
    is_open, is_even = dtype is DType.INT8, bool(unsigned) or dtype.is_float
    assert wanted.count([]) == (len(values) if is_open else 2 if is_even else 1)
    assert errors(graph) == []
    inputs = [
        to_device(np.zeros(t.shape or (), t.dtype.storage), t.dtype) for t in graph.input_tensors
    ]
    place = graph.inputs.index(name)
    fn, params = tosajax.lower(graph, report_unpredictable=True)

    def flags(value):
        _, found = fn(params, *inputs[:place], value, *inputs[place + 1 :])
        return {rule: flag for (_, rule), flag in found.items() if ".e" in rule}

    found = jax.jit(jax.vmap(flags))(to_device(values, dtype))
    assert found.keys() == {label for problems in wanted for label, _ in problems}
    for flag in found.values():
        np.testing.assert_array_equal(flag, [bool(problems) for problems in wanted])

    # Executables, and a function that nothing traces, raise before they compute.
    run = tosajax.compile(graph)
    run.save(tmp_path / "run.tjx")
    saved = tosajax.load_executable(tmp_path / "run.tjx")
    for value, problems in zip(values, wanted, strict=True):
        inputs[place] = value
        for form in (run, saved, lambda *inputs: fn(params, *inputs)) if problems else ():
            with pytest.raises(TosaError) as caught:
                form(*inputs)
            (finding,) = caught.value.report.findings
            assert [(finding.label, finding.message)] == problems
            assert finding.node == graph.nodes[-1].title


def product(*, a_zp: str = "input", dtype: DType = DType.FP32) -> Graph:
    """MATMUL of a tensor by itself, with an open zero point."""
    b = Builder()
    x, zero_point = b.input("x", dtype, (1, 2, 2)), b.input("zp", dtype, (1,))
    if a_zp == "computed":
        zero_point = b.op("ADD", zero_point, zero_point)
    y = b.op("MATMUL", x, x, zero_point, b.const(ZERO, dtype), name="y", dtype=dtype)
    return b.graph([y])


def test_executables_refuse_an_illegal_zero_point():
    run = tosajax.compile(product())
    np.testing.assert_array_equal(run(X, ZERO)[0], 2 * X)
    for value in (ONE, jnp.asarray(ONE)):
        with pytest.raises(TosaError) as caught:
            run(X, value)
        assert str(caught.value) == MESSAGE


def test_no_other_input_is_read_on_the_host(monkeypatch):
    """It would be copied from its device, and waited for, in every call."""
    run, x, zero_point = tosajax.compile(product()), jnp.asarray(X), jnp.asarray(ZERO)
    run(x, zero_point)
    read: list[object] = []

    class Watched:
        ndarray = np.ndarray

        @staticmethod
        def asarray(value):
            read.append(value)
            return np.array(value)

    monkeypatch.setattr("tosajax.lowering.zero_points.np", Watched)
    run(x, zero_point)
    assert [value is zero_point for value in read] == [True]


def test_each_example_has_its_zero_point(tmp_path):
    run = tosajax.compile(product(), batch=2)
    forms: list[tosajax.Executable | tosajax.SavedExecutable] = [run]
    for name, open_batch in (("fixed", False), ("open", True)):
        run.save(tmp_path / name, open_batch=open_batch)
        forms.append(tosajax.load_executable(tmp_path / name))
    images = np.concatenate([X, X])
    for form in forms:
        np.testing.assert_array_equal(form(images, np.zeros(2, np.float32))[0], 2 * images)
        with pytest.raises(TosaError, match=r"a_zp is 1\.0 at \[1\], expected 0"):
            form(images, np.array([0, 1], np.float32))


@pytest.mark.parametrize(("value", "wanted"), [(ZERO, False), (-ZERO, False), (ONE, True)])
def test_a_computed_zero_point_is_a_flag(value, wanted):
    run = tosajax.compile(product(a_zp="computed"), report_unpredictable=True)
    _, flags = run(X, value)
    assert bool(flags["MATMUL 'y'", "matmul.e1"]) is wanted


def test_constant_zero_points_have_no_flags():
    b = Builder()
    x, zero = b.input("x", DType.FP32, (1, 2, 2)), b.const(ZERO, DType.FP32)
    graph = b.graph([b.op("MATMUL", x, x, zero, zero)])
    _, flags = tosajax.compile(graph, report_unpredictable=True)(X)
    assert flags == {}


def test_either_operand_raises_the_flag_they_share():
    b = Builder()
    x, zero_points = b.input("x", DType.FP32, (1, 2, 2)), b.input("zp", DType.FP32, (2,))
    halves = [b.op("SLICE", zero_points, b.const_shape([i]), b.const_shape([1])) for i in (0, 1)]
    graph = b.graph([b.op("MATMUL", x, x, *halves, name="y")])
    run = tosajax.compile(graph, report_unpredictable=True)
    for values in ((0, 0), (0, 1), (1, 0), (1, 1)):
        _, flags = run(X, np.array(values, np.float32))
        assert {name: bool(flag) for name, flag in flags.items()} == {
            ("MATMUL 'y'", "matmul.e1"): any(values)
        }


@pytest.mark.parametrize(("value", "wanted"), [(0, False), (3, True)])
def test_flags_pass_out_of_control_flow(value, wanted):
    b = Builder("negated")
    x, zero_point = b.input("x", DType.INT32, (3,)), b.input("zp", DType.INT32, (1,))
    branch = b.graph([b.op("NEGATE", x, zero_point, b.const([0], DType.INT32), name="y")])
    b = Builder()
    inputs = b.input("taken", DType.BOOL, (1,)), b.input("x", DType.INT32, (3,))
    zero_point = b.input("zp", DType.INT32, (1,))
    name = b.subgraph(branch)
    y = b.op("COND_IF", *inputs, zero_point, then_graph=name, else_graph=name, name="chosen")
    run = tosajax.compile(b.graph([y]), report_unpredictable=True)
    _, flags = run(np.array([True]), np.zeros(3, np.int32), np.array([value], np.int32))
    assert bool(flags["COND_IF 'chosen' > NEGATE 'y'", "negate.e1"]) is wanted


@pytest.mark.parametrize("reads", ["output", "zero point"])
def test_folding_finds_a_zero_point_that_constants_give(reads):
    """The node is folded or stays: one operand is an input, or all are constants."""
    b = Builder()
    two = b.const([2], DType.INT32)
    zero_point = b.op("SUB", two, b.const([1], DType.INT32), name="difference")
    x = b.input("x", DType.INT32, (3,)) if reads == "output" else b.const([1, 2, 3], DType.INT32)
    y = b.op("NEGATE", x, zero_point, b.const([0], DType.INT32), name="y")
    graph = b.graph([y, b.input("z", DType.INT32, (1,))])
    assert validate(graph).errors == ()
    with pytest.raises(TosaError, match=r"NEGATE 'y': input1_zp is 1, expected 0 .*negate\.e1"):
        tosajax.compile(graph)


def test_values_with_gradients_are_not_judged():
    """They are no arrays: a QTensor holds one, and its shadow."""
    b = Builder()
    x, zero_point = (b.input(name, DType.INT16, (1,)) for name in ("x", "zp"))
    graph = b.graph([b.op("NEGATE", x, zero_point, b.const([0], DType.INT16))])
    fn, params = tosajax.differentiable(graph)
    (found,) = fn(params, np.array([3], np.int16), np.array([0], np.int16))
    assert found.q.tolist() == [-3]


def test_run_op():
    inputs = [X, X, ONE, ZERO]
    with pytest.raises(TosaError, match=r"a_zp is 1\.0, expected 0 for FP32 \[matmul\.e1\]"):
        run_op("MATMUL", inputs)
    # A function that closes over a value knows it; of a traced one it can say nothing.
    with pytest.raises(TosaError, match=r"matmul\.e1"):
        jax.jit(lambda x: run_op("MATMUL", [x, x, ONE, ZERO]))(X)
    assert jax.jit(lambda zp: run_op("MATMUL", [X, X, zp, ZERO]))(ONE).shape == (1, 2, 2)


@pytest.mark.skipif(not reference_model.is_installed(), reason="tosa-tools is not installed")
@pytest.mark.parametrize(
    ("op", "mode", "name"),
    [
        ("MATMUL", "fp32 with fp32 accumulate", "b_zp"),
        ("CONV2D", "signed 16x8 with int48 accumulate", "input_zp"),
        ("AVG_POOL2D", "fp16 with fp16 accumulate", "output_zp"),
        ("NEGATE", "signed 32", "input1_zp"),
        ("RESCALE", "32-bit to 8-bit", "input_zp"),
    ],
)
def test_the_reference_model_agrees(op, mode, name):
    operator, row = next(x for x in ROWS if x[0].name == op and x[1].mode == mode)
    graph = graph_of(op, LEGAL[op] | of_row(operator, row) | {name: (1,)})
    run = tosajax.compile(graph)
    inputs = {t.name: np.ones(t.shape or (), t.dtype.storage) for t in graph.input_tensors}
    with pytest.raises(ValueError, match="Arm's model gave ERROR: ERROR_IF"):
        reference_model.run(graph, *inputs.values())
    with pytest.raises(TosaError, match=f"{name} is 1"):
        run(*inputs.values())
    inputs[name][:] = 0
    (wanted,) = reference_model.run(graph, *inputs.values()).values()
    np.testing.assert_array_equal(run(*inputs.values())[0], wanted)
