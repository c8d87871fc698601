"""Prints the polynomials of fixed-point sigmoid, tanh and softmax, and their errors.

The integers are those of `FIXED` in tosajax/hifi/kernels/activations.py. Needs NumPy only:

    python tools/derive_activations.py
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.polynomial import polynomial

Function = Callable[[np.ndarray], np.ndarray]


class Fit(NamedTuple):
    """A polynomial, highest power first, and its largest error; integers are Q31."""

    coefficients: np.ndarray
    error: float
    integers: list[int]
    integer_error: float


def exponential(terms: int = 3) -> Fit:
    """2**-f for f in [0, 1], exact at both ends, so that neighbouring octaves meet.

    It is 1 - f / 2 + f * (1 - f) * (a polynomial of `terms` coefficients).
    """
    line, bow = np.array([1.0, -0.5]), np.array([0.0, 1.0, -1.0])

    def target(f: np.ndarray) -> np.ndarray:
        return 2.0**-f - polynomial.polyval(f, line)

    basis = [np.concatenate([np.zeros(k), bow]) for k in range(terms)]
    inner, error = _minimax(target, basis)
    coefficients = polynomial.polyadd(line, polynomial.polymul(bow, inner))[::-1]

    def off(p: np.ndarray, f: np.ndarray) -> np.ndarray:
        return np.polyval(p, f) - 2.0**-f

    return _fit(coefficients, error, off)


def reciprocal(terms: int = 3) -> Fit:
    """1 / (1 + t) for t in [0, 1]; the error is relative, as Newton's method squares it."""
    basis = [np.concatenate([np.zeros(k), [1.0, 1.0]]) for k in range(terms)]
    inner, error = _minimax(np.ones_like, basis)

    def off(p: np.ndarray, t: np.ndarray) -> np.ndarray:
        return np.polyval(p, t) * (1 + t) - 1

    return _fit(inner[::-1], error, off)


def scales() -> tuple[int, int]:
    """From Q6.25 to the exponent of 2 in Q23: of e**-x, for sigmoid, and of e**-2x, for tanh."""
    bits = 2.0**31 / math.log(2)
    return round(bits / 4), round(bits / 2)


def _fit(
    coefficients: np.ndarray, error: float, off: Callable[[np.ndarray, np.ndarray], np.ndarray]
) -> Fit:
    integers = [min(round(c * 2**31), 2**31 - 1) for c in coefficients.tolist()]
    rounded = np.array(integers, np.float64) / 2**31
    at = np.linspace(0, 1, 1 << 17)
    return Fit(coefficients, error, integers, float(np.abs(off(rounded, at)).max()))


def _minimax(target: Function, basis: list[np.ndarray]) -> tuple[np.ndarray, float]:
    """The sum of basis polynomials that is nearest to `target` on [0, 1], by Remez' exchange."""
    points = len(basis) + 1
    grid = np.linspace(0, 1, 1 << 17)
    values = np.stack([polynomial.polyval(grid, b) for b in basis], axis=1)
    wanted = target(grid)
    signs = (-1.0) ** np.arange(points)
    angles = np.pi * (np.arange(points) + 0.5) / points
    chosen = np.round((1 - np.cos(angles)) / 2 * (grid.size - 1)).astype(int)
    for _ in range(30):
        system = np.concatenate([values[chosen], signs[:, None]], axis=1)
        solution = np.linalg.solve(system, wanted[chosen])[:-1]
        error = values @ solution - wanted
        extremes = _extremes(error, points)
        if np.array_equal(extremes, chosen):
            return solution, float(np.abs(error).max())
        chosen = extremes
    raise ArithmeticError("the exchange does not settle")


def _extremes(error: np.ndarray, points: int) -> np.ndarray:
    """The places of the largest `error` between changes of its sign: `points` that alternate."""
    runs = np.split(np.arange(error.size), np.flatnonzero(np.diff(np.signbit(error))) + 1)
    found = [run[np.argmax(np.abs(error[run]))] for run in runs]
    while len(found) > points:
        found.pop(0 if abs(error[found[0]]) < abs(error[found[-1]]) else -1)
    return np.array(found)


def main() -> None:
    """Prints both fits and both scales."""
    for name, fit in (("exponential", exponential()), ("reciprocal", reciprocal())):
        print(f"{name}: {', '.join(f'{c:+.12f}' for c in fit.coefficients)}")
        print(f"  off by at most {fit.error:.4e}, 2**{math.log2(fit.error):.2f}")
        print(f"  in Q31: {fit.integers}")
        print(f"  off by at most {fit.integer_error:.4e}, 2**{math.log2(fit.integer_error):.2f}")
    print(f"sigmoid_scale, tanh_scale: {scales()}")


if __name__ == "__main__":
    main()
