"""Threads that wait for the next kernel."""

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
    """The begin of a call's state."""

    _fields_ = [("owners", ctypes.c_int64), ("share", _SHARE)]


class Seats(NamedTuple):
    """The functions of a module of seats that nobody else has, and what keeps them."""

    engine: Any
    find: Callable[[Any, int], int]
    came: Callable[[], None]
    wait: Callable[[], None]


@pytest.fixture
def seats() -> Seats:
    engine = compiler.engine(str(threads.module(2)), PORTABLE)

    def function(name: str, *types: Any) -> Any:
        return ctypes.CFUNCTYPE(*types)(engine.get_function_address(name))

    return Seats(
        engine,
        function(threads.CLAIM, ctypes.c_int64, ctypes.POINTER(State), ctypes.c_int64),
        function(threads.TASK_BEGAN, None),
        function(threads.PARK, None),
    )


def state_of(share: Callable[[int], None]) -> State:
    return State(1, _SHARE(share))


def found(seats: Seats, state: State) -> int:
    """Gives a state to one thread that waits, if there is one."""
    missing = seats.find(state, 1)
    for _ in range(missing):
        seats.came()
    return 1 - missing


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end
        time.sleep(0)


def test_nobody_is_wanted(seats: Seats):
    state = state_of(lambda _: None)
    assert seats.find(state, 0) == 0
    assert state.owners == 1


def test_those_who_come_are_not_called_again(seats: Seats):
    state = state_of(lambda _: None)
    assert [seats.find(state, 3) for _ in range(2)] == [3, 0]
    seats.came()
    assert seats.find(state, 3) == 1
    for _ in range(3):
        seats.came()
    assert seats.find(state, 2) == 2
    assert state.owners == 1


def test_nobody_waits_for_long(seats: Seats):
    started = time.monotonic()
    seats.wait()
    assert time.monotonic() - started >= _PATIENCE


def test_work_is_found_on_a_seat(seats: Seats):
    """A thread that does its share may find the next work at once."""
    done: list[int] = []
    states = [state_of(lambda address: done.append(address)) for _ in range(40)]
    thread = threading.Thread(target=lambda: [seats.wait() for _ in range(2000)], daemon=True)
    thread.start()
    for state in states:
        until(lambda state=state: found(seats, state) == 1)  # Not between two waits.
        assert state.owners == 2
        until(lambda state=state: ctypes.addressof(state) in done)
    thread.join()
    assert done == [ctypes.addressof(state) for state in states]


def test_each_seat_has_one_thread(seats: Seats):
    """Of three that wait, two sit; a call takes as many as it wants."""
    held, done = threading.Event(), []

    def share(address: int) -> None:
        done.append(threading.get_ident())
        held.wait()

    state = state_of(share)
    stop = threading.Event()

    def wait() -> None:
        while not stop.is_set():
            seats.wait()

    threads = [threading.Thread(target=wait, daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(2):
        until(lambda: found(seats, state) == 1)
    until(lambda: len(done) == 2)
    assert state.owners == 3
    for _ in range(50):  # Both are at work.
        assert seats.find(state, 2) == 2
        seats.came()
        seats.came()
    assert state.owners == 3
    stop.set()
    held.set()
    for thread in threads:
        thread.join()
    assert len(set(done)) == 2
