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


def run(form: Callable[[QTensor, QTensor], QTensor], x: Any, w: Any) -> QTensor:
    """The form of X and W with these shadows."""
    return jax.jit(form)(QTensor(X, x), QTensor(W, w))


@jax.jit(static_argnums=0)
def forward(form: Any, reals: Any, along: Any) -> Any:
    """The loss of a form, and its derivative."""
    return jax.jvp(of_shadows(form), reals, along)


@jax.jit(static_argnums=0)
def backward(form: Any, reals: Any) -> Any:
    return jax.grad(of_shadows(form), argnums=(0, 1))(*reals)


@jax.jit(static_argnums=0)
def second(form: Any, reals: Any, along: Any) -> Any:
    """The product of all second derivatives and a direction."""
    gradient = jax.grad(of_shadows(form), argnums=(0, 1))
    return jax.jvp(gradient, reals, along)[1]


def close(found: Any, want: Any) -> None:
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


SHADOWS = X.astype(jnp.float32), W.astype(jnp.float32)
ALONG = jnp.array([1.0, -2.0, 0.5]), jnp.array([0.3, 1.0, -1.0])
OTHER = jnp.array([-1.0, 0.7, 2.0]), jnp.array([1.0, -0.2, 0.4])


def test_the_steps_saturate_somewhere_only():
    one = run(step, *SHADOWS)
    np.testing.assert_array_equal(one.q, [73, -87, 1])
    slopes, _ = backward(plain, SHADOWS)
    assert np.count_nonzero(slopes) not in (0, 3)


def test_values_are_those_without_jit():
    x, w = QTensor.of(X), QTensor.of(W)
    for form in (step, scanned):
        found, want = form(x, w), run(form, *SHADOWS)
        np.testing.assert_array_equal(found.q, want.q)
        np.testing.assert_allclose(found.shadow, want.shadow, rtol=1e-6)


@pytest.mark.parametrize("name", FORMS)
def test_values_and_forward_mode(name):
    form = FORMS[name]
    compiled, want = jax.jit(form), run(plain, *SHADOWS)
    for scale in (1, -1000):
        found = compiled(*(QTensor(q, scale * s) for q, s in zip((X, W), SHADOWS, strict=True)))
        assert found.dtype == jnp.int8
        np.testing.assert_array_equal(found.q, want.q)
        np.testing.assert_allclose(found.shadow, want.shadow, rtol=1e-6)
    close(*(forward(f, SHADOWS, ALONG) for f in (form, plain)))


@pytest.mark.parametrize("name", [name for name in FORMS if name != "while"])
def test_reverse_mode_and_second_derivatives(name):
    form = FORMS[name]
    close(*(backward(f, SHADOWS) for f in (form, plain)))

    def inner(a: Any, b: Any) -> float:
        return sum(float(np.vdot(x, y)) for x, y in zip(a, b, strict=True))

    along, other = second(form, SHADOWS, ALONG), second(form, SHADOWS, OTHER)
    ahead, back = inner(OTHER, along), inner(ALONG, other)
    assert ahead != 0
    np.testing.assert_allclose(ahead, back, rtol=1e-5)
    close(along, second(plain, SHADOWS, ALONG))


def test_loops_of_unknown_length_have_no_reverse_mode():
    with pytest.raises(ValueError, match="Reverse-mode differentiation"):
        backward(repeated, SHADOWS)


def test_export():
    x, w = QTensor.of(X), QTensor.of(W)
    exported = jax.export.export(jax.jit(plain))(x, w)
    again: Any = jax.export.deserialize(exported.serialize(vjp_order=1))
    found, want = again.call(x, w), run(plain, *SHADOWS)
    np.testing.assert_array_equal(found.q, want.q)
    np.testing.assert_array_equal(found.shadow, want.shadow)
    close(*(backward(f, SHADOWS) for f in (again.call, plain)))
