"""The kernels of AVG_POOL2D and MAX_POOL2D of integers ("Tensor Operators", TOSA 1.0.1).

An item is some rows of the output. A pixel's windows are combined vector by vector of channels;
what lies outside of the input is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from tosajax.native.codegen import abi
from tosajax.native.codegen.abi import Buffers
from tosajax.native.codegen.builder import IRBuilder, Module, Value, power_of_two_runs, vector
from tosajax.native.codegen.isa import InstructionSet

OPERANDS = ("x", "zero points", "plan")
FIELDS = (
    "rows",  # of the output, of an item
    "all_rows",  # of all images
    "out_height",
    "out_width",
    "height",
    "width",
    "channels",
    "size_y",
    "size_x",
    "stride_y",
    "stride_x",
    "top",
    "left",
    "vectors",  # whole ones
)


class KernelKey(NamedTuple):
    """What distinguishes the machine code of two pools.

    Args:
      isa: of the processor.
      op: "AVG_POOL2D" or "MAX_POOL2D".
      dtype: int8 or int16.
      last: channels of the last vector, 0 if it is like the others.
    """

    isa: InstructionSet
    op: str
    dtype: np.dtype
    last: int

    @property
    def name(self) -> str:
        """Of its function."""
        return f"tosajax_{self.op.lower()}_{self.isa.label}_{self.dtype.name}_{self.last}"

    @property
    def is_average(self) -> bool:
        return self.op == "AVG_POOL2D"

    @property
    def lanes(self) -> int:
        """Channels of a vector: sums are int32, maxima are of the type of the input."""
        return self.isa.lanes * (1 if self.is_average else 4 // self.dtype.itemsize)


def module_of(key: KernelKey) -> Module:
    """The module of a key."""
    module = Module()

    def item(code: IRBuilder, buffers: Buffers, index: Value) -> None:
        _Item(code, key, buffers, index).write()

    abi.write(module, key.name, OPERANDS, item)
    return module


class _Window(NamedTuple):
    """What a window covers of the input: the address of its first element, and elements."""

    first: Value
    height: Value
    width: Value


class _Item:
    """Writes the work of an item."""

    def __init__(self, code: IRBuilder, key: KernelKey, buffers: Buffers, index: Value) -> None:
        self.code, self.key, self.index = code, key, index
        self.x, zero_points, fields = buffers.operands
        self.out = buffers.out
        self.plan = {n: code.load("i64", fields, 8 * i) for i, n in enumerate(FIELDS)}
        self.input_zp, self.output_zp = (code.load("i32", zero_points, 4 * i) for i in range(2))
        self.size = key.dtype.itemsize
        self.element = f"i{8 * self.size}"

    def write(self) -> None:
        code, plan, key = self.code, self.plan, self.key
        # The last item ends with the rows, and may do some again that another has done.
        first = (self.index * plan["rows"]).smin(plan["all_rows"] - plan["rows"])
        pixel_bytes = plan["channels"] * self.size
        with code.loop(plan["rows"]) as row, code.loop(plan["out_width"]) as column:
            place = first + row
            window = self._window(place, column)
            end = self._average_of(window) if key.is_average else (lambda values: values)
            out = code.gep(self.out, (place * plan["out_width"] + column) * pixel_bytes)
            with code.loop(plan["vectors"]) as number:
                at = number * (key.lanes * self.size)
                code.store(end(self._combined(window, at, key.lanes)), out, at)
            if key.last:
                at = plan["vectors"] * (key.lanes * self.size)
                found = end(self._combined(window, at, key.last))
                for begin, length in power_of_two_runs(key.last):
                    code.store(found.extract(begin, length), out, at, begin * self.size)

    def _window(self, place: Value, column: Value) -> _Window:
        """Of a pixel of the output."""
        plan, code = self.plan, self.code
        image, row = place // plan["out_height"], place % plan["out_height"]
        top, height = _covered(row, plan["stride_y"], plan["top"], plan["size_y"], plan["height"])
        left, width = _covered(
            column, plan["stride_x"], plan["left"], plan["size_x"], plan["width"]
        )
        pixel = (image * plan["height"] + top) * plan["width"] + left
        return _Window(code.gep(self.x, pixel * plan["channels"] * self.size), height, width)

    def _combined(self, window: _Window, at: Value, count: int) -> Value:
        """The sum or the maximum of some channels, which begin so many bytes behind the first."""
        code, plan, key = self.code, self.plan, self.key
        of = vector("i32" if key.is_average else self.element, key.lanes)
        found = code.alloca(of)
        code.store(code.value(0 if key.is_average else np.iinfo(key.dtype).min, of), found)
        pitch = plan["channels"] * self.size
        with code.loop(window.height) as y, code.loop(window.width) as x:
            source = code.gep(window.first, (y * plan["width"] + x) * pitch, at)
            values = code.load_first(count, vector(self.element, key.lanes), source).to(of)
            so_far = code.load(of, found)
            code.store(so_far + values if key.is_average else so_far.smax(values), found)
        return code.load(of, found)

    def _average_of(self, window: _Window) -> Callable[[Value], Value]:
        """Turns sums of a window into averages: by a multiplication, as in "Scaling Helpers"."""
        code, lanes = self.code, self.key.lanes
        wide, words = vector("i64", lanes), vector("i32", lanes)
        count = window.height * window.width
        bits = self._bit_length(count - 1)
        multiplier = ((code.value((1 << 30) + 1) << bits) // count).splat(lanes)
        half = (code.value(1 << 29) << bits).splat(lanes)
        shift = (bits + 30).splat(lanes)
        zero_points = (self.input_zp * count.to("i32")).splat(lanes)
        ends = np.iinfo(self.key.dtype)

        def average(sums: Value) -> Value:
            total = (sums - zero_points).to(wide) * multiplier + half
            result = (total >> shift).to(words) + self.output_zp.splat(lanes)
            return result.smax(int(ends.min)).smin(int(ends.max)).to(vector(self.element, lanes))

        return average

    def _bit_length(self, number: Value) -> Value:
        zeros = self.code.call("i64", "llvm.ctlz.i64", number, self.code.value(0, "i1"))
        return self.code.value(64) - zeros


def _covered(
    index: Value, stride: Value, pad: Value, size: Value, length: Value
) -> tuple[Value, Value]:
    """Where a window begins along an axis, and how many elements of the input it covers."""
    begin = index * stride - pad
    first = begin.smax(0)
    return first, (begin + size).smin(length) - first
