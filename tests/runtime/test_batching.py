"""Batches in micro-batches and on several devices: the bits of the examples alone."""

from __future__ import annotations

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from batched_graphs import APART, digits, inputs_of, with_shared_rows
from paths import ROOT

import tosajax
from tosajax import Builder, DType
from tosajax.sweep.program import graph_program


@pytest.fixture(scope="module")
def whole(data) -> jax.Array:
    """The scores of twelve digits, computed together."""
    graph, images = digits(data)
    return tosajax.compile(graph, batch=12, micro_batch=12)(images[:12])[0]


@pytest.mark.parametrize("batch", [1, 2, 7, 12])
@pytest.mark.parametrize("micro_batch", [1, 3, 7, 100])
def test_micro_batches(data, whole, batch, micro_batch):
    graph, images = digits(data)
    run = tosajax.compile(graph, batch=batch, micro_batch=micro_batch)
    assert run.micro_batch == min(batch, micro_batch)
    np.testing.assert_array_equal(run(images[:batch])[0], whole[:batch])


def test_state_and_flags_have_one_entry_for_each_example():
    b = Builder()
    x = b.input("x", DType.INT32, (1, 2))
    graph = b.graph([b.op("ADD", x, x, name="sum")])
    run = tosajax.compile(graph, batch=5, micro_batch=2, report_unpredictable=True)
    x = np.array([[0, 1], [2**30, 1], [1, 1], [1, 1], [2**31 - 1, 0]], np.int32)
    (y,), flags = run(x)
    assert y.shape == (5, 2)
    assert np.asarray(flags["ADD 'sum'", "add.r1"]).tolist() == [False, True, False, False, True]


def test_variables_of_examples_in_micro_batches():
    b = Builder()
    x = b.input("x", DType.FP32, (1,))
    b.variable("total", DType.FP32, (1,), initial_value=[0])
    b.write("total", b.op("ADD", b.read("total", DType.FP32, (1,)), x))
    run = tosajax.compile(b.graph([b.op("IDENTITY", x)]), batch=5, micro_batch=2)
    for _ in range(2):
        run(np.arange(5, dtype=np.float32))
    assert np.asarray(run.state["total"].value).tolist() == [[0], [2], [4], [6], [8]]


def test_clamps_are_fused_with_what_they_read():
    """And a product before one rounds as it does alone."""
    b, rng = Builder(), np.random.default_rng(5)
    x = b.input("x", DType.FP32, (1, 4, 5, 8))
    factor, term = (
        b.const(rng.normal(size=(1, 1, 1, 8)).astype(np.float32), DType.FP32) for _ in range(2)
    )
    product = b.op("MUL", x, factor, b.const([0], DType.INT8))
    graph = b.graph([b.op("ADD", b.op("CLAMP", product, min_val=-1.0, max_val=1.0), term)])
    fn, params = tosajax.lower(graph)
    program = str(jax.make_jaxpr(fn)(params, np.zeros((1, 4, 5, 8), np.float32)))
    assert program.count("optimization_barrier") == 2  # behind CLAMP and ADD
    images = rng.normal(size=(9, 4, 5, 8)).astype(np.float32)
    (found,) = tosajax.compile(graph, batch=9)(images)
    one = tosajax.compile(graph)
    for image, result in zip(images, found, strict=True):
        np.testing.assert_array_equal(one(image[None])[0][0], result)


@pytest.mark.parametrize("micro_batch", [2, 3, 7])
def test_int48_in_micro_batches(micro_batch):
    b = Builder()
    x, zero = b.input("x", DType.INT16, (1, 2, 9)), b.const([0], DType.INT16)
    weight = np.full((1, 9, 3), -32768, np.int16)
    graph = b.graph([b.op("MATMUL", x, b.const(weight, DType.INT16), zero, zero)])
    run = tosajax.compile(graph, batch=7, micro_batch=micro_batch)
    values = np.linspace(-32768, 32767, 7 * 2 * 9).astype(np.int16).reshape(7, 2, 9)
    (y,) = run(values)
    assert y.dtype == np.int64
    np.testing.assert_array_equal(
        np.asarray(y), values.astype(np.int64) @ weight[0].astype(np.int64)
    )


