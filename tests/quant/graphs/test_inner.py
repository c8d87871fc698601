"""INT16 for what only elementwise operators read, and copies for what else reads it."""

from __future__ import annotations

from typing import Any

import chex
import jax
import numpy as np
import pytest

from tosajax import Builder, DType, Graph, Target, reference_model, validate
from tosajax import quant as tq
from tosajax.quant.graphs.inner import (
    elementwise_operands,
    operands_of_maxima,
    with_narrow_copies,
)
from tosajax.quant.graphs.regions import functions
from tosajax.quant.graphs.simplify import simplify
from tosajax.spec import NanMode

RNG = np.random.default_rng(8)
AGAINST = ("frozen", "reference_model") if reference_model.is_installed() else ("frozen",)
CHANNELS = 6
X = RNG.normal(0, 1, (16, 5, 5, CHANNELS)).astype(np.float32)
FMAX = float(np.finfo(np.float32).max)


class Network:
    """A builder of convolutions on 5 by 5 pixels."""

    def __init__(self) -> None:
        self.b = Builder()
        self.rng = np.random.default_rng(2)
        self.x = self.b.input("x", DType.FP32, (1, 5, 5, CHANNELS))
        self.zero = self.b.const(np.zeros(1, np.float32), DType.FP32, name="zero")

    def conv(self, x: Any, name: str) -> Any:
        weight = self.rng.normal(0, 0.4, (CHANNELS, 1, 1, CHANNELS)).astype(np.float32)
        bias = self.rng.normal(0, 0.3, CHANNELS).astype(np.float32)
        constants = (
            self.b.const(weight, DType.FP32, name=f"{name}/w"),
            self.b.const(bias, DType.FP32, name=f"{name}/b"),
        )
        geometry = {"pad": (0, 0, 0, 0), "stride": (1, 1), "dilation": (1, 1)}
        return self.b.op(
            "CONV2D",
            x,
            *constants,
            self.zero,
            self.zero,
            name=name,
            acc_type=DType.FP32,
            **geometry,
        )

    def clamp(self, x: Any, name: str, high: float = FMAX) -> Any:
        low, nan_mode = np.float32(0), NanMode.PROPAGATE
        return self.b.op(
            "CLAMP", x, name=name, min_val=low, max_val=np.float32(high), nan_mode=nan_mode
        )

    def prelu(self, x: Any, name: str) -> Any:
        slopes = np.linspace(-0.5, 0.9, CHANNELS).astype(np.float32).reshape(1, 1, 1, -1)
        none = self.b.const(np.zeros((1, 1, 1, 1), np.float32), DType.FP32, name=f"{name}/none")
        slope = self.b.const(slopes, DType.FP32, name=f"{name}/slopes")
        shift = self.b.const(np.zeros(1, np.int8), DType.INT8, name=f"{name}/shift")
        scaled = self.b.op("MUL", x, slope, shift, name=f"{name}/scaled")
        positive = self.b.op("GREATER_EQUAL", x, none, name=f"{name}/positive")
        return self.b.op("SELECT", positive, x, scaled, name=name)


def residual(blocks: int = 4, *, relu: bool = False, high: float = FMAX) -> Graph:
    """Sums, each of the sum before and of two convolutions of it."""
    n = Network()
    y = n.conv(n.x, "stem")
    for number in range(blocks):
        branch = n.conv(n.prelu(n.conv(y, f"up{number}"), f"prelu{number}"), f"down{number}")
        y = n.b.op("ADD", y, branch, name=f"sum{number}")
        y = n.clamp(y, f"relu{number}", high) if relu else y
    return n.b.graph([n.conv(y, "head")])


def quantized(graph: Graph, **options: Any) -> tuple[tq.PreparedModel, Any]:
    model = tq.prepare(graph, **options)
    return model, tq.calibrate(model, [X])


def sqnr(model: tq.PreparedModel, params: Any) -> float:
    (actual,), (wanted,) = model.apply(params, X), model.apply(params, X, mode="float")
    return 10 * np.log10(np.sum(np.square(wanted)) / np.sum(np.square(actual - wanted)))


