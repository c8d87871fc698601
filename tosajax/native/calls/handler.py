"""The handler of a call: what XLA calls, and how threads share the work of its stages.

A call is some rounds, one after the other. A round is either one stage, whose items threads share,
or some stages that one thread after the other does for a group of images, so that these stay in its
cache. `chain` writes the plan that says so.

The layout of structures is that of XLA's public C interface (`xla/ffi/api/c_api.h`, version 0.3),
on a processor of 64 bits. XLA does not promise that scheduled tasks run at the same time, or soon:
the calling thread works as well, and waits for items only that others have begun. What they share
lies on the heap until the last has left, as a task may start when the call is over.
"""

from __future__ import annotations

from collections.abc import Sequence

from tosajax.native.calls import threads
from tosajax.native.calls.threads import OWNERS, SHARE
from tosajax.native.codegen.abi import TABLES
from tosajax.native.codegen.builder import IRBuilder, Module, Value

# Offsets into XLA_FFI_CallFrame, XLA_FFI_Buffer and XLA_FFI_Api.
_EXTENSION, _API, _CONTEXT, _ARGUMENTS, _RESULTS = 8, 16, 24, 40, 80
_COUNT, _POINTERS = 16, 32
_DATA = 24
_ERROR_CREATE, _ERROR_DESTROY, _SCHEDULE, _THREADS = (48 + 8 * i for i in (0, 2, 11, 12))
# Offsets into XLA_FFI_Metadata: version and traits.
_MAJOR, _MINOR, _TRAITS = 24, 28, 32
_VERSION = 0, 3
_OUT_OF_MEMORY = 8

# The plan of a call: its head, rounds, stages and pointers, in words of 8 bytes.
HEAD = (
    "threads",  # the most that share the work
    "waits",  # whether they wait for the next call afterwards
    "rounds",
    "stages",
)
ROUND = (
    "stage",  # the first one
    "stages",
    "items",
    "grouped",  # whether an item is all stages of a group of images, or an item of the stage
)
STAGE = (
    "items",
    "pointer",  # the first one
    "pointers",
)
POINTER = (
    "buffer",  # of the call, operands before results
    "offset",  # bytes
    "group_stride",  # bytes from a group of images to the next; 0 where items are not groups
    "thread_stride",  # bytes from a thread to the next
)
MAX_POINTERS = 16  # of a stage

# The state of a call: what helpers know of it, rounds, then buffers.
_WORKERS, _PLAN, _WAITS, _ROUNDS, _STAGES, _BUFFERS, _COUNTERS = (8 * i for i in range(2, 9))
_NEXT, _DONE, _TOTAL, _SIZE = (8 * i for i in range(4))

# Functions of the module, and what calls of them have in common.
HANDLE = "tosajax_handle"
_TABLE_OF_STAGES = "stages"
_SPINS = 4096  # looks for the end of a round, before the processor is given to others


def entry_module(name: str, kernels: Sequence[tuple[str, bool]]) -> Module:
    """The module of a handler.

    Args:
      name: of the handler.
      kernels: of each stage the name, and whether it has a table.
    """
    module = Module()
    entries = []
    for kernel, has_table in kernels:
        module.declare("void", kernel, ["ptr", "i64"])
        if has_table:
            module.declare("void", kernel + TABLES, ["ptr"])
        entries += [f"ptr @{kernel}", f"ptr @{kernel}{TABLES}" if has_table else "ptr null"]
    of = f"[{len(entries)} x ptr]"
    module.add(f"@{_TABLE_OF_STAGES} = internal constant {of} [{', '.join(entries)}]")
    code = IRBuilder(module, name, "ptr", ["ptr"])
    (frame,) = code.arguments
    code.ret(code.call("ptr", HANDLE, frame, code.address(_TABLE_OF_STAGES)))
    code.finish()
    return module


def module() -> Module:
    """The module of what all handlers do."""
    made = Module()
    _write_stage(made)
    _write_tables(made)
    _write_end_round(made)
    _write_item(made)
    _write_work(made)
    _write_release(made)
    _write_share(made)
    _write_task(made)
    _write_handle(made)
    return made


