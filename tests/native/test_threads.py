"""Parked workers: claimed by calls, and gone after a while."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

pytest.importorskip("llvmlite")

from tosajax.native.calls import compiler, threads
from tosajax.native.codegen.isa import PORTABLE

_SHARE = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_PATIENCE = 0.0001  # seconds


class State(ctypes.Structure):
    """The fields that the state of a call begins with."""

    _fields_ = [("owners", ctypes.c_int64), ("share", _SHARE)]


class Slots(NamedTuple):
    """The functions of a module with two slots of its own, and the engine that holds them."""

    engine: Any
    claim: Callable[[Any, int], int]
    task_began: Callable[[], None]
    park: Callable[[], None]


@pytest.fixture
def slots() -> Slots:
    engine = compiler.engine(str(threads.module(2)), PORTABLE)

    def function(name: str, *types: Any) -> Any:
        return ctypes.CFUNCTYPE(*types)(engine.get_function_address(name))

    return Slots(
        engine,
        function(threads.CLAIM, ctypes.c_int64, ctypes.POINTER(State), ctypes.c_int64),
        function(threads.TASK_BEGAN, None),
        function(threads.PARK, None),
    )


def state_of(share: Callable[[int], None]) -> State:
    return State(1, _SHARE(share))


def claimed(slots: Slots, state: State) -> int:
    """Gives a state to one parked worker, if there is one; returns the number of workers."""
    missing = slots.claim(state, 1)
    for _ in range(missing):
        slots.task_began()
    return 1 - missing


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end
        time.sleep(0)


def test_a_call_may_need_no_worker(slots: Slots):
    state = state_of(lambda _: None)
    assert slots.claim(state, 0) == 0
    assert state.owners == 1


def test_queued_tasks_are_not_scheduled_again(slots: Slots):
    state = state_of(lambda _: None)
    assert [slots.claim(state, 3) for _ in range(2)] == [3, 0]
    slots.task_began()
    assert slots.claim(state, 3) == 1
    for _ in range(3):
        slots.task_began()
    assert slots.claim(state, 2) == 2
    assert state.owners == 1


def test_nobody_parks_for_long(slots: Slots):
    started = time.monotonic()
    slots.park()
    assert time.monotonic() - started >= _PATIENCE


def test_a_parked_worker_does_its_share(slots: Slots):
    """A worker that did its share may be claimed again at once."""
    done: list[int] = []
    states = [state_of(lambda address: done.append(address)) for _ in range(40)]
    thread = threading.Thread(target=lambda: [slots.park() for _ in range(2000)], daemon=True)
    thread.start()
    for state in states:
        until(lambda state=state: claimed(slots, state) == 1)  # Except between two parks.
        assert state.owners == 2
        until(lambda state=state: ctypes.addressof(state) in done)
    thread.join()
    assert done == [ctypes.addressof(state) for state in states]


def test_each_slot_has_one_worker(slots: Slots):
    """Two of three threads park; a call claims as many as it needs."""
    held, done = threading.Event(), []

    def share(address: int) -> None:
        done.append(threading.get_ident())
        held.wait()

    state = state_of(share)
    stop = threading.Event()

    def park() -> None:
        while not stop.is_set():
            slots.park()

    threads = [threading.Thread(target=park, daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(2):
        until(lambda: claimed(slots, state) == 1)
    until(lambda: len(done) == 2)
    assert state.owners == 3
    for _ in range(50):  # Both are at work.
        assert slots.claim(state, 2) == 2
        slots.task_began()
        slots.task_began()
    assert state.owners == 3
    stop.set()
    held.set()
    for thread in threads:
        thread.join()
    assert len(set(done)) == 2
