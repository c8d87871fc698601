"""fit: a loop that trains a model."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from tosajax import html
from tosajax.arguments.types import check_type, count, shown
from tosajax.progress import Progress
from tosajax.quant.calibration import (
    Observed,
    initial_states,
    not_computed,
    sample_tables,
    settle,
    updated_states,
)
from tosajax.quant.model.arguments import (
    Batch,
    Input,
    as_inputs,
    check_batches,
    check_finite,
    real_inputs,
)
from tosajax.quant.model.norms import Norms, with_statistics
from tosajax.quant.model.qmodel import Mode, QModel
from tosajax.quant.model.recipes import Params
from tosajax.quant.training.losses import Loss, of_outputs
from tosajax.quant.training.schedule import Schedule
from tosajax.quant.training.steps import import_optax, relative

if TYPE_CHECKING:
    import optax

# Of inputs as for `QModel.apply`; returns outputs as that does.
Teacher = Callable[..., Sequence[jax.Array]]
Ended = Literal["steps", "batches", "patience"]
_T = TypeVar("_T")


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class FitState:
    """All that a training run goes on from: a pytree of arrays, to save and to resume.

    Args:
      step: int32: the steps that were made.
      params: as trained.
      optimizer: its state.
      average: of params, where the schedule asks for it; else empty.
      best: the parameters of the highest score, where there are scores; else empty.
      score: float32: theirs; -inf before the first.
      waited: int32: scores since then.
      observed: the states of observers, where the schedule asks for them; else empty.
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
    """What `fit` found.

    Args:
      params: to freeze: those of the best score, where there are scores; else the last, averaged
        where the schedule asks for it.
      state: to go on from.
      history: a row for every so many steps.
      ended: by the number of "steps", the end of "batches", or by "patience".
    """

    params: Params
    state: FitState
    history: tuple[FitRow, ...]
    ended: Ended

    def __repr__(self) -> str:
        return f"Fit({', '.join(f'{what} {value}' for what, value in self._summary())})"

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
        found = [("steps", str(int(self.state.step))), ("ended by", self.ended)]
        if self.history:
            found.append(("loss", f"{self.history[-1].loss:.6g}"))
        if math.isfinite(score := float(self.state.score)):
            found.append(("best score", f"{score:.6g}"))
        return found


