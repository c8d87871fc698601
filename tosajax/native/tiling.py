"""Plans: the specialization of a kernel for a shape, its sizes, and its work items."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Sequence
from typing import NamedTuple

from tosajax.native.codegen.accumulators import Tile
from tosajax.native.codegen.isa import InstructionSet
from tosajax.native.kernels import (
    addition,
    convolution,
    depthwise,
    depthwise_float,
    elementwise,
    matmul,
    pool,
)
from tosajax.native.kernels.epilogue import EpilogueKey
from tosajax.native.sharing import THREAD_MACS, Share, share_rows, threads_of
from tosajax.ops._window import Window

_OF_FLOAT = 4  # multiply-accumulates of integers, which take as long as one of float32
# The least work of an item and of a thread, as of products in `sharing`.
_ITEM_SUMS, _THREAD_SUMS = 2**15, 2**12  # elements of an addition
_ITEM_STEPS, _THREAD_STEPS = 2**13, 2**10  # vectors that a pool combines
_MOST_THREADS = 64
_MANY = 64  # images
# Bytes of weights that the cache of a thread does not keep, and tiles of pixels that pay for
# reading them again.
_MANY_WEIGHTS, _TILES_OF_ITEM = 2**20, 16
# The most products, a multiple of 2, in an int32 sum: of int16 by int8, and by 9 bits, which are
# wide weights or bytes of int16.
_MOST_TERMS = 510
_MOST_WIDE_TERMS = 256
_WORD = 4  # bytes of a channel's taps, side by side
_COPY = 2**18  # bytes of a copy of MATMUL's rows
_TILES = 8  # tiles of rows that pay for packing a block of columns
_ITEMS_OF_THREAD = 16  # so that no thread waits long for the last item
_SLACK = 64  # bytes behind a copy that its last steps read
_LINE = 64  # bytes of a cache line
_CROWDED = 1024  # rows a multiple of these bytes apart share few sets of a cache

KernelKey = (
    convolution.KernelKey
    | depthwise.KernelKey
    | depthwise_float.KernelKey
    | matmul.KernelKey
    | addition.KernelKey
    | elementwise.KernelKey
    | pool.KernelKey
)


class Plan(NamedTuple):
    """How a kernel computes a shape.

    Args:
      key: the specialization of the kernel.
      fields: the operand with its sizes; see the kernel's `Fields`.
      items: work items.
      threads: the most that share them.
      table: bytes of the table that all items read.
      scratch: bytes that each thread needs.
    """

    key: KernelKey
    fields: Sequence[int]
    items: int
    threads: int
    table: int = 0
    scratch: int = 0


def is_split(window: Window) -> bool:
    """Whether the taps of a row of the window are not contiguous."""
    return window.dilation[1] > 1 and window.size[1] > 1


class Cut(NamedTuple):
    """How the reduction elements of a row of a window are cut into segments.

    Args:
      terms: reduction elements.
      parts: segments.
      length: elements of a segment, a multiple of the elements of a step.
      round: segments whose sum int32 holds, of int16 inputs.
    """

    terms: int
    parts: int
    length: int
    round: int

    @property
    def beyond(self) -> int:
        """The elements of segments beyond the last one of the row; their weights are 0."""
        return self.parts * self.length - self.terms

    @property
    def is_whole(self) -> bool:
        return self.beyond == 0


def cut_of(
    isa: InstructionSet, window: Window, weight: Sequence[int], *, is_int16: bool, is_wide: bool
) -> Cut:
    """The segments by which weights are packed, and inputs read.

    Args:
      isa: the instruction set.
      window: the window of the convolution.
      weight: shape of the weight, [OC, KH, KW, IC].
      is_int16: whether inputs are int16.
      is_wide: whether weights have 9 bits.
    """
    _, _, kw, ic = weight
    terms = ic if is_split(window) else ic * kw
    most = _MOST_WIDE_TERMS if is_wide else _MOST_TERMS
    parts = -(-terms // most) if is_int16 and isa.element_bytes == 2 else 1
    length = -(-terms // (parts * isa.depth)) * isa.depth
    return Cut(terms, parts, length, max(1, most // length))


def vectors_of_tile(isa: InstructionSet, vectors: int, window: Window, x: Sequence[int]) -> int:
    """The vectors of channels that a tile has; weights are packed for them.

    The number does not depend on the batch size, as `vmap` may join examples later.

    Args:
      isa: the instruction set.
      vectors: vectors of all channels.
      window: the window of the convolution.
      x: shape of the input.
    """
    run = _run(window, x)
    runs = (run, _MANY * run) if _is_1x1(window) else (run,)

    def cost(v: int) -> float:
        return sum(_cost(isa, vectors, Tile(_pixels(isa, v, r), v), r) / r for r in runs)

    return min(range(1, min(isa.accumulators.MAX_VECTORS, vectors) + 1), key=cost)


def _run(window: Window, x: Sequence[int]) -> int:
    """The output pixels in a row that tiles cover one by one."""
    out = window.out(x)
    return x[0] * out[0] * out[1] if _is_1x1(window) else out[1]


def _is_1x1(window: Window) -> bool:
    """Whether output pixels are input pixels in order: all images are one long row then."""
    return not _is_padded(window) and {*window.size, *window.stride} == {1}


def _is_padded(window: Window) -> bool:
    return any(p for pair in window.pad for p in pair)


def _pixels(isa: InstructionSet, vectors: int, run: int) -> int:
    """The pixels of a tile with some vectors of channels."""
    most = min(run, isa.accumulators.max_pixels(isa, vectors))
    return min(range(1, most + 1), key=lambda p: _cost(isa, vectors, Tile(p, vectors), run))


def _cost(isa: InstructionSet, vectors: int, tile: Tile, run: int) -> float:
    """An estimate of the cycles that the tiles of a run take for a step."""
    return -(-run // tile.pixels) * -(-vectors // tile.vectors) * isa.accumulators.cycles(isa, tile)


def threads() -> int:
    """The processors that this process may use, at most 64."""
    affinity = getattr(os, "sched_getaffinity", None)
    return min(_MOST_THREADS, len(affinity(0)) if affinity else os.cpu_count() or 1)


class _Axis(NamedTuple):
    """The elements of an input row that a work item reads: padding, copied ones, padding."""

    left: int
    copied: int
    right: int

    @property
    def whole(self) -> int:
        return self.left + self.copied + self.right


def _read(needed: int, left: int, width: int) -> _Axis:
    """The part of a row of `width` elements that is read, behind `left` elements of padding."""
    left = min(left, needed)
    copied = max(min(width, needed - left), 0)
    return _Axis(left, copied, needed - left - copied)


def _reach(count: int, stride: int, size: int, dilation: int) -> int:
    """The elements of an axis that some windows reach over."""
    return (count - 1) * stride + (size - 1) * dilation + 1


class _Staging(NamedTuple):
    """The copy of the input rows that a work item of a convolution reads.

    Args:
      in_place: no copy is made; rows are read where they are.
      axis: the pixels of a row.
      rows: rows of the copy.
      row: bytes of a row.
      pixel: bytes from a pixel to the next.
      plane: bytes of the copy; of int16 by instructions for bytes, of its upper or lower bytes.
    """

    in_place: bool
    axis: _Axis
    rows: int
    row: int
    pixel: int
    plane: int


def _staging(
    isa: InstructionSet,
    window: Window,
    weight: Sequence[int],
    cut: Cut,
    share: Share,
    size: tuple[int, int],
    input_bytes: int,
) -> _Staging:
    """The staging copy of a convolution; `size` is (width of the input, width of the output)."""
    _, kh, kw, ic = weight
    width, out_width = size
    is_1x1, element = _is_1x1(window), isa.element_bytes
    is_readable = element == input_bytes and cut.is_whole
    is_crowded = input_bytes > 1 and is_1x1 and _is_crowded(ic * element)
    in_place = not _is_padded(window) and is_readable and not is_crowded
    pixel = _pitch(ic * element) if is_1x1 and not in_place else ic * element
    # The copy of a 1x1 convolution has all pixels of an item in a row, unless they lie apart.
    one_row = is_1x1 and pixel == ic * element
    needed = share.rows if one_row else _reach(out_width, window.stride[1], kw, window.dilation[1])
    left = window.pad[1][0]
    axis = _Axis(0, needed, 0) if is_1x1 else _read(needed, left, width)
    rows = 1 if one_row else _reach(share.rows, window.stride[0], kh, window.dilation[0])
    row = width * ic * input_bytes if in_place else needed * pixel
    plane = _lines(rows * row + _SLACK + cut.beyond * element)
    return _Staging(in_place, axis, rows, row, pixel, plane)


def of_convolution(
    isa: InstructionSet,
    epilogue: EpilogueKey,
    window: Window,
    weight: Sequence[int],
    cut: Cut,
    tile_vectors: int,
    x: Sequence[int],
    workers: int,
) -> Plan:
    """The plan of a convolution.

    Args:
      isa: the instruction set.
      epilogue: how accumulators become results.
      window: the window of the convolution.
      weight: shape of the weight, [OC, KH, KW, IC].
      cut: segments from `cut_of`.
      tile_vectors: tile vectors from `vectors_of_tile`.
      x: shape of the input.
      workers: threads that there are.
    """
    size, input_bytes, is_1x1 = isa.element_bytes, epilogue.input_bytes, _is_1x1(window)
    planes = 2 if epilogue.is_int16 and size == 1 else 1
    oc, kh, kw, ic = weight
    pixels = _pixels(isa, tile_vectors, _run(window, x))
    if is_1x1:
        x = 1, math.prod(x[:3]), 1, ic
    images, _, width, _ = x
    out_height, out_width = window.out(x)
    row_macs = out_width * oc * kh * kw * ic * planes
    row_macs *= _OF_FLOAT if isa.is_float else 1
    is_heavy = oc * kh * kw * ic * size > _MANY_WEIGHTS
    worth = -(-_TILES_OF_ITEM * pixels // out_width) if is_heavy else 1
    unit = pixels if is_1x1 else 1
    share = share_rows(images, out_height, row_macs, workers, unit=unit, worth=worth)
    staging = _staging(isa, window, weight, cut, share, (width, out_width), input_bytes)
    stride, dilation = window.stride, window.dilation
    taps = range(kw) if is_split(window) else (0,)
    steps = cut.length // isa.depth
    offsets = [
        ky * dilation[0] * staging.row + (kx * dilation[1] * ic + part * cut.length) * size
        for ky, kx, part in itertools.product(range(kh), taps, range(cut.parts))
    ]
    vectors = -(-oc // isa.lanes)
    rest = vectors % tile_vectors
    key = convolution.KernelKey(isa, pixels, tile_vectors, rest, staging.in_place, epilogue)
    fields = convolution.Fields(
        **_row_fields(share, staging.axis, window, x, input_bytes),
        staged=staging.rows,
        staged_row=staging.row,
        channels=oc,
        padded_channels=vectors * isa.lanes,
        runs=1 if is_1x1 else share.rows,
        run_pitch=0 if is_1x1 else stride[0] * staging.row,
        run=share.rows if is_1x1 else out_width,
        pixel_pitch=stride[1] * staging.pixel,
        blocks=vectors // tile_vectors,
        block_bytes=len(offsets) * steps * tile_vectors * isa.weight_bytes,
        segments=len(offsets),
        steps=steps,
        round=cut.round,
        plane=staging.plane,
    )
    table = epilogue.table_size(vectors)
    scratch = 0 if staging.in_place else planes * staging.plane
    return Plan(key, [*fields.as_list(), *offsets], share.items, share.threads, table, scratch)


def _row_fields(
    share: Share, axis: _Axis, window: Window, x: Sequence[int], input_bytes: int
) -> dict[str, int]:
    """The fields of `row_block.RowFields` by which rows of the input are copied."""
    _, height, width, channels = x
    out_height, out_width = window.out(x)
    return {
        "items_per_image": share.items_per_image,
        "rows": share.rows,
        "out_height": out_height,
        "out_width": out_width,
        "height": height,
        "row": width * channels * input_bytes,
        "left": axis.left * channels,
        "copied": axis.copied * channels,
        "right": axis.right * channels,
        "top": window.pad[0][0],
        "stride": window.stride[0],
    }


def of_depthwise(
    key: depthwise.KernelKey, window: Window, multiplier: int, x: Sequence[int], workers: int
) -> Plan:
    """The plan of a depthwise convolution.

    Args:
      key: the specialization of the kernel.
      window: the window of the convolution.
      multiplier: output channels for each input channel.
      x: shape of the input.
      workers: threads that there are.
    """
    isa = key.isa
    images, _, width, inputs = x
    out_height, out_width = window.out(x)
    (stride, stride_x), (dilation, dilation_x) = window.stride, window.dilation
    count = pixels_per_vector(isa, inputs * multiplier, out_width)
    channels = inputs * multiplier * count
    vectors = -(-channels // isa.lanes)
    padded = vectors * isa.lanes
    pixel = padded // count * _WORD
    # A step counts as much as two multiply-accumulates of a product, for its part of the copy.
    size = key.epilogue.input_bytes
    copies = key.groups * (size if isa.element_bytes == 1 else 1)
    row_macs = out_width // count * padded * key.rows * copies * isa.dot_length * 2
    share = share_rows(images, out_height, row_macs, workers)
    staged = _reach(share.rows, stride, key.rows, dilation)
    staged_row = copies * out_width * pixel
    axis = _read(_reach(out_width, stride_x, key.taps, dilation_x), window.pad[1][0], width)
    line = _lines(axis.whole * inputs * size + _SLACK)
    # All pixels are one piece where they are side by side in both copies.
    is_whole = stride_x == 1 and pixel == inputs * _WORD
    fields = depthwise.Fields(
        **_row_fields(share, axis, window, x, size),
        staged=staged,
        staged_row=staged_row,
        channels=channels,
        padded_channels=padded,
        line=line,
        run=out_width // count,
        pieces=1 if is_whole else out_width,
        piece=out_width * inputs if is_whole else inputs,
        piece_from=stride_x * inputs * size,
        piece_to=pixel,
        multiplier=multiplier,
        tap=dilation_x * inputs * size,
        dilation=dilation,
        vectors=vectors,
    )
    table, scratch = key.epilogue.table_size(vectors), line + _lines(staged * staged_row + _SLACK)
    return Plan(key, fields.as_list(), share.items, share.threads, table, scratch)


def of_depthwise_float(
    key: depthwise_float.KernelKey, window: Window, count: int, x: Sequence[int], workers: int
) -> Plan:
    """The plan of a depthwise convolution of float32.

    Args:
      key: the specialization of the kernel.
      window: the window of the convolution.
      count: pixels that a vector holds.
      x: shape of the input.
      workers: threads that there are.
    """
    images, _, width, inputs = x
    out_height, out_width = window.out(x)
    (stride, stride_x), (dilation, dilation_x) = window.stride, window.dilation
    vectors = -(-inputs * count // key.isa.lanes)
    size = key.epilogue.input_bytes
    padded, pixel = vectors * key.isa.lanes, inputs * size
    row_macs = out_width // count * padded * key.rows * key.taps * _OF_FLOAT
    share = share_rows(images, out_height, row_macs, workers)
    axis = _read(_reach(out_width, stride_x, key.taps, dilation_x), window.pad[1][0], width)
    staged = _reach(share.rows, stride, key.rows, dilation)
    fields = depthwise_float.Fields(
        **_row_fields(share, axis, window, x, size),
        staged=staged,
        staged_row=axis.whole * pixel,
        channels=inputs * count,
        padded_channels=padded,
        run=out_width // count,
        pixel=pixel,
        dilation=dilation,
        vectors=vectors,
    )
    scratch = _lines(staged * axis.whole * pixel + _SLACK)
    return Plan(key, fields.as_list(), share.items, share.threads, 0, scratch)


def pixels_per_vector(isa: InstructionSet, channels: int, width: int) -> int:
    """The pixels of a depthwise convolution that a vector holds: several if they are small."""
    count = isa.lanes // channels if isa.lanes % channels == 0 else 1
    return count if width % count == 0 else 1


def of_matmul(
    isa: InstructionSet, epilogue: EpilogueKey, width: int, a: Sequence[int], workers: int
) -> Plan:
    """The plan of a MATMUL.

    Args:
      isa: the instruction set.
      epilogue: how accumulators become results.
      width: columns of the result.
      a: shape of the left matrices, [N, H, C].
      workers: threads that there are.
    """
    count, height, depth = a
    is_int16, size = epilogue.is_int16, 2 if epilogue.is_int16 else 1
    vectors = -(-width // isa.lanes)
    tile_vectors = min(
        range(1, min(isa.accumulators.MAX_VECTORS, vectors) + 1),
        key=lambda v: _cost(isa, vectors, Tile(_pixels(isa, v, height), v), height),
    )
    segments = -(-depth // _MOST_WIDE_TERMS) if is_int16 else 1
    steps = -(-depth // (segments * isa.depth))
    of_segment = steps * isa.depth
    is_whole = isa.element_bytes == size and depth == segments * of_segment
    in_place = is_whole and not (is_int16 and _is_crowded(depth * size))
    rows, rest = _pixels(isa, tile_vectors, height), vectors % tile_vectors
    key = matmul.KernelKey(isa, rows, tile_vectors, rest, depth % isa.inner, in_place, epilogue)
    blocks = -(-vectors // tile_vectors)
    worth = max(1, height * width * depth // THREAD_MACS)
    of_part, groups = _parts_of_matmul(key, count, blocks, height, depth, worth, workers)
    group = -(-blocks // groups)
    parts, groups = -(-height // of_part), -(-blocks // group)
    plane = _lines(segments * steps * tile_vectors * isa.weight_bytes)
    fields = matmul.Fields(
        blocks=blocks,
        group=group,
        groups=groups,
        parts=parts,
        rows=of_part,
        height=height,
        depth=depth,
        width=width,
        words=depth // isa.inner,
        segments=segments,
        steps=steps,
        row_pitch=depth * size if in_place else _pitch(segments * steps * isa.step_bytes),
        panel=size * plane,
        plane=plane,
        bias=4 * tile_vectors * isa.lanes,
        corrections=_lines(4 * of_part),
        padded_width=vectors * isa.lanes,
    )
    copy = 0 if in_place else _lines(of_part * fields.row_pitch)
    scratch = _lines(fields.panel + fields.bias + fields.corrections + copy)
    items = count * groups * parts
    used = threads_of(items, count * height * width * depth // THREAD_MACS, workers)
    offsets = [number * of_segment * isa.element_bytes for number in range(segments)]
    table = epilogue.table_size(vectors)
    return Plan(key, [*fields.as_list(), *offsets], items, used, table, scratch)


def _parts_of_matmul(
    key: matmul.KernelKey,
    count: int,
    blocks: int,
    height: int,
    depth: int,
    worth: int,
    workers: int,
) -> tuple[int, int]:
    """The rows of a work item, and the number of groups that blocks of columns are cut into.

    Args:
      key: the specialization of the kernel.
      count: matrices.
      blocks: blocks of columns.
      height: rows.
      depth: reduction elements.
      worth: the most items of a product.
      workers: threads that there are.
    """
    least = -(-workers // (count * blocks))  # So that no thread is idle.
    if key.in_place:
        return _tiles(key.rows, height, least), blocks
    # Rows are copied once for many blocks, and blocks packed once for many rows.
    wanted = min(worth, -(-_ITEMS_OF_THREAD * workers // count))
    copies = -(-height * depth * key.isa.element_bytes // _COPY)
    parts = max(copies, min(wanted, max(least, height // (_TILES * key.rows))))
    rows = _tiles(key.rows, height, parts)
    return rows, min(blocks, -(-wanted // -(-height // rows)))


def _tiles(unit: int, height: int, parts: int) -> int:
    """Rows of a part: whole tiles, the last of which may be cut."""
    rows = -(-height // max(1, parts))
    return min(height, -(-rows // unit) * unit)


def of_addition(key: addition.KernelKey, elements: int, workers: int) -> Plan:
    """The plan of an addition of some elements, for the threads that there are."""
    lanes = key.isa.lanes
    key = key._replace(vectors=4 if elements >= 4 * lanes else 1)
    unit = lanes * key.vectors
    fair = -(-elements // (workers * unit)) * unit
    count = min(elements // unit * unit, _ITEM_SUMS, max(fair, _THREAD_SUMS))
    items = -(-elements // count)
    used = threads_of(items, elements // _THREAD_SUMS, workers)
    fields = addition.Fields(count=count, elements=elements)
    return Plan(key, fields.as_list(), items, used, key.add.table_size)


def of_pool(key: pool.KernelKey, window: Window, x: Sequence[int], workers: int) -> Plan:
    """The plan of a pool.

    Args:
      key: the specialization of the kernel.
      window: the window of the pool.
      x: shape of the input.
      workers: threads that there are.
    """
    images, height, width, channels = x
    out_height, out_width = window.out(x)
    all_rows = images * out_height
    # A step combines a vector of channels.
    steps = out_width * math.prod(window.size) * -(-channels // key.lanes)
    rows = min(-(-_ITEM_STEPS // steps), -(-all_rows // workers))
    items = -(-all_rows // rows)
    (top, _), (left, _) = window.pad
    fields = pool.Fields(
        rows=rows,
        all_rows=all_rows,
        out_height=out_height,
        out_width=out_width,
        height=height,
        width=width,
        channels=channels,
        size_y=window.size[0],
        size_x=window.size[1],
        stride_y=window.stride[0],
        stride_x=window.stride[1],
        top=top,
        left=left,
        vectors=channels // key.lanes,
    )
    used = threads_of(items, all_rows * steps // _THREAD_STEPS, workers)
    return Plan(key, fields.as_list(), items, used)


def _pitch(size: int) -> int:
    """The bytes from a row of a copy to the next, so that rows share no sets of the cache."""
    return size + _LINE if _is_crowded(size) else size


def _is_crowded(size: int) -> bool:
    """Whether rows of so many bytes fall into few sets of the cache."""
    return size % _CROWDED == 0


def _lines(size: int) -> int:
    return -(-size // _LINE) * _LINE
