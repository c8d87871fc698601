"""Which constants of a program are its arguments."""

from __future__ import annotations

import signal
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tosajax
from tosajax import Builder, DType
from tosajax.runtime.compiled import trace

pytest.importorskip("llvmlite")

from tosajax.native import call
from tosajax.native.codegen import isa
from tosajax.ops._window import Window

ONES = Window((1, 1), (1, 1), (1, 1), ((0, 0), (0, 0)))
RNG = np.random.default_rng(0)
IMAGE = jnp.asarray(RNG.integers(-128, 128, (1, 2, 3, 512)).astype(np.int8))


def convolved(x: jax.Array, channels: int) -> jax.Array:
    weight = np.random.default_rng(1).integers(-128, 128, (channels, 1, 1, 512)).astype(np.int8)
    zero = np.zeros(1, np.int32)
    operands = call.Operands(x, weight, zero, zero.astype(np.int8))
    return call.run(call.convolve(isa.usable()[0], operands, ONES))


@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize(("channels", "large"), [(64, []), (1024, [2**19])])
def test_constants_of_native_kernels_stay_unless_they_are_large(
    channels: int, large: list[int], batched: bool
):
    def program(params: object, x: jax.Array) -> jax.Array:
        return convolved(x, channels)

    run = jax.vmap(program, (None, 0)) if batched else program
    x = IMAGE[None] if batched else IMAGE
    function, constants = trace(run, {}, x)
    assert [c.size for c in constants] == large
    np.testing.assert_array_equal(function(constants, x), run({}, x))


def test_what_xla_computes_with_becomes_an_argument():
    table = np.arange(512, dtype=np.int32).reshape(1, 1, 1, 512)

    def program(params: object, x: jax.Array) -> jax.Array:
        return convolved(x, 64)[..., :1] + jnp.asarray(table)

    _, constants = trace(program, {}, IMAGE)
    (found,) = constants
    np.testing.assert_array_equal(found, table)


# A program that prints what happens while XLA compiles, and sends itself an interrupt meanwhile.
INTERRUPTED = """
import os, signal, threading, time
import jax, numpy as np, tosajax

signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs of a shell ignore it
compile = jax.stages.Lowered.compile

def interrupted(lowered, *options):
    threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
    time.sleep(1)
    compiled = compile(lowered, *options)
    print("compiled", flush=True)
    return compiled

b = tosajax.Builder()
x = b.input("x", tosajax.DType.INT32, (2,))
run = tosajax.compile(b.graph([b.op("ABS", x)]))
jax.stages.Lowered.compile = interrupted
try:
    run(np.zeros(2, np.int32))
except KeyboardInterrupt:
    print("interrupted", flush=True)
    raise
"""


def test_an_interrupt_of_the_first_call_ends_python_when_xla_has_compiled():
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == ["interrupted", "compiled"], done.stderr
    assert done.returncode == -signal.SIGINT
    assert done.stderr.rstrip().endswith("KeyboardInterrupt")


def test_a_first_call_compiles_its_program_once():
    b = Builder()
    run = tosajax.compile(b.graph([b.op("ABS", b.input("x", DType.INT32, (2,)))]))
    names: list[str] = []

    def record(event: str, duration_secs: float, **_: str | int) -> None:
        del duration_secs
        names.append(event)

    x = jnp.zeros(2, jnp.int32)
    jax.monitoring.register_event_duration_secs_listener(record)
    try:
        run(x)
        run(x)
    finally:
        jax.monitoring.unregister_event_duration_listener(record)
    assert sum("backend_compile" in name for name in names) == 1
