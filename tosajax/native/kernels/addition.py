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
      vectors: vectors of sums that become one of bytes: 4, or 1 of fewer elements.
      add: how sums are computed.
    """

    isa: InstructionSet
    vectors: int
    add: AddKey

    @property
    def name(self) -> str:
        """Of its function."""
        return f"tosajax_sum_{self.isa.label}_{self.vectors}_{self.add.name}"


def module_of(key: KernelKey) -> Module:
    """The module of a key."""
    module = Module()

    def prologue(code: IRBuilder, buffers: Buffers) -> None:
        _Item(code, key, buffers).sums.write_tables()

    def item(code: IRBuilder, buffers: Buffers, index: Value) -> None:
        _Item(code, key, buffers).write(index)

    abi.write(module, key.name, OPERANDS, item, prologue)
    return module


class _Item:
    """Writes the work of an item: some elements."""

    def __init__(self, code: IRBuilder, key: KernelKey, buffers: Buffers) -> None:
        self.code, self.key = code, key
        *self.sources, scales, _ = buffers.operands
        self.out = buffers.out
        self.sums = AddWriter(code, key.isa, key.add, scales, buffers.table)
        self.plan = {n: code.load("i64", buffers.plan, 8 * i) for i, n in enumerate(FIELDS)}

    def write(self, index: Value) -> None:
        code, key, count = self.code, self.key, self.plan["count"]
        lanes = key.isa.lanes
        # The last item ends with the elements, and may do some again that another has done.
        first = (index * count).smin(self.plan["elements"] - count)
        with code.loop(count, lanes * key.vectors) as at:
            element = first + at
            left, right = (self._loaded(x, element) for x in self.sources)
            totals = self.sums.rescaled_sums(list(left), right) * (4 // key.vectors)
            some = self.sums.narrowing.narrow(code, totals).extract(0, lanes * key.vectors)
            code.store(some, code.gep(self.out, element))

    def _loaded(self, source: Value, element: Value) -> Iterator[Value]:
        """The vectors of an operand from an element on."""
        lanes = self.key.isa.lanes
        for v in range(self.key.vectors):
            of = vector("i8", lanes)
            yield self.code.load(of, source, element, v * lanes).to_elements("i32")
