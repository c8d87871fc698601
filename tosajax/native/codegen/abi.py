"""Stages: what kernels are for the calls that run them one after the other.

A kernel is two functions of its module: `NAME`, the work of an item, and perhaps `NAME_tables`,
which fills the table of a call before any item.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from tosajax.native.codegen.builder import IRBuilder, Module, Value

TABLES = "_tables"


class Buffers(NamedTuple):
    """The pointers that a kernel works with, in order.

    Args:
      operands: of the kernel; its plan is the last one, of int64.
      out: its result.
      table: filled once for a call.
      scratch: memory of a thread, for copies.
    """

    operands: tuple[Value, ...]
    out: Value
    table: Value
    scratch: Value

    @property
    def plan(self) -> Value:
        return self.operands[-1]


# Writes what is done once, before the work: (code, buffers).
WritePrologue = Callable[[IRBuilder, Buffers], None]
# Writes the work of an item: (code, buffers, number of the item).
WriteItem = Callable[[IRBuilder, Buffers, Value], None]


def write(
    module: Module,
    name: str,
    operands: Sequence[str],
    item: WriteItem,
    prologue: WritePrologue | None = None,
) -> None:
    """Adds the functions of a kernel to a module.

    Args:
      module: of LLVM.
      name: of the kernel.
      operands: of the kernel.
      item: writes the work of an item.
      prologue: writes what fills the table, if there is one.
    """
    count = len(operands)
    code = IRBuilder(module, name, "void", ["ptr", "i64"])
    pointers, index = code.arguments
    item(code, _buffers(code, pointers, count), index)
    code.ret()
    code.finish()
    if prologue is not None:
        code = IRBuilder(module, name + TABLES, "void", ["ptr"])
        (pointers,) = code.arguments
        prologue(code, _buffers(code, pointers, count))
        code.ret()
        code.finish()


def _buffers(code: IRBuilder, pointers: Value, count: int) -> Buffers:
    loaded = [code.load("ptr", pointers, 8 * i) for i in range(count + 3)]
    out, table, scratch = loaded[count:]
    return Buffers(tuple(loaded[:count]), out, table, scratch)
