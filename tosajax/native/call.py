"""Native kernels as functions of JAX.

Each operator's function prepares a `KernelCall`, with its operands as `operands` makes them. `run`
and `run_all` call prepared kernels; `vmap` joins examples in one call.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tosajax.fixedpoint import _x64
from tosajax.native import threads_wait, tiling
from tosajax.native.calls import compiler, schedule
from tosajax.native.calls.schedule import KernelCall, Link, Placeholder
from tosajax.native.codegen.isa import InstructionSet
from tosajax.native.kernels import (
    addition,
    convolution,
    depthwise,
    depthwise_float,
    matmul,
    pool,
)
from tosajax.native.kernels.epilogue import FusedAdd
from tosajax.native.operands import (
    Adding,
    Array,
    Epilogue,
    FloatSteps,
    Operands,
    Scaling,
    add_key_of,
    array_module,
    channel_operands,
    channels_of,
    element_dtype,
    epilogue_key_of,
    images_of,
    limits_of,
    pack_weights,
    set_of,
)
from tosajax.native.tiling import Plan
from tosajax.ops._window import Window


def convolve(
    isa: InstructionSet,
    o: Operands,
    window: Window,
    epilogue: Epilogue | FloatSteps | None = None,
    adding: Adding | None = None,
) -> KernelCall:
    """CONV2D: sums (x - x_zp) * weight + bias over windows; x is padded with x_zp.

    Args:
      isa: an instruction set of this processor.
      o: the operands.
      window: the window of the convolution; its padding is not negative.
      epilogue: RESCALE and CLAMP of the accumulators, or the steps of float32; None returns the
        accumulators.
      adding: ADD or SUB of the results, if these are int8.

    Returns:
      A kernel whose result is [N, OH, OW, OC] of the epilogue's type; without an epilogue, the
      accumulators: int32, or int64 if x is int16, or float32.
    """
    if _is_column(o, window):
        return _by_rows(convolve, isa, o, window, 1, epilogue, adding)
    shape, is_wide, isa = o.weight.shape, o.is_wide, set_of(isa, o)
    oc = shape[0]
    vectors = -(-oc // isa.lanes)
    key = epilogue_key_of(isa, oc, epilogue, is_int16=o.is_int16)
    tile_vectors = tiling.vectors_of_tile(isa, vectors, window, o.x.shape)
    inputs, scales = images_of(o, epilogue), ()
    if adding is not None:
        add_key, *scales = add_key_of(isa, adding.op, adding.scales, adding.epilogue)
        key = key._replace(fused_add=FusedAdd(add_key, adding.is_right))
        inputs = o.x, adding.other
    cut = tiling.cut_of(isa, window, shape, is_int16=key.is_int16, is_wide=is_wide)
    packed, weight_sums = pack_weights(o.weight, isa, vectors, tile_vectors, cut)

    def plan(x: Sequence[int], workers: int) -> Plan:
        return tiling.of_convolution(isa, key, window, shape, cut, tile_vectors, x, workers)

    def out(x: Sequence[int]) -> tuple[int, ...]:
        return *window.out(x), oc

    channels = channel_operands(isa, key, oc, o, weight_sums, epilogue)
    operands = *inputs, packed, *channels, *scales
    return KernelCall(convolution.module_of, plan, out, operands, key.dtype, len(inputs))


def convolve_depthwise(
    isa: InstructionSet,
    o: Operands,
    window: Window,
    epilogue: Epilogue | FloatSteps | None = None,
) -> KernelCall:
    """DEPTHWISE_CONV2D, as `convolve` of each channel alone, to [N, OH, OW, C * M]."""
    if _is_column(o, window):
        return _by_rows(convolve_depthwise, isa, o, window, 0, epilogue)
    isa = set_of(isa, o).vector_set
    kh, kw, inputs, multiplier = o.weight.shape
    if isa.is_float and multiplier == 1:
        return _convolve_depthwise_float(isa, o, window, epilogue)
    # Where a vector has room for several pixels, the weights are repeated for each of them.
    width = window.out(o.x.shape)[1]
    pixels_per_vector = tiling.pixels_per_vector(isa, inputs * multiplier, width)
    positions = min(width // pixels_per_vector, depthwise.MAX_POSITIONS)
    oc = inputs * multiplier * pixels_per_vector
    vectors = -(-oc // isa.lanes)
    epilogue_key = epilogue_key_of(isa, oc, epilogue, is_int16=o.is_int16)
    key = depthwise.KernelKey(isa, kh, kw, positions, multiplier > 1, epilogue_key)
    xp = array_module(o.weight)
    by_tap = o.weight.reshape(kh, kw, inputs * multiplier)
    weight_sums = None if isa.is_float else by_tap.astype(np.int32).sum((0, 1))
    widths = [(0, 0), (0, key.groups * isa.dot_length - kw), (0, vectors * isa.lanes - oc)]
    tiled = xp.pad(xp.tile(by_tap, (1, 1, pixels_per_vector)), widths)
    words = tiled.reshape(kh, key.groups, isa.dot_length, vectors, isa.lanes)
    packed = words.transpose(3, 0, 1, 4, 2).reshape(-1).astype(element_dtype(isa))

    def plan(x: Sequence[int], workers: int) -> Plan:
        return tiling.of_depthwise(key, window, multiplier, x, workers)

    def out(x: Sequence[int]) -> tuple[int, ...]:
        return *window.out(x), inputs * multiplier

    read = images_of(o, epilogue)
    operands = *read, packed, *channel_operands(isa, epilogue_key, oc, o, weight_sums, epilogue)
    return KernelCall(depthwise.module_of, plan, out, operands, epilogue_key.dtype, len(read))


def _is_column(o: Operands, window: Window) -> bool:
    """Whether images and windows are one column wide, as those of sequences may be."""
    _, height, width, _ = o.x.shape
    return width == window.size[1] == 1 < height and window.pad[1] == (0, 0)


def _by_rows(
    make: Callable[..., KernelCall],
    isa: InstructionSet,
    o: Operands,
    window: Window,
    axis: int,
    *others: Any,
) -> KernelCall:
    """A convolution of one column as one of a row, where tiles have many pixels.

    Args:
      make: `convolve` or `convolve_depthwise`.
      isa: the instruction set.
      o: the operands.
      window: the window.
      axis: the axis of the weight's rows.
      *others: other arguments of `make`.
    """

    def turned(x: Sequence[int]) -> tuple[int, ...]:
        return x[0], x[2], x[1], x[3]

    row = jax.ShapeDtypeStruct(turned(o.x.shape), o.x.dtype)
    weight = o.weight.swapaxes(axis, axis + 1)
    by_rows = Window(
        window.size[::-1], window.stride[::-1], window.dilation[::-1], window.pad[::-1]
    )
    kernel = make(isa, o._replace(x=row, weight=weight), by_rows, *others)
    channels = kernel.out(row.shape)[-1]

    def plan(x: Sequence[int], workers: int) -> Plan:
        return kernel.plan(turned(x), workers)

    def out(x: Sequence[int]) -> tuple[int, ...]:
        return *window.out(x), channels

    return kernel._replace(plan=plan, out=out, operands=(o.x, *kernel.operands[1:]))


def _convolve_depthwise_float(
    isa: InstructionSet, o: Operands, window: Window, epilogue: Epilogue | FloatSteps | None
) -> KernelCall:
    """`convolve_depthwise` of float32 with one output channel for each input channel."""
    kh, kw, inputs, _ = o.weight.shape
    width, stride = window.out(o.x.shape)[1], window.stride[1]
    # The channels of neighbouring pixels lie side by side only where the window moves by one.
    count = tiling.pixels_per_vector(isa, inputs, width) if stride == 1 else 1
    oc = inputs * count
    key = depthwise_float.KernelKey(
        isa,
        kh,
        kw,
        min(width // count, depthwise_float.MAX_POSITIONS),
        stride * count,
        window.dilation[1],
        epilogue_key_of(isa, oc, epilogue, is_int16=False),
    )
    xp = array_module(o.weight)
    tiled = xp.tile(o.weight.reshape(kh * kw, inputs), (1, count))
    tiled = xp.pad(tiled, [(0, 0), (0, -oc % isa.lanes)])
    packed = tiled.reshape(kh * kw, -1, isa.lanes).transpose(1, 0, 2).reshape(-1)

    def plan(x: Sequence[int], workers: int) -> Plan:
        return tiling.of_depthwise_float(key, window, count, x, workers)

    def out(x: Sequence[int]) -> tuple[int, ...]:
        return *window.out(x), inputs

    read = images_of(o, epilogue)
    operands = *read, packed, *channel_operands(isa, key.epilogue, oc, o, None, epilogue)
    return KernelCall(depthwise_float.module_of, plan, out, operands, key.epilogue.dtype, len(read))


def multiply(
    isa: InstructionSet,
    inputs: Sequence[Array],
    zero_points: Sequence[Array],
    epilogue: Epilogue | None = None,
) -> KernelCall:
    """MATMUL: (a - a_zp) @ (b - b_zp).

    Args:
      isa: an instruction set of this processor.
      inputs: a and b, int8 or int16, [N, H, C] and [N, C, W].
      zero_points: the zero points of a and b, of their type, [1]; 0 for int16.
      epilogue: RESCALE and CLAMP of the accumulators; None returns them.

    Returns:
      A kernel whose result is [N, H, W] of the epilogue's type; without an epilogue, the
      accumulators: int32, or int64 if a and b are int16.
    """
    width = inputs[1].shape[2]
    is_int16 = np.dtype(inputs[0].dtype) == np.int16
    isa = isa.int16_set if is_int16 else isa
    key = epilogue_key_of(isa, width, epilogue, is_int16=is_int16)

    def plan(a: Sequence[int], workers: int) -> Plan:
        return tiling.of_matmul(isa, key, width, a, workers)

    def out(a: Sequence[int]) -> tuple[int, ...]:
        return a[1], width

    limits = limits_of(zero_points[0], epilogue, zero_points[1])
    bias = [np.zeros(1, np.int32)] * (1 + is_int16)
    operands = *inputs, channels_of(key, width, bias, epilogue), limits
    return KernelCall(matmul.module_of, plan, out, operands, key.dtype, 2)


def add(
    isa: InstructionSet,
    op: str,
    inputs: tuple[Array, Array],
    scales: tuple[Scaling, Scaling],
    epilogue: Epilogue,
) -> KernelCall:
    """ADD or SUB of inputs that are rescaled to int32, rescaled to int8.

    Args:
      isa: an instruction set of this processor.
      op: "ADD" or "SUB".
      inputs: int8, of one shape, with at least `isa.lanes` elements.
      scales: the scales of each input.
      epilogue: RESCALE of the sums by one scale, and CLAMP.

    Returns:
      A kernel whose result is int8 of the inputs' shape.
    """
    add_key, scale_rows = add_key_of(isa, op, scales, epilogue)
    key = addition.KernelKey(isa, 1, add_key)

    def plan(x: Sequence[int], workers: int) -> Plan:
        return tiling.of_addition(key, math.prod(x), workers)

    operands = *inputs, scale_rows
    return KernelCall(addition.module_of, plan, lambda x: tuple(x[1:]), operands, np.int8, 2)


def combine(
    isa: InstructionSet, op: str, x: Array, window: Window, zero_points: Sequence[Array]
) -> KernelCall:
    """AVG_POOL2D or MAX_POOL2D.

    Args:
      isa: an instruction set of this processor.
      op: "AVG_POOL2D" or "MAX_POOL2D".
      x: int8, int16 or float32, [N, H, W, C].
      window: the window of the pool.
      zero_points: the zero points of the input and the output, [1]; 0 for MAX_POOL2D and floats.

    Returns:
      A kernel whose result is [N, OH, OW, C] of x's type.
    """
    channels = x.shape[3]
    key = pool.KernelKey(isa, op, np.dtype(x.dtype), 0)
    key = key._replace(last=channels % key.lanes)

    def plan(shape: Sequence[int], workers: int) -> Plan:
        return tiling.of_pool(key, window, shape, workers)

    def out(shape: Sequence[int]) -> tuple[int, ...]:
        return *window.out(shape), channels

    xp = array_module(*zero_points)
    numbers = xp.stack([xp.asarray(z).astype(np.int32).reshape(()) for z in zero_points])
    return KernelCall(pool.module_of, plan, out, (x, numbers), x.dtype)


# Calls.


def run(kernel: KernelCall) -> jax.Array:
    """Calls a kernel, and returns its result. `vmap` joins examples of the inputs in one call."""
    return run_all([kernel], [0])[0]


def run_all(kernels: Sequence[KernelCall], outputs: Sequence[int]) -> list[jax.Array]:
    """Runs a chain of kernels in one call.

    Args:
      kernels: in order. Unless there is only one, all inputs and results have as many images. An
        input may be the `placeholder` of an earlier kernel.
      outputs: indices of the kernels whose results are returned.

    Returns:
      The results, in the order of `outputs`.
    """
    waits = threads_wait()
    links, arrays, inputs = link_kernels(kernels)
    first = links[0].operand_numbers

    @jax.custom_batching.custom_vmap
    def call(*arrays: jax.Array) -> tuple[jax.Array, ...]:
        return _ffi_call(links, outputs, arrays, waits=waits)

    @call.def_vmap
    def _(count: int, batched: Sequence[bool], *arrays: jax.Array):
        done = (True,) * len(outputs)
        if any(batched[inputs:]) and len(links) > 1 and not any(batched[n] for n in first):
            # Kernels before the first that is mapped are computed once for all examples.
            apart = jax.vmap(one_by_one, [0 if has else None for has in batched])
            return apart(*arrays), done
        stacked = (
            a if has else jnp.broadcast_to(a, (count, *a.shape))
            for a, has in zip(arrays, batched, strict=True)
        )
        if any(batched[inputs:]):
            return lax.map(lambda each: call(*each), tuple(stacked)), done
        joined = [x.reshape(-1, *x.shape[2:]) for x in itertools.islice(stacked, inputs)]
        results = call(*joined, *arrays[inputs:])
        return tuple(y.reshape(count, -1, *y.shape[1:]) for y in results), done

    def one_by_one(*arrays: jax.Array) -> tuple[jax.Array, ...]:
        results: list[jax.Array] = []
        for link in links:
            read = (
                results[s.number] if isinstance(s, Placeholder) else arrays[s] for s in link.sources
            )
            operands = *read, *(arrays[number] for number in link.parameters)
            results.append(run(link.kernel._replace(operands=operands)))
        return tuple(results[number] for number in outputs)

    return list(call(*arrays))


def _ffi_call(
    links: Sequence[Link], outputs: Sequence[int], arrays: Sequence[jax.Array], *, waits: bool
) -> tuple[jax.Array, ...]:
    """Plans, compiles and emits one call of XLA's FFI; returns its results."""
    images = arrays[0].shape[0]
    planned = schedule.plan_call(links, outputs, images, operands=len(arrays), waits=waits)
    compiler.register(planned, [link.kernel.module_of for link in links])
    prepared = [links[number].kernel.placeholder(number) for number in outputs]
    repeats = images // links[0].kernel.shape[0]
    with contextlib.ExitStack() as scopes:
        for out in prepared:
            scopes.enter_context(_x64.scope_of(out.dtype))
        results = [
            jax.ShapeDtypeStruct((out.shape[0] * repeats, *out.shape[1:]), out.dtype)
            for out in prepared
        ]
        workspace = jax.ShapeDtypeStruct((planned.workspace,), jnp.uint8)
        # As int32, since JAX has 64-bit arrays only in x64 mode.
        words = planned.words.view(np.int32)
        return tuple(jax.ffi.ffi_call(planned.name, (*results, workspace))(*arrays, words)[:-1])


def link_kernels(kernels: Sequence[KernelCall]) -> tuple[list[Link], list[jax.Array], int]:
    """Numbers the operands of a chain of kernels; an input that several kernels read counts once.

    Returns:
      The kernels, linked to operands of the call; these operands; and how many of them, at the
      begin, are inputs.
    """
    inputs_by_id = {
        id(x): x for k in kernels for x in k.operands[: k.inputs] if not isinstance(x, Placeholder)
    }
    number_of = {key: number for number, key in enumerate(inputs_by_id)}
    operands, links = [*inputs_by_id.values()], []
    for kernel in kernels:
        inputs, others = kernel.operands[: kernel.inputs], kernel.operands[kernel.inputs :]
        sources = tuple(x if isinstance(x, Placeholder) else number_of[id(x)] for x in inputs)
        numbers = range(len(operands), len(operands) + len(others))
        links.append(Link(kernel, sources, tuple(numbers)))
        operands += others
    return links, list(map(jnp.asarray, operands)), len(inputs_by_id)
