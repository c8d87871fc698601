"""Metrics: numbers that rate the outputs of a setting.

A metric measures examples on the device. Its values are summed exactly, or the greatest is taken,
so a row of a sweep does not depend on batches, strategies or devices.

Scores are the elements of an output, one row for each example. NaN is not a score: it is never the
highest, and an example whose label has the score NaN counts as wrong.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tosajax.arguments.names import near


class Examples(NamedTuple):
    """Examples for a metric to measure.

    Args:
      outputs: the setting's outputs, each with the examples on the first axis.
      labels: the data set's labels, with the examples on the first axis; None if it has none.
      reference: outputs to compare with; None if there are none.

    Example:
      >>> import jax.numpy as jnp
      >>> from tosajax import sweep
      >>> examples = sweep.Examples((jnp.float32([[1, 2], [4, 3]]),), jnp.int32([1, 1]), None)
      >>> sweep.accuracy().measure(examples)["good"].values.tolist()
      [True, False]
    """

    outputs: tuple[jax.Array, ...]
    labels: Any
    reference: tuple[jax.Array, ...] | None


class Total(NamedTuple):
    """Values to be summed exactly: float32, int32, uint32 or bool, examples on the first axis.

    Example:
      >>> import jax.numpy as jnp
      >>> import numpy as np
      >>> from tosajax import sweep
      >>> def measure(examples):
      ...     return {"sum": sweep.Total(jnp.sum(examples.outputs[0], axis=1))}
      >>> total = sweep.Metric("total", measure, lambda found, count: float(found["sum"]))
      >>> sweep.Sweep(lambda setting, x: x, np.float32([[1, 5], [3, 2]]), [total]).run()[0]["total"]
      11.0
    """

    values: jax.Array


class Greatest(NamedTuple):
    """Values whose maximum counts, with NaN above all numbers: not negative, types as in `Total`.

    Example:
      >>> import jax.numpy as jnp
      >>> from tosajax import sweep
      >>> reference = (jnp.int32([[7, 1]]),)
      >>> examples = sweep.Examples((jnp.int32([[5, 2]]),), None, reference)
      >>> sweep.max_lsb().measure(examples)["difference"].values.max().item()
      2
    """

    values: jax.Array


# Totals as Fractions (NaN if not finite), greatest values as numbers.
Quantities = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Metric:
    """A number that rates the outputs of a setting.

    Args:
      name: the name of the column; it identifies results in a store.
      measure: a pure function from Examples to Totals and Greatests by name, which is compiled.
        Examples that pad a batch are measured, but do not count.
      finish: a function of the final values, by name, and the number of examples; returns the
        metric.
      needs: "labels", "reference", or both.
      classes: the index of the output with a score for each class, if labels are classes; other
        labels are then an error. None if labels are not classes.

    Example:
      >>> import jax.numpy as jnp
      >>> import numpy as np
      >>> from tosajax import sweep
      >>> def measure(examples):
      ...     return {"largest": sweep.Greatest(jnp.max(examples.outputs[0], axis=1))}
      >>> peak = sweep.Metric("peak", measure, lambda found, count: float(found["largest"]))
      >>> sweep.Sweep(lambda setting, x: x, np.float32([[1, 5], [3, 2]]), [peak]).run()[0]["peak"]
      5.0
    """

    name: str
    measure: Callable[[Examples], Mapping[str, Total | Greatest]]
    finish: Callable[[Quantities, int], float]
    needs: frozenset[str] = frozenset()
    classes: int | None = None


def accuracy(output: int = 0) -> Metric:
    """The share of examples whose label has the highest score; of equal scores, the first counts.

    Args:
      output: see `top_k`.

    Example:
      >>> import numpy as np
      >>> from tosajax import sweep
      >>> scores, labels = np.float32([[1, 2, 3], [6, 5, 4]]), np.int32([1, 0])
      >>> run = sweep.Sweep(lambda setting, x: x, (scores, labels), [sweep.accuracy()])
      >>> run.run()[0]["accuracy"]
      0.5
    """
    return dataclasses.replace(top_k(1, output), name=_name("accuracy", output))


def top_k(k: int, output: int = 0) -> Metric:
    """The share of examples whose label is among the k highest scores; first ones win ties.

    Args:
      k: how many of the highest scores count, at least 1.
      output: the index of the output with the scores. Labels are integers from 0, below the number
        of scores.

    Raises:
      ValueError: k is less than 1.

    Example:
      >>> import numpy as np
      >>> from tosajax import sweep
      >>> scores, labels = np.float32([[1, 2, 3], [6, 5, 4]]), np.int32([1, 2])
      >>> sweep.Sweep(lambda setting, x: x, (scores, labels), [sweep.top_k(2)]).run()[0]["top_2"]
      0.5
    """
    if k < 1:
        raise ValueError(f"top_k: k is {k}, expected at least 1")

    def measure(examples: Examples) -> dict[str, Total]:
        scores = _rows(_output(examples, output))
        return {"good": Total(_is_among(k, scores, _labels(examples.labels, scores)))}

    name, needs = _name(f"top_{k}", output), frozenset({"labels"})
    return Metric(name, measure, _mean_of("good"), needs, classes=output)


def agreement(output: int = 0) -> Metric:
    """The share of examples whose highest score has the same index in the reference.

    A reference with NaN agrees with nothing.

    Example:
      >>> import numpy as np
      >>> from tosajax import sweep
      >>> x, reference = np.float32([[1, 2], [4, 3]]), np.float32([[1, 2], [3, 4]])
      >>> run = sweep.Sweep(lambda setting, x: x, x, [sweep.agreement()], reference=reference)
      >>> run.run()[0]["agreement"]
      0.5
    """

    def measure(examples: Examples) -> dict[str, Total]:
        ours, theirs = (_rows(x) for x in _pair(examples, output))
        is_number = jnp.all(theirs == theirs, axis=1)
        wanted = jnp.argmax(theirs, axis=1).astype(jnp.int32)
        return {"same": Total(is_number & _is_among(1, ours, wanted))}

    name = _name("agreement", output)
    return Metric(name, measure, _mean_of("same"), frozenset({"reference"}))


def mcnemar(output: int = 0) -> Metric:
    """The p-value of McNemar's exact test that setting and reference have the same accuracy.

    Only examples count that exactly one of the two classifies correctly. If both are equally good,
    each such example is correct for either one with probability 1/2. The metric is the two-sided
    p-value: below 0.05, say, the accuracies differ. Of many settings, one in twenty is below 0.05
    by chance.

    Args:
      output: see `top_k`.

    Example:
      >>> import numpy as np
      >>> from tosajax import sweep
      >>> x, labels = np.eye(8, dtype=np.float32), np.arange(8)
      >>> run = sweep.Sweep(lambda setting, x: x, (x, labels), [sweep.mcnemar()], reference=-x)
      >>> round(run.run()[0]["mcnemar"], 6)  # 2 / 2**8
      0.007813
    """

    def measure(examples: Examples) -> dict[str, Total]:
        ours, theirs = (_rows(x) for x in _pair(examples, output))
        labels = _labels(examples.labels, ours)
        we, they = _is_among(1, ours, labels), _is_among(1, theirs, labels)
        return {"won": Total(we & ~they), "lost": Total(they & ~we)}

    def finish(quantities: Quantities, count: int) -> float:
        won, lost = int(quantities["won"]), int(quantities["lost"])
        tails = (_log_binomial(won + lost, k) for k in range(min(won, lost) + 1))
        return min(1.0, 2 * math.fsum(math.exp(tail) for tail in tails))

    name, needs = _name("mcnemar", output), frozenset({"labels", "reference"})
    return Metric(name, measure, finish, needs, classes=output)


def _log_binomial(n: int, k: int) -> float:
    """The logarithm of the probability of k heads in n coin tosses."""
    ways = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
    return ways - n * math.log(2)


def sqnr(output: int = 0) -> Metric:
    """Signal to quantization noise of the reference and the outputs, in dB.

    inf without noise, -inf with noise but no signal. Squares are rounded to float32 and summed
    exactly: magnitudes below 1e-19 may be lost, and above 1e19 the result is NaN.
    Differences of integers are exact.

    Example:
      >>> import numpy as np
      >>> from tosajax import sweep
      >>> x = np.float32([[1, 2]])
      >>> run = sweep.Sweep(lambda setting, x: x * 1.1, x, [sweep.sqnr()], reference=x)
      >>> round(run.run()[0]["sqnr"], 3)
      20.0
    """

    def measure(examples: Examples) -> dict[str, Total]:
        ours, theirs = _pair(examples, output)
        noise = _difference(ours, theirs).astype(jnp.float32)
        return {
            "signal": Total(jnp.square(theirs.astype(jnp.float32))),
            "noise": Total(jnp.square(noise)),
        }

    def finish(quantities: Quantities, count: int) -> float:
        signal, noise = quantities["signal"], quantities["noise"]
        if isinstance(signal, float) or isinstance(noise, float):
            return math.nan
        if not noise:
            return math.inf
        return 10 * math.log10(signal / noise) if signal else -math.inf

    return Metric(_name("sqnr", output), measure, finish, frozenset({"reference"}))


def cosine(output: int = 0) -> Metric:
    """The cosine of the angle between all outputs and the reference; NaN if one is all 0.

    Products are rounded to float32, and summed exactly; magnitudes as with `sqnr`.

    Example:
      >>> import numpy as np
      >>> from tosajax import sweep
      >>> x, reference = np.float32([[1, 0]]), np.float32([[0, 5]])
      >>> run = sweep.Sweep(lambda setting, x: x, x, [sweep.cosine()], reference=reference)
      >>> run.run()[0]["cosine"]
      0.0
    """

    def measure(examples: Examples) -> dict[str, Total]:
        ours, theirs = (x.astype(jnp.float32) for x in _pair(examples, output))
        return {"xx": Total(ours * ours), "xy": Total(ours * theirs), "yy": Total(theirs * theirs)}

    def finish(quantities: Quantities, count: int) -> float:
        xx, xy, yy = quantities["xx"], quantities["xy"], quantities["yy"]
        if any(isinstance(x, float) for x in (xx, xy, yy)) or not xx or not yy:
            return math.nan
        size = math.sqrt(xy * xy / (xx * yy))
        return math.copysign(min(size, 1.0), xy)

    return Metric(_name("cosine", output), measure, finish, frozenset({"reference"}))


def mean_lsb(output: int = 0) -> Metric:
    """The mean absolute difference from the reference over elements; for integers, in steps.

    Integers of up to 32 bits are exact; others are float32 first.

    Example:
      >>> import numpy as np
      >>> from tosajax import sweep
      >>> x, reference = np.int8([[1, 2]]), np.int8([[1, 5]])
      >>> run = sweep.Sweep(lambda setting, x: x, x, [sweep.mean_lsb()], reference=reference)
      >>> run.run()[0]["mean_lsb"]
      1.5
    """

    def measure(examples: Examples) -> dict[str, Total]:
        ours, theirs = _pair(examples, output)
        size = math.prod(ours.shape[1:])
        elements = jnp.full(ours.shape[:1], size, jnp.int32)
        return {"difference": Total(_difference(ours, theirs)), "elements": Total(elements)}

    def finish(quantities: Quantities, count: int) -> float:
        total, elements = quantities["difference"], quantities["elements"]
        return total if isinstance(total, float) else float(total / max(elements, 1))

    return Metric(_name("mean_lsb", output), measure, finish, frozenset({"reference"}))


def max_lsb(output: int = 0) -> Metric:
    """The greatest absolute difference from the reference; for integers, in steps.

    Integers of up to 32 bits are exact; others are float32 first.

    Example:
      >>> import numpy as np
      >>> from tosajax import sweep
      >>> x, reference = np.int8([[1, 2]]), np.int8([[1, 5]])
      >>> run = sweep.Sweep(lambda setting, x: x, x, [sweep.max_lsb()], reference=reference)
      >>> run.run()[0]["max_lsb"]
      3.0
    """

    def measure(examples: Examples) -> dict[str, Greatest]:
        return {"difference": Greatest(_difference(*_pair(examples, output)))}

    def finish(quantities: Quantities, count: int) -> float:
        return float(quantities["difference"])

    return Metric(_name("max_lsb", output), measure, finish, frozenset({"reference"}))


def mean(name: str, function: Callable[[Examples], jax.Array], *needs: str) -> Metric:
    """Makes a metric of a function: its mean over examples.

    Args:
      name: the name of the column. It identifies results in a store, so each function needs its
        own name.
      function: returns one value for each of the Examples: float32, int32, uint32 or bool.
      needs: "labels", "reference", or both.

    Example:
      >>> import jax.numpy as jnp
      >>> import numpy as np
      >>> from tosajax import sweep
      >>> peak = sweep.mean("peak", lambda examples: jnp.max(examples.outputs[0], axis=1))
      >>> sweep.Sweep(lambda setting, x: x, np.float32([[1, 5], [3, 2]]), [peak]).run()[0]["peak"]
      4.0
    """

    def measure(examples: Examples) -> dict[str, Total]:
        values = function(examples)
        wanted = examples.outputs[0].shape[:1]
        if values.shape != wanted:
            raise ValueError(f"metric {name!r} returned shape {values.shape}, expected {wanted}")
        return {"value": Total(values)}

    return Metric(name, measure, _mean_of("value"), frozenset(needs))


_NAMED = {f.__name__: f for f in (accuracy, agreement, mcnemar, sqnr, cosine, mean_lsb, max_lsb)}
_SHARES = ("accuracy", "top_", "agreement")  # prefixes of names


def is_share(name: str) -> bool:
    """Whether a metric, by its name for `named`, is a share of examples."""
    return name.startswith(_SHARES)


def named(metrics: Sequence[str | Metric]) -> tuple[Metric, ...]:
    """Looks up metrics by name; "top_3" is `top_k(3)`.

    Raises:
      ValueError: a metric is unknown, or two metrics have the same name.
    """
    resolved = tuple(m if isinstance(m, Metric) else _by_name(m) for m in metrics)
    names = [m.name for m in resolved]
    if len(set(names)) < len(names) or not names:
        raise ValueError(f"metrics {names}, expected at least one, each by a name of its own")
    return resolved


def _by_name(name: str) -> Metric:
    if match := re.fullmatch(r"top_([1-9]\d*)", name):
        return top_k(int(match[1]))
    if name not in _NAMED:
        names = (*_NAMED, "top_5")
        raise ValueError(
            f"no metric {name!r}, expected one of {', '.join(names)}{near(name, names)}"
        )
    return _NAMED[name]()


def check_kind_of_labels(metrics: Sequence[Metric], first: np.ndarray) -> None:
    """Checks the type and shape of labels, if metrics use them as classes.

    Args:
      metrics: the metrics to measure.
      first: the labels of one example.

    Raises:
      TypeError: the labels are not integers.
      ValueError: an example has several labels.
    """
    names = ", ".join(m.name for m in metrics if m.classes is not None)
    if names and first.dtype.kind not in "iu":
        raise TypeError(
            f"{names}: labels are {first.dtype}, expected integers: give labels.astype('int32')"
        )
    if names and first.size != 1:
        raise ValueError(
            f"{names}: labels have shape {first.shape[1:]} for each example, expected one integer: "
            "give labels.argmax(axis=-1) if they are one-hot"
        )


def check_classes(
    metrics: Sequence[Metric], examples: Examples, labels: np.ndarray, start: int = 0
) -> None:
    """Checks that labels are classes of the outputs.

    Args:
      metrics: the metrics to measure.
      examples: examples of the same shapes and types; arrays or `jax.ShapeDtypeStruct`.
      labels: integers.
      start: the number of examples before these.

    Raises:
      ValueError: a label is negative, or not below the number of classes.
    """
    for output in {m.classes: None for m in metrics if m.classes is not None}:
        count = math.prod(examples.outputs[output].shape[1:])
        flat = labels.reshape(-1)
        bad = (flat < 0) | (flat >= count)
        if not bad.any():
            continue
        at = int(bad.argmax())
        from_1 = flat[at] == count and flat.min() >= 1
        raise ValueError(
            f"label {flat[at]} of example {start + at}: output {output} has {count} classes, "
            f"expected 0 to {count - 1}{': do labels count from 1?' if from_1 else ''}"
        )


def _mean_of(quantity: str) -> Callable[[Quantities, int], float]:
    def finish(quantities: Quantities, count: int) -> float:
        total = quantities[quantity]
        return total if isinstance(total, float) else float(total / count)

    return finish


def _name(metric: str, output: int) -> str:
    return f"{metric}[{output}]" if output else metric


def _is_among(k: int, scores: jax.Array, labels: jax.Array) -> jax.Array:
    """Whether a label's score is among the k highest; first ones win ties. bool [n]."""
    is_class = (labels >= 0) & (labels < scores.shape[1])
    own = jnp.where(is_class, labels, 0)[:, None]
    mine = jnp.take_along_axis(scores, own, axis=1)
    before = jnp.arange(scores.shape[1], dtype=jnp.int32)[None] < own
    better = (scores > mine) | ((scores == mine) & before)
    is_score = is_class & (mine == mine)[:, 0]
    return is_score & (jnp.sum(better, axis=1, dtype=jnp.int32) < k)


