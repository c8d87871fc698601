"""The handler of a call: the function that XLA calls, and how threads share the work items.

A stage is one kernel of the call. A call is a sequence of rounds, with a barrier after each. In a
round of one stage, threads claim the stage's work items. In a round of several stages, threads
claim groups of images, and take a group through all the stages, so that it stays in their cache.
The plan of a call, which `schedule` writes, is an operand of int64 words with all sizes.

Structures have the layout of XLA's public C interface (`xla/ffi/api/c_api.h`, version 0.3) on
64-bit processors. XLA does not promise that scheduled tasks run concurrently, or soon. So the
calling thread works as well, and a barrier waits only for work items that a thread has begun. The
state that threads share lies on the heap until its last owner releases it, as a task may start when
the call is over.
"""

from __future__ import annotations

from collections.abc import Sequence

from tosajax.native.calls import threads
from tosajax.native.calls.threads import OWNERS, SHARE
from tosajax.native.codegen.abi import TABLES
from tosajax.native.codegen.builder import IRBuilder, Module, Value

# Offsets in bytes into XLA_FFI_CallFrame, XLA_FFI_Buffer and XLA_FFI_Api.
_EXTENSION, _API, _CONTEXT, _ARGUMENTS, _RESULTS = 8, 16, 24, 40, 80
_COUNT, _POINTERS = 16, 32
_DATA = 24
_ERROR_CREATE, _ERROR_DESTROY, _SCHEDULE, _THREADS = (48 + 8 * i for i in (0, 2, 11, 12))
# Offsets in bytes into XLA_FFI_Metadata: version and traits.
_MAJOR, _MINOR, _TRAITS = 24, 28, 32
_VERSION = 0, 3
_OUT_OF_MEMORY = 8  # XLA_FFI_Error_Code_RESOURCE_EXHAUSTED

# The plan of a call, in words of 8 bytes: a head, rounds, stages, pointers, and plans of kernels.
HEAD = (
    "threads",  # the most that share the work
    "waits",  # whether they park after the call
    "rounds",
    "stages",
)
ROUND = (
    "stage",  # index of its first stage
    "stages",
    "items",  # that threads claim: groups of images, or work items of the one stage
    "grouped",  # 1 if they are groups of images
)
STAGE = (
    "items",  # work items of the kernel, in a group if the round is grouped
    "pointer",  # index of its first pointer
    "pointers",
)
POINTER = (
    "buffer",  # index among those of the call, operands before results
    "offset",  # bytes
    "group_stride",  # bytes from a group of images to the next; 0 where items are not groups
    "thread_stride",  # bytes from a thread to the next
)
MAX_POINTERS = 16  # of a stage

# Offsets in bytes into the state of a call. It begins with the fields of `threads`, and ends with
# the counters of each round and the addresses of all buffers.
_WORKERS, _PLAN, _WAITS, _ROUNDS, _STAGES, _BUFFERS, _COUNTERS = (8 * i for i in range(2, 9))
# The counters of a round: the next item to claim, items that are done, all items; and their size.
_NEXT, _DONE, _TOTAL, _SIZE = (8 * i for i in range(4))

HANDLE = "tosajax_handle"  # name of the function in IR
_KERNEL_TABLE = "stages"  # name of the array of an entry's kernels in IR
_SPINS = 4096  # polls of a barrier before each further one yields the processor


def entry_module(name: str, kernels: Sequence[tuple[str, bool]]) -> Module:
    """The module of an entry: passes XLA's call frame and the call's kernels to the handler.

    Args:
      name: the entry's name.
      kernels: name of each stage's kernel, and whether it has a table.
    """
    module = Module()
    entries = []
    for kernel, has_table in kernels:
        module.declare("void", kernel, ["ptr", "i64"])
        if has_table:
            module.declare("void", kernel + TABLES, ["ptr"])
        entries += [f"ptr @{kernel}", f"ptr @{kernel}{TABLES}" if has_table else "ptr null"]
    ir_type = f"[{len(entries)} x ptr]"
    module.add(f"@{_KERNEL_TABLE} = internal constant {ir_type} [{', '.join(entries)}]")
    code = IRBuilder(module, name, "ptr", ["ptr"])
    (frame,) = code.arguments
    code.ret(code.call("ptr", HANDLE, frame, code.address(_KERNEL_TABLE)))
    code.finish()
    return module


