"""An item of a convolution: some rows of the output of one image.

Its thread may copy the rows of the input that they read into room of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tosajax.native.codegen import abi
from tosajax.native.codegen.abi import Buffers
from tosajax.native.codegen.builder import IRBuilder, Module, Value, element_type, vector
from tosajax.native.kernels.epilogue import (
    FILL,
    EpilogueKey,
    EpilogueOperands,
    EpilogueWriter,
    write_scale_tables,
)
from tosajax.native.kernels.gemm_tile import StagingConversion

_OPERANDS = ("x", "weights", "channels", "limits", "plan")
_OF_SUMS = ("x", "other", "weights", "channels", "limits", "scales", "plan")
# Of the plan of every convolution.
COMMON = (
    "items_per_image",
    "rows",  # of the output, of an item
    "out_height",
    "out_width",
    "height",
    "row",  # of the input: bytes
    "left",  # padding, elements
    "copied",  # of a row of the input: elements
    "right",
    "top",
    "stride",  # of rows
    "staged",  # rows of an item's copy
    "staged_row",  # bytes
    "channels",
    "padded_channels",
)


def _operands(end: EpilogueKey) -> Sequence[str]:
    return _OPERANDS if end.fused_add is None else _OF_SUMS


class RowBlock:
    """The rows of an item, as code is written for them.

    Args:
      code: gets the instructions.
      epilogue: how accumulators become results.
      fields: of the plan; those in `COMMON` among them.
      buffers: of the call.
      index: of the item.
    """

    def __init__(
        self,
        code: IRBuilder,
        end: EpilogueKey,
        fields: Sequence[str],
        buffers: Buffers,
        index: Value,
    ) -> None:
        self.code, self.epilogue, self.buffers = code, end, buffers
        plan = {name: code.load("i64", buffers.plan, 8 * i) for i, name in enumerate(fields)}
        self.plan = plan
        self.image = index // plan["items_per_image"]
        part = index % plan["items_per_image"]
        # The last item ends with the image, and may do rows again that the one before has done.
        self.first = (part * plan["rows"]).smin(plan["out_height"] - plan["rows"])
        self.padding = code.load("i32", self.operand("limits"), 4 * FILL)
        self.element = "i16" if end.is_int16 else "i8"
        self.results = EpilogueWriter(code, end, self.addresses, plan["channels"])

    def operand(self, name: str) -> Value:
        """The address of an operand."""
        return self.buffers.operands[_operands(self.epilogue).index(name)]

    @property
    def addresses(self) -> EpilogueOperands:
        """Of what results need."""
        names = ["channels", "limits"] + ["other", "scales"] * (self.epilogue.fused_add is not None)
        return EpilogueOperands(self.buffers.out, self.buffers.table, *map(self.operand, names))

    @property
    def out_row(self) -> Value:
        """The first row of the output, as a number among those of all images."""
        return self.image * self.plan["out_height"] + self.first

    def input_row(self, staged: Value) -> tuple[Value, Value]:
        """A row of the input, as a number among those of all images, and whether it is inside."""
        row = self.first * self.plan["stride"] - self.plan["top"] + staged
        inside = (row > -1) & (row < self.plan["height"])
        return self.image * self.plan["height"] + row, inside

    def copy_row(self, staged: Value, to: Value, made: StagingConversion) -> None:
        """Copies a row with its padding; rows behind it, or 64 bytes of slack, are written next.

        Args:
          staged: its number in the copy.
          to: where it begins.
          made: what is stored of an element, or of each of a vector.
        """
        code, plan = self.code, self.plan
        row, inside = self.input_row(staged)
        padding = made(self.padding.to(self.element))
        size = int(padding.type[1:]) // 8
        left, copied, right = (plan[name] for name in ("left", "copied", "right"))
        outside = inside.select(0, left + copied + right)
        self._fill(padding, to, inside.select(left, outside))
        self._fill(padding, code.gep(to, (left + copied) * size), inside.select(right, 0))
        source = code.gep(self.operand("x"), row * plan["row"])
        self._copy(source, code.gep(to, left * size), inside.select(copied, 0), made)

    def _fill(self, value: Value, to: Value, count: Value) -> None:
        """Stores so many times a value, and up to 64 bytes more."""
        size = int(value.type[1:]) // 8
        values = value.splat(self._vector_bytes // size)
        with self.code.loop(count * size, self._vector_bytes) as at:
            self.code.store(values, to, at)

    def _copy(self, source: Value, to: Value, count: Value, made: StagingConversion) -> None:
        """Copies so many elements, by the longest vectors of which there is one."""
        code, read = self.code, int(self.element[1:]) // 8
        below = None
        for length in (self._vector_bytes, self._vector_bytes // 4, 1):
            fits = count > length - 1
            fits = fits if below is None else fits & (count < below)
            with code.if_then(fits), code.loop(count, length) as i:
                at = i.smin(count - length)  # The last one ends with the elements.
                of = self.element if length == 1 else vector(self.element, length)
                values = made(code.load(of, source, at * read))
                written = int(element_type(values.type)[1:]) // 8
                code.store(values, to, at * written)
            below = length

    @property
    def _vector_bytes(self) -> int:
        return 4 * self.epilogue.lanes


def module_of(
    name: str,
    epilogue: EpilogueKey,
    fields: Sequence[str],
    write: Callable[[RowBlock], None],
) -> Module:
    """The module of a kernel whose items are rows.

    Args:
      name: of the kernel.
      epilogue: how accumulators become results.
      fields: of the plan.
      write: writes the work of an item.
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
