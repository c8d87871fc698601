"""The table of primitives: each has a rule in one chapter, a function here, a row on the page.

The tests of the chapters compare values; these see that no primitive is left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import primitives_table
import pytest
from jax import lax
from jax_networks.census import primitives_of

import tosajax
from tosajax import ops
from tosajax.from_jax.rules import CHAPTERS, HINTS, RULES

X = np.linspace(-0.9, 0.9, 12, dtype=np.float32).reshape(3, 4)
ABOVE = X + 2
INTS = np.arange(12, dtype=np.int32).reshape(3, 4)
BITS = INTS > 5
IMAGE = np.arange(32, dtype=np.float32).reshape(1, 4, 4, 2)
AT = np.int32(1)
_WINDOW = ((1, 2, 2, 1), (1, 2, 2, 1), "VALID")


def _max_pool(x: Any) -> Any:
    return lax.reduce_window(x, -jnp.inf, lax.max, *_WINDOW)


# A function and its arguments, for each primitive.
EXAMPLES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    **{name: (getattr(lax, name), (X, X)) for name in ("add", "sub", "mul", "div", "max", "min")},
    **{name: (getattr(lax, name), (X, X)) for name in ("pow", "rem", "atan2")},
    **{name: (getattr(lax, name), (X, X)) for name in ("gt", "ge", "lt", "le", "eq", "ne")},
    **{name: (getattr(lax, f"bitwise_{name}"), (INTS, INTS)) for name in ("and", "or", "xor")},
    **{
        name: (getattr(lax, name), (INTS, INTS))
        for name in ("shift_left", "shift_right_arithmetic", "shift_right_logical")
    },
    **{
        name: (getattr(lax, name), (X,))
        for name in (
            *("ceil", "cos", "erf", "exp", "floor", "logistic", "sin", "tanh", "acos", "asin"),
            *("asinh", "atan", "atanh", "cbrt", "cosh", "erf_inv", "erfc", "expm1", "log1p"),
            *("sinh", "tan", "abs", "exp2", "is_finite", "neg", "round", "sign", "square"),
        )
    },
    **{name: (getattr(lax, name), (ABOVE,)) for name in ("log", "rsqrt", "acosh", "sqrt")},
    **{name: (getattr(lax, name), (INTS,)) for name in ("clz", "population_count")},
    "not": (lax.bitwise_not, (INTS,)),
    "integer_pow": (lambda x: lax.integer_pow(x, 3), (X,)),
    "one_minus_square": (lambda x: jax.grad(lambda x: jnp.tanh(x).sum())(x), (X,)),
    "add_any": (jax.grad(lambda x: (jnp.sin(x) * x).sum()), (X,)),
    "select_n": (lax.select, (BITS, X, X + 1)),
    "clamp": (lambda x: lax.clamp(0.0, x, 0.5), (X,)),
    "convert_element_type": (lambda x: x.astype(jnp.int32), (X,)),
    "reduce_precision": (lambda x: lax.reduce_precision(x, 8, 7), (X,)),
    # Data layout
    "broadcast_in_dim": (lambda x: jnp.broadcast_to(x, (2, 3, 4)), (X,)),
    "reshape": (lambda x: lax.reshape(x, (12,)), (X,)),
    "squeeze": (lambda x: jnp.squeeze(x, 0), (X[None],)),
    "transpose": (lambda x: x.T, (X,)),
    "copy": (jnp.copy, (X,)),
    "iota": (lambda x: x + lax.broadcasted_iota(jnp.float32, (3, 4), 1), (X,)),
    "rev": (lambda x: lax.rev(x, (0, 1)), (X,)),
    "slice": (lambda x: x[1:, ::2], (X,)),
    "split": (lambda x: lax.split(x, (1, 2)), (X,)),
    "unstack": (jnp.unstack, (X,)),
    "concatenate": (lambda x: jnp.concatenate([x, x]), (X,)),
    "pad": (lambda x: lax.pad(x, 0.0, ((1, 0, 1), (0, 1, 0))), (X,)),
    "stack": (lambda x: jnp.stack([x, x + 1], 1), (X,)),
    "tile": (lambda x: jnp.tile(x, (2, 3)), (X,)),
    # Products and windows
    "dot_general": (jnp.dot, (X, X.T)),
    "conv_general_dilated": (
        lambda x: lax.conv(x, jnp.ones((3, 1, 2, 2)), (1, 1), "SAME"),
        (IMAGE[:, :1],),
    ),
    "reduce_window_max": (lambda x: lax.reduce_window(x, -np.inf, lax.max, *_WINDOW), (IMAGE,)),
    "reduce_window_min": (lambda x: lax.reduce_window(x, np.inf, lax.min, *_WINDOW), (IMAGE,)),
    "reduce_window_sum": (lambda x: lax.reduce_window(x, 0.0, lax.add, *_WINDOW), (IMAGE,)),
    "reduce_window": (lambda x: lax.reduce_window(x, 1.0, lax.mul, *_WINDOW), (IMAGE,)),
    # Reductions
    "reduce_sum": (jnp.sum, (X,)),
    "reduce_prod": (jnp.prod, (X,)),
    "reduce_max": (jnp.max, (X,)),
    "reduce_min": (jnp.min, (X,)),
    "reduce_and": (jnp.all, (BITS,)),
    "reduce_or": (jnp.any, (BITS,)),
    "reduce_xor": (lambda x: lax.reduce(x, np.int32(0), lax.bitwise_xor, (0,)), (INTS,)),
    "reduce": (lambda x: lax.reduce(x, 1.0, lambda a, b: a * b * 1.0, (0,)), (X,)),
    "argmax": (jnp.argmax, (X,)),
    "argmin": (jnp.argmin, (X,)),
    **{
        name: (lambda x, name=name: getattr(lax, name)(x, 1), (X,))
        for name in ("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp")
    },
    "select_and_gather_add": (lambda x: jax.jvp(_max_pool, (x,), (x,))[1], (IMAGE,)),
    "select_and_scatter_add": (jax.grad(lambda x: _max_pool(x).sum()), (IMAGE,)),
    # Indices
    "gather": (lambda x, at: jnp.take(x, at, 0), (X, AT)),
    "dynamic_slice": (lambda x, at: lax.dynamic_slice(x, (at, 0), (1, 2)), (X, AT)),
    "dynamic_update_slice": (
        lambda x, at: lax.dynamic_update_slice(x, x[:1], (at, 0)),
        (X, AT),
    ),
    "scatter": (lambda x, at: x.at[at].set(1.0), (X, AT)),
    "scatter-add": (lambda x, at: x.at[at].add(1.0), (X, AT)),
    "scatter-sub": (lambda x, at: x.at[at].subtract(1.0), (X, AT)),
    "scatter-mul": (lambda x, at: x.at[at].multiply(2.0), (X, AT)),
    "scatter-min": (lambda x, at: x.at[at].min(0.0), (X, AT)),
    "scatter-max": (lambda x, at: x.at[at].max(0.0), (X, AT)),
    "sort": (jnp.sort, (X,)),
    "top_k": (lambda x: lax.top_k(x, 2), (X,)),
    "approx_top_k": (lambda x: lax.approx_max_k(x, 2), (X,)),
    # Functions of functions
    "cond": (lambda x, at: lax.cond(at > 0, jnp.sin, jnp.cos, x), (X, AT)),
    "scan": (lambda x: lax.scan(lambda c, row: (c + row, c), x[0], x), (X,)),
    "while": (
        lambda x, at: lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, s[1] * 2), (at, x)),
        (X, AT),
    ),
    "tosa_operator": (lambda x: ops.abs(x), (X,)),
}  # fmt: skip
# The chapter of calls has a test for each in rules/test_calls.py.
WANTED = sorted(RULES.keys() - CHAPTERS[0].RULES.keys())


@pytest.mark.parametrize("name", WANTED)
def test_each(name):
    fn, args = EXAMPLES[name]
    if name not in {"tosa_operator"} and name not in primitives_of(jax.make_jaxpr(fn)(*args)):
        assert name == "one_minus_square", f"the function does not have {name}"
        pytest.skip("JAX has had it since 0.12")
    graph = tosajax.export(fn, *args, check=False)
    assert graph.nodes


def test_they_are_many():
    assert len(WANTED) > 100


def test_each_is_in_one_chapter():
    counts = Counter(name for chapter in CHAPTERS for name in chapter.RULES)
    assert [name for name, count in counts.items() if count > 1] == []
    assert HINTS.keys().isdisjoint(RULES)


def test_the_page_has_them_all():
    page = primitives_table.PAGE.read_text()
    assert primitives_table.page_with(primitives_table.table()) == page, (
        "python tests/support/primitives_table.py writes it"
    )
