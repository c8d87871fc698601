"""Pages: their structure, their charts, and what odd names and numbers do to them."""

from __future__ import annotations

import html.parser
import math
import re

import numpy as np
import pytest
from compared import EQUAL, measured, row

import tosajax
from tosajax.compare import Comparison, Histogram, edges
from tosajax.sweep import Results
from tosajax.viz import charts, comparison_page, page, results_page

figure = pytest.importorskip("matplotlib.figure")

NAMES = ['<b>&"', "a$b_{2}$", "line\nbreak\x00\udc80", "層", "x" * 300, "</script>", "plain"]
VOID = {"input", "meta", "wbr"}


class Page(html.parser.HTMLParser):
    """Reads a page; every element has to end where it should."""

    def __init__(self, content: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.urls: list[str] = []
        self.texts: dict[str, list[str]] = {}
        self.labels: list[str] = []
        self.tables: list[list[list[str]]] = []
        self.feed(content)
        self.close()
        assert self.open == []
        assert len(set(self.ids)) == len(self.ids)
        assert set(self.links) <= set(self.ids)
        assert self.urls == []

    def handle_starttag(self, tag, attrs):
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attrs:
            value = value or ""
            if tag == "form" and name in ("action", "method"):
                self.urls.append(value)
            if name == "id":
                self.ids.append(value)
            elif name == "aria-label" and ("role", "img") in attrs:
                self.labels.append(value)
            elif name in ("href", "xlink:href", "src"):
                self.links.append(value.removeprefix("#"))
            self.links += re.findall(r"url\(#?([^)]*)\)", value)
            self.urls += re.findall(r"[a-z]+://.*", value)
        if tag == "table":
            self.tables.append([])
        if tag == "tr":
            self.tables[-1].append([])
        if tag in ("td", "th"):
            self.tables[-1][-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not self.open:
            return
        self.texts.setdefault(self.open[-1], []).append(data)
        assert "http" not in data
        if "td" in self.open or "th" in self.open:
            self.tables[-1][-1][-1] += data

    def has(self, *texts: str) -> None:
        """Texts are in the charts, each as a whole."""
        assert set(texts) <= {t.strip() for t in self.texts.get("text", [])}


def test_a_comparison():
    rows = (
        row("first", EQUAL),
        row("second", measured(51.25), measured(60.5)),
        row(
            "third",
            measured(40.0, 50),
            measured(30.0, 20),
            is_output=True,
            location="model.py:9 last",
        ),
    )
    read = Page(comparison_page(Comparison(rows, 7, ("model.tosa", "<b>.tflite")), "say 'a <b>'"))
    (top,) = read.tables
    assert len(top) == 4
    assert top[0][:6] == ["#", "tensor", "operator", "type", "elements", "differ (%)"]
    second = dict(zip(top[0], top[2], strict=True))
    assert second["max |a − b|"] == "2 LSB"
    assert second["mean |a − b|"] == "0.25 LSB"
    assert (second["SQNR (dB)"], second["differ (%)"]) == ("51.2", "3")
    assert second["range of b"] == "-128 … 126"
    assert second["local: SQNR (dB)"] == "60.5"
    assert (second["a at limits (%)"], second["b at limits (%)"]) == ("10", "5")
    assert top[3][1] == "third (output) model.py:9 last"
    said = " ".join(t for tag in ("dt", "dd", "code") for t in read.texts[tag])
    for words in ("2 of 3 tensors differ", "first that differs", "worst by itself", "30.0 dB"):
        assert words in said
    assert "model.py:9 last" in said
    for words in ("model.tosa", "<b>.tflite"):
        assert words in read.texts["code"]
    assert "b (reference)" in read.texts["dt"]
    assert read.texts["code"][-1] == "say 'a <b>'"
    assert read.texts["footer"] == [f"Made by tosajax {tosajax.__version__} with ", "."]
    layers, values = read.labels
    assert layers == (
        "SQNR and mismatches by layer. 2 of 3 tensors differ; the lowest SQNR is 40.0 dB, of "
        "third #3. The table below has the numbers."
    )
    assert values.startswith("Histograms of values. ")
    read.has(
        "Signal to quantization noise", "SQNR (dB)", "Elements that differ", "elements (%)",
        "tensors in the order of execution, with their numbers in the table", "equal", "first #1",
        "the layer by itself (local)", "third #3: 40.0 dB, by itself 30.0 dB", "value (INT8)",
        "a: 10 % at limits", "b: 5 % at limits", "limits of the type",
    )  # fmt: skip


def test_columns_that_no_row_fills_are_left_out():
    (top,) = Page(comparison_page(Comparison((row(location=""),), 1))).tables
    assert "local: SQNR (dB)" not in top[0]
    assert top[1][1] == "t"


def test_names_are_escaped():
    rows = tuple(row(n, operator=n, location=n, is_output=True) for n in NAMES)
    content = comparison_page(Comparison(rows, 1))
    content.encode()
    read = Page(content)
    (top,) = read.tables
    assert [line[1] for line in top[1:4]] == [
        '<b>&" (output) <b>&"', "a$b_{2}$ (output) a$b_{2}$",
        "line break\ufffd\ufffd (output) line break\ufffd\ufffd",
    ]  # fmt: skip
    assert "<b>" not in content
    read.has('<b>&" #1', "a$b_{2}$ #2", "層 #4")
    assert content.count("</script>") == 1
    rows = tuple({"kind": n, "n": k, "accuracy": 0.1 * k} for k, n in enumerate(NAMES))
    read = Page(results_page(Results((*rows, {"kind": "<b>", "error": "<b>"}), ("accuracy",))))
    assert [line[0] for line in read.tables[0][1:3]] == ['<b>&"', "a$b_{2}$"]
    assert read.tables[1][1][-1] == "<b>"
    named = Results(tuple({NAMES[0]: k, "accuracy": 0.1 * k} for k in range(3)), ("accuracy",))
    Page(results_page(named, cost=NAMES[0])).has('<b>&"', 'accuracy against <b>&", 3 settings')


def test_at_most_forty_names_on_an_axis():
    rows = tuple(row(f"tensor_{k}") for k in range(95))
    texts = Page(comparison_page(Comparison(rows, 1))).texts["text"]
    shown = [t for t in texts if re.fullmatch(r"tensor_\d+ #\d+", t)]
    wide, narrow = range(0, 95, 3), range(0, 95, 7)
    assert shown == [f"tensor_{k} #{k + 1}" for k in (*wide, *narrow)]


@pytest.mark.parametrize("count", [0, 1, 5])
def test_equal_programs(count):
    rows = tuple(row(f"t{k}", EQUAL) for k in range(count))
    read = Page(comparison_page(Comparison(rows, 2)))
    assert f"all {count} are equal" in read.texts["dd"]
    assert read.labels == []
    told = "All tensors are equal: there is nothing to draw." in read.texts.get("p", [])
    assert told is bool(count)
    assert "Values of the worst tensors" not in read.texts["h2"]


def test_equal_tensors_are_not_among_the_worst():
    rows = (row("same", EQUAL), row("other"))
    read = Page(comparison_page(Comparison(rows, 2)))
    titles = [t for t in read.texts["text"] if re.search(r"#\d: ", t)]
    assert titles == ["other #2: 40.0 dB"] * 2


def test_one_tensor():
    read = Page(comparison_page(Comparison((row(total=measured(46.2637)),), 2)))
    ticks = [t for t in read.texts["text"] if re.fullmatch(r"4\d", t)]
    assert 2 * len(set(ticks)) == len(ticks) > 2


ODD = {
    "minus infinite": measured(-math.inf, 9, max_error=math.inf, mean_abs_error=math.inf),
    "nan": measured(math.nan, 9, max_error=math.nan, mean_abs_error=math.nan, cosine=math.nan),
    "no range": measured(range_a=None, range_b=None, clipped_a=None, clipped_b=None),
    "floats": measured(130.0, kind="powers", max_error=1.5e-7, max_ulp=3),
    "empty": measured(math.inf, 0, elements=0, values_a=Histogram("INT4", (0,) * 16),
                      values_b=Histogram("INT4", (0,) * 16)),
    "unsigned": measured(kind="UINT8"),
    "wide": measured(kind="INT16"),
}  # fmt: skip


@pytest.mark.parametrize("kind", ODD)
def test_odd_numbers(kind):
    """By themselves, and beside an ordinary row."""
    for rows in ((row(kind, ODD[kind], ODD[kind]),), (row("t"), row(kind, ODD[kind]))):
        read = Page(comparison_page(Comparison(rows, 1)))
        if kind == "minus infinite":
            read.has("no signal")
        if kind == "floats":
            read.has("value (nearest power of two)", "0")
        if kind == "unsigned":
            read.has("value (UINT8)", "250")


def test_the_worst_six_have_histograms():
    levels = [50.0, 10.0, 40.0, math.inf, 30.0, 20.0, -math.inf, 60.0]
    rows = [row(f"t{k}", measured(sqnr)) for k, sqnr in enumerate(levels)]
    rows[2] = row("t2", measured(40.0), measured(5.0))
    texts = Page(comparison_page(Comparison(tuple(rows), 1))).texts["text"]
    assert [t.split(" ")[0] for t in texts if re.search(r"#\d: ", t)] == [
        "t6", "t2", "t1", "t5", "t4", "t0",
    ] * 2  # fmt: skip


@pytest.fixture
def figures(monkeypatch):
    """The wide figure of each chart of a page, in order."""
    found = []

    def keep(title, about, paint, *, wide, narrow):
        found.append(figure.Figure())
        paint(found[-1], False)
        return ""

    monkeypatch.setattr("tosajax.viz.charts.chart", keep)
    return found


@pytest.mark.parametrize(
    ("kind", "low", "high"), [("INT4", -8, 7), ("INT8", -128, 127), ("UINT16", 0, 65535)]
)
def test_lines_at_the_limits_of_the_type(kind, low, high, figures):
    comparison_page(Comparison((row(total=measured(kind=kind)),), 1))
    (axes,) = figures[-1].axes
    assert [line.get_xdata()[0] for line in axes.lines] == [low, high]
    assert axes.get_xlim()[0] < low < high < axes.get_xlim()[1]
    a, b = (patch.get_data() for patch in axes.patches)
    np.testing.assert_array_equal(a.edges, edges(kind))
    assert (a.values.sum(), b.values[0], b.values[-1]) == (100, 1, 9)


def powers(*values: float) -> Histogram:
    """Five of each value."""
    counts = np.zeros(len(edges("powers")) - 1, int)
    for value in values:
        counts[np.searchsorted(edges("powers"), value) - 1] += 5
    return Histogram("powers", tuple(counts.tolist()))


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ((-4096.0, -16.0, 64.0, 2.0**20), 9 + 1 + 17),
        ((-4096.0, 64.0), 7 + 1 + 1),
        ((0.0, 2.0**20), 1 + 1),
        ((2.0**-3, 2.0**3), 1 + 7),
        ((-1.0,), 1 + 1),
        ((), 1),
    ],
)
def test_powers_about_0_that_nothing_has_are_not_shown(values, shown, figures):
    histogram = powers(*values)
    both = measured(values_a=histogram, values_b=histogram)
    comparison_page(Comparison((row(total=both),), 1))
    (axes,) = figures[-1].axes
    for patch in axes.patches:
        heights = patch.get_data().values
        assert len(heights) == shown
        assert heights.sum() == pytest.approx(100 if values else 0)
    assert "0" in [label.get_text() for label in axes.get_xticklabels()]


