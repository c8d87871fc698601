"""Results: best and Pareto rows against brute force, and files that come back."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import itertools
import json
import math
import re
import sys
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.stats

from tosajax.progress import Progress
from tosajax.sweep import Results

NAN, INF = math.nan, math.inf


def _results(accuracy: Sequence[Any], cost: Sequence[Any] | None = None) -> Results:
    costs = cost or [0] * len(accuracy)
    rows = [
        {"id": i, "cost": c, "accuracy": a, "error": None}
        for i, (a, c) in enumerate(zip(accuracy, costs, strict=True))
    ]
    return Results(tuple(rows), ("accuracy",))


def _ids(results: Sequence[dict[str, Any]]) -> list[int]:
    return [row["id"] for row in results]


@pytest.mark.parametrize(
    ("values", "most", "least"),
    [
        ([1, 3, 2], 1, 0),
        ([2, 3, 3, 1, 1], 1, 3),
        ([NAN, 1, NAN, 2, NAN], 3, 1),
        ([None, 0.5, None], 1, 1),
        ([-INF, 0, INF, INF], 2, 0),
        ([0.0, -0.0, 0], 0, 0),
        ([True, 0, "9"], 1, 1),
    ],
)
def test_best(values: list[Any], most: int, least: int) -> None:
    results = _results(values)
    assert results.best()["id"] == most
    assert results.best(least=True)["id"] == least
    assert results.best("accuracy")["id"] == most


@pytest.mark.parametrize("level", [0.5, 0.95, 0.999])
def test_interval_is_wilsons(level: float) -> None:
    for count in (1, 2, 10, 540):
        results = dataclasses.replace(
            _results([k / count for k in range(count + 1)]), examples=count
        )
        for k in {0, 1, count // 2, count - 1, count}:
            found = results.interval(results[k], level=level)
            want = scipy.stats.binomtest(k, count).proportion_ci(level, "wilson")
            assert found == pytest.approx((want.low, want.high), abs=1e-12)
            assert 0 <= found.low <= k / count <= found.high <= 1


def test_ties_are_in_the_interval_of_the_best() -> None:
    low = _results([0.5]).rows[0] | {"accuracy": 0.9}
    results = dataclasses.replace(_results([0.3, 0.9, NAN, None, 0.8, 0.9]), examples=100)
    edge = results.interval(low).low
    near = dataclasses.replace(_results([0.9, edge, math.nextafter(edge, 0)]), examples=100)
    assert _ids(near.ties()) == [0, 1]
    assert _ids(results.ties()) == [1, 5]
    assert results.ties().examples == 100
    words = "one of 100 examples is 0.01; the 95 % interval of the best is 0.8256 to 0.9448"
    assert str(results).splitlines()[-1] == f"accuracy: {words}, and holds 2 of 6 settings"
    assert str(near[:1]).count("\n") == 1
    alone = dataclasses.replace(_results([0.3, 0.9]), examples=100)
    assert str(alone).endswith("and holds no other")


def test_no_interval() -> None:
    counted = dataclasses.replace(TABLE, examples=9)
    row = {"accuracy": 0.5}
    for results, at, options, words in (
        (counted, counted[0], {}, "sqnr is not a share"),
        (counted, counted[0], {"metric": "accuracy"}, "accuracy is not a share"),
        (_results([0.5]), row, {}, "number of examples"),
        (dataclasses.replace(_results([0.5]), examples=9), {"accuracy": None}, {}, "value of accu"),
        (dataclasses.replace(_results([0.5]), examples=9), row, {"level": 1.0}, "level is 1.0"),
        (dataclasses.replace(_results([0.5]), examples=9), row, {"level": 0.0}, "level is 0.0"),
    ):
        with pytest.raises(ValueError, match=words):
            results.interval(at, **options)  # pyright: ignore[reportArgumentType]
    assert counted.certainty() == []


def test_best_of_another_column() -> None:
    results = _results([1, 2, 3], [5, 4, 6])
    assert results.best("cost")["id"] == 2
    assert results.best("cost", least=True)["id"] == 1


@pytest.mark.parametrize("values", [[], [None], [NAN, NAN], ["x"]])
def test_no_best(values: list[Any]) -> None:
    results = _results(values) if values else Results(({"accuracy": None},), ("accuracy",))
    with pytest.raises(ValueError, match="no row has a value of accuracy"):
        results.best()
    assert len(results.pareto("accuracy")) == 0


def test_no_such_column() -> None:
    results = _results([1])
    for ask in (
        lambda: results.best("acuracy"),
        lambda: results.pareto("acuracy"),
        lambda: results.pareto("cost", "acuracy"),
    ):
        with pytest.raises(KeyError, match="no column 'acuracy', expected one of id, cost, accur"):
            ask()


def _front(results: Results, cost: str, gain: str) -> set[int]:
    """By the definition: rows that no other beats."""
    known = [
        row
        for row in results
        if all(isinstance(row[c], int | float) and not math.isnan(row[c]) for c in (cost, gain))
    ]

    def beats(a: dict[str, Any], b: dict[str, Any]) -> bool:
        no_worse = a[cost] <= b[cost] and a[gain] >= b[gain]
        return no_worse and (a[cost], a[gain]) != (b[cost], b[gain])

    return {row["id"] for row in known if not any(beats(other, row) for other in known)}


def test_pareto_is_what_no_other_beats() -> None:
    rng = np.random.default_rng(0)
    values = [0, 1, 2, 2.0, 3, -1, INF, -INF, NAN, None]
    for count in (1, 2, 3, 5, 8, 20):
        for _ in range(60):
            accuracy = [values[i] for i in rng.integers(len(values), size=count)]
            cost = [values[i] for i in rng.integers(len(values), size=count)]
            results = _results(accuracy, cost)
            front = results.pareto("cost")
            assert set(_ids(front)) == _front(results, "cost", "accuracy")
            # In the order of cost, at equal cost of the settings.
            order = [(row["cost"], row["id"]) for row in front]
            assert order == sorted(order)
            assert front.metrics == results.metrics
            other = results.pareto("accuracy", "cost")
            assert set(_ids(other)) == _front(results, "accuracy", "cost")


def test_pareto_of_every_small_case() -> None:
    points = list(itertools.product((0, 1, 2), repeat=2))
    for chosen in itertools.product(points, repeat=3):
        results = _results([a for a, _ in chosen], [c for _, c in chosen])
        assert set(_ids(results.pareto("cost"))) == _front(results, "cost", "accuracy")


def test_thousands_of_rows_take_no_time() -> None:
    results = _results(list(range(20000)), list(range(20000)))
    assert results.best()["id"] == 19999
    assert len(results.pareto("cost")) == 20000


ROWS = (
    {"bits": 4, "parts": {"a": [1, NAN], "b": INF}, "sqnr": 0.1 + 0.2, "ok": True, "error": None},
    {"bits": None, "parts": [1, None], "sqnr": INF, "ok": False, "error": None},
    {"bits": 2**40, "parts": 'é, "x"\n<b>&', "sqnr": -INF, "ok": True, "error": "ValueError: no"},
    {"bits": -1, "parts": None, "sqnr": NAN, "ok": None, "error": None},
    {"bits": 0, "parts": "", "sqnr": 5e-324, "ok": None, "error": None},
)
TABLE = Results(ROWS, ("sqnr",))


def test_rows_are_a_sequence() -> None:
    assert len(TABLE) == 5
    assert TABLE[1] is ROWS[1]
    assert list(TABLE) == list(ROWS)
    assert isinstance(TABLE[1:3], Results)
    assert TABLE[1:3].rows == ROWS[1:3]
    assert TABLE[1:3].metrics == ("sqnr",)
    assert TABLE.columns == ("bits", "parts", "sqnr", "ok", "error")
    assert TABLE.errors == (ROWS[2],)
    assert repr(TABLE) == "Results(5 settings, 1 failed)"
    assert repr(TABLE[:2]) == "Results(2 settings)"


def test_columns_of_all_rows() -> None:
    results = Results(({"a": 1, "b": 2}, {"c": 3, "a": 4}), ("a",))
    assert results.columns == ("a", "b", "c")
    assert results.best("c")["a"] == 4


def test_csv_comes_back(tmp_path: Path) -> None:
    TABLE.to_csv(tmp_path / "t.csv")
    with open(tmp_path / "t.csv", encoding="utf-8", newline="") as file:
        found = list(csv.DictReader(file))
    assert [list(row) for row in found] == [list(TABLE.columns)] * 5
    assert [float(row["sqnr"]) for row in found[:3]] == [0.1 + 0.2, INF, -INF]
    assert math.isnan(float(found[3]["sqnr"]))
    assert float(found[4]["sqnr"]) == 5e-324
    assert [row["bits"] for row in found] == ["4", "", str(2**40), "-1", "0"]
    assert found[2]["parts"] == ROWS[2]["parts"]
    assert json.loads(found[1]["parts"]) == [1, None]
    assert json.loads(found[0]["parts"])["b"] == INF
    assert found[2]["error"] == "ValueError: no"
    assert b"\r" not in (tmp_path / "t.csv").read_bytes()


def _no_constants(text: str) -> Any:
    raise AssertionError(f"{text} is not JSON")


def test_json_comes_back(tmp_path: Path) -> None:
    TABLE.to_json(tmp_path / "t.json")
    text = (tmp_path / "t.json").read_text(encoding="utf-8")
    found = json.loads(text, parse_constant=_no_constants)
    assert [list(row) for row in found] == [list(TABLE.columns)] * 5
    assert [float(row["sqnr"]) for row in found[:3]] == [0.1 + 0.2, INF, -INF]
    assert math.isnan(float(found[3]["sqnr"]))
    for row, wanted in zip(found, ROWS, strict=True):
        assert {**row, "sqnr": 0, "parts": 0} == {**wanted, "sqnr": 0, "parts": 0}
    assert found[0]["parts"] == {"a": [1, "nan"], "b": "inf"}
    assert [row["parts"] for row in found[1:]] == [row["parts"] for row in ROWS[1:]]


def test_pandas() -> None:
    pandas = pytest.importorskip("pandas")
    frame = TABLE.to_pandas()
    assert list(frame.columns) == list(TABLE.columns)
    assert len(frame) == 5
    np.testing.assert_array_equal(frame["sqnr"].to_numpy(), [row["sqnr"] for row in ROWS])
    assert pandas.isna(frame["bits"][1])
    assert frame["parts"][0] == ROWS[0]["parts"]
    assert list(Results((), ("a",)).to_pandas().columns) == []


@pytest.mark.parametrize("name", ["to_csv", "to_json"])
def test_no_part_of_a_file(name: str, tmp_path: Path) -> None:
    """The old file stays, and no draft is left."""
    path = tmp_path / "t"
    bad = Results((*ROWS, {**ROWS[0], "bits": _Fails()}), ("sqnr",))
    for before in (None, "before"):
        if before is not None:
            path.write_text(before)
        with pytest.raises((TypeError, RuntimeError)):
            getattr(bad, name)(path)
        assert [p.name for p in tmp_path.iterdir()] == ([] if before is None else ["t"])
        assert before is None or path.read_text() == before
    getattr(TABLE, name)(path)
    assert path.read_text(encoding="utf-8") != "before"
    assert [p.name for p in tmp_path.iterdir()] == ["t"]
    with pytest.raises(FileNotFoundError):
        getattr(TABLE, name)(tmp_path / "none" / "t")


class _Fails:
    def __str__(self) -> str:
        raise RuntimeError("no text")


def test_a_table() -> None:
    lines = str(TABLE).splitlines()
    assert len(lines) == 6
    assert lines[0].split() == ["bits", "parts", "parts[a]", "parts[b]", "sqnr", "ok", "error"]
    assert re.split(r"\s\s+", lines[2].strip()) == ["[1, null]", "inf", "false"]
    assert re.split(r"\s\s+", lines[4].strip()) == ["-1", "nan"]
    assert '"x" <b>&' in lines[3]
    assert lines[1].split()[0] == "4"
    assert "0.3 " in lines[1]
    # Cells align with the ends of column names.
    end = lines[0].index("bits") + 4
    assert [line[:end].strip() for line in lines[1:]] == ["4", "", str(2**40), "-1", "0"]
    assert all(line == line.rstrip() for line in lines)


def _flat(*settings: Any, metrics: tuple[str, ...] = ("accuracy",)) -> tuple[dict[str, Any], ...]:
    rows = tuple({"bits": s, "accuracy": 0.5} for s in settings)
    return Results(rows, metrics).by_layer().rows


def test_columns_by_layer_are_those_that_differ() -> None:
    first, second = _flat({"a": 4, "b": 8}, {"a": 2, "b": 8})
    assert first == {"bits[a]": 4, "accuracy": 0.5}
    assert second["bits[a]"] == 2
    # Beside numbers for all layers, and none.
    mixed = _flat({"a": 4, "b": 8}, 3, None, {"a": 4})
    assert [tuple(r.values())[:-1] for r in mixed] == [
        (None, 4, 8), (3, None, None), (None, None, None), (None, 4, None),
    ]  # fmt: skip
    assert [*mixed[0]] == ["bits", "bits[a]", "bits[b]", "accuracy"]


def test_settings_of_one_layer_each_have_its_name_in_a_column() -> None:
    rows = _flat(None, {"a": 4}, {"a": 2}, {"b": 4})
    assert [(r["bits of"], r["bits"]) for r in rows] == [
        (None, None), ("a", 4), ("a", 2), ("b", 4),
    ]  # fmt: skip
    assert [*rows[0]] == ["bits of", "bits", "accuracy"]
    # Of one layer alone, the value is a column of it.
    assert [r["bits[a]"] for r in _flat({"a": 4}, {"a": 2})] == [4, 2]


def test_columns_without_layers_stay() -> None:
    results = _results([0.1, 0.2])
    assert results.by_layer() is results
    (alone,) = _flat({"a": 4})
    assert alone == {"bits[a]": 4, "accuracy": 0.5}
    given = ({"bits": {"a": 4}, "accuracy": 0.5},)
    assert Results(given, ("bits",)).by_layer().rows == given  # a metric is no setting


def test_errors_are_shown_where_there_are_some() -> None:
    assert "error" in str(TABLE).splitlines()[0]
    assert "error" not in str(TABLE[:2])
    assert "error" not in TABLE[:2]._repr_html_()


@pytest.mark.parametrize("results", [Results((), ("a",)), Results(({},), ("a",))])
def test_tables_of_nothing(results: Results, tmp_path: Path) -> None:
    assert str(results).strip() == ""
    assert "<table>" in results._repr_html_()
    results.to_csv(tmp_path / "t.csv")
    results.to_json(tmp_path / "t.json")
    assert json.loads((tmp_path / "t.json").read_text()) == list(results)


class _Cells(HTMLParser):
    """The tags of a page, and the text of its cells."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.cells: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)
        if tag in ("th", "td"):
            self.cells.append("")

    def handle_data(self, data: str) -> None:
        if self.tags[-1] in ("th", "td"):
            self.cells[-1] += data.strip()


