"""The handler of a kernel: what XLA calls, and how the threads of a call share its work.

The layout of structures is that of XLA's public C interface (`xla/ffi/api/c_api.h`, version 0.3),
on a processor of 64 bits. XLA does not promise that scheduled tasks run at the same time, or soon:
the calling thread works as well, and waits for items only that others have begun. What they share
lies on the heap until the last has left, as a task may start when the call is over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from tosajax.native import helpers
from tosajax.native.code import Code, Module, Value
from tosajax.native.helpers import OWNERS, SHARE

# Offsets into XLA_FFI_CallFrame, XLA_FFI_Buffer and XLA_FFI_Api.
_EXTENSION, _API, _CONTEXT, _ARGUMENTS, _RESULTS = 8, 16, 24, 40 + 32, 80 + 32
_DATA = 24
_ERROR_CREATE, _ERROR_DESTROY, _SCHEDULE, _THREADS = (48 + 8 * i for i in (0, 2, 11, 12))
# Offsets into XLA_FFI_Metadata: version and traits.
_MAJOR, _MINOR, _TRAITS = 24, 28, 32
_VERSION = 0, 3
_OUT_OF_MEMORY = 8

# The state of a call: what helpers know of it, counters, then buffers.
_NEXT, _DONE, _SLOTS, _TOTAL, _WAITS, _BUFFERS = (8 * i for i in range(2, 8))

# The first elements of a plan, of every kernel.
ITEMS, THREADS, WAITS = range(3)


class Buffers(NamedTuple):
    """Pointers to the operands and results of a call, in order; the plan is the last operand."""

    operands: tuple[Value, ...]
    results: tuple[Value, ...]

    @classmethod
    def of(cls, pointers: Sequence[Value], counts: tuple[int, int]) -> Buffers:
        return cls(tuple(pointers[: counts[0]]), tuple(pointers[counts[0] :]))

    @property
    def plan(self) -> Value:
        return self.operands[-1]


# Writes what is done once, before the work: (code, buffers).
Prologue = Callable[[Code, Buffers], None]
# Writes the work of an item: (code, buffers, number of the worker, number of the item).
Item = Callable[[Code, Buffers, Value, Value], None]


def write(
    module: Module, name: str, counts: tuple[int, int], prologue: Prologue, item: Item
) -> None:
    """Adds a handler to a module.

    Args:
      module: of LLVM.
      name: of the handler.
      counts: of operands and of results. The last operand is the plan, of int64: the number of
        items, the most threads that share them, whether these wait for the next call afterwards,
        and what the kernel needs.
      prologue: writes what comes first.
      item: writes the work of an item.
    """
    _write_work(module, counts, item)
    _write_release(module)
    _write_share(module)
    _write_task(module)
    _write_handler(module, name, counts, prologue)


def _write_handler(module: Module, name: str, counts: tuple[int, int], prologue: Prologue) -> None:
    code = Code(module, name, "ptr", ["ptr"])
    (frame,) = code.arguments
    extension = code.load("ptr", frame, _EXTENSION)
    with code.when(extension.differs(code.null), returns=True):
        metadata = code.load("ptr", extension, 24)
        for value, at in zip((*_VERSION, 0), (_MAJOR, _MINOR, _TRAITS), strict=True):
            code.store(code.value(value, "i32"), metadata, at)
        code.give(code.null)
    api, context = code.load("ptr", frame, _API), code.load("ptr", frame, _CONTEXT)
    pointers = [
        code.load("ptr", code.load("ptr", code.load("ptr", frame, at), 8 * i), _DATA)
        for at, count in zip((_ARGUMENTS, _RESULTS), counts, strict=True)
        for i in range(count)
    ]
    buffers = Buffers.of(pointers, counts)
    state = code.call("ptr", "malloc", code.value(_BUFFERS + 8 * len(pointers)))
    with code.when(state.equals(code.null), returns=True):
        code.give(_error(code, api, name))
    items = code.load("i64", buffers.plan, 8 * ITEMS)
    for at, value in ((OWNERS, 1), (_NEXT, 0), (_DONE, 0), (_SLOTS, 0), (_TOTAL, items)):
        code.store(code.value(value), state, at)
    code.store(code.address("share"), state, SHARE)
    code.store(code.load("i64", buffers.plan, 8 * WAITS), state, _WAITS)
    for i, pointer in enumerate(pointers):
        code.store(pointer, state, _BUFFERS + 8 * i)
    prologue(code, buffers)
    wanted = _wanted(code, api, context, buffers.plan)
    _schedule(code, api, context, state, code.call("i64", helpers.FIND, state, wanted))
    code.call("void", code.address("work"), state)
    # Others may be at work still.
    waiting, over = code.label("waiting"), code.label("over")
    code.jump(waiting)
    code.begin(waiting)
    done = code.load_atomic(state, _DONE, order="acquire")
    again = code.label("again")
    code.branch(done < items, again, over)
    code.begin(again)
    code.call("i32", "sched_yield")
    code.jump(waiting)
    code.begin(over)
    code.call("void", code.address("release"), state)
    code.give(code.null)
    code.finish()


def _wanted(code: Code, api: Value, context: Value, plan: Value) -> Value:
    """How many threads are to help: one less than threads and items."""
    count = code.room("i64")
    code.store(code.value(1), count)
    wanted = code.load("i64", plan, 8 * THREADS).least(code.load("i64", plan, 8 * ITEMS))
    with code.when(wanted > 1):
        error = code.call("ptr", code.load("ptr", api, _THREADS), _structure(code, context, count))
        _destroy(code, api, error)
    return wanted.least(code.load("i64", count)) - 1


def _schedule(code: Code, api: Value, context: Value, state: Value, count: Value) -> None:
    arguments = _structure(code, context, code.address("task"), state)
    with code.loop(count):
        code.add_atomic(1, state, OWNERS, order="monotonic")
        error = code.call("ptr", code.load("ptr", api, _SCHEDULE), arguments)
        with code.when(error.differs(code.null)):
            code.add_atomic(-1, state, OWNERS, order="monotonic")
            code.call("void", helpers.CAME)
        _destroy(code, api, error)


def _write_work(module: Module, counts: tuple[int, int], item: Item) -> None:
    """`work(state)`: takes items until none is left."""
    code = Code(module, "work", "void", ["ptr"])
    (state,) = code.arguments
    pointers = [code.load("ptr", state, _BUFFERS + 8 * i) for i in range(sum(counts))]
    slot = code.room("i64")
    code.store(code.value(-1), slot)
    take, begin, leave = (code.label(name) for name in ("take", "begin", "leave"))
    code.jump(take)
    code.begin(take)
    index = code.add_atomic(1, state, _NEXT, order="monotonic")
    # Of the call of a late task nothing but the state is left.
    code.branch(index < code.load("i64", state, _TOTAL), begin, leave)
    code.begin(begin)
    with code.when(code.load("i64", slot) < 0):
        code.store(code.add_atomic(1, state, _SLOTS, order="monotonic"), slot)
    item(code, Buffers.of(pointers, counts), code.load("i64", slot), index)
    code.add_atomic(1, state, _DONE, order="release")
    code.jump(take)
    code.begin(leave)
    code.give()
    code.finish()


def _write_release(module: Module) -> None:
    """`release(state)`: the last owner frees it."""
    code = Code(module, "release", "void", ["ptr"])
    (state,) = code.arguments
    owners = code.add_atomic(-1, state, OWNERS, order="acq_rel")
    with code.when(owners.equals(1)):
        code.call("void", "free", state)
    code.give()
    code.finish()


def _write_share(module: Module) -> None:
    """`share(state)`: the work of another thread."""
    code = Code(module, "share", "void", ["ptr"])
    for name in ("work", "release"):
        code.call("void", code.address(name), *code.arguments)
    code.give()
    code.finish()


def _write_task(module: Module) -> None:
    """`task(state)`: that of a thread of XLA's, which may wait for more then."""
    code = Code(module, "task", "void", ["ptr"])
    (state,) = code.arguments
    code.call("void", helpers.CAME)
    waits = code.load("i64", state, _WAITS)
    code.call("void", code.address("share"), state)
    with code.when(waits.differs(0)):
        code.call("void", helpers.WAIT)
    code.give()
    code.finish()


def _structure(code: Code, *fields: Value) -> Value:
    """A structure of arguments for XLA: its size, no extension, and fields of 8 bytes."""
    size = 16 + 8 * len(fields)
    room = code.room(f"[{size // 8} x i64]")
    for i, value in enumerate((code.value(size), code.null, *fields)):
        code.store(value, room, 8 * i)
    return room


def _destroy(code: Code, api: Value, error: Value) -> None:
    """Frees an error, if there is one."""
    with code.when(error.differs(code.null)):
        destroy = code.load("ptr", api, _ERROR_DESTROY)
        code.call("void", destroy, _structure(code, error))


def _error(code: Code, api: Value, name: str) -> Value:
    """The error of a call without memory."""
    code.module.text_of("message", f"{name}: no memory")
    fields = code.address("message"), code.value(_OUT_OF_MEMORY)
    return code.call("ptr", code.load("ptr", api, _ERROR_CREATE), _structure(code, *fields))
