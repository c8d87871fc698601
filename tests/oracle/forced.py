"""Integer convolutions by one route, whatever their shapes would choose."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

from tosajax.ops import _exact_conv

ROUTES = ("convolution", "patches", "traced", "loop")


@contextlib.contextmanager
def route(name: str) -> Iterator[None]:
    """Has all integer convolutions traced inside take a route.

    Args:
      name: "convolution" or "patches", for constant weights; "traced", patches of weights that
        are not known; or "loop", over blocks of taps. Kernels of many taps always loop, and the
        depthwise ones only know slices and the loop.
    """
    with mock.patch.multiple(_exact_conv, **_changes(name)):
        yield


def _changes(name: str) -> dict[str, Any]:
    match name:
        case "convolution" | "patches":
            choose = _exact_conv.choose

            def forced(*operands: Any) -> _exact_conv.Route:
                chosen = choose(*operands)
                return chosen if chosen.name == "loop" else _exact_conv.Route(name, "forced")

            return {"choose": forced}
        case "traced":
            return {"constant_weight": lambda *_: None}
        case "loop":
            return {"MAX_TAPS": 2}
    raise ValueError(f"no route {name!r}, expected one of {ROUTES}")
