"""Observers: from the values of a tensor to its scale and zero point.

An observer is three pure functions. States are arrays, so that callers compile `update` and map it
over channels, and `qparams` over grids. Values that are not finite are ignored; larger ones than
2**126 count as 2**126.

    observer = percentile(99.9)
    state = observer.init()
    for batch in batches:
        state = observer.update(state, batch)
    scale, zero_point = observer.qparams(state, grid, symmetric=False)

Observers of the same arguments are equal and have one hash.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tosajax.quant.storages import Grid
from tosajax.quant.storages.division import divide

# Widens a range. Without it, a value at the end of the range lies where `clipped_ste` ends, and a
# unit in its last place decides whether it has a gradient.
MARGIN = 2.0**-12

_BIN_EXPONENT = 11
BINS = 2 * 2**_BIN_EXPONENT  # of a histogram, half of them for negative values
_LARGEST = 2.0**126  # so that neither the width of a range nor the radius of a histogram overflows
_SMALLEST_SCALE = 2.0**-126  # the smallest that processors do not take for 0
NOTHING = 2.0**-118  # magnitudes below have no scale: that of INT8 would be smaller
_SMALLEST_EXPONENT = -100  # of a histogram's radius, so that a bin's width is not a subnormal
_MOST_VALUES = 2**31 - 1  # that int32 counts
_OCTAVES = 8  # from the widest to the narrowest range of a search
_SAME_LOSS = 2.0**-16  # a relative difference of sums that may be rounding


class Observer(NamedTuple):
    """Finds the range of a tensor's values.

    Args:
      init: () -> state, of no values.
      update: (state, x) -> state; x is float32, of any shape.
      qparams: (state, grid, symmetric) -> (scale, zero_point), float32 scalars.
      weighs_integers: `qparams` searches for the best integers, and takes no other grid.
      is_fixed: values have no effect on it.

    Example:
      >>> import jax.numpy as jnp
      >>> from tosajax import quant
      >>> observer = quant.min_max()
      >>> state = observer.init()
      >>> for batch in ([-1, 1], [-3, 2]):
      ...     state = observer.update(state, jnp.float32(batch))
      >>> state.low.item(), state.high.item()
      (-3.0, 2.0)
    """

    init: Callable[[], Any]
    update: Callable[[Any, jax.Array], Any]
    qparams: Callable[[Any, Grid, bool], tuple[jax.Array, jax.Array]]
    weighs_integers: bool = False
    is_fixed: bool = False


class Range(NamedTuple):
    """The least and the greatest value, float32 scalars; inf and -inf if there is none."""

    low: jax.Array
    high: jax.Array


class Histogram(NamedTuple):
    """How many values lie in each of `BINS` bins over [-2**exponent, 2**exponent).

    It depends on the values alone, not on batches or their order: the radius grows by folding
    pairs of bins into one. Where counts would overflow 2**31 - 1, all are halved; an update takes
    up to 2**30 values.

    Args:
      counts: int32 [BINS]; a bin holds its lower edge, not its upper one.
      zeros: int32 scalar; how many values are 0, which every grid holds exactly.
      exponent: int32 scalar.
      range: the range of the values.
    """

    counts: jax.Array
    zeros: jax.Array
    exponent: jax.Array
    range: Range


def scale_and_zero_point(
    low: jax.Array, high: jax.Array, grid: Grid, symmetric: bool, *, margin: float = 0.0
) -> tuple[jax.Array, jax.Array]:
    """The scale and the zero point whose integers cover a range, and 0, which is exact.

    Each operation is correctly rounded in every program: no product goes into a sum, to which
    compilers would join it; and see `divide`.

    Args:
      low: float32 scalar.
      high: float32 scalar.
      grid: the integers.
      symmetric: the zero point is 0, and the scale max(|low|, |high|) / qmax.
      margin: widens the range, relative to it.

    Returns:
      scale: float32, positive; 1 for a range of width 0, or too narrow for a normal float32.
      zero_point: float32, an integer of the grid.
    """
    low, high = jnp.clip(low, -_LARGEST, 0.0), jnp.clip(high, 0.0, _LARGEST)
    if symmetric:
        step = divide(jnp.maximum(-low, high), grid.qmax)
    else:
        step = divide(high - low, grid.qmax - grid.qmin)
    step = jnp.where(step >= _SMALLEST_SCALE, step, 1.0)
    scale = step * (1.0 + margin)
    if symmetric:
        return scale, jnp.zeros_like(scale)
    return scale, jnp.clip(_round(grid.qmin - divide(low, step)), grid.qmin, grid.qmax)


def min_max(margin: float = MARGIN) -> Observer:
    """The range of all values.

    Args:
      margin: widens it, relative to it.

    Example:
      >>> import jax.numpy as jnp
      >>> from tosajax import quant
      >>> observer = quant.min_max(margin=0)
      >>> state = observer.update(observer.init(), jnp.float32([-1, 0.5]))
      >>> grid = quant.Grid(jnp.float32(-128), jnp.float32(127))
      >>> scale, zero_point = observer.qparams(state, grid, True)
      >>> round(1 / scale.item()), zero_point.item()
      (127, 0.0)
    """
    return Observer(_no_range, _widen, _bound(_range_qparams, margin))


def fixed(scale: float, zero_point: int = 0) -> Observer:
    """A scale and a zero point that are known.

    Args:
      scale: the real value of 1.
      zero_point: the integer of 0, in the range of the specification's bits.

    Raises:
      ValueError: the scale is not a positive number.

    Example:
      >>> import numpy as np
      >>> from tosajax import quant
      >>> own = quant.QSpec(symmetric=False, observer=quant.fixed(1 / 64, -128))
      >>> example = np.zeros((1, 4), np.float32)
      >>> model = quant.prepare(lambda x: x + x, [quant.rule("x", act=own)], example_args=[example])
      >>> quant.calibrate(model, [example])["qparams"]["x"]
      QParams(INT8, scale=0.015625, zero_point=-128, bits=8)
    """
    if not 0 < scale < np.inf:
        raise ValueError(f"scale {scale}, expected a positive number")
    qparams = _bound(_fixed_qparams, float(scale), int(zero_point))
    return Observer(tuple, _unchanged, qparams, is_fixed=True)


def moving_average(momentum: float = 0.9, margin: float = MARGIN) -> Observer:
    """The moving average of the ranges of batches, starting at the range of one batch.

    Args:
      momentum: the weight of the average so far, in [0, 1).
      margin: widens the range, relative to it.

    Raises:
      ValueError: the momentum is out of range.

    Example:
      >>> import jax.numpy as jnp
      >>> from tosajax import quant
      >>> observer = quant.moving_average(momentum=0.5)
      >>> state = observer.init()
      >>> for batch in ([-1, 1], [-3, 3]):
      ...     state = observer.update(state, jnp.float32(batch))
      >>> state.low.item(), state.high.item()
      (-2.0, 2.0)
    """
    if not 0 <= momentum < 1:
        raise ValueError(f"moving_average: momentum is {momentum}, expected [0, 1)")
    return Observer(_no_range, _bound(_average, momentum), _bound(_range_qparams, margin))


def percentile(p: float = 99.9) -> Observer:
    """The narrowest range with at most 100 - p percent of the values beyond either end.

    Beyond both ends together, where the range is symmetric. Ends are found to a bin of the
    histogram; the greatest and the least value are exact.

    Args:
      p: percent, in (50, 100].

    Raises:
      ValueError: p is out of range.

    Example:
      >>> import jax.numpy as jnp
      >>> from tosajax import quant
      >>> grid = quant.Grid(jnp.float32(-128), jnp.float32(127))
      >>> values = jnp.append(jnp.linspace(-1, 1, 1000), 100)  # an outlier
      >>> for observer in (quant.percentile(99), quant.percentile(100)):
      ...     scale, _ = observer.qparams(observer.update(observer.init(), values), grid, True)
      ...     print(round(127 * scale.item()))
      1
      100
    """
    check_percentile(p)
    return Observer(_no_values, _count, _bound(percentile_qparams, tail(p)))


def check_percentile(p: float) -> None:
    if not 50 < p <= 100:
        raise ValueError(f"percentile: p is {p}, expected (50, 100]")


def tail(p: float) -> float:
    """The share of values beyond the range of a percentile."""
    return float(np.float32((100 - p) / 100))


def mse(candidates: int = 64) -> Observer:
    """The range of the least squared error of quantization and saturation.

    Values count as evenly spread over their bin, zeros as exact.

    Args:
      candidates: how many values are tried for an end of the range, geometrically from the whole
        range to 1/256 of it.

    Raises:
      ValueError: candidates is below 1.

    Example:
      >>> import jax.numpy as jnp
      >>> from tosajax import quant
      >>> grid = quant.Grid(jnp.float32(-2), jnp.float32(1))
      >>> values = jnp.append(jnp.linspace(-1, 1, 1000), 4)
      >>> observer = quant.mse()
      >>> scale, _ = observer.qparams(observer.update(observer.init(), values), grid, True)
      >>> bool(scale < 4)  # saturates the outlier
      True
    """
    return _search_observer("mse", _squared_error, candidates)


def entropy(candidates: int = 64) -> Observer:
    """The range of the least Kullback-Leibler divergence between the values and their integers.

    It follows "8-bit Inference with TensorRT" (Migacz, 2017): saturated values are added to the
    outermost bins in range that are not empty; integers are spread evenly over their bins that are
    not empty; zeros are left out. Unlike there, both are divided by one sum: normalized apart, the
    least divergence would be of a range that leaves out nearly all values.

    A step is at least as wide as a bin: 8 bits are searched down to 1/16 of the range or 1/8; 16
    bits get the whole range.

    Args:
      candidates: see `mse`.

    Raises:
      ValueError: candidates is below 1.

    Example:
      >>> import jax.numpy as jnp
      >>> from tosajax import quant
      >>> observer = quant.entropy()
      >>> state = observer.update(observer.init(), jnp.linspace(-1, 1, 1000))
      >>> grid = quant.Grid(jnp.float32(-128), jnp.float32(127))
      >>> scale, zero_point = observer.qparams(state, grid, True)
      >>> bool(scale * 127 <= 1.001), zero_point.item()
      (True, 0.0)
    """
    return _search_observer("entropy", _divergence, candidates)


# A partial of the same arguments is the same object, which makes observers equal.
_bound = functools.cache(functools.partial)


def _search_observer(name: str, loss: Callable[..., jax.Array], candidates: int) -> Observer:
    if candidates < 1:
        raise ValueError(f"{name}: candidates is {candidates}, expected at least 1")
    return Observer(
        _no_values, _count, _bound(_least_loss_scale, loss, candidates), weighs_integers=True
    )


def _round(x: jax.Array) -> jax.Array:
    return lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN)


def _bounded(x: jax.Array) -> jax.Array:
    return jnp.clip(x, -_LARGEST, _LARGEST)


# Ranges.


def _no_range() -> Range:
    return Range(jnp.float32(jnp.inf), jnp.float32(-jnp.inf))


def _range_of(x: jax.Array) -> Range:
    finite = jnp.isfinite(x)
    values = _bounded(x)
    low = jnp.min(values, where=finite, initial=jnp.inf)
    return Range(low, jnp.max(values, where=finite, initial=-jnp.inf))


def _widen(state: Range, x: jax.Array) -> Range:
    own = _range_of(x)
    return Range(jnp.minimum(state.low, own.low), jnp.maximum(state.high, own.high))


def _average(momentum: float, state: Range, x: jax.Array) -> Range:
    def mix(old: jax.Array, new: jax.Array) -> jax.Array:
        # The bounds are for compilers, which would fuse a product with the sum.
        mixed = _bounded(old * momentum) + _bounded(new * (1 - momentum))
        either = jnp.where(jnp.isfinite(old), old, new)
        return jnp.where(jnp.isfinite(old) & jnp.isfinite(new), mixed, either)

    return Range(*map(mix, state, _range_of(x)))


def _range_qparams(
    margin: float, state: Range, grid: Grid, symmetric: bool
) -> tuple[jax.Array, jax.Array]:
    return scale_and_zero_point(state.low, state.high, grid, symmetric, margin=margin)


def _unchanged(state: tuple[()], x: jax.Array) -> tuple[()]:
    return state


def _fixed_qparams(
    scale: float, zero_point: int, state: tuple[()], grid: Grid, symmetric: bool
) -> tuple[jax.Array, jax.Array]:
    return jnp.float32(scale), jnp.float32(0 if symmetric else zero_point)


# Histograms.


def _no_values() -> Histogram:
    counts = jnp.zeros(BINS, jnp.int32)
    return Histogram(counts, jnp.int32(0), jnp.int32(_SMALLEST_EXPONENT), _no_range())


def _count(state: Histogram, x: jax.Array) -> Histogram:
    finite = jnp.isfinite(x)
    values = jnp.where(finite, _bounded(x), 0.0)
    exponent = jnp.maximum(state.exponent, _exponent(jnp.max(jnp.abs(values), initial=0.0)))
    counts = _fold(state.counts, exponent - state.exponent)
    halvings = (jnp.sum(counts, dtype=jnp.int32) > _MOST_VALUES - x.size).astype(jnp.int32)
    # A product with a power of two is exact, so that a fold later is a fold now.
    bins = jnp.floor(values * _power_of_two(_BIN_EXPONENT - exponent)).astype(jnp.int32)
    # A small negative product may have become 0, which is in a bin of positive values.
    bins = jnp.where(values < 0, jnp.minimum(bins, -1), bins)
    bins = jnp.where(finite, bins + BINS // 2, BINS)
    zeros = jnp.sum(finite & (values == 0), dtype=jnp.int32)
    return Histogram(
        (counts >> halvings).at[bins].add(1, mode="drop"),
        (state.zeros >> halvings) + zeros,
        exponent,
        _widen(state.range, x),
    )


def _fold(counts: jax.Array, octaves: jax.Array) -> jax.Array:
    """The counts of bins that are 2**octaves as wide."""
    bins = jnp.arange(BINS, dtype=jnp.int32) - BINS // 2
    return jnp.zeros_like(counts).at[(bins >> jnp.minimum(octaves, 31)) + BINS // 2].add(counts)


def _exponent(magnitude: jax.Array) -> jax.Array:
    """The least exponent whose power of two is above a magnitude; -126 for 0 and subnormals."""
    bits = lax.bitcast_convert_type(magnitude, jnp.int32)
    return (bits >> 23) - 126


def _power_of_two(exponent: jax.Array) -> jax.Array:
    return lax.bitcast_convert_type((exponent + 127) << 23, jnp.float32)


def percentile_qparams(
    share: float | jax.Array, state: Histogram, grid: Grid, symmetric: bool
) -> tuple[jax.Array, jax.Array]:
    """The scale and zero point of a percentile, whose `tail` may be traced."""
    end = functools.partial(_quantile, share=share, exponent=state.exponent)
    negative, positive = jnp.split(state.counts, 2)
    if symmetric:
        high = end(positive + negative[::-1], jnp.maximum(-state.range.low, state.range.high))
        low = -high
    else:
        high = end(state.counts, state.range.high)
        low = -end(state.counts[::-1], -state.range.low)
    return scale_and_zero_point(low, high, grid, symmetric, margin=MARGIN)


def _quantile(
    counts: jax.Array, greatest: jax.Array, *, share: float | jax.Array, exponent: jax.Array
) -> jax.Array:
    """The least value with at most `share` of all values above it; bins end at 2**exponent."""
    falling = counts[::-1]
    reached = jnp.cumsum(falling, dtype=jnp.int32)
    above = jnp.floor((reached[-1] - 1).astype(jnp.float32) * share).astype(jnp.int32)
    skipped = jnp.sum(reached <= above, dtype=jnp.int32)
    count = falling[skipped]
    inside = (above - (reached[skipped] - count)).astype(jnp.float32) + 0.5
    bins = skipped.astype(jnp.float32) + inside / count.astype(jnp.float32)
    value = _power_of_two(exponent) - bins * _power_of_two(exponent - _BIN_EXPONENT)
    return jnp.where(above <= 0, greatest, jnp.minimum(value, greatest))


# Searches.


@functools.partial(jax.jit, static_argnames=("loss", "candidates", "symmetric"))
def _least_loss_scale(
    loss: Callable[..., jax.Array],
    candidates: int,
    state: Histogram,
    grid: Grid,
    symmetric: bool,
) -> tuple[jax.Array, jax.Array]:
    """The scale and zero point of least loss: of ranges of one shape, then of others.

    The widest one, where many are nearly as good. Losses are sums, whose last bits depend on the
    program around them; where two are that near each other, so may the range.
    """
    octaves = np.arange(candidates) * (-_OCTAVES / candidates)
    fractions = jnp.asarray(np.exp2(octaves), jnp.float32)
    rule = functools.partial(scale_and_zero_point, grid=grid, symmetric=symmetric, margin=MARGIN)

    def choose(range_of: Callable[[jax.Array], tuple[jax.Array, jax.Array]]):
        losses = lax.map(lambda part: loss(state, grid, *rule(*range_of(part))), fractions)
        return range_of(fractions[jnp.argmax(losses <= jnp.min(losses) * (1 + _SAME_LOSS))])

    def narrow(_: Any, ends: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        _, top = choose(lambda part: (ends[0], high * part))
        return choose(lambda part: (low * part, top))

    low, high = jnp.minimum(state.range.low, 0.0), jnp.maximum(state.range.high, 0.0)
    if symmetric:
        low, high = jnp.minimum(low, -high), jnp.maximum(-low, high)
    ends = choose(lambda part: (low * part, high * part))
    return rule(*(ends if symmetric else lax.fori_loop(0, 2, narrow, ends)))


def _not_zero(state: Histogram) -> jax.Array:
    """The counts of values that are not 0, float32."""
    return state.counts.at[BINS // 2].add(-state.zeros).astype(jnp.float32)


def _squared_error(
    state: Histogram, grid: Grid, scale: jax.Array, zero_point: jax.Array
) -> jax.Array:
    """The sum of squared errors, but for a factor that does not depend on the scale.

    For t = x / scale and its integer q, the nearest in range, (t - q)**2 is the derivative of
    q / 12 + (t - q)**3 / 3, which is continuous: its difference over a bin is the error of evenly
    spread values, be the bin wider than a step or narrower.
    """
    # In units of the radius, as the cube of a scale may not be a float32.
    step = scale / _power_of_two(state.exponent)
    edges = jnp.arange(-BINS // 2, BINS // 2 + 1, dtype=jnp.float32) * (2 / BINS) / step
    integers = jnp.clip(_round(edges), grid.qmin - zero_point, grid.qmax - zero_point)
    integral = integers / 12 + (edges - integers) ** 3 / 3
    return jnp.sum(_not_zero(state) * jnp.diff(integral)) * step**3


def _divergence(state: Histogram, grid: Grid, scale: jax.Array, zero_point: jax.Array) -> jax.Array:
    """The Kullback-Leibler divergence, in nats; inf where steps are narrower than bins."""
    counts = _not_zero(state)
    width = _power_of_two(state.exponent - _BIN_EXPONENT)
    middles = (jnp.arange(BINS, dtype=jnp.float32) - (BINS - 1) / 2) * width
    integers = _round(middles / scale)
    inside = (integers >= grid.qmin - zero_point) & (integers <= grid.qmax - zero_point)
    inner = jnp.where(inside, counts, 0.0)
    total = jnp.maximum(jnp.sum(counts), 1.0)
    p, q = _saturated(counts, inner > 0) / total, _spread(inner, integers) / total
    divergence = jnp.sum(jnp.where(p > 0, p * jnp.log(p / q) - p + q, 0.0))
    # Where each bin has an integer of its own, a histogram does not show the cost of rounding.
    return jnp.where(scale >= width, jnp.maximum(divergence, 0.0), jnp.inf)


def _saturated(counts: jax.Array, inside: jax.Array) -> jax.Array:
    """The counts; those outside are added to the outermost bins inside."""
    first, last = jnp.argmax(inside), BINS - 1 - jnp.argmax(inside[::-1])
    return jnp.zeros_like(counts).at[jnp.clip(jnp.arange(BINS), first, last)].add(counts)


def _spread(counts: jax.Array, integers: jax.Array) -> jax.Array:
    """The counts, evenly over the bins of each integer that are not empty."""
    run = jnp.cumsum(jnp.diff(integers, prepend=integers[:1]) != 0, dtype=jnp.int32)
    total = jnp.zeros_like(counts).at[run].add(counts)
    bins = jnp.zeros_like(counts).at[run].add((counts > 0).astype(jnp.float32))
    return jnp.where(counts > 0, total[run] / bins[run], 0.0)