def fit(
    model: QModel,
    params: Params,
    batches: Iterable[tuple[Batch, Any]],
    loss: Loss,
    *,
    steps: int | None = None,
    optimizer: optax.GradientTransformation | None = None,
    mode: Mode = "exact",
    schedule: Schedule | None = None,
    teacher: Teacher | Literal["float"] | None = None,
    penalty: Callable[[Params], jax.Array] | None = None,
    derive: Callable[[Params], Params] | None = None,
    evaluate: Callable[[Params], float] | None = None,
    every: int = 100,
    patience: int | None = None,
    on_state: Callable[[FitState], object] | None = None,
    state: FitState | None = None,
    seed: int = 0,
    progress: bool = False,
) -> Fit:
    """Trains a model: a step for each batch, in one compiled program.

    Nothing here is needed to train: `model.apply` is a function to differentiate, and `relative`
    makes an optimizer of any of optax that keeps scales positive.

    Args:
      model: from `prepare` or `lift`.
      params: its parameters, which stay as they are.
      batches: pairs of inputs, as for `QModel.apply`, and targets, a pytree of arrays. A list or
        another collection is gone through as often as needed, an iterator, such as a generator,
        once.
      loss: of the outputs, a tuple, and the targets; to a scalar.
      steps: how many, of all runs that the state comes from; by default one for each batch.
      optimizer: of optax, of the parameters; `relative(optax.adam(...))` with a rate that falls
        from 0.001 to 0 by default.
      mode: as for `QModel.apply`.
      schedule: what changes from step to step.
      teacher: its outputs for the inputs are the third argument of `loss` (`distillation`,
        `squared_difference`); "float": the float graph with the values in `params`.
      penalty: of the parameters, added to the loss (`mean_bits`).
      derive: makes the parameters of the model from those that are trained (`with_bits`).
      evaluate: gives parameters a score; the result is those of the highest.
      every: steps between scores, and rows of the history.
      patience: ends the training after so many scores in a row below the highest.
      on_state: called with a copy of the state every so many steps, and at the end, to save it.
      state: from an earlier run with the same arguments, to go on from. A list of batches goes on
        where it was; of an iterator, give the batches that are left.
      seed: of stochastic rounding.
      progress: show a bar of steps, with the rate and the loss, on a terminal; step one compiles.

    Raises:
      ImportError: optax is not installed.
      TypeError: an argument, or an example, is of another type.
      ValueError: there are no batches, or an iterator ends before `steps`, after the steps that
        it has batches for; an input is NaN or infinite; the arguments contradict each other; or
        the parameters are of another model.
      FloatingPointError: the loss is NaN or infinite. States that `on_state` got before are from
        steps with finite losses.

    Example:
      >>> import jax.numpy as jnp
      >>> import numpy as np
      >>> from tosajax import quant
      >>> w, x, y = np.float32([[1], [3]]), np.float32([[-1, 1]]), np.float32([[2.5]])
      >>> model = quant.prepare(lambda x: x @ w, example_args=[x])
      >>> def loss(outputs, targets):
      ...     return jnp.mean((outputs[0] - targets) ** 2)
      >>> trained = quant.fit(model, quant.calibrate(model, [x]), [(x, y)], loss, steps=3)
      >>> trained.ended, int(trained.state.step)
      ('steps', 3)
    """
    schedule = Schedule() if schedule is None else schedule
    _check(model, batches, schedule, every, patience, evaluate)
    made = params if derive is None else jax.jit(derive)(params)
    model.check(made, mode)
    total = _total(batches, steps)
    if optimizer is None:
        optimizer = _default_optimizer(total)
    if teacher == "float":
        teacher = functools.partial(model.jitted(_float_outputs), made)
    run = _Run(model, of_outputs(loss), optimizer, mode, schedule, teacher, penalty, derive, seed)
    state = run.start(params, evaluate) if state is None else _copied(state)
    looks = _Looks(run, evaluate, on_state)
    step, ended = int(state.step), "steps"
    with Progress(total, progress, unit="step") as bar:
        bar.update(step)
        bar.step("compiling")
        for inputs, targets in _examples(model, batches, step, total):
            if step < schedule.observe:
                state = run.observe(state, inputs)
            state, value = run.step(state, inputs, targets)
            looks.losses.append(value)
            step += 1
            bar.update()
            if step % every == 0 or step == total:
                state = looks.look(state, step)
                bar.step(f"loss {looks.history[-1].loss:.4g}")
                if patience is not None and int(state.waited) >= patience:
                    ended = "patience"
                    break
        else:
            ended = "batches" if total is None or step < total else "steps"
    if looks.losses:
        state = looks.look(state, step)
    if not step and steps != 0:
        raise ValueError("no batches to train with")
    if ended == "batches" and steps is not None:
        raise ValueError(
            f"batches ended after step {step} of {steps}: an iterator is gone through once, "
            "expected a list or another collection, which is gone through as often as needed, or "
            "an iterator with a batch for each step; `on_state` got the state"
        )
    return Fit(state.best or run.result(state), state, tuple(looks.history), ended)


