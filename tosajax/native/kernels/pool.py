"""Kernels of AVG_POOL2D and MAX_POOL2D ("Tensor Operators", TOSA 1.0.1).

A work item is some rows of the output. The window of a pixel is reduced for one vector of channels
at a time, over the elements inside the input: row by row, so that sums of float32 have one order.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from tosajax.native.codegen import abi, floats
from tosajax.native.codegen.abi import Buffers
from tosajax.native.codegen.builder import IRBuilder, Module, Value, power_of_two_runs, vector
from tosajax.native.codegen.isa import InstructionSet

OPERANDS = ("x", "zero points", "plan")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fields(abi.Fields):
    """The sizes of a plan."""

    rows: int  # of the output, of a work item
    all_rows: int  # of the output, of all images
    out_height: int
    out_width: int
    height: int
    width: int
    channels: int
    size_y: int
    size_x: int
    stride_y: int
    stride_x: int
    top: int
    left: int
    vectors: int  # whole vectors of channels


class KernelKey(NamedTuple):
    """The specialization of a pool: all that its machine code depends on.

    Args:
      isa: the instruction set.
      op: "AVG_POOL2D" or "MAX_POOL2D".
      dtype: int8, int16 or float32, whose bits are loaded as i32.
      last: channels behind the last whole vector; 0 if there are none.
    """

    isa: InstructionSet
    op: str
    dtype: np.dtype
    last: int

    @property
    def name(self) -> str:
        """Name of the kernel's function."""
        return f"tosajax_{self.op.lower()}_{self.isa.label}_{self.dtype.name}_{self.last}"

    @property
    def is_average(self) -> bool:
        return self.op == "AVG_POOL2D"

    @property
    def is_float(self) -> bool:
        return self.dtype == np.float32

    @property
    def lanes(self) -> int:
        """Channels of a vector: sums are int32, maxima have the type of the input."""
        return self.isa.lanes * (1 if self.is_average else 4 // self.dtype.itemsize)


def module_of(key: KernelKey) -> Module:
    """The LLVM module of a specialization."""
    module = Module()

    def item(code: IRBuilder, buffers: Buffers, index: Value) -> None:
        _Item(code, key, buffers, index).write()

    abi.write(module, key.name, OPERANDS, item)
    return module


class _Window(NamedTuple):
    """The part of a window that lies inside the input.

    Args:
      first: address of its first element.
      height: rows, i64.
      width: columns, i64.
    """

    first: Value
    height: Value
    width: Value


class _Item:
    """Writes the code of a work item."""

    def __init__(self, code: IRBuilder, key: KernelKey, buffers: Buffers, index: Value) -> None:
        self.code, self.key, self.index = code, key, index
        self.x, zero_points, fields = buffers.operands
        self.out = buffers.out
        self.plan = Fields.load(code, fields)
        self.input_zp, self.output_zp = (code.load("i32", zero_points, 4 * i) for i in range(2))
        self.size = key.dtype.itemsize
        self.element = f"i{8 * self.size}"

    def write(self) -> None:
        code, plan, key = self.code, self.plan, self.key
        # The last item ends with the rows, and may compute some of another item again.
        first = (self.index * plan["rows"]).smin(plan["all_rows"] - plan["rows"])
        pixel_bytes = plan["channels"] * self.size
        with code.loop(plan["rows"]) as row, code.loop(plan["out_width"]) as column:
            out_row = first + row
            window = self._window(out_row, column)
            finish = self._finish(window)
            out = code.gep(self.out, (out_row * plan["out_width"] + column) * pixel_bytes)
            with code.loop(plan["vectors"]) as number:
                offset = number * (key.lanes * self.size)
                code.store(finish(self._reduced(window, offset, key.lanes)), out, offset)
            if key.last:
                offset = plan["vectors"] * (key.lanes * self.size)
                results = finish(self._reduced(window, offset, key.last))
                for begin, length in power_of_two_runs(key.last):
                    code.store(results.extract(begin, length), out, offset, begin * self.size)

    def _window(self, out_row: Value, column: Value) -> _Window:
        """The window of an output pixel; rows are counted over all images."""
        plan, code = self.plan, self.code
        image, row = out_row // plan["out_height"], out_row % plan["out_height"]
        top, height = _covered(row, plan["stride_y"], plan["top"], plan["size_y"], plan["height"])
        left, width = _covered(
            column, plan["stride_x"], plan["left"], plan["size_x"], plan["width"]
        )
        pixel = (image * plan["height"] + top) * plan["width"] + left
        return _Window(code.gep(self.x, pixel * plan["channels"] * self.size), height, width)

    def _reduced(self, window: _Window, offset: Value, count: int) -> Value:
        """The sum or the maximum over a window, for `count` channels.

        Args:
          window: the elements.
          offset: bytes from the first channel of a pixel to these.
          count: channels, at most the lanes.
        """
        code, plan, key = self.code, self.plan, self.key
        ir_type = vector("i32" if key.is_average else self.element, key.lanes)
        slot = code.alloca(ir_type)
        initial = 0 if key.is_average else self._least
        code.store(code.value(initial, ir_type), slot)
        pitch = plan["channels"] * self.size
        with code.loop(window.height) as y, code.loop(window.width) as x:
            source = code.gep(window.first, (y * plan["width"] + x) * pitch, offset)
            values = code.load_first(count, vector(self.element, key.lanes), source).to(ir_type)
            total = code.load(ir_type, slot)
            code.store(self._combined(total, values), slot)
        return code.load(ir_type, slot)

    @property
    def _least(self) -> int:
        """The value below all others, as an integer of the element's bits."""
        if self.key.is_float:
            return int(np.float32(-np.inf).view(np.int32))
        return int(np.iinfo(self.key.dtype).min)

    def _combined(self, total: Value, values: Value) -> Value:
        """The sum or the maximum of vectors."""
        if self.key.is_float:
            combine = floats.add if self.key.is_average else floats.maximum
            return floats.to_bits(combine(*map(floats.of_bits, (total, values))))
        return total + values if self.key.is_average else total.smax(values)

    def _finish(self, window: _Window) -> Callable[[Value], Value]:
        """What makes results of the sums or maxima over a window."""
        if not self.key.is_average:
            return lambda values: values
        return self._quotient_of(window) if self.key.is_float else self._average_of(window)

    def _quotient_of(self, window: _Window) -> Callable[[Value], Value]:
        """Averages sums of float32 over a window."""
        count = floats.of_integer(window.height * window.width, self.key.lanes)
        return lambda sums: floats.to_bits(floats.divide(floats.of_bits(sums), count))

    def _average_of(self, window: _Window) -> Callable[[Value], Value]:
        """Averages sums over a window by a multiplication, as "Scaling Helpers" do."""
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
        """The bits of an i64 without its leading zeros."""
        zeros = self.code.call("i64", "llvm.ctlz.i64", number, self.code.value(0, "i1"))
        return self.code.value(64) - zeros


def _covered(
    index: Value, stride: Value, pad: Value, size: Value, length: Value
) -> tuple[Value, Value]:
    """The first input index that a window covers along an axis, and how many it covers."""
    begin = index * stride - pad
    first = begin.smax(0)
    return first, (begin + size).smin(length) - first