class _Plan:
    """Reads the plan of a call."""

    def __init__(self, code: IRBuilder, at: Value) -> None:
        self.code, self.at = code, at
        rounds = self.head("rounds")
        self._stages = code.gep(at, 8 * len(HEAD), rounds * (8 * len(ROUND)))
        self._pointers = code.gep(self._stages, self.head("stages") * (8 * len(STAGE)))

    @classmethod
    def of(cls, code: IRBuilder, state: Value) -> _Plan:
        return cls(code, code.load("ptr", state, _PLAN))

    def head(self, name: str) -> Value:
        return self.code.load("i64", self.at, 8 * HEAD.index(name))

    def round(self, number: Value, name: str) -> Value:
        place = 8 * (len(HEAD) + ROUND.index(name))
        return self.code.load("i64", self.at, number * (8 * len(ROUND)), place)

    def stage(self, number: Value, name: str) -> Value:
        place = 8 * STAGE.index(name)
        return self.code.load("i64", self._stages, number * (8 * len(STAGE)), place)

    def pointer(self, number: Value, name: str) -> Value:
        place = 8 * POINTER.index(name)
        return self.code.load("i64", self._pointers, number * (8 * len(POINTER)), place)


def _pointers(
    code: IRBuilder,
    state: Value,
    plan: _Plan,
    stage: Value,
    group: Value | int,
    thread: Value | int,
) -> Value:
    """The pointers of a stage, for a group of images and a thread."""
    found = code.alloca(f"[{MAX_POINTERS} x ptr]")
    first, buffers = plan.stage(stage, "pointer"), code.load("ptr", state, _BUFFERS)
    with code.loop(plan.stage(stage, "pointers")) as number:
        of = first + number
        offset = plan.pointer(of, "offset") + plan.pointer(of, "group_stride") * group
        offset = offset + plan.pointer(of, "thread_stride") * thread
        start = code.load("ptr", buffers, plan.pointer(of, "buffer") * 8)
        code.store(code.gep(start, offset), found, number * 8)
    return found


def _write_stage(module: Module) -> None:
    """`stage(state, stage, group, thread, begin, end)`: some items of a stage."""
    code = IRBuilder(module, "stage", "void", ["ptr", *["i64"] * 5])
    state, stage, group, thread, begin, end = code.arguments
    pointers = _pointers(code, state, _Plan.of(code, state), stage, group, thread)
    function = code.load("ptr", code.load("ptr", state, _STAGES), stage * 16)
    with code.loop(end - begin) as number:
        code.call("void", function, pointers, begin + number)
    code.ret()
    code.finish()


def _write_tables(module: Module) -> None:
    """`tables(state)`: fills those of all stages."""
    code = IRBuilder(module, "tables", "void", ["ptr"])
    (state,) = code.arguments
    plan = _Plan.of(code, state)
    with code.loop(plan.head("stages")) as stage:
        function = code.load("ptr", code.load("ptr", state, _STAGES), stage * 16, 8)
        with code.if_then(function.not_equals(code.null)):
            code.call("void", function, _pointers(code, state, plan, stage, 0, 0))
    code.ret()
    code.finish()


def _round_counters(code: IRBuilder, state: Value, number: Value) -> Value:
    """The counters of a round."""
    return code.gep(state, _COUNTERS, number * _SIZE)


def _write_end_round(module: Module) -> None:
    """`end_round(state, round)`: waits for items of a round that others have begun."""
    code = IRBuilder(module, "end_round", "void", ["ptr", "i64"])
    state, number = code.arguments
    counters = _round_counters(code, state, number)
    looks = code.alloca("i64")
    code.store(code.value(0), looks)
    look, again, over = (code.label(name) for name in ("look", "again", "over"))
    code.br(look)
    code.position_at(look)
    done = code.atomic_load(counters, _DONE, order="acquire")
    code.cond_br(done < code.load("i64", counters, _TOTAL), again, over)
    code.position_at(again)
    count = code.load("i64", looks) + 1
    code.store(count, looks)
    with code.if_then(count > _SPINS):
        code.call("i32", "sched_yield")
    code.br(look)
    code.position_at(over)
    code.ret()
    code.finish()


