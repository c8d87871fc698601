"""What follows parameters: whatever is changed, the integer graph computes the float function."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from quant.convert.helpers import constant, floats, uniform, zeros

from tosajax import Builder, DType, Graph
from tosajax import quant as tq
from tosajax.quant.storages import zero_point_integer

SHAPE = (1, 4, 4, 3)
IMAGES = uniform(3, 8, *SHAPE[1:])
TYPES = {"int8": tq.QSpec("i8", symmetric=False), "int16": tq.QSpec("i16")}


def network() -> Graph:
    """Two convolutions, one of which two tables read; a function of the input, and of a sum."""
    b, rng = Builder(), np.random.default_rng(0)

    def conv(x: Any, name: str) -> Any:
        weight = constant(b, rng.normal(0, 0.5, (3, 1, 1, 3)), f"{name}/weight")
        bias = constant(b, rng.normal(0, 0.2, 3), f"{name}/bias")
        static = {"pad": (0, 0, 0, 0), "stride": (1, 1), "dilation": (1, 1), "acc_type": DType.FP32}
        return b.op("CONV2D", x, weight, bias, *zeros(b), **static, name=name)

    x = floats(b, "x", *SHAPE)
    first = conv(b.op("TANH", x, name="of_input"), "first")
    gate = b.op("SIGMOID", first, name="gate")
    product = b.op("MUL", gate, first, b.const([0], DType.INT8), name="product")
    total = b.op("ADD", conv(product, "second"), b.op("EXP", first, name="grown"), name="total")
    return b.graph([b.op("ERF", total, name="y"), total])


def changed(model: tq.PreparedModel, params: Any, rng: np.random.Generator) -> Any:
    """Other values, and by chance other bits, scales and zero points of every tensor."""
    values = {n: v * jnp.float32(rng.uniform(0.5, 2)) for n, v in params["values"].items()}
    bits, qparams = {}, {}
    for name, spec in model.specs.items():
        if rng.random() < 0.5:
            bits[name] = spec.storage.dtype.bits - int(rng.integers(4))
    params = tq.with_bits(model, {**params, "values": values}, bits)
    for name, known in params["qparams"].items():
        # Where INT16 saturates, a table interpolates between its last entry and the end.
        least = 0.8 if known.dtype is DType.INT8 else 1.0
        scale = known.scale * jnp.float32(rng.uniform(least, 1.5))
        moved = 0 if known.symmetric else int(rng.integers(-9, 10))
        qparams[name] = dataclasses.replace(known, scale=scale, zero_point=known.zero_point + moved)
    return {**params, "qparams": qparams}


def assert_follows(model: tq.PreparedModel, params: Any) -> None:
    """Each tensor is the float function of those before it, within steps of its own scale."""
    watched = model.with_outputs(*model.activations)
    # Weights that are on their grid, so that only steps of activations are left.
    weights = {n: tq.fake_quant(params["values"][n], params["qparams"][n]) for n in model.weights}
    params = {**params, "values": params["values"] | weights}
    found = jax.jit(watched.apply)(params, IMAGES)
    wanted = jax.jit(model.local)(params, IMAGES)
    for name, value in zip(model.activations, found, strict=True):
        qparams = params["qparams"][name]
        step, zero_point = float(qparams.scale), float(zero_point_integer(qparams).q)
        low, high = ((float(end) - zero_point) * step for end in qparams.grid)
        error = np.abs(np.asarray(value) - np.clip(np.asarray(wanted[name]), low, high)).max()
        # A table of INT16 interpolates between entries, rounded as well.
        assert error <= step * (1 if qparams.dtype is DType.INT8 else 2), name


@pytest.fixture(scope="module", params=TYPES)
def model(request) -> tq.PreparedModel:
    rules = [tq.rule(".*", act=TYPES[request.param])]
    return tq.prepare(network(), rules, wide_elementwise=False)


@pytest.fixture(scope="module")
def params(model) -> Any:
    return tq.calibrate(model, [IMAGES])


@pytest.mark.parametrize("seed", range(4))
def test_whatever_is_changed(model, params, seed):
    other = changed(model, params, np.random.default_rng(seed))
    with pytest.raises(ValueError, match=r"table of .* was sampled where .* had .*sample_tables"):
        model.freeze(other)
    other = tq.sample_tables(model, other)
    assert_follows(model, other)
    assert tq.check_bit_exact(model, other, IMAGES, against=("frozen",))


def test_with_bits_samples_tables_again(model, params):
    other = tq.with_bits(model, params, {"x": 4})
    assert_follows(model, other)
    assert other["tables"]["grown"] is params["tables"]["grown"]
    assert (other["tables"]["of_input"] != params["tables"]["of_input"]).any()
    model.freeze(other)


def test_bits_may_be_traced(model, params):
    @jax.jit
    def traced(bits):
        return tq.with_bits(model, params, {"x": bits})

    found, wanted = traced(jnp.float32(5)), tq.with_bits(model, params, {"x": 5})
    np.testing.assert_allclose(found["tables"]["of_input"], wanted["tables"]["of_input"], rtol=1e-6)
    model.freeze(found)
    slope = jax.jit(jax.grad(lambda b: traced(b)["tables"]["of_input"].sum()))(jnp.float32(5))
    assert slope == 0


def test_training_keeps_what_tables_were_sampled_in(model):
    """Also with weight decay, and where a step takes over the memory of the parameters."""
    params = tq.calibrate(model, [IMAGES])
    before = np.array(params["tables"]["grown"])
    optimizer: Any = tq.relative(optax.adamw(1e-3, weight_decay=0.1))

    def loss(params):
        return jnp.square(model.apply(params, IMAGES)[0]).mean()

    @functools.partial(jax.jit, donate_argnums=0)
    def step(params, state):
        updates, state = optimizer.update(jax.grad(loss)(params), state, params)
        return jax.tree.map(jnp.add, params, updates), state

    with jax.numpy_dtype_promotion("standard"):  # for optax
        params, _ = step(params, optimizer.init(params))
    assert (params["tables"]["grown"] != before).any()
    model.freeze(params)


@pytest.mark.parametrize("what", ["scale", "zero_point", "bits"])
def test_stale_samples_are_named(model, params, what):
    known = params["qparams"]["first"]
    other = dataclasses.replace(known, **{what: getattr(known, what) + 1})
    params = {**params, "qparams": params["qparams"] | {"first": other}}
    message = f"the table of '(product|grown)' was sampled where 'first' had {what} .*, and it has"
    with pytest.raises(ValueError, match=message):
        model.apply(params, IMAGES)
    model.apply(params, IMAGES, mode="float")
