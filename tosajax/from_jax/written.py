"""Written: a graph, and the origins of its constants."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tosajax.from_jax.values import Origin
from tosajax.graph import Graph


class Written(NamedTuple):
    """A graph, and the origins of its constants by name.

    The constant x of a subgraph "body" has the name "body/x".
    """

    graph: Graph
    origins: Mapping[str, Origin]