def test_powers_of_two_are_named():
    histogram = powers(-8.0, 0.25, 2.0)
    both = measured(values_a=histogram, values_b=histogram)
    Page(comparison_page(Comparison((row(total=both),), 1))).has("−2³")
    histogram = powers(0.25, 2.0)
    both = measured(values_a=histogram, values_b=histogram)
    Page(comparison_page(Comparison((row(total=both),), 1))).has("2⁻²", "2⁻¹", "2⁰", "2¹")


def test_what_is_not_all_is_not_rounded_to_all():
    rows = (row(total=measured(mismatches=999_999, elements=1_000_000)),)
    (top,) = Page(comparison_page(Comparison(rows, 1))).tables
    assert top[1][5] == "99.9999"


@pytest.mark.slow
def test_same_bytes_every_time():
    found = Comparison((row("a", EQUAL), row("b")), 1)
    assert comparison_page(found) == comparison_page(found)
    assert results_page(RESULTS) == results_page(RESULTS)


def setting(bits, act, accuracy, error=None):
    mean = None if accuracy is None else float(bits)
    values = {"weight_bits": bits, "act_bits": act, "mean_bits": mean}
    return {**values, "accuracy": accuracy, "error": error}


RESULTS = Results(
    (
        setting(2, 4, 0.1), setting(2, 8, 0.2), setting(4, 4, 0.7), setting(4, 8, 0.9),
        setting(8, 4, 0.7), setting(8, 8, 0.9), setting(3, 4, math.nan),
        setting(3, 8, None, "ValueError: <no>"),
    ),
    ("accuracy",),
)  # fmt: skip


