"""Chains: kernels that one call runs one after the other, and the plan of the call.

Where a call has few images, threads share the items of each kernel. Where it has many, a thread
takes a group of images through all kernels whose weights its cache holds together: it waits for no
other thread, and what one kernel makes is in its cache when the next one reads it.
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

_MAX_WEIGHT_BYTES = 2**19  # bytes of a round of groups
_MAX_IMAGE_BYTES = 2**20  # bytes of what a kernel reads and makes of an image
_MAX_GROUP_BYTES = 2**17  # bytes of what one reads and makes of a group, unless that is an image
_MIN_GROUPS_PER_THREAD = 4  # of a thread at least, so that none waits long for the last
_LINE = 64  # bytes
_EXTRA_POINTERS = (
    4  # pointers of a kernel beside its operands: its plan, the result, a table, and scratch
)


class Placeholder(NamedTuple):
    """What a kernel of a chain makes, before it is made.

    Args:
      number: of the kernel in its chain.
      shape: of the result.
      dtype: of the result.
    """

    number: int
    shape: tuple[int, ...]
    dtype: np.dtype


class KernelCall(NamedTuple):
    """A kernel, and what it is called with.

    Args:
      module_of: makes the module of a kind.
      plan: (shape of the input, threads that there are) -> the plan.
      out: (shape of the input) -> the shape of the output without its first dimension.
      operands: the inputs, and what is not theirs: weights, channels, limits. Of a chain, an input
        may be what an earlier kernel makes.
      dtype: of the output.
      inputs: how many operands have examples.
    """

    module_of: Callable[[Any], Module]
    plan: Callable[[Sequence[int], int], Plan]
    out: Callable[[Sequence[int]], tuple[int, ...]]
    operands: tuple[Any, ...]
    dtype: Any
    inputs: int = 1

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the first input."""
        return tuple(self.operands[0].shape)

    def placeholder(self, number: int) -> Placeholder:
        """The result, where it is that of a kernel of a chain."""
        return Placeholder(number, (self.shape[0], *self.out(self.shape)), np.dtype(self.dtype))


class Link(NamedTuple):
    """A kernel of a call.

    Args:
      kernel: of the chain.
      sources: of its inputs: what another kernel makes, or the number of the call's operand.
      parameters: numbers of its other operands.
    """

    kernel: KernelCall
    sources: tuple[Placeholder | int, ...]
    parameters: tuple[int, ...]

    @property
    def operand_numbers(self) -> list[int]:
        """Of all operands of the call that it reads."""
        return [*(s for s in self.sources if isinstance(s, int)), *self.parameters]


class Call(NamedTuple):
    """A call of a chain.

    Args:
      name: of its handler.
      plans: of the kernels.
      words: the operand with the plan of the call, int64.
      workspace: bytes.
    """

    name: str
    plans: tuple[Plan, ...]
    words: np.ndarray
    workspace: int

    def module(self) -> Module:
        """That of the handler."""
        return handler.entry_module(self.name, [(p.kind.name, p.table > 0) for p in self.plans])


class _Round(NamedTuple):
    """Kernels of a round.

    Args:
      numbers: of the kernels.
      groups: of images, each of which is an item; 0 where items are those of the one kernel.
    """

    numbers: range
    groups: int


class _Place(NamedTuple):
    """A pointer of a stage; see `handler.POINTER`. Until that is known, a group is all images."""

    buffer: int
    offset: int = 0
    group_stride: int = 0
    thread_stride: int = 0


def plan_call(
    links: Sequence[Link], outputs: Sequence[int], images: int, *, operands: int, waits: bool
) -> Call:
    """How a chain is called.

    Args:
      links: in order; the images of all inputs and results are those of the call, unless there is
        one link.
      outputs: the numbers of the kernels whose results are the call's, in order.
      images: of the call, as many or a multiple of those that the kernels were prepared for.
      operands: of the call, without its plan.
      waits: whether threads wait for the next call afterwards.
    """
    return _CallPlanner(links, outputs, images, operands).call(waits=waits)


