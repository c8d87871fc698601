"""Two programs on the same examples: rows, what matches, what a layer does by itself."""

from __future__ import annotations

import csv
import dataclasses
import json
import math
import tracemalloc

import jax
import numpy as np
import programs
import pytest
import small_networks as small

import tosajax
from tosajax import Builder, DType, Graph, TosaError, quant, rewrite
from tosajax.compare import compare, random_inputs, scales_of, tflite, which_rounding
from tosajax.compare.programs import named
from tosajax.runtime.dump import dump
from tosajax.spec import RoundingMode

NAMES = ["acc1", "act1", "relu1", "acc2", "out"]


def damaged(graph: Graph, tensor: str, change) -> Graph:
    """A constant changed."""
    values = graph.tensors[tensor].values
    assert values is not None
    new = dataclasses.replace(graph.tensors[tensor], values=change(values.copy()))
    return dataclasses.replace(graph, tensors={**graph.tensors, tensor: new})


def operand(graph: Graph, output: str, position: int) -> str:
    (node,) = [n for n in graph.nodes if output in n.outputs]
    return node.inputs[position]


def test_equal_graphs():
    graph = small.two_layers()
    found = compare(graph, graph, small.images(5), batch=2)
    assert found
    assert (found.first_divergent, found.worst, found.examples) == (None, None, 5)
    assert [row.tensor for row in found.rows] == NAMES
    assert str(found) == "5 of 5 tensors are equal, on 5 examples"
    assert [row.tensor for row in found.outputs] == ["out"]
    (row,) = found.outputs
    assert (row.total.elements, row.total.sqnr, row.local) == (5 * 32, math.inf, None)
    assert (row.operator, row.dtype, row.location) == ("RESCALE", "INT8", "second/conv")


def test_arms_reference_model():
    found = compare(small.two_layers(), "reference_model", small.images(3), local=True)
    assert found
    assert [row.tensor for row in found.rows] == NAMES
    assert all(row.local and not row.local.mismatches for row in found.rows)


def test_the_forms_of_the_command_line(tmp_path):
    """A graph's file, and "ref", as `--against` takes them; in `which_rounding` as well."""
    graph, x = small.two_layers(), small.images(3)
    tosajax.save(graph, tmp_path / "own.tosa")
    tosajax.save(rewrite.rounding(graph, "double"), tmp_path / "twice.json")
    assert compare(graph, "ref", x, outputs_only=True)
    assert compare(graph, "ref", x) == compare(graph, "reference_model", x)
    for path in (tmp_path / "own.tosa", str(tmp_path / "own.tosa")):
        found = compare(graph, path, x)
        assert found.names[1] == str(path)
        assert found.rows == compare(graph, graph, x).rows
    assert not compare(graph, tmp_path / "twice.json", x)
    table = which_rounding(graph, {"twice": tmp_path / "twice.json", "arm": "ref"}, x)
    assert table.equal == [("as it is", "arm"), ("single", "arm"), ("double", "twice")]
    for wrong in ("m.bin", tmp_path / "m", "reference"):
        with pytest.raises(ValueError, match="to compare with, expected ref"):
            compare(graph, wrong, x)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        compare(graph, tmp_path / "nowhere.tosa", x)
    with pytest.raises(ValueError, match="kernels 'fast', expected one of"):
        compare(graph, "tflite:m.tflite,fast", x)


def test_a_path_of_a_tflite_model_is_one_on_litert():
    assert named("m.tflite") == named("tflite:m.tflite") == tflite("m.tflite")
    assert named("tflite:a,b.tflite,builtin") == tflite("a,b.tflite", "builtin")


