"""Examples whose outputs would leave those of all others few integers."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tosajax import quant as tq
from tosajax.quant.outliers import Sizes, outliers, sizes_of, times_usual

INT8, INT4 = 255, 15


def left_out(largest: Sequence[float], power: Sequence[float] | None = None, levels=INT8):
    """Of examples whose mean square is a tenth of the largest square, where it is not given."""
    large = np.array([largest])
    squares = 0.1 * large**2 if power is None else np.array([power])
    return sorted(outliers(Sizes(large, squares), [levels]))


@pytest.mark.parametrize(
    ("largest", "levels", "wanted"),
    [
        ([1.0] * 10, INT8, []),
        ([1.0] * 9 + [3.0], INT8, []),
        ([1.0] * 9 + [300.0], INT8, [9]),
        ([1.0, 300.0] + [1.0] * 8, INT8, [1]),
        ([1.0] * 9 + [90.0], INT8, []),  # 90 / 127 leaves something
        ([1.0] * 9 + [30.0], INT4, [9]),
        ([1.0] * 8 + [300.0] * 2, INT8, [8, 9]),
        ([1.0] * 7 + [300.0] * 3, INT8, []),  # too many
        ([1.0] * 6 + [300.0], INT8, []),  # too few examples
        ([1.0] * 7 + [300.0], INT8, [7]),
        ([0.0] * 7 + [300.0], INT8, []),  # the others have nothing
        ([1.0] * 9 + [300.0], 2**16 - 1, []),
    ],
)
def test_what_costs_more_than_itself(largest, levels, wanted):
    assert left_out(largest, levels=levels) == wanted


def test_a_rare_example_with_something_stays():
    """31 maps of next to nothing, and one of something: there rounding may take the rest."""
    assert left_out([0.002] * 31 + [1.0], [1e-6] * 31 + [0.01]) == []
    assert left_out([0.02] * 31 + [10.0], [1e-4] * 31 + [1.0]) == [31]


def test_each_output_has_its_own():
    largest = np.ones((2, 12))
    largest[0, 3], largest[1, 3], largest[1, 7] = 200, 390, 400
    found = outliers(Sizes(largest, largest**2), [INT8, INT8])
    assert found == {3: (1, 390.0), 7: (1, 400.0)}
    largest[0, 3:6], largest[1, 3:9] = 400, [1, 1, 1, 400, 400, 400]
    assert outliers(Sizes(largest, largest**2), [INT8, INT8]) == {}


@pytest.mark.parametrize(
    ("largest", "wanted"),
    [
        ([[2.0, 2, 2, 2, 2, 20]], [1, 1, 1, 1, 1, 10]),
        ([[0.1] * 5 + [1.0]], [1] * 6),  # within [-1, 1]
        ([[0.0] * 5 + [9.0]], [1] * 6),  # usually nothing
        ([[2.0] * 6, [3.0] * 5 + [6.0]], [1, 1, 1, 1, 1, 2]),
        ([[2.0, 2, 2, 20, 20, 20]], [1] * 6),  # usual
        (np.zeros((0, 6)), [1] * 6),
    ],
)
def test_times_as_large_as_usual(largest, wanted):
    sizes = Sizes(np.array(largest), np.array(largest))
    np.testing.assert_allclose(np.maximum(times_usual(sizes), 1), wanted)


def test_sizes_are_of_finite_numbers():
    y = jnp.array([[1, -3], [np.inf, 2], [np.nan, 0]], jnp.float32)
    sizes = sizes_of([y, y[:, :, None]], 3)
    np.testing.assert_array_equal(sizes.largest, [[3, 2, 0]] * 2)
    np.testing.assert_array_equal(sizes.power, [[5, 2, 0]] * 2)


def network(x: jax.Array) -> jax.Array:
    w = np.random.default_rng(0).normal(0, 1, (2, 6, 6)).astype(np.float32)
    return jax.nn.relu(x @ w[0]) @ w[1]


def batches() -> list[np.ndarray]:
    examples = np.random.default_rng(1).normal(0, 1, (4, 4, 6)).astype(np.float32)
    examples[2, 1] *= 500
    return list(examples)


def model() -> tq.PreparedModel:
    return tq.prepare(network, example_args=[np.zeros((1, 6), np.float32)])


def test_ranges_leave_them_out():
    text = r"1 of 16 examples .* in example 1 of batch 2, 'output' reaches .* ranges leave them out"
    with pytest.warns(UserWarning, match=text):
        params = tq.calibrate(model(), batches())
    usual = batches()
    usual[2] = usual[2][[0, 0, 2, 3]]
    wanted = tq.calibrate(model(), usual)
    jax.tree.map(np.testing.assert_array_equal, params, wanted)


def test_batches_that_cannot_be_repeated_are_warned_of():
    with pytest.warns(UserWarning, match="a list of batches lets ranges leave them out"):
        params = tq.calibrate(model(), iter(batches()))
    assert max(float(each.scale.max()) for each in params["qparams"].values()) > 1


@pytest.mark.parametrize("act", [tq.QSpec("i16"), tq.QSpec(observer=tq.fixed(0.1))])
def test_outputs_that_lose_nothing_are_not_looked_at(act):
    prepared = tq.prepare(
        network, [tq.rule(".*", act=act)], example_args=[np.zeros((1, 6), np.float32)]
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tq.calibrate(prepared, batches())


def test_a_batch_of_them_alone():
    singles = [x[n : n + 1] for x in batches() for n in range(4)]
    with pytest.warns(UserWarning, match="1 of 16 examples"):
        params = tq.calibrate(model(), singles)
    wanted = tq.calibrate(model(), singles[:9] + singles[10:])
    jax.tree.map(np.testing.assert_array_equal, params, wanted)
