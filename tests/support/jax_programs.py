"""Random functions of 1 to 10 primitives of JAX."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

Array = jax.Array
# Returns None where it does not apply to the values at hand.
Make = Callable[[random.Random, Sequence[Array]], Array | None]

FLOATS = (jnp.float32, jnp.float32, jnp.float32, jnp.bfloat16, jnp.float16)
INTEGERS = (jnp.int32, jnp.int32, jnp.int8, jnp.int16)
_LARGEST = 4096  # elements


class Program(NamedTuple):
    """A function, and arguments for it."""

    fn: Callable[..., Any]
    args: tuple[np.ndarray, ...]


def program(seed: int, draw: int = 0) -> Program:
    """A function of 1 to 3 arrays.

    Args:
      seed: of the function, and of the shapes and types of its arguments.
      draw: of the arguments' elements.
    """
    rng = random.Random(seed)
    count = rng.randint(1, 10)
    kinds = [rng.choice((*FLOATS, *INTEGERS, jnp.bool_)) for _ in range(rng.randint(1, 3))]
    shape = tuple(rng.choice((1, 2, 3, 4, 5, 8)) for _ in range(rng.randint(0, 4)))
    values = np.random.default_rng((seed, draw))
    args = tuple(elements(values, shape, np.dtype(kind)) for kind in kinds)
    start = rng.getrandbits(32)

    def fn(*inputs: Array) -> list[Array]:
        choice = random.Random(start)
        found = list(inputs)
        while len(found) < len(inputs) + count:
            made = choice.choice(MAKERS)(choice, found)
            if made is not None and 0 < made.size <= _LARGEST and made.ndim <= 6:
                found.append(made)
        return found[-min(3, count) :]

    return Program(fn, args)


def elements(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Elements of which some are boundary values."""
    if dtype.kind == "b":
        return np.asarray(rng.integers(0, 2, shape), bool)
    if dtype.kind == "i":
        info = np.iinfo(dtype)
        found = rng.integers(info.min, info.max, shape, dtype, endpoint=True)
        small = rng.integers(-5, 6, shape).astype(dtype)
        found = np.where(rng.random(shape) < 0.6, small, found)
        return np.where(rng.random(shape) < 0.05, np.asarray(info.min, dtype), found)
    found = rng.normal(size=shape) * rng.choice([0.5, 1, 1, 4], shape)
    found = np.where(rng.random(shape) < 0.1, np.rint(found), found)
    return np.asarray(found, dtype)


# Choices.


def _is_float(x: Array) -> bool:
    return jnp.issubdtype(x.dtype, jnp.floating)


def _is_integer(x: Array) -> bool:
    return jnp.issubdtype(x.dtype, jnp.integer)


def _one(
    rng: random.Random, values: Sequence[Array], is_kind: Callable[[Array], bool]
) -> Array | None:
    found = [x for x in values if is_kind(x)]
    return rng.choice(found[-4:]) if found else None


def _two(
    rng: random.Random, values: Sequence[Array], is_kind: Callable[[Array], bool]
) -> tuple[Array, Array] | None:
    """Two arrays of one type and shape; the second may be a constant."""
    x = _one(rng, values, is_kind)
    if x is None:
        return None
    others = [y for y in values if y.dtype == x.dtype and y.shape == x.shape]
    if rng.random() < 0.4:
        dims = [n if rng.random() < 0.5 else 1 for n in x.shape]
        generator = np.random.default_rng(rng.getrandbits(32))
        constant = elements(generator, tuple(dims), np.dtype(x.dtype))
        return x, jnp.broadcast_to(jnp.asarray(constant), x.shape)
    return x, rng.choice(others)


def _axis(rng: random.Random, x: Array) -> int:
    return rng.randrange(x.ndim)


def _any(x: Array) -> bool:
    return True


def _has_axes(x: Array) -> bool:
    return x.ndim > 0


# Elementwise.

