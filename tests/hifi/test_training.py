"""Training through fixed point: the integers of the layers, the gradients of real numbers."""

from __future__ import annotations

import functools
import inspect
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hifi.recurrent import EACH, GRU, LSTM, PRECISIONS, TYPES

from tosajax.grad.qtensor import QTensor
from tosajax.hifi.errors import NNLibConfigError, NNLibParamError
from tosajax.hifi.kernels import fully_connected
from tosajax.hifi.kernels.activations import FIXED
from tosajax.hifi.layers import GRUConfig, LSTMConfig, Precision
from tosajax.hifi.training import (
    lstm_scan_trainable,
    quantize,
    quantize_weights,
    real,
    with_gradient_of,
)

pytestmark = pytest.mark.usefixtures("quick")

IN, OUT, STEPS = 8, 4, 4
# float32 has none of the 128 integers below 2**31.
LARGEST = {np.int8: 127, np.int16: 32767, np.int32: 2**31 - 128}


@pytest.fixture
def rng():
    return np.random.default_rng(59)


def integers_of(x, fraction, dtype):
    """A Q format as it is defined: to the nearest, ties to even, saturated."""
    scaled = np.rint(np.asarray(x, np.float64) * 2.0**fraction)
    return np.clip(scaled, np.iinfo(dtype).min, LARGEST[dtype]).astype(np.int64)


def is_within(x, fraction, dtype):
    """Where a number does not saturate, before it is rounded."""
    scaled = np.asarray(x, np.float64) * 2.0**fraction
    return (scaled >= np.iinfo(dtype).min) & (scaled <= LARGEST[dtype])


# Q formats.


@pytest.mark.parametrize("dtype", LARGEST)
@pytest.mark.parametrize("fraction", [0, 7, 15, 25])
def test_quantize(dtype, fraction, rng):
    """Values, with ties and both ends; gradients, which end where the values do."""
    low, high = int(np.iinfo(dtype).min), LARGEST[dtype]
    ties = np.arange(-6, 7) / 2
    ends = np.array([low - 1, low - 0.5, low, low + 1, high - 1, high, high + 0.5, high + 1])
    drawn = rng.uniform(2 * low, 2 * high, 50)
    scaled = np.concatenate([ties, ends, drawn, [np.inf, -np.inf]]).astype(np.float32)
    x = scaled * np.float32(2.0**-fraction)
    found = quantize(x, fraction, dtype)
    assert found.q.dtype == dtype
    np.testing.assert_array_equal(found.q, integers_of(x, fraction, dtype))
    slopes = jax.vmap(jax.grad(lambda v: quantize(v, fraction, dtype).shadow))(jnp.asarray(x))
    np.testing.assert_array_equal(slopes, 2.0**fraction * is_within(x, fraction, dtype))
    through = jax.vmap(jax.grad(lambda v: real(quantize(v, fraction, dtype), fraction)))(x)
    np.testing.assert_array_equal(through, is_within(x, fraction, dtype))


def test_quantize_leaves_integers_and_qtensors_alone():
    given = quantize(np.array([0.5, -3.0]), 7, np.int8)
    np.testing.assert_array_equal(given.q, [64, -128])
    assert quantize(given, 15, np.int16) is given
    found = quantize(np.array([5, -7], np.int16), 3, np.int16)
    assert found.q.dtype == np.int16
    np.testing.assert_array_equal(found.q, [5, -7])
    np.testing.assert_array_equal(found.shadow, [5, -7])
    half = quantize(jnp.asarray([1.5], jnp.bfloat16), 2, np.int8)
    assert (half.q.item(), half.shadow.dtype) == (6, np.float32)


@pytest.mark.parametrize("fraction", [0, 7, 25])
def test_real(fraction):
    q = np.array([-128, -1, 0, 1, 127], np.int8)
    found = real(QTensor(jnp.asarray(q), jnp.zeros(5)), fraction)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, q * 2.0**-fraction)
    slope = jax.grad(lambda shadow: real(QTensor(jnp.int8(3), shadow), fraction))(jnp.float32(9))
    assert slope == 2.0**-fraction


