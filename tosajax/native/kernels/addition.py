"""Kernel of ADD and SUB of int8; `fused_add` computes the sums."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import NamedTuple

from tosajax.native.codegen import abi
from tosajax.native.codegen.abi import Buffers
from tosajax.native.codegen.builder import IRBuilder, Module, Value, vector
from tosajax.native.codegen.isa import InstructionSet
from tosajax.native.kernels.fused_add import TERMS, AddKey, AddWriter

OPERANDS = (*TERMS, "scales", "plan")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fields(abi.Fields):
    """The sizes of a plan."""

    count: int  # elements of a work item, a multiple of the lanes
    elements: int  # of the output


class KernelKey(NamedTuple):
    """The specialization of an addition: all that its machine code depends on.

    Args:
      isa: the instruction set.
      vectors: vectors of int32 sums that are narrowed to one of int8: 4, or 1 for few elements.
      add: how sums are computed.
    """

    isa: InstructionSet
    vectors: int
    add: AddKey

    @property
    def name(self) -> str:
        """Name of the kernel's function."""
        return f"tosajax_sum_{self.isa.label}_{self.vectors}_{self.add.name}"


def module_of(key: KernelKey) -> Module:
    """The LLVM module of a specialization."""
    module = Module()

    def prologue(code: IRBuilder, buffers: Buffers) -> None:
        _Item(code, key, buffers).writer.write_tables()

    def item(code: IRBuilder, buffers: Buffers, index: Value) -> None:
        _Item(code, key, buffers).write(index)

    abi.write(module, key.name, OPERANDS, item, prologue)
    return module


class _Item:
    """Writes the code of a work item: some elements."""

    def __init__(self, code: IRBuilder, key: KernelKey, buffers: Buffers) -> None:
        self.code, self.key = code, key
        *self.sources, scales, _ = buffers.operands
        self.out = buffers.out
        self.writer = AddWriter(code, key.isa, key.add, scales, buffers.table)
        self.plan = Fields.load(code, buffers.plan)

    def write(self, index: Value) -> None:
        """Writes the code of work item `index`."""
        code, key, count = self.code, self.key, self.plan["count"]
        lanes = key.isa.lanes
        # The last item ends with the elements, and may compute some of another item again.
        first = (index * count).smin(self.plan["elements"] - count)
        with code.loop(count, lanes * key.vectors) as offset:
            element = first + offset
            left, right = (self._loaded(x, element) for x in self.sources)
            totals = self.writer.rescaled_sums(list(left), right) * (4 // key.vectors)
            results = self.writer.narrowing.narrow(code, totals).extract(0, lanes * key.vectors)
            code.store(results, code.gep(self.out, element))

    def _loaded(self, source: Value, element: Value) -> Iterator[Value]:
        """The vectors of an operand from an element on, as int32."""
        lanes = self.key.isa.lanes
        for v in range(self.key.vectors):
            ir_type = vector("i8", lanes)
            yield self.code.load(ir_type, source, element, v * lanes).to_elements("i32")
