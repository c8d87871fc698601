"""The ABI of a kernel: NAME(pointers, item), and optionally NAME_tables(pointers).

`NAME` computes a work item, given by its index. `NAME_tables` fills the kernel's table once for a
call, before any work item. `pointers` is an array of addresses: the operands, the output, the
table, and scratch memory of the calling thread.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tosajax.native.codegen.builder import IRBuilder, Module, Value

TABLES = "_tables"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fields:
    """The sizes that a kernel reads from its plan: int64, in the order of declaration."""

    @classmethod
    def load(cls, code: IRBuilder, plan: Value) -> dict[str, Value]:
        """Loads the sizes, by name, from the address of a plan."""
        return {
            f.name: code.load("i64", plan, 8 * i) for i, f in enumerate(dataclasses.fields(cls))
        }

    @classmethod
    def nbytes(cls) -> int:
        """Bytes of the sizes; a plan may have more behind them."""
        return 8 * len(dataclasses.fields(cls))

    def as_list(self) -> list[int]:
        """The sizes as a plan has them."""
        return list(dataclasses.astuple(self))


class Buffers(NamedTuple):
    """The addresses that a kernel receives, in order.

    Args:
      operands: the operands of the kernel; the last is its plan, an array of i64.
      out: the output.
      table: filled by `NAME_tables`, and read by all work items.
      scratch: memory of the calling thread alone.
    """

    operands: tuple[Value, ...]
    out: Value
    table: Value
    scratch: Value

    @property
    def plan(self) -> Value:
        return self.operands[-1]


# Writes the body of `NAME_tables`: (code, buffers).
WritePrologue = Callable[[IRBuilder, Buffers], None]
# Writes the body of `NAME`: (code, buffers, index of the work item).
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
      module: receives the functions.
      name: the kernel's name.
      operands: names of the kernel's operands, the plan included.
      item: writes the body of `NAME`.
      prologue: writes the body of `NAME_tables`; None if the kernel has no table.
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
    """Loads the addresses of a kernel that has `count` operands."""
    loaded = [code.load("ptr", pointers, 8 * i) for i in range(count + 3)]
    out, table, scratch = loaded[count:]
    return Buffers(tuple(loaded[:count]), out, table, scratch)
