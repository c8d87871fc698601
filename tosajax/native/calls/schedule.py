"""Plans calls: the rounds of a chain of kernels, its memory, and the words that the handler reads.

Where a call has few images, all threads share the work items of each kernel. Where it has many, a
thread takes a group of images through as many kernels as its cache has room for their weights: it
waits for no other thread, and the output of a kernel is in its cache when the next one reads it.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from tosajax.native import tiling
from tosajax.native.calls import handler
from tosajax.native.codegen.builder import Module
from tosajax.native.tiling import Plan

_MAX_WEIGHT_BYTES = 2**19  # weights of a grouped round
_MAX_IMAGE_BYTES = 2**22  # input and output of a kernel, for one image of a grouped round
_MAX_GROUP_BYTES = 2**17  # input and output of a kernel, for a group of more than one image
_MIN_GROUPS_PER_THREAD = 4  # so that no thread waits long for the last group
_LINE = 64  # bytes
_EXTRA_POINTERS = 4  # of a kernel beside its operands: plan, output, table, scratch


class Placeholder(NamedTuple):
    """Placeholder for the output of an earlier kernel in the same call.

    Args:
      number: index of that kernel in the chain.
      shape: the shape of the output.
      dtype: the element type of the output.
    """

    number: int
    shape: tuple[int, ...]
    dtype: np.dtype


class KernelCall(NamedTuple):
    """A kernel and its operands, not yet called.

    Args:
      module_of: writes the LLVM module of a `KernelKey`.
      plan: (shape of the first input, threads) -> plan.
      out: (shape of the first input) -> shape of the output without its first dimension.
      operands: inputs, then weights, channels and limits. In a chain, an input may be a
        `Placeholder`.
      dtype: the element type of the output.
      inputs: number of inputs; `vmap` joins their examples in one call.
    """

    module_of: Callable[[Any], Module]
    plan: Callable[[Sequence[int], int], Plan]
    out: Callable[[Sequence[int]], tuple[int, ...]]
    operands: tuple[Any, ...]
    dtype: Any
    inputs: int = 1

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the first input."""
        return tuple(self.operands[0].shape)

    def placeholder(self, number: int) -> Placeholder:
        """The placeholder of the output, as kernel `number` of a chain."""
        return Placeholder(number, (self.shape[0], *self.out(self.shape)), np.dtype(self.dtype))


class Link(NamedTuple):
    """A kernel of a chain, and where its operands come from.

    Args:
      kernel: the kernel, with its operands.
      sources: the sources of its inputs: the output of an earlier kernel, or the index of an
        operand of the call.
      parameters: the indices of its other operands among the call's operands.
    """

    kernel: KernelCall
    sources: tuple[Placeholder | int, ...]
    parameters: tuple[int, ...]

    @property
    def operand_numbers(self) -> list[int]:
        """Indices of all operands of the call that it reads."""
        return [*(s for s in self.sources if isinstance(s, int)), *self.parameters]


class Call(NamedTuple):
    """A planned call.

    Args:
      name: the name of its target for XLA; calls with the same kernels share it.
      plans: the plans of the kernels.
      words: the operand with the plans of the call and of its kernels, int64.
      workspace: bytes of scratch memory, an output that is discarded.
    """

    name: str
    plans: tuple[Plan, ...]
    words: np.ndarray
    workspace: int

    def module(self) -> Module:
        """The LLVM module of its entry."""
        return handler.entry_module(self.name, [(p.key.name, p.table > 0) for p in self.plans])


class _Round(NamedTuple):
    """Consecutive kernels that threads compute without a barrier between them.

    Args:
      numbers: indices of the kernels.
      groups: groups of images, which threads claim; 0 if they claim work items of the one kernel.
    """

    numbers: range
    groups: int


class _Place(NamedTuple):
    """A pointer of a stage, see `handler.POINTER`.

    In `_CallPlanner.places` a group is all images: `group_stride` is divided by the groups later.
    """

    buffer: int
    offset: int = 0
    group_stride: int = 0
    thread_stride: int = 0


def plan_call(
    links: Sequence[Link], outputs: Sequence[int], images: int, *, operands: int, waits: bool
) -> Call:
    """Plans a call of a chain.

    Args:
      links: the kernels, in order; unless there is only one, all inputs and outputs have as many
        images as the call.
      outputs: indices of the kernels whose outputs the call returns, in order.
      images: images of the call; a multiple of those that the kernels were prepared for.
      operands: number of the call's operands, without its words.
      waits: whether threads park after the call.
    """
    return _CallPlanner(links, outputs, images, operands).call(waits=waits)


