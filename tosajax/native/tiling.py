"""Plans: which machine code computes a shape, and the sizes that it is called with."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tosajax.native.codegen.accumulators import Tile
from tosajax.native.codegen.isa import InstructionSet
from tosajax.native.kernels import addition, convolution, depthwise, matmul, pool
from tosajax.native.kernels.epilogue import EpilogueKey
from tosajax.ops._window import Window

# The work of an item, enough to pay for its copy and for taking it; and of a thread that shares the
# items of a call, enough to pay for finding it.
_ITEM_MACS, _THREAD_MACS = 2**21, 2**17  # multiply-accumulates
_ITEM_SUMS, _THREAD_SUMS = 2**15, 2**12  # elements of an addition
_ITEM_STEPS, _THREAD_STEPS = 2**13, 2**10  # vectors that a pool combines
_MOST_THREADS = 64
_MANY = 64  # images
# Products that int32 holds, in steps of two: of int16 and int8, or bytes without sign.
_MOST_TERMS = 510
_MOST_TERMS_OF_INT16 = 256
_WORD = 4  # bytes, of the taps of a channel side by side
_COPY = 2**18  # bytes of rows of a product
_TILES = 8  # of rows, which pay for a packed block of columns
_ITEMS_OF_THREAD = 16  # so that none waits long for the last
_SLACK = 64  # bytes behind a copy, which its last steps read
_LINE = 64  # bytes
_CROWDED = 1024  # bytes between rows, few lines of which a cache holds then

KernelKey = (
    convolution.KernelKey
    | depthwise.KernelKey
    | matmul.KernelKey
    | addition.KernelKey
    | pool.KernelKey
)


class Plan(NamedTuple):
    """How a kernel computes a shape.

    Args:
      kind: of the machine code.
      fields: the operand with its sizes, in the order that the kernel has.
      items: that its work is cut into.
      threads: that share them at most.
      table: bytes that it fills before, for all items.
      scratch: bytes that each thread needs.
    """

    kind: KernelKey
    fields: Sequence[int]
    items: int
    threads: int
    table: int = 0
    scratch: int = 0


def is_split(window: Window) -> bool:
    """Whether the taps of a row of the window are not contiguous."""
    return window.dilation[1] > 1 and window.size[1] > 1


class Cut(NamedTuple):
    """How the terms of a row of a window are cut into segments.

    Args:
      terms: that there are.
      parts: segments.
      length: of each, a multiple of a step's terms.
    """

    terms: int
    parts: int
    length: int

    @property
    def beyond(self) -> int:
        """Terms of segments that are not there."""
        return self.parts * self.length - self.terms

    @property
    def is_whole(self) -> bool:
        return self.beyond == 0


def cut_of(isa: InstructionSet, window: Window, weight: Sequence[int], *, wide: bool) -> Cut:
    """How weights are packed, and their terms are read.

    Args:
      isa: of the processor.
      window: of the convolution.
      weight: its shape, [OC, KH, KW, IC].
      wide: whether inputs are int16.
    """
    _, _, kw, ic = weight
    terms = ic if is_split(window) else ic * kw
    parts = -(-terms // _MOST_TERMS) if wide and isa.element_bytes == 2 else 1
    return Cut(terms, parts, -(-terms // (parts * isa.depth)) * isa.depth)


def vectors_of_tile(isa: InstructionSet, vectors: int, window: Window, x: Sequence[int]) -> int:
    """How many vectors of channels a tile has; weights are packed by it.

    It is the same for all numbers of images, as one alone may be joined by others.

    Args:
      isa: of the processor.
      vectors: of all channels.
      window: of the convolution.
      x: shape of the input.
    """
    run = _run(window, x)
    runs = (run, _MANY * run) if _is_flat(window) else (run,)

    def cost(v: int) -> float:
        return sum(_cost(isa, vectors, Tile(_pixels(isa, v, r), v), r) / r for r in runs)

    return min(range(1, min(isa.accumulators.MAX_VECTORS, vectors) + 1), key=cost)


def _run(window: Window, x: Sequence[int]) -> int:
    """The pixels of an output that tiles cover one after the other."""
    out = window.out(x)
    return x[0] * out[0] * out[1] if _is_flat(window) else out[1]


def _is_flat(window: Window) -> bool:
    """Whether all pixels of the output are those of the input in order, as one long row."""
    return not _is_padded(window) and {*window.size, *window.stride} == {1}


def _is_padded(window: Window) -> bool:
    return any(p for pair in window.pad for p in pair)


def _pixels(isa: InstructionSet, vectors: int, run: int) -> int:
    """Pixels of a tile that has some vectors of channels."""
    most = min(run, isa.accumulators.max_pixels(isa, vectors))
    return min(range(1, most + 1), key=lambda p: _cost(isa, vectors, Tile(p, vectors), run))


def _cost(isa: InstructionSet, vectors: int, tile: Tile, run: int) -> float:
    """The time of a run's tiles, by a rough count of cycles for a step."""
    return -(-run // tile.pixels) * -(-vectors // tile.vectors) * isa.accumulators.cycles(isa, tile)


def threads() -> int:
    """Processors that this process may use."""
    known = getattr(os, "sched_getaffinity", None)
    return min(_MOST_THREADS, len(known(0)) if known else os.cpu_count() or 1)


class _Share(NamedTuple):
    """How the rows of the output are cut into items."""

    rows: int
    items_per_image: int
    items: int
    threads: int


def _sharing(items: int, worth: int, workers: int) -> int:
    """How many threads share items, whose work pays for some."""
    return max(1, min(items, workers, worth))


def _share(images: int, height: int, row_macs: int, workers: int, *, unit: int = 1) -> _Share:
    """Cuts images into items of some units of rows."""
    rows = -(-_ITEM_MACS // max(1, row_macs))
    if images < workers:  # An image is cut for all threads, of which some come late.
        rows = min(rows, -(-height // (2 * workers)))
    # Equal items: the last one does again what it has of the one before.
    rows = -(-height // -(-height // min(height, rows)))
    rows = min(height, -(-rows // unit) * unit)
    per_image = -(-height // rows)
    items = images * per_image
    used = _sharing(items, images * height * row_macs // _THREAD_MACS, workers)
    return _Share(rows, per_image, items, used)


def _fields(names: Sequence[str], share: _Share, **others: int) -> list[int]:
    found: Mapping[str, int] = {**share._asdict(), **others}
    return [found[name] for name in names]


def of_convolution(
    isa: InstructionSet,
    end: EpilogueKey,
    window: Window,
    weight: Sequence[int],
    of_tile: int,
    x: Sequence[int],
    workers: int,
) -> Plan:
    """The plan of a convolution.

    Args:
      isa: of the processor.
      end: of the sums.
      window: of the convolution.
      weight: its shape, [OC, KH, KW, IC].
      of_tile: from `vectors_of_tile`.
      x: shape of the input.
      workers: threads that there are.
    """
    size = isa.element_bytes
    planes = 2 if end.is_int16 and size == 1 else 1
    cut = cut_of(isa, window, weight, wide=end.is_int16)
    oc, kh, kw, ic = weight
    images, height, width, _ = x
    (top, _), (left, _) = window.pad
    out_height, out_width = window.out(x)
    stride, dilation = window.stride, window.dilation
    flat = _is_flat(window)
    pixels = _pixels(isa, of_tile, _run(window, x))
    if flat:
        images, height, width = 1, math.prod(x[:3]), 1
        out_height, out_width = height, 1
    row_macs = out_width * oc * kh * kw * ic * planes
    share = _share(images, out_height, row_macs, workers, unit=pixels if flat else 1)
    taps = range(kw) if is_split(window) else (0,)
    is_read = planes == 1 and (end.is_int16 or size == 1) and cut.is_whole
    is_crowded = end.is_int16 and flat and _is_crowded(ic * size)
    in_place = not _is_padded(window) and is_read and not is_crowded
    pixel = _pitch(ic * size) if flat and not in_place else ic * size
    # Of a flat one, the copy has all pixels of an item in a row, unless they lie apart.
    one_row = flat and pixel == ic * size
    needed = share.rows if one_row else (out_width - 1) * stride[1] + (kw - 1) * dilation[1] + 1
    left = min(left, needed)
    copied = needed if flat else max(min(width, needed - left), 0)
    staged = 1 if one_row else (share.rows - 1) * stride[0] + (kh - 1) * dilation[0] + 1
    of_input = width * ic * (2 if end.is_int16 else 1)
    row = of_input if in_place else needed * pixel
    plane = _lines(staged * row + _SLACK + cut.beyond * size)
    scratch = 0 if in_place else planes * plane
    steps = cut.length // isa.depth
    offsets = [
        ky * dilation[0] * row + (kx * dilation[1] * ic + part * cut.length) * size
        for ky, kx, part in itertools.product(range(kh), taps, range(cut.parts))
    ]
    vectors = -(-oc // isa.lanes)
    kind = convolution.KernelKey(isa, pixels, of_tile, vectors % of_tile, in_place, end)
    fields = _fields(
        convolution.FIELDS,
        share,
        out_height=out_height,
        out_width=out_width,
        height=height,
        row=of_input,
        left=left * ic,
        copied=copied * ic,
        right=(needed - left - copied) * ic,
        top=top,
        stride=stride[0],
        staged=staged,
        staged_row=row,
        runs=1 if flat else share.rows,
        run_pitch=0 if flat else stride[0] * row,
        run=share.rows if flat else out_width,
        pixel_pitch=stride[1] * pixel,
        blocks=vectors // of_tile,
        channels=oc,
        padded_channels=vectors * isa.lanes,
        block_bytes=len(offsets) * steps * of_tile * isa.weight_bytes,
        segments=len(offsets),
        steps=steps,
        round=max(1, _MOST_TERMS // cut.length),
        plane=plane,
    )
    table = end.table_size(vectors)
    return Plan(kind, [*fields, *offsets], share.items, share.threads, table, scratch)


def of_depthwise(
    kind: depthwise.KernelKey, window: Window, multiplier: int, x: Sequence[int], workers: int
) -> Plan:
    """The plan of a depthwise convolution.

    Args:
      kind: of the machine code.
      window: of the convolution.
      multiplier: channels of the output for each of the input.
      x: shape of the input.
      workers: threads that there are.
    """
    isa = kind.isa
    images, height, width, inputs = x
    out_height, out_width = window.out(x)
    (top, _), (left, _) = window.pad
    (stride, stride_x), (dilation, dilation_x) = window.stride, window.dilation
    joined = together(isa, inputs * multiplier, out_width)
    channels = inputs * multiplier * joined
    vectors = -(-channels // isa.lanes)
    padded = vectors * isa.lanes
    pixel = padded // joined * _WORD
    # A step counts as much as two multiply-accumulates of a product, for its part of the copy.
    size = 2 if kind.epilogue.is_int16 else 1
    copies = kind.groups * (size if isa.element_bytes == 1 else 1)
    row_macs = out_width // joined * padded * kind.rows * copies * isa.dot_length * 2
    share = _share(images, out_height, row_macs, workers)
    staged = (share.rows - 1) * stride + (kind.rows - 1) * dilation + 1
    staged_row = copies * out_width * pixel
    needed = (out_width - 1) * stride_x + (kind.taps - 1) * dilation_x + 1
    left = min(left, needed)
    copied = max(min(width, needed - left), 0)
    line = _lines(needed * inputs * size + _SLACK)
    scratch = line + _lines(staged * staged_row + _SLACK)
    # All pixels are one piece where they are side by side in both copies.
    is_whole = stride_x == 1 and pixel == inputs * _WORD
    fields = _fields(
        depthwise.FIELDS,
        share,
        out_height=out_height,
        out_width=out_width,
        height=height,
        row=width * inputs * size,
        left=left * inputs,
        copied=copied * inputs,
        right=(needed - left - copied) * inputs,
        top=top,
        stride=stride,
        staged=staged,
        staged_row=staged_row,
        line=line,
        run=out_width // joined,
        pieces=1 if is_whole else out_width,
        piece=out_width * inputs if is_whole else inputs,
        piece_from=stride_x * inputs * size,
        piece_to=pixel,
        multiplier=multiplier,
        tap=dilation_x * inputs * size,
        channels=channels,
        padded_channels=padded,
        dilation=dilation,
        vectors=vectors,
    )
    return Plan(
        kind, fields, share.items, share.threads, kind.epilogue.table_size(vectors), scratch
    )


def together(isa: InstructionSet, channels: int, width: int) -> int:
    """How many pixels of a depthwise convolution a vector holds: several if they are small."""
    count = isa.lanes // channels if isa.lanes % channels == 0 else 1
    return count if width % count == 0 else 1


def of_matmul(
    isa: InstructionSet, end: EpilogueKey, width: int, a: Sequence[int], workers: int
) -> Plan:
    """The plan of a product.

    Args:
      isa: of the processor.
      end: of the sums.
      width: columns of the result.
      a: shape of the left matrices, [N, H, C].
      workers: threads that there are.
    """
    count, height, depth = a
    vectors = -(-width // isa.lanes)
    of_tile = min(
        range(1, min(isa.accumulators.MAX_VECTORS, vectors) + 1),
        key=lambda v: _cost(isa, vectors, Tile(_pixels(isa, v, height), v), height),
    )
    rows = _pixels(isa, of_tile, height)
    size = 2 if end.is_int16 else 1
    segments = -(-depth // _MOST_TERMS_OF_INT16) if end.is_int16 else 1
    steps = -(-depth // (segments * isa.depth))
    of_segment = steps * isa.depth
    is_whole = isa.element_bytes == size and depth == segments * of_segment
    in_place = is_whole and not (end.is_int16 and _is_crowded(depth * size))
    kind = matmul.KernelKey(isa, rows, of_tile, vectors % of_tile, depth % isa.inner, in_place, end)
    blocks = -(-vectors // of_tile)
    padded = of_tile * isa.lanes
    worth = max(1, height * width * depth // _THREAD_MACS)
    of_part, groups = _parts_of_matmul(kind, count, blocks, height, depth, worth, workers)
    group = -(-blocks // groups)
    parts, groups = -(-height // of_part), -(-blocks // group)
    items = count * groups * parts
    plane = _lines(segments * steps * of_tile * isa.weight_bytes)
    panel = size * plane
    bias, corrections = 4 * padded, _lines(4 * of_part)
    row_pitch = depth * size if kind.in_place else _pitch(segments * steps * isa.step_bytes)
    copy = 0 if kind.in_place else _lines(of_part * row_pitch)
    scratch = _lines(panel + bias + corrections + copy)
    used = _sharing(items, count * height * width * depth // _THREAD_MACS, workers)
    sizes = {
        "blocks": blocks,
        "group": group,
        "groups": groups,
        "parts": parts,
        "rows": of_part,
        "height": height,
        "depth": depth,
        "width": width,
        "words": depth // isa.inner,
        "segments": segments,
        "steps": steps,
        "row_pitch": row_pitch,
        "panel": panel,
        "plane": plane,
        "bias": bias,
        "corrections": corrections,
        "padded_width": vectors * isa.lanes,
    }
    offsets = [at * of_segment * isa.element_bytes for at in range(segments)]
    fields = [*(sizes[name] for name in matmul.FIELDS), *offsets]
    return Plan(kind, fields, items, used, end.table_size(vectors), scratch)


def _parts_of_matmul(
    kind: matmul.KernelKey,
    count: int,
    blocks: int,
    height: int,
    depth: int,
    worth: int,
    workers: int,
) -> tuple[int, int]:
    """The rows of an item, and into how many groups the blocks of columns are cut.

    Args:
      kind: of the machine code.
      count: of products.
      blocks: of columns.
      height: rows.
      depth: terms.
      worth: the most items of a product.
      workers: threads that there are.
    """
    least = -(-workers // (count * blocks))  # So that no thread is idle.
    if kind.in_place:
        return _tiles(kind.rows, height, least), blocks
    # Rows are copied once for many blocks, and blocks packed once for many rows.
    wanted = min(worth, -(-_ITEMS_OF_THREAD * workers // count))
    copies = -(-height * depth * kind.isa.element_bytes // _COPY)
    parts = max(copies, min(wanted, max(least, height // (_TILES * kind.rows))))
    rows = _tiles(kind.rows, height, parts)
    return rows, min(blocks, -(-wanted // -(-height // rows)))


def _tiles(unit: int, height: int, parts: int) -> int:
    """Rows of a part: whole tiles, the last of which may be cut."""
    rows = -(-height // max(1, parts))
    return min(height, -(-rows // unit) * unit)


def of_addition(kind: addition.KernelKey, elements: int, workers: int) -> Plan:
    """The plan of an addition of so many elements, for the threads that there are."""
    lanes = kind.isa.lanes
    kind = kind._replace(vectors=4 if elements >= 4 * lanes else 1)
    unit = lanes * kind.vectors
    fair = -(-elements // (workers * unit)) * unit
    count = min(elements // unit * unit, _ITEM_SUMS, max(fair, _THREAD_SUMS))
    items = -(-elements // count)
    used = _sharing(items, elements // _THREAD_SUMS, workers)
    return Plan(kind, [count, elements], items, used, kind.add.table_size)


def of_pool(kind: pool.KernelKey, window: Window, x: Sequence[int], workers: int) -> Plan:
    """The plan of a pool.

    Args:
      kind: of the machine code.
      window: of the pool.
      x: shape of the input.
      workers: threads that there are.
    """
    images, height, width, channels = x
    out_height, out_width = window.out(x)
    all_rows = images * out_height
    # A step combines a vector of channels.
    steps = out_width * math.prod(window.size) * -(-channels // kind.lanes)
    rows = min(-(-_ITEM_STEPS // steps), -(-all_rows // workers))
    items = -(-all_rows // rows)
    (top, _), (left, _) = window.pad
    sizes = {
        "rows": rows,
        "all_rows": all_rows,
        "out_height": out_height,
        "out_width": out_width,
        "height": height,
        "width": width,
        "channels": channels,
        "size_y": window.size[0],
        "size_x": window.size[1],
        "stride_y": window.stride[0],
        "stride_x": window.stride[1],
        "top": top,
        "left": left,
        "vectors": channels // kind.lanes,
    }
    used = _sharing(items, all_rows * steps // _THREAD_STEPS, workers)
    return Plan(kind, [sizes[name] for name in pool.FIELDS], items, used)


def _pitch(size: int) -> int:
    """Bytes from a row of a copy to the next."""
    return size + _LINE if _is_crowded(size) else size


def _is_crowded(size: int) -> bool:
    """Whether rows with so many bytes share a small part of the cache, a power of two apart."""
    return size % _CROWDED == 0


def _lines(size: int) -> int:
    return -(-size // _LINE) * _LINE
