"""Threads that wait a while for the next kernel.

XLA wakes a sleeping thread for each task, which may take longer than a kernel of one image. So a
thread that has done its share of a call takes a seat, a word of memory that all kernels know, and
looks there for the state of the next call. XLA is asked only for helpers that are still missing.
"""

from __future__ import annotations

import sys

from tosajax.native.codegen.builder import IRBuilder, Module, Value

# The begin of the state of a call: its owners, and the function that does a share of it.
OWNERS, SHARE = 0, 8

# Functions of the module, which kernels call.
FIND, CAME, WAIT = "tosajax_find_helpers", "tosajax_helper_came", "tosajax_wait_for_work"

# What a seat holds if it is not a state.
_EMPTY, _WAITING = 0, 1
_LINE = 64  # bytes of a seat: it shares no line of a cache
_PATIENCE = 100_000  # nanoseconds
_MONOTONIC = 6 if sys.platform == "darwin" else 1  # the number of the clock
_SECOND = 10**9


def module(seats: int) -> Module:
    """The module of so many seats, of which a process has one."""
    made = Module()
    made.add(f"@seats = internal global [{seats * _LINE} x i8] zeroinitializer, align {_LINE}")
    # The number of tasks that have not begun.
    made.add(f"@coming = internal global [{_LINE} x i8] zeroinitializer, align {_LINE}")
    _write_find(made, seats)
    _write_came(made)
    _write_wait(made, seats)
    return made


def _write_find(module: Module, seats: int) -> None:
    """`find(state, count)`: gives a state to helpers that wait; how many tasks to schedule."""
    code = IRBuilder(module, FIND, "i64", ["ptr", "i64"])
    state, count = code.arguments
    missing = code.alloca("i64")
    code.store(count, missing)
    with code.when(count > 0):
        # Before they see it, as one may be done at once; the call itself owns it as well.
        code.atomic_add(count, state, OWNERS, order="monotonic")
        with code.loop(code.value(seats)) as number:
            seat = code.gep(code.address("seats"), number * _LINE)
            is_there = code.atomic_load(seat, order="monotonic").equals(_WAITING)
            with code.when(is_there), code.when(code.load("i64", missing) > 0):
                _offer(code, seat, state, missing)
        not_found = code.load("i64", missing)
        code.atomic_add(code.value(0) - not_found, state, OWNERS, order="monotonic")
        _take_those_who_come(code, missing)
    code.ret(code.load("i64", missing))
    code.finish()


def _offer(code: IRBuilder, seat: Value, state: Value, missing: Value) -> None:
    """Leaves a state on a seat, unless the thread has gone."""
    taken = code.cmpxchg(seat, code.value(_WAITING), state.ptrtoint(), order="acq_rel")
    code.store(code.load("i64", missing) - taken.select(code.value(1), 0), missing)


def _take_those_who_come(code: IRBuilder, missing: Value) -> None:
    """Helpers that were scheduled for other calls, and have not begun, will wait soon."""
    coming = code.address("coming")
    rest = code.load("i64", missing) - code.atomic_load(coming, order="monotonic")
    code.store(rest.smax(0), missing)
    with code.loop(code.load("i64", missing)):
        code.atomic_add(1, coming, order="monotonic")


def _write_came(module: Module) -> None:
    """`came()`: a task has begun, or was refused."""
    code = IRBuilder(module, CAME, "void", [])
    code.atomic_add(-1, code.address("coming"), order="monotonic")
    code.ret()
    code.finish()


def _write_wait(module: Module, seats: int) -> None:
    """`wait()`: does shares of calls until none has come for a while."""
    code = IRBuilder(module, WAIT, "void", [])
    with code.loop(code.value(seats)) as number:
        seat = code.gep(code.address("seats"), number * _LINE)
        free = code.cmpxchg(seat, code.value(_EMPTY), code.value(_WAITING), order="acq_rel")
        with code.when(free, returns=True):
            _serve(code, seat)
    code.ret()
    code.finish()


def _serve(code: IRBuilder, seat: Value) -> None:
    """Waits on a seat, and leaves it and the function in the end."""
    end = code.alloca("i64")
    rest, look, work, check, leave, left = (
        code.label(name) for name in ("rest", "look", "work", "check", "leave", "left")
    )
    code.br(rest)
    code.position_at(rest)
    code.store(_now(code) + _PATIENCE, end)
    code.br(look)
    code.position_at(look)
    found = code.atomic_load(seat, order="acquire")
    code.cond_br(found.equals(_WAITING), check, work)
    code.position_at(work)
    state = found.inttoptr()
    code.call("void", code.load("ptr", state, SHARE), state)
    code.atomic_store(code.value(_WAITING), seat, order="release")
    code.br(rest)
    code.position_at(check)
    code.cond_br(_now(code) < code.load("i64", end), look, leave)
    code.position_at(leave)
    gone = code.cmpxchg(seat, code.value(_WAITING), code.value(_EMPTY), order="acq_rel")
    code.cond_br(gone, left, look)
    code.position_at(left)
    code.ret()


def _now(code: IRBuilder) -> Value:
    """Nanoseconds of a clock that never goes back."""
    time = code.alloca("[2 x i64]")
    code.call("i32", "clock_gettime", code.value(_MONOTONIC, "i32"), time)
    return code.load("i64", time) * _SECOND + code.load("i64", time, 8)
