"""Arrays in the memory of a C program, with gaps, guards and chosen addresses."""

from __future__ import annotations

import numpy as np

SENTINEL = 77
GUARD = 64  # elements; a multiple of every alignment


def at(x, offset=0):
    """A copy of an array, `offset` bytes behind an address that is a multiple of 64."""
    x = np.ascontiguousarray(x)
    room = np.zeros(x.nbytes + 64 + offset, np.uint8)
    start = -room.ctypes.data % 64 + offset
    copy = room[start : start + x.nbytes].view(x.dtype).reshape(x.shape)
    copy[...] = x
    return copy


def packed(shape):
    """The strides of an array without gaps."""
    return tuple(int(np.prod(shape[axis + 1 :])) for axis in range(len(shape)))


def view(flat, shape, strides):
    in_bytes = [stride * flat.itemsize for stride in strides or packed(shape)]
    return np.lib.stride_tricks.as_strided(flat, shape, in_bytes)


def reach(shape, strides):
    """The elements from the first to the last."""
    steps = zip(shape, strides or packed(shape), strict=True)
    return 1 + sum((length - 1) * step for length, step in steps)


def memory(array, strides=None, spare=0):
    """An array in memory of its own, with another value in the gaps and behind it."""
    count = reach(array.shape, strides) + spare
    flat = np.full(count, 99, array.dtype)
    view(flat, array.shape, strides)[...] = array
    return flat


def out_memory(out, strides):
    """Memory of sentinels, and the place in it to which p_out points."""
    whole = np.full(reach(out.shape, strides) + 2 * GUARD, SENTINEL, out.dtype)
    return whole, whole[GUARD:]


def check_out(out, strides, whole):
    """Memory holds the result, or a list of memory its rows, and sentinels around it."""
    rows = isinstance(whole, list)
    for wanted, found in zip(out if rows else [out], whole if rows else [whole], strict=True):
        place = view(found[GUARD:], wanted.shape, strides)
        if wanted.dtype == np.float32:
            np.testing.assert_allclose(place, wanted, rtol=2e-6, atol=2e-6)
        else:
            np.testing.assert_array_equal(place, wanted)
        place[...] = SENTINEL
    check_untouched(whole)


def check_untouched(whole):
    """Memory, or each of a list, holds sentinels only."""
    assert all((x == SENTINEL).all() for x in (whole if isinstance(whole, list) else [whole]))
