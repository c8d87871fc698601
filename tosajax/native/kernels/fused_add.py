"""ADD and SUB of vectors of bytes: both are scaled to int32, and the result to bytes.

A term may be scaled twice: to have more bits first, and then by its scale.
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
# The rows of the operand of scales, int32, each of all lanes.
ROWS = (
    *("left multiplier", "left shift", "right multiplier", "right shift"),
    *("left next multiplier", "left next shift", "right next multiplier", "right next shift"),
    *("result multiplier", "result shift"),
    *("left zero point", "right zero point", "zero point", "least", "largest"),
)


class AddKey(NamedTuple):
    """What distinguishes the machine code of two sums.

    Args:
      op: "ADD" or "SUB".
      byte_scales: the form of the first scale of the left and of the right.
      scales: of int32: the next of the left and of the right, if there is one, and the result's.
    """

    op: str
    byte_scales: tuple[ByteScaleForm, ByteScaleForm]
    scales: tuple[ScaleTable | None, ScaleTable | None, ScaleTable]

    @property
    def name(self) -> str:
        """In the name of a kernel."""
        byte_scales = "_".join(form.value for form in self.byte_scales)
        others = "_".join(_label(scale) for scale in self.scales)
        return f"{self.op.lower()}_{byte_scales}_{others}"

    @property
    def tables(self) -> list[tuple[str, ScaleTable, int]]:
        """The scales of int32 that there are: of what, and where its table begins, in bytes."""
        found, at = [], 0
        for name, scale in zip(("left next", "right next", "result"), self.scales, strict=True):
            if scale is not None:
                found.append((name, scale, at))
                at += scale.size
        return found

    @property
    def table_size(self) -> int:
        """Bytes of all tables."""
        return sum(scale.size for _, scale, _ in self.tables)


def _label(scale: ScaleTable | None) -> str:
    return (
        "0" if scale is None else f"{1 + scale.double_round}{'upper' if scale.upper_only else ''}"
    )


class AddWriter:
    """Writes sums.

    Args:
      code: gets the instructions.
      isa: of the processor.
      how: they are made.
      scales: the address of the operand of scales.
      table: of the tables of `how`.
    """

    def __init__(
        self, code: IRBuilder, isa: InstructionSet, key: AddKey, scales: Value, table: Value
    ) -> None:
        self.code, self.isa, self.key, self.scales, self.table = code, isa, key, scales, table
        self.byte_scales = [self._byte_scale(number) for number in range(2)]
        numbers = (code.load("i32", self._row(name)) for name in ROWS[-3:])
        self.narrowing = Narrowing(isa.pack, *numbers, wraps=not key.scales[-1].upper_only)

    def write_tables(self) -> None:
        """Of scales of int32."""
        for name, scale, at in self.key.tables:
            multiplier, shift = self._row(f"{name} multiplier"), self._row(f"{name} shift")
            table = self.code.gep(self.table, at)
            lanes = self.code.value(self.isa.lanes)
            requantize.write_scale_table(self.code, scale, table, multiplier, shift, lanes)

    def rescaled_sums(
        self, own: Sequence[Value], others: Iterable[Value], *, is_right: bool = False
    ) -> list[Value]:
        """The results of vectors before they are bytes, int32.

        Each scale is applied to all before the next one, so that registers hold it.

        Args:
          own: terms, bytes in int32.
          others: the other terms likewise, made when they are needed.
          is_right: whether `own` is on the right.
        """
        own = [self._scaled_term(values, is_right) for values in own]
        sums = []
        for one, values in zip(own, others, strict=True):
            other = self._scaled_term(values, not is_right)
            left, right = (other, one) if is_right else (one, other)
            sums.append(left - right if self.key.op == "SUB" else left + right)
        return [self._rescaled("result", total) for total in sums]

    def _scaled_term(self, values: Value, number: int) -> Value:
        return self._rescaled(f"{TERMS[number]} next", self.byte_scales[number].apply(values))

    def _row(self, name: str) -> Value:
        """The address of a row of scales."""
        return self.code.gep(self.scales, 4 * self.isa.lanes * ROWS.index(name))

    def _byte_scale(self, number: int) -> ByteScale:
        """The first scale of a term."""
        names = (f"{TERMS[number]} {name}" for name in ("zero point", "multiplier", "shift"))
        numbers = (self.code.load("i32", self._row(name)).to("i64") for name in names)
        return ByteScale.from_i64(self.code, self.key.byte_scales[number], *numbers).splat(
            self.isa.lanes
        )

    def _rescaled(self, name: str, values: Value) -> Value:
        """By a scale of int32; as they are if there is none."""
        for of, scale, at in self.key.tables:
            if of == name:
                return requantize.apply(self.code, scale, self.code.gep(self.table, at), values)
        return values
