"""Examples whose outputs would leave those of all others few integers.

A detector's logits can be a hundred times as large on one photograph as on any other. The range of
all examples then has one integer for what the other ones tell apart.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tosajax.quant.model.batches import rows
from tosajax.quant.qmodel import PreparedModel, QModel

_FEW = 8  # examples, of which none is known to be unusual
_MOST = 0.25  # of the examples may be outliers
_USUAL = 0.75  # of the examples are most of them
_BOUND = 1.0  # of probabilities and the like, whose rare large ones matter
_UNUSABLE = 0.5  # of the usual signal, the noise that leaves nothing of it
_GAIN = 0.5  # of the noise that all examples leave, which the others leave at most


class Sizes(NamedTuple):
    """How large outputs are: arrays of an element for each output and example.

    Args:
      largest: the largest magnitude.
      power: the mean square.
    """

    largest: jax.Array | np.ndarray
    power: jax.Array | np.ndarray


def sizes_of(outputs: Sequence[jax.Array], count: int) -> Sizes:
    """The sizes of outputs of a number of examples, which are on the first axis."""
    if not outputs:
        return Sizes(jnp.zeros((0, count)), jnp.zeros((0, count)))
    finite = [jnp.where(jnp.isfinite(y), y, 0).reshape(count, -1) for y in outputs]
    largest = [jnp.abs(y).max(1, initial=0) for y in finite]
    return Sizes(jnp.stack(largest), jnp.stack([jnp.square(y).mean(1) for y in finite]))


def outliers(sizes: Sizes, levels: Sequence[int]) -> dict[int, tuple[int, float]]:
    """The examples to leave out, with the output that shows it and how much larger it is.

    Each example has the noise of rounding over its signal, or over the usual signal if that is
    more; one that is left out has at most the noise 1. The sum of all decides. Examples beside
    whose range others keep some precision stay; so do those of outputs within [-1, 1].

    Args:
      sizes: of outputs of all examples, on the host.
      levels: the integers of each output.

    Returns:
      By example, the number of an output and the ratio to the usual magnitude.
    """
    found: dict[int, tuple[int, float]] = {}
    for number, (largest, power, count) in enumerate(zip(*sizes, levels, strict=True)):
        usual = float(np.median(largest))
        for example in _left_out(np.asarray(largest), np.asarray(power), count):
            ratio = float(largest[example]) / usual
            if example not in found or found[example][1] < ratio:
                found[example] = number, ratio
    return found if len(found) <= _MOST * sizes.largest.shape[1] else {}


def _left_out(largest: np.ndarray, power: np.ndarray, levels: int) -> list[int]:
    """The examples that an output's range leaves out for the least noise of all examples."""
    usual = float(np.median(power))
    if largest.size < _FEW or not usual or largest.max() <= _BOUND:
        return []
    if (2 * float(largest.max()) / levels) ** 2 / 12 < _UNUSABLE * usual:
        return []
    order, signals = np.argsort(-largest), np.maximum(power, usual)
    noises = []
    for count in range(int(_MOST * largest.size) + 1):
        step = 2.0 * float(largest[order[count]]) / levels
        rounded = np.minimum(1, step**2 / 12 / signals[order[count:]])
        noises.append(count + rounded.sum())
    least = int(np.argmin(noises))
    return order[:least].tolist() if noises[least] < _GAIN * noises[0] else []


def times_usual(sizes: Sizes) -> np.ndarray:
    """How many times as large as usual each example is, in the output where it is most.

    As usual is what most examples have at most. Outputs within [-1, 1] have no outliers, as theirs
    are rare probabilities and the like, which matter.
    """
    largest = np.asarray(sizes.largest)
    usual = np.quantile(largest, _USUAL, axis=1, keepdims=True)
    counts = (usual > 0) & (largest.max(1, keepdims=True) > _BOUND)
    ratios = np.where(counts, largest / np.where(usual > 0, usual, 1), 1)
    return ratios.max(0, initial=1)


def sized_outputs(model: QModel) -> list[str]:
    """The outputs of the float graph that become integers of 8 or fewer bits."""
    if not isinstance(model, PreparedModel) or not model.plan.is_integer:
        return []
    names = [name for name in dict.fromkeys(model.float_graph.outputs) if name in model.owners]
    return [n for n in names if _bits(model, n) <= 8 and not _spec(model, n).observer.is_fixed]


def levels_of(model: QModel) -> list[int]:
    """The integers of each of the `sized_outputs`."""
    return [2 ** int(_bits(model, name)) - 1 for name in sized_outputs(model)]


def example_count(model: PreparedModel, inputs: Sequence[Any]) -> int:
    """The examples on the first axis of the inputs of a float graph; 1 where there is none."""
    leaves = jax.tree.leaves(list(inputs))
    if not leaves:
        return 1
    count = jax.tree.leaves(rows(model.float_graph.input_tensors, inputs))[0].shape[0]
    return count if all(leaf.shape[:1] == (count,) for leaf in leaves) else 1


def without(inputs: tuple[Any, ...], left_out: Sequence[int]) -> tuple[Any, ...] | None:
    """A batch in which others stand for some examples, which adds nothing to a range.

    None where no example is left.
    """
    if not left_out:
        return inputs
    places = np.arange(jax.tree.leaves(inputs)[0].shape[0])
    if len(left_out) == len(places):
        return None
    places[list(left_out)] = np.resize(np.setdiff1d(places, left_out), len(left_out))
    return jax.tree.map(lambda x: x[places], inputs)


def warned_outliers(
    model: QModel, sizes: Sequence[Sizes], *, can_repeat: bool
) -> list[list[int]] | None:
    """The examples of each batch that ranges leave out, after a warning; None if there is none.

    Args:
      model: the model.
      sizes: of the outputs of each batch.
      can_repeat: whether the batches can be run again, without them.
    """
    names, counts = sized_outputs(model), [batch.largest.shape[1] for batch in sizes]
    fields = zip(*sizes, strict=True)
    whole = Sizes(*(np.concatenate([np.asarray(x) for x in field], 1) for field in fields))
    found = outliers(whole, levels_of(model))
    if not found:
        return None
    starts = np.cumsum([0, *counts])
    batches = np.searchsorted(starts, list(found), "right") - 1
    each = [
        [n - int(start) for n, batch in zip(found, batches, strict=True) if batch == number]
        for number, start in enumerate(starts[:-1])
    ]
    worst = max(found, key=lambda example: found[example][1])
    (number, ratio), batch = found[worst], int(batches[list(found).index(worst)])
    end = "ranges leave them out" if can_repeat else "a list of batches lets ranges leave them out"
    warnings.warn(
        f"{len(found)} of {starts[-1]} examples would leave the outputs of all others few "
        f"integers: in example {worst - starts[batch]} of batch {batch}, {names[number]!r} reaches "
        f"{float(whole.largest[number, worst]):.4g}, {ratio:.0f} times what is usual; {end}",
        stacklevel=5,
    )
    return each if can_repeat else None


def _spec(model: QModel, name: str) -> Any:
    return model.specs[model.owners[name]]


def _bits(model: QModel, name: str) -> float:
    spec = _spec(model, name)
    return spec.bits or spec.storage.dtype.bits
