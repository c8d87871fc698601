"""How the programs of these tests are compiled."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from quick_programs import quick_programs

# Bits are compared there with those of other programs, compiled as users compile them.
_USUAL = ("test_bit_exact", "test_bit_exact_networks")


@pytest.fixture(autouse=True, scope="module")
def _programs(request: pytest.FixtureRequest) -> Iterator[None]:
    """Most compile quickly, since compiling takes longer than all else; usually with slow tests."""
    if request.path.stem in _USUAL or request.config.option.markexpr != "not slow":
        yield
        return
    with quick_programs():
        yield
