"""int8 products by oneDNN: exact, under transforms, and only where they are exact and faster."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from importlib.metadata import version

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ops import fuzz_onednn
from oracle import forced
from oracle.device import on_cpu
from oracle.int8_products import extreme, raised_sums, wide
from oracle.matmul_oracle import draw

import tosajax
from tosajax.builder import Builder
from tosajax.dtypes import DType
from tosajax.ops._window import Window
from tosajax.ops.routes import choose, definition, dot, onednn, platform
from tosajax.ops.routes.operands import Convolution
from tosajax.ops.routes.platform import ANY, Platform, tracing_for

HERE = Platform("cpu", onednn=True)
here = pytest.mark.skipif(not forced.is_here("onednn"), reason="no VNNI, or another jaxlib")
NONE = ((0, 0), (0, 0))


@pytest.fixture
def rng():
    return np.random.default_rng(41)


# (batch, M, K, N); 1,024 terms are the most that are added at once.
DOTS = [
    *(((), 2, 3, 2), ((), 1, 1, 1), ((), 1, 64, 33), ((), 40, 5, 1), ((2, 3), 4, 17, 6)),
    *(((), 5, 1024, 7), ((), 5, 1025, 7), ((3,), 3, 2049, 5)),
    pytest.param((1, 1), 6, 70_000, 3, marks=pytest.mark.slow),
]


@here
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize(("batch", "m", "k", "n"), DOTS)
def test_dot(batch, m, k, n, constant, transposed, rng):
    for values in (extreme, lambda rng, shape: draw(rng, DType.INT8, shape)):
        for _ in range(4):
            a, b = values(rng, (*batch, m, k)), values(rng, (*batch, k, n))
            given = np.swapaxes(b, -1, -2).copy() if transposed else b
            if constant:
                result = jax.jit(lambda a, b=given: onednn.dot(a, b, transposed=transposed))(a)
            else:
                result = onednn.dot(jax.device_put(a), jax.device_put(given), transposed=transposed)
            assert result.dtype == np.int32
            np.testing.assert_array_equal(np.asarray(result), (wide(a) @ wide(b)).astype(np.int32))


@here
def test_constants_decide_how_many_terms_are_added_at_once(rng):
    a, b = extreme(rng, (8, 4096)), rng.integers(-4, 5, (4096, 8)).astype(np.int8)
    whole = jax.jit(lambda a: onednn.dot(a, b, transposed=False))
    parts = jax.jit(lambda a, b: onednn.dot(a, b, transposed=False))
    assert whole.lower(a).as_text().count("__onednn$matmul") == 1
    assert parts.lower(a, b).as_text().count("__onednn$matmul") == 4
    for result in (whole(a), parts(a, b)):
        np.testing.assert_array_equal(np.asarray(result), wide(a) @ wide(b))


@here
def test_dot_under_transforms(rng):
    a, b = (draw(rng, DType.INT8, shape) for shape in ((3, 4, 2, 5, 6), (3, 4, 2, 6, 7)))

    def dot(a, b):
        return onednn.dot(a, b, transposed=False)

    def twice(axes):
        return jax.vmap(jax.vmap(dot, axes), axes)

    rows = np.moveaxis(a[0], 2, 0)[..., None, :]  # [5, 4, 2, 1, 6]
    for function, left, right, want in (
        (twice((0, 0)), a, b, wide(a) @ wide(b)),
        (twice((0, None)), a, b[0, 0], wide(a) @ wide(b[0, 0])),
        (twice((None, 0)), a[0, 0], b, wide(a[0, 0]) @ wide(b)),
        (jax.vmap(dot, (0, None)), rows, b[0], wide(rows) @ wide(b[0])),
        (lambda a, b: jax.lax.map(lambda x: dot(*x), (a, b)), a, b, wide(a) @ wide(b)),
    ):
        for run in (function, jax.jit(function)):
            np.testing.assert_array_equal(np.asarray(run(left, right)), want)


CONVOLUTIONS = {
    # name: (x [N, H, W, IC], OC, window)
    "same": ((2, 6, 5, 9), 20, Window((3, 3), (1, 1), (1, 1), ((1, 1), (1, 1)))),
    "strided": ((1, 9, 8, 3), 5, Window((3, 2), (2, 3), (1, 1), ((0, 1), (1, 0)))),
    "dilated": ((1, 9, 9, 16), 18, Window((3, 2), (1, 2), (2, 3), ((2, 1), (0, 3)))),
    "growing": ((1, 3, 4, 8), 1, Window((3, 3), (1, 1), (1, 1), ((2, 2), (2, 2)))),
    "one tap": ((2, 4, 5, 6), 7, Window((1, 1), (2, 1), (1, 1), NONE)),
    "one channel": ((1, 9, 5, 1), 8, Window((4, 3), (2, 2), (1, 1), ((1, 2), (0, 1)))),
    "many channels": ((1, 4, 4, 129), 65, Window((2, 2), (1, 1), (1, 1), NONE)),
}


@here
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolution(name, rng):
    shape, oc, window = CONVOLUTIONS[name]
    assert onednn.pads(shape[1:-1], window)
    call = jax.jit(lambda x, weight: onednn.convolution(x, weight, window))
    for values in (extreme, lambda rng, shape: draw(rng, DType.INT8, shape)):
        for _ in range(4):
            x, weight = values(rng, shape), values(rng, (*window.size, shape[-1], oc))
            assert onednn.convolves(np.moveaxis(weight, -1, 0))
            result = call(x, weight)
            assert result.dtype == np.int32
            np.testing.assert_array_equal(np.asarray(result), raised_sums(x, weight, window))


@here
def test_convolution_under_transforms(rng):
    shape, oc, window = CONVOLUTIONS["same"]
    xs = draw(rng, DType.INT8, (3, 2, *shape))
    weights = draw(rng, DType.INT8, (3, *window.size, shape[-1], oc))

    def call(x, weight):
        return onednn.convolution(x, weight, window)

    each = np.stack(
        [[raised_sums(x, w, window) for x in two] for two, w in zip(xs, weights, strict=True)]
    )
    inner = jax.vmap(call, (0, None))
    for function in (jax.vmap(inner), jax.jit(jax.vmap(inner)), jax.vmap(jax.jit(inner))):
        np.testing.assert_array_equal(np.asarray(function(xs, weights)), each)
    result = jax.jit(jax.vmap(call, (None, 0)))(xs[0, 0], weights)
    want = [raised_sums(xs[0, 0], weight, window) for weight in weights]
    np.testing.assert_array_equal(np.asarray(result), want)
    mapped = jax.lax.map(lambda x: inner(*x), (xs, weights))
    np.testing.assert_array_equal(np.asarray(mapped), each)


@pytest.mark.parametrize("sign", [1, -1])
def test_weights_that_may_reach_too_far_are_left_to_xla(sign):
    most = 2**24 // 255
    weight = np.zeros((2, 1, 1, 1000), np.int8)
    weight[1].flat[: most // 127] = sign * 127
    weight[1].flat[-1] = sign * (most % 127)
    assert onednn.convolves(weight)
    weight[1].flat[-1] += sign
    assert not onednn.convolves(weight)
    weight[1].flat[-2] = -sign * 100  # takes away from every sum that the others add to
    assert not onednn.convolves(weight)


def test_it_pads_where_windows_are_no_larger_than_the_input_and_reach_it():
    """Of others it is known to read the wrong elements: (4, 1) by a window of (5, 4), say."""
    window = Window((3, 2), (1, 1), (2, 1), ((4, 4), (1, 0)))
    assert onednn.pads((5, 2), window)
    assert not onednn.pads((4, 2), window)
    assert not onednn.pads((5, 1), window)
    assert not onednn.pads((9, 9), window._replace(pad=((5, 0), (0, 0))))
    assert not onednn.pads((9, 9), window._replace(pad=((0, 0), (0, 2))))


def convolution_graph():
    b = Builder()
    x = b.input("x", DType.INT8, (-1, 32, 32, 16))
    weight = b.const(np.arange(9 * 16 * 16).reshape(16, 3, 3, 16) % 250 - 125, DType.INT8)
    y = b.op(
        "CONV2D", x, weight, b.const(np.zeros(16), DType.INT32), b.const([3], DType.INT8),
        b.const([0], DType.INT8), pad=(1, 1, 1, 1), stride=(1, 1), dilation=(1, 1),
        acc_type=DType.INT32,
    )  # fmt: skip
    return b.graph([y])


@here
def test_compiled_graphs_call_it_where_it_pays(tmp_path, rng):
    graph = convolution_graph()
    many = draw(rng, DType.INT8, (8, 32, 32, 16))
    compiled = functools.partial(tosajax.compile, graph, native=False)
    quick, plain = (compiled(batch=8, onednn=on) for on in (True, False))
    assert "__onednn$convolution" in quick.hlo()
    assert quick.cost().nodes[0].route == "onednn convolution"
    others = [plain, compiled(batch=8, cache_dir=tmp_path)]
    for run in (*others, compiled(batch=1)):
        assert "__onednn" not in run.hlo()
        assert run.cost().nodes[0].route == "convolution"
    (want,) = plain(many)
    for run in (quick, *others):
        (result,) = run(many)
        np.testing.assert_array_equal(np.asarray(result), np.asarray(want))
    quick.save(tmp_path / "a.tjx")
    (result,) = tosajax.load_executable(tmp_path / "a.tjx")(many)
    np.testing.assert_array_equal(np.asarray(result), np.asarray(want))


@here
def test_matrices_and_single_taps_say_what_multiplies(rng):
    b = Builder()
    x, y = b.input("x", DType.INT8, (1, 256, 256)), b.input("y", DType.INT8, (1, 256, 256))
    zero = b.const([0], DType.INT8)
    graph = b.graph([b.op("MATMUL", x, y, zero, b.const([2], DType.INT8))])
    run = tosajax.compile(graph, native=False)
    assert run.cost().nodes[0].reason == "int8, by oneDNN"
    left, right = (draw(rng, DType.INT8, (1, 256, 256)) for _ in range(2))
    (result,) = run(left, right)
    np.testing.assert_array_equal(np.asarray(result), wide(left) @ (wide(right) - 2))


@here
def test_a_user_who_keeps_programs_gets_ones_that_can_be_kept(tmp_path):
    assert onednn.usable()
    before = jax.config.jax_compilation_cache_dir  # pyright: ignore
    try:
        jax.config.update("jax_compilation_cache_dir", str(tmp_path))
        assert not onednn.usable()
    finally:
        jax.config.update("jax_compilation_cache_dir", before)


def test_other_processors_and_versions_are_left_to_xla(monkeypatch):
    here = frozenset({version("jaxlib")})
    for flags, versions, fast in (
        ({"avx512_vnni"}, here, True),
        ({"avx512_vnni", "amx_int8"}, here, False),
        ({"avx512f"}, here, False),
        ({"avx512_vnni"}, frozenset({"0.0.0"}), False),
    ):
        monkeypatch.setattr(onednn, "_cpu_flags", lambda flags=flags: frozenset(flags))
        monkeypatch.setattr(onednn, "_VERSIONS", versions)
        assert onednn._is_fast.__wrapped__() == fast


@pytest.mark.skipif(
    not onednn._is_fast() or "ONEDNN_MAX_CPU_ISA" in os.environ, reason="no VNNI, or not for it"
)
def test_its_sums_are_exact_here():
    assert onednn._is_exact()


def test_only_cpus_that_add_exactly_call_it(monkeypatch):
    keeps_programs = jax.config.jax_compilation_cache_dir is not None  # pyright: ignore
    monkeypatch.setattr(onednn, "_is_fast", lambda: True)
    for exact in (True, False):
        monkeypatch.setattr(onednn, "_is_exact", lambda exact=exact: exact)
        assert platform.at_hand("cpu").onednn == (exact and not keeps_programs)
        assert not platform.at_hand("cuda").onednn


@here
@pytest.mark.parametrize("instructions", ["AVX512_CORE", "AVX2"])
def test_instructions_that_stop_at_16_bits_are_noticed(instructions):
    program = "from tosajax.ops.routes import onednn; print(onednn.usable())"
    result = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "ONEDNN_MAX_CPU_ISA": instructions},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert result.stdout.split() == ["False"]


def test_the_platform_of_a_trace_ends_with_it():
    assert platform.current() == ANY
    seen = []

    def fail():
        with tracing_for(HERE):
            seen.append(platform.current())
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert seen == [HERE]
    assert platform.current() == ANY


@pytest.mark.parametrize(("name", "count"), [("cpu", 1), ("cuda", 0), (None, 1)])
def test_a_known_platform_has_its_route_alone(name, count, rng):
    x = draw(rng, DType.INT8, (2, 8, 8, 32))
    weight = draw(rng, DType.INT8, (32, 3, 3, 32))
    zero = np.zeros(1, np.int8)
    window = Window((3, 3), (1, 1), (1, 1), ((1, 1), (1, 1)))

    def call(x):
        with tracing_for(Platform(name)):
            return choose.convolve_integers(Convolution(x, weight, zero, zero, window))

    text = str(jax.make_jaxpr(call)(x))
    assert text.count("conv_general_dilated[") == count
    assert ("dot_general[" in text) == (name != "cpu")
    operands = on_cpu(x), on_cpu(weight), on_cpu(zero), on_cpu(zero)
    want = definition.convolution(Convolution(*operands, window))
    np.testing.assert_array_equal(np.asarray(call(x)), np.asarray(want))


@here
def test_small_products_are_left_to_xla():
    a = jnp.ones((64, 64), jnp.int8)
    with tracing_for(HERE):
        assert not dot.by_onednn(a, a)
    with tracing_for(HERE._replace(examples=16)):
        assert dot.by_onednn(a, a)
        long = jnp.ones((64, 64 * 1024), jnp.int8)
        assert not dot.by_onednn(long[:1], long, b_axis=-1)  # 64 parts, none of which pays
    with tracing_for(ANY._replace(examples=16)):
        assert not dot.by_onednn(a, a)


@here
def test_random_shapes(capsys):
    assert fuzz_onednn.main(["--cases", "12", "--seed", "3"]) == 0
    assert capsys.readouterr().out.endswith("12 cases, 0 differ\n")


@here
def test_a_wrong_sum_is_found(monkeypatch, capsys):
    call = onednn._call
    monkeypatch.setattr(onednn, "_call", lambda *args: call(*args) | np.int32(1))
    assert fuzz_onednn.main(["--cases", "4", "--seed", "3"]) == 1
    assert "differ" in capsys.readouterr().out
