"""bias_correct: biases that make up for the mean error of quantization."""

from __future__ import annotations

from collections.abc import Iterable

import jax
import jax.numpy as jnp

from tosajax.grad.qtensor import QTensor, tie
from tosajax.graph import Node
from tosajax.quant.arguments import Batch
from tosajax.quant.blocks import all_nodes
from tosajax.quant.calibration import examples
from tosajax.quant.channels import on_last_axis
from tosajax.quant.model import QModel
from tosajax.quant.recipes import Bias, Params, corrected, with_corrections
from tosajax.report import UnsupportedError


def bias_correct(
    model: QModel, params: Params, batches: Iterable[Batch], *, allow_nan: bool = False
) -> Params:
    """Moves each bias by the mean error of its channel, layer after layer.

    Each layer is measured with the layers before it corrected, so that the examples run once for
    each layer.

    Args:
      model: from `prepare`.
      params: from `calibrate`.
      batches: examples, as for `calibrate`.
      allow_nan: takes examples with NaN or infinities.

    Returns:
      The parameters with "corrections" of biases; the float graph keeps its own.

    Raises:
      TypeError: an argument, or an example, is of another type.
      UnsupportedError: a bias is inside a loop or a branch.
      ValueError: a model of FP8, whose sums are floats, or without a float graph; the parameters
        are of another model; or there are no examples, or one is NaN or infinite.
    """
    batches = examples(model, params, batches, allow_nan=allow_nan)
    if not model.plan.is_integer:
        raise ValueError("bias_correct is for sums of integers, and those of this model are floats")
    for node, recipe in _biased(model):
        error = _mean_error(model, params, node.outputs[0], recipe, batches)
        moved = corrected(params, recipe.tensor) - error
        params = with_corrections(params, {recipe.tensor: moved})
    return params


def _biased(model: QModel) -> list[tuple[Node, Bias]]:
    """The nodes that add a bias of their own, in order, with its recipe."""
    assert model.float_graph is not None
    found = []
    for node in all_nodes(model.float_graph):
        recipe = model.recipes.get(f"{node.outputs[0]}/bias") if node.outputs else None
        if not isinstance(recipe, Bias):
            continue
        if node.outputs[0] not in model.float_graph.tensors:
            raise UnsupportedError(
                f"{node.title} is inside a loop or a branch, where biases are not corrected"
            )
        found.append((node, recipe))
    return found


def _mean_error(
    model: QModel,
    params: Params,
    name: str,
    recipe: Bias,
    batches: list[tuple[jax.Array | QTensor, ...]],
) -> jax.Array:
    """Mean error of the accumulator against the float graph, per channel or value of the bias."""
    integers = model.with_outputs(f"{name}/acc")
    floats = model.with_outputs(name)

    @jax.jit
    def error(params: Params, *inputs: jax.Array) -> jax.Array:
        (acc,) = integers.integers(params, *inputs)
        (wanted,) = floats.apply(params, *inputs, mode="float")
        if name in model.plan.norms:  # the bias is added before its factor
            wanted = wanted / on_last_axis(params["norms"][name].factor, wanted.ndim)
        unit = recipe.scale(params)
        found = tie(acc) * unit.reshape((1,) * (len(acc.shape) - 1) + (-1,))
        difference = found - wanted
        if recipe.shape is None:
            return difference.mean(tuple(range(wanted.ndim - 1)))
        shape = params["values"][recipe.tensor].shape
        if difference.ndim > len(shape):  # of a batch in front
            difference = difference.mean(0)
        axes = tuple(axis for axis, size in enumerate(shape) if size == 1)
        return difference.mean(axes, keepdims=True)

    errors = [error(params, *batch) for batch in batches]
    return jnp.stack(errors).mean(0)