def types(model: tq.PreparedModel) -> dict[str, DType]:
    return {name: model.specs[name].storage.dtype for name in model.activations}


def test_sums_are_int16_and_products_read_int8_copies():
    model, params = quantized(residual())
    kinds = types(model)
    for name in ("stem", "up0", "down0", "sum0", "sum2"):
        assert kinds[name] is DType.INT16, name
    for name in ("stem/copy", "sum0/copy", "prelu0"):
        assert kinds[name] is DType.INT8, name
    graph = model.freeze(params)
    operands = [graph.tensors[n.inputs[0]].dtype for n in graph.nodes if n.op == "CONV2D"]
    assert set(operands) == {DType.INT8}
    assert tq.check_bit_exact(model, params, X[:3], against=AGAINST)


@pytest.mark.slow
@pytest.mark.parametrize("relu", [False, True])
def test_noise_does_not_add_up_along_sums(relu):
    """Each block adds what its own operands are rounded by, and no more."""
    graph = residual(relu=relu)
    wide, narrow = (quantized(graph, wide_elementwise=w) for w in (True, False))
    assert sqnr(*wide) > sqnr(*narrow) + 2
    assert set(types(narrow[0]).values()) == {DType.INT8}
    assert not any(node.op == "IDENTITY" for node in narrow[0].float_graph.nodes)


def test_relu_of_a_sum_is_a_maximum():
    """The integer profile alone has all operators of the file: none needs EXT-INT16."""
    model, params = quantized(residual(relu=True))
    assert types(model)["relu0"] is DType.INT16
    graph = model.freeze(params)
    assert sum(node.op == "MAXIMUM" for node in graph.nodes) == 3  # the last is read by a product
    validate(graph, Target.parse("PRO-INT")).raise_errors()
    assert tq.check_bit_exact(model, params, X[:3], against=AGAINST)
    watched = model.with_outputs("relu1")
    assert float(watched.apply(params, X)[0].min()) == 0


def test_other_bounds_stay_int8():
    """A CLAMP of INT16 is not of the integer profile."""
    model, params = quantized(residual(relu=True, high=3.0))
    assert types(model)["relu0"] is DType.INT8
    validate(model.freeze(params), Target.parse("PRO-INT")).raise_errors()


def test_operators_that_pass_elements_on():
    """A reversal leads to a sum; a pool of INT16 would need an extension, and reads the copy."""
    n = Network()
    stem = n.conv(n.x, "stem")
    reversed_ = n.b.op("REVERSE", stem, axis=1, name="reversed")
    pool = n.b.op("MAX_POOL2D", stem, name="pool", kernel=(1, 1), stride=(1, 1), pad=(0, 0, 0, 0))
    branch = n.conv(stem, "branch")
    total = n.b.op("ADD", n.b.op("ADD", reversed_, branch, name="first"), pool, name="second")
    graph = with_narrow_copies(simplify(n.b.graph([n.conv(total, "head")])))
    read = {node.op: node.inputs for node in graph.nodes if node.op in ("REVERSE", "MAX_POOL2D")}
    assert read["REVERSE"] == ("stem",)
    assert read["MAX_POOL2D"] == ("stem/copy",)
    assert [node.inputs[0] for node in graph.nodes if node.outputs == ("branch",)] == ["stem/copy"]
    wide = elementwise_operands(graph, functions(graph))
    assert wide == {"stem", "reversed", "branch", "first", "pool"}
    model, params = quantized(n.b.graph([n.conv(total, "head2")]))
    assert types(model)["stem/copy"] is DType.INT8
    assert tq.check_bit_exact(model, params, X[:3], against=AGAINST)


def test_what_stays_as_it_was():
    """Outputs, inputs of tables and of products, and sums with constants."""
    n = Network()
    y = n.conv(n.x, "first")
    table = n.b.op("SIGMOID", n.conv(y, "logit"), name="table")
    graph = simplify(n.b.graph([n.conv(table, "head"), y]))
    assert elementwise_operands(graph, functions(graph)) == set()
    assert with_narrow_copies(graph) == graph


