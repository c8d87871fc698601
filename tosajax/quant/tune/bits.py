"""Bits: parameters with other widths, their mean, and a choice within a budget."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from tosajax.arguments.names import near
from tosajax.arguments.types import check_type
from tosajax.quant.calibration import weight_qparams
from tosajax.quant.model.recipes import Params, corrected
from tosajax.quant.model.room import with_room
from tosajax.quant.qmodel import QModel
from tosajax.quant.qparams import QParams
from tosajax.quant.ranges.observers import scale_and_zero_point
from tosajax.quant.sampling import sample_tables

_T = TypeVar("_T")


def with_bits(model: QModel, params: Params, bits: Mapping[str, float | jax.Array]) -> Params:
    """The parameters with other bits: scales of weights are found anew, others cover their range.

    Tables that read such a tensor are sampled again (`sample_tables`). Types stay the same, and so
    do compiled programs. Bits and parameters may be traced: bits that are trained through this
    function change the resolution of a tensor, at the price of `mean_bits`; trained without it they
    move only the ends of its range.

    Args:
      model: the model, from `prepare`.
      params: the parameters, with the bits that are to change.
      bits: the bits, by tensor name.

    Raises:
      TypeError: the bits are not by tensor name.
      ValueError: a tensor has no scale of its own, no bits to choose, or not as many bits; or the
        parameters are of another model.

    Example:
      >>> import numpy as np
      >>> from tosajax import quant
      >>> w, example = np.float32([[1, -2], [3, 4]]), np.float32([[-1, 1]])
      >>> model = quant.prepare(lambda x: x @ w, example_args=[example])
      >>> params = quant.calibrate(model, [example])
      >>> params = quant.with_bits(model, params, {name: 4 for name in model.weights})
      >>> quant.mean_bits(model, params).item()
      4.0
    """
    check_type("model", model, QModel, "a QModel, from `prepare`")
    check_type("bits", bits, Mapping, "a dictionary of bits by tensor name")
    model.check(params)
    check_bits(model, params, bits)
    qparams = {**params["qparams"], **qparams_of_bits(model, params, bits)}
    params = with_room(model.plan, {**params, "qparams": qparams}, bits)
    return sample_tables(model, params, bits)


def qparams_of_bits(
    model: QModel, params: Params, bits: Mapping[str, float | jax.Array]
) -> dict[str, QParams]:
    """The QParams of these tensors with other bits; see `with_bits`."""
    result = {}
    for name, count in bits.items():
        width = jnp.asarray(count, jnp.float32)
        if name in model.weights:
            result[name] = weight_qparams(model, name, corrected(params, name), width)
        else:
            result[name] = of_same_range(params["qparams"][name], width)
    return result


def check_bits(model: QModel, params: Params, bits: Mapping[str, float | jax.Array]) -> None:
    """Raises ValueError where `with_bits` does."""
    for name, count in bits.items():
        if name not in model.specs:
            close = near(name, model.specs)
            raise ValueError(f"tensor {name!r} has no scale of its own{close}")
        storage = params["qparams"][name].storage
        if not storage.is_integer:
            raise ValueError(f"{name!r} is {storage.name}, which has no bits to choose from")
        most = storage.dtype.bits
        if isinstance(count, int | float) and not 2 <= count <= most:
            raise ValueError(
                f"tensor {name!r}: {count} bits, expected 2 to {most} ({storage.name})"
            )


def of_same_range(qparams: QParams, bits: jax.Array) -> QParams:
    """QParams of other bits with the range of these."""
    grid = qparams.grid
    zero_point = 0.0 if qparams.symmetric else qparams.zero_point
    low, high = ((end - zero_point) * qparams.scale for end in grid)
    wider = dataclasses.replace(qparams, bits=bits)
    scale, zero_point = scale_and_zero_point(low, high, wider.grid, qparams.symmetric)
    return dataclasses.replace(wider, scale=scale, zero_point=zero_point)


def mean_bits(model: QModel, params: Params) -> jax.Array:
    """Bits per weight, over all constants that are quantized; its gradient is a price of bits.

    Example:
      >>> import numpy as np
      >>> from tosajax import quant
      >>> w, example = np.float32([[1, -2], [3, 4]]), np.float32([[-1, 1]])
      >>> model = quant.prepare(lambda x: x @ w, example_args=[example])
      >>> params = quant.calibrate(model, [example])
      >>> quant.mean_bits(model, params).item()
      8.0
    """
    sizes = {name: params["values"][name].size for name in model.weights}
    total = jnp.zeros((), jnp.float32)
    for name, size in sizes.items():
        qparams = params["qparams"][name]
        bits, most = qparams.bits, float(qparams.storage.dtype.bits)
        # Bits have their full price at the ends as well, which draws them away from there.
        total += size * jnp.where((bits >= 2) & (bits <= most), bits, jnp.clip(bits, 2.0, most))
    return total / sum(sizes.values())


def allocate_bits(
    scores: Mapping[str, Mapping[int, float]],
    budget: float,
    cost: Callable[[str, int], float],
) -> dict[str, int]:
    """Chooses bits for each tensor: the least sum of scores whose cost is within a budget.

    Args:
      scores: for each tensor, the growth of the loss by its possible bits, as from `sensitivity`.
      budget: the largest sum of costs.
      cost: the cost of a tensor with that many bits; for memory, the product of its size and its
        bits.

    Returns:
      Bits by tensor.

    Raises:
      ValueError: nothing is within the budget.

    Example:
      >>> from tosajax import quant
      >>> scores = {"a": {4: 0.5, 8: 0.0}, "b": {4: 0.1, 8: 0.0}}
      >>> quant.allocate_bits(scores, 1200, lambda name, bits: 100 * bits)
      {'a': 8, 'b': 4}
    """
    least = sum(min(cost(name, b) for b in choices) for name, choices in scores.items())
    front = _pareto_front(scores, cost, budget * (1 + 1e-9))
    if not front:
        raise ValueError(f"budget {budget}: the cheapest choice costs {least}")
    return dict(zip(scores, front[-1].bits, strict=True))


def pareto(
    scores: Mapping[str, Mapping[int, float]],
    cost: Callable[[str, int], float],
    *,
    points: int = 1000,
) -> list[dict[str, int]]:
    """The choices of bits that no other beats in both cost and sum of scores, cheapest first.

    Args:
      scores: for each tensor, the growth of the loss by its possible bits, as from `sensitivity`.
      cost: the cost of a tensor with that many bits.
      points: how many to keep after each tensor, spread over the costs: exact where there are
        fewer, else close.

    Returns:
      Bits by tensor, of each choice.

    Raises:
      ValueError: fewer than two points.

    Example:
      >>> from tosajax import quant
      >>> scores = {"a": {4: 0.5, 8: 0.0}, "b": {4: 0.1, 8: 0.0}}
      >>> quant.pareto(scores, lambda name, bits: 100 * bits)
      [{'a': 4, 'b': 4}, {'a': 8, 'b': 4}, {'a': 8, 'b': 8}]
    """
    if points < 2:
        raise ValueError(f"points is {points}, expected at least 2")
    front = _pareto_front(scores, cost, math.inf, points)
    return [dict(zip(scores, point.bits, strict=True)) for point in front]


class _Point(NamedTuple):
    cost: float
    score: float
    bits: tuple[int, ...]


def _pareto_front(
    scores: Mapping[str, Mapping[int, float]],
    cost: Callable[[str, int], float],
    budget: float,
    points: int | None = None,
) -> list[_Point]:
    """The choices within a budget that none beats in both cost and score, cheapest first."""
    front = [_Point(0.0, 0.0, ())]
    least = {name: min(cost(name, b) for b in choices) for name, choices in scores.items()}
    rest = sum(least.values())
    for name, choices in scores.items():
        rest -= least[name]
        longer = sorted(
            _Point(spent + cost(name, bits), score + float(added), (*chosen, bits))
            for spent, score, chosen in front
            for bits, added in choices.items()
            if spent + cost(name, bits) + rest <= budget
        )
        front = []
        for candidate in longer:
            if not front or candidate.score < front[-1].score:
                front.append(candidate)
        if points is not None:
            front = spread_out(front, points)
    return front


def spread_out(front: Sequence[_T], points: int) -> list[_T]:
    """So many of them, evenly, the first and the last among them."""
    if len(front) <= points:
        return list(front)
    places = np.linspace(0, len(front) - 1, points).round().astype(int)
    return [front[place] for place in places]
