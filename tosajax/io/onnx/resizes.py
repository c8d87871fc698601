"""Resize of ONNX models in the forms that torch-mlir computes as ONNX does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import helper, numpy_helper

from tosajax.report import UnsupportedError

_COORDINATES, _ROUNDING = "coordinate_transformation_mode", "nearest_mode"
_DEFAULTS = {"mode": "nearest", _COORDINATES: "half_pixel", _ROUNDING: "round_prefer_floor"}
# The element at or below a position.
_FLOOR = {_COORDINATES: "asymmetric", _ROUNDING: "floor"}
_NEAR = 1e-3  # in elements; sizes that a scale gives are nearer


def of_old_opset(model: Any) -> None:
    """Gives Resize of an opset before 11 the form that it had, after the opset was raised."""
    for node in model.graph.node:
        if node.op_type == "Resize":
            _set(node, _FLOOR)


def simplify(model: Any) -> None:
    """Writes Resize in a form that torch-mlir lowers, where there is an equal one.

    Raises:
      UnsupportedError: a Resize scales by another factor than that of its sizes.
    """
    values = (*model.graph.value_info, *model.graph.input, *model.graph.output)
    shapes = {
        value.name: [d.dim_value for d in value.type.tensor_type.shape.dim] for value in values
    }
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    for node in model.graph.node:
        source, result = (
            shapes.get(names[0], []) if names else [] for names in (node.input, node.output)
        )
        if node.op_type == "Resize" and source and len(source) == len(result):
            _check_scales(node, source, result, constants)
            _simplify(node, source, result)


def takes_floor(node: Any) -> bool:
    """Whether a nearest Resize takes the element at or below each position."""
    wanted = {"mode": "nearest", **_FLOOR}
    return node.op_type == "Resize" and _form(node) == wanted


def _simplify(node: Any, source: Sequence[int], result: Sequence[int]) -> None:
    if _form(node)[_COORDINATES] == "pytorch_half_pixel" and all(
        m > 1 or m == n for n, m in zip(source, result, strict=True)
    ):
        _set(node, {_COORDINATES: "half_pixel"})
    form = _form(node)
    repeats = form[_COORDINATES] == "half_pixel" and form[_ROUNDING].startswith("round")
    is_whole = all(n and m % n == 0 for n, m in zip(source, result, strict=True))
    if form["mode"] == "nearest" and repeats and is_whole:
        _set(node, _FLOOR)


def _check_scales(
    node: Any, source: Sequence[int], result: Sequence[int], constants: Mapping[str, Any]
) -> None:
    """Refuses scales of which sizes are not whole multiples: torch-mlir takes the sizes.

    Raises:
      UnsupportedError: the scales are such ones.
    """
    name = node.input[2] if len(node.input) > 2 else ""
    if name not in constants or _form(node)[_COORDINATES] == "align_corners":
        return
    scales = numpy_helper.to_array(constants[name])
    if scales.size == len(source) and (np.abs(source * scales - result) > _NEAR).any():
        raise UnsupportedError(
            f"operator Resize of node {node.name or node.output[0]!r} makes {[*result]} of "
            f"{[*source]} by factors {scales.tolist()}, expected factors that give whole sizes"
        )


def _form(node: Any) -> dict[str, str]:
    own = {each.name: each.s.decode() for each in node.attribute if each.name in _DEFAULTS}
    return _DEFAULTS | own


def _set(node: Any, attributes: Mapping[str, str]) -> None:
    kept = [own for own in node.attribute if own.name not in attributes]
    del node.attribute[:]
    node.attribute.extend(kept)
    node.attribute.extend(helper.make_attribute(*pair) for pair in attributes.items())
