"""Functions made of others: the errors that their docstrings state."""

from __future__ import annotations

import re

import numpy as np
import pytest
from elements import run
from jax import lax
from scipy import special

from tosajax.from_jax.export import export
from tosajax.from_jax.rules import _functions

_RNG = np.random.default_rng(5)
_COUNT = 3000


def _spread(low: float, high: float) -> np.ndarray:
    """Random numbers of both signs, of all magnitudes between two."""
    size = np.exp(_RNG.uniform(np.log(low), np.log(high), _COUNT))
    return np.concatenate([size, -size])


_WIDE = _spread(1e-37, 3e38)
_UNIT = np.concatenate([_spread(1e-30, 1), 1 - np.abs(_spread(1e-7, 0.5)), _spread(0.3, 1)])
_EXPONENTS = np.concatenate([_spread(1e-30, 88.7), _RNG.uniform(-4, 4, _COUNT)])
CASES = {
    "acos": (np.arccos, _UNIT),
    "acosh": (np.arccosh, 1 + np.abs(np.concatenate([_spread(1e-6, 10), _spread(10, 3e38)]))),
    "asin": (np.arcsin, _UNIT),
    "asinh": (np.arcsinh, _WIDE),
    "atan": (np.arctan, np.concatenate([_WIDE, _spread(0.1, 10)])),
    "atanh": (np.arctanh, _UNIT),
    "cbrt": (np.cbrt, _WIDE),
    "cosh": (np.cosh, _EXPONENTS),
    "erf_inv": (special.erfinv, _UNIT),
    "expm1": (np.expm1, _EXPONENTS),
    "log1p": (np.log1p, np.concatenate([np.abs(_WIDE), -np.abs(_UNIT), np.abs(_UNIT)])),
    "sinh": (np.sinh, _EXPONENTS),
    "sqrt": (np.sqrt, np.abs(_WIDE)),
    "tan": (np.tan, np.concatenate([_spread(1e-30, 1), _RNG.uniform(-200, 200, _COUNT)])),
}


def _stated(name: str) -> float:
    (stated,) = re.findall(r"(\d+) ulp", getattr(_functions, name).__doc__)
    return float(stated)


def _worst(found: np.ndarray, wanted: np.ndarray) -> float:
    """The largest error, in ulp of what is wanted, where that is a normal number."""
    info = np.finfo(np.float32)
    is_normal = (np.abs(wanted) >= info.smallest_normal) & (np.abs(wanted) <= info.max)
    unit = np.spacing(np.abs(wanted[is_normal]).astype(np.float32)).astype(np.float64)
    return float((np.abs(found - wanted)[is_normal] / unit).max())


@pytest.mark.parametrize("name", CASES)
def test_errors_are_as_stated(name):
    oracle, x = CASES[name]
    x = x.astype(np.float32)
    found = run(export(getattr(lax, name), x, check=False), x)
    worst = _worst(found, oracle(x.astype(np.float64)))
    assert worst <= _stated(name)
    assert worst > 0.2 * _stated(name), "the docstring promises too little"


def test_error_of_atan2_is_as_stated():
    sizes = [np.concatenate([_WIDE, _spread(0.01, 100)]).astype(np.float32) for _ in range(2)]
    y, x = (_RNG.permutation(size) for size in sizes)
    found = run(export(lax.atan2, y, x, check=False), y, x)
    assert _worst(found, np.arctan2(y.astype(np.float64), x)) <= _stated("atan2")


def test_error_of_erfc_is_as_stated():
    x = np.concatenate([_RNG.uniform(-5, 5, 20000), _spread(1e-30, 20)]).astype(np.float32)
    found = run(export(lax.erfc, x, check=False), x)
    assert np.abs(found - special.erfc(x.astype(np.float64))).max() <= 2.0**-22


def test_error_of_exp2_is_small():
    x = _RNG.uniform(-126, 128, 20000).astype(np.float32)
    found = run(export(lax.exp2, x, check=False), x)
    assert _worst(found, np.exp2(x.astype(np.float64))) <= 2
