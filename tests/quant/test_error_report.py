"""report: what the outputs lose by each tensor, and by which part of it."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tosajax import quant
from tosajax.quant.error_report import worst_part
from tosajax.quant.model.output_noise import noise_of_outputs

WIDTH = 8


def drawn(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


W = [drawn(WIDTH, WIDTH, seed=seed) / 3 for seed in range(4)]


def joined(x):
    """Boxes and scores in one tensor, whose scale leaves the scores few steps."""
    h = jnp.tanh(x @ W[0])
    y = jnp.concatenate([640 * jax.nn.sigmoid(h @ W[1]), jax.nn.sigmoid(h @ W[2])], -1)
    y = y[:, ::-1]  # or a slice would read its operand
    return y[:, WIDTH:] * 0.5, jnp.tanh(y[:, :WIDTH] @ W[3])


def normed(x):
    """An RMS norm by a RSQRT in INT8, whose range a row of zeros decides."""
    h = x @ W[0]
    return (h * jax.lax.rsqrt((h * h).mean(-1, keepdims=True) + 1e-6)) @ W[1]


def reported(fn: Any, x: np.ndarray, **options: Any) -> quant.QuantReport:
    model = quant.prepare(fn, example_args=(x[:1],), **options)
    return quant.report(model, quant.calibrate(model, [x]), x)


def rows_of(report: quant.QuantReport) -> dict[str, quant.Row]:
    return {row.tensor: row for row in report.rows}


@pytest.mark.filterwarnings("ignore:CONCAT")
def test_joined_scales_are_blamed_with_their_part():
    """The whole of the tensor looks well."""
    report = reported(joined, drawn(64, WIDTH, seed=7))
    worst = report.worst
    assert worst.op == "CONCAT"
    assert worst.local_sqnr > 35
    assert worst.output_sqnr < 10
    assert worst.part_sqnr < 10
    assert int(worst.part.removeprefix("channel ")) >= WIDTH
    assert f"; {worst.part}: {worst.part_sqnr:.1f} dB by itself" in str(report)


def test_a_row_that_does_not_matter_is_not_blamed():
    """The inverse norm of zeros is 0 dB by itself, and is multiplied by zeros."""
    x = drawn(4, 16, WIDTH, seed=3)
    x[0, 0] = 0
    report = reported(normed, x, wide_normalizers=False)
    row = rows_of(report)["rsqrt"]
    assert row.local_sqnr < 5
    assert row.output_sqnr > report.worst.output_sqnr + 5
    assert report.worst.tensor != "rsqrt"


def network(x):
    y = jax.nn.relu(x @ W[0])
    y = jax.nn.relu(y @ W[1]) + y
    return y @ W[2], jax.nn.softmax(y @ W[3])


def test_noise_is_that_of_the_error_added_by_hand():
    x = drawn(32, WIDTH, seed=5)
    model = quant.prepare(network, example_args=(x[:1],))
    params = quant.calibrate(model, [x])
    plain = model.apply(params, x, mode="float")
    names = [*model.outer_activations][:4]
    errors = {n: 1e-3 * drawn(32, 1, WIDTH, seed=i) for i, n in enumerate(names)}
    found = noise_of_outputs(model, params, errors, (jnp.asarray(x),))
    graph = model.float_graph
    for name, error in errors.items():
        error = error.reshape(32, *(graph.tensors[name].shape or ()))
        values = model.with_outputs(name).apply(params, x, mode="float")[0].reshape(error.shape)
        after = _from(model, params, x, {name: values + error})
        wanted = sum(
            float(np.sum(np.square(a - b)) / np.sum(np.square(b)))
            for a, b in zip(after, plain, strict=True)
        )
        assert wanted / 2 < found[name] < wanted * 2, name


def _from(model: Any, params: Any, x: np.ndarray, values: dict[str, Any]) -> list[np.ndarray]:
    """The outputs, where a tensor has other values."""
    from tosajax.quant.model.run import run_floats

    outputs = [
        run_floats(
            model,
            params,
            *(jnp.asarray(x[at : at + 1]),),
            rounded=lambda n, y, at=at: values[n][at] if n in values else y,
        )
        for at in range(len(x))
    ]
    return [np.concatenate(each) for each in zip(*outputs, strict=True)]


def test_an_input_counts_by_its_rounding():
    rows = rows_of(reported(network, drawn(16, WIDTH)))
    assert rows["x"].local_sqnr == math.inf
    assert 30 < rows["x"].output_sqnr < 70


def test_errors_of_nothing_have_no_noise():
    report = reported(lambda x: jnp.concatenate([x, x], -1), drawn(16, WIDTH))
    assert rows_of(report)["x"].output_sqnr < 70
    assert report.worst.tensor == "x"


@pytest.mark.parametrize(
    ("shape", "place", "part"),
    [
        ((3, 4, 5), (slice(None), slice(None), 2), "channel 2"),
        ((3, 4, 5), (slice(None), 3), "3 of axis 0"),
        ((4, 5), (slice(None), 2), "channel 2"),  # one example
        ((1, 5), (slice(None), 0), "channel 0"),
    ],
)
def test_the_worst_part(shape, place, part):
    wanted = np.ones(shape, np.float32)
    actual = wanted + 0.01
    actual[place] += 0.99
    assert worst_part(wanted, actual, shape[-2:]) == (part, pytest.approx(0, abs=1e-3))


def test_parts_of_no_noise_or_no_signal():
    wanted = np.ones((3, 4), np.float32)
    assert worst_part(wanted, wanted, (4,)) == ("", math.inf)
    assert worst_part(0 * wanted, wanted, (4,)) == ("channel 0", -math.inf)
    assert worst_part(np.ones((3, 1)), np.zeros((3, 1)), (1,)) == ("", math.inf)
