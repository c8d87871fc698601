"""Program: a graph as a function to compile, with the facts that callers and files need."""

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
      inputs: the graph's inputs.
      outputs: the graph's outputs.
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
    """Makes the program of a graph, with constants folded and prepared.

    Args:
      graph: legal, every dimension known.
      platform: the only platform of the program, if it is known.
      custom_ops: see `tosajax.lower`.
      reports: whether callers get flags of broken REQUIRE rules.
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
    """Whether programs for a platform use native kernels; None if the processor decides.

    Args:
      platform: the only platform of the programs.
      native: the user's choice; if None, the environment variable may decide.

    Raises:
      ImportError: the user asked for native kernels, and llvmlite is not installed.
    """
    native = wanted(native)
    if native and not can_compile():
        raise ImportError('native kernels need llvmlite: pip install "tosajax[native]"')
    return native if platform.name == "cpu" and can_compile() else False


def why_not_native(platform: Platform, native: bool | None = None, *, reports: bool = False) -> str:
    """Why programs for a platform have no native kernels; "" if they may have some.

    Args:
      platform: the only platform of the programs.
      native: as for `native_on`.
      reports: whether they return flags of broken REQUIRE rules.
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