class _CallPlanner:
    """Plans a call; see `plan_call` for the arguments."""

    def __init__(
        self, links: Sequence[Link], outputs: Sequence[int], images: int, operands: int
    ) -> None:
        self.links, self.outputs = links, outputs
        # Images of the call for each image that the kernels were prepared for.
        self.repeats = images // links[0].kernel.shape[0]
        self.workers = tiling.threads()
        self.results = [link.kernel.placeholder(number) for number, link in enumerate(links)]
        self.last_use = self._last_uses()
        rounds = list(self._rounds(images))
        self.round_of = {number: round_ for round_ in rounds for number in round_.numbers}
        self.rounds = rounds
        self.plans = [self._plan(number) for number in range(len(links))]
        self.threads = max(map(self._threads, rounds))
        self._assign_places(operands)

    def _assign_places(self, operands: int) -> None:
        """Assigns memory to tables, to scratch, and to the output of each kernel.

        The buffers of a call are its operands, its words, its outputs, and the workspace. That has
        the tables, the results of all images, and a part for each thread: scratch, and the results
        of the thread's group.
        """
        self.plan_buffer = operands
        workspace = operands + 1 + len(self.outputs)
        sizes = (_round_to_lines(p.table) for p in self.plans)
        *self.tables, begin = itertools.accumulate(sizes, initial=0)
        hidden = [number for number in range(len(self.links)) if number not in self.outputs]
        shared, size = self._allocate([n for n in hidden if not self._is_thread_local(n)])
        local, local_size = self._allocate([n for n in hidden if self._is_thread_local(n)])
        scratch = _round_to_lines(max(p.scratch for p in self.plans))
        self.scratch = _Place(workspace, begin + size, 0, scratch + local_size)
        self.table = _Place(workspace)
        local_begin = begin + size + scratch
        self.places = {
            **{n: _Place(operands + 1 + i, 0, self._size(n)) for i, n in enumerate(self.outputs)},
            **{n: _Place(workspace, begin + at, self._size(n)) for n, at in shared.items()},
            **{n: self.scratch._replace(offset=local_begin + at) for n, at in local.items()},
        }

    def call(self, *, waits: bool) -> Call:
        """The planned call; see `plan_call`."""
        size = self.scratch.offset + self.threads * self.scratch.thread_stride
        return Call(_name(self.plans), tuple(self.plans), self._plan_words(waits=waits), size)

    def _last_uses(self) -> list[int]:
        """For each kernel, the last kernel that reads its output; itself if none does."""
        uses = list(range(len(self.links)))
        for number, link in enumerate(self.links):
            for source in link.sources:
                if isinstance(source, Placeholder):
                    uses[source.number] = number
        return uses

    def _rounds(self, images: int) -> Iterator[_Round]:
        """Cuts the chain into rounds, each as long as the cache of a thread allows."""
        if len(self.links) == 1 or images < 2 * self.workers:
            yield from (_Round(range(n, n + 1), 0) for n in range(len(self.links)))
            return
        begin = weights = largest = 0
        for number, link in enumerate(self.links):
            kernel = link.kernel
            more = sum(map(_byte_size, kernel.operands[kernel.inputs :]))
            both = _byte_size(kernel.operands[0]) + _byte_size(self.results[number])
            size = self.repeats * both // images
            if number > begin and (weights + more > _MAX_WEIGHT_BYTES or size > _MAX_IMAGE_BYTES):
                yield self._round(range(begin, number), images, largest)
                begin, weights, largest = number, 0, 0
            weights, largest = weights + more, max(largest, size)
        yield self._round(range(begin, len(self.links)), images, largest)

    def _round(self, numbers: range, images: int, size: int) -> _Round:
        """The round of some kernels, whose input and output have at most `size` bytes an image."""
        if len(numbers) == 1:
            return _Round(numbers, 0)
        fair = images // (_MIN_GROUPS_PER_THREAD * self.workers)
        fit = max(1, min(_MAX_GROUP_BYTES // max(1, size), fair))
        group = max(count for count in range(1, fit + 1) if images % count == 0)
        return _Round(numbers, images // group)

    def _plan(self, number: int) -> Plan:
        """The plan of a kernel: for all images; or for the images of a group, and one thread."""
        kernel, groups = self.links[number].kernel, self.round_of[number].groups
        first, *rest = kernel.shape
        shape = first * self.repeats // max(1, groups), *rest
        return kernel.plan(shape, 1 if groups else self.workers)

    def _items(self, round_: _Round) -> int:
        return round_.groups or self.plans[round_.numbers[0]].items

    def _threads(self, round_: _Round) -> int:
        if round_.groups:
            return min(self.workers, round_.groups)
        return self.plans[round_.numbers[0]].threads

    def _is_thread_local(self, number: int) -> bool:
        """Whether only the thread that computes a group of a result reads it."""
        round_ = self.round_of[number]
        return round_.groups > 0 and self.last_use[number] in round_.numbers

    def _size(self, number: int) -> int:
        """Bytes of the output of a kernel, for all images."""
        return _byte_size(self.results[number]) * self.repeats

    def _allocate(self, numbers: Sequence[int]) -> tuple[dict[int, int], int]:
        """Assigns memory to results, each at the lowest offset that is free while it is live.

        Args:
          numbers: indices of the kernels, in order; all thread-local, or none. A thread has memory
            for one group at a time.

        Returns:
          Offsets in bytes, by kernel; and bytes of all.
        """
        offsets: dict[int, int] = {}
        ends: dict[int, int] = {}
        for number in numbers:
            groups = self.round_of[number].groups if self._is_thread_local(number) else 1
            size, at = _round_to_lines(self._size(number) // groups), 0
            for other in sorted(offsets, key=offsets.__getitem__):
                is_live = self._live_range(other)[-1] >= self._live_range(number)[0]
                if is_live and at + size > offsets[other]:
                    at = max(at, ends[other])
            offsets[number], ends[number] = at, at + size
        return offsets, max(ends.values(), default=0)

    def _live_range(self, number: int) -> range:
        """The kernels during which the output of a kernel needs its memory."""
        last = self.last_use[number]
        if self._is_thread_local(number):
            return range(number, last + 1)
        # While a round runs, threads may be in any of its kernels.
        return range(self.round_of[number].numbers[0], self.round_of[last].numbers[-1] + 1)

    def _plan_words(self, *, waits: bool) -> np.ndarray:
        """The words of the call, int64: its plan, see `handler`; then the plans of its kernels."""
        head = self.threads, int(waits), len(self.rounds), len(self.links)
        rounds = [(r.numbers[0], len(r.numbers), self._items(r), r.groups > 0) for r in self.rounds]
        counts = [len(link.kernel.operands) + _EXTRA_POINTERS for link in self.links]
        assert max(counts) <= handler.MAX_POINTERS
        firsts = itertools.accumulate(counts, initial=0)
        stages = [(p.items, *pair) for p, *pair in zip(self.plans, firsts, counts, strict=False)]
        words = len(head) + len(handler.ROUND) * len(rounds) + len(handler.STAGE) * len(stages)
        words += len(handler.POINTER) * sum(counts)
        pointers: list[_Place] = []
        fields: list[int] = []
        for number, planned in enumerate(self.plans):
            pointers += self._pointers(number, 8 * (words + len(fields)))
            fields += planned.fields
        chain = itertools.chain.from_iterable
        return np.array(
            [*head, *chain(rounds), *chain(stages), *chain(pointers), *fields], np.int64
        )

    def _pointers(self, number: int, plan_offset: int) -> Iterator[_Place]:
        """The pointers of a kernel, in the order of `codegen.abi`.

        Args:
          number: index of the kernel.
          plan_offset: bytes from the begin of the words to the kernel's plan.
        """
        link, groups = self.links[number], self.round_of[number].groups
        sources = [
            self.places[source.number]
            if isinstance(source, Placeholder)
            else _Place(source, 0, _byte_size(x) * self.repeats)
            for source, x in zip(link.sources, link.kernel.operands, strict=False)
        ]
        plan, out = _Place(self.plan_buffer, plan_offset), self.places[number]
        table = self.table._replace(offset=self.tables[number])
        for place in (*sources, *map(_Place, link.parameters), plan, out, table, self.scratch):
            yield place._replace(group_stride=place.group_stride // groups if groups else 0)


def _name(plans: Sequence[Plan]) -> str:
    """The name of the target for XLA of a chain with such kernels."""
    names = [planned.key.name for planned in plans]
    if len(names) == 1:
        return f"{names[0]}_alone"
    digest = hashlib.sha256(" ".join(names).encode()).hexdigest()
    return f"tosajax_chain_of_{len(names)}_{digest[:32]}"


def _byte_size(x: Any) -> int:
    """Bytes of an array or a placeholder."""
    return math.prod(x.shape) * np.dtype(x.dtype).itemsize


def _round_to_lines(size: int) -> int:
    """Bytes, rounded up to whole cache lines."""
    return -(-size // _LINE) * _LINE
