"""The GRU layer: one step, and a sequence."""

from __future__ import annotations

import functools
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracle import hifi_recurrent as oracle
from oracle.hifi_oracle import draw

from tosajax.hifi.errors import ErrorCode, NNLibConfigError, NNLibParamError
from tosajax.hifi.kernels.activations import FIXED
from tosajax.hifi.layers import (
    GRUConfig,
    GRUState,
    GRUWeights,
    Precision,
    gru_init,
    gru_scan,
    gru_scan_float,
    gru_step,
    gru_step_float,
)

PRECISIONS = {"16x16": Precision.P16bx16b, "8x16": Precision.P8bx16b}
TYPES = {"16x16": np.int16, "8x16": np.int8}
# Fraction bits of coefficients and of inputs: the usual ones, the corners, and between them.
FORMATS = [(15, 12), (7, 12), (0, 0), (0, 15), (15, 0), (15, 15), (10, 5)]
SIZE = {"in_feats": 12, "out_feats": 8}
SMALL = GRUConfig(**SIZE)


@pytest.fixture
def rng():
    return np.random.default_rng(41)


def cases(rng, dtype, steps=4):
    """Weights, states and inputs, one beside the other: full range, small, and at the ends."""
    drawn = [oracle.draw_weights(rng, oracle.GRU, 12, 8, dtype) for _ in range(5)]
    drawn[1] = oracle.scaled(drawn[1], np.iinfo(dtype).bits // 2 - 2)
    drawn[2] = oracle.scaled(drawn[2], np.iinfo(dtype).bits // 2)
    drawn[3], drawn[4] = oracle.filled(drawn[3], "min"), oracle.filled(drawn[4], "max")
    states, xs = draw(rng, np.int16, (5, 8)), draw(rng, np.int16, (5, steps, 12))
    xs[2] >>= 4
    states[3], xs[3], states[4], xs[4] = -(2**15), -(2**15), 2**15 - 1, -(2**15)
    states[0, :3] = -(2**15), 2**15 - 1, -1
    return drawn, states, xs


def stacked(drawn):
    return GRUWeights(**{name: np.stack([w[name] for w in drawn]) for name in drawn[0]})


def over_cases(config, **options):
    return jax.jit(jax.vmap(functools.partial(gru_scan, config, **options)))


def expected_of(drawn, states, xs, config, update="library"):
    formats = config.coeff_Qformat, config.io_Qformat
    return np.stack(
        [
            oracle.gru_scan(*operands, *formats, update)
            for operands in zip(drawn, states, xs, strict=True)
        ]
    )


# Values.


@pytest.mark.parametrize("precision", PRECISIONS)
def test_vectors_of_a_numpy_model(precision, data):
    v = np.load(data / f"hifi/ideal_gru_{precision}.npz")
    config = GRUConfig(
        in_feats=48,
        out_feats=64,
        precision=PRECISIONS[precision],
        coeff_Qformat=int(v["coeff_Qformat"]),
        io_Qformat=int(v["io_Qformat"]),
    )
    weights = GRUWeights(*(v[name] for name in GRUWeights._fields))
    run = jax.jit(functools.partial(gru_scan, config, activation="ideal"))
    last, ys = run(weights, GRUState(v["h0"]), v["x"])
    assert ys.dtype == last.prev_h.dtype == np.int16
    np.testing.assert_array_equal(ys, v["y"])
    np.testing.assert_array_equal(last.prev_h, v["y"][-1])


@pytest.mark.parametrize(
    ("precision", "coeff", "io"),
    [("16x16", *f) for f in FORMATS] + [("8x16", *f) for f in FORMATS[1:3]],
)
def test_equals_the_oracle(precision, coeff, io, rng):
    config = GRUConfig(**SIZE, precision=PRECISIONS[precision], coeff_Qformat=coeff, io_Qformat=io)
    drawn, states, xs = cases(rng, TYPES[precision])
    last, ys = over_cases(config, activation="ideal")(stacked(drawn), GRUState(states), xs)
    np.testing.assert_array_equal(ys, expected_of(drawn, states, xs, config))
    np.testing.assert_array_equal(last.prev_h, ys[:, -1])


def test_the_update_of_the_guide(rng):
    drawn, states, xs = cases(rng, np.int16)
    run = over_cases(SMALL, activation="ideal", update="guide")
    _, ys = run(stacked(drawn), GRUState(states), xs)
    np.testing.assert_array_equal(ys, expected_of(drawn, states, xs, SMALL, "guide"))
    assert (ys != expected_of(drawn, states, xs, SMALL)).any()


@pytest.mark.parametrize("precision", TYPES)
@pytest.mark.parametrize(
    "size", [(2048, 8), *(pytest.param(s, marks=pytest.mark.slow) for s in [(4, 4), (4, 36)])]
)
def test_other_sizes(precision, size, rng):
    config = GRUConfig(in_feats=size[0], out_feats=size[1], precision=PRECISIONS[precision])
    run = jax.jit(functools.partial(gru_scan, config, activation="ideal"))
    weights = oracle.draw_weights(rng, oracle.GRU, size[0], size[1], TYPES[precision])
    h, xs = draw(rng, np.int16, size[1:]), draw(rng, np.int16, (2, size[0]))
    for w in (weights, oracle.scaled(weights, 7), oracle.filled(weights, "min")):
        _, ys = run(GRUWeights(**w), GRUState(h), xs)
        np.testing.assert_array_equal(ys, oracle.gru_scan(w, h, xs, 15, 12))


def test_large_products_that_cancel(rng):
    """Sums are exact: in float32 their errors would be larger than the sums."""
    config = GRUConfig(in_feats=64, out_feats=8, coeff_Qformat=0, io_Qformat=15)
    sizes = oracle.shapes(oracle.GRU, 64, 8)
    weights = {name: np.zeros(shape, np.int16) for name, shape in sizes.items()}
    of_x = oracle.GRU[0]
    matrix, x = oracle.cancelling(rng, 8 * len(of_x), np.int16)
    weights |= dict(zip(of_x, np.split(matrix, len(of_x)), strict=True))
    run = jax.jit(functools.partial(gru_scan, config, activation="ideal"))
    state = jax.tree.map(np.asarray, gru_init(config))
    _, ys = run(GRUWeights(**weights), state, x[None])
    np.testing.assert_array_equal(ys, oracle.gru_scan(weights, state.prev_h, x[None], 0, 15))
    assert np.unique(ys).size > 4


def test_starts_from_zeros():
    assert gru_init(SMALL).prev_h.dtype == np.int16
    np.testing.assert_array_equal(gru_init(SMALL).prev_h, np.zeros(8))


def test_the_defaults_of_the_guide():
    config = GRUConfig()
    assert (config.in_feats, config.out_feats, config.pad) == (256, 256, 1)
    assert (config.mat_prec, config.vec_prec, config.precision) == (16, 16, Precision.P16bx16b)
    assert (config.coeff_Qformat, config.io_Qformat) == (15, 12)


# Activations.


@pytest.mark.parametrize("precision", TYPES)
def test_fixed_is_close_to_ideal_for_100_steps(precision, rng):
    """Weights within scale / sqrt(out_feats).

    With larger weights differences grow from step to step: at scale 1 a few outputs are off by 3,
    at 4 by 9.
    """
    bits = np.iinfo(TYPES[precision]).bits
    config = GRUConfig(
        in_feats=24, out_feats=32, precision=PRECISIONS[precision], coeff_Qformat=bits - 1
    )
    sizes = oracle.shapes(oracle.GRU, 24, 32)

    scales = np.array([0.25, 0.5, 0.5, 0.5]) / np.sqrt(32)

    def weight(name, shape):
        kind = np.int16 if name in oracle.GRU[2] else TYPES[precision]
        drawn = np.stack([rng.uniform(-scale, scale, shape) for scale in scales])
        return np.rint(drawn * 2.0 ** (np.iinfo(kind).bits - 1)).astype(kind)

    weights = GRUWeights(**{name: weight(name, shape) for name, shape in sizes.items()})
    xs = np.rint(rng.normal(0, 3300, (4, 100, 24))).astype(np.int16)
    state = GRUState(np.zeros((4, 32), np.int16))
    fixed, ideal = (
        np.asarray(over_cases(config, activation=name)(weights, state, xs)[1], np.int32)
        for name in ("fixed", "ideal")
    )
    assert np.ptp(ideal) > 2**11
    assert 1 <= np.abs(fixed - ideal).max() <= 2


def test_fixed_is_the_default_and_takes_coefficients(rng):
    weights, states, xs = cases(rng, np.int16)
    operands = stacked(weights), GRUState(states), xs
    by_default = over_cases(SMALL)(*operands)[1]
    with_arrays = jax.tree.map(lambda x: jnp.asarray(x, jnp.int32), FIXED)

    @jax.jit
    def run(coefficients, operands):
        scan = functools.partial(gru_scan, SMALL, activation=coefficients)
        return jax.vmap(scan)(*operands)[1]

    np.testing.assert_array_equal(run(with_arrays, operands), by_default)
    halved = with_arrays._replace(tanh_scale=with_arrays.tanh_scale // 2)
    assert (run(halved, operands) != by_default).any()


def test_products_of_minus_one_saturate():
    """Odd coefficients make sigmoid -1 below 0, and the reset state is -1 times -1: 0x7FFF."""
    odd = FIXED._replace(sigmoid_scale=0, reciprocal=(-(2**31), 2**31 - 1))
    zeros = {
        name: np.zeros(shape, np.int16) for name, shape in oracle.shapes(oracle.GRU, 12, 8).items()
    }
    weights = {**zeros, "b_r": np.full(8, -1, np.int16), "u_h": np.full((8, 8), 2**14, np.int16)}
    state = GRUState(np.full(8, -(2**15), np.int16))
    x = np.zeros(12, np.int16)
    _, y = gru_step(SMALL, GRUWeights(**weights), state, x, activation=odd)
    np.testing.assert_array_equal(y, np.full(8, 4094))


# Transforms.


@pytest.mark.parametrize("x64", [False, True])
def test_transforms(x64, rng):
    drawn, states, xs = cases(rng, np.int16, steps=2)
    weights = GRUWeights(**drawn[1])
    wanted = expected_of([drawn[1]] * 5, states, xs, SMALL)
    with jax.enable_x64(x64):
        scan = functools.partial(gru_scan, SMALL, weights, activation="ideal")
        step = functools.partial(gru_step, SMALL, weights, activation="ideal")
        once = jax.jit(step)
        state, first = once(GRUState(states[1]), xs[1, 0])
        state, second = once(state, xs[1, 1])
        np.testing.assert_array_equal(np.stack([first, second]), wanted[1])
        np.testing.assert_array_equal(state.prev_h, second)
        for run in (jax.jit(jax.vmap(scan)), jax.vmap(jax.jit(scan))):
            last, ys = run(GRUState(states), xs)
            assert ys.dtype == np.int16
            np.testing.assert_array_equal(ys, wanted)
            np.testing.assert_array_equal(last.prev_h, wanted[:, -1])
        batch = jax.jit(lambda state, xs: jax.lax.scan(jax.vmap(step), state, xs))
        _, ys = batch(GRUState(states), np.moveaxis(xs, 1, 0))
        np.testing.assert_array_equal(np.moveaxis(ys, 0, 1), wanted)


@pytest.mark.slow
def test_without_jit(rng):
    drawn, states, xs = cases(rng, np.int16, steps=1)
    _, y = gru_step(SMALL, GRUWeights(**drawn[1]), GRUState(states[1]), xs[1, 0])
    _, ys = jax.jit(functools.partial(gru_scan, SMALL))(
        GRUWeights(**drawn[1]), GRUState(states[1]), xs[1]
    )
    np.testing.assert_array_equal(y, ys[0])


# Floats.


@pytest.mark.parametrize("update", ["library", "guide"])
def test_the_float_twin(update, rng):
    weights = {
        name: rng.normal(0, 0.4, shape).astype(np.float32)
        for name, shape in oracle.shapes(oracle.GRU, 12, 8).items()
    }
    h, xs = rng.normal(0, 1, 8).astype(np.float32), rng.normal(0, 1, (5, 12)).astype(np.float32)
    run = jax.jit(functools.partial(gru_scan_float, update=update))
    last, ys = run(GRUWeights(**weights), GRUState(h), xs)
    state, first = gru_step_float(GRUWeights(**weights), GRUState(h), xs[0], update=update)
    wanted = _real_gru(weights, h, xs, update)
    assert ys.dtype == np.float32
    np.testing.assert_allclose(ys, wanted, rtol=0, atol=2e-6)
    np.testing.assert_allclose(first, wanted[0], rtol=0, atol=2e-6)
    np.testing.assert_array_equal(state.prev_h, first)
    np.testing.assert_array_equal(last.prev_h, ys[-1])
    none, nothing = run(GRUWeights(**weights), GRUState(h), xs[:0])
    assert nothing.shape == (0, 8)
    np.testing.assert_array_equal(none.prev_h, h)


def _real_gru(weights, h, xs, update):
    w = {name: value.astype(np.float64) for name, value in weights.items()}
    ys = []
    for x in xs:
        z = 1 / (1 + np.exp(-(w["w_z"] @ x + w["u_z"] @ h + w["b_z"])))
        r = 1 / (1 + np.exp(-(w["w_r"] @ x + w["u_r"] @ h + w["b_r"])))
        g = np.tanh(w["w_h"] @ x + w["u_h"] @ (r * h) + w["b_h"])
        h = z * h + (1 - z) * g if update == "library" else z * g + (1 - z) * h
        ys.append(h)
    return np.stack(ys)


# Errors.


@pytest.mark.parametrize(
    ("field", "found", "code"),
    [
        ("in_feats", 0, "IN_FEATS"),
        ("in_feats", 6, "IN_FEATS"),
        ("in_feats", 2052, "IN_FEATS"),
        ("out_feats", 3, "OUT_FEATS"),
        ("out_feats", 2052, "OUT_FEATS"),
        ("precision", Precision.P8bx8b, "PRECISION"),
        ("precision", Precision.F32xF32, "PRECISION"),
        ("coeff_Qformat", -1, "COEFF_QFORMAT"),
        ("coeff_Qformat", 16, "COEFF_QFORMAT"),
        ("io_Qformat", -1, "IO_QFORMAT"),
        ("io_Qformat", 16, "IO_QFORMAT"),
        ("pad", -1, "MEMBANK_PADDING"),
        ("pad", 2, "MEMBANK_PADDING"),
    ],
)
def test_invalid_configurations(field, found, code):
    config = GRUConfig(**{**SIZE, field: found})
    weights = GRUWeights(*[np.zeros((8, 8), np.int16)] * 9)
    with pytest.raises(NNLibConfigError, match=f"^GRU: {field} is .*{code}") as error:
        gru_step(config, weights, gru_init(SMALL), np.zeros(12, np.int16))
    assert error.value.code == ErrorCode[f"GRU_CONFIG_FATAL_INVALID_{code}"]
    assert error.value.argument == field


def test_the_first_fault_is_reported():
    wrong = {
        "in_feats": 1,
        "out_feats": 1,
        "precision": 0,
        "coeff_Qformat": 16,
        "io_Qformat": 16,
        "pad": 2,
    }
    found = []
    while (fault := GRUConfig(**wrong).fault()) is not None:
        found.append(fault.argument)
        del wrong[fault.argument]
    assert found == ["in_feats", "out_feats", "precision", "coeff_Qformat", "io_Qformat", "pad"]


@pytest.mark.parametrize("field", ["in_feats", "out_feats", "coeff_Qformat", "io_Qformat", "pad"])
def test_ends_of_ranges_are_valid(field):
    ends = {"in_feats": (4, 2048), "out_feats": (4, 2048), "pad": (0, 1)}
    for end in ends.get(field, (0, 15)):
        assert GRUConfig(**{field: end}).fault() is None


def _call(function=gru_scan, **changed):
    sizes = oracle.shapes(oracle.GRU, 12, 8)
    weights = {name: np.zeros(shape, np.int16) for name, shape in sizes.items()}
    operands = {"prev_h": np.zeros(8, np.int16), "xs": np.zeros((3, 12), np.int16)}
    options = {name: changed.pop(name) for name in ("update", "activation") if name in changed}
    weights |= {name: changed.pop(name) for name in list(changed) if name in weights}
    operands |= changed
    state = GRUState(operands["prev_h"])
    return jax.eval_shape(
        functools.partial(function, SMALL, **options), GRUWeights(**weights), state, operands["xs"]
    )


@pytest.mark.parametrize("name", [*sum(oracle.GRU, ()), "prev_h", "xs"])
def test_arrays_of_other_shapes_and_types(name):
    sizes = {**oracle.shapes(oracle.GRU, 12, 8), "prev_h": (8,), "xs": (3, 12)}
    shape = sizes[name]
    for wrong in ((*shape, 1), (*shape[:-1], shape[-1] + 4), shape[1:]):
        with pytest.raises(NNLibParamError, match=f"gru: {name} is of shape") as error:
            _call(**{name: np.zeros(wrong, np.int16)})
        assert error.value.argument == name
    for wrong in (np.int8, np.int32, np.float32):
        with pytest.raises(TypeError, match=f"gru: {name} is {np.dtype(wrong)}, expected int16"):
            _call(**{name: np.zeros(shape, wrong)})


def test_other_parameters():
    assert _call()[1].shape == (3, 8)
    with pytest.raises(NNLibParamError, match="gru: xs is of shape"):
        _call(xs=np.zeros((0, 12), np.int16))
    with pytest.raises(NNLibParamError, match="gru: x is of shape"):
        _call(gru_step)
    with pytest.raises(NNLibParamError, match="update is 'silicon', expected one of library, gui"):
        _call(update="silicon")
    with pytest.raises(NNLibParamError, match="activation is 'exact', expected one of fixed, id"):
        _call(activation="exact")
    weights = GRUWeights(*[np.zeros((4, 4), np.float32)] * 6, *[np.zeros(4, np.float32)] * 3)
    state, wrong = GRUState(np.zeros(4, np.float32)), cast("Any", "silicon")
    with pytest.raises(NNLibParamError, match="update is 'silicon'"):
        gru_step_float(weights, state, jnp.zeros(4), update=wrong)
