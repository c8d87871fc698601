"""What the layers GRU and LSTM have in common: one step, and a sequence."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hifi.recurrent import (
    EACH,
    GRU,
    LSTM,
    PRECISIONS,
    SIZE,
    TYPES,
    assert_same,
    cases,
    expected_of,
    over_cases,
    stacked,
)
from oracle import hifi_recurrent as oracle
from oracle.hifi_oracle import draw

from tosajax.hifi.errors import ErrorCode, NNLibConfigError, NNLibParamError
from tosajax.hifi.kernels.activations import FIXED
from tosajax.hifi.layers import Precision

pytestmark = pytest.mark.usefixtures("quick")

# Fraction bits of coefficients and of inputs: the usual ones, the corners, and between them.
FORMATS = [(15, 12), (7, 12), (0, 0), (0, 15), (15, 0), (15, 15), (10, 5)]


@pytest.fixture
def rng():
    return np.random.default_rng(41)


# Values.


@EACH
@pytest.mark.parametrize("precision", PRECISIONS)
def test_vectors_of_a_numpy_model(layer, precision, data):
    v = np.load(data / f"hifi/ideal_{layer.name.lower()}_{precision}.npz")
    formats = {name: int(v[name]) for name in v if name.endswith("Qformat")}
    config = layer.config(in_feats=48, out_feats=64, precision=PRECISIONS[precision], **formats)
    weights = layer.weights(*(v[name] for name in layer.weights._fields))
    start = layer.state(*(v[name] for name in ("h0", "c0") if name in v))
    run = jax.jit(functools.partial(layer.states, config, activation="ideal"))
    last, states = run(weights, start, v["x"])
    wanted = [v[name] for name in ("y", "c") if name in v]
    assert [x.dtype for x in states] == [x.dtype for x in layer.init(config)]
    assert_same(states, wanted)
    assert_same(last, [x[-1] for x in wanted])


@EACH
@pytest.mark.parametrize(
    ("precision", "coeff", "io"),
    [("16x16", *f) for f in FORMATS] + [("8x16", *f) for f in FORMATS[1:3]],
)
def test_equals_the_oracle(layer, precision, coeff, io, rng):
    formats = {"precision": PRECISIONS[precision], "coeff_Qformat": coeff, "io_Qformat": io}
    config = layer.config(**SIZE, **formats)
    drawn, start, xs = cases(layer, rng, TYPES[precision])
    run = over_cases(layer, config, activation="ideal")
    last, states = run(stacked(layer, drawn), start, xs)
    assert_same(states, expected_of(layer, config, drawn, start, xs))
    assert_same(last, [x[:, -1] for x in states])


@EACH
@pytest.mark.parametrize("precision", TYPES)
@pytest.mark.parametrize(
    "size", [(2048, 8), *(pytest.param(s, marks=pytest.mark.slow) for s in [(4, 4), (4, 36)])]
)
def test_other_sizes(layer, precision, size, rng):
    config = layer.config(in_feats=size[0], out_feats=size[1], precision=PRECISIONS[precision])
    run = jax.jit(functools.partial(layer.scan, config, activation="ideal"))
    weights = oracle.draw_weights(rng, layer.oracle, size[0], size[1], TYPES[precision])
    state, xs = layer.draw_state(rng, size[1]), draw(rng, np.int16, (2, size[0]))
    for w in (weights, oracle.scaled(weights, 7), oracle.filled(weights, "min")):
        _, ys = run(layer.weights(**w), state, xs)
        np.testing.assert_array_equal(ys, layer.definition(config, w, state, xs)[0])


@EACH
def test_large_products_that_cancel(layer, rng):
    """Sums are exact: in float32 their errors would be larger than the sums."""
    config = layer.config(in_feats=64, out_feats=8, coeff_Qformat=0, io_Qformat=15)
    of_x = layer.oracle[0]
    matrix, x = oracle.cancelling(rng, 8 * len(of_x), np.int16)
    weights = layer.zeros(64) | dict(zip(of_x, np.split(matrix, len(of_x)), strict=True))
    run = jax.jit(functools.partial(layer.scan, config, activation="ideal"))
    state = jax.tree.map(np.asarray, layer.init(config))
    _, ys = run(layer.weights(**weights), state, x[None])
    np.testing.assert_array_equal(ys, layer.definition(config, weights, state, x[None])[0])
    assert np.unique(ys).size > 4


@EACH
def test_starts_from_zeros(layer):
    types = {"prev_h": np.int16, "prev_c": np.int32}
    for name, part in layer.init(layer.config(**SIZE))._asdict().items():
        assert part.dtype == types[name]
        np.testing.assert_array_equal(part, np.zeros(8))


@EACH
def test_the_defaults_of_the_guide(layer):
    config = layer.config()
    assert (config.in_feats, config.out_feats, config.pad) == (256, 256, 1)
    assert (config.mat_prec, config.vec_prec, config.precision) == (16, 16, Precision.P16bx16b)
    assert (config.coeff_Qformat, config.io_Qformat) == (15, 12)


# Activations.


@pytest.mark.parametrize("precision", TYPES)
@pytest.mark.parametrize(
    ("layer", "scales"), [(GRU, [0.25, 0.5, 0.5, 0.5]), (LSTM, [0.5, 1, 2, 2])], ids=["gru", "lstm"]
)
def test_fixed_is_close_to_ideal_for_100_steps(layer, scales, precision, rng):
    """Weights within scale / sqrt(out_feats).

    With larger weights differences grow from step to step: of a GRU at scale 1 a few outputs are
    off by 3, at 4 by 9.
    """
    bits = np.iinfo(TYPES[precision]).bits
    config = layer.config(
        in_feats=24, out_feats=32, precision=PRECISIONS[precision], coeff_Qformat=bits - 1
    )

    def weight(name, shape):
        kind = np.int16 if name in layer.oracle[2] else TYPES[precision]
        drawn = np.stack([rng.uniform(-scale, scale, shape) for scale in scales / np.sqrt(32)])
        return np.rint(drawn * 2.0 ** (np.iinfo(kind).bits - 1)).astype(kind)

    weights = layer.weights(**{name: weight(name, x) for name, x in layer.shapes(24, 32).items()})
    xs = np.rint(rng.normal(0, 3300, (4, 100, 24))).astype(np.int16)
    state = layer.state(*(np.zeros((4, 32), x.dtype) for x in layer.init(config)))
    fixed, ideal = (
        np.asarray(over_cases(layer, config, activation=name)(weights, state, xs)[1][0], np.int32)
        for name in ("fixed", "ideal")
    )
    assert np.ptp(ideal) > 2**11
    assert 1 <= np.abs(fixed - ideal).max() <= 2


@EACH
def test_fixed_is_the_default_and_takes_coefficients(layer, rng):
    drawn, start, xs = cases(layer, rng, np.int16)
    config, operands = layer.config(**SIZE), (stacked(layer, drawn), start, xs)
    by_default = over_cases(layer, config)(*operands)[1]
    with_arrays = jax.tree.map(lambda x: jnp.asarray(x, jnp.int32), FIXED)

    @jax.jit
    def run(coefficients, operands):
        states = functools.partial(layer.states, config, activation=coefficients)
        return jax.vmap(states)(*operands)[1]

    assert_same(run(with_arrays, operands), by_default)
    halved = with_arrays._replace(tanh_scale=with_arrays.tanh_scale // 2)
    assert (run(halved, operands).prev_h != by_default.prev_h).any()


# Transforms.


@EACH
@pytest.mark.parametrize("x64", [False, True])
def test_transforms(layer, x64, rng):
    config = layer.config(**SIZE)
    drawn, start, xs = cases(layer, rng, np.int16, steps=2)
    weights = layer.weights(**drawn[1])
    wanted = expected_of(layer, config, [drawn[1]] * len(xs), start, xs)
    with jax.enable_x64(x64):
        scan = functools.partial(layer.scan, config, weights, activation="ideal")
        step = functools.partial(layer.step, config, weights, activation="ideal")
        once = jax.jit(step)
        state, first = once(layer.state(*(part[1] for part in start)), xs[1, 0])
        state, second = once(state, xs[1, 1])
        np.testing.assert_array_equal(np.stack([first, second]), wanted.prev_h[1])
        assert_same(state, [part[1, -1] for part in wanted])
        for run in (jax.jit(jax.vmap(scan)), jax.vmap(jax.jit(scan))):
            last, ys = run(start, xs)
            assert ys.dtype == np.int16
            np.testing.assert_array_equal(ys, wanted.prev_h)
            assert_same(last, [part[:, -1] for part in wanted])
        batch = jax.jit(lambda state, xs: jax.lax.scan(jax.vmap(step), state, xs))
        _, ys = batch(start, np.moveaxis(xs, 1, 0))
        np.testing.assert_array_equal(np.moveaxis(ys, 0, 1), wanted.prev_h)


@EACH
@pytest.mark.slow
def test_without_jit(layer, rng):
    config = layer.config(**SIZE)
    drawn, start, xs = cases(layer, rng, np.int16, steps=1)
    weights, state = layer.weights(**drawn[1]), layer.state(*(part[1] for part in start))
    _, y = layer.step(config, weights, state, xs[1, 0])
    _, ys = jax.jit(functools.partial(layer.scan, config))(weights, state, xs[1])
    np.testing.assert_array_equal(y, ys[0])


# Floats.


@pytest.mark.parametrize(
    ("layer", "options"),
    [(GRU, {"update": "library"}), (GRU, {"update": "guide"}), (LSTM, {})],
    ids=["gru-library", "gru-guide", "lstm"],
)
def test_the_float_twin(layer, options, rng):
    drawn = {name: rng.normal(0, 0.4, shape) for name, shape in layer.shapes().items()}
    drawn = {name: x.astype(np.float32) for name, x in drawn.items()}
    weights, xs = layer.weights(**drawn), rng.normal(0, 1, (5, 12)).astype(np.float32)
    start = layer.state(*rng.normal(0, 1, (len(layer.state._fields), 8)).astype(np.float32))
    run = jax.jit(functools.partial(layer.scan_float, **options))
    last, ys = run(weights, start, xs)
    state, first = layer.step_float(weights, start, xs[0], **options)
    exact = {name: x.astype(np.float64) for name, x in drawn.items()}
    wanted = layer.real(exact, *start, xs, **options)
    assert ys.dtype == np.float32
    np.testing.assert_allclose(ys, wanted[0], rtol=0, atol=2e-6)
    np.testing.assert_allclose(state, [part[0] for part in wanted], rtol=0, atol=2e-6)
    np.testing.assert_allclose(last, [part[-1] for part in wanted], rtol=0, atol=2e-6)
    np.testing.assert_array_equal(state.prev_h, first)
    np.testing.assert_array_equal(last.prev_h, ys[-1])
    same, nothing = run(weights, start, xs[:0])
    assert nothing.shape == (0, 8)
    assert_same(same, start)


# Errors.

# In the library's order: what it rejects, and the ends of what it takes.
REJECTED = {
    "in_feats": (1, 0, 2, 6, 2052),
    "out_feats": (1, 0, 3, 2052),
    "precision": (0, Precision.P8bx8b, Precision.F32xF32),
    "coeff_Qformat": (16, -1),
    "cell_Qformat": (26, -1),
    "io_Qformat": (16, -1),
    "pad": (2, -1),
}
ENDS = {
    "in_feats": (4, 2048),
    "out_feats": (4, 2048),
    "precision": tuple(PRECISIONS.values()),
    "coeff_Qformat": (0, 15),
    "cell_Qformat": (0, 25),
    "io_Qformat": (0, 15),
    "pad": (0, 1),
}
FIELDS = [(layer, name) for layer in (GRU, LSTM) for name in ENDS if hasattr(layer.config, name)]


@pytest.mark.parametrize(("layer", "field"), FIELDS)
@pytest.mark.filterwarnings("ignore:cell_Qformat")
def test_invalid_configurations(layer, field):
    name = {"pad": "MEMBANK_PADDING"}.get(field, field.upper())
    weights, state = layer.weights(**layer.zeros()), layer.init(layer.config(**SIZE))
    for found in REJECTED[field]:
        config = layer.config(**{**SIZE, field: found})
        with pytest.raises(NNLibConfigError, match=f"^{layer.name}: {field} is .*{name}") as error:
            layer.step(config, weights, state, np.zeros(12, np.int16))
        assert error.value.code == ErrorCode[f"{layer.name}_CONFIG_FATAL_INVALID_{name}"]
        assert error.value.argument == field


@EACH
@pytest.mark.filterwarnings("ignore:cell_Qformat")
def test_the_first_fault_is_reported(layer):
    wrong = {name: REJECTED[name][0] for name in REJECTED if hasattr(layer.config, name)}
    order, found = list(wrong), []
    while (fault := layer.config(**wrong).fault()) is not None:
        found.append(fault.argument)
        del wrong[fault.argument]
    assert found == order


@pytest.mark.parametrize(("layer", "field"), FIELDS)
@pytest.mark.filterwarnings("ignore:cell_Qformat")
def test_ends_of_ranges_are_valid(layer, field):
    for end in ENDS[field]:
        assert layer.config(**{field: end}).fault() is None


def call(layer, function="scan", changed=None, **options):
    """Traces a function of zeros, but for the arrays that are given by their names."""
    config = layer.config(**SIZE)
    given = layer.zeros() | layer.init(config)._asdict() | {"xs": np.zeros((3, 12), np.int16)}
    given |= changed or {}
    weights, state = (
        kind(*(given[name] for name in kind._fields)) for kind in (layer.weights, layer.state)
    )
    run = functools.partial(getattr(layer, function), config, **options)
    return jax.eval_shape(run, weights, state, given["xs"])


@pytest.mark.parametrize(
    ("layer", "name"),
    [(x, name) for x in (GRU, LSTM) for name in (*sum(x.oracle, ()), *x.state._fields, "xs")],
)
def test_arrays_of_other_shapes_and_types(layer, name):
    sizes = layer.shapes() | dict.fromkeys(layer.state._fields, (8,)) | {"xs": (3, 12)}
    shape, dtype = sizes[name], np.int32 if name == "prev_c" else np.int16
    function = layer.name.lower()
    for wrong in ((*shape, 1), (*shape[:-1], shape[-1] + 4), shape[1:]):
        with pytest.raises(NNLibParamError, match=f"{function}: {name} is of shape") as error:
            call(layer, changed={name: np.zeros(wrong, dtype)})
        assert error.value.argument == name
    for wrong in {np.int8, np.int16, np.int32, np.float32} - {dtype}:
        found = f"{function}: {name} is {np.dtype(wrong)}, expected {np.dtype(dtype)}"
        with pytest.raises(TypeError, match=found):
            call(layer, changed={name: np.zeros(shape, wrong)})


@EACH
def test_other_parameters(layer):
    assert call(layer)[1].shape == (3, 8)
    function = layer.name.lower()
    with pytest.raises(NNLibParamError, match=f"{function}: xs is of shape"):
        call(layer, changed={"xs": np.zeros((0, 12), np.int16)})
    with pytest.raises(NNLibParamError, match=f"{function}: x is of shape"):
        call(layer, "step")
    with pytest.raises(NNLibParamError, match="activation is 'exact', expected one of fixed, id"):
        call(layer, activation="exact")
