"""report: what quantization does to every tensor; and which layer is the worst."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import numpy as np

from tosajax.grad.qtensor import payload
from tosajax.graph import Graph, Node
from tosajax.quant.model import QModel
from tosajax.quant.recipes import Params


@dataclasses.dataclass(frozen=True)
class Row:
    """One tensor with a scale of its own.

    Args:
      tensor: name.
      op: the operator that computes it.
      location: where that comes from, in the user's words.
      dtype: INT8 or INT16.
      bits: of its range.
      sqnr: signal to quantization noise, in dB, of all that is before it and of its own.
      local_sqnr: the same of this operator alone, given what the integer graph gives it.
      saturated: share of values that lie beyond the range.
      zeros: share of values that stand for 0.
      dead: share of channels (of the last axis) that never change.
      mean_shift: mean error, in steps.
      levels: integers that occur.
      of_levels: integers that could.
      acc_bits: bits of the largest accumulator before it; None without one.
    """

    tensor: str
    op: str
    location: str | None
    dtype: str
    bits: int
    sqnr: float
    local_sqnr: float
    saturated: float
    zeros: float
    dead: float
    mean_shift: float
    levels: int
    of_levels: int
    acc_bits: int | None


@dataclasses.dataclass(frozen=True)
class QuantReport:
    """A row for each tensor, in the order in which they are computed."""

    rows: tuple[Row, ...]

    @property
    def worst(self) -> Row:
        """The tensor to which its own operator does the most: the lowest local SQNR."""
        return min((r for r in self.rows if r.op), key=lambda r: r.local_sqnr)

    def __str__(self) -> str:
        """A table, and the worst layer."""
        head = f"{'tensor':36} {'operator':16} type  bits   SQNR  local  sat %  dead %  levels  acc"
        lines = [head, *map(_line, self.rows)]
        worst = self.worst
        place = f" ({_short(worst.location)})" if worst.location else ""
        text = f"worst: {worst.op} {worst.tensor!r}{place}, {worst.local_sqnr:.1f} dB by itself"
        return "\n".join([*lines, text])


def _short(location: str) -> str:
    """Some producers write whole stacks of calls."""
    return location if len(location) <= 80 else f"{location[:77]}..."


def _line(row: Row) -> str:
    name = row.tensor if len(row.tensor) <= 36 else f"...{row.tensor[-33:]}"
    acc = "" if row.acc_bits is None else row.acc_bits
    return (
        f"{name:36} {row.op or 'input':16} {row.dtype:5} {row.bits:4} {row.sqnr:6.1f} "
        f"{row.local_sqnr:6.1f} {100 * row.saturated:6.2f} {100 * row.dead:7.1f} "
        f"{row.levels:>4}/{row.of_levels:<5} {acc:>3}"
    )


def report(model: QModel, params: Params, *inputs: Any) -> QuantReport:
    """Compares every quantized tensor with the float graph.

    Args:
      model: from `prepare`, with its parameters.
      inputs: examples, as for `QModel.apply`.

    Raises:
      ValueError: the model has no float graph.
    """
    if model.float_graph is None:
        raise ValueError("a model without a float graph has nothing to compare with")
    names = [n for n in model.activations if not _is_constant(model.float_graph, n)]
    accumulators = {n: acc for n in names if (acc := accumulator(model.graph, n)) is not None}
    watched = model.with_outputs(*names, *accumulators.values())
    values = dict(
        zip(watched.graph.outputs, jax.jit(watched.integers)(params, *inputs), strict=True)
    )
    real = {n: np.asarray(model.real(params, n, values[n])) for n in names}
    exact = model.with_outputs(*names)
    floats = jax.jit(lambda p, *x: exact.apply(p, *x, mode="float"))(params, *inputs)
    local = jax.jit(exact.local)(params, *inputs)
    nodes = {n: node for node in model.float_graph.nodes for n in node.outputs}
    rows = []
    for name, wanted in zip(names, floats, strict=True):
        acc = values.get(accumulators.get(name, ""))
        own = local.get(name, wanted)
        rows.append(
            _row(model, params, name, nodes.get(name), values[name], real[name], wanted, own, acc)
        )
    return QuantReport(tuple(rows))


def accumulator(graph: Graph, name: str) -> str | None:
    """The tensor of int32 or int48 that a RESCALE makes a tensor of."""
    producers = {n: node for node in graph.nodes for n in node.outputs}
    node = producers.get(name)
    while node is not None and node.op == "CLAMP":
        node = producers.get(node.inputs[0])
    if node is None or node.op != "RESCALE":
        return None
    source = node.inputs[0]
    return source if graph.tensors[source].dtype.bits > 16 else None


def sqnr(wanted: Any, found: Any) -> float:
    """Signal to quantization noise in dB: inf where there is no noise."""
    wanted = np.asarray(wanted, np.float64)
    noise = np.sum(np.square(wanted - np.asarray(found, np.float64)))
    signal = np.sum(np.square(wanted))
    if noise == 0:
        return math.inf
    return 10 * math.log10(signal / noise) if signal else -math.inf


def _row(
    model: QModel,
    params: Params,
    name: str,
    node: Node | None,
    value: Any,
    real: np.ndarray,
    wanted: Any,
    own: Any,
    acc: Any,
) -> Row:
    qparams = params["qparams"][name]
    low, high = (int(end) for end in qparams.grid)
    integers = np.asarray(payload(value)).astype(np.int64)
    channels = integers.reshape(-1, integers.shape[-1] if integers.ndim > 1 else 1)
    zero_point = 0 if qparams.symmetric else int(np.rint(np.asarray(qparams.zero_point)))
    scale = float(np.asarray(qparams.scale).reshape(()))
    shift = np.mean(real.astype(np.float64) - np.asarray(wanted, np.float64))
    largest = None if acc is None else int(np.abs(np.asarray(payload(acc))).max(initial=0))
    return Row(
        tensor=name,
        op=node.op if node else "",
        location=node.location if node else None,
        dtype=qparams.dtype.name,
        bits=round(float(qparams.bits)),
        sqnr=sqnr(wanted, real),
        local_sqnr=sqnr(own, real),
        saturated=_beyond(own, scale, low - zero_point, high - zero_point),
        zeros=float(np.mean(integers == zero_point)),
        dead=float(np.mean(channels.min(0) == channels.max(0))),
        mean_shift=float(shift) / scale,
        levels=len(np.unique(integers)),
        of_levels=high - low + 1,
        acc_bits=None if largest is None else largest.bit_length() + 1,
    )


def _beyond(wanted: Any, scale: float, low: int, high: int) -> float:
    """The share of real values that round to no integer of the range."""
    steps = np.asarray(wanted, np.float64) / scale
    return float(np.mean((steps < low - 0.5) | (steps > high + 0.5)))


def _is_constant(graph: Graph, name: str) -> bool:
    return graph.tensors[name].values is not None
