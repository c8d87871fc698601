"""The noise of a model's outputs by errors of inner tensors, to first order."""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tosajax.grad.qtensor import QTensor
from tosajax.quant.model.batches import rows
from tosajax.quant.model.params import without_fixed_gradients
from tosajax.quant.model.programs import jitted
from tosajax.quant.model.recipes import Params
from tosajax.quant.model.run import run_floats

if TYPE_CHECKING:
    from tosajax.quant.qmodel import PreparedModel

_PROBES = 8  # random directions of the outputs
_AT_ONCE = 8  # examples, so that all tensors and their gradients fit into memory


def noise_of_outputs(
    model: PreparedModel,
    params: Params,
    errors: Mapping[str, np.ndarray],
    inputs: Sequence[jax.Array | QTensor],
) -> dict[str, float]:
    """The noise of the outputs, relative to their signal, by the error of each tensor alone.

    The sum over all float outputs of |J e|^2 / |y|^2, for an error e and the Jacobian J of the
    float graph, which gradients along few random directions estimate for all tensors at once; the
    mean of parts of at most 8 examples.

    Args:
      model: the model.
      params: its parameters.
      errors: real values by tensor of the float graph, of as many examples as the inputs are.
      inputs: examples, as inputs of the float graph.
    """
    graph = model.float_graph
    examples = rows(graph.input_tensors, inputs)
    count = jax.tree.leaves(examples)[0].shape[0]
    shaped = {
        name: jnp.asarray(x, jnp.float32).reshape(count, *(graph.tensors[name].shape or ()))
        for name, x in errors.items()
    }
    size = max(size for size in range(1, _AT_ONCE + 1) if count % size == 0)
    runs = [(start, seed) for start in range(0, count, size) for seed in range(_PROBES)]
    sums = dict.fromkeys(shaped, 0.0)
    for start, seed in runs:
        part = jax.tree.map(operator.itemgetter(slice(start, start + size)), (shaped, examples))
        found = jitted(model, _along_probe)(params, *part, jnp.int32(seed))
        for name, changes in found.items():
            sums[name] += float(np.square(np.asarray(changes, np.float64)).sum())
    return {name: total / len(runs) for name, total in sums.items()}


def _along_probe(
    model: PreparedModel,
    params: Params,
    errors: Mapping[str, jax.Array],
    examples: Sequence[jax.Array | QTensor],
    seed: jax.Array,
) -> dict[str, jax.Array]:
    """The change of each example's outputs along a random direction, by the error of each tensor.

    Examples are independent, so that each makes an estimate of its own.
    """
    params = without_fixed_gradients(model.plan, params)

    def outputs(added: Mapping[str, jax.Array]) -> list[jax.Array]:
        results = jax.vmap(functools.partial(_with_added, model, params))(added, *examples)
        tensors = model.float_graph.output_tensors
        return [y for y, t in zip(results, tensors, strict=True) if t.dtype.is_float]

    values, pull_back = jax.vjp(outputs, jax.tree.map(jnp.zeros_like, dict(errors)))
    keys = jax.random.split(jax.random.key(seed), len(values))
    probes = [
        jax.random.normal(key, y.shape) / jnp.maximum(jnp.linalg.norm(y.ravel()), 1e-30)
        for key, y in zip(keys, values, strict=True)
    ]
    (gradients,) = pull_back(lax.stop_gradient(probes))
    products = jax.tree.map(jnp.multiply, gradients, dict(errors))
    return {name: x.reshape(len(x), -1).sum(-1) for name, x in products.items()}


def _with_added(
    model: PreparedModel, params: Params, added: Mapping[str, jax.Array], *inputs: Any
) -> tuple[Any, ...]:
    """The outputs of the float graph, where something is added to some tensors."""
    return run_floats(
        model, params, *inputs, rounded=lambda name, x: x + added[name] if name in added else x
    )
