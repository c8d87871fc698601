"""Versions of the specification: order and texts."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from tosajax.versions import V1_0, V1_1, VERSIONS, Version, is_in, needed


class Fact(NamedTuple):
    since: Version
    until: Version | None = None


@pytest.mark.parametrize("text", ["1.1", " 1.1 ", "1.1.0", "1.1.draft", "1.1.0-draft", "1.1-DRAFT"])
def test_texts(text):
    assert Version.parse(text) == V1_1


@pytest.mark.parametrize("text", ["", "1", "1.", "v1.1", "1.1.0.0", "1.1draft", "1.x", "-1.0"])
def test_texts_that_are_none(text):
    with pytest.raises(ValueError, match=r"is not a version of TOSA, such as 1\.0"):
        Version.parse(text)


def test_order():
    assert list(VERSIONS) == sorted({*VERSIONS}) == [V1_0, V1_1]
    assert Version(1, 9) < Version(1, 10) < Version(2, 0)
    assert str(Version(1, 10)) == "1.10"


@pytest.mark.parametrize(
    ("fact", "versions", "text"),
    [
        (Fact(V1_0), (V1_0, V1_1), "TOSA 1.0"),
        (Fact(V1_1), (V1_1,), "TOSA 1.1"),
        (Fact(V1_0, V1_0), (V1_0,), "TOSA 1.0"),
        (Fact(V1_0, V1_1), (V1_0, V1_1), "TOSA 1.0 to 1.1"),
    ],
)
def test_which_versions_have_a_fact(fact, versions, text):
    assert tuple(v for v in VERSIONS if is_in(fact, v)) == versions
    assert needed(fact) == text
