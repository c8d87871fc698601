"""Axes of charts: where their scales change, and their limits and ticks."""

from __future__ import annotations

import pytest

from tosajax.viz import charts

figure = pytest.importorskip("matplotlib.figure")


@pytest.fixture
def axes():
    return figure.Figure().subplots()


REST = ", log scale of the rest"


@pytest.mark.parametrize(
    ("values", "suffix", "limits", "ticks"),
    [
        ([0.1, 0.97, 0.98], REST, (0.0, 0.984), (0.0, 0.99)),
        ([0.4, 0.9, 0.97, 1.0], REST, (0.22, 1.0), (0.5, 1.0)),
        ([0.0, 0.9, 0.99], REST, (0.0, 0.992), (0.0, 0.995)),
    ],
)
def test_shares_near_1_are_apart(axes, values, suffix, limits, ticks):
    assert charts.share_axis(axes.yaxis, values) == suffix
    assert axes.get_ylim() == pytest.approx(limits)
    shown = axes.get_yticks()
    assert (min(shown), max(shown)) == pytest.approx(ticks)
    scale = axes.yaxis.get_transform()
    assert scale.transform([0.0, 0.9]) == pytest.approx([0, 1])
    assert scale.inverted().transform([0.0, 1.0]) == pytest.approx([0, 0.9])
    lowest = min(1 - v for v in values if v < 1) / 3
    assert 10 ** -scale.transform([1.0])[0] == pytest.approx(lowest)


@pytest.mark.parametrize(
    "values",
    [
        [],
        [0.1, 0.99],
        [0.1, 0.99, 1.0],
        [0.1, 0.97, 0.98, 1.5],
        [-0.1, 0.97, 0.98, 0.99],
        [0.82, 0.9, 0.98],
    ],
    ids=["none", "two", "two and all", "above 1", "below 0", "of one size"],
)
def test_other_shares_are_linear(axes, values):
    assert charts.share_axis(axes.yaxis, values) == ""
    assert axes.get_yscale() == "linear"


@pytest.mark.parametrize(
    ("values", "is_log"), [([1, 100], False), ([1, 50, 101], True), ([], False)]
)
def test_a_wide_range_is_logarithmic(axes, values, is_log):
    assert charts.spread_axis(axes.yaxis, values) == (", log scale" if is_log else "")
    assert axes.get_yscale() == ("log" if is_log else "linear")
    if is_log:
        assert axes.get_ylim() == (0.5, 202)


@pytest.mark.parametrize(
    ("values", "ticks"),
    [
        ([4, 2, 8, 2], [2, 4, 8]),
        ([0, 1, 25], [0, 1, 25]),
        ([0, 0.9, 25], [0, 25]),
        ([0, 100], [0, 100]),
        ([1, 99], [1, 99]),
        (list(range(10)), list(range(10))),
        ([3], [3]),
    ],
)
def test_a_tick_for_each_of_a_few_values(axes, values, ticks):
    charts.value_axis(axes.xaxis, values)
    assert axes.get_xscale() == "linear"
    assert list(axes.get_xticks()) == ticks
    assert [label.get_text() for label in axes.get_xticklabels()] == [f"{v:g}" for v in ticks]


def test_many_values_have_ticks_of_their_own(axes):
    charts.value_axis(axes.xaxis, [v + 0.125 for v in range(11)])
    assert 0.125 not in axes.get_xticks()


def test_values_of_a_wide_range_are_logarithmic(axes):
    charts.value_axis(axes.xaxis, [1, 10, 100])
    assert axes.get_xscale() == "log"


@pytest.mark.parametrize(("count", "narrow", "step"), [(3, False, 1), (0, False, 0)])
def test_names_on_an_axis(axes, count, narrow, step):
    names = [f"n{i}" for i in range(count)]
    charts.name_axis(axes, names, narrow)
    assert list(axes.get_xticks()) == list(range(0, count, step or 1))
    low, high = axes.get_xlim()
    assert (low + high) / 2 == pytest.approx((count - 1) / 2)
    assert (high - low) / 2 == pytest.approx(3.2)


def test_names_that_are_too_many_are_left_out(axes):
    for narrow, most in ((False, charts._LABELS), (True, charts._NARROW_LABELS)):
        for count, step in ((most, 1), (most + 1, 2), (2 * most + 1, 3)):
            charts.name_axis(axes, [f"n{i}" for i in range(count)], narrow)
            assert list(axes.get_xticks()) == list(range(0, count, step))
            low, high = axes.get_xlim()
            assert (high - low) / 2 == pytest.approx(count / 2 + 0.2)
