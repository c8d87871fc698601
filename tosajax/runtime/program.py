"""Program: a graph as a function to compile, with all that callers and files need of it."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

from tosajax import ops
from tosajax.graph import Graph, Tensor
from tosajax.lowering.build import build
from tosajax.lowering.run import CustomOps, GraphFunction, Params, Traced
from tosajax.native import can_compile, wanted
from tosajax.ops.routes.platform import ANY, Platform
from tosajax.passes.folding import fold


class Program(NamedTuple):
    """A graph of fixed shapes, ready to compile.

    Args:
      function: (params, state, *inputs) -> (state, flags, outputs).
      params: the values of its constants.
      inputs: of the graph.
      outputs: of the graph.
      reports: whether callers get the flags.
    """

    function: GraphFunction
    params: Params
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    reports: bool = False


def program_of(
    graph: Graph,
    *,
    platform: Platform = ANY,
    custom_ops: CustomOps | None = None,
    reports: bool = False,
    traced: Traced | None = None,
    kernels: Any = ops,
    native: bool | None = False,
) -> Program:
    """The program of a graph, folded and with its constants prepared.

    Args:
      graph: legal, every dimension known.
      platform: the only one that the program is for, if that is known.
      custom_ops: see `tosajax.lower`.
      reports: the flags of broken REQUIRE rules are found and given to callers.
      traced: see `lowering.build.build`.
      kernels: see `lowering.build.build`.
      native: see `lowering.build.build`.
    """
    function, params = build(
        fold(graph, keep_required=reports),
        custom_ops=custom_ops,
        report_unpredictable=reports,
        prepare=True,
        platform=platform,
        kernels=kernels,
        traced=traced,
        native=False if reports else native,
    )
    ends = graph.input_tensors, graph.output_tensors
    return Program(function, params, *ends, reports)


def native_on(platform: Platform, native: bool | None = None) -> bool | None:
    """Whether programs for a platform have native kernels; None where the processor decides.

    Args:
      platform: the only one that they are for.
      native: what the user asked for; the environment may decide instead.

    Raises:
      ImportError: the user asked for them, and llvmlite is not installed.
    """
    native = wanted(native)
    if native and not can_compile():
        raise ImportError('native kernels need llvmlite: pip install "tosajax[native]"')
    return native if platform.name == "cpu" and can_compile() else False


def why_not_native(platform: Platform, native: bool | None = None, *, reports: bool = False) -> str:
    """Why programs for a platform have no native kernels; "" where they may have some.

    Args:
      platform: the only one that they are for.
      native: as for `native_on`.
      reports: whether they give flags of broken REQUIRE rules.
    """
    if wanted(native) is False:
        return "native=False" if native is False else "TOSAJAX_NATIVE=0"
    if platform.name != "cpu":
        return f"kernels are for CPUs, and this is {platform.name}"
    if os.name != "posix":
        return "kernels need a POSIX system"
    if not can_compile():
        return 'llvmlite is not installed: pip install "tosajax[native]"'
    return "report_unpredictable looks at each node by itself" if reports else ""
