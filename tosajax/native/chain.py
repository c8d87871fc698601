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

from tosajax.native import handler, plan
from tosajax.native.code import Module
from tosajax.native.plan import Plan

_WEIGHTS = 2**19  # bytes of a round of groups
_IMAGES = 2**17  # bytes of what a group's kernel reads and makes
_GROUPS = 4  # of a thread at least, so that none waits long for the last
_LINE = 64  # bytes


class Made(NamedTuple):
    """What a kernel of a chain makes, before it is made.

    Args:
      number: of the kernel in its chain.
      shape: of the result.
      dtype: of the result.
    """

    number: int
    shape: tuple[int, ...]
    dtype: np.dtype


class Prepared(NamedTuple):
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

    def made(self, number: int) -> Made:
        """The result, where it is that of a kernel of a chain."""
        return Made(number, (self.shape[0], *self.out(self.shape)), np.dtype(self.dtype))


class Link(NamedTuple):
    """A kernel of a call.

    Args:
      kernel: of the chain.
      sources: of its inputs: what another kernel makes, or the number of the call's operand.
      others: the numbers of its other operands.
    """

    kernel: Prepared
    sources: tuple[Made | int, ...]
    others: tuple[int, ...]


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
        return handler.of_stages(self.name, [(p.kind.name, p.table > 0) for p in self.plans])


class _Round(NamedTuple):
    """Kernels of a round.

    Args:
      numbers: of the kernels.
      groups: of images, each of which is an item; 0 where items are those of the one kernel.
    """

    numbers: range
    groups: int


class _Place(NamedTuple):
    """A pointer of a stage; see `handler.POINTER`."""

    buffer: int
    offset: int = 0
    of_group: int = 0
    of_thread: int = 0


