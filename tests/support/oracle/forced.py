"""Integer convolutions by one route, whatever their shapes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from unittest import mock

from tosajax.ops.routes import choose, convolution, loop, onednn, patches, platform
from tosajax.ops.routes.operands import Convolution
from tosajax.ops.routes.platform import ANY, Platform
from tosajax.ops.routes.route import Route
from tosajax.runtime import executable

ROUTES = ("onednn", "convolution", "patches", "traced", "loop")


def is_here(name: str) -> bool:
    """Whether this machine has a route."""
    return name != "onednn" or onednn.usable()


@contextlib.contextmanager
def route(name: str) -> Iterator[None]:
    """Forces one route on all integer convolutions traced inside.

    Args:
      name: "onednn", which multiplies matrices of any size as well; "convolution" or "patches", for
        constant weights; "traced", which treats constant weights as traced; or "loop", over blocks
        of taps. Kernels of many taps always loop, and depthwise ones have slices and a loop only.

    Raises:
      ValueError: no route has the name.
    """
    here = Platform("cpu", onednn=True) if name == "onednn" else ANY
    with (
        mock.patch.object(platform, "current", return_value=here),
        mock.patch.object(onednn, "pays", bool),
        mock.patch.object(executable, "can_compile", return_value=False),
        _forced(name),
    ):
        yield


def _forced(name: str) -> contextlib.AbstractContextManager[object]:
    match name:
        case "onednn":
            return contextlib.nullcontext()
        case "convolution":
            return _constant_weights_by(Route(name, "forced", convolution.run))
        case "patches":
            return _constant_weights_by(Route(name, "forced", patches.run))
        case "traced":
            return mock.patch.object(Convolution, "known", None)
        case "loop":
            return mock.patch.object(loop, "MAX_TAPS", 2)
    raise ValueError(f"no route {name!r}, expected one of {ROUTES}")


def _constant_weights_by(route: Route) -> contextlib.AbstractContextManager[object]:
    of_integers = choose.of_integers

    def forced(c: Convolution) -> Route:
        chosen = of_integers(c)
        return chosen if chosen.name == "loop" or c.known is None else route

    return mock.patch.object(choose, "of_integers", forced)
