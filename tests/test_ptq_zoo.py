"""The study of quantized networks: its measure, its judgement, and results that grow."""

from __future__ import annotations

import dataclasses
import json
import sys

import jax
import numpy as np
import pytest
from paths import ROOT

sys.path.insert(0, str(ROOT))

import tosajax
from benchmarks import targets
from benchmarks.ptq_zoo import __main__ as command
from benchmarks.ptq_zoo import (
    inputs,
    metrics,
    networks,
    ours,
    people,
    report,
    story,
    study,
    tasks,
    worker,
)
from benchmarks.ptq_zoo.networks import NETWORKS
from benchmarks.ptq_zoo.row import Row
from benchmarks.ptq_zoo.schemes import PEER, SCHEMES
from tosajax import Builder, DType, quant, reference_model

EXAMPLES = np.random.default_rng(0).uniform(-1, 1, (32, 1, 1, 6)).astype(np.float32)


def _graph():
    """A convolution of single pixels and a tanh."""
    b = Builder()
    x = b.input("x", DType.FP32, (1, 1, 1, 6))
    weight = b.const(np.random.default_rng(1).normal(size=(4, 1, 1, 6)), DType.FP32, name="weight")
    zero = b.const([0], DType.FP32)
    sizes = {"pad": [0] * 4, "stride": [1, 1], "dilation": [1, 1], "acc_type": DType.FP32}
    product = b.op("CONV2D", x, weight, b.const(np.ones(4), DType.FP32), zero, zero, **sizes)
    return b.graph([b.op("TANH", product, name="y")])


@pytest.mark.parametrize(
    ("actual", "decibels"),
    [([1, 2], metrics.MOST), ([1, 1], 10 * np.log10(5)), ([0, 0], 0), ([np.nan, 2], -metrics.MOST)],
)
def test_sqnr(actual, decibels):
    assert metrics.sqnr(np.array([1, 2]), np.array(actual)) == pytest.approx(decibels)


def test_sqnr_of_a_network_that_gives_zeros_counts_any_noise():
    assert metrics.sqnr(np.zeros(2), np.array([0, 1e-9])) == -metrics.MOST


def test_sqnr_asks_for_as_many_values():
    with pytest.raises(ValueError, match="3 values, expected 2"):
        metrics.sqnr(np.zeros(2), np.zeros(3))


def test_agreement_is_of_rows():
    expected = np.array([[[1, 2], [4, 3]], [[5, 6], [8, 7]]])
    actual = np.array([[[0, 9], [9, 0]], [[9, 0], [9, 0]]])
    assert metrics.agreement(expected, actual) == 0.75


def test_tasks():
    rng = np.random.default_rng(0)
    points = rng.uniform(0, 100, (5, 6)).astype(np.float32)  # two points of x, y, z
    moved = points + np.array([3, 4, 50, 0, 0, 50], np.float32)
    task = tasks.landmarks(3, 100)
    assert task.measure([points], [moved]) == pytest.approx((0.05 + 0) / 2)
    assert (task.is_met(0.01), task.is_met(0.011)) == (True, False)
    heat = np.array([[0.1, 0.3], [0.31, 0.9]])
    assert tasks.mask(0.3).measure([heat], [np.array([[0.31, 0.3], [0.5, 0.0]])]) == 0.5
    assert (tasks.mask(0.3).is_met(0.98), tasks.mask(0.3).is_met(0.97)) == (True, False)


@pytest.mark.parametrize(("logit", "error"), [(1.0, 0.1), (-1.0, 0.35)])
def test_boxes_that_are_found_count(logit, error):
    """Two images of three anchors; the box of the first image is 1 off, that of the second 6."""
    found = np.zeros((2, 3, 6), np.float32)
    found[..., 2:4] = 10
    other = found + np.array([1, -1, 1, -1, 70, 70], np.float32)  # points do not count
    other[1] = found[1] + 6
    logits = np.full((2, 3, 1), -5, np.float32)
    logits[0, 1], logits[1, 2] = logit, -2
    assert tasks.boxes().measure([found, logits], [other, logits]) == pytest.approx(error)


