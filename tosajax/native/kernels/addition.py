"""The kernel of ADD and SUB of bytes; `summed` has how they are made."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tosajax.native.codegen import abi
from tosajax.native.codegen.abi import Buffers
from tosajax.native.codegen.builder import IRBuilder, Module, Value, vector
from tosajax.native.codegen.isa import InstructionSet
from tosajax.native.kernels.fused_add import TERMS, AddKey, AddWriter

OPERANDS = (*TERMS, "scales", "plan")
FIELDS = (
    "count",  # elements of an item: a multiple of the lanes
    "elements",
)


class KernelKey(NamedTuple):
    """What distinguishes the machine code of two additions.

    Args:
      isa: of the processor.
      together: vectors of sums that become one of bytes: 4, or 1 of fewer elements.
      how: sums are made.
    """

    isa: InstructionSet
    together: int
    how: AddKey

    @property
    def name(self) -> str:
        """Of its function."""
        return f"tosajax_sum_{self.isa.label}_{self.together}_{self.how.name}"


def module_of(kind: KernelKey) -> Module:
    """The module of a kind."""
    module = Module()

    def prologue(code: IRBuilder, buffers: Buffers) -> None:
        _Item(code, kind, buffers).sums.write_tables()

    def item(code: IRBuilder, buffers: Buffers, index: Value) -> None:
        _Item(code, kind, buffers).write(index)

    abi.write(module, kind.name, OPERANDS, item, prologue)
    return module


class _Item:
    """Writes the work of an item: some elements."""

    def __init__(self, code: IRBuilder, kind: KernelKey, buffers: Buffers) -> None:
        self.code, self.kind = code, kind
        *self.sources, scales, _ = buffers.operands
        self.out = buffers.out
        self.sums = AddWriter(code, kind.isa, kind.how, scales, buffers.table)
        self.plan = {n: code.load("i64", buffers.plan, 8 * i) for i, n in enumerate(FIELDS)}

    def write(self, index: Value) -> None:
        code, kind, count = self.code, self.kind, self.plan["count"]
        lanes = kind.isa.lanes
        # The last item ends with the elements, and may do some again that another has done.
        first = (index * count).smin(self.plan["elements"] - count)
        with code.loop(count, lanes * kind.together) as at:
            element = first + at
            left, right = (self._loaded(x, element) for x in self.sources)
            totals = self.sums.totals(list(left), right) * (4 // kind.together)
            some = self.sums.narrowing.of_all(code, totals).extract(0, lanes * kind.together)
            code.store(some, code.gep(self.out, element))

    def _loaded(self, source: Value, element: Value) -> Iterator[Value]:
        """The vectors of an operand from an element on."""
        lanes = self.kind.isa.lanes
        for v in range(self.kind.together):
            of = vector("i8", lanes)
            yield self.code.load(of, source, element, v * lanes).to_elements("i32")
