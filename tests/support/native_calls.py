"""Calls native kernels without XLA: in guarded memory, and with a thread pool of the test."""

from __future__ import annotations

import ctypes
import mmap
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from tosajax.native import call as call_module
from tosajax.native.calls import compiler, schedule
from tosajax.native.calls.schedule import KernelCall

_PAGE = mmap.PAGESIZE
_libc = ctypes.CDLL(None, use_errno=True)
_TASK = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_OF_XLA = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)


class Guarded:
    """Memory between two guard pages.

    Args:
      size: bytes.
      at_end: whether the memory ends at the second guard page, or begins at the first.
    """

    def __init__(self, size: int, *, at_end: bool) -> None:
        pages = -(-max(size, 1) // _PAGE)
        self._map = mmap.mmap(-1, (pages + 2) * _PAGE)
        start = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        for page in (start, start + (pages + 1) * _PAGE):
            if _libc.mprotect(ctypes.c_void_p(page), ctypes.c_size_t(_PAGE), 0):
                raise OSError(ctypes.get_errno(), "mprotect")
        self.address = start + _PAGE + (pages * _PAGE - size if at_end else 0)
        self.size = size

    def write(self, array: np.ndarray) -> None:
        ctypes.memmove(self.address, np.ascontiguousarray(array).ctypes.data, array.nbytes)

    def read(self, shape: Sequence[int], dtype: Any) -> np.ndarray:
        return np.frombuffer(ctypes.string_at(self.address, self.size), dtype).reshape(shape)


class Pool:
    """A thread pool with XLA's C interface (`XLA_FFI_Api`).

    Args:
      size: threads that it reports; 0 reports an error.
      when: "now" starts a task at once, "late" after the call, "never" refuses it.
    """

    def __init__(self, size: int = 0, when: str = "now") -> None:
        self.size, self.when = size, when
        self.tasks: list[Callable[[], None]] = []
        self.destroyed = 0
        functions = {0: self._error, 2: self._destroy, 11: self._schedule, 12: self._count}
        self._kept = {i: _OF_XLA(function) for i, function in functions.items()}
        self._threads: list[threading.Thread] = []
        self.table = (ctypes.c_void_p * 32)()
        for i, function in self._kept.items():
            self.table[6 + i] = ctypes.cast(function, ctypes.c_void_p).value

    def _words(self, arguments: int) -> Any:
        return ctypes.cast(arguments, ctypes.POINTER(ctypes.c_void_p))

    def _error(self, arguments: int) -> int:
        del arguments
        return 1

    def _destroy(self, arguments: int) -> int:
        del arguments
        self.destroyed += 1
        return 0

    def _count(self, arguments: int) -> int:
        if not self.size:
            return 1
        count = self._words(arguments)[3]
        ctypes.cast(count, ctypes.POINTER(ctypes.c_int64))[0] = self.size
        return 0

    def _schedule(self, arguments: int) -> int:
        if self.when == "never":
            return 1
        words = self._words(arguments)
        task, state = _TASK(words[3]), words[4]
        if self.when == "now":
            self._threads.append(threading.Thread(target=task, args=(state,)))
            self._threads[-1].start()
        else:
            self.tasks.append(lambda: task(state))
        return 0

    def finish(self) -> None:
        for thread in self._threads:
            thread.join()
        for task in self.tasks:
            task()
        self._threads.clear()
        self.tasks.clear()


class Calls:
    """A call of a chain of kernels, each of whose buffers lies in guarded memory.

    Args:
      kernels: with their operands, in order.
      outputs: indices of the kernels whose results are returned.
      at_end: whether buffers end, or begin, at a guard page.
      pool: thread pool; by default one without threads.
    """

    def __init__(
        self,
        *kernels: KernelCall,
        outputs: Sequence[int] = (0,),
        at_end: bool = True,
        pool: Pool | None = None,
    ) -> None:
        self.pool = pool or Pool()
        links, arrays, _ = call_module.link_kernels(kernels)
        images = arrays[0].shape[0]
        planned = schedule.plan_call(links, outputs, images, operands=len(arrays), waits=True)
        address = compiler.loaded(planned, [kernel.module_of for kernel in kernels])
        self._operands = [*map(np.asarray, arrays), planned.words]
        self.outputs = [links[number].kernel.placeholder(number) for number in outputs]
        self._inputs = [Guarded(operand.nbytes, at_end=at_end) for operand in self._operands]
        sizes = [int(np.prod(out.shape)) * out.dtype.itemsize for out in self.outputs]
        self._results = [Guarded(size, at_end=at_end) for size in (*sizes, planned.workspace)]
        self._handler = _handler(address)
        self._frame = _frame(self._inputs, self._results, self.pool)

    def __enter__(self) -> Calls:
        for memory, operand in zip(self._inputs, self._operands, strict=True):
            memory.write(operand)
        for memory in self._results:
            memory.write(np.full(memory.size, 0xA5, np.uint8))
        return self

    def run(self) -> None:
        error = self._handler(self._frame)
        self.pool.finish()
        assert not error

    def __exit__(self, *error: object) -> None:
        for memory, operand in zip(self._inputs, self._operands, strict=True):
            np.testing.assert_array_equal(memory.read(operand.shape, operand.dtype), operand)

    def results(self) -> list[np.ndarray]:
        pairs = zip(self.outputs, self._results[:-1], strict=True)
        return [memory.read(out.shape, out.dtype) for out, memory in pairs]


def call(prepared: KernelCall, *, at_end: bool = True, pool: Pool | None = None) -> np.ndarray:
    """Calls one kernel, and returns its result."""
    with Calls(prepared, at_end=at_end, pool=pool) as calls:
        calls.run()
        return calls.results()[0]


class _Heap(ctypes.Structure):
    """mallinfo2 of the C library."""

    _fields_ = [(f"field_{i}", ctypes.c_size_t) for i in range(10)]


def bytes_on_heap() -> int:
    """Bytes that the C library has allocated and not freed."""
    if not hasattr(_libc, "mallinfo2"):
        pytest.skip("no mallinfo2")
    _libc.mallinfo2.restype = _Heap
    return _libc.mallinfo2().field_7


def assert_nothing_stays(calls: Calls, times: int) -> None:
    """Asserts that calls free all they allocate."""

    def growth() -> int:
        before = bytes_on_heap()
        for _ in range(times):
            calls.run()
        return bytes_on_heap() - before

    calls.run()
    # Other threads of the process may allocate meanwhile, though not each time.
    assert min(growth() for _ in range(3)) < times * 16


def _handler(address: int) -> Any:
    return ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(address)


def _frame(inputs: Sequence[Guarded], outputs: Sequence[Guarded], pool: Pool) -> Any:
    """XLA_FFI_CallFrame, as the C interface lays it out."""
    kept: list[Any] = []

    def buffers(memories: Sequence[Guarded]) -> Any:
        structures = []
        for memory in memories:
            structure = (ctypes.c_void_p * 6)()
            structure[3] = memory.address
            structures.append(ctypes.addressof(structure))
            kept.append(structure)
        array = (ctypes.c_void_p * max(1, len(structures)))(*structures)
        kept.append(array)
        return ctypes.addressof(array)

    frame = (ctypes.c_void_p * 24)()
    frame[2] = ctypes.addressof(pool.table)
    frame[7], frame[12] = len(inputs), len(outputs)
    frame[9], frame[14] = buffers(inputs), buffers(outputs)
    frame._kept = kept  # type: ignore[attr-defined]
    return frame
