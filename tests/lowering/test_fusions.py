"""What native kernels compute together, and what they leave alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
from native_graphs import (
    IMAGE,
    RNG,
    averaged,
    cast,
    check,
    clamped,
    convolved,
    convolved_3d,
    cut,
    ended,
    few,
    graph_of,
    joined_sum,
    largest,
    mirrored,
    multiplied,
    native_reasons,
    pointwise,
    rescaled,
    scaled_sums,
    term,
    term_again,
    total,
    transposed,
    whys,
    wide_sum,
)

import tosajax
from tosajax import Tensor, native
from tosajax.builder import Builder
from tosajax.dtypes import DType

pytest.importorskip("llvmlite")

from tosajax.native import call
from tosajax.native.codegen import isa

pytestmark = pytest.mark.usefixtures("quick", "native_kernels")

TOGETHER: dict[str, tuple[Callable[[Builder, Tensor], Any], list[str]]] = {
    "sums": (convolved, ["CONV2D"]),
    "scaled": (lambda b, x: rescaled(b, convolved(b, x)), ["CONV2D, RESCALE"]),
    "clamped": (
        lambda b, x: clamped(b, rescaled(b, convolved(b, x), double=True)),
        ["CONV2D, RESCALE, CLAMP"],
    ),
    "16-bit scales": (
        lambda b, x: rescaled(b, convolved(b, x), scale32=False),
        ["CONV2D, RESCALE"],
    ),
    "one scale": (
        lambda b, x: rescaled(b, convolved(b, x), per_channel=False),
        ["CONV2D, RESCALE"],
    ),
    "depthwise": (
        lambda b, x: clamped(b, rescaled(b, convolved(b, x, op="DEPTHWISE_CONV2D"))),
        ["DEPTHWISE_CONV2D, RESCALE, CLAMP"],
    ),
    "zero point of weights": (
        lambda b, x: rescaled(b, convolved(b, x, weight_zp=9)),
        ["CONV2D, RESCALE"],
    ),
    "zero point beyond int8": (
        lambda b, x: rescaled(b, convolved(b, x, weight_zp=-128)),
        ["CONV2D, RESCALE"],
    ),
    "zero point beyond int8, depthwise": (
        lambda b, x: rescaled(b, convolved(b, x, op="DEPTHWISE_CONV2D", weight_zp=127)),
        ["DEPTHWISE_CONV2D, RESCALE"],
    ),
    "another way to int8": (
        lambda b, x: b.op("CAST", convolved(b, x), dtype=DType.INT8),
        ["CONV2D"],
    ),
    "a sum": (total, ["RESCALE, RESCALE, ADD, RESCALE"]),
    "a difference": (
        lambda b, x: clamped(b, total(b, x, "SUB", double=True)),
        ["RESCALE, RESCALE, SUB, RESCALE, CLAMP"],
    ),
    "a sum, one scaled twice": (
        lambda b, x: wide_sum(b, term_again(b, x), term(b, mirrored(b, x))),
        ["RESCALE, RESCALE, RESCALE, ADD, RESCALE, CLAMP"],
    ),
    "a sum, the other scaled twice": (
        lambda b, x: wide_sum(b, term(b, x), term_again(b, mirrored(b, x), first=11)),
        ["RESCALE, RESCALE, RESCALE, ADD, RESCALE, CLAMP"],
    ),
    "a sum, both scaled twice": (
        lambda b, x: wide_sum(b, term_again(b, x), term_again(b, mirrored(b, x))),
        ["RESCALE, RESCALE, RESCALE, RESCALE, ADD, RESCALE, CLAMP"],
    ),
    "a sum, scaled by channel at last": (
        lambda b, x: wide_sum(b, term_again(b, x, per_channel=True), term_again(b, x)),
        [],
    ),
    "a sum, scaled twice from int32": (
        lambda b, x: wide_sum(b, scaled_sums(b, x), term(b, x)),
        [],
    ),
    "a sum of scales by channel": (lambda b, x: total(b, x, per_channel=True), []),
    "a sum of one term": (
        lambda b, x: ended(b, b.op("ADD", *2 * [term(b, x)])),
        [],
    ),
    "a sum of casts": (
        lambda b, x: ended(b, b.op("ADD", cast(b, x), cast(b, mirrored(b, x)))),
        [],
    ),
    "a sum with a cast": (
        lambda b, x: ended(b, b.op("ADD", cast(b, x), term(b, mirrored(b, x)))),
        [],
    ),
    "a sum with a cast on the right": (
        lambda b, x: ended(b, b.op("ADD", term(b, x), cast(b, mirrored(b, x)))),
        [],
    ),
    "a sum of int16": (
        lambda b, x: total(b, b.op("CAST", x, dtype=DType.INT16)),
        [],
    ),
    "a sum as it is": (lambda b, x: b.op("ADD", term(b, x), term(b, mirrored(b, x))), []),
    "a sum scaled by channel": (
        lambda b, x: rescaled(b, b.op("ADD", term(b, x), term(b, mirrored(b, x)))),
        [],
    ),
    "a sum of few": (lambda b, x: total(b, b.op("SLICE", x, *few(b))), []),
    "a convolution and a sum": (
        lambda b, x: joined_sum(b, pointwise(b, x), x),
        ["CONV2D, RESCALE, RESCALE, RESCALE, ADD, RESCALE"],
    ),
    "a difference and a convolution, clamped twice": (
        lambda b, x: clamped(b, joined_sum(b, x, clamped(b, pointwise(b, x)), "SUB")),
        ["CONV2D, RESCALE, CLAMP, RESCALE, RESCALE, SUB, RESCALE, CLAMP"],
    ),
    "two convolutions and a sum": (
        lambda b, x: joined_sum(
            b, pointwise(b, x, 10), rescaled(b, convolved(b, x), per_channel=False)
        ),
        ["CONV2D, RESCALE", "CONV2D, RESCALE, RESCALE, RESCALE, ADD, RESCALE"],
    ),
    "a convolution and a sum of many scales": (
        lambda b, x: wide_sum(b, term_again(b, x), term_again(b, pointwise(b, x))),
        ["CONV2D, RESCALE, RESCALE, RESCALE, RESCALE, RESCALE, ADD, RESCALE, CLAMP"],
    ),
    "a depthwise convolution and a sum": (
        lambda b, x: joined_sum(b, pointwise(b, x, op="DEPTHWISE_CONV2D"), x),
        ["DEPTHWISE_CONV2D, RESCALE", "RESCALE, RESCALE, ADD, RESCALE"],
    ),
    "a convolution that more than a sum reads": (
        lambda b, x: [y := pointwise(b, x), joined_sum(b, y, x)],
        ["CONV2D, RESCALE", "RESCALE, RESCALE, ADD, RESCALE"],
    ),
    "a stride that leaves a row and a column": (
        lambda b, x: pointwise(b, cut(b, x), 9, 2),
        ["SLICE, CONV2D, RESCALE"],
    ),
    "a depthwise stride that leaves them": (
        lambda b, x: pointwise(b, cut(b, x), stride=2, op="DEPTHWISE_CONV2D"),
        ["SLICE, DEPTHWISE_CONV2D, RESCALE"],
    ),
    "averages that leave them": (
        lambda b, x: averaged(b, cut(b, x), 3, 2),
        ["SLICE, AVG_POOL2D"],
    ),
    "rows that the window would reach": (lambda b, x: pointwise(b, cut(b, x)), ["CONV2D, RESCALE"]),
    "rows where the padding was": (
        lambda b, x: pointwise(b, cut(b, x), stride=2, pad=2),
        ["CONV2D, RESCALE"],
    ),
    "rows before the first": (
        lambda b, x: pointwise(b, cut(b, x, start=(0, 1, 0, 0)), stride=2),
        ["CONV2D, RESCALE"],
    ),
    "channels that are left": (
        lambda b, x: pointwise(b, cut(b, x, (1, 7, 7, 5)), 9, 2),
        ["CONV2D, RESCALE"],
    ),
    "images that are left": (
        lambda b, x: pointwise(
            b, cut(b, b.op("RESHAPE", x, b.const_shape([2, 4, 8, 6])), (1, 3, 7, 6)), 9, 2
        ),
        ["CONV2D, RESCALE"],
    ),
    "rows that more than a window reads": (
        lambda b, x: [y := cut(b, x), pointwise(b, y, stride=2)],
        ["CONV2D, RESCALE"],
    ),
    "averages": (averaged, ["AVG_POOL2D"]),
    "averages of all": (lambda b, x: averaged(b, x, 8, 1), ["AVG_POOL2D"]),
    "maxima": (largest, ["MAX_POOL2D"]),
    "maxima of int16": (
        lambda b, x: largest(b, b.op("CAST", x, dtype=DType.INT16)),
        ["MAX_POOL2D"],
    ),
    "maxima of floats": (
        lambda b, x: largest(b, b.op("CAST", x, dtype=DType.FP32)),
        ["MAX_POOL2D"],
    ),
    "maxima of float16": (lambda b, x: largest(b, b.op("CAST", x, dtype=DType.FP16)), []),
    "maxima of windows that overlap often": (lambda b, x: largest(b, x, 4), []),
    "maxima of few channels": (
        lambda b, x: largest(b, b.op("RESHAPE", x, b.const_shape([1, 16, 8, 3]))),
        [],
    ),
    "int16": (lambda b, x: rescaled(b, convolved(b, x), dtype=DType.INT16), ["CONV2D, RESCALE"]),
    "planes": (convolved_3d, ["CONV3D"]),
    "planes, scaled": (
        lambda b, x: clamped(b, rescaled(b, convolved_3d(b, x, 3))),
        ["CONV3D, RESCALE, CLAMP"],
    ),
    "transposed": (transposed, ["TRANSPOSE_CONV2D"]),
    "transposed, scaled": (
        lambda b, x: clamped(b, rescaled(b, transposed(b, x, stride=(1, 3)))),
        ["TRANSPOSE_CONV2D, RESCALE, CLAMP"],
    ),
    "transposed by one scale, cropped": (
        lambda b, x: rescaled(b, transposed(b, x, out_pad=(-1, -2, 0, -1)), per_channel=False),
        ["TRANSPOSE_CONV2D, RESCALE"],
    ),
    "transposed, padded": (
        lambda b, x: rescaled(b, transposed(b, x, out_pad=(3, 1, 4, 5), size=(2, 5))),
        ["TRANSPOSE_CONV2D, RESCALE"],
    ),
    "transposed, with gaps": (
        lambda b, x: rescaled(b, transposed(b, x, stride=(3, 4), size=(2, 1))),
        ["TRANSPOSE_CONV2D, RESCALE"],
    ),
    "products": (multiplied, ["MATMUL"]),
    "products, scaled": (
        lambda b, x: clamped(b, rescaled(b, multiplied(b, x, zero_point=-9), per_channel=False)),
        ["MATMUL, RESCALE, CLAMP"],
    ),
    "products, scaled to int16": (
        lambda b, x: rescaled(b, multiplied(b, x), dtype=DType.INT16, scale32=False),
        ["MATMUL, RESCALE"],
    ),
    "products by a constant": (
        lambda b, x: rescaled(b, multiplied(b, x, count=1)),
        ["MATMUL, RESCALE"],
    ),
    "products by a constant less a zero point": (
        lambda b, x: rescaled(b, multiplied(b, x, count=1, zero_point=90)),
        ["MATMUL, RESCALE"],
    ),
    "products by constants": (
        lambda b, x: rescaled(b, multiplied(b, x, count=4)),
        ["MATMUL, RESCALE"],
    ),
    "products of a constant": (
        lambda b, x: rescaled(b, multiplied(b, x, left=True)),
        ["MATMUL, RESCALE"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TOGETHER)
def test_together(name: str):
    write, wanted = TOGETHER[name]
    graph = graph_of(write)
    assert whys(graph) == wanted
    check(graph)


def test_a_large_depthwise_window_is_not_for_it():
    """Its kernel would take minutes to compile."""

    def write(b: Builder, x: Tensor) -> Tensor:
        weight = RNG.integers(-100, 100, (300, 1, 6, 1)).astype(np.int8)
        return b.op(
            "DEPTHWISE_CONV2D", x, b.const(weight, DType.INT8), b.const([0], DType.INT32),
            b.const([5], DType.INT8), b.const([0], DType.INT8), pad=(150, 149, 0, 0),
            stride=(1, 1), dilation=(1, 1), acc_type=DType.INT32,
        )  # fmt: skip

    assert whys(graph_of(write)) == []


def test_sums_that_are_read_twice_stay():
    def write(b: Builder, x: Tensor) -> list[Tensor]:
        sums = convolved(b, x)
        return [rescaled(b, sums), b.op("ADD", sums, b.const(np.ones((1, 1, 1, 10)), DType.INT32))]

    graph = graph_of(write)
    assert whys(graph) == ["CONV2D"]
    check(graph)


def test_outputs_stay():
    def write(b: Builder, x: Tensor) -> list[Tensor]:
        sums = convolved(b, x)
        results = rescaled(b, sums)
        return [sums, results, clamped(b, results)]

    graph = graph_of(write)
    assert whys(graph) == ["CONV2D"]
    check(graph)


@pytest.mark.parametrize(("count", "kernel"), [(1, "convolution"), (2, "matmul")])
def test_one_constant_matrix_is_of_weights(count: int, kernel: str):
    run = tosajax.compile(graph_of(lambda b, x: multiplied(b, x, count=count)))
    assert f"tosajax_{kernel}" in run.hlo()


def test_the_zero_point_of_a_constant_matrix_may_be_an_input():
    b = Builder()
    x, zero_point = b.input("x", DType.INT8, (1, 5, 6)), b.input("z", DType.INT8, (1,))
    matrix = b.const(RNG.integers(-128, 128, (1, 6, 9)), DType.INT8)
    graph = b.graph([b.op("MATMUL", x, matrix, b.const([4], DType.INT8), zero_point)])
    assert whys(graph) == ["MATMUL"]
    rows = IMAGE[0, 0, :5][None]
    for value in (0, -128, 5):
        inputs = rows, np.array([value], np.int8)
        found, wanted = (tosajax.compile(graph, native=n)(*inputs)[0] for n in (True, False))
        np.testing.assert_array_equal(found, wanted)


def test_one_after_the_other():
    def write(b: Builder, x: Tensor) -> Tensor:
        first = rescaled(b, convolved(b, x, op="DEPTHWISE_CONV2D"))
        return clamped(b, rescaled(b, convolved(b, first)))

    graph = graph_of(write)
    assert whys(graph) == ["DEPTHWISE_CONV2D, RESCALE", "CONV2D, RESCALE, CLAMP"]
    check(graph)


PLANE = {"stride": (1, 1), "pad": (1, 1, 1, 0), "dilation": (1, 1)}
SPACE = {"stride": (2, 1, 1), "pad": (1, 0, 1, 1, 1, 0), "dilation": (1, 1, 1)}


@pytest.mark.parametrize(
    ("op", "shape", "attributes"),
    [
        ("CONV2D", (4, 3, 2, 6), PLANE),
        ("CONV3D", (4, 3, 3, 2, 6), SPACE),
        ("DEPTHWISE_CONV2D", (3, 2, 6, 2), PLANE),
        ("TRANSPOSE_CONV2D", (4, 3, 2, 6), {"stride": (2, 1), "out_pad": (0, -1, 1, 0)}),
    ],
)
@pytest.mark.parametrize("zero_point", [0, 127, None])
def test_weights_may_be_inputs(op: str, shape: tuple, attributes: dict, zero_point: int | None):
    """As may their zero point."""
    b = Builder()
    image = np.stack([IMAGE, IMAGE[:, ::-1]], axis=1) if op == "CONV3D" else IMAGE
    x, weight = b.input("x", DType.INT8, image.shape), b.input("w", DType.INT8, shape)
    is_input = zero_point is None
    weight_zp = b.input("zp", DType.INT8, (1,)) if is_input else b.const([zero_point], DType.INT8)
    zero_points = b.const([3], DType.INT8), weight_zp
    bias = b.const([5], DType.INT32)
    graph = b.graph([
        b.op(op, x, weight, bias, *zero_points, acc_type=DType.INT32, **attributes)
    ])  # fmt: skip
    assert whys(graph) == [op]
    weights = RNG.integers(-128, 128, shape).astype(np.int8)
    inputs = image, weights, *[np.array([-128], np.int8)] * is_input
    found, wanted = (tosajax.compile(graph, native=n)(*inputs)[0] for n in (True, False))
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("count", [131071, 131072])
def test_sums_that_int32_may_not_hold(count: int):
    """128 * 128 * 131072 is 2**31."""
    b = Builder()
    x, weight = (b.input(name, DType.INT8, (1, 1, 1, count)) for name in "xw")
    zero = b.const([0], DType.INT8)
    sums = b.op("CONV2D", x, weight, b.const([0], DType.INT32), zero, zero,
        acc_type=DType.INT32, pad=(0, 0, 0, 0), stride=(1, 1), dilation=(1, 1))  # fmt: skip
    assert whys(b.graph([sums])) == (["CONV2D"] if count == 131071 else [])


SIMPLE = graph_of(lambda b, x: rescaled(b, convolved(b, x)))


@pytest.mark.parametrize("way", ["argument", "environment", "not installed"])
def test_without(way: str, monkeypatch):
    options: dict[str, Any] = {"native": False} if way == "argument" else {}
    if way == "environment":
        monkeypatch.setenv("TOSAJAX_NATIVE", "0")
        options = {"native": True}
    if way == "not installed":
        monkeypatch.delenv("TOSAJAX_NATIVE")
        monkeypatch.setattr(native.importlib.util, "find_spec", lambda name: None)
    compiled = tosajax.compile(SIMPLE, **options)
    assert native_reasons(compiled) == []
    assert "tosajax_convolution" not in compiled.hlo()


def test_what_cannot_be_had(monkeypatch):
    monkeypatch.setattr(native.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"need llvmlite: pip install \"tosajax\[native\]\""):
        tosajax.compile(SIMPLE, native=True)


VNNI = {"avx2", "fma", "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512vnni"}


@pytest.mark.parametrize(
    ("features", "taken"),
    [
        (VNNI, "avx512-vnni"),
        (VNNI - {"avx512vnni"}, "avx512"),
        ({"avx2", "fma", "avxvnni"}, "avx2"),
        ({"avx2"}, None),
        ({"sse4.2"}, None),
        ({*VNNI, "amx-int8", "amx-tile"}, "amx-int8"),
    ],
)
def test_the_default_is_what_was_found_faster(features: set[str], taken: str | None, monkeypatch):
    monkeypatch.setattr(isa.llvm, "get_host_cpu_features", lambda: dict.fromkeys(features, True))
    monkeypatch.setattr(isa.platform, "machine", lambda: "x86_64")
    isa.usable.cache_clear()
    try:
        found = isa.chosen(None)
        assert (found and found.name) == taken
        asked = isa.chosen(True)
        assert asked is not None
        assert asked.features == () or set(asked.features) <= features
        assert isa.chosen(False) is None
    finally:
        isa.usable.cache_clear()


@pytest.mark.parametrize("value", ["", "yes", "2"])
def test_a_variable_that_is_neither(value: str, monkeypatch):
    monkeypatch.setenv("TOSAJAX_NATIVE", value)
    with pytest.raises(ValueError, match=f"TOSAJAX_NATIVE is '{value}', expected 0 or 1"):
        tosajax.compile(SIMPLE)


def test_an_argument_that_is_not_a_bool():
    with pytest.raises(TypeError, match="native is 1 "):
        tosajax.compile(SIMPLE, native=1)  # type: ignore[arg-type]


def test_reports_see_every_tensor():
    compiled = tosajax.compile(SIMPLE, report_unpredictable=True)
    assert native_reasons(compiled) == []
    _, flags = compiled(IMAGE)
    assert len(flags) >= 2


def test_a_saved_program_has_the_same_bits(tmp_path):
    compiled = tosajax.compile(SIMPLE)
    compiled.save(tmp_path / "program")
    again = tosajax.load_executable(tmp_path / "program")
    np.testing.assert_array_equal(again(IMAGE)[0], compiled(IMAGE)[0])


def test_a_folder_of_programs(tmp_path, jax_cache):
    first = tosajax.compile(SIMPLE, cache_dir=tmp_path)
    wanted = first(IMAGE)
    assert list(tmp_path.iterdir())
    jax.clear_caches()
    again = tosajax.compile(SIMPLE, cache_dir=tmp_path)
    np.testing.assert_array_equal(again(IMAGE)[0], wanted[0])
    assert native_reasons(again)


def branched(b: Builder, x: Tensor) -> Tensor:
    """With a small result of a branch between two kernels."""
    for name in ("one", "other"):
        part = Builder(name)
        b.subgraph(part.graph([part.op("ABS", part.input("i", DType.INT32, (1, 8, 8, 6)))]))
    chosen = b.op(
        "COND_IF", b.const([True], DType.BOOL), cast(b, x), then_graph="one", else_graph="other"
    )
    return largest(b, b.op("CAST", chosen, dtype=DType.INT8))


def scaled_rows(b: Builder, x: Tensor) -> Tensor:
    """Many elements that no kernel computes: of rows of pixels."""
    wide = b.op("CONCAT", *20 * [largest(b, x)], axis=3)
    return b.op(
        "MUL", wide, b.const(np.full((1, 8, 1, 1), 3), DType.INT8), b.const([0], DType.INT8)
    )


WAITING: dict[str, tuple[Callable[[Builder, Tensor], Any], bool]] = {
    "kernels alone": (lambda b, x: averaged(b, rescaled(b, convolved(b, x))), True),
    "moves": (lambda b, x: largest(b, b.op("CONCAT", *20 * [x], axis=3)), True),
    "a little": (lambda b, x: cast(b, largest(b, x)), True),
    "much": (scaled_rows, False),
    "a branch": (branched, False),
}


@pytest.mark.parametrize("name", WAITING)
def test_threads_wait_where_kernels_follow_each_other(name: str, monkeypatch: pytest.MonkeyPatch):
    """XLA's own kernels would miss them."""
    write, wanted = WAITING[name]
    found = []

    def spy() -> bool:
        found.append(native.threads_wait())
        return found[-1]

    monkeypatch.setattr(call, "threads_wait", spy)
    check(graph_of(write))
    assert set(found) == {wanted}
    assert not native.threads_wait()