@dataclasses.dataclass(frozen=True, eq=False)
class _Run:
    """What stays the same in all steps."""

    model: QModel
    loss: Loss
    optimizer: optax.GradientTransformation
    mode: Mode
    schedule: Schedule
    teacher: Teacher | None
    penalty: Callable[[Params], jax.Array] | None
    derive: Callable[[Params], Params] | None
    seed: int

    def start(self, params: Params, evaluate: object) -> FitState:
        params = _copied(params)
        with jax.numpy_dtype_promotion("standard"):  # optax relies on it
            optimizer = self.optimizer.init(params)
        has_average, observes = self.schedule.average is not None, self.schedule.observe > 0
        state = FitState(
            step=jnp.int32(0),
            params=params,
            optimizer=optimizer,
            average=_copied(params) if has_average else {},
            best={},
            score=jnp.float32(-math.inf),
            waited=jnp.int32(0),
            observed=initial_states(self.model) if observes else {},
        )
        if evaluate is None:
            return state
        return dataclasses.replace(state, best=_copied(self.result(state)))

    def result(self, state: FitState) -> Params:
        """The parameters to ship."""
        params = state.average or state.params
        return params if self.derive is None else self._derived(params)

    @functools.cached_property
    def _derived(self) -> Callable[[Params], Params]:
        assert self.derive is not None
        return jax.jit(self.derive)

    def observe(self, state: FitState, inputs: Sequence[Input]) -> FitState:
        """The state with ranges from its observers, which have seen these inputs as well."""
        floats = {name: state.params[name] for name in ("values", "norms") if name in state.params}
        update = self.model.jitted(updated_states)
        states, sight = update(state.observed, floats, *self._real(inputs))
        found = settle(self.model, Observed(floats["values"], states))
        if left := not_computed(self.model, sight):
            kept = {name: state.params["qparams"][name] for name in left}
            qparams = {**found["qparams"], **kept}
            found = sample_tables(self.model, {**found, "qparams": qparams})
        # Copies, as a step takes its parameters, and tables' scales are among them twice.
        params = _copied({**state.params, **found})
        # The average of tables would not be of the average scale that they are sampled in.
        average = _copied(params) if state.average else state.average
        return dataclasses.replace(state, params=params, average=average, observed=states)

    def _real(self, inputs: Sequence[Input]) -> list[Any]:
        assert self.model.float_graph is not None
        return real_inputs(self.model.float_graph.input_tensors, inputs)

    def step(
        self, state: FitState, inputs: Sequence[Input], targets: Any
    ) -> tuple[FitState, jax.Array]:
        taught = None if self.teacher is None else tuple(self.teacher(*inputs))
        is_first = int(state.step) < self.schedule.batch_statistics
        made, value = (self._batch_program if is_first else self._program)(
            (state.params, state.optimizer, state.average),
            state.step,
            self.model.given(inputs),
            targets,
            taught,
        )
        params, optimizer, average = made
        return dataclasses.replace(
            state, step=state.step + 1, params=params, optimizer=optimizer, average=average
        ), value

    @functools.cached_property
    def _program(self) -> Callable[..., Any]:
        """One step of what is trained, which it takes: memory for two would be needed else."""
        return jax.jit(functools.partial(self._step, of_batch=False), donate_argnums=0)

    @functools.cached_property
    def _batch_program(self) -> Callable[..., Any]:
        """The same, with batch norms of the statistics of the batch."""
        return jax.jit(functools.partial(self._step, of_batch=True), donate_argnums=0)

    def _step(
        self,
        trained: Any,
        step: jax.Array,
        inputs: Any,
        targets: Any,
        taught: Any,
        *,
        of_batch: bool,
    ) -> tuple[Any, jax.Array]:
        import optax

        params: Any
        params, state, average = trained
        objective = functools.partial(self._objective, of_batch=of_batch)
        graded = jax.value_and_grad(objective, has_aux=True)
        (value, norms), gradient = graded(params, step, inputs, targets, taught)
        with jax.numpy_dtype_promotion("standard"):  # optax relies on it
            updates: Any
            updates, state = self.optimizer.update(gradient, state, params)
            updates = self.schedule.held(updates, step)
            params = optax.apply_updates(params, updates)
        if of_batch:
            params = with_statistics(params, norms, momentum=self.schedule.momentum)
        if average:
            average = self.schedule.averaged(average, params, step)
        return (params, state, average), value

    def _objective(
        self,
        params: Params,
        step: jax.Array,
        inputs: Any,
        targets: Any,
        taught: Any,
        *,
        of_batch: bool,
    ) -> tuple[jax.Array, Norms]:
        """The loss, and the norms with the statistics that it was computed with."""
        params = params if self.derive is None else self.derive(params)
        key = jax.random.fold_in(jax.random.key(self.seed), step)
        used = self.schedule.used(self.model, params, step, key)
        if of_batch:
            outputs, norms = self.model.apply_batch(used, *inputs, mode=self.mode)
        else:
            outputs, norms = self.model.apply(used, *inputs, mode=self.mode), {}
        others = () if taught is None else (taught,)
        value = jnp.asarray(self.loss(outputs, targets, *others))
        if value.shape:
            raise ValueError(f"loss has shape {value.shape}, expected a scalar, as a mean")
        return (value if self.penalty is None else value + self.penalty(params)), norms