_OF_FLOATS: tuple[Callable[[Array], Array], ...] = (
    lax.neg, lax.abs, lax.floor, lax.ceil, lax.sign, lax.tanh, lax.logistic, lax.sin, lax.cos,
    lax.erf, lax.square, lax.is_finite, lax.expm1, lax.cbrt, lax.erfc, lax.exp2,
    lambda x: lax.exp(lax.min(x, jnp.asarray(8, x.dtype))),
    lambda x: lax.log(lax.abs(x) + jnp.asarray(0.5, x.dtype)),
    lambda x: lax.log1p(lax.abs(x)),
    lambda x: lax.sqrt(lax.abs(x)),
    lambda x: lax.rsqrt(lax.abs(x) + jnp.asarray(0.25, x.dtype)),
    lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN),
    lambda x: lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO),
    lambda x: lax.asin(lax.clamp(jnp.asarray(-1, x.dtype), x, jnp.asarray(1, x.dtype))),
    lax.atan, lax.sinh, lax.asinh,
    jax.nn.gelu, jax.nn.silu, jax.nn.relu, jax.nn.softplus, jax.nn.hard_swish,
)  # fmt: skip
_OF_INTEGERS: tuple[Callable[[Array], Array], ...] = (
    lax.neg, lax.abs, lax.sign, lax.bitwise_not, lax.population_count, lax.clz, lax.square,
)  # fmt: skip
_OF_NUMBERS: tuple[Callable[[Array, Array], Array], ...] = (
    lax.add, lax.sub, lax.mul, lax.max, lax.min, lax.add, lax.mul,
)  # fmt: skip
_OF_TWO_FLOATS: tuple[Callable[[Array, Array], Array], ...] = (
    lambda x, y: lax.div(x, lax.abs(y) + jnp.asarray(0.5, x.dtype)),
    lambda x, y: lax.pow(lax.abs(x) + jnp.asarray(0.5, x.dtype), lax.tanh(y)),
    lax.atan2,
)
_OF_TWO_INTEGERS: tuple[Callable[[Array, Array], Array], ...] = (
    lax.div, lax.rem, lax.bitwise_and, lax.bitwise_or, lax.bitwise_xor, lax.shift_left,
    lax.shift_right_arithmetic, lax.shift_right_logical,
)  # fmt: skip
_COMPARISONS: tuple[Callable[[Array, Array], Array], ...] = (
    lax.gt, lax.ge, lax.lt, lax.le, lax.eq, lax.ne,
)  # fmt: skip


def unary(rng: random.Random, values: Sequence[Array]) -> Array | None:
    x = _one(rng, values, lambda x: _is_float(x) or _is_integer(x))
    if x is None:
        return None
    if rng.random() < 0.15:
        return lax.integer_pow(x, rng.choice((0, 1, 2, 3, 4, 5)))
    return rng.choice(_OF_FLOATS if _is_float(x) else _OF_INTEGERS)(x)


def binary(rng: random.Random, values: Sequence[Array]) -> Array | None:
    both = _two(rng, values, _any)
    if both is None:
        return None
    x, y = both
    if x.dtype == bool:
        return rng.choice((lax.bitwise_and, lax.bitwise_or, lax.bitwise_xor, lax.eq, lax.ne))(x, y)
    special = _OF_TWO_FLOATS if _is_float(x) else _OF_TWO_INTEGERS
    return rng.choice((*_OF_NUMBERS, *special, *_COMPARISONS))(x, y)


def select(rng: random.Random, values: Sequence[Array]) -> Array | None:
    both = _two(rng, values, _any)
    if both is None:
        return None
    x, y = both
    flags = [v for v in values if v.dtype == bool and v.shape == x.shape]
    which = rng.choice(flags) if flags else x != y
    return lax.select(which, x, y)


def clamp(rng: random.Random, values: Sequence[Array]) -> Array | None:
    x = _one(rng, values, lambda x: _is_float(x) or _is_integer(x))
    return None if x is None else lax.clamp(jnp.asarray(-2, x.dtype), x, jnp.asarray(3, x.dtype))


def convert(rng: random.Random, values: Sequence[Array]) -> Array | None:
    x = _one(rng, values, _any)
    kinds = (jnp.float32, jnp.int32, jnp.int8, jnp.int16, jnp.bool_, jnp.bfloat16)
    return None if x is None else lax.convert_element_type(x, rng.choice(kinds))


# Moves.