def test_results():
    read = Page(results_page(RESULTS))
    everything, errors = read.tables
    assert len(everything) == 9
    assert everything[2] == ["2", "8", "2", "0.2", ""]
    assert errors == [["weight_bits", "act_bits", "error"], ["3", "8", "ValueError: <no>"]]
    said = " ".join(read.texts["dd"])
    assert "8, of which 1 failed" in said
    assert "0.9: weight_bits 4, act_bits 8" in said
    assert [label.split(". ")[0] for label in read.labels] == [
        "accuracy against mean_bits", "accuracy by weight_bits", "accuracy by act_bits",
        "accuracy by weight_bits and act_bits",
    ]  # fmt: skip
    assert "accuracy from 0.2 at mean_bits 2 to 0.9 at mean_bits 4" in read.labels[0]
    assert read.labels[1].endswith("2: 0.2; 4: 0.9; 8: 0.9")
    read.has(
        "accuracy (share of examples)", "mean_bits", "1: weight_bits 2, act_bits 8",
        "2: weight_bits 4, act_bits 8", "act_bits 4", "weight_bits 8", "no other is better",
    )  # fmt: skip
    assert not any(t.startswith("3: ") for t in read.texts["text"])


@pytest.mark.parametrize(
    ("accuracies", "is_log"),
    [
        ((0.1, 0.97, 0.985), True),
        ((0.1, 0.9, 0.97, 1.0), True),
        ((0.1, 0.5, 0.9), False),  # as told apart as on an even scale
        ((0.9, 0.95, 1.0), False),
    ],
)
def test_shares_near_1_are_told_apart_beside_low_ones(accuracies, is_log):
    rows = tuple({"bits": n, "accuracy": a} for n, a in enumerate(accuracies))
    read = Page(results_page(Results(rows, ("accuracy",), 200)))
    log = "accuracy (share of examples), log scale of the rest"
    assert (log in read.texts["text"]) == is_log
    assert ("0.95" in read.texts["text"] and "0.5" in read.texts["text"]) == is_log
    sqnr = tuple({"bits": n, "sqnr": a} for n, a in enumerate(accuracies))
    assert "log scale" not in results_page(Results(sqnr, ("sqnr",), 200))


