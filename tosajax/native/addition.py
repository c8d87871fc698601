"""The kernel of ADD and SUB of bytes: each operand is scaled to int32, and the result to bytes.

An operand may be scaled twice: to have more bits first, and then by its scale.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tosajax.native import handler, requantize
from tosajax.native.code import Code, Module, Value, vector
from tosajax.native.handler import Buffers
from tosajax.native.isa import InstructionSet
from tosajax.native.packing import packed
from tosajax.native.requantize import Scale, Small, SmallScale
from tosajax.native.results import clamped

OPERANDS = ("left", "right", "scales", "plan")
FIELDS = (
    "items",
    "threads",
    "waits",
    "count",  # elements of an item: a multiple of the lanes
    "elements",
)
# The rows of the operand of scales, int32, each of all lanes.
ROWS = (
    *("left multiplier", "left shift", "right multiplier", "right shift"),
    *("left next multiplier", "left next shift", "right next multiplier", "right next shift"),
    *("result multiplier", "result shift"),
    *("left zero point", "right zero point", "zero point", "least", "largest"),
)


class Kind(NamedTuple):
    """What distinguishes the machine code of two additions.

    Args:
      isa: of the processor.
      op: "ADD" or "SUB".
      together: vectors of sums that become one of bytes: 4, or 1 of fewer elements.
      firsts: the form of the first scale of the left and of the right.
      scales: of int32: the next of the left and of the right, if there is one, and the result's.
    """

    isa: InstructionSet
    op: str
    together: int
    firsts: tuple[Small, Small]
    scales: tuple[Scale | None, Scale | None, Scale]

    @property
    def name(self) -> str:
        """Of the target for XLA."""
        firsts = "_".join(form.value for form in self.firsts)
        others = "_".join(_label(scale) for scale in self.scales)
        return f"tosajax_{self.op.lower()}_{self.isa.label}_{self.together}_{firsts}_{others}"

    @property
    def tables(self) -> list[tuple[str, Scale, int]]:
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


def _label(scale: Scale | None) -> str:
    return "0" if scale is None else f"{1 + scale.double}{'upper' if scale.upper else ''}"


def module_of(kind: Kind) -> Module:
    """The module with the handler of a kind."""
    module = Module()

    def prologue(code: Code, buffers: Buffers) -> None:
        _Item(code, kind, buffers).write_tables()

    def item(code: Code, buffers: Buffers, slot: Value, index: Value) -> None:
        del slot
        _Item(code, kind, buffers).write(index)

    handler.write(module, kind.name, (len(OPERANDS), 2), prologue, item)
    return module


class _Item:
    """Writes the work of an item: some elements."""

    def __init__(self, code: Code, kind: Kind, buffers: Buffers) -> None:
        self.code, self.kind = code, kind
        *self.sources, self.given, _ = buffers.operands
        self.out, self.table = buffers.results
        self.plan = {n: code.load("i64", buffers.plan, 8 * i) for i, n in enumerate(FIELDS)}

    def _row(self, name: str) -> Value:
        """The address of a row of scales."""
        return self.code.at(self.given, 4 * self.kind.isa.lanes * ROWS.index(name))

    def write_tables(self) -> None:
        """Of scales of int32."""
        code, lanes = self.code, self.code.value(self.kind.isa.lanes)
        for name, scale, at in self.kind.tables:
            multiplier, shift = self._row(f"{name} multiplier"), self._row(f"{name} shift")
            table = code.at(self.table, at)
            requantize.write_table(code, scale, table, multiplier, shift, lanes)

    def write(self, index: Value) -> None:
        code, kind, count = self.code, self.kind, self.plan["count"]
        lanes = kind.isa.lanes
        zero_point, *bounds = (code.load("i32", self._row(name)) for name in ROWS[-3:])
        scales = [self._scale(n) for n in range(2)]
        # The last item ends with the elements, and may do some again that another has done.
        first = (index * count).least(self.plan["elements"] - count)
        with code.loop(count, lanes * kind.together) as at:
            element = first + at
            sums = [self._sum(scales, element + v * lanes) for v in range(kind.together)]
            whole = sums * (4 // kind.together)
            wraps = not kind.scales[-1].upper
            results = packed(code, kind.isa.pack, whole, zero_point, wraps=wraps)
            some = clamped(results, *bounds).part(0, lanes * kind.together)
            code.store(some, code.at(self.out, element))

    def _sum(self, scales: Sequence[SmallScale], element: Value) -> Value:
        """A vector of results before they are bytes."""
        of = vector("i8", self.kind.isa.lanes)
        one, other = (
            self._scaled(
                f"{name} next", scale.scaled(self.code.load(of, source, element).to_elements("i32"))
            )
            for name, scale, source in zip(OPERANDS, scales, self.sources, strict=False)
        )
        return self._scaled("result", one - other if self.kind.op == "SUB" else one + other)

    def _scale(self, number: int) -> SmallScale:
        """Of an operand."""
        names = (f"{OPERANDS[number]} {name}" for name in ("zero point", "multiplier", "shift"))
        numbers = (self.code.load("i32", self._row(name)).to("i64") for name in names)
        scale = SmallScale.of(self.code, self.kind.firsts[number], *numbers)
        return scale.spread(self.kind.isa.lanes)

    def _scaled(self, name: str, values: Value) -> Value:
        """By a scale of int32; as they are if there is none."""
        for of, scale, at in self.kind.tables:
            if of == name:
                return requantize.scaled(self.code, scale, self.code.at(self.table, at), values)
        return values