def reshape(rng: random.Random, values: Sequence[Array]) -> Array | None:
    x = _one(rng, values, _any)
    if x is None:
        return None
    dims, rest = list[int](), x.size
    for p in (2, 2, 3, 5, 2, 3):
        if rest % p == 0 and len(dims) < 3 and rng.random() < 0.6:
            dims.append(p)
            rest //= p
    dims.insert(rng.randint(0, len(dims)), rest)
    return lax.reshape(x, dims)


def transpose(rng: random.Random, values: Sequence[Array]) -> Array | None:
    x = _one(rng, values, _has_axes)
    return None if x is None else lax.transpose(x, rng.sample(range(x.ndim), x.ndim))


def broadcast(rng: random.Random, values: Sequence[Array]) -> Array | None:
    x = _one(rng, values, lambda x: x.ndim < 4)
    if x is None:
        return None
    axis = rng.randint(0, x.ndim)
    return jnp.broadcast_to(jnp.expand_dims(x, axis), (*x.shape[:axis], 3, *x.shape[axis:]))


def cut(rng: random.Random, values: Sequence[Array]) -> Array | None:
    x = _one(rng, values, _has_axes)
    if x is None:
        return None
    start = [rng.randrange(n) for n in x.shape]
    limit = [rng.randint(a + 1, n) for a, n in zip(start, x.shape, strict=True)]
    strides = [rng.choice((1, 1, 2, 3)) for _ in x.shape]
    return lax.slice(x, start, limit, strides)


def pad(rng: random.Random, values: Sequence[Array]) -> Array | None:
    x = _one(rng, values, _has_axes)
    if x is None:
        return None
    widths = [(rng.randint(-1, 2), rng.randint(-1, 2), rng.choice((0, 0, 1))) for _ in x.shape]
    sizes = [n + a + b + i * (n - 1) for n, (a, b, i) in zip(x.shape, widths, strict=True)]
    if min(sizes) < 1:
        return None
    return lax.pad(x, jnp.asarray(rng.choice((0, 1)), x.dtype), widths)


def reverse(rng: random.Random, values: Sequence[Array]) -> Array | None:
    x = _one(rng, values, _has_axes)
    return None if x is None else lax.rev(x, rng.sample(range(x.ndim), rng.randint(1, x.ndim)))


def concatenate(rng: random.Random, values: Sequence[Array]) -> Array | None:
    both = _two(rng, values, _has_axes)
    return None if both is None else lax.concatenate(both, _axis(rng, both[0]))


def roll(rng: random.Random, values: Sequence[Array]) -> Array | None:
    x = _one(rng, values, _has_axes)
    return None if x is None else jnp.roll(x, rng.randint(-3, 3), _axis(rng, x))


# Indices.


def _index(rng: random.Random, values: Sequence[Array]) -> Array:
    """A scalar that depends on the inputs; it may be out of range."""
    x = rng.choice(list(values))
    return jnp.sum(x.astype(jnp.float32) > 0, dtype=jnp.int32) % 7 - 1


def dynamic_slice(rng: random.Random, values: Sequence[Array]) -> Array | None:
    x = _one(rng, values, _has_axes)
    if x is None:
        return None
    at = [_index(rng, values) if rng.random() < 0.6 else jnp.int32(0) for _ in x.shape]
    return lax.dynamic_slice(x, at, [rng.randint(1, n) for n in x.shape])


def dynamic_update_slice(rng: random.Random, values: Sequence[Array]) -> Array | None:
    x = _one(rng, values, _has_axes)
    if x is None:
        return None
    update = lax.slice(x, [0] * x.ndim, [rng.randint(1, n) for n in x.shape])
    at = [_index(rng, values) if rng.random() < 0.6 else jnp.int32(0) for _ in x.shape]
    return lax.dynamic_update_slice(x, update, at)


def take(rng: random.Random, values: Sequence[Array]) -> Array | None:
    x = _one(rng, values, _has_axes)
    if x is None:
        return None
    axis = _axis(rng, x)
    if rng.random() < 0.5:
        indices = jnp.asarray([rng.randrange(x.shape[axis]) for _ in range(3)])
        return jnp.take(x, indices, axis, mode="fill")
    # Out of bounds, JAX's own fill is not kept; the graph's report says so.
    indices = jnp.arange(3) + _index(rng, values)
    return jnp.take(x, indices, axis, mode=rng.choice(("clip", "wrap")))