def test_against_whole_arrays():
    """Batches, padding of the last one included, leave no trace."""
    a, b = small.two_layers(), rewrite.rounding(small.two_layers(), "double")
    x = small.images(7)
    one, other = dump(a, x), dump(b, x)
    for batch in (3, 50):
        found = compare(a, b, x, batch=batch)
        for row in found.rows:
            p, q = (z[row.tensor].astype(int) for z in (one, other))
            assert row.total.mismatches == np.count_nonzero(p != q)
            assert row.total.max_error == np.abs(p - q).max()
            where = np.argwhere((p != q)[:, None])
            assert row.total.first == (tuple(where[0].tolist()) if len(where) else None)
    assert found.first_divergent is not None
    assert found.first_divergent.tensor == "act1"


DAMAGE = {
    "multiplier": ("act1", 1, lambda m: m // 2, "act1"),
    "channel": ("acc2", 1, lambda w: np.where(np.arange(2).reshape(2, 1, 1, 1) == 1, 0, w), "acc2"),
    "zero point": ("out", 4, lambda z: z + 1, "out"),
    "bias": ("acc1", 2, lambda b: b + 40, "acc1"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_local_errors_name_the_layer(kind):
    output, position, change, want = DAMAGE[kind]
    good = small.two_layers()
    bad = damaged(good, operand(good, output, position), change)
    found = compare(bad, good, small.images(6), local=True, batch=4)
    assert not found
    assert found.worst is not None
    assert found.worst.tensor == want
    assert found.first_divergent is found.worst
    wrong = [row.tensor for row in found.rows if row.local and row.local.mismatches]
    assert wrong == [want]
    assert f"worst by itself: {found.worst.operator} '{want}'" in str(found)


def test_local_names_nobody_where_only_outputs_match():
    """The whole graph would be blamed on its last node."""
    graph, x = small.two_layers(), small.images(6)
    wrong = {"out": dump(damaged(graph, operand(graph, "act1", 4), lambda z: z + 1), x)["out"]}
    found = compare(graph, wrong, x, local=True)
    assert not found
    assert all(row.local is None for row in found.rows)
    assert "by itself" not in str(found)
    assert found.notes[0].startswith("1 of 5 tensors matched; local measures nothing")
    assert found.notes[0] in str(found)
    only = compare(graph, graph, x, local=True, outputs_only=True)
    assert only.notes[0].startswith("1 of 5 tensors matched; local measures nothing")


def test_local_says_where_layers_did_not_match():
    graph, x = small.two_layers(), small.images(6)
    other = small.two_layers(names=("acc1", "act1", "relu1", "acc2", "out"))
    assert compare(graph, other, x, local=True).notes == ()
    wide = dataclasses.replace(
        graph, quantization={n: tosajax.Quantization((0.5,)) for n in ("x", "act1", "out")}
    )
    known = dump(graph, x)
    stored = {name: known[name].astype(np.float32) * 0.5 for name in ("act1", "relu1", "out")}
    found = compare(wide, stored, x, local=True)
    assert [row.tensor for row in found.rows] == ["act1", "out"]
    assert all(row.local for row in found.rows)
    (note,) = found.notes
    assert note == (
        "2 of 5 tensors matched; local is of all layers since the last that matched: "
        "no scale is known of 1, such as 'relu1'"
    )


def test_a_graph_of_one_layer_is_measured_by_itself():
    found = compare(identity(DType.INT8), identity(DType.INT8), local=True)
    assert (found.notes, found.rows[0].local) == ((), found.rows[0].total)


def test_scores_are_compared_by_their_argmax():
    """The first of equal ones counts; rows of one number, images and bool have none."""
    graph = identity(DType.INT8)
    x = np.array([[5, 5, 1, 0], [1, 2, 3, -128], [127, 0, 0, 0], [0, 0, 0, 0]], np.int8)
    other = x.copy()
    other[0, 1], other[1, 2] = 6, 2  # the second of equal ones now leads; then the first of equals
    found = compare(graph, {"y": other}, x, batch=3)
    assert found.rows[0].total.same_top == 2
    assert "same argmax of 'y': 2 of 4 examples (50 %)" in str(found)
    assert found.to_rows()[0]["same_top"] == 2
    images = compare(small.two_layers(), "ref", small.images(3))
    assert [row.total.same_top for row in images.rows] == [None] * 5
    b = Builder()
    flag = b.graph([b.op("LOGICAL_NOT", b.input("x", DType.BOOL, (1, 4)), name="y")])
    assert compare(flag, flag).rows[0].total.same_top is None


@pytest.mark.parametrize(
    ("error", "shown"), [(7, "7"), (999_999, "999,999"), (10**6, "1e+06"), (2**30, "1.07e+09")]
)
def test_the_largest_error_of_integers(error: int, shown: str):
    x = np.array([[0, 1, -(2**30), 5]], np.int32)
    other = x.copy()
    other[0, 2] += error
    found = compare(identity(DType.INT32), {"y": other}, x)
    assert shown in str(found).split()


def test_local_errors_of_two_layers():
    good = small.two_layers()
    bad = damaged(good, operand(good, "act1", 4), lambda z: z + 1)
    bad = damaged(bad, operand(good, "acc2", 2), lambda b: b + 30000)
    found = compare(bad, good, small.images(6), local=True)
    wrong = [row.tensor for row in found.rows if row.local and row.local.mismatches]
    assert wrong == ["act1", "acc2"]
    assert found.first_divergent is not None
    assert found.first_divergent.tensor == "act1"
    assert found.worst is not None
    assert found.worst.tensor == "acc2"
    assert compare(bad, good, small.images(6)).worst is not None


def test_zero_points_count_for_sqnr():
    good = small.two_layers()
    bad = damaged(good, operand(good, "out", 4), lambda z: z + 1)
    x = small.images(6)
    found = compare(bad, good, x).rows
    row, clamp = found[-1], found[2].total
    want = dump(good, x)["out"].astype(float) + 7  # its zero point is -7
    errors = dump(bad, x)["out"].astype(float) + 7 - want
    assert row.total.sqnr == pytest.approx(10 * math.log10((want**2).sum() / (errors**2).sum()))
    assert row.total.clipped_a == np.mean(np.isin(dump(bad, x)["out"], (-128, 127)))
    assert clamp.clipped_a == np.mean(np.isin(dump(good, x)["relu1"], (5, 100)))


@pytest.mark.parametrize(
    "names",
    [("a", "b", "c", "d", "e"), ("act1", "relu1", "acc2", "out", "acc1")],
    ids=["others", "the same for others"],
)
def test_names_that_differ(names):
    """Nodes match by the order of equal operators."""
    a, b = small.two_layers(), small.two_layers(names=names)
    found = compare(a, b, small.images(3))
    assert found
    assert [(r.tensor, r.other) for r in found.rows] == list(zip(NAMES, names, strict=True))


def test_nodes_between_do_not_disturb_the_order():
    a = small.two_layers()
    b = rewrite.bits(small.two_layers(names="abcde"), 7, "^e$")
    found = compare(a, b, small.images(3))
    assert {r.tensor: r.other for r in found.rows} == dict(zip(NAMES, "abcde", strict=True))
    assert [r.tensor for r in found.rows if r.total.mismatches] == ["out"]


def test_graphs_with_nothing_in_common():
    b = Builder()
    x = b.input("x", DType.INT8, small.SHAPE)
    other = b.graph([b.op("REDUCE_MAX", x, axis=1, name="y")])
    with pytest.raises(ValueError, match="no tensor in common"):
        compare(small.two_layers(), other)


def test_chosen_tensors_and_outputs():
    graph, x = small.two_layers(), small.images(2)
    assert [r.tensor for r in compare(graph, graph, x, tensors="^a").rows] == [
        "acc1",
        "act1",
        "acc2",
    ]
    assert [r.tensor for r in compare(graph, graph, x, outputs_only=True).rows] == ["out"]
    with pytest.raises(ValueError, match="'nowhere'"):
        compare(graph, graph, x, tensors="nowhere")


def test_open_batches_are_of_one_example():
    fixed, dynamic = small.two_layers(), small.two_layers(batch=-1)
    found = compare(dynamic, fixed, small.images(5), batch=2)
    assert found
    assert found.rows[-1].total.elements == 5 * 32


def test_random_inputs():
    graph = small.two_layers()
    (x,) = random_inputs(graph, 300, seed=1)
    assert (x.dtype, x.shape, x.min(), x.max()) == (np.int8, (300, *small.SHAPE), -128, 127)
    np.testing.assert_array_equal(random_inputs(graph, 300, seed=1)[0], x)
    assert (random_inputs(graph, 300, seed=2)[0] != x).any()
    assert compare(graph, graph, examples=3, seed=5).examples == 3
    b = Builder()
    inputs = [
        b.input(t.name, t, (2, 50)) for t in (DType.BOOL, DType.INT4, DType.INT48, DType.FP32)
    ]
    flags, four, wide, floats = random_inputs(b.graph([inputs[0]]), 40)
    assert (flags.dtype, four.min(), four.max()) == (np.bool_, -7, 7)
    assert flags.mean() == pytest.approx(0.5, abs=0.05)
    assert wide.max() > 1 << 46 > -(1 << 46) > wide.min()
    assert (floats.dtype, round(float(floats.std()), 1)) == (np.float32, 1.0)


def test_float_graphs_within_ulps(data):
    folder = data / "jax_mlp"
    graph = tosajax.load(folder / "model.tosa")
    found = compare(graph, "reference_model", np.load(folder / "inputs_0.npy"), local=True)
    for row in found.rows:
        assert row.local is not None
        assert row.total.max_ulp is not None
        assert row.local.sqnr > 120
        assert row.local.mismatches == 0 or (row.local.max_ulp or 0) > 0


def test_a_float_graph_and_its_integers():
    """Integers are compared as the real numbers they stand for, as `quant.report` does."""
    b = Builder()
    x = b.input("x", DType.FP32, (1, 4))
    zero = b.const(np.zeros((1, 1), np.float32), DType.FP32)
    y = b.op("TANH", b.op("ADD", x, zero, name="sum"), name="y")
    model = quant.prepare(b.graph([y]), [quant.rule(".*")])
    values = np.random.default_rng(0).standard_normal((9, 4)).astype(np.float32)
    params = quant.calibrate(model, [values])
    integers = model.freeze(params)
    scales = scales_of(model, params)
    found = compare(model.float_graph, integers, values, local=True)
    bare = dataclasses.replace(integers, quantization={})
    assert found == compare(model.float_graph, bare, values, real=scales, local=True)
    rows = {row.tensor: row for row in found.rows}
    itself = {row.tensor: row.local for row in found.rows if row.local}
    report = quant.report(model, params, values)
    for row in report.rows:
        if row.op:
            assert rows[row.tensor].total.sqnr == pytest.approx(row.sqnr, abs=0.3)
            assert itself[row.tensor].sqnr == pytest.approx(row.local_sqnr, abs=0.3)
            assert rows[row.tensor].as_real
    whole = np.asarray(jax.jit(model.input_integers)(params, values)[0].q)
    # Given the integers, the floats start from what these stand for.
    other = compare(integers, model.float_graph, whole)
    assert other.rows[-1].total.sqnr == pytest.approx(itself["y"].sqnr, abs=0.3)
    with pytest.raises(ValueError, match="give the scale and zero point of the integers"):
        compare(model.float_graph, bare, values)
    without = {name: scale for name, scale in scales.items() if name != "x"}
    with pytest.raises(ValueError, match="'x' is FP32 in one program and INT8 in the other"):
        compare(model.float_graph, bare, values, real=without)


def test_every_kind_of_integer_and_bool():
    b = Builder()
    x = b.input("x", DType.INT16, (1, 2, 2, 3))
    weight = np.arange(-9, 9).reshape(2, 3, 3, 1)[:, :, :1].repeat(3, 3)[:, :1]
    acc = b.op(
        "CONV2D", x, b.const(weight, DType.INT8), b.const([1, 2], DType.INT48),
        b.const([0], DType.INT16), b.const([0], DType.INT8), pad=(0, 0, 0, 0), stride=(1, 1),
        dilation=(1, 1), acc_type=DType.INT48, name="wide",
    )  # fmt: skip
    y = small.rescale(b, acc, (1 << 14,), (20,), DType.INT32, scale32=False, name="y")
    positive = b.op("GREATER", y, b.const(np.zeros((1, 1, 1, 1)), DType.INT32), name="positive")
    graph = b.graph([positive])
    found = compare(graph, "reference_model", examples=3, local=True)
    assert found
    assert [r.dtype for r in found.rows] == ["INT48", "INT32", "BOOL"]


def test_examples_that_lie_on_no_axis():
    """An input of a first dimension other than 1 is one example."""
    b = Builder()
    x = b.input("x", DType.INT32, (3, 2))
    s = b.op("ADD", x, b.const(np.arange(6).reshape(3, 2), DType.INT32), name="s")
    graph = b.graph([b.op("REDUCE_SUM", s, axis=0, name="y")])
    values = np.arange(30, dtype=np.int32).reshape(5, 3, 2)
    found = compare(graph, "reference_model", values, local=True, batch=2)
    assert found
    assert [r.total.elements for r in found.rows] == [30, 10]


def test_variables_are_as_at_first_for_each_example():
    graph = programs.accumulator()
    examples = np.arange(12, dtype=np.int8).reshape(4, 3)
    found = compare(graph, "reference_model", examples, batch=3)
    assert found, str(found)


def test_a_graph_without_inputs():
    b = Builder()
    graph = b.graph([b.op("NEGATE", b.const([[1, 2]], DType.INT32), *_zeros(b), name="y")])
    found = compare(graph, "reference_model")
    assert (bool(found), found.examples, found.rows[0].total.elements) == (True, 1, 2)


def _zeros(b: Builder):
    return (b.const([0], DType.INT32), b.const([0], DType.INT32))


def test_outputs_that_are_inputs_or_constants_are_left_out():
    b = Builder()
    x, c = b.input("x", DType.INT32, (1, 4)), b.const([[1, 2, 3, 4]], DType.INT32, name="c")
    fixed = b.op("NEGATE", c, *_zeros(b), name="fixed")
    graph = b.graph([b.op("ADD", x, c, name="y"), x, c, fixed])
    found = compare(graph, "reference_model", examples=5, local=True)
    assert [(r.tensor, r.total.elements) for r in found.rows] == [("y", 20), ("fixed", 20)]
    assert found
    only = compare(graph, graph, examples=5, outputs_only=True)
    assert [r.tensor for r in only.rows] == ["y", "fixed"]
    with pytest.raises(ValueError, match="no tensor"):
        compare(b.graph([x]), b.graph([x]), outputs_only=True)


def test_memory_does_not_grow_with_examples():
    a, b = small.two_layers(), small.two_layers(rounding=RoundingMode.DOUBLE_ROUND)
    peaks = []
    compare(a, b, small.images(64), batch=64)
    for count in (128, 1024):
        x = small.images(count)
        tracemalloc.start()
        compare(a, b, x, batch=64)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.3 * peaks[0]


def test_rows_csv_and_json(tmp_path):
    a, b = small.two_layers(), rewrite.rounding(small.two_layers(), "double")
    found = compare(a, b, small.images(5), local=True)
    rows = found.to_rows()
    assert [row["tensor"] for row in rows] == NAMES
    assert rows[0]["sqnr"] == math.inf
    assert rows[1]["first"].startswith(" ".join(map(str, found.rows[1].total.first or ())))
    assert {type(v) for row in rows for v in row.values()} <= {str, int, float, bool, type(None)}
    found.to_csv(tmp_path / "rows.csv")
    with open(tmp_path / "rows.csv", newline="") as file:
        read = list(csv.DictReader(file))
    assert [row["mismatches"] for row in read] == [str(r.total.mismatches) for r in found.rows]
    assert read[0]["local_sqnr"] == "inf"
    found.to_json(tmp_path / "rows.json")
    content = json.loads((tmp_path / "rows.json").read_text(), parse_constant=pytest.fail)
    assert content["examples"] == 5
    assert content["rows"][0]["sqnr"] == "inf"
    histogram = content["rows"][-1]["histograms"]["values_a"]
    assert sum(histogram["counts"]) == 5 * 32
    assert len(content["edges"][histogram["kind"]]) == len(histogram["counts"]) + 1


def test_the_table_and_its_length():
    a, b = small.two_layers(), rewrite.rounding(small.two_layers(), "double")
    found = compare(a, b, small.images(5))
    text = str(found).splitlines()
    assert len(text) == 4 + sum(row.total.mismatches > 0 for row in found.rows)
    assert text[-3].startswith("first divergent: RESCALE 'act1' (first;conv)")
    assert "local" not in text[0]
    for count, more in ((60, ""), (61, "and 1 more"), (100, "and 40 more")):
        many = str(dataclasses.replace(found, rows=found.rows[1:2] * count)).splitlines()
        assert [line for line in many if line.endswith(" more")] == ([more] if more else [])


def test_what_cannot_be_compared():
    graph, x = small.two_layers(), small.images(2)
    with pytest.raises(TypeError, match="int to compare with"):
        compare(graph, 3, x)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="2 inputs, the graph has 1"):
        compare(graph, graph, x, x)
    with pytest.raises(TypeError, match="float32"):
        compare(graph, graph, x.astype(np.float32))
    b = Builder()
    y = b.op("REVERSE", b.input("x", DType.INT8, (1, 4, 4, 3)), axis=1, name="out")
    sliced = b.op("SLICE", y, b.const_shape((0,) * 4), b.const_shape((1, 4, 4, 2)))
    with pytest.raises(
        ValueError, match=r"x: INT8\[1,4,4,2\] here and x: INT8\[1,4,4,3\] in the other"
    ):
        compare(graph, b.graph([sliced]), x)
    b = Builder()
    bad = b.graph([b.op("REVERSE", b.input("x", DType.INT8, small.SHAPE), axis=7, name="out")])
    with pytest.raises(TosaError):
        compare(bad, bad, x)


def test_inputs_beyond_the_scale_of_the_other_graph_are_refused():
    """Floats that become its integers, batch by batch; random ones may lie anywhere."""
    floats, integers = identity(DType.FP32), identity(DType.INT8)
    scales = dict.fromkeys(("x", "y"), tosajax.Quantization((1 / 64,)))
    integers = dataclasses.replace(integers, quantization=scales)
    values = np.full((3, 4), 1.5, np.float32)
    assert compare(floats, integers, values, batch=2)
    assert not compare(floats, integers, examples=200)
    beyond = np.array([[1.5] * 4, [1.5] * 4, [5.0] * 4], np.float32)
    with pytest.raises(ValueError, match=r"'x': 33.3 % .* holds \[-2, 1.98438\]"):
        compare(floats, integers, beyond, batch=2)
    assert not compare(floats, integers, beyond, batch=2, clip=True)
    one = np.zeros((100, 4), np.float32)
    one[7, 2] = 5
    with pytest.warns(UserWarning, match=r"'x': 0.25 % .*they were clipped"):
        compare(floats, integers, one)


def identity(dtype: DType) -> Graph:
    b = Builder()
    return b.graph([b.op("IDENTITY", b.input("x", dtype, (1, 4)), name="y")])
