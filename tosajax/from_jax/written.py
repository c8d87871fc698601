"""Written: a graph, and where its constants come from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tosajax.from_jax.values import Origin
from tosajax.graph import Graph


class Written(NamedTuple):
    """A graph, and the parameters that its constants were made from, by the constants' names.

    The constant x of a subgraph "body" is "body/x".
    """

    graph: Graph
    origins: Mapping[str, Origin]