@pytest.mark.parametrize("every_tensor", [False, True])
def test_a_graph_is_measured(tmp_path, every_tensor):
    compared = 2 if reference_model.is_installed() else 0
    path = tmp_path / "row.json"
    row, halves = Row(path), np.split(EXAMPLES, 2)
    floats, outputs = ours.measure(
        row, _graph(), SCHEMES["d"], *halves, compared=compared, every_tensor=every_tensor
    )
    row.end()
    values = json.loads(path.read_text())
    assert "stage" not in values
    assert values["sqnr"] == pytest.approx(metrics.sqnrs(floats, outputs))
    assert 25 < values["sqnr"][0] < 70
    stages = {"float", "prepare", "calibrate", "freeze", "compile", "run"}
    assert stages <= set(values["seconds"])
    if compared:
        assert values["mismatches"] == 0
        assert (values["elements"] > 2 * 4) if every_tensor else values["elements"] == 2 * 4


def test_integers_that_differ_are_counted():
    if not reference_model.is_installed():
        pytest.skip("Arm's model is not installed")
    model = SCHEMES["d"].prepare(_graph())
    frozen = model.freeze(ours.quant.calibrate(model, [EXAMPLES]))
    (integers,) = frozen.quantized(EXAMPLES[:2], clip=True)
    (y,) = (np.array(y) for y in ours.tosajax.compile(frozen, batch=2)(integers))
    y.flat[[1, 5]] += 1
    counts = ours.equality(frozen, integers, {frozen.outputs[0]: y})
    assert counts == {"elements": 8, "mismatches": 2}


@pytest.mark.parametrize(
    ("scheme", "weight", "act"),
    [
        ("d", DType.INT8, DType.INT8),
        ("a16", DType.INT8, DType.INT16),
        ("w4", DType.INT4, DType.INT8),
    ],
)
def test_schemes_give_the_types_of_their_names(scheme, weight, act):
    specs = SCHEMES[scheme].prepare(_graph()).specs
    assert (specs["weight"].dtype, specs["y"].dtype) == (weight, act)


def test_results_grow_and_are_gone_on_from(tmp_path):
    path = tmp_path / "results.json"
    study.Results(path).add("a", "d", {"seconds": {}, "sqnr": [30.0]})
    study.Results(path).add("b", "d", {"seconds": {}, "error": "ValueError: no"})
    results = study.Results(path)
    assert list(results.rows) == ["a/d", "b/d"]
    assert results.missing(["a", "b"], ["d", "w4"]) == [("a", "w4"), ("b", "w4")]
    assert results.missing(["a", "b"], ["d"], retry=True) == [("b", "d")]
    assert study.Results(path, resume=False).rows == {}


def test_a_failure_is_recorded_with_its_stage(tmp_path, monkeypatch):
    path = tmp_path / "row.json"

    def refuse(*_):
        raise ValueError(f"\n  {tmp_path}/magika/model.mlir: no such operator\nmore")

    monkeypatch.setattr(worker, "fetch", refuse)
    worker.main(["magika", "d", str(path), "--cache", str(tmp_path)])
    row = json.loads(path.read_text())
    assert (row["stage"], row["error"]) == (
        "convert",
        "ValueError: magika/model.mlir: no such operator",
    )


_CHILD = """
import pathlib, sys, time
pathlib.Path(sys.argv[-1]).write_text('{"seconds": {"load": 1}, "stage": "freeze"}')
"""


@pytest.mark.parametrize(
    ("end", "error"),
    [
        ("time.sleep(60)", "no result within 1 s"),
        ("sys.exit(3)", "the process ended with status 3"),
    ],
)
def test_a_process_that_is_ended_leaves_its_stages(end, error):
    row = study.measured([sys.executable, "-c", _CHILD + end], limit=1)
    assert row["total_seconds"] < 30
    assert row.items() >= {"seconds": {"load": 1}, "stage": "freeze", "error": error}.items()


def test_only_what_is_missing_is_measured(tmp_path, monkeypatch, capsys):
    path, started = tmp_path / "results.json", []

    def measured(arguments, limit):
        started.append((*arguments[-2:], limit))
        return {"seconds": {"load": 1.5}, "sqnr": [30.0], "total_seconds": 2.0}

    monkeypatch.setattr(command, "measured", measured)
    arguments = ["--json", str(path), "--only", "magika", "--limit", "7", "--schemes"]
    assert command.main([*arguments, "d"]) == 0
    assert command.main([*arguments, "d", "w4", "--check"]) == 1
    assert started == [("magika", "d", 7.0), ("magika", "w4", 7.0)]
    assert "| magika |  | 30.0 | 30.0 |  |" in capsys.readouterr().out


