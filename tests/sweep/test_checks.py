"""Arguments that a sweep refuses before it compiles or writes a row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import small_networks as small

import tosajax
from tosajax import Builder, DType, Graph, quant, sweep
from tosajax.cli import main
from tosajax.report import FormatError
from tosajax.sweep import Data, Sweep, grid, integers, random, uniform

COUNT, CLASSES = 12, 4
POINTS = np.random.default_rng(0).normal(size=(COUNT, 2, 3)).astype(np.float32)
LABELS = np.arange(COUNT) % CLASSES
NAN = np.nan


def scores(setting: Any, x: Any) -> Any:
    return jnp.sum(x, axis=1) @ (jnp.ones((3, CLASSES), jnp.float32) * setting["scale"])


def swept(data: Any, *, store: Path | None = None, **options: Any) -> Sweep:
    options = {"configs": grid(scale=[1.0, 2.0]), "batch": 5, **options}
    return Sweep(scores, data, options.pop("metrics", ["accuracy"]), store=store, **options)


def with_nan(array: np.ndarray, *places: tuple[int, ...]) -> np.ndarray:
    found = array.copy()
    for at in places:
        found[at] = NAN
    return found


# NaN.

BAD = with_nan(POINTS, (7, 1, 2), (9, 0, 0))
HALVES = slice(0, 5), slice(5, COUNT)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ((BAD, LABELS), r"input 0: NaN in example 7 at \(1, 2\)"),
        ({"image": BAD, "labels": LABELS}, r"input 'image': NaN in example 7 at \(1, 2\)"),
        (((POINTS, BAD), LABELS), r"input 1: NaN in example 7 at \(1, 2\)"),
        ([(BAD[at], LABELS[at]) for at in HALVES], r"input 0: NaN in example 7 at \(1, 2\)"),
        (lambda: iter([(BAD[at], LABELS[at]) for at in HALVES]), r"NaN in example 7 at \(1, 2\)"),
        ((POINTS, with_nan(LABELS.astype(np.float32), (3,))), "labels: NaN in example 3;"),
    ],
)
def test_nan_is_an_error_before_any_row(source: Any, message: str, tmp_path: Path) -> None:
    store = tmp_path / "run.jsonl"
    metric = sweep.mean("mean", lambda e: e.outputs[0][:, 0], "labels")
    for data in (source, Data(source, name="by a name, so that no digest reads it")):
        with pytest.raises(ValueError, match=message):
            swept(data, store=store, metrics=[metric]).run()
        assert not store.exists() or not store.read_text()


def test_nan_that_is_allowed() -> None:
    for data, allow in (((BAD, LABELS), True), (Data((BAD, LABELS), allow_nan=True), False)):
        assert swept(data, allow_nan=allow).plan().settings == 2
    strict = Data([(BAD, LABELS)])
    assert sum(b.count for b in swept(strict, allow_nan=True).data.batches(5)) == COUNT
    with pytest.raises(ValueError, match="allow_nan=True"):
        strict.digest()


def test_nan_of_an_iterator_is_found_when_it_is_read() -> None:
    batches = iter([(POINTS[:5], LABELS[:5]), (BAD[5:], LABELS[5:])])
    data = Data(batches, name="read once")
    assert data.first().count == 1
    with pytest.raises(ValueError, match=r"example 7 at \(1, 2\)"):
        swept(data).run()


def test_nan_in_a_reference() -> None:
    reference = with_nan(np.zeros((COUNT, CLASSES), np.float32), (2, 1))
    with pytest.raises(ValueError, match=r"reference 0: NaN in example 2 at \(1\)"):
        swept(POINTS, metrics=["sqnr"], reference=reference)
    assert swept(POINTS, metrics=["sqnr"], reference=reference, allow_nan=True).plan()


def test_infinities_are_numbers() -> None:
    endless = POINTS.copy()
    endless[3, 0, 0] = np.inf
    assert len(Data((endless, LABELS)).digest()) == 64
    qparams = sweep.of_graph(small.two_layers(), input_quant=(0.5, 3)).quantization.inputs["x"]
    both = quant.quantize(jnp.array([np.inf, -np.inf], jnp.float32), qparams)
    np.testing.assert_array_equal(both.q, [127, -128])


# Labels.


def label(at: int, value: int, dtype: Any = np.int64) -> np.ndarray:
    found = LABELS.astype(dtype)
    found[at] = value
    return found


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (label(8, 4), "label 4 of example 8: output 0 has 4 classes, expected 0 to 3"),
        (label(11, -1), "label -1 of example 11: output 0 has 4 classes"),
        (label(3, 255, np.uint8), "label 255 of example 3"),
        (label(3, 2**32 + 1), f"label {2**32 + 1} of example 3"),  # 1, in 32 bits
        (LABELS + 1, "label 4 of example 3: .* do labels count from 1"),
        (label(3, 4), "label 4 of example 3: output 0 has 4 classes, expected 0 to 3$"),
    ],
)
def test_labels_that_are_no_class(labels: Any, message: str, tmp_path: Path) -> None:
    store = tmp_path / "run.jsonl"
    streamed = [(POINTS[at], labels[at]) for at in HALVES]
    for data in ((POINTS, labels), streamed, Data(iter(streamed), name="once")):
        one = swept(data, store=store, metrics=["top_2"])
        with pytest.raises(ValueError, match=message):
            one.run()
        assert store.read_text() == ""
        if isinstance(data, tuple):
            assert one.compilations == 0


@pytest.mark.parametrize(
    ("labels", "error", "message"),
    [
        (LABELS.astype(np.float32), TypeError, "accuracy: labels are float32, expected integers"),
        (LABELS > 1, TypeError, "labels are bool"),
        (np.eye(CLASSES, dtype=np.int32)[LABELS], ValueError, r"shape \(4,\) for each .* one-hot"),
        (LABELS[:-1], ValueError, "expected the same number of examples"),
    ],
)
def test_labels_of_another_kind(labels: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        swept((POINTS, labels))


def test_other_metrics_take_any_labels() -> None:
    metric = sweep.mean("off", lambda e: e.outputs[0][:, 0] - e.labels, "labels")
    assert swept((POINTS, LABELS.astype(np.float32) - 9), metrics=[metric]).plan()


# Arrays.


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"x": {"deep": POINTS}, "labels": LABELS}, "input 'x' is dict, expected an array"),
        ({"x": np.array(["a", "b"])}, "input 'x' is an array of <U1"),
        ((np.array([None, 1]), LABELS[:2]), "input 0 is an array of object"),
        ((POINTS[:2], [[1], [1, 2]]), "labels is not an array"),
        ((POINTS[:2], ["a", "b"]), "labels is an array of <U1"),
        ({"x": np.array(["2020-01-01"], "M8[D]")}, "input 'x' is an array of datetime64"),
    ],
)
def test_what_are_no_numbers(source: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        Data(source)
    with pytest.raises(TypeError, match=message):
        Data([source]).first()


# Settings.


def tables() -> Graph:
    b = Builder()
    x = b.input("x", DType.INT8, (1, 4))
    table = b.const(np.arange(-128, 128), DType.INT8, name="table")
    return b.graph([b.op("TABLE", x, table, name="looked/up")])


LAYERS, TABLES = small.two_layers(), tables()
WEIGHT = "acc1/weight"
VALUES = np.asarray(LAYERS.tensors[WEIGHT].values)


@pytest.mark.parametrize(
    ("graph", "setting", "message"),
    [
        (LAYERS, {"wieght_bits": 4}, r"no axis 'wieght_bits', .*; did you mean 'weight_bits'\?"),
        (LAYERS, {"acc1/weigth": VALUES}, r"the name of a CONST; did you mean 'acc1/weight'"),
        (LAYERS, {"act_bits": 4, "nothing": 3}, "no axis 'nothing'"),
        (LAYERS, {"acc1": VALUES}, "no axis 'acc1'"),
        (LAYERS, {"weight_bits": 99}, r"weight_bits is 99, expected 1 to 8 \(integer weights"),
        (LAYERS, {"weight_bits": 0}, "weight_bits is 0, expected 1 to 8"),
        (LAYERS, {"act_bits": -1}, "act_bits is -1, expected 1 to 8"),
        (LAYERS, {"weight_bits": 4.5}, "weight_bits is 4.5, expected a whole number"),
        (LAYERS, {"weight_bits": True}, "weight_bits is True, expected a whole number"),
        (LAYERS, {"weight_bits": "8"}, "weight_bits is '8', expected a whole number"),
        (LAYERS, {"table_bits": 4}, "table_bits: the graph has no tables"),
        (TABLES, {"table_bits": 9}, "table_bits is 9, expected 1 to 8"),
        (TABLES, {"weight_bits": 8}, "weight_bits: the graph has no integer weights"),
        (LAYERS, {"scale_bits": 24}, "scale_bits is 24, expected 16 or 32"),
        (LAYERS, {"rounding": "singel"}, "'singel', expected single or double; .* 'single'"),
        (LAYERS, {"rounding": "inexact"}, "is 'inexact', expected single or double"),
        (LAYERS, {"rounding": 1}, "rounding is 1, expected single or double"),
        (LAYERS, {"float": "acc9"}, "float: no node matches 'acc9'; did you mean 'acc"),
        (LAYERS, {"float": "acc("}, r"'acc\(' is not a regular expression"),
        (LAYERS, {"float": True}, "float is True, expected a regular expression"),
        (LAYERS, {WEIGHT: VALUES[1:]}, r"has shape \(2, 3, 3, 2\), expected \(3, 3, 3, 2\)"),
        (LAYERS, {WEIGHT: VALUES + 0.5}, "'acc1/weight': values in .* do not fit INT8"),
        (LAYERS, {WEIGHT: "x"}, "'acc1/weight' is str, expected an array like INT8"),
    ],
)
def test_settings_of_a_graph(graph: Graph, setting: Any, message: str) -> None:
    examples = np.zeros((2, 4, 4, 2), np.int8), np.zeros(2, np.int32)
    with pytest.raises((TypeError, ValueError), match=f"setting 1: .*{message}"):
        Sweep(graph, examples, configs=[{}, setting])


def test_settings_in_order() -> None:
    """Every value that a graph takes, None among them, and names of the rewritten graph."""
    configs = [
        {"weight_bits": np.int64(8), "act_bits": 1, "scale_bits": 16, "float": None},
        {"float": "second", "rounding": None, WEIGHT: VALUES},
        {"act_bits": 4, "relu1/one": np.array([1 << 30], np.int32)},
    ]
    examples = small.images(2), np.zeros(2, np.int32)
    assert not Sweep(LAYERS, examples, configs=configs).plan().failed


def test_axes_to_draw_from() -> None:
    examples = small.images(2), np.zeros(2, np.int32)
    for configs in (
        random(0, weight_bits=integers(2, 99)),
        random(0, act_bits=integers(2, 9)) + random(0, act_bits=uniform(1, 2)),
        random(0, act_bitz=[8]),
    ):
        with pytest.raises((TypeError, ValueError), match=r"act_bit|weight_bits is 99"):
            Sweep(LAYERS, examples, configs=configs)


@pytest.fixture(scope="module")
def model() -> Any:
    b = Builder()
    x = b.input("x", DType.FP32, (1, 2, 3))
    w = b.const(np.ones((1, 3, CLASSES)), DType.FP32, name="w")
    zero = b.const([0], DType.FP32)
    graph = b.graph([b.op("MATMUL", x, w, zero, zero, name="y")])
    made = quant.prepare(graph, [quant.rule(".*")])
    return made, quant.calibrate(made, [POINTS])


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"weight_bits": 99}, "99 bits, expected 2 to 8"),
        ({"weight_bits": np.int64(99)}, "99 bits, expected 2 to 8"),
        ({"weight_bits": NAN}, "nan bits, expected 2 to 8"),
        ({"bits": {"w": "4"}}, "bits is '4', expected a number of bits"),
        ({"bits": {"ww": 4}}, "bits: no tensor matches 'ww'"),
        ({"bits": {"w(": 4}}, r"'w\(' is not a regular expression"),
        ({"act_bitz": 4}, "no axis 'act_bitz', .*; did you mean 'act_bits'"),
        ({"percentile": 99.0}, "observed=quant.observe"),
    ],
)
def test_settings_of_a_model(model: Any, setting: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=f"setting 0: .*{message}"):
        Sweep(model, (POINTS, LABELS), configs=[setting])


def test_none_leaves_a_model_as_it_is(model: Any) -> None:
    subject = sweep.of_model(*model)
    assert subject.settle({"weight_bits": None, "percentile": None}) is not None
    np.testing.assert_array_equal(
        subject.settle({"weight_bits": None})["qparams"]["w"].bits, model[1]["qparams"]["w"].bits
    )


def test_a_misspelt_metric() -> None:
    with pytest.raises(ValueError, match=r"no metric 'acuracy', .*; did you mean 'accuracy'\?"):
        swept((POINTS, LABELS), metrics=["acuracy"])


def test_a_row_without_its_metric(tmp_path: Path) -> None:
    """A row of this sweep, edited by hand."""
    store = tmp_path / "run.jsonl"
    swept((POINTS, LABELS), store=store).run()
    store.write_text(store.read_text().replace('"accuracy"', '"acuracy"', 1))
    with pytest.raises(
        FormatError, match=r"run\.jsonl: the row of key \w+ has no accuracy: delete"
    ):
        swept((POINTS, LABELS), store=store).run()


# The command.


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: Any) -> None:
    tosajax.save(LAYERS, tmp_path / "model.tosa")
    reals = small.images(6).astype(np.float32)
    np.save(tmp_path / "x.npy", small.images(6))
    np.save(tmp_path / "y.npy", np.arange(6))
    np.save(tmp_path / "far.npy", np.arange(6) * 10)
    np.save(tmp_path / "nan.npy", with_nan(reals, (4, 3, 2, 1)))
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data", "x.npy", "--labels", "y.npy", "--weight-bits", "99"], "is 99, expected 1 to 8"),
        (["--data", "x.npy", "--labels", "y.npy", "--rounding", "doubel"], "mean 'double'"),
        (["--data", "x.npy", "--labels", "far.npy"], "label 40 of example 4: output 0 has 32"),
        (
            ["--data", "nan.npy", "--labels", "y.npy", "--input-quant", "1,0"],
            "NaN in example 4 at (3, 2, 1)",
        ),
    ],
)
@pytest.mark.usefixtures("folder")
def test_the_command(arguments: list[str], message: str, capsys: Any) -> None:
    assert main(["sweep", "model.tosa", *arguments]) == 1
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.out == ""


@pytest.mark.usefixtures("folder")
def test_the_command_takes_nan(capsys: Any) -> None:
    arguments = ["--data", "nan.npy", "--labels", "y.npy", "--input-quant", "1,0", "--allow-nan"]
    assert main(["sweep", "model.tosa", *arguments, "--plan"]) == 0
    assert "1 setting: 0 finished" in capsys.readouterr().out


def of_shape(*shape: int) -> Graph:
    b = Builder("fixed")
    return b.graph([b.op("ABS", b.input("x", DType.INT32, shape), name="y")])


def test_a_graph_whose_inputs_cannot_carry_a_batch():
    with pytest.raises(ValueError, match="no input has a first dimension of 1 or -1"):
        sweep.of_graph(of_shape(3, 4))
