"""Examples of training: a pair of inputs and targets for each step."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence, Sized
from typing import Any

from tosajax.arguments.types import count, shown
from tosajax.graph import Tensor
from tosajax.quant.model.arguments import Input, as_inputs, check_finite


def step_count(batches: Iterable[Any], steps: int | None) -> int | None:
    """The number of steps; None for one each batch of an iterator.

    Args:
      batches: the user's batches.
      steps: the user's steps; None for one each batch.

    Raises:
      ValueError: the batches have no end.
    """
    if steps is not None:
        return count("steps", steps) if steps else 0
    if isinstance(batches, Sized):
        return len(batches)
    if iter(batches) is not batches:
        raise ValueError("batches have no length and no end, expected steps")
    return None


def examples(
    tensors: Sequence[Tensor], batches: Iterable[Any], start: int, total: int | None
) -> Iterator[tuple[tuple[Input, ...], Any]]:
    """Inputs and targets of the steps from `start` on.

    Raises:
      TypeError: a batch is not a pair.
      ValueError: an input is NaN or infinite.
    """
    remaining = _batches_from(batches, start)
    for step in itertools.count(start):
        # The next batch is not taken from an iterator that goes on.
        if total is not None and step >= total:
            return
        batch = next(remaining, None)
        if batch is None:
            return
        if not isinstance(batch, tuple | list) or len(batch) != 2:
            raise TypeError(
                f"batch {step} is {shown(batch)}, expected a pair of inputs and targets"
            )
        inputs = as_inputs(batch[0])
        check_finite(tensors, inputs, where=f"batch {step}: ")
        yield inputs, batch[1]


def _batches_from(batches: Iterable[Any], start: int) -> Iterator[Any]:
    """Batches from a step on: of a collection again and again, of an iterator those left."""
    skipped = start % len(batches) if isinstance(batches, Sized) and len(batches) else 0
    yield from itertools.islice(batches, skipped, None)
    is_empty = False
    while not is_empty:
        is_empty = True
        for batch in batches:
            is_empty = False
            yield batch