def call_of(
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
    return _Planning(links, outputs, images, operands).call(waits=waits)


class _Planning:
    """Plans a call; the arguments are those of `call_of`."""

    def __init__(
        self, links: Sequence[Link], outputs: Sequence[int], images: int, operands: int
    ) -> None:
        self.links, self.outputs = links, outputs
        self.times = images // links[0].kernel.shape[0]
        self.workers = plan.threads()
        self.made = [link.kernel.made(number) for number, link in enumerate(links)]
        self.last_read = list(range(len(links)))
        for number, link in enumerate(links):
            for source in link.sources:
                if isinstance(source, Made):
                    self.last_read[source.number] = number
        self.rounds = list(self._rounds(images))
        self.round_of = {n: r for r in self.rounds for n in r.numbers}
        self.plans = [self._plan(number) for number in range(len(links))]
        # The operands of the call, its plan, its results, the workspace.
        self.plan_buffer = operands
        self.workspace = operands + 1 + len(outputs)

    def call(self, *, waits: bool) -> Call:
        ends = list(itertools.accumulate((_lines(p.table) for p in self.plans), initial=0))
        self.tables = ends
        shared, size_of_shared = self._packed(
            (n, n, self.last_read[n], self._bytes(n)) for n in self._unwanted() if not self._own(n)
        )
        room = _lines(max(p.room for p in self.plans))
        own, size_of_own = self._packed(
            (n, n, self.last_read[n], self._bytes(n)) for n in self._unwanted() if self._own(n)
        )
        of_thread = room + size_of_own
        threads = max(map(self._threads, self.rounds))
        self.rooms = _Place(self.workspace, ends[-1] + size_of_shared, 0, of_thread)
        self.places = {
            **{n: _Place(self.workspace, ends[-1] + at, self._pitch(n)) for n, at in shared.items()},
            **{n: self.rooms._replace(offset=self.rooms.offset + room + at) for n, at in own.items()},
            **{
                n: _Place(self.plan_buffer + 1 + at, 0, self._pitch(n))
                for at, n in enumerate(self.outputs)
            },
        }
        words = self._words(threads, waits=waits)
        plans = tuple(self.plans)
        digest = hashlib.sha256(repr([(p.kind.name, p.table > 0) for p in plans]).encode())
        name = f"tosajax_call_{digest.hexdigest()[:32]}"
        return Call(name, plans, words, self.rooms.offset + threads * of_thread)

    def _rounds(self, images: int) -> Iterator[_Round]:
        """Kernels by round: as many together as the cache of a thread holds the weights of."""
        if len(self.links) == 1 or images < 2 * self.workers:
            yield from (_Round(range(n, n + 1), 0) for n in range(len(self.links)))
            return
        begin = weights = largest = 0
        for number, link in enumerate(self.links):
            more = sum(map(_bytes, link.kernel.operands[link.kernel.inputs :]))
            size = self._tensor_bytes(number) // images
            if number > begin and (weights + more > _WEIGHTS or size > _IMAGES):
                yield self._round(range(begin, number), images, largest)
                begin, weights, largest = number, 0, 0
            weights, largest = weights + more, max(largest, size)
        yield self._round(range(begin, len(self.links)), images, largest)

    def _round(self, numbers: range, images: int, size: int) -> _Round:
        """Of some kernels that read and make so many bytes of an image at most."""
        if len(numbers) == 1:
            return _Round(numbers, 0)
        fit = min(_IMAGES // max(1, size), images // (_GROUPS * self.workers))
        each = max(n for n in range(1, max(1, fit) + 1) if images % n == 0)
        return _Round(numbers, images // each)

    def _tensor_bytes(self, number: int) -> int:
        """Of what a kernel reads first and makes, of all images."""
        return self.times * (_bytes(self.links[number].kernel.operands[0]) + _bytes(self.made[number]))

    def _plan(self, number: int) -> Plan:
        kernel, groups = self.links[number].kernel, self.round_of[number].groups
        first, *rest = kernel.shape
        workers = 1 if groups else self.workers
        return kernel.plan((first * self.times // max(1, groups), *rest), workers)

    def _threads(self, of: _Round) -> int:
        if of.groups:
            return min(self.workers, of.groups)
        return self.plans[of.numbers[0]].threads

    def _unwanted(self) -> list[int]:
        """The kernels whose results are not the call's."""
        return [n for n in range(len(self.links)) if n not in self.outputs]

    def _own(self, number: int) -> bool:
        """Whether a group's result is read by its thread alone."""
        of = self.round_of[number]
        return of.groups > 0 and self.last_read[number] in of.numbers

    def _bytes(self, number: int) -> int:
        """The room of a kernel's result: of a group that its thread alone reads, or of all."""
        size = _bytes(self.made[number]) * self.times
        return size // self.round_of[number].groups if self._own(number) else size

    def _pitch(self, number: int) -> int:
        """Bytes of a kernel's result, of all images."""
        return _bytes(self.made[number]) * self.times

    @staticmethod
    def _packed(tensors: Iterator[tuple[int, int, int, int]]) -> tuple[dict[int, int], int]:
        """Where tensors lie, each at the lowest place that is free, and bytes of all.

        Args:
          tensors: of each the number, the first and the last kernel that needs it, and bytes.
        """
        placed: list[tuple[int, int, int, int]] = []  # begin, end, first, last
        found = {}
        for number, first, last, size in tensors:
            at = 0
            for begin, end, since, until in sorted(placed):
                if since <= last and first <= until and at + size > begin:
                    at = max(at, end)
            found[number] = at
            placed.append((at, at + _lines(size), first, last))
        return found, max((end for _, end, *_ in placed), default=0)

    def _pointers(self, number: int, fields_at: int) -> list[_Place]:
        """The pointers of a kernel, whose plan begins so many bytes behind that of the call."""
        link, groups = self.links[number], self.round_of[number].groups
        places = []
        for source, x in zip(link.sources, link.kernel.operands, strict=False):
            if isinstance(source, Made):
                place = self.places[source.number]
            else:
                place = _Place(source, 0, _bytes(x) * self.times)
            places.append(place)
        places += map(_Place, link.others)
        places.append(_Place(self.plan_buffer, fields_at))
        places.append(self.places[number])
        places.append(_Place(self.workspace, self.tables[number]))
        places.append(self.rooms)
        # Bytes of all images, so far.
        return [p._replace(of_group=p.of_group // groups if groups else 0) for p in places]

    def _words(self, threads: int, *, waits: bool) -> np.ndarray:
        """The plan of the call; see `handler`."""
        counts = [len(link.kernel.operands) + 4 for link in self.links]
        head = [threads, int(waits), len(self.rounds), len(self.links)]
        rounds = [
            (r.numbers[0], len(r.numbers), r.groups or self.plans[r.numbers[0]].items, r.groups > 0)
            for r in self.rounds
        ]
        firsts = itertools.accumulate(counts, initial=0)
        stages = [(p.items, *pair) for p, *pair in zip(self.plans, firsts, counts)]
        fields = [p.fields for p in self.plans]
        sizes = len(handler.ROUND), len(handler.STAGE), len(handler.POINTER)
        parts = zip((len(rounds), len(stages), sum(counts)), sizes, strict=True)
        before = len(head) + sum(count * size for count, size in parts)
        begins = itertools.accumulate(map(len, fields), initial=before)
        pointers = [self._pointers(n, 8 * at) for n, at in zip(range(len(self.links)), begins)]
        tables = itertools.chain(rounds, stages, *pointers, fields)
        return np.array([*head, *itertools.chain.from_iterable(tables)], np.int64)


def _bytes(x: Any) -> int:
    """Of an array, or of what a kernel makes."""
    return math.prod(x.shape) * np.dtype(x.dtype).itemsize


def _lines(size: int) -> int:
    return -(-size // _LINE) * _LINE
