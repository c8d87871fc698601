"""IDENTITY: integers as they are."""

from __future__ import annotations

from tosajax.graph import Node
from tosajax.quant.convert.converter import Converter


def identity(c: Converter, node: Node) -> None:
    c.move(node, node.inputs[0])
