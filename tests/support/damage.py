"""Damaged copies of files: readers refuse them, or read them as others."""

from __future__ import annotations

import random
from collections.abc import Callable

from tosajax import FormatError, UnsupportedError


def refusals(load: Callable[[bytes], object], content: bytes, count: int, seed: int) -> int:
    """How many of so many copies a reader refuses; a third is truncated, a bit of others flipped.

    Args:
      load: the reader.
      content: a file whose first 8 bytes stay whole.
      count: of copies.
      seed: of the places.
    """
    random_, refused = random.Random(seed), 0
    for number in range(count):
        copy, place = bytearray(content), random_.randrange(8, len(content))
        if number % 3:
            copy[place] ^= 1 << random_.randrange(8)
        else:
            del copy[place:]
        try:
            load(bytes(copy))
        except (FormatError, UnsupportedError):
            refused += 1
    return refused
