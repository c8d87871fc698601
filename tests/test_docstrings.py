"""Examples in docstrings: each is run and prints what it says."""

from __future__ import annotations

import doctest
import importlib
import inspect
from typing import Any

import pytest
from paths import ROOT

MODULES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for path in (ROOT / "tosajax").rglob("*.py")
    if ">>> " in path.read_text()
)
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


class Finder(doctest.DocTestFinder):
    """Finds the examples of decorated functions as well, such as those of the operators."""

    def _from_module(self, module: Any, object: Any) -> bool:
        return super()._from_module(module, inspect.unwrap(object))  # type: ignore[misc]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    runner = doctest.DocTestRunner(optionflags=FLAGS)
    for test in Finder(exclude_empty=True).find(importlib.import_module(name)):
        runner.run(test)
    assert runner.tries > 0
    assert runner.failures == 0