def test_layers_that_differ_are_axes_and_labels():
    first, second = "tosa_conv2d_default_of_a_long_name", "tosa_conv2d_default_of_a_long_name_1"
    rows = tuple(
        {"weight_bits": {first: a, second: b, "same": 8}, "accuracy": a / 10 + b / 100}
        for a in (2, 4) for b in (2, 8)
    )  # fmt: skip
    read = Page(results_page(Results(rows, ("accuracy",))))
    assert read.labels[0].startswith(f"accuracy by weight_bits[{first}].")
    assert read.tables[0][0] == [f"weight_bits[{first}]", f"weight_bits[{second}]", "accuracy"]
    one = tuple({"bits": {name: n}, "accuracy": n / 10} for name in ("conv", "fc") for n in (2, 4))
    read = Page(results_page(Results(one, ("accuracy",))))
    read.has("bits of", "conv", "bits of fc", "bits 4")


def test_a_cost_is_no_axis_of_settings():
    rows = tuple(
        {"bits": n, "weight_bytes": 10.0 * n, "macs": 7 + n, "accuracy": n / 10} for n in range(3)
    )
    read = Page(results_page(Results(rows, ("accuracy",), None, ("weight_bytes", "macs"))))
    assert [label.split(". ")[0] for label in read.labels] == [
        "accuracy against weight_bytes", "accuracy by bits",
    ]  # fmt: skip


def test_rounding_is_charted():
    found = {("single", 4): 0.5, ("double", 4): 0.25, ("single", 8): 1.0, ("double", 8): 0.75}
    rows = tuple({"rounding": r, "weight_bits": b, "accuracy": x} for (r, b), x in found.items())
    about = {"model": "<m>.tosa", "data": "x.npy"}
    content = results_page(Results(rows, ("accuracy",)), "weight_bits", about, "tosajax sweep")
    read = Page(content)
    front, rounding = read.labels
    assert front.startswith("accuracy against weight_bits. 4 settings")
    assert (
        rounding == "accuracy by rounding. The best accuracy by rounding: single: 1; double: 0.75"
    )
    read.has("single", "double", "weight_bits 4", "weight_bits 8")
    assert read.texts["code"] == ["<m>.tosa", "x.npy", "tosajax sweep"]
    assert read.texts["dt"][:2] == ["model", "data"]


