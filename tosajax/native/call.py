"""Native kernels as functions of JAX: weights are packed, sizes planned, and examples joined."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tosajax.native import addition, compiler, convolution, depthwise
from tosajax.native.code import Module
from tosajax.native.isa import InstructionSet
from tosajax.native.product import STEP
from tosajax.native.results import End
from tosajax.ops._window import Window

# Multiply-accumulates of an item: enough to pay for its copy and for taking it.
_ITEM_MACS = 2**19
_ITEM_SUMS = 2**15  # elements of an addition, likewise
_MOST_THREADS = 64
_MOST_VECTORS, _MOST_PIXELS = 4, 14  # of a tile
_SLACK = 64  # bytes behind a copy, which its last steps read
_LINE = 64  # bytes

Array = jax.Array | np.ndarray
Kind = convolution.Kind | depthwise.Kind | addition.Kind


class Operands(NamedTuple):
    """Of a convolution; what is a NumPy array is prepared when the program is made.

    Args:
      x: int8, [N, H, W, IC].
      weight: int8, less its zero point: [OC, KH, KW, IC], or depthwise [KH, KW, C, M].
      bias: int32, [1] or [OC].
      x_zp: int8, [1].
    """

    x: Array
    weight: Array
    bias: Array
    x_zp: Array


class Epilogue(NamedTuple):
    """RESCALE of the sums to int8, and CLAMP; all but `double` may be traced.

    Args:
      multiplier: int32 or int16, [1] or [OC].
      shift: int8, [1] or [OC].
      zero_point: of the output, a scalar.
      least: the least result, a scalar.
      largest: the largest.
      double: whether it rounds twice.
    """

    multiplier: Any
    shift: Any
    zero_point: Any
    least: Any
    largest: Any
    double: bool


class Scaling(NamedTuple):
    """RESCALE of int8 to int32; all but `double` may be traced.

    Args:
      zero_point: of the input, [1].
      multiplier: int32 or int16, [1].
      shift: int8, [1].
      double: whether it rounds twice.
    """

    zero_point: Any
    multiplier: Any
    shift: Any
    double: bool


class Prepared(NamedTuple):
    """A kernel, and what it is called with.

    Args:
      kind: of the kernel.
      module_of: makes its module.
      plan: (shape of the input) -> the plan, and the bytes of the workspace.
      out: (shape of the input) -> the shape of the output without its first dimension.
      operands: the inputs, and what is not theirs: weights, channels, limits.
      dtype: of the output.
      inputs: how many operands have examples.
    """

    kind: Kind
    module_of: Callable[[Any], Module]
    plan: Callable[[Sequence[int]], tuple[Sequence[int], int]]
    out: Callable[[Sequence[int]], tuple[int, ...]]
    operands: tuple[Array, ...]
    dtype: Any
    inputs: int = 1


def convolve(
    isa: InstructionSet, o: Operands, window: Window, epilogue: Epilogue | None = None
) -> Prepared:
    """Sums (x - x_zp) * weight + bias over windows, padded with x_zp.

    Args:
      isa: of this processor.
      o: the operands.
      window: of the convolution; its padding is not negative.
      epilogue: of the sums, if they are scaled.

    Returns:
      What `run` computes: [N, OH, OW, OC], int8, or int32 sums without an epilogue.
    """
    oc, _, kw, ic = shape = o.weight.shape
    vectors = -(-oc // isa.lanes)
    end = _end(isa, oc, epilogue)
    kind = _tiles(isa, vectors, window.out(o.x.shape), _is_flat(window), end)
    segment = ic if _is_split(window) else ic * kw
    packed, weight_sums = _packed(o.weight, kind, vectors, segment)

    def plan(of: Sequence[int]) -> tuple[Sequence[int], int]:
        return _convolution_plan(kind, window, shape, of)

    def out(of: Sequence[int]) -> tuple[int, ...]:
        return *window.out(of), oc

    operands = o.x, packed, *_by_channel(isa, end, oc, o, weight_sums, epilogue)
    return Prepared(kind, convolution.module_of, plan, out, operands, end.dtype)


def convolve_depthwise(
    isa: InstructionSet, o: Operands, window: Window, epilogue: Epilogue | None = None
) -> Prepared:
    """`convolve` of each channel by itself, to [N, OH, OW, C * M]."""
    kh, kw, inputs, multiplier = o.weight.shape
    # Small pixels lie in a vector together; each of them has the same weights.
    together = _together(isa, inputs * multiplier, window.out(o.x.shape)[1])
    oc = inputs * multiplier * together
    vectors = -(-oc // isa.lanes)
    end = _end(isa, oc, epilogue)
    kind = depthwise.Kind(isa, kh, -(-kw // isa.terms), multiplier > 1, end)
    xp = _module_of(o.weight)
    flat = o.weight.reshape(kh, kw, inputs * multiplier)
    weight_sums = flat.astype(np.int32).sum((0, 1))
    widths = [(0, 0), (0, kind.groups * isa.terms - kw), (0, vectors * isa.lanes - oc)]
    tiled = xp.pad(xp.tile(flat, (1, 1, together)), widths)
    cut = tiled.reshape(kh, kind.groups, isa.terms, vectors, isa.lanes)
    packed = cut.transpose(3, 0, 1, 4, 2).reshape(-1).astype(_term_type(isa))

    def plan(of: Sequence[int]) -> tuple[Sequence[int], int]:
        return _depthwise_plan(kind, window, multiplier, together, of)

    def out(of: Sequence[int]) -> tuple[int, ...]:
        return *window.out(of), inputs * multiplier

    operands = o.x, packed, *_by_channel(isa, end, oc, o, weight_sums, epilogue)
    return Prepared(kind, depthwise.module_of, plan, out, operands, end.dtype)


def add(
    isa: InstructionSet,
    op: str,
    inputs: tuple[Array, Array],
    scales: tuple[Scaling, Scaling],
    epilogue: Epilogue,
) -> Prepared:
    """The sum, or with "SUB" the difference, of scaled inputs, scaled.

    Args:
      isa: of this processor.
      op: "ADD" or "SUB".
      inputs: int8, of one shape, with as many elements as there are lanes or more.
      scales: of each input.
      epilogue: of the sums, by one scale.

    Returns:
      What `run` computes: int8 of that shape.
    """
    kind = addition.Kind(isa, op, (scales[0].double, scales[1].double, epilogue.double))
    numbers = [
        *(value for scale in scales for value in (scale.multiplier, scale.shift)),
        *(epilogue.multiplier, epilogue.shift),
        *(scale.zero_point for scale in scales),
        *(epilogue.zero_point, epilogue.least, epilogue.largest),
    ]
    xp = _module_of(*numbers)
    column = xp.stack([xp.asarray(n).astype(np.int32).reshape(1) for n in numbers])

    def plan(of: Sequence[int]) -> tuple[Sequence[int], int]:
        elements = math.prod(of)
        count = min(elements // isa.lanes * isa.lanes, _ITEM_SUMS)
        items = -(-elements // count)
        return [items, min(items, _threads()), count, elements], kind.scale.size

    operands = *inputs, xp.tile(column, (1, isa.lanes))
    return Prepared(kind, addition.module_of, plan, lambda of: tuple(of[1:]), operands, np.int8, 2)


def _together(isa: InstructionSet, channels: int, width: int) -> int:
    """How many pixels' channels a vector holds."""
    count = isa.lanes // channels if isa.lanes % channels == 0 else 1
    return count if width % count == 0 else 1


