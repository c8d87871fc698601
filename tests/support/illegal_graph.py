"""An illegal graph, in a module that other processes find by its name.

Modules of tests are in a package `tests`, and so are those of some installed packages.
"""

from __future__ import annotations

import tosajax
from tosajax import Builder, DType, Graph, TosaError


def illegal() -> Graph:
    b = Builder()
    x = b.input("x", DType.INT32, (1, 3))
    return b.graph([b.op("ADD", x, x, shape=(3, 3), name="sum")])


def fail() -> None:
    TosaError(tosajax.validate(illegal())).report.raise_errors()