NAMES = ["ppocr_cls", *(name for name in NETWORKS if name != "ppocr_cls")]


def _rows(own, theirs, mismatches=0, task=1.0, wide_macs=0.1, search=(600.0, 3814.0)):
    """Rows of networks with these accuracies of W8A8 and of the peer; one with auto as well."""
    found = {"sqnr": own[0], "task": task, "wide_macs": wide_macs}
    rows = {f"{NAMES[0]}/auto": {"seconds": {"search": 600.0}, "peak_mib": 3814.0, **found}}
    seconds, peak = search
    rows[f"{NAMES[0]}/auto w4"] = {"seconds": {"search": seconds}, "peak_mib": peak, **found}
    for name, a, b in zip(NAMES, own, theirs, strict=False):
        rows[f"{name}/d"] = {"seconds": {}, "sqnr": a, "mismatches": mismatches, "elements": 9}
        rows[f"{name}/{PEER}"] = {"seconds": {}, "sqnr": b}
    return rows


@pytest.mark.parametrize(
    ("rows", "status"),
    [
        (_rows([[30.0, 40.0]] * 8, [[32.0, 31.0]] * 8), 0),
        (_rows([[30.0]] * 7, [[20.0]] * 7), 1),
        (_rows([[30.0]] * 8, [[20.0]] * 7 + [[30.1]]), 1),
        (_rows([[30.0]] * 8, [[27.1]] * 8), 1),
        (_rows([[30.0]] * 8, [[20.0]] * 8, mismatches=1), 1),
        (_rows([[30.0]] * 8, [[20.0]] * 8, task=0.97), 1),
        (_rows([[30.0]] * 8, [[20.0]] * 8, wide_macs=0.11), 1),
        (_rows([[30.0]] * 8, [[20.0]] * 8, search=(601.0, 1000.0)), 1),
        (_rows([[30.0]] * 8, [[20.0]] * 8, search=(10.0, 3815.0)), 1),
        ({n: r for n, r in _rows([[30.0]] * 8, [[20.0]] * 8).items() if PEER not in n}, 2),
    ],
    ids=[
        "reached",
        "few networks",
        "one behind",
        "mean",
        "mismatches",
        "task",
        "macs",
        "seconds",
        "memory",
        "no peer",
    ],
)
def test_targets(rows, status):
    assert targets.exit_status(report.judge(rows)) == status


def test_a_network_that_was_converted_wrongly_does_not_count():
    rows = _rows([[30.0]] * 2, [[20.0], [40.0]])
    rows[f"{NAMES[0]}/d"]["conversion"] = [99.0, 60.0]
    rows[f"{NAMES[1]}/d"]["conversion"] = [99.0, 59.0]
    assert report.leads(rows) == [10.0]


def test_tables_show_what_failed():
    rows = _rows([[30.0, 40.0]], [[20.0, 21.0]])
    del rows["ppocr_cls/auto"], rows["ppocr_cls/auto w4"]
    rows["ppocr_cls/d"] |= {"conversion": [99.0], "task": 0.875, "peak_mib": 300.4}
    rows["ppocr_cls/d"]["seconds"] = {"load": 1.25}
    rows["net1/d"] = {"seconds": {}, "stage": "prepare", "error": "UnsupportedError: no"}
    assert report.accuracy_table(rows).splitlines()[2:] == [
        "| ppocr_cls | 99.0 | 30.0 / 40.0, argmax 87.50% | 20.0 / 21.0 | 0 of 9 |",
        "| net1 |  | failed: prepare |  |  |",
    ]
    assert "| ppocr_cls/d | 1.2 | 300 |" in report.time_table(rows)
    assert "| net1/d | prepare | UnsupportedError: no |" in report.errors(rows)


def test_features_of_files_are_their_ends():
    features = inputs.magika_features(b"  ab c\n")
    assert features[:5].tolist() == [97, 98, 32, 99, 10]
    assert features[-6:].tolist() == [32, 32, 97, 98, 32, 99]
    assert (features[5:-6] == 256).all()
    long = inputs.magika_features(bytes(range(65, 90)) * 400)
    assert (long != 256).all()


def test_a_folder_of_files_needs_no_download(tmp_path):
    network = NETWORKS["hand_recrop"]
    (tmp_path / "hand_recrop.tflite").write_bytes(b"content")
    assert networks.fetch(network, tmp_path / "cache", tmp_path) == b"content"