@pytest.mark.parametrize("dtype", LARGEST)
@pytest.mark.parametrize("fraction", [0, 12])
def test_with_gradient_of(dtype, fraction):
    """The value is that of the integers, wherever the other one is; the gradient is the other's."""
    low, high, unit = int(np.iinfo(dtype).min), LARGEST[dtype], 2.0**-fraction
    exact = jnp.asarray([low, low, low, -1, 0, 7, high, high, high], dtype)
    value = unit * np.array([2.0 * low, low, low + 1, 5, 0, 7.25, high - 1, high, 2.0 * high])
    value = value.astype(np.float32)

    def run(scale):
        return with_gradient_of(exact, fraction, scale * value)

    found, slope = jax.jvp(run, [jnp.float32(1)], [jnp.float32(1)])
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, np.asarray(exact, np.float32) * np.float32(unit))
    np.testing.assert_array_equal(slope, value * np.array([0, 1, 1, 1, 1, 1, 1, 1, 0]))


def test_a_kernel_with_gradients(rng):
    """The module's own example: a fully connected layer."""
    w, x = rng.normal(0, 0.3, (4, 8)).astype(np.float32), rng.normal(0, 1, 8).astype(np.float32)
    b = rng.normal(0, 0.3, 4).astype(np.float32)
    w[0], x[:3] = 1.5, 9

    def run(w, x, b):
        qw, qx, qb = quantize(w, 7, np.int8), quantize(x, 12, np.int16), quantize(b, 15, np.int16)
        shifts: dict[str, Any] = {"acc_shift": -7, "bias_shift": 4}
        y = fully_connected(qw.q, qx.q, qb.q, precision="8x16_16", **shifts)
        return with_gradient_of(y, 12, real(qw, 7) @ real(qx, 12) + real(qb, 15))

    y, pull = jax.vjp(jax.jit(run), w, x, b)
    slopes = pull(jnp.ones(4))
    operands = (w, 7, np.int8), (x, 12, np.int16), (b, 15, np.int16)
    qw, qx, qb = (integers_of(*operand) for operand in operands)
    total = qw @ qx + qb * 16
    rounded = np.sign(total) * ((np.abs(total) + 64) // 128)
    np.testing.assert_array_equal(y, np.clip(rounded, -(2**15), 2**15 - 1) / 4096)
    passes = is_within(total / 2**19, 12, np.int16)
    assert not passes.all()
    of_w, of_x, of_b = (is_within(*operand) for operand in operands)
    np.testing.assert_allclose(slopes[0], of_w * np.outer(passes, qx / 4096), rtol=1e-6)
    np.testing.assert_allclose(slopes[1], of_x * (passes @ (qw / 128)), rtol=1e-6)
    np.testing.assert_allclose(slopes[2], of_b * passes, rtol=1e-6)


# Layers.


def formats_of(config):
    """Fraction bits and type of each element of a state."""
    h, c = (config.io_Qformat, np.int16), (25, np.int32)
    return (h,) if isinstance(config, GRUConfig) else (h, c)


def config_of(layer, precision, io=12, coeff=None):
    bits = np.iinfo(TYPES[precision]).bits
    return layer.config(
        in_feats=IN,
        out_feats=OUT,
        precision=PRECISIONS[precision],
        coeff_Qformat=bits - 1 if coeff is None else coeff,
        io_Qformat=io,
    )


def draw(rng, layer, size=0.9, steps=STEPS):
    """Real weights, a state and inputs."""
    weights = {
        name: rng.uniform(-size, size, shape).astype(np.float32)
        for name, shape in layer.shapes(IN, OUT).items()
    }
    state = layer.state(*rng.normal(0, 0.5, (len(layer.state._fields), OUT)).astype(np.float32))
    return layer.weights(**weights), state, rng.normal(0, 1, (steps, IN)).astype(np.float32)


def integer_operands(layer, config, weights, state, xs):
    """Real numbers as the layer of integers takes them, by the definition of the formats."""
    kind = config.weight_type
    quantized = {
        name: integers_of(w, 15, np.int16).astype(np.int16)
        if name.startswith("b_")
        else integers_of(w, config.coeff_Qformat, kind).astype(kind)
        for name, w in weights._asdict().items()
    }
    start = (
        integers_of(part, *form).astype(form[1])
        for part, form in zip(state, formats_of(config), strict=True)
    )
    inputs = integers_of(xs, config.io_Qformat, np.int16).astype(np.int16)
    return layer.weights(**quantized), layer.state(*start), inputs


COARSE = FIXED._replace(tanh_scale=FIXED.tanh_scale // 2)
VALUES = [
    (GRU, "16x16", {}),
    (GRU, "8x16", {"update": "guide", "activation": COARSE}),
    (LSTM, "16x16", {}),
    (LSTM, "8x16", {"activation": COARSE}),
]


@pytest.mark.parametrize(("layer", "precision", "options"), VALUES)
def test_values_are_those_of_the_integers(layer, precision, options, rng):
    config = config_of(layer, precision)
    cases = [draw(rng, layer, size, steps=12) for size in (0.2, 0.9, 3)]
    cases[2][2][:] *= 20  # Beyond Q12, as some of its weights are beyond theirs.
    cases[0][1].prev_h[:2] = -9, 9
    integers = [integer_operands(layer, config, *case) for case in cases]
    run = jax.jit(jax.vmap(functools.partial(layer.trainable, config, **options)))
    exact = jax.jit(jax.vmap(functools.partial(layer.scan, config, **options)))
    together = [jax.tree.map(lambda *x: np.stack(x), *given) for given in (cases, integers)]
    state, ys = run(*together[0])
    wanted_state, wanted = exact(*together[1])
    assert ys.dtype == np.float32
    np.testing.assert_array_equal(ys * np.float32(2.0**12), wanted)
    for found, integer in zip(state, wanted_state, strict=True):
        assert isinstance(found, QTensor)
        assert found.dtype == integer.dtype
        np.testing.assert_array_equal(found.q, integer)
        np.testing.assert_allclose(found.shadow, integer, rtol=1e-7)
    weights = cases[2][0]
    quantized = quantize_weights(config, weights)
    assert type(quantized) is layer.weights
    for name, found, integer in zip(weights._fields, quantized, integers[2][0], strict=True):
        assert found.dtype == integer.dtype, name
        np.testing.assert_array_equal(found, integer, name)


@EACH
def test_defaults_are_those_of_the_layers(layer):
    trainable, exact = (
        inspect.signature(function).parameters for function in (layer.trainable, layer.scan)
    )
    assert {k: p.default for k, p in trainable.items()} == {k: p.default for k, p in exact.items()}


# Gradients: by float64 and finite differences, of each step at the integers that it starts from.


def real_states(layer, v, now, cell_passes=1, *, exact, update):
    """The elements of the next state, where those before it and all operands are `v`.

    The output of an LSTM is of the exact cell, which moves as the cell of `v` does from `now`.
    """
    if layer is GRU:
        x, h = v["x"], v["prev_h"]
        z, r = (sigmoid(v[f"w_{n}"] @ x + v[f"u_{n}"] @ h + v[f"b_{n}"]) for n in "zr")
        g = np.tanh(v["w_h"] @ x + v["u_h"] @ (r * h) + v["b_h"])
        return [z * h + (1 - z) * g if update == "library" else z * g + (1 - z) * h]
    gate = {n: v[f"w_x{n}"] @ v["x"] + v[f"w_h{n}"] @ v["prev_h"] + v[f"b_{n}"] for n in "fioc"}
    c = sigmoid(gate["f"]) * v["prev_c"] + sigmoid(gate["i"]) * np.tanh(gate["c"])
    if v is now:
        return [sigmoid(gate["o"]) * np.tanh(exact[1]), c]
    _, from_c = real_states(layer, now, now, exact=exact, update=update)
    moved = exact[1] + cell_passes * (c - from_c)
    return [sigmoid(gate["o"]) * np.tanh(moved), c]


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def slopes_of(function, given):
    """The derivatives of a scalar function of arrays, by central differences."""
    slopes = {name: np.zeros_like(value) for name, value in given.items()}
    for name, value in given.items():
        for at in np.ndindex(value.shape):
            ends = []
            for sign in (1, -1):
                moved = value.copy()
                moved[at] += sign * 1e-5
                ends.append(function({**given, name: moved}))
            slopes[name][at] = (ends[0] - ends[1]) / 2e-5
    return slopes


def straight_through(layer, config, operands, states, given, last, update="library"):
    """The gradients of sum(given * outputs) + sum(last * state), by the chain rule.

    Args:
      layer: GRU or LSTM.
      config: of the layer.
      operands: integers: weights, state and inputs.
      states: integers after each step, of each element.
      given: [steps, out_feats].
      last: of each element of the last state, in real numbers.
      update: of a GRU.
    """
    weights, start, xs = operands
    io, coeff = 2.0**-config.io_Qformat, 2.0**-config.coeff_Qformat
    units = [2.0**-fraction for fraction, _ in formats_of(config)]
    w = {n: v * (2.0**-15 if n[:2] == "b_" else coeff) for n, v in weights._asdict().items()}
    before = [np.stack([s, *after[:-1]]) for s, after in zip(start, states, strict=True)]
    gradients = {name: np.zeros_like(value) for name, value in w.items()}
    gradients["xs"], saturated = np.zeros(xs.shape), 0
    upstream = [np.array(part, np.float64) for part in last]
    for step in reversed(range(len(xs))):
        upstream[0] = upstream[0] + given[step]
        at = tuple(part[step] * unit for part, unit in zip(before, units, strict=True))
        now = dict(zip(layer.state._fields, at, strict=True)) | {"x": xs[step] * io} | w
        exact = tuple(part[step] * unit for part, unit in zip(states, units, strict=True))
        real_step = functools.partial(real_states, layer, exact=exact, update=update)
        here = real_step(now, now)
        passes = [is_within(x, *form) for x, form in zip(here, formats_of(config), strict=True)]
        saturated += sum((~p).sum() for p in passes)

        def scalar(v, real_step=real_step, now=now, upstream=tuple(upstream), passes=passes):
            parts = zip(upstream, passes, real_step(v, now, passes[-1]), strict=True)
            return sum(factor @ (p * value) for factor, p, value in parts)

        slopes = slopes_of(scalar, now)
        for name in w:
            gradients[name] += slopes[name]
        gradients["xs"][step] = slopes["x"]
        upstream = [slopes[name] for name in layer.state._fields]
    return gradients | dict(zip(layer.state._fields, upstream, strict=True)), saturated


def gradients_of(layer, config, options, given, last, parts):
    """A compiled function of real operands: gradients, and outputs, over a sequence in parts."""
    scan = functools.partial(layer.trainable, config, **options)

    def loss(weights, state, xs):
        total, outputs = jnp.float32(0), []
        for x, factors in zip(jnp.split(xs, parts), jnp.split(given, parts), strict=True):
            state, ys = scan(weights, state, x)
            total += jnp.sum(ys * factors)
            outputs.append(ys)
        for part, factor, (fraction, _) in zip(state, last, formats_of(config), strict=True):
            total += jnp.sum(real(part, fraction) * factor)
        return total, jnp.concatenate(outputs)

    return jax.jit(jax.grad(loss, (0, 1, 2), has_aux=True))


def states_after(layer, config, integers, options):
    """The integers of each element of the state after each step."""
    step = jax.jit(functools.partial(layer.scan, config, **options))
    weights, state, xs = integers
    found = []
    for x in xs:
        state, _ = step(weights, state, x[None])
        found.append(state)
    return [np.stack(part) for part in zip(*found, strict=True)]


def ordinary(layer, rng):
    """Real operands of which nothing saturates."""
    return draw(rng, layer)


def at_the_ends(layer, rng):
    """Operands of Q15 that saturate: half of the weights, inputs, states, an output and a cell."""
    weights, state, xs = draw(rng, layer, 3)
    for name, w in weights._asdict().items():
        w[0], w[-1] = -0.99 if name in ("w_z", "u_z", "b_z") else 0.99, 1.5
    xs[0], xs[1:] = 0.99, 0.6 * xs[1:]
    state.prev_h[:] = 0.9999, -2, 2, 0.99
    if layer is LSTM:
        state.prev_c[:] = 63.9999, 70, -0.3, 12
    return weights, state, xs


GRADIENTS = [
    (GRU, "16x16", 12, "library", ordinary),
    (GRU, "8x16", 15, "guide", at_the_ends),
    pytest.param(GRU, "16x16", 15, "library", at_the_ends, marks=pytest.mark.slow),
    (LSTM, "16x16", 12, "library", ordinary),
    (LSTM, "16x16", 15, "library", at_the_ends),
]


@pytest.mark.parametrize(("layer", "precision", "io", "update", "operands_of"), GRADIENTS)
def test_gradients_are_those_of_the_float_twin_at_the_integers(
    layer, precision, io, update, operands_of, rng
):
    """Of each step at the integers before it, and 0 where anything saturates."""
    config = config_of(layer, precision, io)
    options: dict[str, Any] = {"activation": "ideal"}
    options |= {"update": update} if layer is GRU else {}
    operands = weights, state, xs = operands_of(layer, rng)
    given, last = rng.normal(0, 1, (STEPS, OUT)), rng.normal(0, 1, (len(state), OUT))
    # States that are returned can be passed on: two halves are the whole.
    parts = 2 if operands_of is ordinary else 1
    factors = given.astype("f4"), last.astype("f4")
    slopes, ys = gradients_of(layer, config, options, *factors, parts)(*operands)
    integers = integer_operands(layer, config, *operands)
    after = states_after(layer, config, integers, options)
    np.testing.assert_array_equal(ys * np.float32(2.0**io), after[0])
    wanted, saturated = straight_through(layer, config, integers, after, given, last, update)
    found = slopes[0]._asdict() | slopes[1]._asdict() | {"xs": slopes[2]}
    fields = weights._asdict() | state._asdict() | {"xs": xs}
    forms = dict(zip(state._fields, formats_of(config), strict=True)) | {"xs": (io, np.int16)}
    for name, slope in found.items():
        form = (15, np.int16) if name[:2] == "b_" else (config.coeff_Qformat, config.weight_type)
        passes = is_within(fields[name], *forms.get(name, form))
        assert passes.all() == (operands_of is ordinary), name
        scale = np.abs(wanted[name]).max()
        np.testing.assert_allclose(slope, wanted[name] * passes, rtol=0, atol=3e-5 * scale)
        np.testing.assert_array_equal(np.asarray(slope)[~passes], 0, name)
    assert (saturated > 0) == (operands_of is at_the_ends)


@pytest.mark.parametrize("layer", [GRU, pytest.param(LSTM, marks=pytest.mark.slow)])
def test_gradients_come_closer_to_those_of_floats_by_the_bit(layer, rng):
    """Four bits more for coefficients, inputs and outputs: about a 16th of the error."""
    weights, state, xs = draw(rng, layer, steps=24)
    given = rng.normal(0, 1, (24, OUT)).astype("f4")

    def gradients(scan):
        loss = jax.grad(lambda weights, xs: jnp.sum(scan(weights, state, xs)[1] * given), (0, 1))
        slopes = jax.tree.leaves(jax.jit(loss)(weights, xs))
        return np.concatenate([np.ravel(slope) for slope in slopes])

    exact, errors = gradients(layer.scan_float), []
    for bits in (6, 10):
        config = config_of(layer, "16x16", io=bits, coeff=bits)
        found = gradients(functools.partial(layer.trainable, config, activation="ideal"))
        errors.append(np.linalg.norm(found - exact) / np.linalg.norm(exact))
    assert errors[0] < 0.1
    assert 8 < errors[0] / errors[1] < 32


# States, and transforms.


@EACH
def test_states_of_integers_have_no_gradient_but_a_value(layer, rng):
    config = config_of(layer, "16x16")
    weights, state, xs = draw(rng, layer)
    _, start, _ = integer_operands(layer, config, weights, state, xs)
    run = jax.jit(functools.partial(layer.trainable, config, activation="ideal"))
    _, from_real = run(weights, state, xs)
    _, from_integers = run(weights, start, xs)
    np.testing.assert_array_equal(from_integers, from_real)
    _, from_nothing = run(weights, layer.init(config), xs)
    _, from_zeros = run(weights, jax.tree.map(np.zeros_like, state), xs)
    np.testing.assert_array_equal(from_nothing, from_zeros)


@pytest.mark.parametrize("layer", [GRU, pytest.param(LSTM, marks=pytest.mark.slow)])
def test_transforms(layer, rng):
    """The gradient of a batch is the sum of those of its examples, also under x64."""
    config = config_of(layer, "8x16")
    weights, _, _ = draw(rng, layer)
    cases = [draw(rng, layer)[1:] for _ in range(3)]
    scan = functools.partial(layer.trainable, config, activation="ideal")

    def loss(weights, state, xs):
        return jnp.mean(scan(weights, state, xs)[1] ** 2)

    def batch(weights, states, xs):
        return jnp.sum(jax.vmap(loss, (None, 0, 0))(weights, states, xs))

    def stacked(parts):
        return jax.tree.map(lambda *x: np.stack(x), *parts)

    each = jax.jit(jax.grad(loss, (0, 1, 2)))
    alone = stacked([each(weights, *case) for case in cases])
    wanted = jax.tree.map(lambda x: x.sum(0), alone[0]), *alone[1:]
    with jax.enable_x64(True):
        found = jax.jit(jax.grad(batch, (0, 1, 2)))(weights, *stacked(cases))
    for slope, known in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        assert slope.dtype == np.float32
        np.testing.assert_allclose(slope, known, rtol=0, atol=1e-6 * np.abs(known).max())
        assert np.abs(known).max() > 0


# Errors.


@EACH
def test_errors_are_those_of_the_layers(layer, rng):
    weights, state, xs = draw(rng, layer)
    config = config_of(layer, "16x16")
    for wrong in ({"in_feats": 6}, {"precision": Precision.P8bx8b}, {"io_Qformat": 16}):
        with pytest.raises(NNLibConfigError, match=f"^{layer.name}: {next(iter(wrong))} is"):
            layer.trainable(layer.config(**wrong), weights, state, xs)
    with pytest.raises(NNLibParamError, match="xs is of shape"):
        layer.trainable(config, weights, state, xs[:, :4])
    with pytest.raises(NNLibParamError, match="prev_h is of shape"):
        layer.trainable(config, weights, state._replace(prev_h=np.zeros(8, "f4")), xs)
    first = weights._fields[0]
    with pytest.raises(NNLibParamError, match=f"{first} is of shape"):
        layer.trainable(config, weights._replace(**{first: np.zeros((4, 4), "f4")}), state, xs)
    with pytest.raises(NNLibParamError, match="activation is 'exact', expected one of"):
        layer.trainable(config, weights, state, xs, activation="exact")
    if layer is GRU:
        with pytest.raises(NNLibParamError, match="update is 'silicon', expected one of"):
            layer.trainable(config, weights, state, xs, update="silicon")


@pytest.mark.filterwarnings("ignore:cell_Qformat")
def test_cells_of_other_formats_cannot_be_trained(rng):
    weights, state, xs = draw(rng, LSTM)
    config = LSTMConfig(in_feats=IN, out_feats=OUT, cell_Qformat=24)
    with pytest.raises(ValueError, match=r"^cell_Qformat is 24, expected 25$"):
        lstm_scan_trainable(config, weights, state, xs)
    # Errors of the library come first.
    with pytest.raises(NNLibConfigError, match="cell_Qformat is 26"):
        lstm_scan_trainable(LSTMConfig(cell_Qformat=26), weights, state, xs)
