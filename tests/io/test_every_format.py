"""Every format keeps a graph of every operator and type, or says that it cannot."""

from __future__ import annotations

import formats_table
import pytest

from tosajax import spec
from tosajax.io.formats import WRITTEN


def test_the_page_has_the_table():
    """The table is made of round trips: a graph that comes back changed fails here."""
    pytest.importorskip("xdsl")
    pytest.importorskip("vgfpy")
    assert formats_table.written() == formats_table.table()


@pytest.mark.parametrize("known", WRITTEN, ids=lambda known: known.name)
def test_every_operator_is_tried(known):
    assert {example.operator for example in formats_table.examples(known)} == {*spec.OPERATORS}
