"""ADD and SUB of int8 vectors: both operands are scaled to int32, and the sum to int8.

An operand may be scaled twice, as converters write it: first to more bits, then by its scale.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tosajax.native.codegen import requantize
from tosajax.native.codegen.builder import IRBuilder, Value
from tosajax.native.codegen.isa import InstructionSet
from tosajax.native.codegen.narrowing import Narrowing
from tosajax.native.codegen.requantize import ByteScale, ByteScaleForm, ScaleTable

TERMS = "left", "right"
# Rows of the operand "scales", int32, [rows, lanes]; each row holds one value.
ROWS = (
    *("left multiplier", "left shift", "right multiplier", "right shift"),
    *("left next multiplier", "left next shift", "right next multiplier", "right next shift"),
    *("result multiplier", "result shift"),
    *("left zero point", "right zero point", "zero point", "least", "largest"),
)


class AddKey(NamedTuple):
    """The specialization of an addition: all that its machine code depends on.

    Args:
      op: "ADD" or "SUB".
      byte_scales: forms of the first scales, of the left and of the right operand.
      scales: scales of int32: the second of the left and of the right operand, or None; and the
        result's.
    """

    op: str
    byte_scales: tuple[ByteScaleForm, ByteScaleForm]
    scales: tuple[ScaleTable | None, ScaleTable | None, ScaleTable]

    @property
    def name(self) -> str:
        """Part of a kernel's name."""
        firsts = "_".join(form.value for form in self.byte_scales)
        others = "_".join(_label(scale) for scale in self.scales)
        return f"{self.op.lower()}_{firsts}_{others}"

    @property
    def tables(self) -> list[tuple[str, ScaleTable, int]]:
        """The tables of int32 scales: name in `ROWS`, layout, and offset in bytes."""
        tables, offset = [], 0
        for name, scale in zip(("left next", "right next", "result"), self.scales, strict=True):
            if scale is not None:
                tables.append((name, scale, offset))
                offset += scale.size
        return tables

    @property
    def table_size(self) -> int:
        """Bytes of all tables."""
        return sum(scale.size for _, scale, _ in self.tables)


def _label(scale: ScaleTable | None) -> str:
    """Part of a kernel's name: how often a scale rounds, and whether upper words suffice."""
    if scale is None:
        return "0"
    return f"{1 + scale.double_round}{'upper' if scale.upper_only else ''}"


class AddWriter:
    """Writes the code of an addition.

    Args:
      code: gets the instructions.
      isa: the instruction set.
      key: the specialization.
      scales: address of the operand "scales".
      table: address of the tables of `key`.
    """

    def __init__(
        self, code: IRBuilder, isa: InstructionSet, key: AddKey, scales: Value, table: Value
    ) -> None:
        self.code, self.isa, self.key, self.scales, self.table = code, isa, key, scales, table
        self.byte_scales = [self._byte_scale(side) for side in range(2)]
        bounds = (code.load("i32", self._row(name)) for name in ROWS[-3:])
        self.narrowing = Narrowing(isa.pack, *bounds, wraps=not key.scales[-1].upper_only)

    def write_tables(self) -> None:
        """Fills the tables of int32 scales."""
        for name, scale, offset in self.key.tables:
            multiplier, shift = self._row(f"{name} multiplier"), self._row(f"{name} shift")
            table = self.code.gep(self.table, offset)
            lanes = self.code.value(self.isa.lanes)
            requantize.write_scale_table(self.code, scale, table, multiplier, shift, lanes)

    def rescaled_sums(
        self, results: Sequence[Value], addends: Iterable[Value], *, is_right: bool = False
    ) -> list[Value]:
        """Sums of vectors, rescaled to int32 and not yet narrowed.

        Each scale is applied to all vectors before the next scale, so that it stays in registers.

        Args:
          results: vectors of int32 that hold int8 values.
          addends: vectors of the second operand, of the same form; each vector is taken when it is
            needed.
          is_right: whether `results` is the right operand.
        """
        scaled = [self._scaled_term(values, is_right) for values in results]
        sums = []
        for result, values in zip(scaled, addends, strict=True):
            addend = self._scaled_term(values, not is_right)
            left, right = (addend, result) if is_right else (result, addend)
            sums.append(left - right if self.key.op == "SUB" else left + right)
        return [self._rescaled("result", total) for total in sums]

    def _scaled_term(self, values: Value, side: int) -> Value:
        """Scales a vector of the left (0) or the right (1) operand."""
        return self._rescaled(f"{TERMS[side]} next", self.byte_scales[side].apply(values))

    def _row(self, name: str) -> Value:
        """The address of a row of the operand "scales"."""
        return self.code.gep(self.scales, 4 * self.isa.lanes * ROWS.index(name))

    def _byte_scale(self, side: int) -> ByteScale:
        """The first scale of the left (0) or the right (1) operand."""
        names = (f"{TERMS[side]} {name}" for name in ("zero point", "multiplier", "shift"))
        numbers = (self.code.load("i32", self._row(name)).to("i64") for name in names)
        form = self.key.byte_scales[side]
        return ByteScale.from_i64(self.code, form, *numbers).splat(self.isa.lanes)

    def _rescaled(self, name: str, values: Value) -> Value:
        """Applies the int32 scale of that name, if the addition has it."""
        for table_name, scale, offset in self.key.tables:
            if table_name == name:
                block = self.code.gep(self.table, offset)
                return requantize.apply(self.code, scale, block, values)
        return values
