"""equalize, smooth: the same function in floats, of channels that round better."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from tosajax import spec
from tosajax.grad.qtensor import QTensor
from tosajax.graph import Tensor
from tosajax.quant.calibration import known_values, real_batches, require_float_graph
from tosajax.quant.graphs.blocks import all_nodes, all_tensors
from tosajax.quant.model import on_host
from tosajax.quant.model.arguments import Batch, Numbers
from tosajax.quant.model.programs import jitted
from tosajax.quant.qmodel import PreparedModel, QModel
from tosajax.quant.tune.scalings import Array, Scaling, find_scalings, largest, namespace

_TINY = float(np.finfo(np.float32).tiny)
# Of a range, the least that `smooth` takes for a channel: new examples may have more in it.
_LEAST = 1 / 64

_Values = dict[str, jax.Array]


def equalize(
    model: QModel, *, values: Mapping[str, Numbers] | None = None, passes: int = 20
) -> _Values:
    """Cross-layer equalization: the same float function, with weights that round better.

    Each channel between two layers is scaled by the root of the ratio of its largest weights
    before and after ("Data-Free Quantization Through Weight Equalization and Bias Correction",
    Nagel et al., 2019). Layers are convolutions and MATMULs with constants, and the factors of a
    layer norm before some; between them may be biases, ReLU and PReLU, gates, pooling, changes of
    shape, the sum of attention over values, and sums of residuals, whose channels are scaled
    together.

    Args:
      model: the model, from `prepare`.
      values: constants of the float graph by name; by default its own.
      passes: over all pairs of layers.

    Returns:
      Values for `calibrate`.

    Raises:
      TypeError: an argument is of another type.
      ValueError: the model has no float graph; or a value has no tensor, another shape, or is NaN.

    Example:
      >>> import numpy as np
      >>> from tosajax import quant
      >>> a, b = np.float32([[1, 50], [2, 200]]), np.float32([[2], [2]])
      >>> model = quant.prepare(lambda x: (x @ a) @ b, example_args=[np.zeros((1, 2), np.float32)])
      >>> values = quant.equalize(model)
      >>> [round(np.abs(values[name]).max().item(), 3) for name in model.weights]
      [20.0, 20.0]
    """
    model = require_float_graph(model)
    constants = known_values(model, values)
    scalings = _scalings(model, constants)
    changed = _on_host(scalings, constants)
    for _ in range(passes):
        for scaling in scalings:
            before, behind = (
                largest(changed)
                for largest in (scaling.largest_divided, scaling.largest_multiplied)
            )
            changed |= scaling.applied(_ratio(before, behind, 0.5), changed)
    return constants | on_host.on_device(changed)


def smooth(
    model: QModel,
    batches: Iterable[Batch],
    *,
    values: Mapping[str, Numbers] | None = None,
    strength: float = 0.5,
    allow_nan: bool = False,
) -> _Values:
    """Moves the range of large channels of activations to the weights that read them.

    Each channel is divided by max|x| ** strength / max|w| ** (1 - strength), of its activations x
    and its weights w ("SmoothQuant: Accurate and Efficient Post-Training Quantization for Large
    Language Models", Xiao et al., 2023), wherever the factors of a layer norm, or a layer as in
    `equalize`, can divide them. Maxima are relative to those of the tensor. Activations that only
    weights with a scale for each of these channels read, as in depthwise convolutions, become
    equally large, as that costs nothing. A channel below 1/64 of the largest counts as 1/64.

    Args:
      model: the model, from `prepare`.
      batches: examples, as for `calibrate`.
      values: constants of the float graph by name; by default its own.
      strength: the exponent of activations, in [0, 1]: 0 makes the weights of all channels equally
        large, 1 the activations.
      allow_nan: takes examples with NaN or infinities.

    Returns:
      Values for `calibrate`.

    Raises:
      TypeError: an argument, or an example, is of another type.
      ValueError: the model has no float graph; a value has no tensor, another shape, or is NaN;
        the strength is out of range; or there are no examples, or one is NaN or infinite.

    Example:
      >>> import numpy as np
      >>> from tosajax import quant
      >>> a, b = np.float32([[1, 100], [2, 200]]), np.float32([[1], [2]])
      >>> example = np.float32([[-1, 1]])
      >>> model = quant.prepare(lambda x: (x @ a) @ b, example_args=[example])
      >>> values = quant.smooth(model, [example])
      >>> params = quant.calibrate(model, [example], values=values)
    """
    model = require_float_graph(model)
    constants = known_values(model, values)
    if not 0 <= strength <= 1:
        raise ValueError(f"strength is {strength}, expected a number in [0, 1]")
    scalings = _scalings(model, constants)
    inputs = real_batches(model, batches, allow_nan=allow_nan)
    ranges = _ranges(model, constants, scalings, inputs)
    free = _scaled_by_input_channel(model)
    changed = _on_host(scalings, constants)
    for scaling in scalings:
        # Scalings before this one have not changed what it reads.
        activations = _relative_range(scaling, ranges)
        weights = _relative(scaling.largest_multiplied(changed, free))
        xp = namespace(activations, weights)
        factors = _ratio(activations, weights, strength)
        alike = xp.where(activations > 0, activations, xp.ones_like(activations))
        changed |= scaling.applied(xp.where(weights > 0, factors, alike), changed)
    return constants | on_host.on_device(changed)


def _on_host(scalings: Sequence[Scaling], values: _Values) -> dict[str, Array]:
    """The constants that scalings change, as NumPy arrays where their values are known."""
    names = {c.name for s in scalings for c in (*s.divided, *s.biases, *s.multiplied)}
    chosen: dict[str, Array] = {name: values[name] for name in sorted(names)}
    if any(isinstance(value, Tracer) for value in chosen.values()):
        return chosen
    return {name: np.asarray(value) for name, value in chosen.items()}


def _relative_range(scaling: Scaling, ranges: Mapping[str, Array]) -> Array:
    """The range of each channel relative to that of its tensor, the mean of those that read it."""
    total = count = np.zeros(scaling.size, np.float32)
    for read in scaling.reads:
        own = largest(scaling.size, read.channels, _relative(ranges[read.tensor]))
        xp = namespace(own)
        total = total + xp.where(own > 0, xp.log(xp.maximum(own, _LEAST)), 0)
        count = count + (own > 0)
    xp = namespace(total)
    return xp.where(count > 0, xp.exp(total / xp.maximum(count, 1)), 0)


def _relative(each: Array) -> Array:
    return each / namespace(each).maximum(each.max(initial=0), _TINY)


def _scaled_by_input_channel(model: PreparedModel) -> set[str]:
    """The constants with a scale of their own for each channel that they read."""
    free = set()
    for node in all_nodes(model.float_graph):
        operator = spec.OPERATORS[node.op]
        if operator.is_product:
            name, axes = node.inputs[1], operator.channel_axes.inputs
            scaled = model.plan.scaled.get(name)
            if scaled is not None and {*axes} <= {*scaled.channel_axes}:
                free.add(name)
        elif node.op == "MUL":
            free.update(node.inputs[:2])
    return free


def _scalings(model: PreparedModel, values: _Values) -> list[Scaling]:
    """The scalings of constants that parameters hold."""
    is_zero = functools.partial(_is_zero, all_tensors(model.float_graph), values)
    return [
        scaling
        for graph in model.float_graph.walk()
        for scaling in find_scalings(graph, is_zero)
        if all(c.name in values for c in (*scaling.divided, *scaling.biases, *scaling.multiplied))
    ]


def _is_zero(tensors: Mapping[str, Tensor], values: _Values, name: str) -> bool:
    """Whether a constant is 0 everywhere, which the values do not change."""
    own, value = tensors[name].values, values.get(name)
    if own is None or own.any():
        return False
    return value is None or not (isinstance(value, Tracer) or np.asarray(value).any())


def _ratio(before: Array, behind: Array, strength: float) -> Array:
    """before**strength / behind**(1 - strength); 1 where one of them is 0."""
    used, xp = (before > 0) & (behind > 0), namespace(before, behind)
    before, behind = (xp.where(used, x, xp.ones_like(x)) for x in (before, behind))
    return before**strength / behind ** (1 - strength)


def _ranges(
    model: QModel,
    values: _Values,
    scalings: Sequence[Scaling],
    batches: Sequence[Sequence[jax.Array | QTensor]],
) -> dict[str, Array]:
    """The largest magnitude of each index of the last axis of the tensors that scalings read."""
    names = tuple(dict.fromkeys(read.tensor for s in scalings for read in s.reads))
    if not names:
        return {}
    run, ranges = jitted(model, _largest_of_tensors, names=names), {}
    for inputs in batches:
        for name, own in run(values, *inputs).items():
            own = own if isinstance(own, Tracer) else np.asarray(own)
            ranges[name] = namespace(own).maximum(ranges.get(name, 0), own)
    return ranges


def _largest_of_tensors(
    model: QModel, values: _Values, *inputs: jax.Array, names: Sequence[str]
) -> dict[str, jax.Array]:
    outputs = model.with_outputs(*names).apply({"values": values}, *inputs, mode="float")
    maxima = [jnp.abs(y).max(tuple(range(y.ndim - 1))) for y in outputs]
    return dict(zip(names, maxima, strict=True))
