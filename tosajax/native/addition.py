"""The kernel of ADD and SUB of bytes: each operand is scaled to int32, and the result to bytes."""

from __future__ import annotations

from typing import NamedTuple

from tosajax.native import handler, requantize
from tosajax.native.code import Code, Module, Value, vector
from tosajax.native.handler import Buffers
from tosajax.native.isa import InstructionSet
from tosajax.native.requantize import Scale, SmallScale
from tosajax.native.results import bytes_within

OPERANDS = ("left", "right", "scales", "plan")
FIELDS = (
    "items",
    "threads",
    "count",  # elements of an item: a multiple of the lanes
    "elements",
)
# The rows of the operand of scales, int32, each of all lanes.
ROWS = (
    *("left multiplier", "left shift", "right multiplier", "right shift"),
    *("multiplier", "shift"),
    *("left zero point", "right zero point", "zero point", "least", "largest"),
)


class Kind(NamedTuple):
    """What distinguishes the machine code of two additions.

    Args:
      isa: of the processor.
      op: "ADD" or "SUB".
      doubles: whether the scale of the left, of the right and of the result rounds twice.
      upper: whether products' upper words give the result; see `requantize`.
    """

    isa: InstructionSet
    op: str
    doubles: tuple[bool, bool, bool]
    upper: bool

    @property
    def name(self) -> str:
        """Of the target for XLA."""
        rounds = "".join(str(1 + double) for double in self.doubles)
        return (
            f"tosajax_{self.op.lower()}_{self.isa.label}_{rounds}{'_upper' if self.upper else ''}"
        )

    @property
    def scale(self) -> Scale:
        """Of the result."""
        return Scale(self.isa.lanes, self.doubles[2], self.upper)


def module_of(kind: Kind) -> Module:
    """The module with the handler of a kind."""
    module = Module()

    def prologue(code: Code, buffers: Buffers) -> None:
        _Item(code, kind, buffers).write_table()

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

    def write_table(self) -> None:
        """Of the result's scale."""
        multiplier, shift = self._row("multiplier"), self._row("shift")
        lanes = self.code.value(self.kind.isa.lanes)
        requantize.write_table(self.code, self.kind.scale, self.table, multiplier, shift, lanes)

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
            one = left.scaled(self._loaded("left", element))
            other = right.scaled(self._loaded("right", element))
            total = one - other if self.kind.op == "SUB" else one + other
            result = requantize.scaled(code, self.kind.scale, self.table, total) + zero_point
            code.store(bytes_within(result, *bounds), code.at(self.out, element))

    def _scale(self, number: int) -> SmallScale:
        """Of an operand."""
        rows = (self._row(f"{OPERANDS[number]} {name}") for name in ("multiplier", "shift"))
        numbers = (self.code.load("i32", row).to("i64") for row in rows)
        scale = SmallScale.of(self.code, *numbers, double=self.kind.doubles[number])
        return scale.spread(self.kind.isa.lanes)

    def _loaded(self, name: str, element: Value) -> Value:
        """A vector of an operand, less its zero point."""
        lanes, source = self.kind.isa.lanes, self.sources[OPERANDS.index(name)]
        values = self.code.load(vector("i8", lanes), source, element).to(vector("i32", lanes))
        return values - self.code.load("i32", self._row(f"{name} zero point")).spread(lanes)
