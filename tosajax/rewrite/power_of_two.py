"""RESCALE by a power of two."""

from __future__ import annotations

from tosajax.dtypes import DType
from tosajax.graph import Node
from tosajax.graph.edit import Draft
from tosajax.spec import RoundingMode

_ONE = 1 << 30  # the multiplier for a factor of 1, with a shift of 30


def rescaled(
    draft: Draft,
    source: str,
    target: str,
    shift: int,
    zeros: tuple[int, int],
    location: str | None = None,
) -> Node:
    """A RESCALE by 2**(30 - shift) of one tensor into another, both in the draft, of one type.

    Args:
      draft: the graph, which gets the constants.
      source: the input.
      target: the output.
      shift: 30 for a factor of 1.
      zeros: the zero points of the input and of the output.
      location: the node's origin.
    """
    dtype = draft.tensors[target].dtype
    inputs = (
        source,
        draft.const(f"{target}/one", [_ONE], DType.INT32),
        draft.const(f"{target}/shift", [shift], DType.INT8),
        draft.const(f"{target}/input_zp", [zeros[0]], dtype),
        draft.const(f"{target}/output_zp", [zeros[1]], dtype),
    )
    attributes = {
        "scale32": True,
        "rounding_mode": RoundingMode.SINGLE_ROUND,
        "per_channel": False,
        "input_unsigned": False,
        "output_unsigned": False,
    }
    return Node("RESCALE", inputs, (target,), attributes, location)