def module() -> Module:
    """The module of the functions that all entries share."""
    result = Module()
    _write_stage(result)
    _write_tables(result)
    _write_end_round(result)
    _write_item(result)
    _write_work(result)
    _write_release(result)
    _write_share(result)
    _write_task(result)
    _write_handle(result)
    return result


class _Plan:
    """Loads words of the plan of a call; `address` is its first word."""

    def __init__(self, code: IRBuilder, address: Value) -> None:
        self.code, self.address = code, address
        rounds = self.head("rounds")
        self._stages = code.gep(address, 8 * len(HEAD), rounds * (8 * len(ROUND)))
        self._pointers = code.gep(self._stages, self.head("stages") * (8 * len(STAGE)))

    @classmethod
    def of_state(cls, code: IRBuilder, state: Value) -> _Plan:
        """The plan of the call that has a state."""
        return cls(code, code.load("ptr", state, _PLAN))

    def head(self, name: str) -> Value:
        return self.code.load("i64", self.address, 8 * HEAD.index(name))

    def round(self, number: Value, name: str) -> Value:
        offset = 8 * (len(HEAD) + ROUND.index(name))
        return self.code.load("i64", self.address, number * (8 * len(ROUND)), offset)

    def stage(self, number: Value, name: str) -> Value:
        offset = 8 * STAGE.index(name)
        return self.code.load("i64", self._stages, number * (8 * len(STAGE)), offset)

    def pointer(self, number: Value, name: str) -> Value:
        offset = 8 * POINTER.index(name)
        return self.code.load("i64", self._pointers, number * (8 * len(POINTER)), offset)


def _pointers(
    code: IRBuilder,
    state: Value,
    plan: _Plan,
    stage: Value,
    group: Value | int,
    thread: Value | int,
) -> Value:
    """The array of pointers that a kernel receives (see `codegen.abi`).

    Args:
      code: gets the instructions.
      state: address of the call's state.
      plan: the plan of the call.
      stage: index of the kernel, i64.
      group: index of the group of images, or 0.
      thread: index of the thread among those that work on the call.
    """
    result = code.alloca(f"[{MAX_POINTERS} x ptr]")
    first, buffers = plan.stage(stage, "pointer"), code.load("ptr", state, _BUFFERS)
    with code.loop(plan.stage(stage, "pointers")) as number:
        pointer = first + number
        offset = plan.pointer(pointer, "offset") + plan.pointer(pointer, "group_stride") * group
        offset = offset + plan.pointer(pointer, "thread_stride") * thread
        start = code.load("ptr", buffers, plan.pointer(pointer, "buffer") * 8)
        code.store(code.gep(start, offset), result, number * 8)
    return result


def _write_stage(module: Module) -> None:
    """`stage(state, stage, group, thread, begin, end)`: does work items begin to end - 1."""
    code = IRBuilder(module, "stage", "void", ["ptr", *["i64"] * 5])
    state, stage, group, thread, begin, end = code.arguments
    pointers = _pointers(code, state, _Plan.of_state(code, state), stage, group, thread)
    function = code.load("ptr", code.load("ptr", state, _STAGES), stage * 16)
    with code.loop(end - begin) as number:
        code.call("void", function, pointers, begin + number)
    code.ret()
    code.finish()


def _write_tables(module: Module) -> None:
    """`tables(state)`: fills the tables of all stages."""
    code = IRBuilder(module, "tables", "void", ["ptr"])
    (state,) = code.arguments
    plan = _Plan.of_state(code, state)
    with code.loop(plan.head("stages")) as stage:
        function = code.load("ptr", code.load("ptr", state, _STAGES), stage * 16, 8)
        with code.if_then(function.not_equals(code.null)):
            code.call("void", function, _pointers(code, state, plan, stage, 0, 0))
    code.ret()
    code.finish()


def _round_counters(code: IRBuilder, state: Value, number: Value) -> Value:
    """The address of a round's counters."""
    return code.gep(state, _COUNTERS, number * _SIZE)