def test_terms_that_stay_int8():
    """An output, what a product reads too, a ReLU that follows no sum, and constants."""
    n = Network()
    shift = n.b.const(np.zeros(1, np.int8), DType.INT8, name="shift")
    output, relu = n.conv(n.x, "output"), n.clamp(n.conv(n.x, "first"), "relu")
    read, free = n.conv(n.x, "read"), n.conv(n.x, "free")
    total = n.b.op("ADD", n.b.op("ADD", output, relu, name="total"), free, name="more")
    product = n.b.op("MUL", total, read, shift, name="product")
    factor = n.b.const(np.full((1, 5, 5, 1), 0.3, np.float32), DType.FP32, name="factor")
    product = n.b.op("MUL", product, factor, shift, name="scaled")
    graph = simplify(n.b.graph([n.conv(product, "head"), n.conv(read, "other"), output]))
    wide = elementwise_operands(graph, functions(graph))
    assert wide == {"free", "total", "more", "product"}


def test_a_sum_inside_a_table_takes_no_copy():
    """The table, of x + sigmoid(x), reads INT8."""
    n = Network()
    x = n.conv(n.x, "first")
    y = n.b.op("ADD", x, n.b.op("SIGMOID", x, name="sigmoid"), name="y")
    graph = simplify(n.b.graph([n.conv(y, "head"), n.conv(x, "other")]))
    assert "y" in functions(graph)
    assert with_narrow_copies(graph) == graph


def test_operands_of_maxima_are_found_back_to_products():
    """Through elementwise operators, and those that move elements."""
    n = Network()
    x = n.conv(n.x, "first")
    total = n.b.op("ADD", x, n.conv(x, "second"), name="total")
    moved = n.b.op("TRANSPOSE", total, name="moved", perms=(0, 2, 1, 3))
    nan_mode = NanMode.PROPAGATE
    largest = n.b.op("REDUCE_MAX", moved, name="largest", axis=1, nan_mode=nan_mode)
    graph = n.b.graph([largest, n.conv(x, "other")])
    assert operands_of_maxima(graph) == {"moved", "total", "first", "second"}


def test_rules_of_fewer_bits_stay():
    rules = [tq.rule("^down0$", act=tq.QSpec("i8", bits=6, symmetric=False))]
    model, _ = quantized(residual(), rules=rules)
    assert model.specs["down0"].bits == 6
    assert types(model)["down1"] is DType.INT16


def test_what_a_global_maximum_reads_is_not_clipped():
    """Of a small window the outermost values may go, as of all inner activations."""
    ranges = {}
    images = RNG.normal(0, 1, (640, 5, 5, CHANNELS)).astype(np.float32)
    for kernel in ((2, 2), (5, 5)):
        n = Network()
        y = n.clamp(n.conv(n.x, "first"), "relu")
        pooled = n.b.op(
            "MAX_POOL2D", y, name="pool", kernel=kernel, stride=(1, 1), pad=(0, 0, 0, 0)
        )
        model = tq.prepare(n.b.graph([n.conv(pooled, "head")]))
        params = tq.calibrate(model, [images])
        (y,) = model.with_outputs("relu").apply(params, images, mode="float")
        ranges[kernel] = 255 * float(params["qparams"]["relu"].scale) / float(y.max())
    assert ranges[5, 5] > 0.999
    assert model.specs["relu"] == tq.QSpec(symmetric=False)
    assert ranges[2, 2] < 0.999


def test_prelu_is_one_product():
    """x * (1 or a slope), negative slopes too, in place of a choice of rounded numbers."""
    n = Network()
    graph = n.b.graph([n.conv(n.prelu(n.conv(n.x, "first"), "y"), "head")])
    simple = simplify(graph)
    assert sorted(node.op for node in simple.nodes if node.op != "CONST") == [
        *("CONV2D", "CONV2D", "GREATER_EQUAL", "MUL", "SELECT"),
    ]
    (product,) = [node for node in simple.nodes if node.op == "MUL"]
    assert product.outputs == ("y",)
    model, params = quantized(graph)
    (wanted,) = tq.prepare(graph).apply(params, X, mode="float")
    chex.assert_trees_all_close(model.apply(params, X, mode="float")[0], wanted, rtol=1e-6)
    assert sqnr(model, params) > 33
    assert tq.check_bit_exact(model, params, X[:3], against=AGAINST)


