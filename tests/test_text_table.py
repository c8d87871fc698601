"""Tables of text: whole without a width; else shortened first, then without some columns."""

from __future__ import annotations

import pytest

from tosajax.text_table import Column, text_table

COLUMNS = (
    Column("name", least=6),
    Column("count", right=True),
    Column("place", least=5, drop=2),
    Column("more", drop=1, right=True),
)
ROWS = [("a_long_name_17", "1,234", "model.py:17", "5"), ("b", "9", "", "17")]
WHOLE = [
    "name            count  place        more",
    "a_long_name_17  1,234  model.py:17     5",
    "b                   9                 17",
]


@pytest.mark.parametrize("width", [None, 200, 40])
def test_whole(width):
    assert text_table(COLUMNS, ROWS, width) == WHOLE


@pytest.mark.parametrize(
    ("width", "lines"),
    [
        (
            39,
            ["name            count  place       more", "a_long_name_17  1,234  mod….py:17     5"],
        ),
        (34, ["name            count  place  more", "a_long_name_17  1,234  mo…17     5"]),
        (33, ["name           count  place  more", "a_lo…_name_17  1,234  mo…17     5"]),
        (26, ["name    count  place  more", "a_…_17  1,234  mo…17     5"]),
    ],
)
def test_the_least_important_is_shortened_first(width, lines):
    found = text_table(COLUMNS, ROWS, width)
    assert found[:2] == lines
    assert len(found) == 3


@pytest.mark.parametrize(
    ("width", "head", "last"),
    [
        (25, "name          count  more", "(without place)"),
        (18, "name         count", "(without place, more)"),
        (5, "name    count", "(without place, more)"),
    ],
)
def test_then_columns_are_left_out(width, head, last):
    found = text_table(COLUMNS, ROWS, width)
    assert (found[0], found[-1]) == (head, last)
    assert len(found) == 4


def test_no_rows():
    assert text_table(COLUMNS, []) == ["name  count  place  more"]
