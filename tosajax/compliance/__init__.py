"""Checks whether an implementation of an operator is as accurate as TOSA 1.0.1 requires.

Integers must be exact, and so must floats that are only moved or compared. Other floats have an
error bound for each element; dot products also have a bound on the errors of the whole output.
`check` applies the operator's rule. The caller supplies reference results of exact or float64
arithmetic; `dot_products` computes them for dot products. `test_data` makes the inputs of the test
sets of Appendix A.

    import numpy as np
    from tosajax import DType, compliance

    shapes = {"a": (1, 32, 64), "b": (1, 64, 32)}
    for test_set in compliance.TEST_SETS:
        data = compliance.test_data("MATMUL", test_set, shapes, dtype=DType.FP32)
        (expected,) = compliance.dot_products("MATMUL", data)
        result = np.matmul(data["a"], data["b"])  # the implementation under test
        outcome = compliance.check(
            "MATMUL",
            expected.reference,
            result,
            bounds=expected.bounds,
            terms=expected.terms,
            test_set=test_set,
        )
        assert outcome, outcome.message

Elementwise operators need only their inputs:

    x = np.linspace(-5, 5, 101, dtype=np.float32)
    outcome = compliance.check("EXP", np.exp(x.astype(np.float64)), np.exp(x), inputs=(x,))
    assert outcome, outcome.message

The package uses NumPy only, and nothing from `tosajax.ops`. The rules follow the specification's
text; `check(..., as_suite=True)` follows Arm's conformance suite 1.0.2 where the suite is looser.
An implementation may flush all subnormal inputs to zero, or none: if it does, `flush` the inputs
before computing the reference.
"""

from __future__ import annotations

from tosajax.compliance.checking import check, rescale_limits
from tosajax.compliance.data import MIN_DOT_PRODUCTS, TEST_SETS, test_data
from tosajax.compliance.formats import flush
from tosajax.compliance.judgement import Outcome
from tosajax.compliance.reference import Expected, dot_products
from tosajax.compliance.rules import RULES, Rule, rule_of

__all__ = [
    "MIN_DOT_PRODUCTS",
    "RULES",
    "TEST_SETS",
    "Expected",
    "Outcome",
    "Rule",
    "check",
    "dot_products",
    "flush",
    "rescale_limits",
    "rule_of",
    "test_data",
]


def __dir__() -> list[str]:
    return __all__
