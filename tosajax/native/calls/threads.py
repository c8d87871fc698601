"""Parked workers: threads that wait a while for the next call.

XLA wakes a sleeping thread for each task, which may take longer than a kernel of one image. So a
thread that has done its share of a call parks: it takes a slot, a word of memory that all calls
know, and polls it for the state of another call. A call claims parked workers first, then counts on
tasks that are queued already, and schedules tasks of XLA's for the rest.
"""

from __future__ import annotations

import sys

from tosajax.native.codegen.builder import IRBuilder, Module, Value

# Offsets in bytes of the fields that the state of every call begins with: the number of its owners,
# and the function that does a share of its work.
OWNERS, SHARE = 0, 8

# Functions of the module, which the handler calls.
CLAIM, TASK_BEGAN, PARK = (
    "tosajax_find_helpers",
    "tosajax_helper_came",
    "tosajax_wait_for_work",
)

# Values of a slot; any other value is the address of a call's state.
_EMPTY, _PARKED = 0, 1
_LINE = 64  # bytes of a slot, a cache line: slots do not share lines
_PATIENCE = 100_000  # nanoseconds that a worker stays parked
_MONOTONIC = 6 if sys.platform == "darwin" else 1  # CLOCK_MONOTONIC
_SECOND = 10**9  # nanoseconds


def module(slots: int) -> Module:
    """The module with so many slots; a process has one."""
    result = Module()
    # The slots.
    result.add(f"@seats = internal global [{slots * _LINE} x i8] zeroinitializer, align {_LINE}")
    # The number of scheduled tasks that have not begun.
    result.add(f"@coming = internal global [{_LINE} x i8] zeroinitializer, align {_LINE}")
    _write_claim(result, slots)
    _write_task_began(result)
    _write_park(result, slots)
    return result


def _write_claim(module: Module, slots: int) -> None:
    """`claim(state, count)`: gives a state to parked workers; returns tasks left to schedule."""
    code = IRBuilder(module, CLAIM, "i64", ["ptr", "i64"])
    state, count = code.arguments
    missing = code.alloca("i64")
    code.store(count, missing)
    with code.if_then(count > 0):
        # Owners are counted before any worker sees the state, as it may be done at once. The call
        # itself is an owner, so that the state is not freed here.
        code.atomic_add(count, state, OWNERS, order="monotonic")
        with code.loop(code.value(slots)) as number:
            slot = code.gep(code.address("seats"), number * _LINE)
            is_parked = code.atomic_load(slot, order="monotonic").equals(_PARKED)
            with code.if_then(is_parked), code.if_then(code.load("i64", missing) > 0):
                _hand_over(code, slot, state, missing)
        unclaimed = code.load("i64", missing)
        code.atomic_add(code.value(0) - unclaimed, state, OWNERS, order="monotonic")
        _claim_queued_tasks(code, missing)
    code.ret(code.load("i64", missing))
    code.finish()


def _hand_over(code: IRBuilder, slot: Value, state: Value, missing: Value) -> None:
    """Stores a state in a slot, unless its worker has left; counts `missing` down if it did."""
    is_claimed = code.cmpxchg(slot, code.value(_PARKED), state.ptrtoint(), order="acq_rel")
    code.store(code.load("i64", missing) - is_claimed.select(code.value(1), 0), missing)


def _claim_queued_tasks(code: IRBuilder, missing: Value) -> None:
    """Takes tasks already queued for other calls off `missing`, and counts the rest as queued.

    Their threads will park after those calls, which is soon enough for the next one.
    """
    queued = code.address("coming")
    rest = code.load("i64", missing) - code.atomic_load(queued, order="monotonic")
    code.store(rest.smax(0), missing)
    with code.loop(code.load("i64", missing)):
        code.atomic_add(1, queued, order="monotonic")


def _write_task_began(module: Module) -> None:
    """`task_began()`: counts a queued task down, which has begun or was refused."""
    code = IRBuilder(module, TASK_BEGAN, "void", [])
    code.atomic_add(-1, code.address("coming"), order="monotonic")
    code.ret()
    code.finish()


def _write_park(module: Module, slots: int) -> None:
    """`park()`: takes an empty slot, and does shares of calls until none comes for a while."""
    code = IRBuilder(module, PARK, "void", [])
    with code.loop(code.value(slots)) as number:
        slot = code.gep(code.address("seats"), number * _LINE)
        is_taken = code.cmpxchg(slot, code.value(_EMPTY), code.value(_PARKED), order="acq_rel")
        with code.if_then(is_taken, returns=True):
            _park_in(code, slot)
    code.ret()
    code.finish()


def _park_in(code: IRBuilder, slot: Value) -> None:
    """Polls a slot for work; after `_PATIENCE` without any, empties it and returns."""
    deadline = code.alloca("i64")
    rest, look, work, check, leave, left = (
        code.label(name) for name in ("rest", "look", "work", "check", "leave", "left")
    )
    code.br(rest)
    code.position_at(rest)
    code.store(_now(code) + _PATIENCE, deadline)
    code.br(look)
    code.position_at(look)
    content = code.atomic_load(slot, order="acquire")
    code.cond_br(content.equals(_PARKED), check, work)
    code.position_at(work)
    state = content.inttoptr()
    code.call("void", code.load("ptr", state, SHARE), state)
    code.atomic_store(code.value(_PARKED), slot, order="release")
    code.br(rest)
    code.position_at(check)
    code.cond_br(_now(code) < code.load("i64", deadline), look, leave)
    code.position_at(leave)
    # If a call claims the worker now, the exchange fails, and it works on.
    is_empty = code.cmpxchg(slot, code.value(_PARKED), code.value(_EMPTY), order="acq_rel")
    code.cond_br(is_empty, left, look)
    code.position_at(left)
    code.ret()


def _now(code: IRBuilder) -> Value:
    """Nanoseconds of the monotonic clock, i64."""
    time = code.alloca("[2 x i64]")
    code.call("i32", "clock_gettime", code.value(_MONOTONIC, "i32"), time)
    return code.load("i64", time) * _SECOND + code.load("i64", time, 8)
