"""reconstruct: rounds the weights of a model block by block, each for the outputs of its block."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from tosajax.arguments.types import count
from tosajax.progress import Progress
from tosajax.quant.calibration import examples
from tosajax.quant.model.arguments import Batch
from tosajax.quant.model.batches import as_given, rows
from tosajax.quant.model.recipes import Params
from tosajax.quant.model.run import run_floats
from tosajax.quant.qmodel import PreparedModel, QModel, prepared
from tosajax.quant.training.losses import of_outputs
from tosajax.quant.training.steps import import_optax, relative
from tosajax.quant.tune.blocks import Block, Learning
from tosajax.quant.tune.sensitivities import Loss
from tosajax.quant.tune.walking import Importance, Walk

if TYPE_CHECKING:
    import optax


def reconstruct(
    model: QModel,
    params: Params,
    batches: Iterable[Batch],
    *,
    ends: Sequence[str] | None = None,
    steps: int = 400,
    drop: float = 0.0,
    regularizer: float = 0.0,
    loss: Loss | None = None,
    optimizer: optax.GradientTransformation | None = None,
    seed: int = 0,
    allow_nan: bool = False,
    progress: bool = False,
) -> Params:
    """Chooses for each weight the integer below or above, and scales, block by block.

    Each block reads the integers of the blocks before it, which are done, and learns the outputs
    that it has in floats, so that errors of blocks do not add up. A block that
    would be worse on integers than before stays as it was. It follows "Up or Down? Adaptive
    Rounding for Post-Training Quantization" (Nagel et al., 2020), "BRECQ: Pushing the Limit of
    Post-Training Quantization by Block Reconstruction" (Li et al., 2021), and "QDrop: Randomly
    Dropping Quantization for Extremely Low-bit Post-Training Quantization" (Wei et al., 2022).

    A weight is at one of its two integers from the first step on, with the gradient of a soft
    step between them: some hundred steps are enough. With a `regularizer` it moves between the two
    and is drawn to one, as AdaRound has it, which takes thousands. Needs
    `pip install 'tosajax[train]'`; no labels.

    Args:
      model: the model, from `prepare`, of integers.
      params: the parameters, from `calibrate`.
      batches: examples, as for `calibrate`; used in turn. The values of one tensor between blocks
        are held for all of them.
      ends: the last tensors of blocks, in order. By default each tensor that all of the graph
        after it depends on alone ends one with weights: a residual block, or a layer of a chain.
      steps: the steps of the optimizer, for each block, one batch each.
      drop: the share of activations that are not rounded while a block learns, in [0, 1); of QDrop,
        which has 0.5.
      regularizer: how strongly weights are drawn to integers, beside an error that is 1 at the
        start; 0: they are at integers.
      loss: the loss of the outputs of `QModel.apply`: elements of the outputs of a block count by
        the square of its gradient, in floats, as in BRECQ. By default all count alike.
      optimizer: an optimizer of optax for the rounding, and for scales and zero points as
        `relative` gives them; Adam by default, with rates that fall from 0.03, and from 0.003 for
        scales, to 0.
      seed: the seed of the choice of dropped activations.
      allow_nan: takes examples with NaN or infinities.
      progress: show a bar of blocks on a terminal.

    Returns:
      The parameters with "corrections" of weights, which round to the chosen integers, and with
      new scales and zero points of activations; the float graph keeps its own.

    Raises:
      ImportError: optax is not installed.
      TypeError: an argument, or an example, is of another type.
      ValueError: a number is out of range; an end is not a tensor that blocks may end in; the model
        is of FP8, or has no float graph; the parameters are of another model; or there are no
        examples, or one is NaN or infinite.

    Example:
      >>> import numpy as np
      >>> from tosajax import quant
      >>> w, example = np.float32([[1, -2], [3, 4]]), np.float32([[-1, 1]])
      >>> model = quant.prepare(lambda x: x @ w, example_args=[example])
      >>> params = quant.calibrate(model, [example])
      >>> params = quant.reconstruct(model, params, [example], steps=1)
    """
    optax = import_optax()
    model = prepared(model)
    inputs = examples(model, params, batches, allow_nan=allow_nan)
    _check(model, steps, drop, regularizer)
    chosen = _default_optimizer(optax, steps) if optimizer is None else optimizer
    learning = Learning(steps, drop, regularizer, chosen, seed)
    walk = Walk(model, params, inputs, ends)
    importance = None
    if loss is not None:
        importance = _importance(model, walk.blocks, of_outputs(loss), inputs, params)
    with Progress(len(walk.blocks), progress, unit="block") as bar:
        for block in walk.blocks:
            bar.step(block.part.graph.outputs[0])
            data = walk.data(block, params, importance)
            params, outputs = block.learned(model, params, data, learning)
            walk.advance(block, data, outputs)
            bar.update()
    return params


def _importance(
    model: PreparedModel,
    blocks: Sequence[Block],
    loss: Loss,
    batches: Sequence[tuple[Any, ...]],
    params: Params,
) -> Importance:
    """The squared gradients of a loss, in floats, by the outputs of blocks."""
    floats = {name: value for name, value in params.items() if name != "corrections"}
    tensors = model.float_graph.input_tensors
    outputs = [name for block in blocks for name in block.part.graph.outputs]
    ends = [name for name in outputs if name in model.owners]

    @jax.jit
    def squared(params: Params, *inputs: Any) -> dict[str, jax.Array]:
        batch = rows(tensors, inputs)

        def total(shifts: dict[str, jax.Array]) -> jax.Array:
            def run(shifts: dict[str, jax.Array], *inputs: Any) -> tuple[jax.Array, ...]:
                def shifted(name: str, value: Any) -> Any:
                    return value + shifts[name] if name in shifts else value

                return run_floats(model, params, *inputs, rounded=shifted)

            return loss(as_given(jax.vmap(run)(shifts, *batch), tensors, inputs)).sum()

        count = len(jax.tree.leaves(batch)[0])
        shapes = {name: (count, *(model.graph.tensors[name].shape or ())) for name in ends}
        gradients = jax.grad(total)({name: jnp.zeros(shape) for name, shape in shapes.items()})
        return jax.tree.map(jnp.square, gradients)

    def of(names: Sequence[str], number: int) -> tuple[jax.Array, ...]:
        squares = squared(floats, *batches[number])
        return tuple(squares.get(name, jnp.ones(())) for name in names)

    return of


def _default_optimizer(optax: Any, steps: int) -> optax.GradientTransformation:
    rates = {"rounding": 3e-2, "qparams": 3e-3}
    each = {name: optax.adam(optax.cosine_decay_schedule(r, steps)) for name, r in rates.items()}
    return relative(optax.multi_transform(each, {name: name for name in rates}))


def _check(model: QModel, steps: int, drop: float, regularizer: float) -> None:
    if not model.plan.is_integer:
        raise ValueError("reconstruct is for integers, and this model is of FP8")
    if count("steps", steps) < 1:
        raise ValueError(f"steps is {steps}, expected at least 1")
    if not 0 <= drop < 1:
        raise ValueError(f"drop is {drop}, expected a number in [0, 1)")
    if not regularizer >= 0:
        raise ValueError(f"regularizer is {regularizer}, expected a number that is not negative")
