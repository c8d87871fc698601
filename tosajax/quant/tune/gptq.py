"""gptq: rounds weights one after another, each making up for the errors of those before."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tosajax.arguments.names import near
from tosajax.arguments.types import check_type
from tosajax.graph import Node
from tosajax.progress import Progress
from tosajax.quant.calibration import examples
from tosajax.quant.model import on_host
from tosajax.quant.model.arguments import Batch
from tosajax.quant.model.batches import joined_rows, most_at_once, parts
from tosajax.quant.model.programs import jitted
from tosajax.quant.model.recipes import Params, corrected, with_corrections
from tosajax.quant.model.room import fitted_qparams
from tosajax.quant.model.run import run_floats
from tosajax.quant.qmodel import PreparedModel, QModel, prepared
from tosajax.quant.storages import Grid, zero_point_integer

_PRODUCTS = ("CONV2D", "DEPTHWISE_CONV2D", "MATMUL")
_BLOCK = 128  # rows that are rounded before the others follow in one product
_MOST_MOMENTS = 2**26  # numbers that one program sums up


def gptq(
    model: QModel,
    params: Params,
    batches: Iterable[Batch],
    *,
    names: Sequence[str] | None = None,
    damping: float = 0.01,
    allow_nan: bool = False,
    progress: bool = False,
) -> Params:
    """Rounds the weights of products for the outputs of their layer, without gradients.

    The weights of an input are rounded together, the largest inputs first, and the weights that are
    not rounded yet move to make up for their error as well as the examples allow ("GPTQ: Accurate
    Post-Training Quantization for Generative Pre-trained Transformers", Frantar et al., 2023). The
    inputs of layers are those of the float graph.

    Args:
      model: the model, from `prepare`, of integers.
      params: the parameters, from `calibrate`.
      batches: examples, as for `calibrate`.
      names: the names of the weights; by default all constants of CONV2D, DEPTHWISE_CONV2D and
        MATMUL.
      damping: added to the mean squares of inputs, as a share of their mean; positive.
      allow_nan: takes examples with NaN or infinities.
      progress: show a bar of weights on a terminal.

    Returns:
      The parameters with "corrections" of weights, which round to the chosen integers; the float
      graph keeps its own.

    Raises:
      TypeError: an argument, or an example, is of another type.
      ValueError: a name is not of such a weight; the damping is not positive; the model is of FP8,
        or has no float graph; the parameters are of another model; or there are no examples, or one
        is NaN or infinite.

    Example:
      >>> import numpy as np
      >>> from tosajax import quant
      >>> w = np.float32([[1, -2], [3, 4]])
      >>> examples = [np.float32([[-1, 1]]), np.float32([[2, 0.5]])]
      >>> model = quant.prepare(lambda x: x @ w, example_args=[examples[0]])
      >>> params = quant.gptq(model, quant.calibrate(model, examples), examples)
      >>> [name in params["corrections"] for name in model.weights]
      [True]
    """
    model = prepared(model)
    inputs = examples(model, params, batches, allow_nan=allow_nan)
    if not model.plan.is_integer:
        raise ValueError("gptq is for integers, and this model is of FP8")
    if not damping > 0:
        raise ValueError(f"damping is {damping}, expected a positive number")
    chosen = _chosen(_layers(model), names)
    if not chosen:
        return params
    numbers = functools.partial(_numbers, model, [layer.weight for layer in chosen])
    weights = on_host.evaluate(jax.jit(numbers), params)
    rounded: dict[str, np.ndarray] = {}
    with Progress(len(chosen), progress, unit="weight") as bar:
        for group in _groups(params, chosen):
            bar.step("moments of inputs")
            sums = _input_moments(model, params, tuple(layer.weight for layer in group), inputs)
            for layer, moments in zip(group, sums, strict=True):
                bar.step(layer.weight)
                own = np.asarray(moments, np.float64)
                weight = _rounded(layer, weights[layer.weight], own, damping)
                rounded[layer.weight] = weight.astype(np.float32)
                bar.update()
    return with_corrections(params, rounded)


class _Layer(NamedTuple):
    """Products of rows by one constant: the operator, the nodes, and the constant.

    A depthwise convolution has a matrix for each channel.
    """

    op: str
    nodes: tuple[Node, ...]
    weight: str

    def rows(self, node: Node, x: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        """The factors of each column of `matrices`: (matrices, rows, inputs)."""
        if self.op == "MATMUL":
            return x
        patches = _patches(node, x, self._window(shape))
        *_, channels, window = patches.shape
        if self.op == "CONV2D":
            return patches.reshape(1, -1, channels * window)
        return patches.reshape(-1, channels, window).swapaxes(0, 1)

    def matrices(self, values: np.ndarray) -> np.ndarray:
        """The constant as (matrices, inputs, outputs)."""
        if self.op == "MATMUL":
            return values
        if self.op == "CONV2D":
            outputs = values.shape[0]
            return values.transpose(3, 1, 2, 0).reshape(1, -1, outputs)
        height, width, channels, multiplier = values.shape
        return values.transpose(2, 0, 1, 3).reshape(channels, height * width, multiplier)

    def constant(self, matrices: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        """`matrices` undone."""
        if self.op == "MATMUL":
            return matrices
        if self.op == "CONV2D":
            outputs, height, width, inputs = shape
            return matrices.reshape(inputs, height, width, outputs).transpose(3, 1, 2, 0)
        height, width, channels, multiplier = shape
        return matrices.reshape(channels, height, width, multiplier).transpose(1, 2, 0, 3)

    def _window(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return shape[1:3] if self.op == "CONV2D" else shape[:2]


def _patches(node: Node, x: jax.Array, window: tuple[int, ...]) -> jax.Array:
    """What a convolution sees at each place of an image: (N, OH, OW, C, KH * KW)."""
    top, bottom, left, right = node.attributes["pad"]
    x = jnp.pad(x, ((0, 0), (top, bottom), (left, right), (0, 0)))
    axes = window, node.attributes["stride"], node.attributes["dilation"], x.shape[1:3]
    rows, columns = (
        [slice(d * at, size - d * (kernel - 1 - at), stride) for at in range(kernel)]
        for kernel, stride, d, size in zip(*axes, strict=True)
    )
    return jnp.stack([x[:, row, column] for row in rows for column in columns], -1)


def _layers(model: PreparedModel) -> dict[str, _Layer]:
    """The layers by their weights, whose moments add up where several nodes read one."""
    layers: dict[str, _Layer] = {}
    for node in model.float_graph.ordered_nodes():
        if node.op not in _PRODUCTS or node.inputs[1] not in model.weights:
            continue
        weight = node.inputs[1]
        layer = layers.get(weight, _Layer(node.op, (), weight))
        if layer.op == node.op:
            layers[weight] = layer._replace(nodes=(*layer.nodes, node))
    return layers


def _chosen(layers: dict[str, _Layer], names: Sequence[str] | None) -> list[_Layer]:
    if names is None:
        return list(layers.values())
    check_type("names", names, list | tuple, "a list of names of tensors")
    for name in names:
        if name not in layers:
            raise ValueError(
                f"names has {name!r}, which is not a quantized weight of {', '.join(_PRODUCTS)}"
                f"{near(name, layers)}"
            )
    return [layers[name] for name in dict.fromkeys(names)]


def _groups(params: Params, layers: Sequence[_Layer]) -> Iterator[list[_Layer]]:
    """The layers in parts whose moments fit into memory."""
    group, total = [], 0
    for layer in layers:
        count, inputs, _ = layer.matrices(np.empty(params["values"][layer.weight].shape)).shape
        size = count * inputs**2
        if group and total + size > _MOST_MOMENTS:
            yield group
            group, total = [], 0
        group.append(layer)
        total += size
    if group:
        yield group


def _input_moments(
    model: PreparedModel,
    params: Params,
    names: tuple[str, ...],
    batches: Sequence[Sequence[Any]],
) -> list[np.ndarray]:
    """For each weight, the sums of products of its inputs: (matrices, inputs, inputs)."""
    joined = joined_rows(model.float_graph.input_tensors, batches)
    example = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), joined)
    largest = jax.eval_shape(jitted(model, _input_rows, names=names), params, *example)
    most = max(x.size for x in jax.tree.leaves(largest))
    run = jitted(model, _sums_of_moments, names=names)
    sums = [run(params, *part) for part in parts(joined, most_at_once(most))]
    return [functools.reduce(np.add, map(np.asarray, each)) for each in zip(*sums, strict=True)]


def _sums_of_moments(
    model: PreparedModel, params: Params, *examples: Any, names: Sequence[str]
) -> list[jax.Array]:
    rows = functools.partial(_input_rows, model, params, names=names)
    return [functools.reduce(jnp.add, map(_moments, each)) for each in jax.vmap(rows)(*examples)]


def _input_rows(
    model: PreparedModel, params: Params, *example: Any, names: Sequence[str]
) -> list[list[jax.Array]]:
    """For each weight, what each of its layers reads of an example: (matrices, rows, inputs)."""
    layers, values = _layers(model), {}

    def kept(name: str, value: Any) -> Any:
        return values.setdefault(name, value)

    run_floats(model, params, *example, rounded=kept)
    each = [(layers[name], params["values"][name].shape) for name in names]
    return [[layer.rows(n, values[n.inputs[0]], s) for n in layer.nodes] for layer, s in each]


def _moments(rows: jax.Array) -> jax.Array:
    """Sums over examples and rows: (examples, n, rows, inputs) -> (n, inputs, inputs)."""
    return jnp.einsum("enri,enrj->nij", rows, rows, precision="highest")


class _Numbers(NamedTuple):
    """What the integers of a weight stand for."""

    values: Any
    scale: Any
    zero_point: Any
    grid: Grid


def _numbers(model: QModel, names: Sequence[str], params: Params) -> dict[str, _Numbers]:
    numbers = {}
    for name in names:
        qparams = fitted_qparams(model.plan, params, name)
        zero_point = zero_point_integer(qparams).q
        numbers[name] = _Numbers(corrected(params, name), qparams.scale, zero_point, qparams.grid)
    return numbers


def _rounded(layer: _Layer, numbers: _Numbers, moments: np.ndarray, damping: float) -> np.ndarray:
    """The values of a weight, rounded for these moments of its inputs."""
    values = numbers.values.astype(np.float64)
    scales = np.broadcast_to(numbers.scale.astype(np.float64), values.shape)
    zero_point, (low, high) = float(numbers.zero_point), map(float, numbers.grid)

    def nearest(values: np.ndarray, scales: np.ndarray) -> np.ndarray:
        return (np.clip(np.rint(values / scales) + zero_point, low, high) - zero_point) * scales

    matrices = layer.matrices(values), layer.matrices(scales)
    rounded = round_in_order(*matrices, nearest, moments, damping)
    return layer.constant(rounded, values.shape)


def round_in_order(
    weights: np.ndarray,
    scales: np.ndarray,
    nearest: Callable[[np.ndarray, np.ndarray], np.ndarray],
    moments: np.ndarray,
    damping: float,
) -> np.ndarray:
    """Rounds rows of weights, the largest inputs first; the rest makes up for errors.

    Args:
      weights: float64 (matrices, inputs, outputs).
      scales: of the weights, in the same shape.
      nearest: (values, scales) -> the nearest real values of integers.
      moments: float64 (matrices, inputs, inputs): sums of products of inputs.
      damping: see `gptq`.
    """
    diagonal = np.diagonal(moments, axis1=1, axis2=2)
    order = np.argsort(-diagonal, axis=1, kind="stable")
    each = np.arange(len(moments))[:, None]
    count = order.shape[1]
    # Above 0, so that there is an inverse where all examples are 0.
    added = np.maximum(damping * diagonal.mean(1), 1e-30)[:, None, None] * np.eye(count)
    ordered = (moments + added)[each[:, :, None], order[:, :, None], order[:, None, :]]
    # Row i of a factor: how the rows after i make up for an error of row i.
    factors = np.linalg.cholesky(np.linalg.inv(ordered)).swapaxes(1, 2)
    remaining, scales = weights[each, order], scales[each, order]
    rounded = np.empty_like(remaining)
    for start in range(0, count, _BLOCK):
        stop = min(start + _BLOCK, count)
        errors = np.empty_like(remaining[:, start:stop])
        for at in range(start, stop):
            rounded[:, at] = nearest(remaining[:, at], scales[:, at])
            error = (remaining[:, at] - rounded[:, at]) / factors[:, at, at, None]
            remaining[:, at:stop] -= factors[:, at, at:stop, None] * error[:, None]
            errors[:, at - start] = error
        remaining[:, stop:] -= factors[:, start:stop, stop:].swapaxes(1, 2) @ errors
    result = np.empty_like(rounded)
    result[each, order] = rounded
    return result
