"""Integer convolutions by one route, or all that native kernels can do, whatever their shapes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from unittest import mock

from tosajax.lowering.fusions import elementwise
from tosajax.native import can_compile
from tosajax.ops.routes import choose, convolution, loop, patches, platform
from tosajax.ops.routes.operands import Convolution
from tosajax.ops.routes.platform import ANY
from tosajax.ops.routes.route import Route
from tosajax.runtime import program

ROUTES = ("native", "convolution", "patches", "traced", "loop")


def is_here(name: str) -> bool:
    """Whether this machine has a route."""
    return name != "native" or can_compile()


@contextlib.contextmanager
def route(name: str) -> Iterator[None]:
    """Forces one route on all integer convolutions traced inside.

    Args:
      name: "native", the kernels of compiled graphs, of elementwise operators too; "convolution"
        or "patches", for constant weights; "traced", which treats constant weights as traced; or
        "loop", over blocks of taps. Kernels of many taps always loop, and depthwise ones
        have slices and a loop only.

    Raises:
      ValueError: no route has the name.
    """
    with (
        mock.patch.object(platform, "current", return_value=ANY),
        mock.patch.object(program, "wanted", return_value=name == "native"),
        _forced(name),
    ):
        yield


def _forced(name: str) -> contextlib.AbstractContextManager[object]:
    match name:
        case "native":
            return mock.patch.multiple(elementwise, LEAST_WORK=1, LEAST_ROW=1)
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
