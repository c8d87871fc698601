"""QTensors pass through every transformation of JAX, with their gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tosajax.grad import QTensor, elementwise_binary, tie, type_conversion
from tosajax.spec.enums import RoundingMode

STEPS = 3
X, W = jnp.array([90, -70, 3], jnp.int8), jnp.array([12, 21, -19], jnp.int8)
# Of (x * w + 5) / 16: no step saturates but for the last element of the first.
MULTIPLIER, SHIFT = jnp.array([1 << 30], jnp.int32), jnp.array([34], jnp.int8)
ZEROS = [jnp.zeros(1, jnp.int32), jnp.array([5], jnp.int8)]


def step(x: QTensor, w: QTensor) -> QTensor:
    wide = elementwise_binary.mul(x, w, QTensor.of(jnp.zeros(1, jnp.int8)))
    return type_conversion.rescale(
        wide,
        *map(QTensor.of, (MULTIPLIER, SHIFT, *ZEROS)),
        scale32=True,
        rounding_mode=RoundingMode.SINGLE_ROUND,
        per_channel=False,
        input_unsigned=False,
        output_unsigned=False,
    )


def plain(x: QTensor, w: QTensor) -> QTensor:
    for _ in range(STEPS):
        x = step(x, w)
    return x


def scanned(x: QTensor, w: QTensor) -> QTensor:
    return lax.scan(lambda x, _: (step(x, w), None), x, length=STEPS)[0]


def scanned_over(x: QTensor, w: QTensor) -> QTensor:
    several = jax.tree.map(lambda leaf: jnp.stack([leaf] * STEPS), w)
    return lax.scan(lambda x, w: (step(x, w), x), x, several)[0]


def chosen(x: QTensor, w: QTensor) -> QTensor:
    return lax.cond(x.q[0] > 0, plain, lambda x, w: x, x, w)


def mapped(x: QTensor, w: QTensor) -> QTensor:
    return jax.vmap(plain)(x, w)


def mapped_over_one(x: QTensor, w: QTensor) -> QTensor:
    """Each element of x with all of w, of which the diagonal is taken."""
    all_pairs = jax.vmap(plain, in_axes=(0, None))(jax.tree.map(lambda leaf: leaf[:, None], x), w)
    return jax.tree.map(jnp.diagonal, all_pairs)


def repeated(x: QTensor, w: QTensor) -> QTensor:
    return lax.while_loop(
        lambda carry: carry[0] < STEPS, lambda carry: (carry[0] + 1, step(carry[1], w)), (0, x)
    )[1]


FORMS: dict[str, Callable[[QTensor, QTensor], QTensor]] = {
    "jit": jax.jit(plain),
    "checkpoint": jax.checkpoint(plain),
    "scan": scanned,
    "scan over": scanned_over,
    "cond": chosen,
    "vmap": mapped,
    "vmap over one": mapped_over_one,
    "scan of checkpoint": jax.checkpoint(scanned),
    "while": repeated,
}


def of_shadows(form: Callable[[QTensor, QTensor], QTensor]) -> Callable[..., jax.Array]:
    """The sum of the squares of the results."""
    return lambda x, w: (tie(form(QTensor(X, x), QTensor(W, w))) ** 2).sum()


def close(found: Any, want: Any) -> None:
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


SHADOWS = X.astype(jnp.float32), W.astype(jnp.float32)
ALONG = jnp.array([1.0, -2.0, 0.5]), jnp.array([0.3, 1.0, -1.0])
OTHER = jnp.array([-1.0, 0.7, 2.0]), jnp.array([1.0, -0.2, 0.4])


def test_the_steps_saturate_somewhere_only():
    one = step(QTensor.of(X), QTensor.of(W))
    np.testing.assert_array_equal(one.q, [73, -87, 1])
    slopes = jax.grad(of_shadows(plain))(*SHADOWS)
    assert np.count_nonzero(slopes) not in (0, 3)


@pytest.mark.parametrize("name", FORMS)
def test_values_and_forward_mode(name):
    form = FORMS[name]
    want = plain(QTensor.of(X), QTensor.of(W))
    for scale in (1, -1000):
        found = form(*(QTensor(q, scale * s) for q, s in zip((X, W), SHADOWS, strict=True)))
        assert found.dtype == jnp.int8
        np.testing.assert_array_equal(found.q, want.q)
        np.testing.assert_allclose(found.shadow, want.shadow, rtol=1e-6)
    close(*(jax.jvp(of_shadows(f), SHADOWS, ALONG) for f in (form, plain)))


@pytest.mark.parametrize("name", [name for name in FORMS if name != "while"])
def test_reverse_mode_and_second_derivatives(name):
    loss = of_shadows(FORMS[name])
    close(*(jax.grad(of_shadows(f), argnums=(0, 1))(*SHADOWS) for f in (FORMS[name], plain)))

    def product(along: Any) -> Any:
        return jax.jvp(jax.grad(loss, argnums=(0, 1)), SHADOWS, along)[1]

    def inner(a: Any, b: Any) -> float:
        return sum(float(x @ y) for x, y in zip(a, b, strict=True))

    ahead, back = inner(OTHER, product(ALONG)), inner(ALONG, product(OTHER))
    assert ahead != 0
    np.testing.assert_allclose(ahead, back, rtol=1e-5)
    close(
        product(ALONG),
        jax.jvp(jax.grad(of_shadows(plain), argnums=(0, 1)), SHADOWS, ALONG)[1],
    )


def test_loops_of_unknown_length_have_no_reverse_mode():
    with pytest.raises(ValueError, match="Reverse-mode differentiation"):
        jax.grad(of_shadows(repeated))(*SHADOWS)


def test_export():
    x, w = QTensor.of(X), QTensor.of(W)
    exported = jax.export.export(jax.jit(plain))(x, w)
    again: Any = jax.export.deserialize(exported.serialize(vjp_order=1))
    found, want = again.call(x, w), plain(x, w)
    np.testing.assert_array_equal(found.q, want.q)
    np.testing.assert_array_equal(found.shadow, want.shadow)
    slopes = jax.grad(of_shadows(again.call), argnums=(0, 1))(*SHADOWS)
    close(slopes, jax.grad(of_shadows(plain), argnums=(0, 1))(*SHADOWS))