def take_along(rng: random.Random, values: Sequence[Array]) -> Array | None:
    x = _one(rng, values, _has_axes)
    if x is None:
        return None
    axis = _axis(rng, x)
    order = (
        jnp.argsort(x.astype(jnp.float32), axis) if rng.random() < 0.5 else jnp.zeros(x.shape, int)
    )
    return jnp.take_along_axis(x, order, axis)


def update(rng: random.Random, values: Sequence[Array]) -> Array | None:
    x = _one(rng, values, _has_axes)
    if x is None:
        return None
    at = _index(rng, values) if rng.random() < 0.5 else rng.randrange(x.shape[0])
    row = x[0]
    if x.dtype != bool and rng.random() < 0.4:
        return x.at[at].add(row)
    return x.at[at].set(row)


# Reductions, products, windows, orders.

_FOLDS: tuple[Callable[..., Array], ...] = (jnp.sum, jnp.max, jnp.min, jnp.any, jnp.all)


def reduce(rng: random.Random, values: Sequence[Array]) -> Array | None:
    x = _one(rng, values, _has_axes)
    if x is None:
        return None
    axes = tuple(rng.sample(range(x.ndim), rng.randint(1, x.ndim)))
    fold = rng.choice(_FOLDS)
    kept = rng.random() < 0.5
    if fold is jnp.sum:
        return jnp.sum(x, axes, dtype=jnp.int32 if x.dtype == bool else x.dtype, keepdims=kept)
    return fold(x, axes, keepdims=kept)


def arg(rng: random.Random, values: Sequence[Array]) -> Array | None:
    x = _one(rng, values, lambda x: x.ndim > 0 and x.dtype != bool)
    return None if x is None else rng.choice((jnp.argmax, jnp.argmin))(x, _axis(rng, x))


def cumulative(rng: random.Random, values: Sequence[Array]) -> Array | None:
    x = _one(rng, values, lambda x: x.ndim > 0 and x.dtype != bool)
    if x is None:
        return None
    return rng.choice((lax.cumsum, lax.cummax, lax.cummin))(x, _axis(rng, x), rng.random() < 0.5)


def dot(rng: random.Random, values: Sequence[Array]) -> Array | None:
    x = _one(rng, values, lambda x: x.ndim > 0 and x.dtype in (jnp.float32, jnp.int8))
    if x is None:
        return None
    axis = _axis(rng, x)
    generator = np.random.default_rng(rng.getrandbits(32))
    weight = elements(generator, (x.shape[axis], rng.randint(1, 6)), np.dtype(x.dtype))
    other = jnp.asarray(weight) if rng.random() < 0.5 else jnp.asarray(weight) * x.ravel()[0]
    kind = jnp.int32 if x.dtype == jnp.int8 else None
    return lax.dot_general(x, other, (((axis,), (0,)), ((), ())), preferred_element_type=kind)


def gram(rng: random.Random, values: Sequence[Array]) -> Array | None:
    x = _one(rng, values, lambda x: x.ndim >= 2 and x.dtype == jnp.float32)
    if x is None:
        return None
    batch = tuple(range(x.ndim - 2))
    dims = (((x.ndim - 1,), (x.ndim - 1,)), (batch, batch))
    return lax.dot_general(x, x, dims)


