"""bias_correct: biases that make up for the mean error of quantization."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import lax

from tosajax.fixedpoint import _x64
from tosajax.grad.qtensor import QTensor, tie
from tosajax.graph import Node
from tosajax.quant.calibration import examples
from tosajax.quant.graphs.blocks import all_nodes
from tosajax.quant.model.arguments import Batch
from tosajax.quant.model.batches import examples_at_once, joined_rows, parts
from tosajax.quant.model.norms import EXAMPLES
from tosajax.quant.model.recipes import Bias, Params, Weight, corrected, with_corrections
from tosajax.quant.model.room import fitted
from tosajax.quant.model.run import (
    computed_constants,
    input_integers,
    run_floats,
    run_integers,
    with_computed,
)
from tosajax.quant.qmodel import PreparedModel, QModel, prepared
from tosajax.quant.qparams import quantize
from tosajax.quant.ranges.channels import on_last_axis
from tosajax.report import UnsupportedError

# Fewer would have each bias make up for what is peculiar to them, and hide that from later ones.
_FEWEST_EXAMPLES = 4


def bias_correct(
    model: QModel, params: Params, batches: Iterable[Batch], *, allow_nan: bool = False
) -> Params:
    """Moves each bias by the mean error of its channel, layer after layer.

    Convolutions and MATMULs have biases, as have ADDs of a constant to a tensor, for instance in
    a layer norm, whose own steps limit how well they correct. A bias that several add stays as it
    is. Each layer is measured with the
    layers before it corrected, in one run of all examples, or of as many at once as fit into
    memory; the mean of such runs counts.

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
    added = _corrected_biases(model)
    if not added:
        return params
    watched = model.with_outputs(*(each.output for each in added))
    computed = computed_constants(model, params)
    run = jax.jit(functools.partial(_moved_biases, model, watched, added))
    joined = joined_rows(model.float_graph.input_tensors, batches)
    count = max(_FEWEST_EXAMPLES, examples_at_once(model.float_graph))
    each = parts(joined, count)
    moved = [jax.tree.map(np.asarray, run(params, computed, *part)) for part in each]
    counts = [jax.tree.leaves(part)[0].shape[0] for part in each]
    mean = {n: np.average([biases[n] for biases in moved], 0, counts) for n in moved[0]}
    return with_corrections(params, {n: x.astype(np.float32) for n, x in mean.items()})


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

    @property
    def label(self) -> str:
        """The name of the sum in the integer graph, before it is rescaled where that is known."""
        return self.output if self.recipe is None else f"{self.output}/acc"


def _corrected_biases(model: PreparedModel) -> list[_Added]:
    """The biases, in order."""
    biases, nodes = [], all_nodes(model.float_graph)
    users = Counter(name for node in nodes for name in node.inputs)
    for node in nodes:
        added = _bias_of(model, node)
        if added is None or users[added.tensor] > 1:
            continue  # no value suits several sums
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


def _moved_biases(
    model: PreparedModel,
    watched: PreparedModel,
    added: Sequence[_Added],
    params: Params,
    computed: Mapping[str, Any],
    *examples: Any,
) -> dict[str, jax.Array]:
    """The biases that take away the mean errors of some examples, by constant.

    Args:
      model: the model.
      watched: the model with the sums as its outputs.
      added: the sums, in order.
      params: the parameters.
      computed: the constants of the integer graph, from `computed_constants`.
      examples: the inputs, with an axis of examples in front.
    """

    def of_example(*inputs: Any) -> dict[str, jax.Array]:
        sums = run_floats(watched, params, *inputs)
        wanted = dict(zip(watched.float_graph.outputs, sums, strict=True))
        correction = _Correction(model, params, wanted, added)
        constants = with_computed(model, params, computed)
        integers = input_integers(model, params, *inputs)
        run_integers(model, constants, *integers, amend=correction)
        return correction.biases

    moved = jax.vmap(of_example, axis_name=EXAMPLES)(*examples)
    return jax.tree.map(lambda x: x[0], moved)  # the same in each example


class _Correction:
    """Corrects the sums of a run, in order; the run is of one example of the axis `EXAMPLES`.

    Args:
      model, params: of the run.
      wanted: the sums in floats, by name.
      added: the sums to correct.
    """

    def __init__(
        self,
        model: PreparedModel,
        params: Params,
        wanted: Mapping[str, jax.Array],
        added: Sequence[_Added],
    ) -> None:
        self.model, self.wanted = model, wanted
        self.params = {**params, "qparams": fitted(model.plan, params)["qparams"]}
        self.biases: dict[str, jax.Array] = {}
        self._added = {each.label: each for each in added}

    def __call__(self, name: str, value: Any) -> dict[str, Any]:
        """The sum of a name with its corrected bias; other values as they are."""
        if name not in self._added:
            return {name: value}
        output, tensor, recipe = added = self._added[name]
        params = self._with(self.biases)
        error = self._mean_error(added, value)
        moved = corrected(params, tensor) - error
        changed = self._with({tensor: moved})
        self.biases[tensor] = moved
        if recipe is None:
            real = self.model.real(params, output, value)
            constant = Weight(tensor)
            shift = self.model.real(changed, tensor, constant(changed)) - self.model.real(
                params, tensor, constant(params)
            )
            owner = self.params["qparams"][self.model.owners[output]]
            return {name: quantize(real + shift, owner)}
        return {name: _with_bias(value, recipe(changed).q - recipe(params).q)}

    def _with(self, biases: Mapping[str, jax.Array]) -> Params:
        return with_corrections(self.params, biases)

    def _mean_error(self, added: _Added, value: QTensor) -> jax.Array:
        """The mean error of a sum, by value of the constant."""
        output, tensor, recipe = added
        wanted, constant = self.wanted[output], self.params["values"][tensor]
        if recipe is None:
            difference = self.model.real(self.params, output, value) - wanted
            return lax.pmean(_mean_by_value(difference, constant), EXAMPLES)
        if output in self.model.plan.norms:  # the bias is added before its factor
            wanted = wanted / on_last_axis(self.params["norms"][output].factor, wanted.ndim)
        unit = on_last_axis(recipe.scale(self.params), wanted.ndim)
        difference = tie(value) * unit - wanted
        if recipe.shape is None:
            axes = tuple(range(wanted.ndim - (constant.size > 1)))
            return lax.pmean(difference.mean(axes), EXAMPLES).reshape(constant.shape)
        return lax.pmean(_mean_by_value(difference, constant), EXAMPLES)


def _with_bias(acc: QTensor, more: jax.Array) -> QTensor:
    """An accumulator, channels last, of another bias."""
    with _x64.scope_of(acc.q.dtype):
        return QTensor.of(acc.q + more.reshape((1,) * (acc.q.ndim - more.ndim) + more.shape))


def _mean_by_value(difference: jax.Array, constant: jax.Array) -> jax.Array:
    """The mean of the differences that each value of a constant is added to, in its shape."""
    axes = tuple(axis for axis, size in enumerate(constant.shape) if size == 1)
    return difference.mean(axes, keepdims=True)
