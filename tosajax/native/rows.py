"""An item of a convolution: some rows of the output of one image.

Its thread may copy the rows of the input that they read into room of its own, in the workspace
behind the table of scales.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tosajax.native import handler
from tosajax.native.code import Code, Module, Value
from tosajax.native.handler import Buffers
from tosajax.native.product import Form
from tosajax.native.results import FILL, End, Results, write_scales

OPERANDS = ("x", "weights", "channels", "limits", "plan")
# Of the plan of every convolution.
COMMON = (
    "items",
    "threads",
    "waits",
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
    "slot",  # bytes of a thread's copy
    "channels",
    "padded_channels",
    "table",  # bytes of the table of scales, at the start of the workspace
)


class Rows:
    """The rows of an item, as code is written for them.

    Args:
      code: gets the instructions.
      end: of the sums.
      fields: of the plan; those in `COMMON` among them.
      buffers: of the call.
      index: of the item.
    """

    def __init__(
        self, code: Code, end: End, fields: Sequence[str], buffers: Buffers, index: Value
    ) -> None:
        self.code, self.buffers = code, buffers
        plan = {name: code.load("i64", buffers.plan, 8 * i) for i, name in enumerate(fields)}
        self.plan = plan
        self.image = index // plan["items_per_image"]
        part = index % plan["items_per_image"]
        # The last item ends with the image, and may do rows again that the one before has done.
        self.first = (part * plan["rows"]).least(plan["out_height"] - plan["rows"])
        self.padding = code.load("i32", self.operand("limits"), 4 * FILL)
        self.element = "i16" if end.wide else "i8"
        out, table = buffers.results
        limits = self.operand("limits")
        self.results = Results(code, end, out, table, limits, plan["channels"])

    def operand(self, name: str) -> Value:
        """The address of an operand."""
        return self.buffers.operands[OPERANDS.index(name)]

    @property
    def behind_table(self) -> Value:
        """The address of the workspace behind the table of scales."""
        return self.code.at(self.buffers.results[1], self.plan["table"])

    @property
    def out_row(self) -> Value:
        """The first row of the output, as a number among those of all images."""
        return self.image * self.plan["out_height"] + self.first

    def input_row(self, staged: Value) -> tuple[Value, Value]:
        """A row of the input, as a number among those of all images, and whether it is inside."""
        row = self.first * self.plan["stride"] - self.plan["top"] + staged
        inside = (row > -1) & (row < self.plan["height"])
        return self.image * self.plan["height"] + row, inside

    def copy_row(self, staged: Value, to: Value, made: Form) -> None:
        """Copies a row with its padding.

        Args:
          staged: its number in the copy.
          to: where it begins.
          made: what is stored of an element.
        """
        code = self.code
        source, left, copied, right = self._parts(staged)
        padding = made(self.padding.to(self.element))
        read, written = (int(of[1:]) // 8 for of in (self.element, padding.type))
        behind = code.at(to, left * written)
        with code.loop(left) as i:
            code.store(padding, to, i * written)
        with code.loop(copied) as i:
            element = code.load(self.element, source, i * read)
            code.store(made(element), behind, i * written)
        with code.loop(right) as i:
            code.store(padding, behind, copied * written, i * written)

    def _parts(self, staged: Value) -> tuple[Value, Value, Value, Value]:
        """Of a row of a copy: its source, padding, elements of the source, and padding again."""
        plan = self.plan
        row, inside = self.input_row(staged)
        copied, right = (inside.choose(plan[name], 0) for name in ("copied", "right"))
        left = inside.choose(plan["left"], plan["left"] + plan["copied"] + plan["right"])
        return self.code.at(self.operand("x"), row * plan["row"]), left, copied, right


def module_of(
    name: str,
    end: End,
    fields: Sequence[str],
    write: Callable[[Rows, Value], None],
) -> Module:
    """The module of a kernel whose items are rows.

    Args:
      name: of its handler.
      end: of the sums.
      fields: of the plan.
      write: writes the work of an item, given the number of the thread.
    """
    module = Module()

    def prologue(code: Code, buffers: Buffers) -> None:
        rows = Rows(code, end, fields, buffers, code.value(0))
        count = rows.plan["padded_channels"]
        write_scales(code, end, rows.operand("channels"), buffers.results[1], count)

    def item(code: Code, buffers: Buffers, slot: Value, index: Value) -> None:
        write(Rows(code, end, fields, buffers, index), slot)

    handler.write(module, name, (len(OPERANDS), 2), prologue, item)
    return module