def conv(rng: random.Random, values: Sequence[Array]) -> Array | None:
    x = _one(rng, values, lambda x: x.ndim == 4 and x.dtype in (jnp.float32, jnp.int8))
    if x is None:
        return None
    generator = np.random.default_rng(rng.getrandbits(32))
    groups = x.shape[-1] if rng.random() < 0.3 else 1
    shape = (rng.randint(1, 3), rng.randint(1, 3), x.shape[-1] // groups, 2 * groups)
    kernel = jnp.asarray(elements(generator, shape, np.dtype(x.dtype)))
    kind = jnp.int32 if x.dtype == jnp.int8 else None
    padding = [(rng.randint(0, 2), rng.randint(0, 2)) for _ in range(2)]
    strides, dilation = [(rng.randint(1, 2), rng.randint(1, 2)) for _ in range(2)]

    def convolve(x: Array, kernel: Array) -> Array:
        return lax.conv_general_dilated(
            x, kernel, strides, padding, rhs_dilation=dilation, feature_group_count=groups,
            dimension_numbers=("NHWC", "HWIO", "NHWC"), preferred_element_type=kind,
        )  # fmt: skip

    made = jax.eval_shape(convolve, x, kernel)
    return convolve(x, kernel) if math.prod(made.shape) else None


def window(rng: random.Random, values: Sequence[Array]) -> Array | None:
    x = _one(rng, values, lambda x: x.ndim == 4 and (_is_float(x) or x.dtype == jnp.int8))
    if x is None:
        return None
    size = tuple(min(n, rng.randint(1, 3)) for n in x.shape[1:3])
    strides = (1, rng.randint(1, 2), rng.randint(1, 2), 1)
    padding = rng.choice(("SAME", "VALID"))
    if rng.random() < 0.6 or not _is_float(x):
        low = -jnp.inf if _is_float(x) else jnp.iinfo(x.dtype).min
        start = np.asarray(low, x.dtype)
        return lax.reduce_window(x, start, lax.max, (1, *size, 1), strides, padding)
    start = np.asarray(0, x.dtype)
    return lax.reduce_window(x, start, lax.add, (1, *size, 1), strides, padding)


def sort(rng: random.Random, values: Sequence[Array]) -> Array | None:
    x = _one(rng, values, lambda x: x.ndim > 0 and x.size <= 512)
    if x is None:
        return None
    if _is_float(x):  # Whose last bits, and signs of zero, would decide on the order.
        x = jnp.round(x.astype(jnp.float32) * 4)
        x = jnp.where(x == 0, jnp.float32(0), x)
    if rng.random() < 0.5 and x.dtype != bool:
        found = lax.top_k(x, rng.randint(1, x.shape[-1]))
        return found[rng.randint(0, 1)]
    axis = _axis(rng, x)
    return rng.choice((jnp.sort, jnp.argsort))(x, axis=axis)


# Functions of functions.


def branch(rng: random.Random, values: Sequence[Array]) -> Array | None:
    both = _two(rng, values, lambda x: x.dtype != bool)
    if both is None:
        return None
    x, y = both
    return lax.cond(_index(rng, values) > 1, lambda x, y: x + y, lambda x, y: x * y, x, y)


def loop(rng: random.Random, values: Sequence[Array]) -> Array | None:
    x = _one(rng, values, lambda x: x.ndim > 0 and x.dtype != bool)
    if x is None:
        return None
    turns = rng.randint(1, 4)
    if rng.random() < 0.5:
        return lax.fori_loop(0, turns, lambda i, x: lax.max(x, -x) + i.astype(x.dtype), x)
    if rng.random() < 0.5:
        last, rows = lax.scan(lambda c, row: (c + row, c - row), x[0], x)
        return rows if rng.random() < 0.7 else last
    most = _index(rng, values)
    return lax.while_loop(lambda s: s[0] < most, lambda s: (s[0] + 1, s[1] + s[1]), (0, x))[1]


def called(rng: random.Random, values: Sequence[Array]) -> Array | None:
    x = _one(rng, values, _has_axes)
    if x is None:
        return None
    inner = rng.choice((unary, binary, reverse, reduce))
    seed = rng.getrandbits(32)
    wrap = rng.choice((jax.jit, jax.checkpoint, jax.vmap))

    def body(x: Array) -> Array:
        made = inner(random.Random(seed), [x])
        return x if made is None else made

    return wrap(body)(x)


MAKERS: tuple[Make, ...] = (
    *(unary, unary, unary, binary, binary, binary, select, clamp, convert),
    *(reshape, transpose, broadcast, cut, pad, reverse, concatenate, roll),
    *(dynamic_slice, dynamic_update_slice, take, take_along, update),
    *(reduce, reduce, arg, cumulative, dot, gram, conv, window, sort),
    *(branch, loop, called),
)
