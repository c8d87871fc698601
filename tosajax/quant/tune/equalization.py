"""equalize, smooth: the same function in floats, of channels that round better."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import jax
import jax.numpy as jnp

from tosajax.grad.qtensor import QTensor
from tosajax.quant.calibration import known_values, real_batches, require_float_graph
from tosajax.quant.model.arguments import Batch, Numbers
from tosajax.quant.qmodel import PreparedModel, QModel
from tosajax.quant.tune.scalings import Scaling, find_scalings, largest

_Values = dict[str, jax.Array]


def equalize(
    model: QModel, *, values: Mapping[str, Numbers] | None = None, passes: int = 20
) -> _Values:
    """Cross-layer equalization: the same float function, with weights that round better.

    Each channel between two layers is scaled by the root of the ratio of its largest weights
    before and after ("Data-Free Quantization Through Weight Equalization and Bias Correction",
    Nagel et al., 2019). Layers are convolutions and MATMULs with constants, and the factors of a
    layer norm before some; between them may be biases, ReLU, pooling, changes of shape, and the
    sum of attention over values.

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
    for _ in range(passes):
        for scaling in scalings:
            first = scaling.divided[0]
            before = first.largest(scaling.size, constants[first.name])
            factors = _ratio(before, scaling.largest_behind(constants), 0.5)
            constants |= scaling.applied(factors, constants)
    return constants


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
    `equalize`, can divide them.

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
    for scaling in scalings:
        # Scalings before this one have not changed what it reads.
        read = [largest(scaling.size, r.channels, ranges[r.tensor]) for r in scaling.reads]
        activations, weights = jnp.stack(read).max(0), scaling.largest_behind(constants)
        constants |= scaling.applied(_ratio(activations, weights, strength), constants)
    return constants


def _scalings(model: PreparedModel, values: _Values) -> list[Scaling]:
    """The scalings of constants that parameters hold."""
    scalings = [s for graph in model.float_graph.walk() for s in find_scalings(graph)]
    return [s for s in scalings if all(c.name in values for c in (*s.divided, *s.multiplied))]


def _ratio(before: jax.Array, behind: jax.Array, strength: float) -> jax.Array:
    """before**strength / behind**(1 - strength); 1 where one of them is 0."""
    used = (before > 0) & (behind > 0)
    before, behind = (jnp.where(used, x, 1.0) for x in (before, behind))
    return before**strength / behind ** (1 - strength)


def _ranges(
    model: QModel,
    values: _Values,
    scalings: Sequence[Scaling],
    batches: Sequence[Sequence[jax.Array | QTensor]],
) -> dict[str, jax.Array]:
    """The largest magnitude of each index of the last axis of the tensors that scalings read."""
    names = list(dict.fromkeys(read.tensor for s in scalings for read in s.reads))
    if not names:
        return {}
    watched = model.with_outputs(*names)

    @jax.jit
    def run(values: _Values, *inputs: jax.Array) -> list[jax.Array]:
        outputs = watched.apply({"values": values}, *inputs, mode="float")
        return [jnp.abs(y).max(tuple(range(y.ndim - 1))) for y in outputs]

    maxima = [run(values, *inputs) for inputs in batches]
    each = zip(*maxima, strict=True)
    return {name: jnp.stack(ranges).max(0) for name, ranges in zip(names, each, strict=True)}
