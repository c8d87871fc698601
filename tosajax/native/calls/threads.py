"""Threads that wait a while for the next kernel.

XLA wakes a sleeping thread for each task, which may take longer than a kernel of one image. So a
thread that has done its share of a call takes a slot, a word of memory that all kernels know, and
looks there for the state of the next call. XLA is asked only for helpers that are still missing.
"""

from __future__ import annotations

import sys

from tosajax.native.codegen.builder import IRBuilder, Module, Value

# The begin of the state of a call: its owners, and the function that does a share of it.
OWNERS, SHARE = 0, 8

# Functions of the module, which kernels call.
CLAIM, TASK_BEGAN, PARK = "tosajax_find_helpers", "tosajax_helper_came", "tosajax_wait_for_work"

# What a slot holds if it is not a state.
_EMPTY, _PARKED = 0, 1
_LINE = 64  # bytes of a slot: it shares no line of a cache
_PATIENCE = 100_000  # nanoseconds
_MONOTONIC = 6 if sys.platform == "darwin" else 1  # the number of the clock
_SECOND = 10**9


def module(slots: int) -> Module:
    """The module of so many slots, of which a process has one."""
    made = Module()
    made.add(f"@seats = internal global [{slots * _LINE} x i8] zeroinitializer, align {_LINE}")
    # The number of tasks that have not begun.
    made.add(f"@coming = internal global [{_LINE} x i8] zeroinitializer, align {_LINE}")
    _write_claim(made, slots)
    _write_task_began(made)
    _write_park(made, slots)
    return made


def _write_claim(module: Module, slots: int) -> None:
    """`find(state, count)`: gives a state to helpers that wait; how many tasks to schedule."""
    code = IRBuilder(module, CLAIM, "i64", ["ptr", "i64"])
    state, count = code.arguments
    missing = code.alloca("i64")
    code.store(count, missing)
    with code.if_then(count > 0):
        # Before they see it, as one may be done at once; the call itself owns it as well.
        code.atomic_add(count, state, OWNERS, order="monotonic")
        with code.loop(code.value(slots)) as number:
            slot = code.gep(code.address("seats"), number * _LINE)
            is_there = code.atomic_load(slot, order="monotonic").equals(_PARKED)
            with code.if_then(is_there), code.if_then(code.load("i64", missing) > 0):
                _hand_over(code, slot, state, missing)
        not_found = code.load("i64", missing)
        code.atomic_add(code.value(0) - not_found, state, OWNERS, order="monotonic")
        _claim_queued_tasks(code, missing)
    code.ret(code.load("i64", missing))
    code.finish()


def _hand_over(code: IRBuilder, slot: Value, state: Value, missing: Value) -> None:
    """Leaves a state on a slot, unless the thread has gone."""
    taken = code.cmpxchg(slot, code.value(_PARKED), state.ptrtoint(), order="acq_rel")
    code.store(code.load("i64", missing) - taken.select(code.value(1), 0), missing)


def _claim_queued_tasks(code: IRBuilder, missing: Value) -> None:
    """Helpers that were scheduled for other calls, and have not begun, will wait soon."""
    coming = code.address("coming")
    rest = code.load("i64", missing) - code.atomic_load(coming, order="monotonic")
    code.store(rest.smax(0), missing)
    with code.loop(code.load("i64", missing)):
        code.atomic_add(1, coming, order="monotonic")


def _write_task_began(module: Module) -> None:
    """`came()`: a task has begun, or was refused."""
    code = IRBuilder(module, TASK_BEGAN, "void", [])
    code.atomic_add(-1, code.address("coming"), order="monotonic")
    code.ret()
    code.finish()


def _write_park(module: Module, slots: int) -> None:
    """`wait()`: does shares of calls until none has come for a while."""
    code = IRBuilder(module, PARK, "void", [])
    with code.loop(code.value(slots)) as number:
        slot = code.gep(code.address("seats"), number * _LINE)
        free = code.cmpxchg(slot, code.value(_EMPTY), code.value(_PARKED), order="acq_rel")
        with code.if_then(free, returns=True):
            _park_in(code, slot)
    code.ret()
    code.finish()


def _park_in(code: IRBuilder, slot: Value) -> None:
    """Waits on a slot, and leaves it and the function in the end."""
    end = code.alloca("i64")
    rest, look, work, check, leave, left = (
        code.label(name) for name in ("rest", "look", "work", "check", "leave", "left")
    )
    code.br(rest)
    code.position_at(rest)
    code.store(_now(code) + _PATIENCE, end)
    code.br(look)
    code.position_at(look)
    found = code.atomic_load(slot, order="acquire")
    code.cond_br(found.equals(_PARKED), check, work)
    code.position_at(work)
    state = found.inttoptr()
    code.call("void", code.load("ptr", state, SHARE), state)
    code.atomic_store(code.value(_PARKED), slot, order="release")
    code.br(rest)
    code.position_at(check)
    code.cond_br(_now(code) < code.load("i64", end), look, leave)
    code.position_at(leave)
    gone = code.cmpxchg(slot, code.value(_PARKED), code.value(_EMPTY), order="acq_rel")
    code.cond_br(gone, left, look)
    code.position_at(left)
    code.ret()


def _now(code: IRBuilder) -> Value:
    """Nanoseconds of a clock that never goes back."""
    time = code.alloca("[2 x i64]")
    code.call("i32", "clock_gettime", code.value(_MONOTONIC, "i32"), time)
    return code.load("i64", time) * _SECOND + code.load("i64", time, 8)
