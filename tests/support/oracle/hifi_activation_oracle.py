"""Functions of Q6.25, correctly rounded, by Decimals of 50 digits."""

from __future__ import annotations

from decimal import ROUND_FLOOR, Decimal, localcontext

from oracle.hifi_oracle import saturate


def sigmoid(x):
    return 1 / (1 + (-x).exp())


def tanh(x):
    power = (2 * x).exp()
    return (power - 1) / (power + 1)


def rounded(value, fraction, dtype):
    half_up = (value * 2**fraction + Decimal("0.5")).to_integral_value(ROUND_FLOOR)
    return saturate(int(half_up), dtype)


def exact(function, x, fraction, dtype):
    """A function of an integer in Q6.25, correctly rounded."""
    with localcontext() as context:
        context.prec = 50
        return rounded(function(Decimal(x) / 2**25), fraction, dtype)


def real_softmax(row):
    """Softmax of integers in Q6.25, as Decimals."""
    with localcontext() as context:
        context.prec = 50
        most = max(row)
        powers = [(Decimal(x - most) / 2**25).exp() for x in row]
        total = sum(powers)
        return [power / total for power in powers]
