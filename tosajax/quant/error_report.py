"""report: the errors of quantization in every tensor, and what the outputs lose by each."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

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
from tosajax.quant.model.output_noise import noise_of_outputs
from tosajax.quant.model.programs import jitted
from tosajax.quant.model.recipes import Params, corrected
from tosajax.quant.model.room import fitted_qparams, least_scale
from tosajax.quant.qmodel import PreparedModel, QModel, prepared
from tosajax.quant.qparams import real_ends
from tosajax.quant.ranges.mask_ranges import is_masked

_SHOWN = 8  # channels in a text
_ALIKE = 1 + 2.0**-10  # scales that differ by less
_FAR = 10.0  # dB by which a part is worse than the whole


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
      output_sqnr: SQNR in dB of the network's outputs, if the error of this operator were the only
        one: to first order, the noise of all outputs relative to each one's signal.
      part: the part of the tensor with the least local SQNR, such as "channel 3" along the last
        axis or "2 of axis 1", where it is far below that of the whole; else "".
      part_sqnr: its local SQNR, in dB; where there is none that of the whole.
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
      ...     local_sqnr=45.0, output_sqnr=42.0, part="", part_sqnr=45.0, saturated=0.0,
      ...     zeros=0.0, dead=0.0, mean_shift=0.0, levels=200, of_levels=256, acc_bits=None,
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
    output_sqnr: float
    part: str
    part_sqnr: float
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
      ...     local_sqnr=45.0, output_sqnr=42.0, part="", part_sqnr=45.0, saturated=0.0,
      ...     zeros=0.0, dead=0.0, mean_shift=0.0, levels=200, of_levels=256, acc_bits=None,
      ... )
      >>> quant.QuantReport((row,))
      QuantReport(1 tensor, worst: ADD 'y', outputs 42.0 dB by it alone)
    """

    rows: tuple[Row, ...]
    widened: tuple[WidenedScale, ...] = ()

    @property
    def worst(self) -> Row:
        """The tensor by whose own error the outputs lose most."""
        computed = [r for r in self.rows if r.op]
        return min(computed or self.rows, key=lambda r: (r.output_sqnr, r.local_sqnr))

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
        return f"{title}, {_loss(worst)}"

    def __str__(self) -> str:
        """A table, the worst layer, and channels whose scales grew."""
        head = (
            f"{'tensor':36} {'operator':16} type     bits   SQNR  local  output  sat %  dead %"
            "  levels  acc"
        )
        lines = [head, *map(_line, self.rows)]
        worst = self.worst
        place = f" ({_short_location(worst.location)})" if worst.location else ""
        node = f"{worst.op or 'input'} {worst.tensor!r}{place}"
        text = f"worst: {node}, {_loss(worst)}"
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


def _loss(row: Row) -> str:
    """What the outputs lose by a tensor, and by which part of it."""
    part = f"; {row.part}: {row.part_sqnr:.1f} dB by itself" if row.part else ""
    return f"outputs {row.output_sqnr:.1f} dB by it alone{part}"