def _write_end_round(module: Module) -> None:
    """`end_round(state, round)`: a barrier; spins until all items of a round are done."""
    code = IRBuilder(module, "end_round", "void", ["ptr", "i64"])
    state, number = code.arguments
    counters = _round_counters(code, state, number)
    polls = code.alloca("i64")
    code.store(code.value(0), polls)
    look, again, over = (code.label(name) for name in ("look", "again", "over"))
    code.br(look)
    code.position_at(look)
    done = code.atomic_load(counters, _DONE, order="acquire")
    code.cond_br(done < code.load("i64", counters, _TOTAL), again, over)
    code.position_at(again)
    count = code.load("i64", polls) + 1
    code.store(count, polls)
    with code.if_then(count > _SPINS):
        code.call("i32", "sched_yield")
    code.br(look)
    code.position_at(over)
    code.ret()
    code.finish()


def _write_item(module: Module) -> None:
    """`item(state, round, thread, index)`: does an item of a round.

    An item is all work items of all stages for a group of images, or one work item of the single
    stage.
    """
    code = IRBuilder(module, "item", "void", ["ptr", "i64", "i64", "i64"])
    state, number, thread, index = code.arguments
    plan = _Plan.of_state(code, state)
    grouped, first = plan.round(number, "grouped"), plan.round(number, "stage")
    begin = index * (code.value(1) - grouped)
    with code.loop(plan.round(number, "stages")) as i:
        stage = first + i
        end = grouped.not_equals(0).select(plan.stage(stage, "items"), begin + 1)
        code.call("void", code.address("stage"), state, stage, index, thread, begin, end)
    code.ret()
    code.finish()


def _write_work(module: Module) -> None:
    """`work(state)`: claims and does items, round by round, until none is left."""
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
        # A late task finds no item to claim: of its call nothing but the state may be left.
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
    """`release(state)`: gives up ownership; the last owner frees the state."""
    code = IRBuilder(module, "release", "void", ["ptr"])
    (state,) = code.arguments
    owners = code.atomic_add(-1, state, OWNERS, order="acq_rel")
    with code.if_then(owners.equals(1)):
        code.call("void", "free", state)
    code.ret()
    code.finish()


def _write_share(module: Module) -> None:
    """`share(state)`: does a share of a call's work, and releases the state."""
    code = IRBuilder(module, "share", "void", ["ptr"])
    for name in ("work", "release"):
        code.call("void", code.address(name), *code.arguments)
    code.ret()
    code.finish()


def _write_task(module: Module) -> None:
    """`task(state)`: a task of XLA's pool: does a share of the work, and may park then."""
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
    """`handle(frame, stages)`: runs a call; returns null, or an XLA_FFI_Error.

    `frame` is an XLA_FFI_CallFrame, `stages` the array of kernels of an entry.
    """
    code = IRBuilder(module, HANDLE, "ptr", ["ptr", "ptr"])
    frame, stages = code.arguments
    _answer_query(code, frame)
    api, context = code.load("ptr", frame, _API), code.load("ptr", frame, _CONTEXT)
    operands, results = (
        code.load("i64", frame, field + _COUNT) for field in (_ARGUMENTS, _RESULTS)
    )
    plan = _Plan(code, _buffer(code, frame, _ARGUMENTS, operands - 1))
    rounds = plan.head("rounds")
    size = rounds * _SIZE + (operands + results) * 8 + _COUNTERS
    state = code.call("ptr", "malloc", size)
    with code.if_then(state.equals(code.null), returns=True):
        code.ret(_error(code, api))
    _fill(code, state, plan, stages)
    buffers = code.load("ptr", state, _BUFFERS)
    for count, field, first in (operands, _ARGUMENTS, code.value(0)), (results, _RESULTS, operands):
        with code.loop(count) as number:
            code.store(_buffer(code, frame, field, number), buffers, (first + number) * 8)
    code.call("void", code.address("tables"), state)
    helpers = _helper_count(code, api, context, plan.head("threads"))
    _schedule(code, api, context, state, code.call("i64", threads.CLAIM, state, helpers))
    code.call("void", code.address("work"), state)
    code.call("void", code.address("end_round"), state, rounds - 1)
    code.call("void", code.address("release"), state)
    code.ret(code.null)
    code.finish()