def test_calls_of_a_batch_are_of_one_size(data):
    graph, images = digits(data)
    for batch, micro_batch, calls in ((12, 5, 3), (12, 6, 2), (7, 3, 3), (5, 9, 1)):
        run = tosajax.compile(graph, batch=batch, micro_batch=micro_batch)
        compiled, _ = run._compile([jnp.asarray(images[:batch])])
        sizes = []
        key = next(iter(run._compiled))

        def count(constants, state, x, compiled=compiled, sizes=sizes):
            sizes.append(len(x))
            return compiled(constants, state, x)

        run._compiled[key] = count, run._compiled[key][1]
        run(images[:batch])
        assert sizes == [-(-batch // calls)] * calls


def pooled(dtype):
    b = Builder()
    x = b.input("x", dtype, (-1, 64, 64, 16))
    return b.graph([b.op("MAX_POOL2D", x, kernel=(2, 2), stride=(2, 2), pad=(0, 0, 0, 0))])


@pytest.mark.parametrize("dtype", [DType.INT8, DType.FP32])
def test_micro_batches_are_chosen_to_fit_the_cache(dtype):
    assert tosajax.compile(pooled(dtype), batch=2).micro_batch == 2
    if jax.default_backend() == "cpu":
        images = 2**20 // (64 * 64 * dtype.storage.itemsize)
        assert images / 2 <= (tosajax.compile(pooled(dtype), batch=1000).micro_batch or 0) <= images


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="micro-batches are of CPUs")
def test_devices_loop_over_floats_only_if_asked_for():
    device = jax.devices()[:1]
    floats, integers = pooled(DType.FP32), pooled(DType.INT8)
    assert tosajax.compile(floats, batch=600, devices=device).micro_batch == 600
    assert tosajax.compile(floats, batch=600, devices=device, micro_batch=50).micro_batch == 50
    assert (tosajax.compile(integers, batch=600, devices=device).micro_batch or 0) < 600


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="micro-batches are of CPUs")
@pytest.mark.parametrize(("dtype", "loops"), [(DType.INT8, True), (DType.FP32, False)])
def test_sweeps_do_not_loop_over_floats(dtype, loops):
    program = graph_program(pooled(dtype), {}, {}, 600)
    images = jax.ShapeDtypeStruct((600, 64, 64, 16), dtype.storage)
    assert ("scan[" in str(jax.make_jaxpr(program)({}, images))) == loops


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="micro-batches are of CPUs")
def test_constants_of_settings_do_not_count_in_micro_batches():
    b, size = Builder(), 2**22
    x = b.input("x", DType.INT8, (1, size))
    mask = b.const(np.zeros((1, size)), DType.INT8, name="mask")
    graph = b.graph([b.op("BITWISE_XOR", x, mask)])  # 8 MiB of 16 for an example
    shape = jax.ShapeDtypeStruct((4, size), np.int8), jax.ShapeDtypeStruct((1, size), np.int8)
    program = graph_program(graph, {}, {}, 4)
    assert "length=2" in str(jax.make_jaxpr(program)({"mask": shape[1]}, shape[0]))


@pytest.mark.parametrize("micro_batch", [0, -1])
def test_sizes_that_are_none(data, micro_batch):
    with pytest.raises(ValueError, match=r"micro_batch is .*, expected at least 1"):
        tosajax.compile(digits(data)[0], batch=2, micro_batch=micro_batch)


def test_no_batch_no_micro_batch(data):
    with pytest.raises(ValueError, match="runs as a whole"):
        tosajax.compile(digits(data)[0], micro_batch=2)


def test_inputs_that_examples_share():
    graph, (x, rows) = with_shared_rows()
    for micro_batch in (2, 4, None):
        (y,) = tosajax.compile(graph, batch=9, micro_batch=micro_batch)(x, rows)
        np.testing.assert_array_equal(np.asarray(y), x[:, None] + rows)


_ON_DEVICES = """
import sys
import tempfile
import jax
jax.config.update("jax_num_cpu_devices", 2)
sys.path.insert(0, "tests/support")
import numpy as np
import tosajax
from pathlib import Path
from kept_programs import FOLDER, keep_programs
if folder := __import__("os").environ.get(FOLDER):
    keep_programs(Path(folder))
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from batched_graphs import APART, digits, inputs_of, with_shared_rows

devices = jax.devices()
assert len(devices) == 2
graph, images = digits(Path("tests/data"))
some = [APART[name] for name in ("a row for all", "convolution", "rows of examples", "two outputs")]
runs = [(graph, [images[:9]]), *((g, inputs_of(g, 9)) for g in some), with_shared_rows()]
for run_graph, inputs in runs:
    expected = tosajax.compile(run_graph, batch=9)(*inputs)
    for micro_batch in (1, 2, None):
        run = tosajax.compile(run_graph, batch=9, micro_batch=micro_batch, devices=devices)
        for y, want in zip(run(*inputs), expected, strict=True):
            np.testing.assert_array_equal(y, want)

run = tosajax.compile(graph, batch=8, devices=devices)
(y,) = run(images[:8])
assert y.sharding.device_set == set(devices), y.sharding

# A file keeps the program, not the devices.
with tempfile.TemporaryDirectory() as folder:
    path = f"{folder}/saved.tjx"
    run.save(path)
    (z,) = tosajax.load_executable(path)(images[:8])
np.testing.assert_array_equal(y, z)
assert len(z.sharding.device_set) == 1, z.sharding

# The user's own shardings: RESCALE, the convolutions and everything between compile for them.
fn, params = tosajax.lower(graph)
mesh = Mesh(np.asarray(devices), ("b",))
x = jax.device_put(images[:8, None], NamedSharding(mesh, PartitionSpec("b")))
(y,) = jax.jit(jax.vmap(fn, in_axes=(None, 0)))(params, x)
want = tosajax.compile(graph, batch=8)(images[:8])[0]
np.testing.assert_array_equal(np.asarray(y).reshape(want.shape), want)
print("all equal")
"""


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="makes two devices of a CPU")
def test_two_devices():
    """In a process of its own: the number of CPU devices is fixed when JAX starts."""
    environment = os.environ | {"JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, "-c", _ON_DEVICES],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "all equal" in done.stdout


@pytest.mark.parametrize("name", ["binary", "two outputs"])
def test_one_device_given_by_hand(name):
    inputs = inputs_of(APART[name], 3)
    run = tosajax.compile(APART[name], batch=3, devices=jax.devices()[:1])
    for y, want in zip(run(*inputs), tosajax.compile(APART[name], batch=3)(*inputs), strict=True):
        np.testing.assert_array_equal(y, want)
