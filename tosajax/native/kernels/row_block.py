"""A work item of a convolution: a block of output rows of one image.

Unless the kernel reads the input in place, the thread first copies the input rows that the block
needs to its scratch memory (the staging copy), padded, and converted for the instruction set.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from tosajax.native.codegen import abi
from tosajax.native.codegen.abi import Buffers, Fields
from tosajax.native.codegen.builder import IRBuilder, Module, Value, element_type, vector
from tosajax.native.kernels.epilogue import (
    FILL,
    EpilogueKey,
    EpilogueOperands,
    EpilogueWriter,
    write_scale_tables,
)
from tosajax.native.kernels.gemm_tile import StagingConversion

_OPERANDS = ("weights", "channels", "limits")


@dataclasses.dataclass(frozen=True, kw_only=True)
class RowFields(Fields):
    """The sizes that the plan of every convolution begins with."""

    items_per_image: int
    rows: int  # of the output, of a work item
    out_height: int
    out_width: int
    height: int
    row: int  # bytes of an input row
    left: int  # padding on the left, elements
    copied: int  # elements of an input row that are copied
    right: int  # padding on the right, elements
    top: int  # padding at the top, rows
    stride: int  # of rows
    staged: int  # rows of the staging copy
    staged_row: int  # bytes of such a row
    channels: int
    padded_channels: int


def _operands(epilogue: EpilogueKey) -> Sequence[str]:
    others = (f"other {number}" for number in range(epilogue.others))
    scales = () if epilogue.fused_add is None else ("scales",)
    return "x", *others, *_OPERANDS, *scales, "plan"


class RowBlock:
    """The code of one work item: its position in the output, its operands, its staging copy.

    Args:
      code: gets the instructions.
      epilogue: how accumulators become results.
      fields: the sizes of the plan.
      buffers: addresses that the kernel receives.
      index: the index of the work item, i64.
    """

    def __init__(
        self,
        code: IRBuilder,
        epilogue: EpilogueKey,
        fields: type[RowFields],
        buffers: Buffers,
        index: Value,
    ) -> None:
        self.code, self.epilogue, self.buffers = code, epilogue, buffers
        plan = fields.load(code, buffers.plan)
        self.plan = plan
        self.image = index // plan["items_per_image"]
        part = index % plan["items_per_image"]
        # The last item ends with the image, and may compute rows of the item before it again.
        self.first = (part * plan["rows"]).smin(plan["out_height"] - plan["rows"])
        self.padding = code.load("i32", self.operand("limits"), 4 * FILL)
        self.element = epilogue.element
        counts = plan["channels"], plan["padded_channels"]
        self.writer = EpilogueWriter(code, epilogue, self.addresses, *counts)

    def operand(self, name: str) -> Value:
        """The address of an operand."""
        return self.buffers.operands[_operands(self.epilogue).index(name)]

    @property
    def addresses(self) -> EpilogueOperands:
        """The addresses that the epilogue reads and writes."""
        channels, limits = map(self.operand, ("channels", "limits"))
        others = [self.operand(f"other {number}") for number in range(self.epilogue.others)]
        scales = None if self.epilogue.fused_add is None else self.operand("scales")
        return EpilogueOperands(
            self.buffers.out, self.buffers.table, channels, limits, others, scales
        )

    @property
    def out_row(self) -> Value:
        """Index of the first output row, counted over all images."""
        return self.image * self.plan["out_height"] + self.first

    def input_row(self, staged: Value) -> tuple[Value, Value]:
        """The input row of a row of the staging copy.

        Returns:
          Its index, counted over all images; and i1, whether it lies inside its image.
        """
        row = self.first * self.plan["stride"] - self.plan["top"] + staged
        inside = (row > -1) & (row < self.plan["height"])
        return self.image * self.plan["height"] + row, inside

    def copy_row(self, staged: Value, to: Value, convert: StagingConversion) -> None:
        """Copies one input row with its padding.

        Up to 64 bytes behind the row are overwritten: rows are copied in order, with 64 bytes of
        slack behind the last.

        Args:
          staged: index of the row in the staging copy.
          to: address of that row.
          convert: converts an element, or a vector of elements.
        """
        code, plan = self.code, self.plan
        row, inside = self.input_row(staged)
        padding = convert(self.padding.to(self.element))
        size = int(padding.type[1:]) // 8
        left, copied, right = (plan[name] for name in ("left", "copied", "right"))
        outside = inside.select(0, left + copied + right)
        self._fill(padding, to, inside.select(left, outside))
        self._fill(padding, code.gep(to, (left + copied) * size), inside.select(right, 0))
        source = code.gep(self.operand("x"), row * plan["row"])
        self._copy(source, code.gep(to, left * size), inside.select(copied, 0), convert)

    def _fill(self, value: Value, to: Value, count: Value) -> None:
        """Stores `count` copies of a value, and up to 64 bytes more."""
        size = int(value.type[1:]) // 8
        values = value.splat(self._vector_bytes // size)
        with self.code.loop(count * size, self._vector_bytes) as offset:
            self.code.store(values, to, offset)

    def _copy(self, source: Value, to: Value, count: Value, convert: StagingConversion) -> None:
        """Copies `count` elements, by the longest vectors that they fill."""
        code, read = self.code, int(self.element[1:]) // 8
        below = None
        for length in (self._vector_bytes, self._vector_bytes // 4, 1):
            fits = count > length - 1
            fits = fits if below is None else fits & (count < below)
            with code.if_then(fits), code.loop(count, length) as i:
                first = i.smin(count - length)  # The last vector ends with the elements.
                ir_type = self.element if length == 1 else vector(self.element, length)
                values = convert(code.load(ir_type, source, first * read))
                written = int(element_type(values.type)[1:]) // 8
                code.store(values, to, first * written)
            below = length

    @property
    def _vector_bytes(self) -> int:
        return 4 * self.epilogue.lanes


def module_of(
    name: str,
    epilogue: EpilogueKey,
    fields: type[RowFields],
    write: Callable[[RowBlock], None],
) -> Module:
    """The module of a kernel whose work items are blocks of rows.

    Args:
      name: the kernel's name.
      epilogue: how accumulators become results.
      fields: the sizes of the plan.
      write: writes the body of a work item.
    """
    module = Module()

    def prologue(code: IRBuilder, buffers: Buffers) -> None:
        rows = RowBlock(code, epilogue, fields, buffers, code.value(0))
        count = rows.plan["padded_channels"]
        write_scale_tables(code, epilogue, rows.addresses, count)

    def item(code: IRBuilder, buffers: Buffers, index: Value) -> None:
        write(RowBlock(code, epilogue, fields, buffers, index))

    abi.write(module, name, _operands(epilogue), item, prologue)
    return module
