"""int8 products by oneDNN, which jaxlib holds beside XLA's own kernels.

On x86 processors with the VNNI instructions and without AMX, oneDNN's kernels are two to three
times faster than XLA's, which use neither. A program calls them by name. XLA does not promise to
keep these names, so they stand in this file only: `_VERSIONS` lists the versions of jaxlib that
pass the tests, and `usable` checks that sums are exact on this processor.

oneDNN rounds sums to float32. So no sum may exceed 2**24: long ones are computed in parts, and
convolutions whose weights might reach it are left to XLA.
"""

from __future__ import annotations

import functools
import json
import platform
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tosajax.environment import switch
from tosajax.ops._window import Window

_VARIABLE = "TOSAJAX_ONEDNN"
_VERSIONS = frozenset({"0.10.2"})
# Multiply-accumulates below which a call costs more than it saves.
_MIN_MACS = 2**22
_MAX_SUM = 2**24
# Products of int8 are at most 2**14, so that this many of them fit.
_MAX_TERMS = _MAX_SUM // 2**14
# Added to the input of `convolution`: oneDNN's kernels multiply uint8 by int8.
RAISED = 128


def is_wanted() -> bool:
    """Whether the environment allows oneDNN, as it does without TOSAJAX_ONEDNN=0.

    Raises:
      ValueError: TOSAJAX_ONEDNN is neither 0 nor 1.
    """
    return switch(_VARIABLE) is not False


def usable() -> bool:
    """Whether oneDNN is exact and faster in programs that are compiled now for this CPU."""
    # XLA cannot write such a program into its cache.
    keeps_programs = jax.config.jax_compilation_cache_dir is not None  # pyright: ignore
    return not keeps_programs and _is_fast() and _is_exact()


def pays(macs: int) -> bool:
    """Whether so many multiply-accumulates are worth a call."""
    return macs >= _MIN_MACS


