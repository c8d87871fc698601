"""bias_correct: biases that make up for the mean error of quantization."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from tosajax.grad.qtensor import QTensor, tie
from tosajax.graph import Node
from tosajax.quant.calibration import examples
from tosajax.quant.graphs.blocks import all_nodes
from tosajax.quant.model.arguments import Batch
from tosajax.quant.model.recipes import Bias, Params, corrected, with_corrections
from tosajax.quant.model.room import fitted
from tosajax.quant.qmodel import PreparedModel, QModel, prepared
from tosajax.quant.ranges.channels import on_last_axis
from tosajax.report import UnsupportedError


def bias_correct(
    model: QModel, params: Params, batches: Iterable[Batch], *, allow_nan: bool = False
) -> Params:
    """Moves each bias by the mean error of its channel, layer after layer.

    Convolutions and MATMULs have biases, as have ADDs of a constant to a tensor, for instance in
    a layer norm, whose own steps limit how well they correct. Each layer is measured with the
    layers before it corrected, so that the examples run once for each layer.

    Args:
      model: the model, from `prepare`.
      params: the parameters, from `calibrate`.
      batches: examples, as for `calibrate`.
      allow_nan: takes examples with NaN or infinities.

    Returns:
      The parameters with "corrections" of biases; the float graph keeps its own.

    Raises:
      TypeError: an argument, or an example, is of another type.
      UnsupportedError: a bias is inside a loop or a branch.
      ValueError: a model of FP8, whose sums are floats, or without a float graph; the parameters
        are of another model; or there are no examples, or one is NaN or infinite.

    Example:
      >>> import numpy as np
      >>> from tosajax import quant
      >>> w, example = np.float32([[1, -2], [3, 4]]), np.float32([[-1, 1]])
      >>> model = quant.prepare(lambda x: x @ w, example_args=[example])
      >>> params = quant.bias_correct(model, quant.calibrate(model, [example]), [example])
      >>> [correction.shape for correction in params["corrections"].values()]
      [(2,)]
    """
    model = prepared(model)
    batches = examples(model, params, batches, allow_nan=allow_nan)
    if not model.plan.is_integer:
        raise ValueError("bias_correct is for sums of integers, and those of this model are floats")
    for added in _corrected_biases(model):
        error = _mean_error(model, params, added, batches)
        moved = corrected(params, added.tensor) - error
        params = with_corrections(params, {added.tensor: moved})
    return params


class _Added(NamedTuple):
    """A constant that is added to a tensor.

    Args:
      output: the sum, in the float graph.
      tensor: the constant.
      recipe: the recipe of a bias in the unit of an accumulator; None for a constant with a scale
        of its own.
    """

    output: str
    tensor: str
    recipe: Bias | None


def _corrected_biases(model: PreparedModel) -> list[_Added]:
    """The biases, in order."""
    biases = []
    for node in all_nodes(model.float_graph):
        added = _bias_of(model, node)
        if added is None:
            continue
        if added.output not in model.float_graph.tensors:
            raise UnsupportedError(
                f"{node.title} is inside a loop or a branch, where biases are not corrected"
            )
        biases.append(added)
    return biases


def _bias_of(model: PreparedModel, node: Node) -> _Added | None:
    if not node.outputs:
        return None
    (output, *_) = node.outputs
    recipe = model.plan.recipes.get(f"{output}/bias")
    if isinstance(recipe, Bias):
        return _Added(output, recipe.tensor, recipe)
    constants = [name for name in node.inputs if name in model.weights]
    if node.op == "ADD" and len(constants) == 1 and output in model.owners:
        return _Added(output, constants[0], None)
    return None


def _mean_error(
    model: QModel,
    params: Params,
    added: _Added,
    batches: list[tuple[jax.Array | QTensor, ...]],
) -> jax.Array:
    """Mean error of the sum against the float graph, per channel or value of the constant."""
    name, tensor, recipe = added
    integers = model.with_outputs(name if recipe is None else f"{name}/acc")
    floats = model.with_outputs(name)

    @jax.jit
    def error(params: Params, *inputs: jax.Array) -> jax.Array:
        (actual,) = integers.integers(params, *inputs)
        (wanted,) = floats.apply(params, *inputs, mode="float")
        if recipe is None:
            return _mean_by_value(
                integers.real(params, name, actual) - wanted, params["values"][tensor]
            )
        if name in model.plan.norms:  # the bias is added before its factor
            wanted = wanted / on_last_axis(params["norms"][name].factor, wanted.ndim)
        difference = (
            tie(actual) * on_last_axis(recipe.scale(fitted(model.plan, params)), wanted.ndim)
            - wanted
        )
        if recipe.shape is None:
            return difference.mean(tuple(range(wanted.ndim - 1)))
        return _mean_by_value(difference, params["values"][tensor])

    errors = [error(params, *batch) for batch in batches]
    return jnp.stack(errors).mean(0)


def _mean_by_value(difference: jax.Array, constant: jax.Array) -> jax.Array:
    """The mean of the differences that each value of a constant is added to, in its shape."""
    if difference.ndim > constant.ndim:  # of a batch in front
        difference = difference.mean(0)
    axes = tuple(axis for axis, size in enumerate(constant.shape) if size == 1)
    return difference.mean(axes, keepdims=True)
