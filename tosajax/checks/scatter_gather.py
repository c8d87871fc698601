"""Rules of "Scatter/Gather Operators" (TOSA 1.0.1).

That indices lie in range, and occur once in SCATTER, depends on their values: no rule is static.
"""

from __future__ import annotations

from tosajax.checks._common import Shapes
from tosajax.checks.call import Call


def gather_shape(c: Call) -> Shapes:
    n, count = c.indices.shape
    return ((n, count, c.values.shape[-1]),)


def scatter_shape(c: Call) -> Shapes:
    return (c.values_in.shape,)
