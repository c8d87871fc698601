"""Integer convolutions by one route, whatever their shapes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

from tosajax.ops import _exact_conv, _onednn, _platform
from tosajax.ops._platform import ANY, Platform

ROUTES = ("onednn", "convolution", "patches", "traced", "loop")


def is_here(name: str) -> bool:
    """Whether this machine has a route."""
    return name != "onednn" or _onednn.usable()


@contextlib.contextmanager
def route(name: str) -> Iterator[None]:
    """Has all integer convolutions traced inside take a route.

    Args:
      name: "onednn", which also multiplies matrices of any size; "convolution" or "patches", for
        constant weights; "traced", patches for other weights; or "loop", over blocks of taps.
        Kernels of many taps always loop; depthwise ones have only slices and the loop.
    """
    platform = Platform("cpu", onednn=True) if name == "onednn" else ANY
    with contextlib.ExitStack() as changed:
        changed.enter_context(mock.patch.object(_platform, "current", return_value=platform))
        changed.enter_context(mock.patch.object(_onednn, "pays", bool))
        for attribute, value in _changes(name).items():
            changed.enter_context(mock.patch.object(_exact_conv, attribute, value))
        yield


def _changes(name: str) -> dict[str, Any]:
    match name:
        case "onednn":
            return {}
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
