"""Integers of parameters: the same in every program, and their real values."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tosajax.dtypes import DType
from tosajax.grad import QTensor, tie
from tosajax.quant import QParams, dequantize, fake_quant, multiplier_and_shift, quantize
from tosajax.quant.model.recipes import Bias, Scale
from tosajax.quant.storages import zero_point_integer

SCALES = 200_000


def qparams(scale, zero_point=0.0, bits=8, **static) -> QParams:
    scale, zero_point, bits = (jnp.asarray(v, jnp.float32) for v in (scale, zero_point, bits))
    return QParams(scale, zero_point, bits, **static)


def random_scales(seed: int) -> jax.Array:
    rng = np.random.default_rng(seed)
    return jnp.asarray(np.exp(rng.uniform(-9, 2, SCALES)).astype(np.float32))


def differences(a, b) -> int:
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return sum(int(np.count_nonzero(np.asarray(x) != np.asarray(y))) for x, y in pairs)


# Programs that make integers of scales in several steps, which a compiler might reorder.


def rescales(x, w, y):
    params = {"qparams": {"x": qparams(x), "w": qparams(w), "y": qparams(y)}}
    scale = Scale(("x", "w"), "y")(params)
    # 16 bits express less than 2**13.
    narrow = multiplier_and_shift(jnp.minimum(scale, 4096.0), scale32=False)
    return [multiplier_and_shift(scale)[0].q, narrow[0].q]


def sums(x, w, y):
    params = {"qparams": {"x": qparams(x), "w": qparams(w), "y": qparams(y)}}
    wide = Scale(("x",), ("x", "w"), 2.0**19)(params)
    return multiplier_and_shift(wide)[0].q, multiplier_and_shift(Scale((("x", "w"),), "y")(params))


def calibrated(x, w, y):
    scale = (y + x) / 255.0
    params = {"qparams": {"x": qparams(scale), "w": qparams(w / 127.0)}, "values": {"b": y}}
    return quantize(y, qparams(scale, 3.0)).q, Bias("b", Scale(("x", "w")))(params).q


@pytest.mark.parametrize("program", [rescales, sums, calibrated])
def test_integers_do_not_depend_on_the_program(program):
    scales = [random_scales(seed) for seed in range(3)]
    eager = program(*scales)
    assert differences(eager, jax.jit(program)(*scales)) == 0
    assert differences(eager, jax.jit(jax.checkpoint(program))(*scales)) == 0
    loop = jax.jit(lambda *s: jax.lax.scan(lambda c, _: (c, program(*s)), 0, None, length=1)[1])
    assert differences(eager, jax.tree.map(lambda x: x[0], loop(*scales))) == 0


def test_integers_are_those_of_the_scales_that_a_step_returns():
    """A step may be compiled in any way, as long as it uses the scales that it gives back."""

    def step(x, w, y):
        scales = x - 1e-3 * w * x, w * (1 - 1e-3), y + 0.01 * x
        return scales, rescales(*scales)

    scales, integers = jax.jit(step)(*(random_scales(seed) for seed in range(3)))
    assert differences(integers, rescales(*scales)) == 0


@pytest.mark.parametrize("scale", [2.0**-62, 2.0**-33, 1e-8, 0.1, 0.75, 1.0, 3.0, 2.0**28])
def test_a_multiplier_of_31_bits_is_exact(scale):
    scale = np.float32(scale)
    multiplier, shift = multiplier_and_shift(jnp.asarray(scale).reshape(1))
    assert multiplier.q.dtype == jnp.int32
    assert shift.dtype == jnp.int8
    assert 2 <= int(shift[0]) <= 62
    if scale >= 2.0**-32:
        assert int(multiplier.q[0]) * 2.0 ** -int(shift[0]) == float(scale)
    assert abs(int(multiplier.q[0]) * 2.0 ** -int(shift[0]) - float(scale)) < 2.0**-62
    assert float(multiplier.shadow[0]) == float(scale)


@pytest.mark.parametrize("scale32", [True, False])
def test_scales_that_no_multiplier_expresses_are_refused(scale32):
    most = 29 if scale32 else 13
    ends = np.asarray([2.0**most * (1 - 2.0**-15), 2.0**-62], np.float32)
    multiplier, shift = multiplier_and_shift(jnp.asarray(ends), scale32=scale32)
    assert (np.asarray(multiplier.q) > 0).all()
    assert shift.tolist() == [2, 62]
    for wrong in (np.nan, np.inf, -np.inf, -1.0, 0.0, 2.0**most, 2.0**-63, 1e-45):
        with pytest.raises(ValueError, match=rf"a scale at \(1,\) is .*2\*\*{most}\)"):
            multiplier_and_shift(jnp.asarray([1, wrong], jnp.float32), scale32=scale32)
        with pytest.raises(ValueError, match="a scale is"):
            multiplier_and_shift(jnp.float32(wrong), scale32=scale32)


def test_a_multiplier_of_15_bits_is_rounded():
    scales = np.concatenate(
        [np.asarray(random_scales(0)[:1000]), np.asarray([1 - 2**-24, 1, 0.5], np.float32)]
    )
    multiplier, shift = multiplier_and_shift(jnp.asarray(scales), scale32=False)
    found = np.asarray(multiplier.q).astype(np.float64) * 2.0 ** -np.asarray(shift, np.float64)
    assert multiplier.q.dtype == jnp.int16
    assert (np.asarray(multiplier.q) >= 2**14).all()
    np.testing.assert_array_less(abs(found / scales - 1), 2.0**-15 + 1e-12)


def test_quantize_saturates_and_rounds_ties_to_even():
    x = jnp.asarray([-100, -2.25, -0.25, 0, 0.25, 0.75, 1.25, 100], jnp.float32)
    q = quantize(x, qparams(0.5, 3, 4))
    np.testing.assert_array_equal(q.q, [-8, -2 + 1, 3, 3, 3, 5, 5, 7])
    assert q.q.dtype == jnp.int8
    np.testing.assert_array_equal(dequantize(q, qparams(0.5, 3, 4)), (np.asarray(q.q) - 3) * 0.5)


@pytest.mark.parametrize("bits", range(2, 9))
@pytest.mark.parametrize("narrow", [False, True])
def test_grid(bits, narrow):
    grid = qparams(1, bits=bits, narrow_range=narrow).grid
    assert float(grid.qmax) == 2 ** (bits - 1) - 1
    assert float(grid.qmin) == -(2 ** (bits - 1)) + narrow


def test_bits_beyond_those_of_a_type_are_its_own():
    """Bits that are trained may step out of the range; ties are rounded to even."""
    for bits, whole in [(-1, 2), (1.2, 2), (2.5, 2), (3.5, 4), (8.6, 8)]:
        assert float(qparams(1, bits=bits).grid.qmax) == 2 ** (whole - 1) - 1


def test_a_zero_point_is_an_integer_of_the_range():
    values = [-99.0, -8.6, -0.5, 0.5, 1.5, 2.5, 6.5, 7.6, 99.0]
    found = [int(zero_point_integer(qparams(1, value, 4)).q) for value in values]
    assert found == [-8, -8, 0, 0, 2, 2, 6, 7, 7]


def test_bits_are_data():
    def levels(bits):
        return quantize(jnp.linspace(-9, 9, 19, dtype=jnp.float32), qparams(1.0, bits=bits)).q

    found = jax.jit(jax.vmap(levels))(jnp.asarray([2.0, 3.4, 8.0], jnp.float32))
    assert [int(row.max()) for row in found] == [1, 3, 9]


def test_containers():
    wide = quantize(jnp.asarray([1e9, -1e9], jnp.float32), qparams(1, bits=16, dtype=DType.INT16))
    np.testing.assert_array_equal(wide.q, np.asarray([32767, -32768], np.int16))
    narrow = quantize(
        jnp.asarray([99, -99], jnp.float32), qparams(1, bits=4, dtype=DType.INT4, narrow_range=True)
    )
    np.testing.assert_array_equal(narrow.q, np.asarray([7, -7], np.int8))


def test_a_symmetric_tensor_has_no_zero_point():
    x = jnp.asarray([0.0, 1.0], jnp.float32)
    static = {"symmetric": True, "dtype": DType.INT16}
    np.testing.assert_array_equal(quantize(x, qparams(1, 77, 16, **static)).q, [0, 1])
    assert zero_point_integer(qparams(1, 77, 16, **static)).q == 0


def gradients(x, scale, zero_point, bits=4.0):
    def real(x, scale, zero_point, bits):
        return fake_quant(x, QParams(scale, zero_point, bits)).sum()

    arrays = (jnp.asarray(v, jnp.float32) for v in (x, scale, zero_point, bits))
    return jax.grad(real, argnums=(0, 1, 2, 3))(*arrays)


@pytest.mark.parametrize("x", [-9.0, -4.0, 0.0, 0.3, 0.74, 1.9, 2.0, 2.2, 40.0])
def test_gradients_are_those_of_lsq_plus(x):
    """round(v) - v inside and the end outside, by scale; 0 inside and -scale outside, by zp."""
    scale, zero_point = 0.5, 3.0
    by_x, by_scale, by_zero_point, _ = gradients(x, scale, zero_point)
    value = x / scale + zero_point
    inside = -8 <= value <= 7
    end = float(np.clip(np.rint(value), -8, 7)) - zero_point
    assert float(by_x) == inside
    np.testing.assert_allclose(by_scale, end - x / scale if inside else end, atol=1e-6)
    np.testing.assert_allclose(by_zero_point, 0.0 if inside else -scale, atol=1e-6)


def test_bits_move_the_ends():
    _, _, _, by_bits = gradients(40.0, 0.5, 0.0)
    np.testing.assert_allclose(by_bits, 0.5 * 8 * np.log(2), rtol=1e-6)
    assert float(gradients(1.0, 0.5, 0.0)[3]) == 0


def test_a_tie_is_the_integer():
    params = qparams(0.3, 1.0)
    q = quantize(jnp.asarray([0.1, 0.2], jnp.float32), params)
    other = dataclasses.replace(q, shadow=q.shadow + 5)
    np.testing.assert_array_equal(tie(q), tie(other))
    assert isinstance(q, QTensor)


def divisors() -> list[np.float32]:
    return [np.float32(v) for v in (0.1, 0.0123, 1 / 255, 3.3e-5)]


@pytest.mark.parametrize("scale", divisors())
@pytest.mark.parametrize("constant", [False, True])
def test_one_scale_for_all_elements_divides_exactly(scale, constant):
    """Near ties, where a reciprocal would give another integer."""
    rng = np.random.default_rng(0)
    near = (rng.integers(-120, 120, SCALES) + 0.5).astype(np.float32) * scale
    x = np.nextafter(near, rng.choice(np.asarray([-99, 99], np.float32), SCALES))
    wanted = np.clip(np.rint((x / scale).astype(np.float32)), -128, 127)
    if constant:
        found = jax.jit(lambda x: quantize(x, qparams(scale)).q)(x)
    else:
        found = jax.jit(lambda x, s: quantize(x, qparams(s)).q)(x, jnp.asarray(scale))
    np.testing.assert_array_equal(found, wanted)


def test_many_scales_over_one_divide_exactly():
    weights, over = np.asarray(random_scales(1)), np.float32(0.0371)

    def multipliers(w, y):
        params = {"qparams": {"w": qparams(w), "y": qparams(y)}}
        return Scale(("w",), "y")(params)

    found = jax.jit(multipliers)(jnp.asarray(weights), jnp.asarray(over))
    np.testing.assert_array_equal(found, (weights / over).astype(np.float32))
    biases = weights * np.float32(1e3)
    params = {"qparams": {"x": qparams(over)}, "values": {"b": jnp.asarray(biases)}}
    found = jax.jit(Bias("b", Scale(("x",))))(params).q
    np.testing.assert_array_equal(found, np.rint(biases / over).astype(np.int64))