def test_prelu_with_its_choices_swapped_or_its_product_read_elsewhere():
    n = Network()
    x = n.conv(n.x, "first")
    slopes = n.b.const(np.full((1, 1, 1, CHANNELS), 0.3, np.float32), DType.FP32, name="slopes")
    none = n.b.const(np.zeros((1, 1, 1, 1), np.float32), DType.FP32, name="none")
    shift = n.b.const(np.zeros(1, np.int8), DType.INT8, name="shift")
    scaled = n.b.op("MUL", slopes, x, shift, name="scaled")
    y = n.b.op("SELECT", n.b.op("GREATER", none, x, name="negative"), scaled, x, name="y")
    graph = n.b.graph([n.conv(y, "head"), n.conv(scaled, "other")])
    model, params = quantized(graph)
    watched = model.with_outputs("first", "y", "scaled")
    real, chosen, scaled = watched.apply(params, X, mode="float")
    np.testing.assert_allclose(scaled, np.float32(0.3) * real, rtol=1e-6)
    np.testing.assert_allclose(chosen, np.where(real < 0, np.float32(0.3) * real, real), rtol=1e-6)
    assert [node.op for node in model.float_graph.nodes].count("MUL") == 2
    assert tq.check_bit_exact(model, params, X[:3], against=AGAINST)


@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (1, 1, 1, CHANNELS), (1, 5, 5, 1)])
def test_a_condition_of_another_shape(shape):
    """The choice of factors has the shape that the condition and the factors have."""
    n = Network()
    x = n.conv(n.x, "first")
    slopes = n.b.const(np.full((1, 1, 1, 1), 0.3, np.float32), DType.FP32, name="slopes")
    shift = n.b.const(np.zeros(1, np.int8), DType.INT8, name="shift")
    condition = n.b.input("condition", DType.BOOL, shape)
    y = n.b.op("SELECT", condition, x, n.b.op("MUL", x, slopes, shift, name="scaled"), name="y")
    graph = n.b.graph([n.conv(y, "head")])
    chosen = np.random.default_rng(4).random((16, *shape[1:])) < 0.5
    model = tq.prepare(graph)
    assert model.float_graph.tensors["y/factor"].shape == shape
    params = tq.calibrate(model, [(X, chosen)])
    real, y = model.with_outputs("first", "y").apply(params, X, chosen, mode="float")
    np.testing.assert_allclose(y, np.where(chosen, real, np.float32(0.3) * real), rtol=1e-6)
    assert tq.check_bit_exact(model, params, X[:3], chosen[:3], against=AGAINST)


def test_no_copies_where_they_would_change_nothing():
    """Neither in a graph of INT16, nor in one of FP8, whose other tensors are FP32."""
    wide = tq.prepare(residual(), [tq.rule(".*", act=tq.QSpec("i16"))])
    assert not any(node.op == "IDENTITY" for node in wide.graph.nodes)
    fp8 = tq.QSpec("fp8e4m3")
    rounded = tq.prepare(residual(), [tq.rule(".*", weight=fp8, act=fp8)])
    assert not any(node.op == "IDENTITY" for node in rounded.graph.nodes)


def test_functions_of_jax():
    """A residual MLP, from the function to bits."""
    w = [RNG.normal(0, 0.4, (8, 8)).astype(np.float32) for _ in range(4)]

    def function(x: jax.Array) -> jax.Array:
        y = x @ w[0]
        for weight in w[1:]:
            y = y + jax.nn.relu(y @ weight)
        return y @ w[0]

    x = RNG.normal(0, 1, (32, 8)).astype(np.float32)
    model = tq.prepare(function, example_args=[x[:1]])
    params = tq.calibrate(model, [x[n : n + 1] for n in range(32)])
    assert DType.INT16 in types(model).values()
    assert tq.check_bit_exact(model, params, x[:4, None], against=AGAINST)