def dot(a: jax.Array, b: jax.Array | np.ndarray, *, transposed: bool) -> jax.Array:
    """int8 [..., M, K] times int8 [..., K, N], or [..., N, K] transposed, in int32."""
    rows, length = a.shape[-2:]
    batch, columns = a.shape[:-2], b.shape[-2 if transposed else -1]
    if all(size == 1 for size in batch):
        a, b = a.reshape(a.shape[-2:]), b.reshape(b.shape[-2:])
    at_once = -(-length // parts_of(b, transposed=transposed))
    total = 0
    for start in range(0, length, at_once):
        terms = slice(start, start + at_once)
        part = b[..., terms] if transposed else b[..., terms, :]
        total = total + _dot(transposed)(a[..., terms], jnp.asarray(part))
    return jnp.asarray(total).reshape(*batch, rows, columns)


def parts_of(b: jax.Array | np.ndarray, *, transposed: bool) -> int:
    """The parts that `dot` adds up so that no sum is too large; one, if constants allow it."""
    axis = -1 if transposed else -2
    if isinstance(b, np.ndarray):
        largest = np.abs(b.astype(np.int32)).sum(axis=axis).max(initial=0)
        if 128 * int(largest) <= _MAX_SUM:
            return 1
    return -(-b.shape[axis] // _MAX_TERMS)


def convolution(x: jax.Array, weight: jax.Array | np.ndarray, shape: Window) -> jax.Array:
    """Sums (x + 128) * weight over windows of [N, H, W, IC], padding adding nothing.

    Args:
      x: int8, [N, H, W, IC].
      weight: int8, [KH, KW, IC, OC].
      shape: the window.

    Returns:
      int32, [N, OH, OW, OC].
    """
    unsigned = lax.bitcast_convert_type(x, jnp.uint8) ^ np.uint8(RAISED)
    return _convolution(shape)(unsigned, jnp.asarray(weight))


def convolves(weight: np.ndarray) -> bool:
    """Whether sums of uint8 by constant weights [OC, ..., IC] are small enough."""
    flat = weight.reshape(weight.shape[0], -1).astype(np.int32)
    largest = max(flat.clip(min=0).sum(1).max(initial=0), -flat.clip(max=0).sum(1).min(initial=0))
    return 255 * int(largest) <= _MAX_SUM


def pads(lengths: Sequence[int], shape: Window) -> bool:
    """Whether its padding is right: no window is larger than the input; each reaches into it."""
    return all(
        (taps - 1) * dilation < length and max(pad) <= (taps - 1) * dilation
        for taps, dilation, pad, length in zip(
            shape.size, shape.dilation, shape.pad, lengths, strict=True
        )
    )


@functools.cache
def _dot(transposed: bool) -> Callable[..., jax.Array]:
    config = json.dumps({"onednn_matmul_config": {"transpose_b": transposed}})

    @jax.custom_batching.custom_vmap
    def product(a: jax.Array, b: jax.Array) -> jax.Array:
        columns = b.shape[-2 if transposed else -1]
        return _call("matmul", (*a.shape[:-1], columns), config, a, b)

    @product.def_vmap
    def _(count: int, batched: Sequence[bool], a: jax.Array, b: jax.Array):
        if batched[1]:
            a = a if batched[0] else jnp.broadcast_to(a, (count, *a.shape))
            return product(a, b), True
        # More rows of the same matrices.
        *batch, rows, length = a.shape[1:]
        joined = jnp.moveaxis(a, 0, -3).reshape(*batch, count * rows, length)
        result = product(joined, b).reshape(*batch, count, rows, -1)
        return jnp.moveaxis(result, -3, 0), True

    return product


def _convolution(shape: Window) -> Callable[..., jax.Array]:
    @jax.custom_batching.custom_vmap
    def convolve(x: jax.Array, weight: jax.Array) -> jax.Array:
        out = (x.shape[0], *shape.out(x.shape), weight.shape[-1])
        return _call("convolution", out, _convolution_config(shape), x, weight)

    @convolve.def_vmap
    def _(count: int, batched: Sequence[bool], x: jax.Array, weight: jax.Array):
        if batched[1]:
            x = x if batched[0] else jnp.broadcast_to(x, (count, *x.shape))
            return lax.map(lambda each: convolve(*each), (x, weight)), True
        result = convolve(x.reshape(-1, *x.shape[2:]), weight)
        return result.reshape(*x.shape[:2], *result.shape[1:]), True

    return convolve


def _convolution_config(shape: Window) -> str:
    """XLA's description of a convolution of NHWC by HWIO, for oneDNN."""
    data = {"data": {"batch_dim": 0, "feature_dim": 3, "spatial_dims": [1, 2]}}
    filters = {"input_feature_dim": 2, "output_feature_dim": 3, "spatial_dims": [0, 1]}
    window = {
        "size": shape.size,
        "pad_left": [low for low, _ in shape.pad],
        "pad_right": [high for _, high in shape.pad],
        "strides": shape.stride,
        "window_dilations": shape.dilation,
    }
    config = {
        "dims": 4,
        "input": data,
        "kernel": {"filter": filters},
        "output": data,
        "window": window,
        "feature_groups": 1,
    }
    return json.dumps({"onednn_conv_config": config})


def _call(name: str, shape: Sequence[int], config: str, *operands: jax.Array) -> jax.Array:
    result = jax.ShapeDtypeStruct(tuple(shape), jnp.int32)
    return jax.ffi.ffi_call(
        f"__onednn${name}", result, custom_call_api_version=1, legacy_backend_config=config
    )(*operands)


@functools.cache
def _is_fast() -> bool:
    """Whether this jaxlib is known, and oneDNN's kernels are faster here than XLA's."""
    flags = _cpu_flags()
    return version("jaxlib") in _VERSIONS and "avx512_vnni" in flags and "amx_int8" not in flags


def _cpu_flags() -> frozenset[str]:
    """The flags of the processor; none but on x86 Linux."""
    if platform.machine() != "x86_64" or platform.system() != "Linux":
        return frozenset()
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    found = next((line for line in lines if line.startswith("flags")), "")
    return frozenset(found.split())


@functools.cache
def _is_exact() -> bool:
    """Whether the largest sums come out right.

    Older instructions, which the environment may impose on oneDNN, saturate sums of two products at
    16 bits. The test is a convolution: with these instructions a product of matrices waits forever
    for more threads.
    """
    rows = np.repeat(np.array([[127], [-128]], np.int8), _MAX_TERMS, axis=1)
    columns = np.tile(np.array([[127, 127, 0, 0], [-128, -128, 0, 0]], np.int8), _MAX_TERMS // 4)
    columns[:, 0] = 126, -127  # so that the sums are odd
    window = Window((2, 2), (1, 1), (1, 1), ((0, 0), (0, 0)))
    x, weight = rows.reshape(2, 2, 2, -1), np.ascontiguousarray(columns.T).reshape(2, 2, -1, 2)
    with jax.default_device(jax.local_devices(backend="cpu")[0]):
        sums = jax.jit(functools.partial(convolution, shape=window)).lower(x, weight).compile()
        result = sums(x, weight)
    wanted = (rows.astype(np.int32) + 128) @ columns.T.astype(np.int32)
    return np.array_equal(np.asarray(result).reshape(2, 2), wanted)
