"""How close surrogate gradients are to the exact loss: `python -m benchmarks.gradient_quality`

The loss of integers is a staircase of the parameters, level almost everywhere, so that it has no
gradient to compare with. Its mean over dithers, random moves of all parameters of one kind, has
one. Along a direction that moves each of them up or down by the width of its dither, the mean over
starts between the two ends has the derivative

    mean of loss(end) - loss(other end)

exactly, with no surrogate. The surrogate of the same is the mean of gradient * direction at points
in between: for a smooth loss both are equal, whatever the width, by the fundamental theorem of
calculus. Gradients at a single point of the line would differ by the curvature of the loss.

The widths are those that make rounding the identity on average: a step of quantization of each
weight; of each bias, a step of the output; a quarter of each scale, so that the largest values move
by some steps; a quarter of the range for zero points; one bit, of bits that are not at an end.
Narrower ones see the teeth of the staircase: a scale that moves by one step at the end of its range
leaves small values where they are, and the loss then follows the error of their rounding, which no
step of training meets twice.

Both means have noise. Their squares are taken as products of different dithers, which have none on
average, so that correlation and slope are those of endless dithers; a correlation may come out
above 1. That of random directions is the cosine of the two gradients, in units of the widths.
Intervals of 95 % are from resampled directions, which have dithers of their own. A truth of low
reliability, the share of its mean square that is not noise, is inconclusive.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax.flatten_util import ravel_pytree

from benchmarks import gradient_networks, works
from tosajax import Graph, grad
from tosajax import quant as tq
from tosajax.quant.model.recipes import Bias, Multiplier

sys.path.insert(0, str(works.ROOT / "examples"))

import digits  # pyright: ignore[reportMissingImports]

NETWORKS = {
    "convolutional": gradient_networks.convolutional,
    "transformer": gradient_networks.transformer,
}
# Of weights and activations; inputs and scores have 8.
BITS = ((8, 8), (4, 8), (4, 4), (2, 4))
KINDS = (
    "weights",
    "biases",
    "weight scales",
    "activation scales",
    "inner activation scales",  # without inputs and outputs, which outweigh the others
    "zero points",
    "bits",
)
ESTIMATORS: Mapping[str, grad.Estimator] = {
    "clipped_ste": grad.clipped_ste,
    "ste": grad.ste,
    "round_window": grad.round_window,
    "ewgs": grad.ewgs(),
    "soft_round": grad.soft_round(),
    "pwl": grad.pwl(),
}
IMAGES = 64
# Steps of training with 8 bits, and with the bits that are measured.
_FIRST, _AFTER, _RATE = 600, 150, 2e-3
_RESAMPLED = 400
_WIDTH_OF_RANGE = 0.25
# Less of the variance of the truth is not noise: nothing follows from it.
_CONCLUSIVE = 0.5


class Sizes(NamedTuple):
    """How many directions are compared, with how many dithers of the loss and of its gradient."""

    directions: int = 32
    dithers: int = 32
    gradients: int = 12


class Programs(NamedTuple):
    """Compiled once for all kinds, bits and dithers: parameters are flat, dithers are data.

    Attributes:
      gradient: of the loss, at dithered parameters: (flat, widths, key, *batch).
      differences: of the loss from end to end, of each direction and dither:
        (flat, widths, directions, keys, *batch).
    """

    gradient: Callable[..., jax.Array]
    differences: Callable[..., jax.Array]


class Agreement(NamedTuple):
    """How a surrogate agrees with the truth; each with the ends of its interval.

    Attributes:
      correlation: of the surrogate's mean over dithers with the truth.
      slope: of the truth over the surrogate: 1 if gradients have the right size.
      at_point: the correlation of the gradient at the parameters alone, as training takes it.
      reliability: of the truth.
    """

    correlation: np.ndarray
    slope: np.ndarray
    at_point: np.ndarray
    reliability: float

    @property
    def is_conclusive(self) -> bool:
        return self.reliability >= _CONCLUSIVE


# Parameters.


def widths(model: tq.QModel, params: Any, kind: str) -> Any:
    """The widths of the dithers of the parameters of a kind; 0 of all others."""
    still = jax.tree.map(jnp.zeros_like, params)
    values, qparams, given = dict(still["values"]), dict(still["qparams"]), params["qparams"]

    def widen(name: str, **found: Any) -> None:
        own = {
            key: jnp.broadcast_to(x, getattr(given[name], key).shape) for key, x in found.items()
        }
        qparams[name] = dataclasses.replace(qparams[name], **own)

    # Those that functions are sampled in do not train.
    activations = [name for name in model.activations if name not in model.plan.sampled]
    match kind:
        case "weights":
            for name in model.weights:
                values[name] = values[name] + given[name].scale
        case "biases":
            for name, output in _outputs_of_biases(model).items():
                values[name] = values[name] + given[output].scale
        case "weight scales" | "activation scales" | "inner activation scales":
            inner = [name for name in activations if name not in _ends(model)]
            names = {"weight scales": model.weights, "activation scales": activations}
            for name in names.get(kind, inner):
                widen(name, scale=given[name].scale * _WIDTH_OF_RANGE)
        case "zero points":
            for name in activations:
                if not given[name].symmetric:
                    widen(name, zero_point=jnp.exp2(given[name].bits) * _WIDTH_OF_RANGE)
        case "bits":
            for name in (*model.weights, *activations):
                own = given[name]
                is_inside = (own.bits >= 3) & (own.bits <= own.storage.dtype.bits - 1)
                widen(name, bits=is_inside.astype(jnp.float32))
        case _:
            raise ValueError(f"kind {kind!r}, expected one of {', '.join(KINDS)}")
    return {**still, "values": values, "qparams": qparams}


def _ends(model: tq.QModel) -> set[str]:
    """The tensors whose scales inputs and outputs have."""
    return {model.owners[name] for name in (*model.graph.inputs, *model.graph.outputs)}


def _outputs_of_biases(model: tq.QModel) -> dict[str, str]:
    """For each bias, the tensor in whose unit its effect is rounded."""
    scales = [r.scale for r in model.plan.recipes.values() if isinstance(r, Multiplier)]
    under = {scale.over: scale.under for scale in scales if isinstance(scale.under, str)}
    biases = [recipe for recipe in model.plan.recipes.values() if isinstance(recipe, Bias)]
    return {recipe.tensor: under[recipe.scale.over] for recipe in biases}


def flat(tree: Any) -> jax.Array:
    return ravel_pytree(tree)[0]


# Surrogate and truth.


def programs(loss: Callable[..., jax.Array], params: Any) -> Programs:
    """Those of a loss of parameters and of a batch."""
    _, unravel = ravel_pytree(params)

    def dithered(flat: jax.Array, widths: jax.Array, key: jax.Array) -> jax.Array:
        return flat + widths * jax.random.uniform(key, flat.shape, jnp.float32, -0.5, 0.5)

    def flat_loss(flat: jax.Array, *batch: jax.Array) -> jax.Array:
        return loss(unravel(flat), *batch)

    def gradient(flat: jax.Array, widths: jax.Array, key: jax.Array, *batch: jax.Array):
        return jax.grad(flat_loss)(dithered(flat, widths, key), *batch)

    def differences(
        flat: jax.Array, widths: jax.Array, directions: jax.Array, keys: jax.Array, *batch: Any
    ) -> jax.Array:
        halves = jnp.asarray([0.5, -0.5], jnp.float32)

        def along(given: tuple[jax.Array, jax.Array]) -> jax.Array:
            direction, keys = given

            def difference(key: jax.Array) -> jax.Array:
                # Both ends with the same dither, one after another: batches of parameters would
                # make convolutions of groups, which take three times as long.
                start = dithered(flat, widths, key)
                losses = lax.map(lambda half: flat_loss(start + half * direction, *batch), halves)
                return losses[0] - losses[1]

            return lax.map(difference, keys)

        return lax.map(along, (directions, keys))

    return Programs(jax.jit(gradient), jax.jit(differences))


def draw(sizes: Sizes, params: jax.Array, widths: jax.Array, *, seed: int = 0) -> np.ndarray:
    """Directions: each parameter up or down at random, by its width."""
    ends = np.array([-1, 1], np.float32)
    signs = np.random.default_rng(seed).choice(ends, (sizes.directions, params.size))
    return signs * np.asarray(widths)


def truths(
    found: Programs,
    params: jax.Array,
    widths: jax.Array,
    directions: np.ndarray,
    sizes: Sizes,
    *batch: Any,
) -> np.ndarray:
    """[directions, dithers]: the derivative of the dithered loss."""
    keys = jax.random.split(jax.random.key(1), (sizes.directions, sizes.dithers))
    return np.asarray(found.differences(params, widths, directions, keys, *batch), np.float64)


def surrogates(
    gradient: Callable[..., jax.Array],
    params: jax.Array,
    widths: jax.Array,
    directions: np.ndarray,
    sizes: Sizes,
    *batch: Any,
) -> np.ndarray:
    """[directions, dithers]: the surrogate, at random points between the ends."""
    rng = np.random.default_rng(1)
    keys = jax.random.split(jax.random.key(2), (sizes.directions, sizes.gradients))
    found = np.empty((sizes.directions, sizes.gradients))
    for index, direction in enumerate(directions):
        for number in range(sizes.gradients):
            moved = np.float32(rng.uniform(0, 0.5)) * direction
            # In pairs on both sides of the middle: curvature cancels out.
            pair = [
                gradient(params + x, widths, keys[index, number], *batch) for x in (moved, -moved)
            ]
            found[index, number] = np.asarray(pair, np.float64).mean(axis=0) @ direction
    return found


def agreement(surrogate: np.ndarray, truth: np.ndarray, at_point: np.ndarray) -> Agreement:
    """From [directions, dithers] of both, and the gradient at one point along the directions."""
    rng = np.random.default_rng(0)
    count = len(truth)
    rows = [np.arange(count), *(rng.integers(0, count, count) for _ in range(_RESAMPLED))]
    found = np.array([_measures(surrogate[i], truth[i], at_point[i]) for i in rows])
    ends = np.nanpercentile(found[1:], [2.5, 97.5], axis=0)
    numbers = np.vstack([found[0], ends]).T
    return Agreement(numbers[0], numbers[1], numbers[2], float(found[0, 3]))


def _measures(surrogate: np.ndarray, truth: np.ndarray, at_point: np.ndarray) -> list[float]:
    expected, wanted = surrogate.mean(axis=1), truth.mean(axis=1)
    square, power = _mean_square(surrogate), _mean_square(truth)
    along = (expected * wanted).mean()
    at_one = (at_point * wanted).mean()
    return [
        _ratio(along, np.sqrt(max(square * power, 0))),
        _ratio(along, square),
        _ratio(at_one, np.sqrt(max((at_point**2).mean() * power, 0))),
        _ratio(power, (wanted**2).mean()),
    ]


def _mean_square(samples: np.ndarray) -> float:
    """The mean square of the mean of endless dithers: of products of different ones."""
    count = samples.shape[1]
    products = samples.sum(axis=1) ** 2 - (samples**2).sum(axis=1)
    return float(products.mean()) / (count * (count - 1))


def _ratio(a: float, b: float) -> float:
    return a / b if b > 0 else np.nan


def compare(
    model: tq.QModel,
    found: Programs,
    params: Any,
    kind: str,
    batch: Sequence[Any],
    sizes: Sizes,
    gradients: Mapping[str, Callable[..., jax.Array]] | None = None,
    also: Sequence[str] = (),
) -> dict[str, Agreement]:
    """How gradients by name, by default that of the programs, agree with the truth of a kind.

    Args:
      also: kinds that are dithered as well, and not moved along.
    """
    start, own = flat(params), flat(widths(model, params, kind))
    directions = draw(sizes, start, own)
    others = [flat(widths(model, params, other)) for other in also if other != kind]
    moved = sum(others, own)
    truth = truths(found, start, moved, directions, sizes, *batch)
    agreements = {}
    for name, gradient in (gradients or {"": found.gradient}).items():
        surrogate = surrogates(gradient, start, moved, directions, sizes, *batch)
        still = gradient(start, jnp.zeros_like(start), jax.random.key(0), *batch)
        agreements[name] = agreement(surrogate, truth, directions @ np.asarray(still))
    return agreements


# Trained networks.


def prepared(graph: Graph, estimator: grad.Estimator = grad.clipped_ste) -> tq.QModel:
    """Scales per channel of weights, zero points of activations, all bits learned."""
    weight = tq.QSpec(
        per_channel=True,
        narrow_range=True,
        observer=tq.mse(),
        learned_bits=True,
        estimator=estimator,
    )
    act = tq.QSpec(symmetric=False, observer=tq.mse(), learned_bits=True, estimator=estimator)
    return tq.prepare(graph, [tq.rule(".*", weight=weight, act=act)], estimator=estimator)


def entropy(model: tq.QModel) -> Callable[..., jax.Array]:
    def loss(params: Any, images: jax.Array, labels: jax.Array) -> jax.Array:
        (scores,) = model.apply(params, images)
        return optax.softmax_cross_entropy_with_integer_labels(scores, labels).mean()

    return loss


def of_bits(model: tq.QModel, params: Any, weight_bits: int, act_bits: int) -> Any:
    """The parameters with other bits, but for inputs and outputs."""
    bits = dict.fromkeys(model.weights, weight_bits) | dict.fromkeys(model.activations, act_bits)
    bits |= dict.fromkeys(_ends(model), 8)
    return jax.jit(lambda p: tq.with_bits(model, p, bits))(params)


def train(found: Programs, params: Any, split: digits.Split, steps: int) -> Any:
    """Minimizes the loss on the exact integers, of unchanged bits."""
    _, unravel = ravel_pytree(params)
    optimizer = tq.relative(optax.adam(_RATE))
    state, still, key = optimizer.init(params), jnp.zeros_like(flat(params)), jax.random.key(0)

    @jax.jit
    def update(gradient: jax.Array, state: Any, params: Any) -> Any:
        with jax.numpy_dtype_promotion("standard"):  # optax's Adam asks for it
            updates, state = optimizer.update(unravel(gradient), state, params)
        moved: Any = optax.apply_updates(params, updates)
        bits = {name: own.bits for name, own in params["qparams"].items()}
        qparams = {n: dataclasses.replace(q, bits=bits[n]) for n, q in moved["qparams"].items()}
        return {**moved, "qparams": qparams}, state

    for images, labels in digits.batches(split, IMAGES, steps, seed=0):
        gradient = found.gradient(flat(params), still, key, images, labels)
        params, state = update(gradient, state, params)
    return params


# The table.


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(description="How close surrogate gradients are to the loss.")
    parser.add_argument("networks", nargs="*", metavar="NETWORK", help=", ".join(NETWORKS))
    parser.add_argument("--bits", nargs="*", metavar="WxAy", help="W4A4, for instance")
    parser.add_argument("--kinds", nargs="*", default=KINDS, choices=KINDS)
    parser.add_argument("--also", nargs="*", default=[], choices=KINDS, help="dithered as well")
    parser.add_argument("--estimators", nargs="*", default=["clipped_ste"], choices=ESTIMATORS)
    parser.add_argument("--directions", type=int, default=Sizes().directions)
    parser.add_argument("--dithers", type=int, default=Sizes().dithers)
    parser.add_argument("--gradients", type=int, default=Sizes().gradients)
    options = parser.parse_args(arguments)
    if unknown := set(options.networks) - set(NETWORKS):
        parser.error(f"no network {', '.join(sorted(unknown))}")
    sizes = Sizes(options.directions, options.dithers, options.gradients)
    print(
        f"{'network':14} {'bits':5} {'kind':18} {'estimator':12} {'correlation':>17} "
        f"{'slope':>17} {'at one point':>18} {'reliability':>11}",
        flush=True,
    )
    for name in options.networks or NETWORKS:
        _print_network(name, options, sizes)
    return 0


def _print_network(name: str, options: argparse.Namespace, sizes: Sizes) -> None:
    split = digits.load()
    batch = split.test_images[:IMAGES], split.test_labels[:IMAGES].astype(np.int32)
    graph = NETWORKS[name]()
    model = prepared(graph)
    params = tq.calibrate(model, [split.train_images[:256]])
    found = programs(entropy(model), params)
    params = train(found, params, split, _FIRST)
    params = tq.calibrate(model, [split.train_images[:256]], values=params["values"])
    gradients = {
        chosen: found.gradient
        if chosen == "clipped_ste"
        else programs(entropy(prepared(graph, ESTIMATORS[chosen])), params).gradient
        for chosen in options.estimators
    }
    for bits in BITS:
        title = "W{}A{}".format(*bits)
        if options.bits and title not in options.bits:
            continue
        trained = train(found, of_bits(model, params, *bits), split, _AFTER)
        for kind in options.kinds:
            if not np.any(flat(widths(model, trained, kind))):
                print(f"{name:14} {title:5} {kind:18} at an end, so that none can move")
                continue
            rows = compare(model, found, trained, kind, batch, sizes, gradients, options.also)
            for estimator, row in rows.items():
                print(f"{name:14} {title:5} {kind:18} {estimator:12} {_text(row)}", flush=True)


def _text(row: Agreement) -> str:
    numbers = (row.correlation, row.slope, row.at_point)
    found = " ".join("{:5.2f} [{:4.1f},{:4.1f}]".format(*number) for number in numbers)
    return f"{found} {row.reliability:8.2f}{'' if row.is_conclusive else ' inconclusive'}"


if __name__ == "__main__":
    sys.exit(main())
