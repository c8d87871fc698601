"""`export`: names, locations, notes, errors."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from exports import agrees, operators

import tosajax
from tosajax import DType, TosaError, UnsupportedError
from tosajax.fixedpoint import _x64
from tosajax.graph.locations import described

X = np.arange(6, dtype=np.float32).reshape(2, 3)


class Layer(NamedTuple):
    kernel: np.ndarray
    bias: np.ndarray


def layer(params: dict[str, Any], x: jax.Array) -> jax.Array:
    with jax.named_scope("block"):
        return jnp.tanh(x * params["first"].kernel + params["first"].bias)


PARAMS = {"first": Layer(np.full((1, 3), 0.5, np.float32), np.ones((1, 3), np.float32))}


def test_names():
    graph = agrees(layer, X, params=PARAMS, ulp=1)
    assert (graph.inputs, graph.outputs) == (("x",), ("output",))
    constants = [n for n, t in graph.tensors.items() if t.values is not None]
    assert {"first/kernel", "first/bias"} <= {*constants}
    assert operators(graph) == ["MUL", "ADD", "TANH"]


def test_locations_have_the_layer_and_the_line():
    graph = tosajax.export(layer, X, params=PARAMS)
    line = layer.__code__.co_firstlineno + 2
    for node in graph.nodes:
        if not node.op.startswith("CONST"):
            assert described(node.location) == f"block/{node.op.lower()}"
            assert f'test_export.py":{line}:0' in (node.location or "")


def test_layers_by_parameters_where_no_scope_is_named():
    graph = tosajax.export(lambda p, x: x * p["block"]["scale"], X, params={"block": {"scale": X}})
    (node,) = (node for node in graph.nodes if node.op == "MUL")
    assert described(node.location) == "block/mul"


def test_inputs_and_outputs_of_pytrees():
    def fn(batch: dict[str, Any], more: tuple[Any, Any]) -> dict[str, Any]:
        return {"sum": batch["a"] + more[0], "parts": (batch["b"] * 2.0, more[1])}

    graph = agrees(fn, {"a": X, "b": X + 1}, (X, X - 1))
    assert graph.inputs == ("batch/a", "batch/b", "more/0", "more/1")
    assert graph.outputs == ("parts/0", "parts/1", "sum")
    pair = tosajax.export(lambda x: (x + x, [x * x]), X)
    assert pair.outputs == ("output_0", "output_1/0")


def test_other_names():
    graph = tosajax.export(lambda x: x + 1, X, names={"x": "image", "output": "logits"})
    assert (graph.inputs, graph.outputs) == (("image",), ("logits",))
    with pytest.raises(ValueError, match="names has 'y', expected some of x, output"):
        tosajax.export(lambda x: x + 1, X, names={"y": "z"})
    with pytest.raises(ValueError, match="names makes 2 inputs or outputs 'x', expected one"):
        tosajax.export(lambda x: x + 1, X, names={"output": "x"})


def test_names_of_tensors_are_numbered():
    graph = tosajax.export(lambda x: ((x + 1) + x) + 2 * x, np.ones(3, np.float32))
    assert [n.outputs[0] for n in graph.nodes if n.op == "ADD"] == ["add", "add_1", "output"]
    graph = tosajax.export(lambda x: (((x + 1) * x + x) * x + 2) * x, np.ones(3, np.float32))
    assert [n.outputs[0] for n in graph.nodes if n.op == "ADD"] == ["add", "add_1", "add_2"]


def test_names_that_change_places():
    graph = tosajax.export(lambda x, y: x - y, X, X, names={"x": "y", "y": "x"})
    assert graph.inputs == ("y", "x")


def test_a_tensor_makes_room_for_an_output():
    graph = tosajax.export(lambda x: x * jnp.tanh(x), X, names={"output": "tanh"})
    assert graph.outputs == ("tanh",)
    assert operators(graph) == ["TANH", "MUL"]


def test_outputs_that_are_inputs_constants_or_twice_the_same():
    def fn(x: jax.Array) -> tuple[jax.Array, ...]:
        y = x + 1
        return x, y, y, jnp.float32(3), jnp.broadcast_to(y[:1], (4, 3))

    graph = agrees(fn, X)
    assert len({*graph.outputs, *graph.inputs}) == 6


def test_closed_over_arrays_are_named():
    weights = {"scale": X + 1}
    graph = agrees(lambda x: x * weights["scale"], X)
    assert "weights/scale" in graph.tensors


def test_constants_are_computed():
    graph = agrees(lambda p, x: x + jnp.exp(p["a"]) * jnp.sin(p["b"]), X, params={"a": X, "b": X})
    assert operators(graph) == ["ADD"]
    assert "a" in graph.tensors  # Named after the first parameter.


def test_equal_nodes_and_constants_are_written_once():
    graph = agrees(lambda x: jnp.tanh(x + 1) * jnp.tanh(x + 1), X, ulp=1)
    assert operators(graph) == ["ADD", "TANH", "MUL"]
    assert len([n for n in graph.nodes if n.op == "CONST"]) == 2  # 1, and the shift of MUL


def test_nothing_is_left_that_no_output_needs():
    def fn(x: jax.Array) -> jax.Array:
        jnp.tanh(x)
        return x + 1

    assert operators(tosajax.export(fn, X)) == ["ADD"]


def test_shapes_without_values():
    graph = tosajax.export(layer, jax.ShapeDtypeStruct((2, 3), jnp.float32), params=PARAMS)
    assert graph.source.agreement == ()
    assert graph.tensors["x"].shape == (2, 3)
    with pytest.raises(ValueError, match=r"check needs arrays as arguments"):
        tosajax.export(layer, jax.ShapeDtypeStruct((2, 3), jnp.float32), params=PARAMS, check=True)


def test_numpy_of_64_bits_is_as_jax_takes_it():
    graph = tosajax.export(lambda x: x + 1, np.ones((2, 3)))
    assert graph.tensors["x"].dtype is DType.FP32


def test_source():
    source = tosajax.export(lambda x: x + 1, X).source
    assert (source.format, source.version) == ("JAX", jax.__version__)
    (agreement,) = source.agreement
    assert agreement == ("output", 0.0)
    assert str(agreement) == "output: equal"


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        ("text", "x is 'text' (str), expected an array"),
        ({"a": 1.5}, "x/a is 1.5 (float), expected an array"),
    ],
)
def test_arguments_that_are_not_arrays(argument, words):
    with pytest.raises(TypeError) as error:
        tosajax.export(lambda x: x, argument)
    assert str(error.value).startswith(words)


def test_other_arguments_of_wrong_types():
    with pytest.raises(TypeError, match="names is"):
        tosajax.export(lambda x: x, X, names=["a"])  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="dynamic_batch is"):
        tosajax.export(lambda x: x, X, dynamic_batch=2)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="max_unroll is 0"):
        tosajax.export(lambda x: x, X, max_unroll=0)
    with pytest.raises(ValueError, match="unknown profile"):
        tosajax.export(lambda x: x, X, target="PRO-X")


def test_a_primitive_without_a_rule():
    def solve(x: jax.Array) -> jax.Array:
        return jnp.linalg.cholesky(x @ x.T)

    with pytest.raises(UnsupportedError) as error:
        tosajax.export(solve, X)
    line = solve.__code__.co_firstlineno + 1
    assert "cholesky" in str(error.value)
    assert f"test_export.py:{line}" in str(error.value)


@pytest.mark.parametrize("dtype", ["uint8", "uint32", "complex64"])
def test_types_that_tosa_does_not_have(dtype):
    with pytest.raises(UnsupportedError, match=f"an array of {dtype}, expected bool, int4, int8"):
        tosajax.export(lambda x: x + x, np.ones(3, dtype))


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: jnp.argmax(x, -1),
        lambda x: jnp.argmin(x, -1),
        lambda x: jnp.argsort(x, -1),
        lambda x: jnp.sum(x > 0, -1),
        lambda x: jnp.cumsum(x > 0, -1),
        lambda x: x.astype(int),
        lambda x: (x > 0).astype(int),
        lambda x: jnp.where(x > 0, jnp.arange(3), 0),
    ],
    ids=["argmax", "argmin", "argsort", "count", "cumsum", "float", "bool", "select"],
)
def test_int64_where_64_bit_types_are_enabled(fn):
    """What JAX makes int64 by default there has int32 otherwise: the error says how to have it."""
    x = np.array([[0.5, -1.5, 2.0]], np.float32)
    with _x64.scope():
        wanted = (
            "an array of int64, expected bool, .*; trace without jax_enable_x64, or ask for int32"
        )
        with pytest.raises(UnsupportedError, match=wanted):
            tosajax.export(fn, x)
    assert tosajax.export(fn, x).output_tensors[0].dtype is tosajax.DType.INT32


def test_int32_is_exported_where_64_bit_types_are_enabled():
    with _x64.scope():
        graph = tosajax.export(lambda x: jax.lax.argmax(x, 1, jnp.int32), np.eye(3, dtype="f4"))
    assert [t.dtype for t in graph.output_tensors] == [tosajax.DType.INT32]


def test_int48_is_narrowed_by_rescale_alone():
    def narrowed(x: jax.Array) -> jax.Array:
        zero = jnp.zeros(1, jnp.int16)
        wide = tosajax.ops.matmul(x, x, zero, zero, out_type=tosajax.DType.INT48)
        return jax.lax.convert_element_type(wide, jnp.int32)

    with _x64.scope(), pytest.raises(UnsupportedError, match=r"; tosajax\.ops\.rescale narrows"):
        tosajax.export(narrowed, np.ones((1, 2, 2), np.int16))


def test_illegal_for_the_target():
    with pytest.raises(TosaError, match="EXT-BF16"):
        tosajax.export(lambda x: x + x, jnp.ones(3, jnp.bfloat16), target="PRO-FP")
    assert tosajax.export(lambda x: x + x, jnp.ones(3, jnp.bfloat16), target="PRO-FP+EXT-BF16")


def test_functools_partial_and_methods():
    class Model:
        scale = X

        def apply(self, x: jax.Array) -> jax.Array:
            return x * self.scale

    graph = agrees(Model().apply, X)
    assert graph.inputs == ("x",)
    agrees(functools.partial(lambda x, y: x + y, y=2.0), X)


def test_jit_caches_and_configuration_stay_as_they_are():
    fn = jax.jit(lambda x: x * 2 + 1)
    before = {name: getattr(jax.config, name) for name in ("jax_enable_x64", "jax_disable_jit")}
    graph = agrees(fn, X)
    assert operators(graph) == ["MUL", "ADD"]
    assert all(getattr(jax.config, name) == value for name, value in before.items())