def test_html_is_escaped() -> None:
    rows = ({"<i>&": "<script>'\"</script>", "x": {"<b>": "&lt;"}}, {"<i>&": 1.23456789, "x": None})
    parser = _Cells()
    parser.feed(Results(rows, ("x",))._repr_html_())
    assert not {"i", "b", "script"} & set(parser.tags)
    assert parser.cells == [
        *("<i>&", "x"),
        *("<script>'\"</script>", '{"<b>": "&lt;"}'),
        *("1.23457", ""),
    ]


class _Bar:
    def __init__(self, total: int):
        self.total, self.count, self.is_closed = total, 0, False

    def update(self, count: int) -> None:
        self.count += count

    def close(self) -> None:
        self.is_closed = True


def test_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[_Bar] = []

    def tqdm(*, total: int, **options: Any) -> _Bar:
        made.append(_Bar(total))
        return made[-1]

    monkeypatch.setitem(sys.modules, "tqdm", SimpleNamespace(tqdm=tqdm))
    with contextlib.suppress(KeyboardInterrupt), Progress(7, True) as bar:
        bar.update(2)
        bar.update(3)
        raise KeyboardInterrupt
    (shown,) = made
    assert (shown.total, shown.count, shown.is_closed) == (7, 5, True)
    with Progress(7, False) as bar:
        bar.update(2)
    assert len(made) == 1


def test_progress_without_tqdm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tqdm", None)
    with Progress(7, True) as bar:
        bar.update(2)


def test_long_cells_are_shortened_to_a_width():
    rows = tuple({"bits": "layer_" * 9 + str(n), "accuracy": 0.5, "error": None} for n in (1, 2))
    results = Results(rows, ("accuracy",))
    assert max(map(len, results.table().splitlines())) == 65
    lines = results.table(40).splitlines()
    assert [len(line) for line in lines] == [40, 40, 40]
    assert lines[1].split()[0].endswith("_1")
    assert results.table(80) == str(results)