def _write_item(module: Module) -> None:
    """`item(state, round, thread, index)`: an item of a round."""
    code = IRBuilder(module, "item", "void", ["ptr", "i64", "i64", "i64"])
    state, number, thread, index = code.arguments
    plan = _Plan.of(code, state)
    grouped, first = plan.round(number, "grouped"), plan.round(number, "stage")
    own = index * (code.value(1) - grouped)
    with code.loop(plan.round(number, "stages")) as at:
        stage = first + at
        end = grouped.not_equals(0).select(plan.stage(stage, "items"), own + 1)
        code.call("void", code.address("stage"), state, stage, index, thread, own, end)
    code.ret()
    code.finish()


def _write_work(module: Module) -> None:
    """`work(state)`: takes items until none is left."""
    code = IRBuilder(module, "work", "void", ["ptr"])
    (state,) = code.arguments
    thread = code.alloca("i64")
    code.store(code.value(-1), thread)
    with code.loop(code.load("i64", state, _ROUNDS)) as number:
        with code.if_then(number > 0):
            code.call("void", code.address("end_round"), state, number - 1)
        counters = _round_counters(code, state, number)
        take, begin, leave = (code.label(name) for name in ("take", "begin", "leave"))
        code.br(take)
        code.position_at(take)
        index = code.atomic_add(1, counters, _NEXT, order="monotonic")
        # Of the call of a late task nothing but the state is left.
        code.cond_br(index < code.load("i64", counters, _TOTAL), begin, leave)
        code.position_at(begin)
        with code.if_then(code.load("i64", thread) < 0):
            code.store(code.atomic_add(1, state, _WORKERS, order="monotonic"), thread)
        code.call("void", code.address("item"), state, number, code.load("i64", thread), index)
        code.atomic_add(1, counters, _DONE, order="release")
        code.br(take)
        code.position_at(leave)
    code.ret()
    code.finish()


def _write_release(module: Module) -> None:
    """`release(state)`: the last owner frees it."""
    code = IRBuilder(module, "release", "void", ["ptr"])
    (state,) = code.arguments
    owners = code.atomic_add(-1, state, OWNERS, order="acq_rel")
    with code.if_then(owners.equals(1)):
        code.call("void", "free", state)
    code.ret()
    code.finish()


def _write_share(module: Module) -> None:
    """`share(state)`: the work of another thread."""
    code = IRBuilder(module, "share", "void", ["ptr"])
    for name in ("work", "release"):
        code.call("void", code.address(name), *code.arguments)
    code.ret()
    code.finish()


def _write_task(module: Module) -> None:
    """`task(state)`: that of a thread of XLA's, which may wait for more then."""
    code = IRBuilder(module, "task", "void", ["ptr"])
    (state,) = code.arguments
    code.call("void", threads.TASK_BEGAN)
    waits = code.load("i64", state, _WAITS)
    code.call("void", code.address("share"), state)
    with code.if_then(waits.not_equals(0)):
        code.call("void", threads.PARK)
    code.ret()
    code.finish()


def _write_handle(module: Module) -> None:
    """`handle(frame, stages)`: a call; null, or an error of XLA's."""
    code = IRBuilder(module, HANDLE, "ptr", ["ptr", "ptr"])
    frame, stages = code.arguments
    extension = code.load("ptr", frame, _EXTENSION)
    with code.if_then(extension.not_equals(code.null), returns=True):
        metadata = code.load("ptr", extension, 24)
        for value, at in zip((*_VERSION, 0), (_MAJOR, _MINOR, _TRAITS), strict=True):
            code.store(code.value(value, "i32"), metadata, at)
        code.ret(code.null)
    api, context = code.load("ptr", frame, _API), code.load("ptr", frame, _CONTEXT)
    operands, results = (code.load("i64", frame, at + _COUNT) for at in (_ARGUMENTS, _RESULTS))
    plan = _Plan(code, _buffer(code, frame, _ARGUMENTS, operands - 1))
    rounds = plan.head("rounds")
    size = rounds * _SIZE + (operands + results) * 8 + _COUNTERS
    state = code.call("ptr", "malloc", size)
    with code.if_then(state.equals(code.null), returns=True):
        code.ret(_error(code, api))
    _fill(code, state, plan, stages)
    buffers = code.load("ptr", state, _BUFFERS)
    for count, place, first in (operands, _ARGUMENTS, code.value(0)), (results, _RESULTS, operands):
        with code.loop(count) as number:
            code.store(_buffer(code, frame, place, number), buffers, (first + number) * 8)
    code.call("void", code.address("tables"), state)
    wanted = _helper_count(code, api, context, plan.head("threads"))
    _schedule(code, api, context, state, code.call("i64", threads.CLAIM, state, wanted))
    code.call("void", code.address("work"), state)
    code.call("void", code.address("end_round"), state, rounds - 1)
    code.call("void", code.address("release"), state)
    code.ret(code.null)
    code.finish()


