"""The kernel of ADD and SUB of bytes: each operand is scaled to int32, and the result to bytes.

An operand may be scaled twice: to have more bits first, and then by its scale.
"""

from __future__ import annotations

from typing import NamedTuple

from tosajax.native import handler, requantize
from tosajax.native.code import Code, Module, Value, vector
from tosajax.native.handler import Buffers
from tosajax.native.isa import InstructionSet
from tosajax.native.requantize import Scale, SmallScale
from tosajax.native.results import within

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
      doubles: whether the first scale of the left and of the right rounds twice.
      scales: of int32: the next of the left and of the right, if there is one, and the result's.
    """

    isa: InstructionSet
    op: str
    doubles: tuple[bool, ...]
    scales: tuple[Scale | None, ...]

    @property
    def name(self) -> str:
        """Of the target for XLA."""
        first = "".join(str(1 + double) for double in self.doubles)
        others = "_".join(_label(scale) for scale in self.scales)
        return f"tosajax_{self.op.lower()}_{self.isa.label}_{first}_{others}"

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
        code, lanes, count = self.code, self.kind.isa.lanes, self.plan["count"]
        words = vector("i32", lanes)
        left, right = (self._scale(n) for n in range(2))
        zero_point, *limits = (code.load(words, self._row(name)) for name in ROWS[-3:])
        bounds = [limit.to(vector("i8", lanes)) for limit in limits]
        # The last item ends with the elements, and may do some again that another has done.
        first = (index * count).least(self.plan["elements"] - count)
        with code.loop(count, lanes) as at:
            element = first + at
            one = self._scaled("left next", left.scaled(self._loaded("left", element)))
            other = self._scaled("right next", right.scaled(self._loaded("right", element)))
            total = one - other if self.kind.op == "SUB" else one + other
            result = self._scaled("result", total) + zero_point
            code.store(within(result, *bounds), code.at(self.out, element))

    def _scale(self, number: int) -> SmallScale:
        """Of an operand."""
        rows = (self._row(f"{OPERANDS[number]} {name}") for name in ("multiplier", "shift"))
        numbers = (self.code.load("i32", row).to("i64") for row in rows)
        scale = SmallScale.of(self.code, *numbers, double=self.kind.doubles[number])
        return scale.spread(self.kind.isa.lanes)

    def _scaled(self, name: str, values: Value) -> Value:
        """By a scale of int32; as they are if there is none."""
        for of, scale, at in self.kind.tables:
            if of == name:
                return requantize.scaled(self.code, scale, self.code.at(self.table, at), values)
        return values

    def _loaded(self, name: str, element: Value) -> Value:
        """A vector of an operand, less its zero point."""
        lanes, source = self.kind.isa.lanes, self.sources[OPERANDS.index(name)]
        values = self.code.load(vector("i8", lanes), source, element).to(vector("i32", lanes))
        return values - self.code.load("i32", self._row(f"{name} zero point")).spread(lanes)
