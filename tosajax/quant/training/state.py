"""States and results of training runs."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Literal

import jax

from tosajax import html
from tosajax.quant.model.recipes import Params

Ended = Literal["steps", "batches", "patience"]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class FitState:
    """All that a training run goes on from: a pytree of arrays, to save and to resume.

    Args:
      step: int32: the number of steps made.
      params: the trained parameters.
      optimizer: its state.
      average: the average of params, where the schedule asks for it; else empty.
      best: the parameters of the highest score, where there are scores; else empty.
      score: float32: their score; -inf before the first.
      waited: int32: the number of scores since then.
      observed: the states of observers, where the schedule asks for them; else empty.

    Example:
      >>> import jax
      >>> import jax.numpy as jnp
      >>> from tosajax import quant
      >>> zero = jnp.int32(0)
      >>> state = quant.FitState(zero, {}, None, {}, {}, jnp.float32(-jnp.inf), zero, {})
      >>> jax.tree.map(lambda leaf: leaf + 1, state)
      FitState(step 1)
    """

    step: jax.Array
    params: Params
    optimizer: Any
    average: Params
    best: Params
    score: jax.Array
    waited: jax.Array
    observed: dict[str, Any]

    def __repr__(self) -> str:
        return f"FitState(step {self.step})"


@dataclasses.dataclass(frozen=True)
class FitRow:
    """The training up to a step: the mean loss since the row before, and the score.

    Example:
      >>> from tosajax import quant
      >>> quant.FitRow(step=100, loss=0.5, score=None)
      FitRow(step=100, loss=0.5, score=None)
    """

    step: int
    loss: float
    score: float | None


@dataclasses.dataclass(frozen=True, repr=False)
class Fit:
    """The result of `fit`.

    Args:
      params: the parameters to freeze: with the best score, where there are scores; else the last,
        averaged where the schedule asks for it.
      state: the state to go on from.
      history: a `FitRow` for every `every` steps.
      ended: the reason why training ended: "steps", "batches" (no more of them) or "patience".

    Example:
      >>> import numpy as np
      >>> from tosajax import quant
      >>> example = np.float32([[-1, 1]])
      >>> model = quant.prepare(lambda x: x + x, example_args=[example])
      >>> params = quant.calibrate(model, [example])
      >>> batches = [(example, 2 * example)]
      >>> quant.fit(model, params, batches, lambda y, wanted: ((y[0] - wanted) ** 2).sum(), steps=0)
      Fit(steps 0, ended by steps)
    """

    params: Params
    state: FitState
    history: tuple[FitRow, ...]
    ended: Ended

    def __repr__(self) -> str:
        return f"Fit({', '.join(f'{term} {value}' for term, value in self._summary())})"

    def __str__(self) -> str:
        lines = [f"{'step':>8} {'loss':>12} {'score':>10}"]
        for row in self.history:
            score = "" if row.score is None else f"{row.score:10.5g}"
            lines.append(f"{row.step:8} {row.loss:12.6g} {score}".rstrip())
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        rows = [[row.step, row.loss, row.score] for row in self.history]
        return html.box("Fit", self._summary(), ("step", "loss", "score"), rows, noun="row")

    def _summary(self) -> list[tuple[str, str]]:
        summary = [("steps", str(int(self.state.step))), ("ended by", self.ended)]
        if self.history:
            summary.append(("loss", f"{self.history[-1].loss:.6g}"))
        if math.isfinite(score := float(self.state.score)):
            summary.append(("best score", f"{score:.6g}"))
        return summary