def test_settings_of_one_value_are_in_no_legend(figures):
    rows = [
        {"bits": b, "act_bits": 8, "rounding": r, "accuracy": b / 10}
        for b in (2, 3, 4)
        for r in ("single", "double")
    ]
    results_page(Results(tuple(rows), ("accuracy",)))
    by_bits = next(f for f in figures if f.axes[0].get_title() == "accuracy by bits")
    labels = [text.get_text() for text in by_bits.legends[0].get_texts()]
    assert labels == ["rounding single", "rounding double"]


@pytest.mark.parametrize(("count", "rotation"), [(5, 0), (6, 90)])
def test_many_names_stand_upright(figures, count, rotation):
    rows = [{"kind": f"k{k}", "accuracy": k / 10} for k in range(count)]
    results_page(Results(tuple(rows), ("accuracy",)))
    ticks = figures[-1].axes[0].get_xticklabels()
    assert [tick.get_text() for tick in ticks] == [f"k{k}" for k in range(count)]
    assert {tick.get_rotation() for tick in ticks} == {rotation}


def test_an_axis_has_few_names():
    rows = [{"seed": f"s{k % 13}", "kind": f"k{k % 2}", "accuracy": k / 26} for k in range(26)]
    read = Page(results_page(Results(tuple(rows), ("accuracy",))))
    assert [label.split(". ")[0] for label in read.labels] == ["accuracy by kind"]


def test_two_axes_are_a_heat_map():
    rows = [
        {"bits": b, "steps": s, "seed": k, "max_lsb": b * s + k}
        for b in (2, 4) for s in (1, 3, 5) for k in (0, 1)
    ]  # fmt: skip
    read = Page(results_page(Results(tuple(rows), ("max_lsb",))))
    maps = [label for label in read.labels if label.startswith("max_lsb by bits and steps. ")]
    assert maps == [
        "max_lsb by bits and steps. From 2 at bits 2 and steps 1 to 20 at bits 4 and steps 5"
    ]
    read.has("2", "4", "6", "10", "12", "20", "max_lsb by bits and steps")
    assert "Each cell is the best of all settings there." in read.texts["p"]
    sparse = Results(tuple({"bits": k, "steps": k, "max_lsb": k} for k in range(5)), ("max_lsb",))
    assert not any(" and " in label for label in Page(results_page(sparse)).labels)
    axes = {f"axis{k}": 0 for k in range(5)}
    each = ({**axes, a: p, b: q} for a in axes for b in axes for p in (0, 1) for q in (0, 1))
    many = tuple({**row, "accuracy": 0.5} for row in each)
    read = Page(results_page(Results(many, ("accuracy",))))
    assert len([label for label in read.labels if " and axis" in label.split(". ")[0]]) == 6
    assert any("4 more pairs of axes not drawn" in p for p in read.texts["p"])


def test_colours_stand_out():
    """As WCAG 2.2 wants it: text by 4.5 to 1, marks and frames of controls by 3 to 1."""
    style = re.search(r"<style>(.*?)</style>", page("x", []), re.DOTALL)
    assert style is not None
    light, dark = style[1].split("@media (prefers-color-scheme: dark)")
    for part in (light, dark.split("\n* {")[0]):
        found = dict(re.findall(r"--([\w]+): (#[0-9a-f]{6})", part))
        assert len([name for name in found if re.fullmatch(r"c\d", name)]) == len(charts.LIGHT)
        for name, colour in found.items():
            wanted = {"ink": 4.5, "faint": 4.5, "link": 4.5}.get(name, 3.0)
            if name not in ("back", "head", "line"):
                assert contrast(colour, found["back"]) >= wanted, (name, colour)
            if name in ("ink", "faint"):
                assert contrast(colour, found["head"]) >= wanted, (name, colour)


def contrast(a: str, b: str) -> float:
    """The ratio of the luminances of two colours."""

    def luminance(colour: str) -> float:
        parts = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
        linear = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


