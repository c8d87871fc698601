"""All listed mutants."""

from __future__ import annotations

from mutation import (
    of_arithmetic,
    of_checks,
    of_cli,
    of_compare,
    of_elementwise,
    of_export,
    of_graphs,
    of_hifi,
    of_io,
    of_native,
    of_quant,
    of_require,
    of_rules,
    of_runtime,
    of_sweep,
    of_viz,
)
from mutation.listing import Mutant

MUTANTS: list[Mutant] = [
    *of_arithmetic.MUTANTS,
    *of_checks.MUTANTS,
    *of_rules.MUTANTS,
    *of_require.MUTANTS,
    *of_graphs.MUTANTS,
    *of_runtime.MUTANTS,
    *of_quant.MUTANTS,
    *of_sweep.MUTANTS,
    *of_hifi.MUTANTS,
    *of_export.MUTANTS,
    *of_native.MUTANTS,
    *of_elementwise.MUTANTS,
    *of_io.MUTANTS,
    *of_cli.MUTANTS,
    *of_compare.MUTANTS,
    *of_viz.MUTANTS,
]