def _answer_query(code: IRBuilder, frame: Value) -> None:
    """Writes version and traits, and returns, if XLA asks for metadata instead of a call."""
    extension = code.load("ptr", frame, _EXTENSION)
    with code.if_then(extension.not_equals(code.null), returns=True):
        metadata = code.load("ptr", extension, 24)
        for value, offset in zip((*_VERSION, 0), (_MAJOR, _MINOR, _TRAITS), strict=True):
            code.store(code.value(value, "i32"), metadata, offset)
        code.ret(code.null)


def _fill(code: IRBuilder, state: Value, plan: _Plan, stages: Value) -> None:
    """Initializes the state of a call, except for the addresses of buffers."""
    rounds = plan.head("rounds")
    for offset, value in (
        (OWNERS, code.value(1)),
        (SHARE, code.address("share")),
        (_WORKERS, code.value(0)),
        (_PLAN, plan.address),
        (_WAITS, plan.head("waits")),
        (_ROUNDS, rounds),
        (_STAGES, stages),
        (_BUFFERS, _round_counters(code, state, rounds)),
    ):
        code.store(value, state, offset)
    with code.loop(rounds) as number:
        counters = _round_counters(code, state, number)
        for offset, value in (_NEXT, 0), (_DONE, 0), (_TOTAL, plan.round(number, "items")):
            code.store(code.value(value), counters, offset)


def _buffer(code: IRBuilder, frame: Value, field: int, number: Value) -> Value:
    """The address of an operand (`_ARGUMENTS`) or a result (`_RESULTS`) of the frame."""
    buffers = code.load("ptr", frame, field + _POINTERS)
    return code.load("ptr", code.load("ptr", buffers, number * 8), _DATA)


def _helper_count(code: IRBuilder, api: Value, context: Value, threads: Value) -> Value:
    """How many other threads shall share the work: at most `threads`, and XLA's pool, less 1."""
    count = code.alloca("i64")
    code.store(code.value(1), count)
    with code.if_then(threads > 1):
        error = code.call(
            "ptr", code.load("ptr", api, _THREADS), _arguments_struct(code, context, count)
        )
        _destroy(code, api, error)
    return threads.smin(code.load("i64", count)) - 1


def _schedule(code: IRBuilder, api: Value, context: Value, state: Value, count: Value) -> None:
    """Schedules `count` tasks in XLA's pool; each owns the state."""
    arguments = _arguments_struct(code, context, code.address("task"), state)
    with code.loop(count):
        code.atomic_add(1, state, OWNERS, order="monotonic")
        error = code.call("ptr", code.load("ptr", api, _SCHEDULE), arguments)
        with code.if_then(error.not_equals(code.null)):
            code.atomic_add(-1, state, OWNERS, order="monotonic")
            code.call("void", threads.TASK_BEGAN)
        _destroy(code, api, error)


def _arguments_struct(code: IRBuilder, *fields: Value) -> Value:
    """The address of an argument struct for XLA: its size, no extension, and 8-byte fields."""
    size = 16 + 8 * len(fields)
    slot = code.alloca(f"[{size // 8} x i64]")
    for i, value in enumerate((code.value(size), code.null, *fields)):
        code.store(value, slot, 8 * i)
    return slot


def _destroy(code: IRBuilder, api: Value, error: Value) -> None:
    """Destroys an XLA_FFI_Error, unless it is null."""
    with code.if_then(error.not_equals(code.null)):
        destroy = code.load("ptr", api, _ERROR_DESTROY)
        code.call("void", destroy, _arguments_struct(code, error))


def _error(code: IRBuilder, api: Value) -> Value:
    """Creates the error of a call that got no memory."""
    code.module.add_c_string("message", "native kernels of tosajax: no memory")
    fields = code.address("message"), code.value(_OUT_OF_MEMORY)
    return code.call("ptr", code.load("ptr", api, _ERROR_CREATE), _arguments_struct(code, *fields))
