"""Examples in docstrings: each is run and prints what it says."""

from __future__ import annotations

import doctest
import importlib

import pytest
from paths import ROOT

MODULES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for path in (ROOT / "tosajax").rglob("*.py")
    if ">>> " in path.read_text()
)
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    failed, attempted = doctest.testmod(importlib.import_module(name), optionflags=FLAGS)
    assert attempted > 0
    assert failed == 0