def test_a_wheel_is_read_from_the_cache(tmp_path):
    network = NETWORKS["magika"]
    folder = tmp_path / "wheels"
    folder.mkdir()
    with networks.zipfile.ZipFile(folder / "magika-1.0.3-py3-none-any.whl", "w") as archive:
        archive.writestr(network.path, b"content")
    assert networks.fetch(network, tmp_path, None) == b"content"


def test_remedies_are_listed_as_read_from_the_file():
    """One that raised an error has no SQNR: JSON holds a string."""
    kept = {"name": "mse", "seconds": 1.25, "held_back": 20.0, "is_kept": True, "note": ""}
    failed = {**kept, "name": "gptq", "held_back": "-inf", "is_kept": False, "note": "no place"}
    table = report.remedies_table({"net/auto": {"remedies": [kept, failed]}, "net/d": {}})
    assert "| net/auto | mse | 1.2 | 20.0 | yes |  |" in table
    assert "| net/auto | gptq | 1.2 | -inf | no | no place |" in table
    assert report.remedies_table({"net/d": {}}) == ""


def test_the_story_is_drawn(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    rng = np.random.default_rng(0)
    images = rng.uniform(size=(4, 4, 4, 3)).astype(np.float32)
    weight = rng.normal(size=(3, 1)).astype(np.float32)
    graph = tosajax.export(lambda x: jax.nn.sigmoid(x @ weight), images[:1])
    model = quant.prepare(graph)
    frozen = model.freeze(quant.calibrate(model, [images]))
    paths = [str(tmp_path / name) for name in ("float.mlir", "plain.tosa", "auto.tosa")]
    for path, each in zip(paths, (graph, frozen, frozen), strict=True):
        tosajax.save(each, path)
    np.save(tmp_path / "new.npy", images)
    remedies = [{"name": "defaults", "held_back": 9.0, "is_kept": True}]
    remedies += [{"name": "gptq", "held_back": "-inf", "is_kept": False}]
    (tmp_path / "remedies.json").write_text(json.dumps({"remedies": remedies}))
    options = ["--input", "new.npy", "--remedies", "remedies.json", "--plot", "plot.png"]
    options[1::2] = [str(tmp_path / name) for name in options[1::2]]
    story.main([*paths, *options])
    assert (tmp_path / "plot.png").read_bytes()[:4] == b"\x89PNG"
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == ["plain.tosa", "auto.tosa"]
    assert all(line.endswith("% of pixels") for line in lines)


def test_auto_is_measured(tmp_path):
    scheme = dataclasses.replace(SCHEMES["auto"], budget=quant.Budget(seconds=0))
    row = Row(tmp_path / "row.json")
    ours.measure(row, _graph(), scheme, EXAMPLES[:16], EXAMPLES[16:], compared=0)
    assert [remedy["name"] for remedy in row.values["remedies"]] == ["defaults"]
    assert row.values["lifted"] == []
    assert "search" in row.values["seconds"]


def test_a_part_of_a_photograph_is_turned_anticlockwise():
    pytest.importorskip("skimage")
    photo = np.zeros((40, 60, 3), np.float32)
    photo[10, 40:48] = 1  # to the right of the centre
    upright = people._window(photo, 10, 30, 40, 0, (40, 40))
    turned = people._window(photo, 10, 30, 40, np.pi / 2, (40, 40))
    np.testing.assert_allclose(upright[20, 30:38], 1)
    np.testing.assert_allclose(turned[3:10, 20], 1)  # above it
    assert upright.sum() == pytest.approx(turned.sum(), rel=0.01) == pytest.approx(24, rel=0.01)


@pytest.mark.parametrize("kind", inputs._PEOPLE)
def test_people_are_the_same_in_each_run(kind, monkeypatch, tmp_path):
    pytest.importorskip("skimage")
    photo = np.random.default_rng(0).uniform(0, 1, (1200, 1300, 3)).astype(np.float32)
    monkeypatch.setattr(people, "_photo", lambda name, cache: photo)
    network = dataclasses.replace(NETWORKS["pose_landmark"], inputs=kind, shape=(1, 16, 16, 3))
    first, again = (inputs.make(network, tmp_path, 5) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    assert (first.shape, first.dtype) == ((5, 16, 16, 3), np.float32)
    low = -1 if kind in ("heads", "persons_around_0") else 0
    assert low <= first.min() < low + 0.5 < first.max() <= 1