# Operands.


def _end(isa: InstructionSet, channels: int, epilogue: Epilogue | None) -> End:
    double = None if epilogue is None else epilogue.double
    return End(isa.lanes, double, channels % isa.lanes or isa.lanes)


def _term_type(isa: InstructionSet) -> type:
    return np.int8 if isa.bytes_of_term == 1 else np.int16


def _module_of(*arrays: Any) -> Any:
    """NumPy where all are known: what it computes costs a program nothing. Otherwise JAX's."""
    return jnp if any(isinstance(x, jax.Array) for x in arrays) else np


def _by_channel(
    isa: InstructionSet,
    end: End,
    count: int,
    o: Operands,
    weight_sums: Array,
    epilogue: Epilogue | None,
) -> tuple[Array, Array]:
    """The operands of channels and of limits."""
    xp = _module_of(o.bias, o.x_zp, weight_sums, *(epilogue or ()))
    bias, x_zp = (xp.asarray(v).reshape(-1).astype(np.int32) for v in (o.bias, o.x_zp))
    if isa.bytes_of_term == 1:  # Bytes are raised, and keep their zero point.
        bias = bias - (x_zp + np.int32(isa.raised)) * xp.asarray(weight_sums)
    rows, limits = [bias], [x_zp]
    if epilogue is not None:
        rows += [epilogue.multiplier, epilogue.shift]
        limits += [epilogue.zero_point, epilogue.least, epilogue.largest]

    def padded(row: Any) -> Any:
        row = xp.asarray(row).astype(np.int32).reshape(-1)
        row = xp.tile(row, count // row.size)
        return xp.pad(row, (0, -count % end.lanes), constant_values=2)  # A shift that there is.

    scalars = [xp.asarray(v).astype(np.int32).reshape(()) for v in limits]
    return xp.stack([padded(row) for row in rows]), xp.stack(scalars)


def _packed(
    weight: Array, kind: convolution.Kind, vectors: int, segment: int
) -> tuple[Array, Array]:
    """The weights in the order in which kernels read them, and their sums by channel, int32."""
    xp = _module_of(weight)
    isa, oc = kind.isa, weight.shape[0]
    steps = -(-segment // isa.terms)
    flat = weight.reshape(oc, -1, segment)
    sums = flat.astype(np.int32).sum((1, 2))
    widths = [(0, vectors * isa.lanes - oc), (0, 0), (0, steps * isa.terms - segment)]
    flat = xp.pad(flat, widths).astype(_term_type(isa))
    cut = flat.reshape(vectors, isa.lanes, flat.shape[1], steps, isa.terms)
    whole = vectors - kind.rest
    # [block, vector, lane, segment, step, term], and the vectors of a step side by side.
    blocks = [cut[:whole].reshape(-1, kind.vectors, *cut.shape[1:]), cut[None, whole:]]
    parts = [part.transpose(0, 3, 4, 1, 2, 5).reshape(-1) for part in blocks]
    return xp.concatenate(parts), sums


# Tiles and plans.


def _is_flat(window: Window) -> bool:
    """Whether all pixels of the output are those of the input in order, as one long row."""
    ones = {*window.size, *window.stride}
    return ones == {1} and not any(p for pair in window.pad for p in pair)


def _is_split(window: Window) -> bool:
    """Whether the taps of a row of the window are not contiguous."""
    return window.dilation[1] > 1 and window.size[1] > 1


def _tiles(
    isa: InstructionSet, vectors: int, out: Sequence[int], flat: bool, end: End
) -> convolution.Kind:
    """The tiles that take the least time, by a rough count of cycles for a step.

    A step has a load for each pixel and each vector, and a multiplication for each pair. It takes
    four cycles at least, as long as a sum waits for the one before.
    """
    run = math.prod(out) if flat else out[1]
    spare = 1 if isa.bytes_of_term == 1 else 2
    best: tuple[float, int, int] | None = None
    for v in range(1, min(_MOST_VECTORS, vectors) + 1):
        for p in range(1, min(_MOST_PIXELS, run) + 1):
            if p * v + v + spare <= isa.registers:
                cycles = max(p * v, (p + v) / 2, 4) + 0.5
                cost = -(-run // p) * -(-vectors // v) * cycles
                best = min(best or (math.inf, 0, 0), (cost, p, v))
    assert best is not None
    _, pixels, most = best
    return convolution.Kind(isa, pixels, most, vectors % most, end)


def _threads() -> int:
    """Processors that this process may use."""
    known = getattr(os, "sched_getaffinity", None)
    return min(_MOST_THREADS, len(known(0)) if known else os.cpu_count() or 1)


class _Share(NamedTuple):
    """How the rows of the output are cut into items."""

    rows: int
    items_per_image: int
    items: int
    threads: int


def _share(images: int, height: int, row_macs: int, *, least: int = 1) -> _Share:
    rows = max(least, -(-_ITEM_MACS // max(1, row_macs)))
    if images < _threads():  # An image is cut for all threads.
        rows = min(rows, max(least, -(-height // _threads())))
    rows = min(height, rows)
    per_image = -(-height // rows)
    worth = images * height * row_macs // _ITEM_MACS
    threads = max(1, min(images * per_image, _threads(), worth))
    return _Share(rows, per_image, images * per_image, threads)


def _fields(names: Sequence[str], share: _Share, **others: int) -> list[int]:
    found: Mapping[str, int] = {**share._asdict(), **others}
    return [found[name] for name in names]


def _convolution_plan(
    kind: convolution.Kind, window: Window, weight: Sequence[int], x: Sequence[int]
) -> tuple[Sequence[int], int]:
    isa, size = kind.isa, kind.isa.bytes_of_term
    oc, kh, kw, ic = weight
    images, height, width, _ = x
    (top, _), (left, _) = window.pad
    out_height, out_width = window.out(x)
    flat = _is_flat(window)
    if flat:
        images, height, width = 1, math.prod(x[:3]), 1
        out_height, out_width = height, 1
    stride, dilation = window.stride, window.dilation
    needed = (out_width - 1) * stride[1] + (kw - 1) * dilation[1] + 1
    left = min(left, needed)
    copied = max(min(width, needed - left), 0)
    share = _share(
        images, out_height, out_width * oc * kh * kw * ic, least=kind.pixels if flat else 1
    )
    staged = (share.rows - 1) * stride[0] + (kh - 1) * dilation[0] + 1
    staged_row = needed * ic * size
    slot = _lines(staged * staged_row + _SLACK)
    taps = range(kw) if _is_split(window) else (0,)
    segment = ic * (kw if len(taps) == 1 else 1)
    steps = -(-segment // isa.terms)
    offsets = [
        ky * dilation[0] * staged_row + kx * dilation[1] * ic * size
        for ky in range(kh)
        for kx in taps
    ]
    vectors = -(-oc // isa.lanes)
    table = kind.end.table_size(vectors)
    fields = _fields(
        convolution.FIELDS,
        share,
        out_height=out_height,
        out_width=out_width,
        height=height,
        row=width * ic,
        left=left * ic,
        copied=copied * ic,
        right=(needed - left - copied) * ic,
        top=top,
        stride=stride[0],
        staged=staged,
        staged_row=staged_row,
        slot=slot,
        runs=1 if flat else share.rows,
        run_pitch=0 if flat else stride[0] * staged_row,
        run=share.rows if flat else out_width,
        pixel_pitch=stride[1] * ic * size,
        blocks=vectors // kind.vectors,
        channels=oc,
        padded_channels=vectors * isa.lanes,
        block_bytes=len(offsets) * steps * STEP * kind.vectors * isa.lanes,
        segments=len(offsets),
        steps=steps,
        table=table,
    )
    return [*fields, *offsets], table + share.threads * slot


def _depthwise_plan(
    kind: depthwise.Kind, window: Window, multiplier: int, together: int, x: Sequence[int]
) -> tuple[Sequence[int], int]:
    images, height, width, inputs = x
    out_height, out_width = window.out(x)
    channels = inputs * multiplier * together
    vectors = -(-channels // kind.isa.lanes)
    padded = vectors * kind.isa.lanes
    pixel = padded // together * STEP
    # A step counts as much as two multiply-accumulates of a product, for its part of the copy.
    row_macs = out_width // together * padded * kind.rows * kind.groups * kind.isa.terms * 2
    share = _share(images, out_height, row_macs)
    (top, _), (left, _) = window.pad
    staged = (share.rows - 1) * window.stride[0] + (kind.rows - 1) * window.dilation[0] + 1
    staged_row = kind.groups * out_width * pixel
    slot = _lines(staged * staged_row + _SLACK)
    table = kind.end.table_size(vectors)
    fields = _fields(
        depthwise.FIELDS,
        share,
        out_height=out_height,
        out_width=out_width,
        run=out_width // together,
        height=height,
        width=width,
        inputs=inputs,
        multiplier=multiplier,
        channels=channels,
        padded_channels=padded,
        pixel=pixel,
        top=top,
        left=left,
        stride=window.stride[0],
        stride_x=window.stride[1],
        dilation=window.dilation[0],
        dilation_x=window.dilation[1],
        staged=staged,
        staged_row=staged_row,
        slot=slot,
        vectors=vectors,
        table=table,
    )
    return fields, table + _lines(inputs) + share.threads * slot


def _lines(size: int) -> int:
    return -(-size // _LINE) * _LINE


# Calls.


def run(prepared: Prepared) -> jax.Array:
    """The result of a kernel. `vmap` joins examples of the inputs in one call."""
    kind, inputs = prepared.kind, prepared.inputs
    compiler.register(kind.name, lambda: prepared.module_of(kind), kind.isa)

    @jax.custom_batching.custom_vmap
    def call(x: jax.Array, *operands: jax.Array) -> jax.Array:
        fields, workspace = prepared.plan(x.shape)
        # In words, as arrays of 64 bits need a setting of JAX's.
        words = np.asarray(fields, np.int64).view(np.int32)
        results = (
            jax.ShapeDtypeStruct((x.shape[0], *prepared.out(x.shape)), prepared.dtype),
            jax.ShapeDtypeStruct((workspace,), jnp.uint8),
        )
        return jax.ffi.ffi_call(kind.name, results)(x, *operands, words)[0]

    @call.def_vmap
    def _(count: int, batched: Sequence[bool], *operands: jax.Array):
        stacked = (
            a if has else jnp.broadcast_to(a, (count, *a.shape))
            for a, has in zip(operands, batched, strict=True)
        )
        if any(batched[inputs:]):
            return lax.map(lambda each: call(*each), tuple(stacked)), True
        joined = [x.reshape(-1, *x.shape[2:]) for x in itertools.islice(stacked, inputs)]
        result = call(*joined, *operands[inputs:])
        return result.reshape(count, -1, *result.shape[1:]), True

    return call(*map(jnp.asarray, prepared.operands))
