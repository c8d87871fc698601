"""Verdicts are those of Arm's verify library, on, within and just beyond every bound."""

from __future__ import annotations

import math

import numpy as np
import pytest
from oracle.float_bounds import (
    FLOATS,
    absolute_bound,
    boundaries,
    fraction_bits,
    normal_max,
    normal_min,
    ulp,
    widen,
)

from tosajax import compliance

WIDE = ("FP32", "FP16", "BF16")
NARROW = ("FP8E4M3", "FP8E5M2")


def _neighbours(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """The value of the type nearest to each, and those two steps down and up: [5, n]."""
    with np.errstate(all="ignore"):
        near = values.astype(dtype)
        one = np.array(np.inf).astype(dtype)
        down, up = np.nextafter(near, -one), np.nextafter(near, one)
        return np.stack([near, down, up, np.nextafter(down, -one), np.nextafter(up, one)])


def _results(dtype: np.dtype, reference: np.ndarray, bound: np.ndarray) -> np.ndarray:
    """Results at and around the reference and both ends of its interval, and special ones."""
    with np.errstate(all="ignore"):
        ends = np.nan_to_num(np.stack([reference, reference - bound, reference + bound]))
        turned = (-np.nan_to_num(reference)).astype(dtype)
    near = [_neighbours(end, dtype) for end in ends]
    edge = np.unique(np.concatenate([boundaries(dtype)[[0, 1, 3, 10, 11]], boundaries(dtype)[-3:]]))
    special = np.broadcast_to(edge[:, None], (edge.size, reference.size))
    return np.concatenate([*near, special, turned[None]])


def _references(dtype: np.dtype) -> np.ndarray:
    """Values of the type and points between them, to beyond both ends of its range."""
    rng = np.random.default_rng(5)
    edge = widen(boundaries(dtype))
    tiny, huge = normal_min(dtype), normal_max(dtype)
    spread = rng.uniform(1, 2, 6) * 2.0 ** rng.integers(-9, 9, 6)
    beyond = [huge * 1.001, huge * 1.5, huge * 64, tiny * 0.75, tiny * 1e-9, 1e-310, math.inf]
    between = edge[np.isfinite(edge)] * (1 + 2.0**-12)
    return np.concatenate([edge, spread, -spread, widen(spread.astype(dtype)), beyond, between])


def _flat(values: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    return np.broadcast_to(values, shape).reshape(-1).astype(np.float64)


def _agree(arm, op, name, rule, reference, limits, result, inputs=(), **more):
    """Asserts that each element has the same verdict from both."""
    shape = result.shape
    reference = _flat(reference, shape)
    inputs = [_flat(values, shape) for values in inputs]
    limits = None if limits is None else _flat(limits, shape)
    result = result.reshape(-1)
    wanted = arm("verify_each", name, rule, reference, limits, result)
    found = [
        bool(
            compliance.check(
                op,
                reference[i : i + 1],
                result[i : i + 1],
                inputs=[values[i : i + 1] for values in inputs],
                **{"as_suite": True, **more},
            )
        )
        for i in range(result.size)
    ]
    wrong = [i for i in range(result.size) if found[i] != wanted[i]]
    shown = [(reference[i], result[i], found[i], [v[i] for v in inputs]) for i in wrong[:8]]
    assert not wrong, f"{len(wrong)} of {len(found)}: {shown}"
    assert any(found)
    assert not all(found)


ULPS = {
    **dict.fromkeys(("CEIL", "FLOOR", "ADD", "MUL", "SUB"), (0.5, 0.5)),
    "CAST": (0.5, 1.0),
    "ERF": (5, 5),
    "RECIPROCAL": (1, 1),
    "RSQRT": (2, 2),
}
ULP_CASES = [(op, name) for op in ULPS for name in WIDE] + [("CAST", name) for name in NARROW]


@pytest.mark.parametrize(("op", "name"), ULP_CASES)
def test_ulp(arm, op: str, name: str):
    above, below = ULPS[op]
    if name == "BF16" and op in ("ADD", "MUL", "SUB"):
        above = below = 1.0
    rule = {"mode": "ULP", "ulp_info": {"ulp": above, "ulp_lower": below}}
    reference = _references(FLOATS[name])
    bound = above * ulp(FLOATS[name], reference)
    result = _results(FLOATS[name], reference, bound)
    _agree(arm, op, name, rule, reference, None, result)


EXACT_OPS = {"FP8E4M3": "CONCAT", "FP8E5M2": "MAX_POOL2D"}


@pytest.mark.parametrize("name", FLOATS)
def test_exact(arm, name: str):
    # Exact operators give values of the type.
    reference = widen(boundaries(FLOATS[name]))
    result = _results(FLOATS[name], reference, np.zeros(reference.shape))
    _agree(arm, EXACT_OPS.get(name, "ABS"), name, {"mode": "EXACT"}, reference, None, result)


def _base(name: str, factor: int = 1) -> int:
    return factor * (3 if name == "FP32" else 1)


def _turn(name: str) -> dict:
    return {"bound_as_magnitude": True, "normal_divisor": 2, "base_bound": 1.0}


# Of each operator: its function, what its test descriptions say, and its tensor of bounds.
ABSOLUTE = {
    "COS": (np.cos, _turn, lambda x: 1 + np.abs(x)),
    "EXP": (np.exp, lambda name: {"base_bound": _base(name)}, lambda x: 2 * np.abs(x)),
    "LOG": (np.log, lambda name: {"lower_bound": 0.5}, lambda x: np.full(x.shape, 5.0)),
    "SIGMOID": (lambda x: 1 / (1 + np.exp(-x)), lambda name: {}, lambda x: 2 * (1 + np.abs(x))),
    "SIN": (
        np.sin,
        lambda name: {
            **_turn(name),
            "base_bound": 2.0,
            "max_compare": math.pi * normal_min(FLOATS[name]),
        },
        lambda x: x,
    ),
    "TANH": (
        np.tanh,
        lambda name: {"lower_bound": 0.5, "base_bound": _base(name, 4)},
        lambda x: 8 * np.abs(x),
    ),
}


def _arguments(dtype: np.dtype) -> np.ndarray:
    rng = np.random.default_rng(6)
    near = rng.uniform(-9, 9, 12).astype(dtype)
    far = rng.uniform(9, 100, 4).astype(dtype)
    return widen(np.concatenate([boundaries(dtype), near, far, -far]))


@pytest.mark.parametrize("name", WIDE)
@pytest.mark.parametrize("op", ABSOLUTE)
def test_absolute_error(arm, op: str, name: str):
    function, info, limits = ABSOLUTE[op]
    x = _arguments(FLOATS[name])
    with np.errstate(all="ignore"):
        reference = function(x)
        factor = limits(x) + info(name).get("base_bound", 0.0)
        magnitude, divisor = reference, 1
        if op in ("SIN", "COS"):
            magnitude, factor, divisor = limits(x), info(name)["base_bound"], 2
        lower = info(name).get("lower_bound", 0.0)
        bound = absolute_bound(FLOATS[name], magnitude, factor, lower=lower, divisor=divisor)
    result = _results(FLOATS[name], reference, bound)
    rule = {"mode": "ABS_ERROR", "abs_error_info": info(name)}
    _agree(arm, op, name, rule, reference, limits(x), result, inputs=(x,))


@pytest.mark.parametrize("name", WIDE)
def test_pow(arm, name: str):
    dtype = FLOATS[name]
    # Near 1 the logarithm is small, and its own error counts.
    near_one = [1.0, 1 + 2.0 ** -fraction_bits(dtype)]
    x = np.repeat(np.concatenate([_arguments(dtype)[::4], near_one]), 7)
    y = np.resize(widen(np.array([0.0, 1.0, -1.0, 2.5, -3.5, 17.0, np.inf]).astype(dtype)), x.size)
    with np.errstate(all="ignore"):
        reference = np.power(x, y)
        exponent = y * np.log(x)
        size = np.maximum(np.maximum(np.abs(exponent), normal_min(dtype)), np.abs(0.1 * y))
        product = 2.0 ** -fraction_bits(dtype) * 5.5 * size
        factor = _base(name) + 2 * np.abs(exponent + product)
        bound = reference * np.expm1(product) + absolute_bound(dtype, reference, factor)
    bound = np.where((x == 0) | (y == 0), 0.0, bound)
    open_ = ~np.isfinite(x) | ~np.isfinite(y) | (x < 0) | ((x == 0) & (y <= 0))
    bound = np.where(open_ | np.isnan(bound), np.inf, bound)
    result = _results(dtype, reference, bound)
    _agree(arm, "POW", name, {"mode": "PRECOMPUTED"}, reference, bound, result, inputs=(x, y))


@pytest.mark.parametrize("terms", [1, 2, 37, 5000])
@pytest.mark.parametrize("name", WIDE)
def test_reduce_product(arm, name: str, terms: int):
    reference = _references(FLOATS[name])
    half = 2.0 ** -{"FP32": 24, "FP16": 11, "BF16": 8}[name]
    with np.errstate(all="ignore"):
        bound = np.maximum(np.abs(reference), normal_min(FLOATS[name])) * ((1 + half) ** terms - 1)
    result = _results(FLOATS[name], reference, bound)
    rule = {"mode": "REDUCE_PRODUCT", "reduce_product_info": {"n": terms}}
    _agree(arm, "REDUCE_PRODUCT", name, rule, reference, None, result, terms=terms)


@pytest.mark.parametrize("largest", [0.0, 1e-39, 1.0, 3.0, 1000.0])
@pytest.mark.parametrize("name", WIDE)
def test_resize(arm, name: str, largest: float):
    dtype = FLOATS[name]
    largest = float(np.array(largest).astype(dtype))
    reference = _references(dtype)
    bound = np.maximum(absolute_bound(dtype, largest, 20.0), largest * 0.006)
    result = _results(dtype, reference, np.broadcast_to(bound, reference.shape))
    info = {"max": largest, "scale": 0.006, "ulp_bound": 20.0}
    rule = {"mode": "MAX_RELATIVE", "max_relative_info": info}
    inputs = (np.full(reference.shape, -largest),)
    _agree(arm, "RESIZE", name, rule, reference, None, result, inputs=inputs)