def _rows(scores: jax.Array) -> jax.Array:
    """Reshapes scores to one row for each example."""
    if scores.ndim < 2:
        raise ValueError(f"scores of shape {scores.shape}, expected (examples, classes)")
    return scores.reshape(scores.shape[0], -1)


def _labels(labels: Any, scores: jax.Array) -> jax.Array:
    if labels is None:
        raise ValueError("the data set has no labels")
    labels = jnp.asarray(labels)
    if labels.size != scores.shape[0] or not jnp.issubdtype(labels.dtype, jnp.integer):
        raise ValueError(
            f"labels are {labels.dtype}{list(labels.shape)}, expected an integer for each of "
            f"{scores.shape[0]} examples"
        )
    return labels.reshape(-1).astype(jnp.int32)


def _output(examples: Examples, output: int) -> jax.Array:
    if not 0 <= output < len(examples.outputs):
        raise ValueError(f"there is no output {output}, the model has {len(examples.outputs)}")
    return examples.outputs[output]


def _pair(examples: Examples, output: int) -> tuple[jax.Array, jax.Array]:
    """An output and its reference; shapes may differ in axes of size 1."""
    if examples.reference is None:
        raise ValueError("there is no reference")
    if not 0 <= output < len(examples.reference):
        raise ValueError(f"there is no reference for output {output}")
    ours, theirs = _output(examples, output), jnp.asarray(examples.reference[output])
    if _long_axes(ours) != _long_axes(theirs):
        raise ValueError(f"output {output} has shape {ours.shape}, the reference {theirs.shape}")
    return ours, theirs.reshape(ours.shape)


def _long_axes(x: jax.Array) -> tuple[int, ...]:
    return (*x.shape[:1], *(n for n in x.shape[1:] if n != 1))


def _difference(ours: jax.Array, theirs: jax.Array) -> jax.Array:
    """|ours - theirs|: uint32 for integers of up to 32 bits, else float32."""
    for wide in (jnp.int32, jnp.uint32):
        if all(_fits(x.dtype, wide) for x in (ours, theirs)):
            ours, theirs = ours.astype(wide), theirs.astype(wide)
            break
    else:
        return jnp.abs(ours.astype(jnp.float32) - theirs.astype(jnp.float32))
    least, most = jnp.minimum(ours, theirs), jnp.maximum(ours, theirs)
    # The absolute difference of two int32 fits uint32, not int32.
    return most.astype(jnp.uint32) - least.astype(jnp.uint32)


def _fits(dtype: Any, wide: Any) -> bool:
    """Whether all integers of a type fit another type."""
    if not jnp.issubdtype(dtype, jnp.integer):
        return False
    narrow, wide = jnp.iinfo(dtype), jnp.iinfo(wide)
    return narrow.min >= wide.min and narrow.max <= wide.max