def test_wide_and_narrow_charts_take_the_colours_of_the_page():
    content = comparison_page(Comparison((row(),), 1))
    drawn = re.findall(
        r'<svg class="(wide|narrow)" aria-hidden="true" (.*?)</svg>', content, re.DOTALL
    )
    assert [kind for kind, _ in drawn] == ["wide", "narrow"] * 2
    for kind, inner in drawn:
        assert {"var(--c0)", "currentColor"} <= set(re.findall(r": ([^;\"]+)", inner))
        assert not set(charts.LIGHT) & set(re.findall(r"#[0-9a-f]{6}", inner))
        width = re.match(r'viewBox="0 0 ([\d.]+) ', inner)
        assert width is not None
        # Text of 9.5 units is read on 400 pixels.
        assert (float(width[1]) <= 365) is (kind == "narrow")
        assert ("9.5px" in inner) is (kind == "narrow")


def test_a_table_is_filtered_and_reached_by_keys():
    rows = (row("first", EQUAL), row("second"))
    content = comparison_page(Comparison(rows, 1))
    form = content[content.index("<form") : content.index("</form>")]
    columns = re.findall(r'<option value="(\d+)">([^<]*)</option>', form)
    (top,) = Page(content).tables
    assert [(int(at), name) for at, name in columns] == [
        (at, name) for at, name in enumerate(top[0]) if name not in ("tensor", "operator", "type")
    ]
    # The script takes the form from before the box of the table.
    assert re.search(r"</form><div class=\"table\" tabindex=\"0\" role=\"region\"", content)
    assert content.count('<th scope="row">') == 2
    assert content.count('<th scope="col"') == len(top[0])
    for name in re.findall(r"field\.(\w+)", content):
        assert f'name="{name}"' in form


def test_many_lines_become_a_summary():
    rows = [setting(w, a, 0.01 * w * a) for w in range(1, 11) for a in (3, 4)]
    rows = [{**r, "seed": s} for r in rows for s in range(2)]
    read = Page(results_page(Results(tuple(rows), ("accuracy",))))
    read.has("the best of each", "their median", "accuracy by seed")


def test_results_of_every_kind():
    errors = {"max_lsb": 3, "error": None}
    for rows, metrics in (
        ((), ()),
        ((), ("accuracy",)),
        ((setting(4, 8, 0.5),), ("accuracy",)),
        ((setting(4, 8, None, "broken"),), ("accuracy",)),
        (({"kind": {"weight": [1]}, **errors}, {"kind": "x", **errors}), ("max_lsb",)),
        ((setting(4, 8, math.inf), setting(5, 8, -math.inf), setting(6, 8, 1.0)), ("accuracy",)),
        (tuple({"lr": 10.0**-k, "sqnr": 1.0 * k, "error": None} for k in range(5)), ("sqnr",)),
        (tuple({"flag": bool(k), "accuracy": 0.5, "error": None} for k in range(2)), ("accuracy",)),
    ):
        Page(results_page(Results(rows, metrics)))
    with pytest.raises(KeyError, match="no column 'size'"):
        results_page(RESULTS, cost="size")


def test_less_of_an_error_is_better():
    rows = tuple({"n": n, "max_lsb": 9 - n, "error": None} for n in range(3))
    read = Page(results_page(Results(rows, ("max_lsb",)), cost="n"))
    assert "lowest max_lsb" in read.texts["dt"]
    assert "7: n 2" in read.texts["dd"]
    assert read.labels == []


def test_files_are_whole_or_not_there(tmp_path, monkeypatch):
    found = Comparison((row(),), 1)
    found.to_html(tmp_path / "a.html")
    RESULTS.to_html(tmp_path / "b.html", cost="mean_bits")
    assert (tmp_path / "a.html").read_text("utf-8") == comparison_page(found)
    assert (tmp_path / "b.html").read_text("utf-8") == results_page(RESULTS)
    with pytest.raises(KeyError):
        RESULTS.to_html(tmp_path / "b.html", cost="size")
    with pytest.raises(FileNotFoundError):
        found.to_html(tmp_path / "none" / "a.html")
    monkeypatch.setattr("tosajax.html._cell", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        found.to_html(tmp_path / "c.html")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.html", "b.html"]
    assert (tmp_path / "b.html").read_text("utf-8").startswith("<!DOCTYPE html>")


def test_a_page_of_ones_own():
    read = Page(page("A & <b>", [("<i>", "<p>said</p>")]))
    assert (read.texts["h1"], read.texts["h2"], read.texts["p"]) == (["A & <b>"], ["<i>"], ["said"])
