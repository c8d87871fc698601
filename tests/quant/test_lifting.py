"""lift: integer graphs, unchanged until they are trained."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quick_programs import QUICKLY

import tosajax
from tosajax import Builder, DType, UnsupportedError
from tosajax import quant as tq
from tosajax.spec import RoundingMode


@pytest.fixture(scope="module")
def exported(data):
    """ExecuTorch's int8 CNN, with inputs and Arm's outputs."""
    folder = data / "et_digits_cnn_a8w8"
    images, outputs = (np.load(folder / f"{n}_0.npy") for n in ("inputs", "expected_ref"))
    return tosajax.load(folder / "model.tosa"), images, outputs


def test_a_lifted_graph_computes_what_the_file_does(exported):
    graph, images, expected = exported
    model, params = tq.lift(graph)
    (found,) = jax.jit(model.apply)(params, images)
    np.testing.assert_array_equal(found.reshape(expected.shape), expected)
    frozen = model.freeze(params)
    for name, tensor in graph.tensors.items():
        if tensor.values is not None and name in frozen.tensors:
            assert frozen.tensors[name] == tensor


# Tensors of the second block of the ViT: the operand of its sum, and the input of its attention.
ATTENTION = ("tosa_rescale_default_106", "tosa_rescale_default_136")


def after(graph: tosajax.Graph, cuts: tuple[str, ...]) -> tosajax.Graph:
    """A function from some tensors of a graph to its outputs."""
    needed, nodes = set(graph.outputs), []
    for node in reversed(graph.ordered_nodes()):
        if needed.intersection(node.outputs) and not set(cuts).intersection(node.outputs):
            needed.update(node.inputs)
            nodes.append(node)
    tensors = {name: graph.tensors[name] for name in needed}
    return dataclasses.replace(graph, inputs=cuts, nodes=tuple(nodes[::-1]), tensors=tensors)


@pytest.mark.parametrize(
    "network",
    ["et_digits_cnn_a16w8", pytest.param("et_digits_vit_a8w8", marks=pytest.mark.slow)],
)
def test_other_types(data, network):
    folder = data / network
    graph, images = tosajax.load(folder / "model.tosa"), np.load(folder / "inputs_0.npy")[:2]
    expected = np.load(folder / "expected_ref_0.npy")[:2]
    given = [images]
    if network == "et_digits_vit_a8w8":
        # Of two equal blocks, the second from its MATMULs on: all of both takes long to compile.
        front = tosajax.compile(dataclasses.replace(graph, outputs=ATTENTION))
        rows = [map(np.asarray, front(image)) for image in images]
        given = [np.stack(column) for column in zip(*rows, strict=True)]
        graph = after(graph, ATTENTION)
    model, params = tq.lift(graph)
    outputs = jax.jit(model.apply, compiler_options=QUICKLY)(params, *given)
    np.testing.assert_array_equal(np.asarray(outputs[0]).reshape(expected.shape), expected)


@pytest.mark.slow
def test_training_changes_every_group_and_what_is_frozen_is_what_was_trained(exported):
    graph, images, _ = exported
    model, params = tq.lift(graph)

    def loss(params):
        (scores,) = model.apply(params, images)
        return jnp.square(scores - 20.0).mean()

    gradients_of = jax.jit(jax.value_and_grad(loss), compiler_options=QUICKLY)
    before, gradients = gradients_of(params)
    for group in ("weights", "bias", "rescale"):
        assert all(np.isfinite(g).all() for g in gradients[group].values())
        assert any(np.any(np.asarray(g) != 0) for g in gradients[group].values())
    steps = {"weights": 1.0, "bias": 30.0, "rescale": 0.02, "table": 1.0}

    def stepped(group: str, name: str) -> np.ndarray:
        value, gradient = (np.asarray(tree[group][name]) for tree in (params, gradients))
        return value - np.float32(steps[group]) * np.sign(gradient)

    moved = {group: {name: stepped(group, name) for name in params[group]} for group in params}
    assert float(gradients_of(moved)[0]) < float(before)
    assert tq.check_bit_exact(model, moved, images, against=("frozen",))
    changed = model.freeze(moved)
    assert changed != graph


def test_only_what_is_trainable_has_parameters(exported):
    graph, images, expected = exported
    model, params = tq.lift(graph, trainable=("bias",))
    assert set(params) == {"bias"}
    (found,) = jax.jit(model.apply)(params, images)
    np.testing.assert_array_equal(found.reshape(expected.shape), expected)


def scaled(*, shared: bool) -> tosajax.Graph:
    """Two RESCALEs, of one multiplier and one shift where they are shared."""
    b = Builder()
    x = b.input("x", DType.INT8, (4,))
    outputs = []
    constants: list = []
    for n in range(2):
        if not constants or not shared:
            constants = [b.const([1 << 30], DType.INT32), b.const([31], DType.INT8)]
        zero = [b.const([0], DType.INT8) for _ in range(2)]
        outputs.append(
            b.op(
                "RESCALE", x, *constants, *zero, dtype=DType.INT8, name=f"y{n}", scale32=True,
                rounding_mode=RoundingMode.SINGLE_ROUND, per_channel=False,
                input_unsigned=False, output_unsigned=False,
            )
        )  # fmt: skip
    return b.graph(outputs)


@pytest.mark.parametrize("shared", [False, True])
def test_scales_train_apart(shared):
    model, params = tq.lift(scaled(shared=shared))
    assert len(params["rescale"]) == 2
    first = next(iter(params["rescale"]))
    params["rescale"][first] = jnp.full((1,), 1.0, jnp.float32)
    x = np.asarray([[10, 20, 60, -64]], np.int8)
    y0, y1 = jax.jit(model.apply)(params, x)
    np.testing.assert_array_equal(y0, x)
    np.testing.assert_array_equal(y1, x / 2)
    assert tq.check_bit_exact(model, params, x, against=("frozen",))


@pytest.mark.parametrize("base", [0, 5, -5, 2**31 - 1, -(2**31)])
@pytest.mark.parametrize("change", [0.0, 0.4, 1.6, -3.0, 1e12, -1e12])
def test_large_integers_saturate(base, change):
    b = Builder()
    x = b.input("x", DType.INT32, (1,))
    y = b.op("BITWISE_AND", x, b.const([base], DType.INT32, name="c"), name="y")
    model, params = tq.lift(b.graph([y]))
    params["bias"]["c"] = jnp.full((1,), change, jnp.float32)
    wanted = np.clip(base + np.clip(round(change), -(2**30), 2**30), -(2**31), 2**31 - 1)
    assert int(model.constants(params)["c"].q[0]) == wanted


def test_errors(exported):
    graph, *_ = exported
    with pytest.raises(ValueError, match=r"trainable \['scales'\], expected some of weights"):
        tq.lift(graph, trainable=("scales",))
    b = Builder()
    x = b.input("x", DType.INT8, (1,))
    with pytest.raises(UnsupportedError, match="no constant of weights, bias"):
        tq.lift(b.graph([b.op("IDENTITY", x)]))
    model, params = tq.lift(graph)
    with pytest.raises(ValueError, match="without a float graph"):
        model.apply(params, np.zeros((1, 8, 8, 1), np.int8), mode="float")
    with pytest.raises(ValueError, match="without a float graph has parameters already"):
        tq.calibrate(model, [])
    with pytest.raises(ValueError, match="not of integers from a float graph"):
        tq.with_rules(model, params, [])
    with pytest.raises(ValueError, match="no float graph to compare with"):
        tq.bias_correct(model, params, [])
