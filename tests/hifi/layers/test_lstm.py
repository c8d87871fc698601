"""The LSTM layer: one step, and a sequence."""

from __future__ import annotations

import functools
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracle import hifi_recurrent as oracle
from oracle.hifi_oracle import draw

from tosajax.hifi.errors import ErrorCode, NNLibConfigError, NNLibParamError
from tosajax.hifi.kernels.activations import FIXED
from tosajax.hifi.layers import (
    LSTMConfig,
    LSTMState,
    LSTMWeights,
    Precision,
    lstm_init,
    lstm_scan,
    lstm_scan_float,
    lstm_states,
    lstm_step,
    lstm_step_float,
)

PRECISIONS = {"16x16": Precision.P16bx16b, "8x16": Precision.P8bx16b}
TYPES = {"16x16": np.int16, "8x16": np.int8}
# Fraction bits of coefficients and of inputs: the usual ones, the corners, and between them.
FORMATS = [(15, 12), (7, 12), (0, 0), (0, 15), (15, 0), (15, 15), (10, 5)]
SIZE = {"in_feats": 12, "out_feats": 8}
SMALL = LSTMConfig(**SIZE)


@pytest.fixture
def rng():
    return np.random.default_rng(43)


def cases(rng, dtype, steps=4):
    """Weights, states and inputs, one beside the other: full range, small, and at the ends."""
    drawn = [oracle.draw_weights(rng, oracle.LSTM, 12, 8, dtype) for _ in range(5)]
    drawn[1] = oracle.scaled(drawn[1], np.iinfo(dtype).bits // 2 - 2)
    drawn[2] = oracle.scaled(drawn[2], np.iinfo(dtype).bits // 2)
    drawn[3], drawn[4] = oracle.filled(drawn[3], "min"), oracle.filled(drawn[4], "max")
    h, c = draw(rng, np.int16, (5, 8)), draw(rng, np.int32, (5, 8))
    xs = draw(rng, np.int16, (5, steps, 12))
    xs[2], c[2] = xs[2] >> 4, c[2] >> 5
    h[3], c[3], xs[3] = -(2**15), -(2**31), -(2**15)
    h[4], c[4], xs[4] = 2**15 - 1, 2**31 - 1, 2**15 - 1
    c[0, :5] = -(2**31), 2**31 - 1, -(2**31), 2**31 - 1, -1
    return drawn, LSTMState(h, c), xs


def stacked(drawn):
    return LSTMWeights(**{name: np.stack([w[name] for w in drawn]) for name in drawn[0]})


def over_cases(config, **options):
    return jax.jit(jax.vmap(functools.partial(lstm_states, config, **options)))


def expected_of(drawn, states, xs, config):
    formats = config.coeff_Qformat, config.io_Qformat, config.cell_Qformat
    found = [
        oracle.lstm_scan(w, h, c, x, *formats)
        for w, h, c, x in zip(drawn, *states, xs, strict=True)
    ]
    return [np.stack(part) for part in zip(*found, strict=True)]


# Values.


@pytest.mark.parametrize("precision", PRECISIONS)
def test_vectors_of_a_numpy_model(precision, data):
    v = np.load(data / f"hifi/ideal_lstm_{precision}.npz")
    config = LSTMConfig(
        in_feats=48,
        out_feats=64,
        precision=PRECISIONS[precision],
        coeff_Qformat=int(v["coeff_Qformat"]),
        cell_Qformat=int(v["cell_Qformat"]),
        io_Qformat=int(v["io_Qformat"]),
    )
    weights = LSTMWeights(*(v[name] for name in LSTMWeights._fields))
    run = jax.jit(functools.partial(lstm_states, config, activation="ideal"))
    last, states = run(weights, LSTMState(v["h0"], v["c0"]), v["x"])
    assert (states.prev_h.dtype, states.prev_c.dtype) == (np.int16, np.int32)
    np.testing.assert_array_equal(states.prev_h, v["y"])
    np.testing.assert_array_equal(states.prev_c, v["c"])
    np.testing.assert_array_equal(last.prev_h, v["y"][-1])
    np.testing.assert_array_equal(last.prev_c, v["c"][-1])


@pytest.mark.parametrize(
    ("precision", "coeff", "io"),
    [("16x16", *f) for f in FORMATS] + [("8x16", *f) for f in FORMATS[1:3]],
)
def test_equals_the_oracle(precision, coeff, io, rng):
    formats = {"precision": PRECISIONS[precision], "coeff_Qformat": coeff, "io_Qformat": io}
    config = LSTMConfig(**SIZE, **formats)
    drawn, states, xs = cases(rng, TYPES[precision])
    last, found = over_cases(config, activation="ideal")(stacked(drawn), states, xs)
    ys, cells = expected_of(drawn, states, xs, config)
    np.testing.assert_array_equal(found.prev_h, ys)
    np.testing.assert_array_equal(found.prev_c, cells)
    np.testing.assert_array_equal(last.prev_h, ys[:, -1])
    np.testing.assert_array_equal(last.prev_c, cells[:, -1])


@pytest.mark.parametrize("cell", [0, 13, 24])
def test_other_formats_of_the_cell(cell, rng):
    with warnings.catch_warnings(action="ignore"):
        config = LSTMConfig(**SIZE, cell_Qformat=cell)
    drawn, states, xs = cases(rng, np.int16)
    _, found = over_cases(config, activation="ideal")(stacked(drawn), states, xs)
    ys, cells = expected_of(drawn, states, xs, config)
    np.testing.assert_array_equal(found.prev_h, ys)
    np.testing.assert_array_equal(found.prev_c, cells)


def test_the_cell_rounds_ties_away_from_zero_and_saturates():
    """Zero weights: the gates are the sigmoids of the biases, and 0 for the candidate."""
    size = oracle.shapes(oracle.LSTM, 4, 24)
    config = LSTMConfig(in_feats=4, out_feats=24)
    weights = {name: np.zeros(shape, np.int16) for name, shape in size.items()}
    # Ties of c / 2.
    c = np.array([1, -1, 3, -3, 2**31 - 1, -(2**31), 5, -5] * 3, np.int32)
    state = LSTMState(np.zeros(24, np.int16), c)
    run = jax.jit(functools.partial(lstm_step, config, activation="ideal"))
    after, _ = run(LSTMWeights(**weights), state, np.zeros(4, np.int16))
    away = np.array([1, -1, 2, -2, 2**30, -(2**30), 3, -3] * 3)
    np.testing.assert_array_equal(after.prev_c, away)
    # All gates wide open: f c + i candidate is beyond the range.
    for end in (2**15 - 1, -(2**15)):
        for name in ("w_xf", "w_xi", "w_xo"):
            weights[name] = np.full((24, 4), 2**15 - 1, np.int16)
        weights["w_xc"] = np.full((24, 4), end, np.int16)
        x = np.full(4, 2**15 - 1, np.int16)
        after, y = run(LSTMWeights(**weights), state, x)
        wanted_y, wanted_c = oracle.lstm_scan(weights, *state, x[None], 15, 12)
        np.testing.assert_array_equal(after.prev_c, wanted_c[0])
        np.testing.assert_array_equal(y, wanted_y[0])
        assert 2**31 - 1 in after.prev_c or -(2**31) in after.prev_c


@pytest.mark.parametrize("precision", TYPES)
@pytest.mark.parametrize(
    "size", [(2048, 8), *(pytest.param(s, marks=pytest.mark.slow) for s in [(4, 4), (4, 36)])]
)
def test_other_sizes(precision, size, rng):
    config = LSTMConfig(in_feats=size[0], out_feats=size[1], precision=PRECISIONS[precision])
    run = jax.jit(functools.partial(lstm_scan, config, activation="ideal"))
    weights = oracle.draw_weights(rng, oracle.LSTM, size[0], size[1], TYPES[precision])
    h, c = draw(rng, np.int16, size[1:]), draw(rng, np.int32, size[1:])
    xs = draw(rng, np.int16, (2, size[0]))
    for w in (weights, oracle.scaled(weights, 7), oracle.filled(weights, "min")):
        _, ys = run(LSTMWeights(**w), LSTMState(h, c), xs)
        np.testing.assert_array_equal(ys, oracle.lstm_scan(w, h, c, xs, 15, 12)[0])


def test_large_products_that_cancel(rng):
    """Sums are exact: in float32 their errors would be larger than the sums."""
    config = LSTMConfig(in_feats=64, out_feats=8, coeff_Qformat=0, io_Qformat=15)
    sizes = oracle.shapes(oracle.LSTM, 64, 8)
    weights = {name: np.zeros(shape, np.int16) for name, shape in sizes.items()}
    of_x = oracle.LSTM[0]
    matrix, x = oracle.cancelling(rng, 8 * len(of_x), np.int16)
    weights |= dict(zip(of_x, np.split(matrix, len(of_x)), strict=True))
    run = jax.jit(functools.partial(lstm_scan, config, activation="ideal"))
    state = jax.tree.map(np.asarray, lstm_init(config))
    _, ys = run(LSTMWeights(**weights), state, x[None])
    wanted, _ = oracle.lstm_scan(weights, state.prev_h, state.prev_c, x[None], 0, 15)
    np.testing.assert_array_equal(ys, wanted)
    assert np.unique(ys).size > 4


def test_starts_from_zeros():
    h, c = lstm_init(SMALL)
    assert (h.dtype, c.dtype) == (np.int16, np.int32)
    np.testing.assert_array_equal(h, np.zeros(8))
    np.testing.assert_array_equal(c, np.zeros(8))


def test_the_defaults_of_the_guide():
    config = LSTMConfig()
    assert (config.in_feats, config.out_feats, config.pad) == (256, 256, 1)
    assert (config.mat_prec, config.vec_prec, config.precision) == (16, 16, Precision.P16bx16b)
    assert (config.coeff_Qformat, config.io_Qformat) == (15, 12)
    assert config.cell_Qformat == 25


# Activations.


@pytest.mark.parametrize("precision", TYPES)
def test_fixed_is_close_to_ideal_for_100_steps(precision, rng):
    """Weights within scale / sqrt(out_feats); larger weights give larger differences."""
    bits = np.iinfo(TYPES[precision]).bits
    config = LSTMConfig(
        in_feats=24, out_feats=32, precision=PRECISIONS[precision], coeff_Qformat=bits - 1
    )
    sizes = oracle.shapes(oracle.LSTM, 24, 32)

    scales = np.array([0.5, 1, 2, 2]) / np.sqrt(32)

    def weight(name, shape):
        kind = np.int16 if name in oracle.LSTM[2] else TYPES[precision]
        drawn = np.stack([rng.uniform(-scale, scale, shape) for scale in scales])
        return np.rint(drawn * 2.0 ** (np.iinfo(kind).bits - 1)).astype(kind)

    weights = LSTMWeights(**{name: weight(name, shape) for name, shape in sizes.items()})
    xs = np.rint(rng.normal(0, 3300, (4, 100, 24))).astype(np.int16)
    state = LSTMState(np.zeros((4, 32), np.int16), np.zeros((4, 32), np.int32))
    fixed, ideal = (
        np.asarray(over_cases(config, activation=name)(weights, state, xs)[1].prev_h, np.int32)
        for name in ("fixed", "ideal")
    )
    assert np.ptp(ideal) > 2**11
    assert 1 <= np.abs(fixed - ideal).max() <= 2


def test_fixed_is_the_default_and_takes_coefficients(rng):
    weights, states, xs = cases(rng, np.int16)
    operands = stacked(weights), states, xs
    by_default = over_cases(SMALL)(*operands)[1]
    with_arrays = jax.tree.map(lambda x: jnp.asarray(x, jnp.int32), FIXED)

    @jax.jit
    def run(coefficients, operands):
        states = functools.partial(lstm_states, SMALL, activation=coefficients)
        return jax.vmap(states)(*operands)[1]

    same = run(with_arrays, operands)
    np.testing.assert_array_equal(same.prev_h, by_default.prev_h)
    np.testing.assert_array_equal(same.prev_c, by_default.prev_c)
    halved = with_arrays._replace(tanh_scale=with_arrays.tanh_scale // 2)
    assert (run(halved, operands).prev_h != by_default.prev_h).any()


def test_products_of_minus_one_saturate():
    """Odd coefficients make sigmoid -1 below 0; tanh of the candidate and of the cell are -1."""
    odd = FIXED._replace(sigmoid_scale=0, reciprocal=(-(2**31), 2**31 - 1))
    config = LSTMConfig(**SIZE, io_Qformat=15)
    zeros = {
        name: np.zeros(shape, np.int16) for name, shape in oracle.shapes(oracle.LSTM, 12, 8).items()
    }
    negative = {name: np.full(8, -1, np.int16) for name in ("b_f", "b_i", "b_o")}
    weights = {**zeros, **negative, "w_xc": np.full((8, 12), -(2**15), np.int16)}
    state = LSTMState(np.zeros(8, np.int16), np.full(8, 2**31 - 1, np.int32))
    x = np.full(12, 2**15 - 1, np.int16)
    state, y = lstm_step(config, LSTMWeights(**weights), state, x, activation=odd)
    np.testing.assert_array_equal(state.prev_c, np.full(8, -(2**31) + 1 + (2**31 - 1 >> 6)))
    np.testing.assert_array_equal(y, np.full(8, 2**15 - 1))


# Transforms.


@pytest.mark.parametrize("x64", [False, True])
def test_transforms(x64, rng):
    drawn, states, xs = cases(rng, np.int16, steps=2)
    weights = LSTMWeights(**drawn[1])
    ys, cells = expected_of([drawn[1]] * 5, states, xs, SMALL)
    with jax.enable_x64(x64):
        scan = functools.partial(lstm_scan, SMALL, weights, activation="ideal")
        step = functools.partial(lstm_step, SMALL, weights, activation="ideal")
        once = jax.jit(step)
        state, first = once(LSTMState(*(part[1] for part in states)), xs[1, 0])
        state, second = once(state, xs[1, 1])
        np.testing.assert_array_equal(np.stack([first, second]), ys[1])
        np.testing.assert_array_equal(state.prev_h, second)
        np.testing.assert_array_equal(state.prev_c, cells[1, -1])
        for run in (jax.jit(jax.vmap(scan)), jax.vmap(jax.jit(scan))):
            last, found = run(states, xs)
            assert found.dtype == np.int16
            np.testing.assert_array_equal(found, ys)
            np.testing.assert_array_equal(last.prev_h, ys[:, -1])
            np.testing.assert_array_equal(last.prev_c, cells[:, -1])
        batch = jax.jit(lambda state, xs: jax.lax.scan(jax.vmap(step), state, xs))
        _, found = batch(states, np.moveaxis(xs, 1, 0))
        np.testing.assert_array_equal(np.moveaxis(found, 0, 1), ys)


@pytest.mark.slow
def test_without_jit(rng):
    drawn, states, xs = cases(rng, np.int16, steps=1)
    state = LSTMState(*(part[1] for part in states))
    weights = LSTMWeights(**drawn[1])
    _, y = lstm_step(SMALL, weights, state, xs[1, 0])
    _, ys = jax.jit(functools.partial(lstm_scan, SMALL))(weights, state, xs[1])
    np.testing.assert_array_equal(y, ys[0])


# Floats.


def test_the_float_twin(rng):
    weights = {
        name: rng.normal(0, 0.4, shape).astype(np.float32)
        for name, shape in oracle.shapes(oracle.LSTM, 12, 8).items()
    }
    h, c = rng.normal(0, 1, (2, 8)).astype(np.float32)
    xs = rng.normal(0, 1, (5, 12)).astype(np.float32)
    run = jax.jit(lstm_scan_float)
    last, ys = run(LSTMWeights(**weights), LSTMState(h, c), xs)
    state, first = lstm_step_float(LSTMWeights(**weights), LSTMState(h, c), xs[0])
    wanted, cells = _real_lstm(weights, h, c, xs)
    assert ys.dtype == np.float32
    np.testing.assert_allclose(ys, wanted, rtol=0, atol=2e-6)
    np.testing.assert_allclose(first, wanted[0], rtol=0, atol=2e-6)
    np.testing.assert_allclose(state.prev_c, cells[0], rtol=0, atol=2e-6)
    np.testing.assert_allclose(last.prev_c, cells[-1], rtol=0, atol=2e-6)
    np.testing.assert_array_equal(state.prev_h, first)
    np.testing.assert_array_equal(last.prev_h, ys[-1])


def _real_lstm(weights, h, c, xs):
    w = {name: value.astype(np.float64) for name, value in weights.items()}
    ys, cells = [], []
    for x in xs:
        f, i, o, g = (w[f"w_x{n}"] @ x + w[f"w_h{n}"] @ h + w[f"b_{n}"] for n in "fioc")
        f, i, o = (1 / (1 + np.exp(-total)) for total in (f, i, o))
        c = f * c + i * np.tanh(g)
        h = o * np.tanh(c)
        ys.append(h)
        cells.append(c)
    return np.stack(ys), np.stack(cells)


# Errors.


def test_formats_of_the_cell_that_tanh_does_not_read_warn():
    LSTMConfig(cell_Qformat=25)
    with pytest.warns(UserWarning, match="cell_Qformat is 24, but tanh reads the cell") as found:
        LSTMConfig(cell_Qformat=24)
    assert [w.filename for w in found] == [__file__]


@pytest.mark.parametrize(
    ("field", "found", "code"),
    [
        ("in_feats", 2, "IN_FEATS"),
        ("in_feats", 6, "IN_FEATS"),
        ("in_feats", 2052, "IN_FEATS"),
        ("out_feats", 0, "OUT_FEATS"),
        ("out_feats", 2052, "OUT_FEATS"),
        ("precision", Precision.P8bx8b, "PRECISION"),
        ("coeff_Qformat", -1, "COEFF_QFORMAT"),
        ("coeff_Qformat", 16, "COEFF_QFORMAT"),
        ("cell_Qformat", -1, "CELL_QFORMAT"),
        ("cell_Qformat", 26, "CELL_QFORMAT"),
        ("io_Qformat", -1, "IO_QFORMAT"),
        ("io_Qformat", 16, "IO_QFORMAT"),
        ("pad", 2, "MEMBANK_PADDING"),
    ],
)
@pytest.mark.filterwarnings("ignore:cell_Qformat")
def test_invalid_configurations(field, found, code):
    config = LSTMConfig(**{**SIZE, field: found})
    weights = LSTMWeights(*[np.zeros((8, 8), np.int16)] * 12)
    with pytest.raises(NNLibConfigError, match=f"^LSTM: {field} is .*{code}") as error:
        lstm_step(config, weights, lstm_init(SMALL), np.zeros(12, np.int16))
    assert error.value.code == ErrorCode[f"LSTM_CONFIG_FATAL_INVALID_{code}"]
    assert error.value.argument == field


@pytest.mark.filterwarnings("ignore:cell_Qformat")
def test_the_first_fault_is_reported():
    wrong = {
        "in_feats": 1,
        "out_feats": 1,
        "precision": 0,
        "coeff_Qformat": 16,
        "cell_Qformat": 26,
        "io_Qformat": 16,
        "pad": 2,
    }
    order, found = list(wrong), []
    while (fault := LSTMConfig(**wrong).fault()) is not None:
        found.append(fault.argument)
        del wrong[fault.argument]
    assert found == order


@pytest.mark.filterwarnings("ignore:cell_Qformat")
def test_ends_of_ranges_are_valid():
    for cell in (0, 25):
        assert LSTMConfig(cell_Qformat=cell).fault() is None


def _call(function=lstm_scan, **changed):
    sizes = oracle.shapes(oracle.LSTM, 12, 8)
    operands = {name: np.zeros(shape, np.int16) for name, shape in sizes.items()}
    operands |= {"prev_h": np.zeros(8, np.int16), "prev_c": np.zeros(8, np.int32)}
    operands |= {"xs": np.zeros((3, 12), np.int16), **changed}
    state = LSTMState(operands.pop("prev_h"), operands.pop("prev_c"))
    xs = operands.pop("xs")
    return jax.eval_shape(functools.partial(function, SMALL), LSTMWeights(**operands), state, xs)


@pytest.mark.parametrize("name", [*sum(oracle.LSTM, ()), "prev_h", "prev_c", "xs"])
def test_arrays_of_other_shapes_and_types(name):
    sizes = {**oracle.shapes(oracle.LSTM, 12, 8), "prev_h": (8,), "prev_c": (8,), "xs": (3, 12)}
    shape, dtype = sizes[name], np.int32 if name == "prev_c" else np.int16
    for wrong in ((*shape, 1), (*shape[:-1], shape[-1] + 4), shape[1:]):
        with pytest.raises(NNLibParamError, match=f"lstm: {name} is of shape") as error:
            _call(**{name: np.zeros(wrong, dtype)})
        assert error.value.argument == name
    for wrong in {np.int8, np.int32, np.int16, np.float32} - {dtype}:
        with pytest.raises(TypeError, match=f"lstm: {name} is {np.dtype(wrong)}, expected"):
            _call(**{name: np.zeros(shape, wrong)})


def test_inputs_of_other_shapes():
    assert _call()[1].shape == (3, 8)
    with pytest.raises(NNLibParamError, match="lstm: xs is of shape"):
        _call(xs=np.zeros((0, 12), np.int16))
    with pytest.raises(NNLibParamError, match="lstm: x is of shape"):
        _call(lstm_step)
