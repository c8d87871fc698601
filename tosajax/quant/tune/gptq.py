"""gptq: rounds weights one after another, each making up for the errors of those before."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tosajax.arguments.names import near
from tosajax.arguments.types import check_type
from tosajax.graph import Node
from tosajax.progress import Progress
from tosajax.quant.calibration import examples
from tosajax.quant.model.arguments import Batch
from tosajax.quant.model.recipes import Params, corrected, with_corrections
from tosajax.quant.model.room import fitted_qparams
from tosajax.quant.model.run import fake_quantized, run_floats
from tosajax.quant.qmodel import PreparedModel, QModel, prepared
from tosajax.quant.qparams import QParams
from tosajax.quant.tune.blocks import Block, Rows
from tosajax.quant.tune.walking import Walk

_BLOCK = 128  # rows that are rounded before the others follow in one product


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
    """Rounds the weights of MATMUL and CONV2D for the outputs of their layer, without gradients.

    The weights of an input are rounded together, the largest inputs first, and the weights that are
    not rounded yet move to make up for their error as well as the examples allow ("GPTQ: Accurate
    Post-Training Quantization for Generative Pre-trained Transformers", Frantar et al., 2023).
    Layers see the integers of the blocks before theirs, which are done; for blocks see
    `reconstruct`.

    Args:
      model: the model, from `prepare`, of integers.
      params: the parameters, from `calibrate`.
      batches: examples, as for `calibrate`.
      names: the names of the weights; by default all constants of MATMUL and CONV2D.
      damping: added to the mean squares of inputs, as a share of their mean; positive.
      allow_nan: takes examples with NaN or infinities.
      progress: show a bar of blocks on a terminal.

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
    chosen = _chosen_weights(model, names)
    walk = Walk(model, params, inputs)
    with Progress(len(walk.blocks), progress, unit="block") as bar:
        for block in walk.blocks:
            bar.step(block.part.graph.outputs[0])
            data = walk.data(block, params)
            layers = [layer for layer in _layers(block.part) if layer.weight in chosen]
            sums = _input_moments(block, params, layers, data)
            for layer, moments in zip(layers, sums, strict=True):
                if layer.weight in block.weights:
                    params = _with_rounded_weight(
                        model, params, layer, np.asarray(moments, np.float64), damping
                    )
            walk.advance(block, data, [block.integers(params, rows)[0] for rows in data])
            bar.update()
    return params


class _Layer(NamedTuple):
    """A product of rows by a constant: its node, its input, and the constant."""

    node: Node
    input: str
    weight: str

    def rows(self, x: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        """The factors of each column of `matrix`: (matrices, rows, inputs)."""
        if self.node.op == "MATMUL":
            return x
        _, height, width, _ = shape
        attributes = self.node.attributes
        top, bottom, left, right = attributes["pad"]
        patches = lax.conv_general_dilated_patches(
            x,
            (height, width),
            attributes["stride"],
            ((top, bottom), (left, right)),
            rhs_dilation=attributes["dilation"],
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )
        return patches.reshape(1, -1, patches.shape[-1])

    def matrix(self, values: np.ndarray) -> np.ndarray:
        """The constant as (matrices, inputs, outputs)."""
        if self.node.op == "MATMUL":
            return values
        outputs = values.shape[0]
        return values.transpose(3, 1, 2, 0).reshape(1, -1, outputs)

    def constant(self, matrix: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        """`matrix` undone."""
        if self.node.op == "MATMUL":
            return matrix
        outputs, height, width, inputs = shape
        return matrix.reshape(inputs, height, width, outputs).transpose(3, 1, 2, 0)


def _layers(model: PreparedModel) -> list[_Layer]:
    return [
        _Layer(node, *node.inputs[:2])
        for node in model.float_graph.ordered_nodes()
        if node.op in ("CONV2D", "MATMUL") and node.inputs[1] in model.weights
    ]


def _chosen_weights(model: PreparedModel, names: Sequence[str] | None) -> list[str]:
    weights = [layer.weight for layer in _layers(model)]
    if names is None:
        return weights
    check_type("names", names, list | tuple, "a list of names of tensors")
    for name in names:
        if name not in weights:
            raise ValueError(
                f"names has {name!r}, which is not a quantized weight of a CONV2D or a MATMUL"
                f"{near(name, weights)}"
            )
    return list(names)


def _input_moments(
    block: Block, params: Params, layers: Sequence[_Layer], data: Sequence[Rows]
) -> list[jax.Array]:
    """For each layer, the sums of products of its inputs: (matrices, inputs, inputs)."""
    part = block.part
    shapes = [params["values"][layer.weight].shape for layer in layers]

    @jax.jit
    def run(params: Params, data: Rows) -> list[jax.Array]:
        def of_example(*inputs: Any) -> list[jax.Array]:
            quantized: dict[str, Any] = {}

            def rounded(name: str, value: Any) -> Any:
                quantized[name] = fake_quantized(part, params, name, value)
                return quantized[name]

            run_floats(part, params, *block.real_inputs(params, inputs), rounded=rounded)
            pairs = zip(layers, shapes, strict=True)
            return [layer.rows(quantized[layer.input], shape) for layer, shape in pairs]

        rows = jax.vmap(of_example)(*data.integers)
        return [jnp.einsum("enri,enrj->nij", x, x, precision="highest") for x in rows]

    sums_by_batch = [run(params, rows) for rows in data]
    return [functools.reduce(jnp.add, sums) for sums in zip(*sums_by_batch, strict=True)]


def _with_rounded_weight(
    model: QModel, params: Params, layer: _Layer, moments: np.ndarray, damping: float
) -> Params:
    """The parameters with a weight that is rounded for these moments of its inputs."""
    values = np.asarray(corrected(params, layer.weight), np.float64)
    qparams = fitted_qparams(model.plan, params, layer.weight)
    scale = np.broadcast_to(np.asarray(qparams.scale, np.float64), values.shape)
    matrices = zip(layer.matrix(values), layer.matrix(scale), moments, strict=True)
    quantize = functools.partial(_nearest, qparams)
    rounded = [
        round_in_order(w, functools.partial(quantize, s), m, damping) for w, s, m in matrices
    ]
    constant = layer.constant(np.stack(rounded), values.shape)
    return with_corrections(params, {layer.weight: jnp.asarray(constant, jnp.float32)})


def _nearest(qparams: QParams, scale: np.ndarray, row: int, values: np.ndarray) -> np.ndarray:
    """The nearest real values of integers, of one row of weights."""
    zero_point = 0.0 if qparams.symmetric else float(np.rint(qparams.zero_point))
    low, high = (float(end) for end in qparams.grid)
    integers = np.clip(np.rint(values / scale[row]) + zero_point, low, high)
    return (integers - zero_point) * scale[row]


def round_in_order(
    weights: np.ndarray,
    quantize: Callable[[int, np.ndarray], np.ndarray],
    moments: np.ndarray,
    damping: float,
) -> np.ndarray:
    """Rounds rows of weights, the largest inputs first; the rest makes up for errors.

    Args:
      weights: float64 (inputs, outputs).
      quantize: (row number, values) -> rounded values.
      moments: float64 (inputs, inputs): sums of products of inputs.
      damping: see `gptq`.
    """
    diagonal = np.diag(moments)
    moments = moments + np.eye(len(moments)) * max(damping * diagonal.mean(), 1e-30)
    order = np.argsort(-diagonal, kind="stable")
    # Row i of the factor: how the rows after i make up for an error of row i.
    factor = np.linalg.cholesky(np.linalg.inv(moments[np.ix_(order, order)])).T
    remaining, result = weights[order].copy(), np.empty_like(weights)
    for start in range(0, len(order), _BLOCK):
        stop = min(start + _BLOCK, len(order))
        errors = np.empty_like(remaining[start:stop])
        for at in range(start, stop):
            rounded = quantize(int(order[at]), remaining[at])
            result[order[at]] = rounded
            error = (remaining[at] - rounded) / factor[at, at]
            remaining[at:stop] -= np.outer(factor[at, at:stop], error)
            errors[at - start] = error
        remaining[stop:] -= factor[start:stop, stop:].T @ errors
    return result
