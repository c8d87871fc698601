"""Recorded calls of layers and kernels are one equation, and leave as graphs with their bits."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import ClosedJaxpr, JaxprEqn, Literal, jaxpr_as_fun
from oracle.hifi_oracle import draw, draw_quant
from oracle.transforms import assert_identical
from recorded import record, recorded

import tosajax
from tosajax import Graph, UnsupportedError
from tosajax.hifi import custom, kernels, to_tosa
from tosajax.hifi.kernels import Quant
from tosajax.hifi.kernels.activations import FIXED
from tosajax.hifi.layers import (
    CNNWeights,
    GRUConfig,
    GRUState,
    GRUWeights,
    LSTMConfig,
    LSTMState,
    LSTMWeights,
    Precision,
    cnn_apply,
    conv1d_std_config,
    conv2d_ds_config,
    conv2d_std_config,
    gru_scan,
    gru_step,
    lstm_scan,
    lstm_step,
)

pytestmark = pytest.mark.usefixtures("quick")

IN, OUT, STEPS = 4, 8, 3
RNG = np.random.default_rng(11)


def drawn(dtype: type, *shape: int) -> jax.Array:
    return jnp.asarray(draw(RNG, dtype, shape))


def weights_of(kind: Any, dtype: type, gates: int) -> Any:
    matrices = [draw(RNG, dtype, (OUT, columns)) for _ in range(gates) for columns in (IN, OUT)]
    if kind is LSTMWeights:
        matrices = [*matrices[::2], *matrices[1::2]]
    return kind(*matrices, *(draw(RNG, np.int16, (OUT,)) for _ in range(gates)))


GRU = GRUConfig(in_feats=IN, out_feats=OUT, coeff_Qformat=9)
LSTM = LSTMConfig(in_feats=IN, out_feats=OUT, precision=Precision.P8bx16b, coeff_Qformat=7)
GRU_WEIGHTS, LSTM_WEIGHTS = weights_of(GRUWeights, np.int16, 3), weights_of(LSTMWeights, np.int8, 4)
ODD = FIXED._replace(sigmoid_scale=774541000, reciprocal=np.asarray(FIXED.reciprocal, np.int32))
WINDOW = {"input_size": (5, 4, 4), "kernel_size": (2, 3), "output_size": (3, 2)}
STD, DS = (
    conv2d_std_config(**WINDOW, output_channels=4),
    conv2d_ds_config(**WINDOW, output_channels=4),
)
ROWS = conv1d_std_config(input_size=(5, 1, 4), kernel_height=2, output_height=4, output_channels=4)


def cnn_weights(*shapes: tuple[int, ...]) -> CNNWeights:
    types = (np.int8, np.int16, np.int8, np.int16)
    return CNNWeights(*(draw(RNG, t, shape) for t, shape in zip(types, shapes, strict=False)))


PAIR = (4, 2, 3), (4,), (4, 4), (4,)

# A layer as a function of arrays, and those arrays.
LAYERS: dict[str, tuple[Callable[..., Any], tuple[jax.Array, ...]]] = {
    "gru_scan": (
        lambda h, xs: gru_scan(GRU, GRU_WEIGHTS, GRUState(h), xs, update="guide"),
        (drawn(np.int16, OUT), drawn(np.int16, STEPS, IN)),
    ),
    "gru_step": (
        lambda h, x: gru_step(GRU, GRU_WEIGHTS, GRUState(h), x, activation=ODD),
        (drawn(np.int16, OUT), drawn(np.int16, IN)),
    ),
    "lstm_scan": (
        lambda h, c, xs: lstm_scan(LSTM, LSTM_WEIGHTS, LSTMState(h, c), xs),
        (drawn(np.int16, OUT), drawn(np.int32, OUT), drawn(np.int16, STEPS, IN)),
    ),
    "lstm_step": (
        lambda h, c, x: lstm_step(LSTM, LSTM_WEIGHTS, LSTMState(h, c), x, activation="ideal"),
        (drawn(np.int16, OUT), drawn(np.int32, OUT), drawn(np.int16, IN)),
    ),
    "cnn_apply": (
        functools.partial(lambda x, w: cnn_apply(STD, w, x), w=cnn_weights((4, 2, 3, 4), (4,))),
        (drawn(np.int16, 5, 4, 4),),
    ),
    "cnn_apply of rows": (
        functools.partial(lambda x, w: cnn_apply(ROWS, w, x), w=cnn_weights((4, 2, 1, 4), (4,))),
        (drawn(np.int16, 5, 1, 4),),
    ),
    "cnn_apply of two": (
        functools.partial(lambda x, w: cnn_apply(DS, w, x), w=cnn_weights(*PAIR)),
        (drawn(np.int16, 4, 5, 4),),
    ),
}


def quant(*shape: int) -> Quant:
    return Quant(*draw_quant(RNG, np.int8, shape))


def bias(channels: int) -> np.ndarray:
    return RNG.integers(-(2**17), 2**17, channels).astype(np.int32)


def int8(*shape: int) -> np.ndarray:
    return draw(RNG, np.int8, shape)


IMAGE = drawn(np.int8, 5, 4, 3)
CONV: dict[str, Any] = {"out_size": (4, 3), "precision": "per_chan_sym8sxasym8s"}
OUT_SCALE: dict[str, Any] = {"out_multiplier": 1217359430, "out_shift": -3, "out_zero_bias": 11}
BOUNDS: dict[str, Any] = {"out_activation_min": -128, "out_activation_max": 120}
ZERO_BIASES: dict[str, Any] = {"inp1_zero_bias": -3, "inp2_zero_bias": 7}
INPUT_SCALES: dict[str, Any] = {
    "inp1_multiplier": 1637894423,
    "inp1_shift": -1,
    "inp2_multiplier": 2**30,
    "inp2_shift": 0,
}

MULTIPLIED: dict[str, Any] = {**OUT_SCALE, **BOUNDS, **ZERO_BIASES}

KERNELS: dict[str, tuple[Callable[..., Any], tuple[jax.Array, ...]]] = {
    "activation_min_max": (
        lambda x: kernels.activation_min_max(x, -7, 90, precision="8_8"),
        (drawn(np.int8, 12),),
    ),
    "conv2d_depthwise": (
        functools.partial(
            lambda x, w, b, q: kernels.conv2d_depthwise(x, w, b, quant=q, **CONV),
            w=int8(2, 2, 12),
            b=bias(12),
            q=quant(12),
        ),
        (IMAGE,),
    ),
    "conv2d_pointwise": (
        functools.partial(
            lambda x, w, b, q: kernels.conv2d_pointwise(
                x, w, b, quant=q, precision=CONV["precision"]
            ),
            w=int8(8, 3),
            b=bias(8),
            q=quant(8),
        ),
        (IMAGE,),
    ),
    "conv2d_std": (
        functools.partial(
            lambda x, w, b, q: kernels.conv2d_std(x, w, b, quant=q, **CONV),
            w=int8(8, 2, 2, 3),
            b=bias(8),
            q=quant(8),
        ),
        (IMAGE,),
    ),
    "elm_add": (
        lambda x, y: kernels.elm_add(
            x, y, **OUT_SCALE, **BOUNDS, **ZERO_BIASES, **INPUT_SCALES, left_shift=10
        ),
        (drawn(np.int8, 16), drawn(np.int8, 16)),
    ),
    "elm_mul": (
        functools.partial(lambda x, y: kernels.elm_mul(x, y, **MULTIPLIED), y=int8(16)),
        (drawn(np.int8, 16),),
    ),
    "elm_quantize": (
        lambda x: kernels.elm_quantize(x, inp_zero_bias=3, **OUT_SCALE),
        (drawn(np.int16, 16),),
    ),
    "fully_connected": (
        functools.partial(
            lambda x, w, b, q: kernels.fully_connected(
                w, x, b, precision="sym8sxasym8s_asym8s", quant=q
            ),
            w=int8(5, 12),
            b=bias(5),
            q=quant(),
        ),
        (drawn(np.int8, 12),),
    ),
    "interpolation_q15": (
        lambda a, x, y: kernels.interpolation_q15(a, x, y),
        tuple(drawn(np.int16, 8) for _ in range(3)),
    ),
    "matmul": (
        functools.partial(
            lambda x, w, q: kernels.matmul(
                w, x, None, precision="per_chan_sym8sxasym8s_asym8s", quant=q
            ),
            w=int8(5, 12),
            q=quant(5),
        ),
        (drawn(np.int8, 12, 3),),
    ),
    "maxpool": (
        lambda x: kernels.maxpool(x, precision="8", kernel=[2, 2], out_size=(4, 3)),
        (IMAGE,),
    ),
    "relu": (lambda x: kernels.relu(x, 100, precision="16_16"), (drawn(np.int16, 16),)),
}


def operands_of(jaxpr: ClosedJaxpr, eqn: JaxprEqn) -> list[Any]:
    """What is known of the operands of an equation, or their shape."""
    constants: dict[Any, Any] = dict(zip(jaxpr.jaxpr.constvars, jaxpr.consts, strict=True))

    def known(x: Any) -> Any:  # of a variable or a literal
        if isinstance(x, Literal):
            return np.asarray(x.val)
        return constants.get(x, jax.ShapeDtypeStruct(x.aval.shape, x.aval.dtype))

    variables: list[Any] = eqn.invars
    return [known(x) for x in variables]


def left(module: Any, jaxpr: ClosedJaxpr, eqn: JaxprEqn) -> Graph:
    graph = module.graph_of(eqn.params["op"], eqn.params["call"], operands_of(jaxpr, eqn))
    assert tosajax.validate(graph).findings == ()
    return graph


def run(graph: Graph, operands: Sequence[jax.Array]) -> list[jax.Array]:
    compiled = tosajax.compile(graph, custom_ops=custom.OPERATORS)
    return jax.tree.leaves(compiled(*operands))


def assert_same(results: Any, expected: Any) -> None:
    found, wanted = jax.tree.leaves(results), jax.tree.leaves(expected)
    for one, other in zip(found, wanted, strict=True):
        assert_identical(one, other)


@pytest.mark.parametrize("name", [*LAYERS, *KERNELS])
def test_one_equation_of_the_same_bits(name: str):
    function, operands = {**LAYERS, **KERNELS}[name]
    jaxpr = record(function, *operands)
    (eqn,) = jaxpr.eqns
    folder = "layers" if name in LAYERS else "kernels"
    assert eqn.params["op"] == f"hifi.{folder}.{name.split()[0]}"
    assert_same(jax.jit(jaxpr_as_fun(jaxpr))(*operands), jax.jit(function)(*operands))


def test_every_kernel_of_to_tosa():
    assert KERNELS.keys() == set(to_tosa.__all__) - {"graph_of", "to_graph"}


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_leaves_as_custom(name: str):
    function, operands = LAYERS[name]
    jaxpr = record(function, *operands)
    graph = left(custom, jaxpr, jaxpr.eqns[0])
    assert [node.op for node in graph.nodes].count("CUSTOM") == 1
    assert_same(run(graph, operands), jax.jit(function)(*operands))


@pytest.mark.parametrize("name", LAYERS)
def test_a_batch_leaves_as_one_custom(name: str):
    """Of two `vmap`s; what all examples share is repeated."""
    function, operands = LAYERS[name]
    more = [jnp.stack([x, jnp.roll(x, 1), -x]) for x in operands[:-1]]
    last = jnp.stack([operands[-1], operands[-1][::-1]])
    inner = jax.vmap(function, (*(None for _ in more), 0))
    mapped = jax.vmap(inner, (*(0 for _ in more), None)) if more else inner
    jaxpr = record(mapped, *more, last)
    (eqn,) = recorded(jaxpr)
    graph = left(custom, jaxpr, eqn)
    assert [node.op for node in graph.nodes].count("CUSTOM") == 1
    assert_same(run(graph, [*more, last]), jax.jit(mapped)(*more, last))


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_leaves_as_operators(name: str):
    function, operands = KERNELS[name]
    jaxpr = record(function, *operands)
    graph = left(to_tosa, jaxpr, jaxpr.eqns[0])
    assert "CUSTOM" not in {node.op for node in graph.nodes}
    assert_same(run(graph, operands), jax.jit(function)(*operands))


def test_a_batch_of_kernels_is_a_kernel_for_each():
    x = drawn(np.int16, 3, 8)
    jaxpr = record(jax.vmap(KERNELS["relu"][0]), x)
    assert [eqn.params["op"] for eqn in recorded(jaxpr)] == ["hifi.kernels.relu"] * 3
    assert_same(jaxpr_as_fun(jaxpr)(x), kernels.relu(x, 100, precision="16_16"))


def test_a_state_that_is_known():
    _, (h, xs) = LAYERS["gru_scan"]
    zero = jnp.zeros_like(h)
    jaxpr = record(lambda xs: gru_scan(GRU, GRU_WEIGHTS, GRUState(np.zeros(8, np.int16)), xs), xs)
    graph = left(custom, jaxpr, jaxpr.eqns[0])
    assert_same(run(graph, [xs]), gru_scan(GRU, GRU_WEIGHTS, GRUState(zero), xs))


def test_weights_that_are_computed():
    _, (h, xs) = LAYERS["gru_scan"]
    weights = jax.tree.map(jnp.asarray, GRU_WEIGHTS)
    jaxpr = record(lambda w, h, xs: gru_scan(GRU, w, GRUState(h), xs), weights, h, xs)
    with pytest.raises(UnsupportedError, match=r"hifi\.layers\.gru_scan: weights .* are computed"):
        left(custom, jaxpr, jaxpr.eqns[0])
    _, operands = KERNELS["relu"]
    jaxpr = record(lambda x, n: kernels.relu(x, n, precision="16_16"), *operands, jnp.int32(3))
    with pytest.raises(UnsupportedError, match=r"hifi\.kernels\.relu: threshold is computed"):
        left(to_tosa, jaxpr, jaxpr.eqns[0])


def test_precisions_that_tosa_has_not():
    w, b = draw(RNG, np.int16, (4, 8)), draw(RNG, np.int16, (4,))

    def function(x):
        return kernels.fully_connected(w, x, b, precision="16x16_16", acc_shift=-8, bias_shift=2)

    jaxpr = record(function, drawn(np.int16, 8))
    with pytest.raises(UnsupportedError, match="precision is '16x16_16'"):
        left(to_tosa, jaxpr, jaxpr.eqns[0])


@pytest.mark.parametrize("name", [*LAYERS, *KERNELS])
def test_exported(name: str):
    """`export` runs both, and integers have to be the same."""
    function, operands = {**LAYERS, **KERNELS}[name]
    graph = tosajax.export(function, *operands)
    assert len(graph.source.agreement) == len(graph.outputs)
    assert any(node.op == "CUSTOM" for node in graph.nodes) == (name in LAYERS)
