"""QModel.apply as a JAX function: one program, seen through by transformations."""

from __future__ import annotations

import pickle
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quant.convert.helpers import constant, floats, uniform, zeros

from tosajax import Builder, DType
from tosajax.quant import LiftedModel, PreparedModel, QModel, calibrate, lift, prepare

SHAPE = (1, 3, 3, 2)
X = jnp.asarray(uniform(0, 4, *SHAPE[1:]))


@pytest.fixture(scope="module")
def model() -> PreparedModel:
    b = Builder()
    y = floats(b, "x", *SHAPE)
    for name in ("first", "second"):
        weights = (constant(b, uniform(1, 2, 1, 1, 2), f"{name}/w"), constant(b, [0.5, -1]))
        static: Any = {"pad": (0, 0, 0, 0), "stride": (1, 1), "dilation": (1, 1)}
        y = b.op("CONV2D", y, *weights, *zeros(b), acc_type=DType.FP32, name=name, **static)
        y = b.op("TANH", y, name=f"{name}/tanh")
    return prepare(b.graph([y]))


@pytest.fixture(scope="module")
def params(model) -> Any:
    return calibrate(model, [X])


def compiled(caplog: pytest.LogCaptureFixture, run: Any) -> list[str]:
    """What is compiled while a function runs."""
    caplog.clear()
    with jax.log_compiles(), caplog.at_level("WARNING"):
        jax.block_until_ready(run())
    texts = [record.getMessage() for record in caplog.records]
    return [text for text in texts if text.startswith("Finished XLA compilation")]


@pytest.mark.parametrize("mode", ["exact", "fake_quant", "float"])
def test_apply_is_one_program(caplog, model, params, mode):
    """Outside `jit`; and none the second time, nor with other values."""
    fresh = model.with_outputs(*model.graph.outputs)
    assert len(compiled(caplog, lambda: fresh.apply(params, X, mode=mode))) == 1
    other, twice, fewer = jax.tree.map(lambda x: x + 0, params), 2 * X, X[:3]
    assert compiled(caplog, lambda: fresh.apply(other, twice, mode=mode)) == []
    # Another number of examples is another program.
    assert len(compiled(caplog, lambda: fresh.apply(params, fewer, mode=mode))) == 1


def test_transformations_see_through_it(model, params):
    (wanted,) = model.apply(params, X)
    np.testing.assert_array_equal(jax.jit(model.apply)(params, X)[0], wanted)
    rows = jax.vmap(lambda x: model.apply(params, x)[0])(X[:, None])
    np.testing.assert_array_equal(rows.reshape(wanted.shape), wanted)

    def loss(values: Any) -> jax.Array:
        return jnp.square(model.apply({**params, "values": values}, X)[0]).mean()

    eager, jitted = jax.grad(loss)(params["values"]), jax.jit(jax.grad(loss))(params["values"])
    for name, gradient in eager.items():
        np.testing.assert_allclose(gradient, jitted[name], rtol=1e-5, atol=1e-7)
        assert np.abs(gradient).max() > 0


def test_programs_are_of_one_model(model, params):
    """Models are equal where they are one; copies have programs of their own."""
    (wanted,) = model.apply(params, X)
    copy = pickle.loads(pickle.dumps(model))
    assert copy != model
    assert model == model
    assert len({model, copy, model}) == 2
    np.testing.assert_array_equal(copy.apply(params, X)[0], wanted)
    (inner,) = model.with_outputs("first").apply(params, X)
    assert np.asarray(inner).tolist() != np.asarray(wanted).tolist()


def test_a_prepared_model_has_a_float_graph_and_a_lifted_one_does_not(model, params):
    lifted, own = lift(model.freeze(params))
    assert isinstance(model, PreparedModel)
    assert isinstance(lifted, LiftedModel)
    assert isinstance(model, QModel)
    assert isinstance(lifted, QModel)
    assert model.float_graph.outputs == model.graph.outputs
    assert not hasattr(lifted, "float_graph")
    counts = {group: len(constants) for group, constants in own.items()}
    assert ", ".join(f"{group} {count}" for group, count in counts.items()) in repr(lifted)
    for mode in ("fake_quant", "float"):
        with pytest.raises(ValueError, match=f"mode '{mode}' of a model without a float graph"):
            lifted.apply(own, X, mode=mode)
    unknown: Any = "exakt"
    with pytest.raises(ValueError, match="mode 'exakt', expected"):
        lifted.apply(own, X, mode=unknown)
    with pytest.raises(ValueError, match="keeps no batch norms"):
        lifted.apply_batch(own, X)


def test_a_model_is_one_of_the_two(model):
    with pytest.raises(TypeError, match="abstract"):
        QModel(model.graph, model.plan)  # pyright: ignore[reportAbstractUsage]


def test_with_other_outputs_a_model_stays_of_its_type(model, params):
    lifted, _ = lift(model.freeze(params))
    inner = model.with_outputs("first")
    assert inner.graph.outputs == inner.float_graph.outputs == ("first",)
    assert isinstance(lifted.with_outputs("first"), LiftedModel)


def test_a_pickled_model_leaves_its_programs_behind(caplog, model, params):
    model.apply(params, X)
    copy = pickle.loads(pickle.dumps(model))
    assert len(compiled(caplog, lambda: copy.apply(params, X))) == 1


def test_errors_come_before_tracing(model, params):
    with pytest.raises(ValueError, match="mode 'exakt'"):
        model.apply(params, X, mode="exakt")
    with pytest.raises(TypeError, match="2 inputs, expected 1"):
        model.apply(params, X, X)
    with pytest.raises(ValueError, match=r"inputs of shapes \[\(3, 2\)\], expected x INT8"):
        model.apply(params, X[0, 0])
    with pytest.raises(ValueError, match=r"'x' has integers in \[.*300\], expected INT8"):
        model.apply(params, np.full(SHAPE, 300))
