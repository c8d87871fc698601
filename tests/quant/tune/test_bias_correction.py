"""bias_correct where several sums add the same constant."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from quant.image_networks import Images

from tosajax import quant as tq
from tosajax.quant.model.batches import parts
from tosajax.quant.tune import bias_correction as bias_file

IMAGES = np.random.default_rng(0).normal(0.2, 1, (8, 6, 6, 3)).astype(np.float32)
SUMS = ("first", "a", "b", "last")


def prepared(shared: np.ndarray) -> tq.PreparedModel:
    """Three convolutions, of which two have the same bias; weights of few bits err in the mean."""
    n = Images()
    bias = n.const("shared", shared)
    y = n.conv(n.conv(n.conv(n.input, "first"), "a", bias=bias), "b", bias=bias)
    graph = n.b.graph([n.conv(y, "last")])
    return tq.prepare(graph, [tq.rule("", weight=tq.QSpec("i8", bits=3))])


def mean_errors(model: tq.PreparedModel, params) -> np.ndarray:
    watched = model.with_outputs(*SUMS)
    pairs = zip(
        jax.jit(watched.apply)(params, IMAGES),
        watched.apply(params, IMAGES, mode="float"),
        strict=True,
    )
    return np.array([np.abs((y - wanted).mean((0, 1, 2))).max() for y, wanted in pairs])


@pytest.mark.parametrize("size", [1, 4])
def test_convolutions_without_bias_have_one_each(size):
    """Exporters let all convolutions without bias read the same zeros."""
    model = prepared(np.zeros(size))
    params = tq.calibrate(model, [IMAGES])
    corrected = tq.bias_correct(model, params, [IMAGES])
    assert len(corrected["corrections"]) == len(SUMS)
    before, after = mean_errors(model, params), mean_errors(model, corrected)
    assert (after < before / 5).all()
    assert tq.check_bit_exact(model, corrected, IMAGES[:2], against=("frozen",))


def test_parts_of_examples_count_by_their_size(monkeypatch):
    n = Images()
    model = tq.prepare(n.b.graph([n.conv(n.input, "last")]))
    params = tq.calibrate(model, [IMAGES])
    together = tq.bias_correct(model, params, [IMAGES[:7]])["corrections"]
    sizes = []
    monkeypatch.setattr(bias_file, "examples_at_once", lambda graph: 1)
    monkeypatch.setattr(bias_file, "parts", lambda joined, step: noted(sizes, parts(joined, step)))
    found = tq.bias_correct(model, params, [IMAGES[:7]])["corrections"]
    assert sizes == [4, 3]  # never fewer than four, if there are as many
    for name, correction in together.items():
        np.testing.assert_allclose(found[name], correction, rtol=1e-3)


def noted(sizes, found):
    sizes += [part[0].shape[0] for part in found]
    return found


def test_one_bias_for_all_channels_takes_their_mean():
    n = Images()
    bias = n.const("one", np.ones(1))
    graph = n.b.graph([n.conv(n.input, "last", bias=bias)])
    model = tq.prepare(graph, [tq.rule("", weight=tq.QSpec("i8", bits=3))])
    params = tq.calibrate(model, [IMAGES])
    corrected = tq.bias_correct(model, params, [IMAGES])
    (wanted,) = model.apply(params, IMAGES, mode="float")
    errors = [abs((model.apply(p, IMAGES)[0] - wanted).mean()) for p in (params, corrected)]
    assert errors[1] < errors[0] / 5


def test_no_value_suits_two_sums():
    model = prepared(np.ones(4))
    params = tq.calibrate(model, [IMAGES])
    corrected = tq.bias_correct(model, params, [IMAGES])
    assert set(corrected["corrections"]) == {"first/b", "last/b"}
    assert mean_errors(model, corrected)[0] < mean_errors(model, params)[0] / 5