class _CallPlanner:
    """Plans a call; the arguments are those of `plan_call`."""

    def __init__(
        self, links: Sequence[Link], outputs: Sequence[int], images: int, operands: int
    ) -> None:
        self.links, self.outputs = links, outputs
        self.times = images // links[0].kernel.shape[0]
        self.workers = tiling.threads()
        self.made = [link.kernel.placeholder(number) for number, link in enumerate(links)]
        self.last_use = self._last_uses()
        rounds = list(self._rounds(images))
        self.round_of = {number: of for of in rounds for number in of.numbers}
        self.rounds = rounds
        self.plans = [self._plan(number) for number in range(len(links))]
        self.threads = max(map(self._threads, rounds))
        # Buffers of the call: its operands, its plan, its results, and the workspace, which has
        # tables, then tensors of all images, then what each thread has for itself.
        self.plan_buffer = operands
        workspace = operands + 1 + len(outputs)
        *self.tables, begin = itertools.accumulate(
            (_round_to_lines(p.table) for p in self.plans), initial=0
        )
        hidden = [number for number in range(len(links)) if number not in outputs]
        shared, size = self._allocate([n for n in hidden if not self._is_thread_local(n)])
        own, thread_stride = self._allocate([n for n in hidden if self._is_thread_local(n)])
        scratch = _round_to_lines(max(p.scratch for p in self.plans))
        self.scratch = _Place(workspace, begin + size, 0, scratch + thread_stride)
        self.table = _Place(workspace)
        self.places = {
            **{n: _Place(operands + 1 + at, 0, self._size(n)) for at, n in enumerate(outputs)},
            **{n: _Place(workspace, begin + at, self._size(n)) for n, at in shared.items()},
            **{
                n: self.scratch._replace(offset=begin + size + scratch + at)
                for n, at in own.items()
            },
        }

    def call(self, *, waits: bool) -> Call:
        size = self.scratch.offset + self.threads * self.scratch.thread_stride
        return Call(_name(self.plans), tuple(self.plans), self._plan_words(waits=waits), size)

    def _last_uses(self) -> list[int]:
        """The last kernel that needs the result of each; itself if none does."""
        found = list(range(len(self.links)))
        for number, link in enumerate(self.links):
            for source in link.sources:
                if isinstance(source, Placeholder):
                    found[source.number] = number
        return found

    def _rounds(self, images: int) -> Iterator[_Round]:
        """Kernels by round: as many together as the cache of a thread holds the weights of."""
        if len(self.links) == 1 or images < 2 * self.workers:
            yield from (_Round(range(n, n + 1), 0) for n in range(len(self.links)))
            return
        begin = weights = largest = 0
        for number, link in enumerate(self.links):
            kernel = link.kernel
            more = sum(map(_byte_size, kernel.operands[kernel.inputs :]))
            size = (
                self.times
                * (_byte_size(kernel.operands[0]) + _byte_size(self.made[number]))
                // images
            )
            if number > begin and (weights + more > _MAX_WEIGHT_BYTES or size > _MAX_IMAGE_BYTES):
                yield self._round(range(begin, number), images, largest)
                begin, weights, largest = number, 0, 0
            weights, largest = weights + more, max(largest, size)
        yield self._round(range(begin, len(self.links)), images, largest)

    def _round(self, numbers: range, images: int, size: int) -> _Round:
        """Of some kernels that read and make so many bytes of an image at most."""
        if len(numbers) == 1:
            return _Round(numbers, 0)
        fit = max(
            1,
            min(
                _MAX_GROUP_BYTES // max(1, size), images // (_MIN_GROUPS_PER_THREAD * self.workers)
            ),
        )
        each = max(count for count in range(1, fit + 1) if images % count == 0)
        return _Round(numbers, images // each)

    def _plan(self, number: int) -> Plan:
        """Of a kernel, for all images or for those of a group, which one thread does."""
        kernel, groups = self.links[number].kernel, self.round_of[number].groups
        first, *rest = kernel.shape
        shape = first * self.times // max(1, groups), *rest
        return kernel.plan(shape, 1 if groups else self.workers)

    def _items(self, of: _Round) -> int:
        return of.groups or self.plans[of.numbers[0]].items

    def _threads(self, of: _Round) -> int:
        return min(self.workers, of.groups) if of.groups else self.plans[of.numbers[0]].threads

    def _is_thread_local(self, number: int) -> bool:
        """Whether the thread of a group alone reads a result."""
        of = self.round_of[number]
        return of.groups > 0 and self.last_use[number] in of.numbers

    def _size(self, number: int) -> int:
        """Bytes of a result, of all images."""
        return _byte_size(self.made[number]) * self.times

    def _allocate(self, numbers: Sequence[int]) -> tuple[dict[int, int], int]:
        """Where results lie, each at the lowest place that is free when it is made; bytes of all.

        Args:
          numbers: of the kernels in order; a thread has scratch for one group at a time.
        """
        found: dict[int, int] = {}
        ends: dict[int, int] = {}
        for number in numbers:
            groups = self.round_of[number].groups if self._is_thread_local(number) else 1
            size, at = _round_to_lines(self._size(number) // groups), 0
            for other in sorted(found, key=found.__getitem__):
                is_needed = self._live_range(other)[-1] >= self._live_range(number)[0]
                if is_needed and at + size > found[other]:
                    at = max(at, ends[other])
            found[number], ends[number] = at, at + size
        return found, max(ends.values(), default=0)

    def _live_range(self, number: int) -> range:
        """The kernels during which a result needs its place."""
        last = self.last_use[number]
        if self._is_thread_local(number):
            return range(number, last + 1)
        # Threads are in any of the kernels of a round at a time.
        return range(self.round_of[number].numbers[0], self.round_of[last].numbers[-1] + 1)

    def _plan_words(self, *, waits: bool) -> np.ndarray:
        """The plan of the call; see `handler`."""
        head = self.threads, int(waits), len(self.rounds), len(self.links)
        rounds = [
            (of.numbers[0], len(of.numbers), self._items(of), of.groups > 0) for of in self.rounds
        ]
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

    def _pointers(self, number: int, fields: int) -> Iterator[_Place]:
        """Of a kernel, whose plan begins so many bytes behind that of the call; see `stage`."""
        link, groups = self.links[number], self.round_of[number].groups
        sources = [
            self.places[source.number]
            if isinstance(source, Placeholder)
            else _Place(source, 0, _byte_size(x) * self.times)
            for source, x in zip(link.sources, link.kernel.operands, strict=False)
        ]
        own = _Place(self.plan_buffer, fields), self.places[number]
        table = self.table._replace(offset=self.tables[number])
        for place in (*sources, *map(_Place, link.parameters), *own, table, self.scratch):
            yield place._replace(group_stride=place.group_stride // groups if groups else 0)


def _name(plans: Sequence[Plan]) -> str:
    """Of the target for XLA."""
    names = [planned.kind.name for planned in plans]
    if len(names) == 1:
        return f"{names[0]}_alone"
    digest = hashlib.sha256(" ".join(names).encode()).hexdigest()
    return f"tosajax_chain_of_{len(names)}_{digest[:32]}"


def _byte_size(x: Any) -> int:
    """Of an array, or of what a kernel makes."""
    return math.prod(x.shape) * np.dtype(x.dtype).itemsize


def _round_to_lines(size: int) -> int:
    return -(-size // _LINE) * _LINE
