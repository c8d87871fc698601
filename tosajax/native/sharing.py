"""Work items: rows of images, which threads share."""

from __future__ import annotations

from typing import NamedTuple

# The least work of an item, which pays for its staging copy and for claiming it; and of a thread,
# which pays for waking it.
_ITEM_MACS, THREAD_MACS = 2**21, 2**17  # multiply-accumulates


class Share(NamedTuple):
    """How the rows of the output are cut into work items.

    Args:
      rows: rows of an item.
      items_per_image: the last one computes rows of the item before it again, to have as many.
      items: items in all images.
      threads: the most that share them.
    """

    rows: int
    items_per_image: int
    items: int
    threads: int


def threads_of(items: int, worth: int, workers: int) -> int:
    """The threads that share items, whose work pays for `worth` of them."""
    return max(1, min(items, workers, worth))


def share_rows(
    images: int, height: int, row_macs: int, workers: int, *, unit: int = 1, worth: int = 1
) -> Share:
    """Cuts images into items of some units of rows.

    Args:
      images: the number of images.
      height: rows of an image.
      row_macs: multiply-accumulates of a row.
      workers: threads that there are.
      unit: rows that are computed together.
      worth: the rows of an item that pay for reading the weights, where each thread has as many.
    """
    rows = -(-_ITEM_MACS // max(1, row_macs))
    if images < workers:  # An image is cut for all threads, some of which come late.
        rows = min(rows, -(-height // (2 * workers)))
    rows = max(rows, min(worth, -(-height // workers)))
    least = -(-height // min(height, rows))
    # More items may have fewer rows that are computed twice, or be as many for each thread.
    cuts = range(least, least + (2 * workers if images < workers else 1))
    rows = min((_rows(height, cut, unit) for cut in cuts), key=lambda r: _most(height, r, workers))
    per_image = -(-height // rows)
    items = images * per_image
    used = threads_of(items, images * height * row_macs // THREAD_MACS, workers)
    return Share(rows, per_image, items, used)


def _rows(height: int, items: int, unit: int) -> int:
    """The rows of each of some equal items; the last one does again what the one before has."""
    rows = -(-height // items)
    return min(height, -(-rows // unit) * unit)


def _most(height: int, rows: int, workers: int) -> int:
    """The rows that the thread with most items of an image computes."""
    items = -(-height // rows)
    return -(-items // workers) * rows
