"""report: the errors of quantization in every tensor, and the worst layer."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from tosajax import html
from tosajax.grad.qtensor import QTensor, payload
from tosajax.graph import Graph, Node
from tosajax.progress import Progress
from tosajax.quant.calibration import weight_qparams
from tosajax.quant.model.arguments import Examples
from tosajax.quant.model.batches import real_batch
from tosajax.quant.model.programs import jitted
from tosajax.quant.model.recipes import Params, corrected
from tosajax.quant.model.room import fitted_qparams, least_scale
from tosajax.quant.qmodel import QModel, prepared
from tosajax.quant.ranges.mask_ranges import is_masked

_SHOWN = 8  # channels in a text
_ALIKE = 1 + 2.0**-10  # scales that differ by less


@dataclasses.dataclass(frozen=True)
class Row:
    """One tensor with a scale of its own.

    Args:
      tensor: name.
      op: the operator that computes it.
      location: the location of that operator in the user's source.
      dtype: INT8, INT16, FP8E4M3 or FP8E5M2.
      bits: the bits of its range.
      sqnr: signal to quantization noise, in dB, of its operator and all operators before it.
      local_sqnr: the same of its operator alone, on the operands of the integer graph; with FP8,
        of rounding this tensor alone.
      saturated: share of values that lie beyond the range.
      zeros: share of values that stand for 0.
      dead: share of channels (along the final axis) that never change.
      mean_shift: mean error, in steps; with FP8, in units of the scale.
      levels: how many integers, or FP8 values, occur.
      of_levels: how many could occur.
      acc_bits: bits of the largest accumulator before it; None without one.

    Example:
      >>> from tosajax import DType, quant
      >>> row = quant.Row(
      ...     tensor="y", op="ADD", location="", dtype=DType.INT8, bits=8, sqnr=40.0,
      ...     local_sqnr=45.0, saturated=0.0, zeros=0.0, dead=0.0, mean_shift=0.0, levels=200,
      ...     of_levels=256, acc_bits=None,
      ... )
      >>> row.levels / row.of_levels
      0.78125
    """

    tensor: str
    op: str
    location: str | None = dataclasses.field(repr=False)
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
class WidenedScale:
    """A channel of weights whose scale is larger than its weights ask for.

    They are so small that, in units of input times weight, the bias would be beyond the accumulator
    or RESCALE would not express the unit.

    Args:
      tensor: name of the weights.
      channel: its number.
      scale: that the integers have.
      of_weights: the scale that the weights alone would have.
    """

    tensor: str
    channel: int
    scale: float
    of_weights: float

    def __str__(self) -> str:
        return (
            f"{self.tensor!r}, channel {self.channel}: scale {self.scale:.3g}, where its weights "
            f"alone would have {self.of_weights:.3g}"
        )


@dataclasses.dataclass(frozen=True)
class QuantReport:
    """A row for each tensor, in the order in which they are computed.

    Args:
      rows: a row for each tensor.
      widened: the channels of weights whose scale grew so that their bias has room.

    Example:
      >>> from tosajax import DType, quant
      >>> row = quant.Row(
      ...     tensor="y", op="ADD", location="", dtype=DType.INT8, bits=8, sqnr=40.0,
      ...     local_sqnr=45.0, saturated=0.0, zeros=0.0, dead=0.0, mean_shift=0.0, levels=200,
      ...     of_levels=256, acc_bits=None,
      ... )
      >>> quant.QuantReport((row,))
      QuantReport(1 tensor, worst: ADD 'y', 45.0 dB by itself)
    """

    rows: tuple[Row, ...]
    widened: tuple[WidenedScale, ...] = ()

    @property
    def worst(self) -> Row:
        """The tensor with the lowest local SQNR."""
        computed = [r for r in self.rows if r.op]
        return min(computed or self.rows, key=lambda r: r.local_sqnr)

    def __repr__(self) -> str:
        return f"QuantReport({html.counted(len(self.rows), 'tensor')}, worst: {self._worst()})"

    def _repr_html_(self) -> str:
        names = [field.name for field in dataclasses.fields(Row)]
        head = [name.replace("_", " ") for name in names]
        rows = [[getattr(row, name) for name in names] for row in self.rows]
        summary = [("tensors", f"{len(self.rows):,}"), ("worst", html.text(self._worst()))]
        if self.widened:
            summary.append(("widened scales", html.text(_first_channels(self.widened, "; "))))
        return html.box("Quantization", summary, head, rows, noun="tensor", named_by=0)

    def _worst(self) -> str:
        worst = self.worst
        title = f"{worst.op or 'input'} {html.quoted(worst.tensor)}"
        return f"{title}, {worst.local_sqnr:.1f} dB by itself"

    def __str__(self) -> str:
        """A table, the worst layer, and channels whose scales grew."""
        head = (
            f"{'tensor':36} {'operator':16} type     bits   SQNR  local  sat %  dead %  levels  acc"
        )
        lines = [head, *map(_line, self.rows)]
        worst = self.worst
        place = f" ({_short_location(worst.location)})" if worst.location else ""
        node = f"{worst.op or 'input'} {worst.tensor!r}{place}"
        text = f"worst: {node}, {worst.local_sqnr:.1f} dB by itself"
        if self.widened:
            few = _first_channels(self.widened, "\n  ")
            text = f"{text}\nscales that grew, so that biases have room:\n  {few}"
        return "\n".join([*lines, text])


def _first_channels(widened: Sequence[WidenedScale], separator: str) -> str:
    """The first channels, and how many more there are."""
    more = len(widened) - _SHOWN
    texts = [*map(str, widened[:_SHOWN]), *([f"and {more} more"] if more > 0 else [])]
    return separator.join(texts)


def _short_location(location: str) -> str:
    """A location on one line: some producers write whole stacks of calls."""
    return location if len(location) <= 80 else f"{location[:77]}..."


def _line(row: Row) -> str:
    name = row.tensor if len(row.tensor) <= 36 else f"...{row.tensor[-33:]}"
    acc = "" if row.acc_bits is None else row.acc_bits
    return (
        f"{name:36} {row.op or 'input':16} {row.dtype:8} {row.bits:4} {row.sqnr:6.1f} "
        f"{row.local_sqnr:6.1f} {100 * row.saturated:6.2f} {100 * row.dead:7.1f} "
        f"{row.levels:>4}/{row.of_levels:<5} {acc:>3}"
    )


def report(
    model: QModel,
    params: Params,
    *inputs: Examples,
    allow_nan: bool = False,
    progress: bool = False,
) -> QuantReport:
    """Compares every quantized tensor with the float graph.

    Tensors inside loops and branches have no row. The states and results that they lead to have
    one, and the local error of a WHILE_LOOP or a COND_IF is the error of all nodes of its graphs.

    Args:
      model: the model, from `prepare`, with its parameters.
      inputs: examples, as for `QModel.apply`; or batches, as for `calibrate`.
      allow_nan: takes examples with NaN or infinities.
      progress: show a bar of programs (integers, floats, each operator by itself) on a terminal.

    Raises:
      TypeError: an argument is of another type.
      ValueError: the model has no float graph, or no quantized tensor; the parameters are of
        another model; or an example is NaN or infinite.

    Example:
      >>> import numpy as np
      >>> from tosajax import quant
      >>> w = np.float32([[1, -2], [3, 4]])
      >>> example = np.float32([[-1, 1]])
      >>> model = quant.prepare(lambda x: x @ w, example_args=[example])
      >>> params = quant.calibrate(model, [example])
      >>> report = quant.report(model, params, example)
      >>> report.worst.tensor, bool(report.worst.sqnr > 30)
      ('dot_general_1', True)
    """
    model = prepared(model, "a model without a float graph has nothing to compare with")
    model.check(params)
    inputs = real_batch(model.float_graph.input_tensors, inputs, allow_nan=allow_nan)
    names = model.outer_activations
    if not names:
        raise ValueError("the graph has no quantized tensor")
    accumulators = {n: acc for n in names if (acc := accumulator(model.graph, n)) is not None}
    stored = {name: model.plan.stored[name] for name in names}
    outputs = dict.fromkeys((*names, *stored.values(), *accumulators.values()))
    watched = model.with_outputs(*outputs)
    with Progress(3, progress, unit="program") as bar:
        bar.step("compiling integers")
        integers = dict(zip(outputs, jax.jit(watched.integers)(params, *inputs), strict=True))
        bar.update()
        exact = model.with_outputs(*names)
        bar.step("compiling floats")
        floats = jax.jit(lambda p, *x: exact.apply(p, *x, mode="float"))(params, *inputs)
        bar.update()
        bar.step("compiling operators")
        # In a graph of FP32, the tensor that is rounded is there as it was.
        local = jax.jit(exact.local)(params, *inputs) if model.plan.is_integer else integers
        bar.update()
    values = {n: integers[stored[n]] for n in names}
    real = {n: np.asarray(model.real(params, stored[n], values[n])) for n in names}
    nodes = {n: node for node in model.float_graph.nodes for n in node.outputs}
    rows = []
    for name, wanted in zip(names, floats, strict=True):
        acc = integers.get(accumulators.get(name, ""))
        own = local.get(name, wanted)
        if model.plan.scaled[name].mask_axis is not None:
            # No error is made in masked elements.
            mask = is_masked(wanted)
            wanted, own = (np.where(mask, real[name], x) for x in (wanted, own))
        rows.append(
            _row(model, params, name, nodes.get(name), values[name], real[name], wanted, own, acc)
        )
    return QuantReport(tuple(rows), widened_scales(model, params))


def widened_scales(model: QModel, params: Params) -> tuple[WidenedScale, ...]:
    """The channels of weights whose scale grew so that their bias has room."""
    widened = []
    for name, (used, least, of_weights, own) in jitted(model, _scales)(params).items():
        # Training may have found larger scales by itself.
        is_least = (used <= _ALIKE * least) | (used > _ALIKE * own)
        for channel in np.flatnonzero(is_least & (used > _ALIKE * of_weights)):
            numbers = (float(used[channel]), float(of_weights[channel]))
            widened.append(WidenedScale(name, int(channel), *numbers))
    return tuple(widened)


def _scales(model: QModel, params: Params) -> dict[str, np.ndarray]:
    """Four scales of each constant that products read, by channel.

    Returns:
      Rows by name: the scale of its integers; the least one; the scale of its weights alone,
      infinite where all are 0; and the scale in the parameters.
    """
    scales = {}
    for name in model.plan.readers:
        used = fitted_qparams(model.plan, params, name).scale
        least, is_used = least_scale(model.plan, params, name)
        own = params["qparams"][name]
        alone = weight_qparams(model, name, corrected(params, name), own.bits).scale
        alone = jnp.where(is_used, alone, jnp.inf)
        each = [jnp.broadcast_to(x, used.shape) for x in (used, least, alone, own.scale)]
        scales[name] = jnp.stack([x.reshape(-1) for x in each])
    return scales


def accumulator(graph: Graph, name: str) -> str | None:
    """The int32 or int48 tensor that a RESCALE makes into this one; None where there is none."""
    producers = {n: node for node in graph.nodes for n in node.outputs}
    node = producers.get(name)
    while node is not None and node.op == "CLAMP":
        node = producers.get(node.inputs[0])
    if node is None or node.op != "RESCALE":
        return None
    source = node.inputs[0]
    return source if graph.tensors[source].dtype.bits > 16 else None


def sqnr(wanted: ArrayLike, actual: ArrayLike) -> float:
    """Signal to quantization noise in dB; inf without noise."""
    wanted = np.asarray(wanted, np.float64)
    noise = np.sum(np.square(wanted - np.asarray(actual, np.float64)))
    signal = np.sum(np.square(wanted))
    if noise == 0:
        return math.inf
    return 10 * math.log10(signal / noise) if signal else -math.inf


def _row(
    model: QModel,
    params: Params,
    name: str,
    node: Node | None,
    value: jax.Array | QTensor,
    real: np.ndarray,
    wanted: ArrayLike,
    own: ArrayLike,
    acc: jax.Array | QTensor | None,
) -> Row:
    qparams = params["qparams"][name]
    levels = qparams.storage.levels(qparams)
    low, high, half = levels[0], levels[-1], (levels[-1] - levels[-2]) / 2
    integers = np.asarray(payload(value)).astype(np.float64)
    channels = integers.reshape(-1, integers.shape[-1] if integers.ndim > 1 else 1)
    zero_point = 0 if qparams.symmetric else int(np.rint(np.asarray(qparams.zero_point)))
    scale = float(np.asarray(qparams.scale).reshape(()))
    shift = np.mean(real.astype(np.float64) - np.asarray(wanted, np.float64))
    largest = None if acc is None else int(np.abs(np.asarray(payload(acc))).max(initial=0))
    return Row(
        tensor=name,
        op=node.op if node else "",
        location=node.location if node else None,
        dtype=qparams.storage.name,
        bits=round(float(qparams.bits)),
        sqnr=sqnr(wanted, real),
        local_sqnr=sqnr(own, real),
        saturated=_saturated_share(own, scale, low - half - zero_point, high + half - zero_point),
        zeros=float(np.mean(integers == zero_point)),
        dead=float(np.mean(channels.min(0) == channels.max(0))),
        mean_shift=float(shift) / scale,
        levels=len(np.unique(integers)),
        of_levels=len(levels),
        acc_bits=None if largest is None else largest.bit_length() + 1,
    )


def _saturated_share(wanted: ArrayLike, scale: float, low: float, high: float) -> float:
    """The share of real values that round beyond the range, whose ends are ties."""
    steps = np.asarray(wanted, np.float64) / scale
    return float(np.mean((steps < low) | (steps > high)))
