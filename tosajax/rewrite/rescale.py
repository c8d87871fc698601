"""Changes the rounding mode of RESCALE, or the width of its multipliers."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, get_args

import numpy as np

from tosajax.dtypes import DType
from tosajax.graph import Graph, Node, Tensor
from tosajax.graph.edit import Draft, rewritten
from tosajax.spec import RoundingMode

Rounding = Literal["single", "double", "inexact"]

_MIN_SHIFT, _MAX_SHIFT = 2, 62  # limits of RESCALE's shifts ("Scaling Helpers", TOSA 1.0.1)


def rounding(graph: Graph, mode: Rounding, where: str | None = None) -> Graph:
    """The graph with another rounding_mode in its RESCALEs.

    A RESCALE with 16-bit multipliers rounds once by definition: it stays as it is if `mode` is
    "double".

    Args:
      graph: a legal graph.
      mode: "single", "double", or "inexact" (which needs EXT-INEXACTROUND).
      where: a regular expression, found in the nodes' outputs or locations; None for all.

    Raises:
      ValueError: there is no such mode, no RESCALE matches, or no matching one can have the mode.

    Example:
      >>> import numpy as np
      >>> import tosajax
      >>> from tosajax import quant, rewrite
      >>> example = np.float32([[-1, 1]])
      >>> model = quant.prepare(lambda x: x + x, example_args=[example])
      >>> graph = rewrite.rounding(model.freeze(quant.calibrate(model, [example])), "double")
      >>> {node.attributes["rounding_mode"].name for node in graph.nodes if node.op == "RESCALE"}
      {'DOUBLE_ROUND'}
    """
    if mode not in get_args(Rounding):
        raise ValueError(f"rounding {mode!r}, expected one of {', '.join(get_args(Rounding))}")
    wanted = RoundingMode[f"{mode.upper()}_ROUND"]

    def change(draft: Draft, node: Node) -> list[Node] | None:
        if node.op != "RESCALE":
            return None
        if wanted is RoundingMode.DOUBLE_ROUND and not node.attributes["scale32"]:
            raise ValueError("a 16-bit multiplier (scale32 is false) cannot be rounded twice")
        return [_with(node, rounding_mode=wanted)]

    return rewritten(graph, where, "RESCALE", change)


def scale(graph: Graph, bits: Literal[16, 32], where: str | None = None) -> Graph:
    """The graph whose RESCALEs have 16-bit or 32-bit multipliers.

    A 32-bit multiplier holds every 16-bit factor exactly. A 16-bit multiplier holds the nearest
    factor, and DOUBLE_ROUND becomes SINGLE_ROUND. A RESCALE of int48 has a 16-bit multiplier by
    definition.

    Args:
      graph: a legal graph; multipliers and shifts are constants.
      bits: the width of the multipliers.
      where: a regular expression, found in the nodes' outputs or locations; None for all.

    Raises:
      ValueError: bits is not 16 or 32, no RESCALE matches, or no matching RESCALE can have such
        multipliers: its factor is too large for 16 bits, or it rescales an int48.

    Example:
      >>> import numpy as np
      >>> from tosajax import quant, rewrite
      >>> example = np.float32([[-1, 1]])
      >>> model = quant.prepare(lambda x: x + x, example_args=[example])
      >>> graph = rewrite.scale(model.freeze(quant.calibrate(model, [example])), 16, where="output")
      >>> [node.attributes["scale32"] for node in graph.nodes if node.op == "RESCALE"]
      [True, True, False]
    """
    if bits not in (16, 32):
        raise ValueError(f"multipliers of {bits} bits, expected 16 or 32")

    def change(draft: Draft, node: Node) -> list[Node] | None:
        if node.op != "RESCALE":
            return None
        if bits == 32 and draft.tensors[node.inputs[0]].dtype is DType.INT48:
            raise ValueError("an int48 is rescaled, which takes a 16-bit multiplier")
        return [_rescaled(draft, node, bits)]

    return rewritten(graph, where, "RESCALE", change)


def _rescaled(draft: Draft, node: Node, bits: int) -> Node:
    if bool(node.attributes["scale32"]) == (bits == 32):
        return node
    name, *operands = node.inputs
    old = [_known(draft.tensors[n]) for n in operands[:2]]
    pairs = [_nearest(int(m), int(s), bits) for m, s in zip(*old, strict=True)]
    multiplier, shift = (np.array(column) for column in zip(*pairs, strict=True))
    stem = node.outputs[0]
    inputs = (
        name,
        draft.const(f"{stem}/multiplier", multiplier, DType.INT32 if bits == 32 else DType.INT16),
        draft.const(f"{stem}/shift", shift, DType.INT8),
        *operands[2:],
    )
    changed = dataclasses.replace(node, inputs=inputs)
    mode = node.attributes["rounding_mode"]
    if mode is RoundingMode.DOUBLE_ROUND:
        mode = RoundingMode.SINGLE_ROUND
    return _with(changed, scale32=bits == 32, rounding_mode=mode)


def _nearest(multiplier: int, shift: int, bits: int) -> tuple[int, int]:
    """The multiplier and shift nearest to multiplier / 2**shift, rounded half up.

    The new multiplier has `bits` bits, sign included, and as many significant ones as its shift
    allows.
    """
    if multiplier == 0:
        return 0, _MIN_SHIFT
    # Shift the multiplier left until its highest bit is set, within the limits of shifts.
    gained = min(bits - 1 - multiplier.bit_length(), _MAX_SHIFT - shift)
    if _moved(multiplier, gained) >> (bits - 1):  # rounded up to one bit more
        gained -= 1
    if shift + gained < _MIN_SHIFT:
        raise ValueError(f"{multiplier} / 2**{shift} is too large for {bits} bits")
    return _moved(multiplier, gained), shift + gained


def _moved(value: int, left: int) -> int:
    """value * 2**left, rounded half up."""
    if left >= 0:
        return value << left
    return ((value >> (-left - 1)) + 1) >> 1


def _known(tensor: Tensor) -> np.ndarray:
    if tensor.values is None:
        raise ValueError(f"{tensor.name!r} is not a constant")
    return tensor.values


def _with(node: Node, **attributes: Any) -> Node:
    return dataclasses.replace(node, attributes={**node.attributes, **attributes})
