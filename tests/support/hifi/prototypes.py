"""The prototypes of the guide, with its errata, as `prototypes.txt` lists them.

Each line has the section, the name with {} for the precision, the precisions, and the arguments.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

# Element types by their words in names.
TYPES = {
    "8": np.int8,
    "16": np.int16,
    "32": np.int32,
    "64": np.int64,
    "f32": np.float32,
    "asym8u": np.uint8,
    "asym8s": np.int8,
    "sym8s": np.int8,
    "asym16s": np.int16,
}


class Declared(NamedTuple):
    """A function in the guide."""

    section: str
    arguments: list[str]

    @property
    def pointers(self) -> list[str]:
        return [x for x in self.arguments if x.startswith("p_") or x == "bias_ptr"]


def _parse() -> Iterator[tuple[str, Declared]]:
    for line in Path(__file__).with_name("prototypes.txt").read_text().splitlines():
        title, precisions, arguments = line.split("|")
        section, name = title.split()
        for precision in precisions.split():
            yield f"xa_nn_{name.format(precision)}", Declared(section, arguments.split())


EXPECTED = dict(_parse())
# Arguments of the functions that return the size of scratch memory.
SIZE_ARGUMENTS = {
    "xa_nn_conv2d_std_getsize": (9, 8, 3, 4, 2, 1, 5, 16),
    "xa_nn_conv2d_depthwise_getsize": (9, 8, 4, 3, 4, 2, 1, 2, 1, 1, 5, 6, 16, 0),
    "xa_nn_avgpool_getsize": (8, 16, 16, 9, 8, 3, 4, 1, 2, 1, 1, 5, 6, 1, 1),
    "xa_nn_maxpool_getsize": (8, 16, 16, 9, 8, 3, 4, 1, 2, 1, 1, 5, 6, 1, 1),
    "xa_nn_conv1d_std_getsize": (3, 5, 3, 16),
}
NAMES = [name for name in EXPECTED if name not in SIZE_ARGUMENTS]