def _fill(code: IRBuilder, state: Value, plan: _Plan, stages: Value) -> None:
    """The state of a call that begins, but for its buffers."""
    rounds = plan.head("rounds")
    for at, value in (
        (OWNERS, code.value(1)),
        (SHARE, code.address("share")),
        (_WORKERS, code.value(0)),
        (_PLAN, plan.at),
        (_WAITS, plan.head("waits")),
        (_ROUNDS, rounds),
        (_STAGES, stages),
        (_BUFFERS, _round_counters(code, state, rounds)),
    ):
        code.store(value, state, at)
    with code.loop(rounds) as number:
        counters = _round_counters(code, state, number)
        for at, value in (_NEXT, 0), (_DONE, 0), (_TOTAL, plan.round(number, "items")):
            code.store(code.value(value), counters, at)


def _buffer(code: IRBuilder, frame: Value, place: int, number: Value) -> Value:
    """The address of an operand's or a result's values."""
    buffers = code.load("ptr", frame, place + _POINTERS)
    return code.load("ptr", code.load("ptr", buffers, number * 8), _DATA)


def _helper_count(code: IRBuilder, api: Value, context: Value, threads: Value) -> Value:
    """How many threads are to help."""
    count = code.alloca("i64")
    code.store(code.value(1), count)
    with code.if_then(threads > 1):
        error = code.call(
            "ptr", code.load("ptr", api, _THREADS), _arguments_struct(code, context, count)
        )
        _destroy(code, api, error)
    return threads.smin(code.load("i64", count)) - 1


def _schedule(code: IRBuilder, api: Value, context: Value, state: Value, count: Value) -> None:
    arguments = _arguments_struct(code, context, code.address("task"), state)
    with code.loop(count):
        code.atomic_add(1, state, OWNERS, order="monotonic")
        error = code.call("ptr", code.load("ptr", api, _SCHEDULE), arguments)
        with code.if_then(error.not_equals(code.null)):
            code.atomic_add(-1, state, OWNERS, order="monotonic")
            code.call("void", threads.TASK_BEGAN)
        _destroy(code, api, error)


def _arguments_struct(code: IRBuilder, *fields: Value) -> Value:
    """A structure of arguments for XLA: its size, no extension, and fields of 8 bytes."""
    size = 16 + 8 * len(fields)
    slot = code.alloca(f"[{size // 8} x i64]")
    for i, value in enumerate((code.value(size), code.null, *fields)):
        code.store(value, slot, 8 * i)
    return slot


def _destroy(code: IRBuilder, api: Value, error: Value) -> None:
    """Frees an error, if there is one."""
    with code.if_then(error.not_equals(code.null)):
        destroy = code.load("ptr", api, _ERROR_DESTROY)
        code.call("void", destroy, _arguments_struct(code, error))


def _error(code: IRBuilder, api: Value) -> Value:
    """The error of a call without memory."""
    code.module.add_c_string("message", "native kernels of tosajax: no memory")
    fields = code.address("message"), code.value(_OUT_OF_MEMORY)
    return code.call("ptr", code.load("ptr", api, _ERROR_CREATE), _arguments_struct(code, *fields))
