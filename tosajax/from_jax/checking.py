"""Checks an exported graph against its function, by running both on the example arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tosajax.from_jax.tracing import Traced
from tosajax.graph import Agreement, Graph
from tosajax.hifi import custom
from tosajax.report import Finding, Report, TosaError, Verdict
from tosajax.runtime.executable import compile
from tosajax.spec.target import Target


def has_values(examples: Sequence[Any]) -> bool:
    """Whether a function can run on the arguments it was traced with: all are arrays."""
    return not any(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in examples)


def agreement(graph: Graph, tracing: Traced, target: Target) -> tuple[Agreement, ...]:
    """The differences between the outputs of a graph and its function, for the example arguments.

    Raises:
      TosaError: an integer differs; a float is NaN or infinite in only one of them, or differs in
        more than half of its mantissa bits; or TOSA leaves a result unpredictable.
    """
    inputs = [
        np.asarray(x, tensor.dtype.storage)
        for x, tensor in zip(tracing.examples, graph.input_tensors, strict=True)
    ]
    wanted = jax.jit(tracing.function)(*tracing.examples)
    run = compile(graph, target, report_unpredictable=True, custom_ops=custom.OPERATORS)
    outputs, flags = run(*inputs)
    broken = [" ".join(map(str, name)) for name, flag in flags.items() if np.any(flag)]
    if broken:
        message = f"a run breaks rules of TOSA: {', '.join(broken)}"
        raise _failed("export.unpredictable", message, graph)
    mantissa = _mantissa(graph)
    return tuple(
        Agreement(name, _difference(graph, name, np.asarray(ours), np.asarray(theirs), mantissa))
        for name, ours, theirs in zip(graph.outputs, outputs, wanted, strict=True)
    )


def _mantissa(graph: Graph) -> int:
    """The mantissa bits of the narrowest float type in a graph; 0 if there are no floats."""
    tensors = (tensor for part in graph.walk() for tensor in part.tensors.values())
    types = {tensor.dtype.storage for tensor in tensors if tensor.dtype.is_float}
    return min((jnp.finfo(dtype).nmant for dtype in types), default=0)


def _difference(
    graph: Graph, name: str, ours: np.ndarray, theirs: np.ndarray, mantissa: int
) -> float:
    """The largest difference in an output, in units in the last place of the largest element.

    Args:
      graph: the graph, for messages.
      name: the name of the output.
      ours: the output of the graph.
      theirs: the output of the function.
      mantissa: the mantissa bits, half of which may be wrong.
    """
    if not jnp.issubdtype(theirs.dtype, jnp.floating):
        differs = ours != theirs.astype(ours.dtype)
        if differs.any():
            raise _differs(graph, name, ours, theirs, differs)
        return 0.0
    a, b = ours.astype(np.float64), theirs.astype(np.float64)
    finite = np.isfinite(a) & np.isfinite(b)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    if not (finite | same).all():
        raise _differs(graph, name, ours, theirs, ~(finite | same))
    if not finite.any():
        return 0.0
    info = jnp.finfo(theirs.dtype)
    unit = max(np.abs(b[finite]).max() * float(info.eps), float(info.smallest_subnormal))
    distance = np.abs(np.where(finite, a, 0) - np.where(finite, b, 0))
    if info.bits != 16 or info.nmant == 7:  # XLA flushes subnormals of float32 and bfloat16 to 0.
        distance = np.where(distance < float(info.smallest_normal), 0, distance)
    ulp = distance / unit
    if ulp.max() > 2.0 ** (info.nmant - mantissa / 2):
        raise _differs(graph, name, ours, theirs, ulp == ulp.max())
    return float(ulp.max())


def _differs(
    graph: Graph, name: str, ours: np.ndarray, theirs: np.ndarray, where: np.ndarray
) -> TosaError:
    at = tuple(int(i) for i in np.argwhere(where)[0])
    text = (
        f"output {name!r} has {ours[at]} at {list(at)}, expected {theirs[at]}, as the function "
        "gives it; export(..., check=False) leaves this check out"
    )
    return _failed("export.differs", text, graph)


def _failed(rule: str, text: str, graph: Graph) -> TosaError:
    return TosaError(Report((Finding(Verdict.ERROR, rule, text, graph.name),)))