def _line(row: Row) -> str:
    name = row.tensor if len(row.tensor) <= 36 else f"...{row.tensor[-33:]}"
    acc = "" if row.acc_bits is None else row.acc_bits
    return (
        f"{name:36} {row.op or 'input':16} {row.dtype:8} {row.bits:4} {row.sqnr:6.1f} "
        f"{row.local_sqnr:6.1f} {row.output_sqnr:7.1f} {100 * row.saturated:6.2f} "
        f"{100 * row.dead:7.1f} {row.levels:>4}/{row.of_levels:<5} {acc:>3}"
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
    with Progress(4, progress, unit="program") as bar:
        values = _values(model, params, inputs, names, bar)
    nodes = _producers(model)
    rows = [_row(model, params, name, nodes.get(name), values[name]) for name in names]
    return QuantReport(tuple(rows), widened_scales(model, params))


def _producers(model: PreparedModel) -> dict[str, Node]:
    return {name: node for node in model.float_graph.nodes for name in node.outputs}


class _Values(NamedTuple):
    """A tensor: its stored values, and real ones of the integers and in floats.

    Args:
      stored: the integers.
      real: their real values.
      wanted: the values of the float graph.
      own: those of its operator in floats, on the operands of the integer graph.
      acc: the accumulator before it.
      noise: of the outputs by its own error, relative to their signal.
    """

    stored: jax.Array | QTensor
    real: np.ndarray
    wanted: np.ndarray
    own: np.ndarray
    acc: jax.Array | QTensor | None
    noise: float = 0


def _values(
    model: PreparedModel,
    params: Params,
    inputs: Sequence[jax.Array | QTensor],
    names: Sequence[str],
    bar: Progress,
) -> dict[str, _Values]:
    """The values of tensors by name."""
    accumulators = {n: acc for n in names if (acc := accumulator(model.graph, n)) is not None}
    stored = {name: model.plan.stored[name] for name in names}
    outputs = dict.fromkeys((*names, *stored.values(), *accumulators.values()))
    watched, exact = model.with_outputs(*outputs), model.with_outputs(*names)
    bar.step("compiling integers")
    integers = dict(zip(outputs, jax.jit(watched.integers)(params, *inputs), strict=True))
    bar.update()
    bar.step("compiling floats")
    floats = jax.jit(lambda p, *x: exact.apply(p, *x, mode="float"))(params, *inputs)
    bar.update()
    bar.step("compiling operators")
    # In a graph of FP32, the tensor that is rounded is there as it was.
    is_integer = model.plan.is_integer
    local: Mapping[str, Any] = jax.jit(exact.local)(params, *inputs) if is_integer else integers
    bar.update()
    values = {}
    for name, wanted in zip(names, map(np.asarray, floats), strict=True):
        real = np.asarray(model.real(params, stored[name], integers[stored[name]]))
        own = np.asarray(local.get(name, wanted))
        if model.plan.scaled[name].mask_axis is not None:
            # No error is made in masked elements.
            mask = is_masked(wanted)
            wanted, own = (np.where(mask, real, x) for x in (wanted, own))
        if name in model.plan.limited:
            # Nor where values saturate beyond which functions do not change.
            low, high = map(float, real_ends(params["qparams"][name]))
            wanted, own = (np.clip(x, low, high) for x in (wanted, own))
        acc = integers.get(accumulators.get(name, ""))
        values[name] = _Values(integers[stored[name]], real, wanted, own, acc)
    bar.step("compiling gradients")
    noises = noise_of_outputs(model, params, _errors(model, values), inputs)
    bar.update()
    return {name: each._replace(noise=noises[name]) for name, each in values.items()}


def _errors(model: PreparedModel, values: Mapping[str, _Values]) -> dict[str, np.ndarray]:
    """The error of each operator, and of the rounding of each input."""
    computed = _producers(model)
    return {n: x.real - (x.own if n in computed else x.wanted) for n, x in values.items()}


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
    model: PreparedModel, params: Params, name: str, node: Node | None, values: _Values
) -> Row:
    qparams = params["qparams"][name]
    levels = qparams.storage.levels(qparams)
    low, high, half = levels[0], levels[-1], (levels[-1] - levels[-2]) / 2
    stored, real, wanted, own, acc, noise = values
    integers = np.asarray(payload(stored)).astype(np.float64)
    channels = integers.reshape(-1, integers.shape[-1] if integers.ndim > 1 else 1)
    zero_point = 0 if qparams.symmetric else int(np.rint(np.asarray(qparams.zero_point)))
    scale = float(np.asarray(qparams.scale).reshape(()))
    shift = np.mean(real.astype(np.float64) - wanted.astype(np.float64))
    largest = None if acc is None else int(np.abs(np.asarray(payload(acc))).max(initial=0))
    whole = sqnr(own, real)
    part, part_sqnr = worst_part(own, real, model.float_graph.tensors[name].shape or ())
    if part_sqnr > whole - _FAR:
        part, part_sqnr = "", whole
    return Row(
        tensor=name,
        op=node.op if node else "",
        location=node.location if node else None,
        dtype=qparams.storage.name,
        bits=round(float(qparams.bits)),
        sqnr=sqnr(wanted, real),
        local_sqnr=whole,
        output_sqnr=-10 * math.log10(noise) if noise else math.inf,
        part=part,
        part_sqnr=part_sqnr,
        saturated=_saturated_share(own, scale, low - half - zero_point, high + half - zero_point),
        zeros=float(np.mean(integers == zero_point)),
        dead=float(np.mean(channels.min(0) == channels.max(0))),
        mean_shift=float(shift) / scale,
        levels=len(np.unique(integers)),
        of_levels=len(levels),
        acc_bits=None if largest is None else largest.bit_length() + 1,
    )


def worst_part(wanted: np.ndarray, actual: np.ndarray, shape: Sequence[int]) -> tuple[str, float]:
    """The part of a tensor with the least SQNR, along one axis, and this SQNR.

    Args:
      wanted: the values of one example or of several.
      actual: the same with noise.
      shape: of one example.
    """
    signal, noise = (
        np.square(x, dtype=np.float64).reshape(-1, *shape) for x in (wanted, wanted - actual)
    )
    worst, last = ("", math.inf), len(shape) - 1
    for axis in (axis for axis in range(last, -1, -1) if shape[axis] > 1):
        others = tuple(i for i in range(len(shape) + 1) if i != axis + 1)
        signals, noises = signal.sum(others), noise.sum(others)
        ratios = np.divide(signals, noises, out=np.full(signals.shape, math.inf), where=noises > 0)
        index = int(ratios.argmin())
        ratio = float(ratios[index])
        decibels = 10 * math.log10(ratio) if ratio else -math.inf
        if decibels < worst[1]:
            worst = f"channel {index}" if axis == last else f"{index} of axis {axis}", decibels
    return worst


def _saturated_share(wanted: ArrayLike, scale: float, low: float, high: float) -> float:
    """The share of real values that round beyond the range, whose ends are ties."""
    steps = np.asarray(wanted, np.float64) / scale
    return float(np.mean((steps < low) | (steps > high)))