@dataclasses.dataclass(eq=False)
class _Looks:
    """What is done every so many steps: the history, scores, the user's own function."""

    run: _Run
    evaluate: Callable[[Params], float] | None
    on_state: Callable[[FitState], object] | None
    losses: list[jax.Array] = dataclasses.field(default_factory=list)  # since the last look
    history: list[FitRow] = dataclasses.field(default_factory=list)

    def look(self, state: FitState, step: int) -> FitState:
        values = np.asarray(jax.device_get(self.losses), np.float64)
        self.losses.clear()
        if (wrong := np.flatnonzero(~np.isfinite(values))).size:
            first = step - len(values) + int(wrong[0])
            raise FloatingPointError(
                f"the loss is {values[wrong[0]]} in step {first}: a smaller rate, or a check of "
                "the loss, may help"
            )
        score = None
        if self.evaluate is not None:
            made = self.run.result(state)
            score = float(self.evaluate(made))
            state = _with_score(state, made, score)
        self.history.append(FitRow(step, float(values.mean()), score))
        if self.on_state is not None:
            self.on_state(_copied(state))
        return state


def _with_score(state: FitState, params: Params, score: float) -> FitState:
    if not score > float(state.score):  # NaN is not a score
        return dataclasses.replace(state, waited=state.waited + 1)
    return dataclasses.replace(
        state, best=_copied(params), score=jnp.float32(score), waited=jnp.int32(0)
    )


def _float_outputs(model: QModel, params: Params, *inputs: Input) -> tuple[jax.Array, ...]:
    return model.apply(params, *inputs, mode="float")


def _default_optimizer(total: int | None) -> optax.GradientTransformation:
    optax = import_optax()
    if total is None:
        raise ValueError("batches have no length, expected steps or an optimizer")
    return relative(optax.adam(optax.cosine_decay_schedule(1e-3, max(total, 1))))


def _total(batches: Iterable[Any], steps: int | None) -> int | None:
    if steps is not None:
        return count("steps", steps) if steps else 0
    if isinstance(batches, Sized):
        return len(batches)
    if iter(batches) is not batches:
        raise ValueError("batches have no length and no end, expected steps")
    return None


def _examples(
    model: QModel, batches: Iterable[Any], start: int, total: int | None
) -> Iterator[tuple[tuple[Input, ...], Any]]:
    """Inputs and targets of the steps from `start` on."""
    found = _from(batches, start)
    for step in itertools.count(start):
        # The next batch is not taken from an iterator that goes on.
        if total is not None and step >= total:
            return
        batch = next(found, None)
        if batch is None:
            return
        if not isinstance(batch, tuple | list) or len(batch) != 2:
            raise TypeError(
                f"batch {step} is {shown(batch)}, expected a pair of inputs and targets"
            )
        inputs = as_inputs(batch[0])
        check_finite(model.graph.input_tensors, inputs, where=f"batch {step}: ")
        yield inputs, batch[1]


def _from(batches: Iterable[Any], start: int) -> Iterator[Any]:
    """Batches from a step on: of a collection again and again, of an iterator those left."""
    skipped = start % len(batches) if isinstance(batches, Sized) and len(batches) else 0
    yield from itertools.islice(batches, skipped, None)
    is_empty = False
    while not is_empty:
        is_empty = True
        for batch in batches:
            is_empty = False
            yield batch


def _copied(tree: _T) -> _T:
    return jax.tree.map(jnp.copy, tree)


def _check(
    model: QModel,
    batches: Iterable[Any],
    schedule: Schedule,
    every: int,
    patience: int | None,
    evaluate: object,
) -> None:
    check_type("model", model, QModel, "a QModel, from `prepare` or `lift`")
    check_type("schedule", schedule, Schedule, "a Schedule")
    check_batches(batches)
    for name, steps in (("every", every), ("patience", patience)):
        if steps is not None and count(name, steps) < 1:
            raise ValueError(f"{name} is {steps}, expected at least 1")
    if patience is not None and evaluate is None:
        raise ValueError("patience without evaluate: there are no scores to wait for")
    schedule.check(model)
