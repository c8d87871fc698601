"""fit: a loop that trains a model."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from tosajax.arguments.types import check_type, count
from tosajax.progress import Progress
from tosajax.quant.calibration import settle
from tosajax.quant.model.arguments import Batch, Input, check_batches, real_inputs
from tosajax.quant.model.norms import with_statistics
from tosajax.quant.model.programs import jitted
from tosajax.quant.model.recipes import Params
from tosajax.quant.model.run import Mode, input_arrays
from tosajax.quant.observing import Observed, initial_states, not_computed, updated_states
from tosajax.quant.qmodel import QModel, prepared
from tosajax.quant.sampling import sample_tables
from tosajax.quant.training.examples import examples, step_count
from tosajax.quant.training.losses import Loss, of_outputs
from tosajax.quant.training.objective import Example, Objective, Teacher
from tosajax.quant.training.schedule import Schedule
from tosajax.quant.training.state import Ended, Fit, FitRow, FitState
from tosajax.quant.training.steps import import_optax, relative, without_fixed_steps

if TYPE_CHECKING:
    import optax

_T = TypeVar("_T")


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
      model: the model, from `prepare` or `lift`.
      params: its parameters, which stay as they are.
      batches: pairs of inputs, as for `QModel.apply`, and targets, a pytree of arrays. A list or
        another collection is gone through as often as needed, an iterator, such as a generator,
        once.
      loss: a function of the outputs, a tuple, and the targets; returns a scalar.
      steps: how many, of all runs that the state comes from; by default one for each batch.
      optimizer: an optimizer of optax for the parameters; `relative(optax.adam(...))` with a rate
        that falls from 0.001 to 0 by default.
      mode: the mode, as for `QModel.apply`.
      schedule: the `Schedule`: bits, noise and ranges that change from step to step.
      teacher: its outputs for the inputs are the third argument of `loss` (`distillation`,
        `squared_difference`); "float": the float graph with the values in `params`.
      penalty: the penalty of the parameters, added to the loss (`mean_bits`).
      derive: makes the parameters of the model from those that are trained (`with_bits`).
      evaluate: gives parameters a score; the result has the highest.
      every: steps between scores, and rows of the history.
      patience: ends the training after so many scores in a row below the highest.
      on_state: called with a copy of the state every so many steps, and at the end, to save it.
      state: the state from an earlier run with the same arguments, to go on from. A list of batches
        goes on where it was; of an iterator, give the batches that are left.
      seed: the seed of stochastic rounding.
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
    looks = _Looks(every, patience, evaluate, on_state)
    _check(model, batches, schedule, looks)
    derived = params if derive is None else jax.jit(derive)(params)
    model.check(derived, mode)
    total = step_count(batches, steps)
    if optimizer is None:
        optimizer = _default_optimizer(total)
    if teacher == "float":
        teacher = functools.partial(jitted(model, _float_outputs), derived)
    derive = derive or _identity
    objective = Objective(model, of_outputs(loss), mode, schedule, penalty, derive, seed)
    run = _Run(objective, optimizer, teacher)
    state = run.start(params, is_scored=evaluate is not None) if state is None else _copy(state)
    with Progress(total, progress, unit="step") as bar:
        state, ended = _train(run, looks, state, batches, total, bar)
    step = int(state.step)
    if not step and steps != 0:
        raise ValueError("no batches to train with")
    if ended == "batches" and steps is not None:
        raise ValueError(
            f"batches ended after step {step} of {steps}: an iterator is gone through once, "
            "expected a list or another collection, which is gone through as often as needed, or "
            "an iterator with a batch for each step; `on_state` got the state"
        )
    return Fit(state.best or run.result(state), state, tuple(looks.history), ended)


def _train(
    run: _Run,
    looks: _Looks,
    state: FitState,
    batches: Iterable[Any],
    total: int | None,
    bar: Progress,
) -> tuple[FitState, Ended]:
    """The state after the last step, and why it was the last."""
    step, schedule = int(state.step), run.objective.schedule
    ended: Ended = "patience"
    bar.update(step)
    bar.step("compiling")
    tensors = run.objective.model.graph.input_tensors
    for inputs, targets in examples(tensors, batches, step, total):
        if step < schedule.observe:
            state = run.observe(state, inputs)
        state, value = run.step(state, inputs, targets)
        looks.losses.append(value)
        step += 1
        bar.update()
        if step % looks.every == 0 or step == total:
            state = looks.look(run, state, step)
            bar.step(f"loss {looks.history[-1].loss:.4g}")
            if looks.patience is not None and int(state.waited) >= looks.patience:
                break
    else:
        ended = "batches" if total is None or step < total else "steps"
    if looks.losses:
        state = looks.look(run, state, step)
    return state, ended


@dataclasses.dataclass(frozen=True, eq=False)
class _Run:
    """A training run: all that stays the same in its steps."""

    objective: Objective
    optimizer: optax.GradientTransformation
    teacher: Teacher | None

    def start(self, params: Params, *, is_scored: bool) -> FitState:
        """The state before the first step."""
        params, schedule = _copy(params), self.objective.schedule
        with jax.numpy_dtype_promotion("standard"):  # optax relies on it
            optimizer = self.optimizer.init(params)
        state = FitState(
            step=jnp.int32(0),
            params=params,
            optimizer=optimizer,
            average=_copy(params) if schedule.average is not None else {},
            best={},
            score=jnp.float32(-math.inf),
            waited=jnp.int32(0),
            observed=initial_states(self.objective.model) if schedule.observe else {},
        )
        if not is_scored:
            return state
        return dataclasses.replace(state, best=_copy(self.result(state)))

    def result(self, state: FitState) -> Params:
        """The parameters to ship."""
        return self._derive(state.average or state.params)

    @functools.cached_property
    def _derive(self) -> Callable[[Params], Params]:
        derive = self.objective.derive
        return derive if derive is _identity else jax.jit(derive)

    def observe(self, state: FitState, inputs: Sequence[Input]) -> FitState:
        """The state with ranges from its observers, which have seen these inputs as well."""
        model = prepared(self.objective.model)
        groups = ("values", "norms", "factors")
        floats = {name: state.params[name] for name in groups if name in state.params}
        reals = real_inputs(model.float_graph.input_tensors, inputs)
        states, sight = jitted(model, updated_states)(state.observed, floats, *reals)
        factors = floats.get("factors", {})
        settled = settle(model, Observed(floats["values"], states, factors=factors))
        if unseen := not_computed(model, sight):
            previous = {name: state.params["qparams"][name] for name in unseen}
            settled = sample_tables(
                model, {**settled, "qparams": {**settled["qparams"], **previous}}
            )
        # Copies, as a step takes its parameters, and tables' scales are among them twice.
        params = _copy({**state.params, **settled})
        # The average of tables would not be of the average scale that they are sampled in.
        average = _copy(params) if state.average else state.average
        return dataclasses.replace(state, params=params, average=average, observed=states)

    def step(
        self, state: FitState, inputs: Sequence[Input], targets: Any
    ) -> tuple[FitState, jax.Array]:
        """The state after a step, and the loss before it."""
        taught = None if self.teacher is None else tuple(self.teacher(*inputs))
        example = Example(input_arrays(self.objective.model, inputs), targets, taught)
        is_first = int(state.step) < self.objective.schedule.batch_statistics
        program = self._batch_program if is_first else self._program
        trained = state.params, state.optimizer, state.average
        (params, optimizer, average), value = program(trained, state.step, example)
        return dataclasses.replace(
            state, step=state.step + 1, params=params, optimizer=optimizer, average=average
        ), value

    @functools.cached_property
    def _program(self) -> Callable[..., Any]:
        """One training step, which donates its state: else memory for two would be needed."""
        return jax.jit(functools.partial(self._step, of_batch=False), donate_argnums=0)

    @functools.cached_property
    def _batch_program(self) -> Callable[..., Any]:
        """One step whose batch norms have the statistics of the batch."""
        return jax.jit(functools.partial(self._step, of_batch=True), donate_argnums=0)

    def _step(
        self, trained: Any, step: jax.Array, example: Example, *, of_batch: bool
    ) -> tuple[Any, jax.Array]:
        import optax

        params: Any
        params, state, average = trained
        schedule = self.objective.schedule
        objective = functools.partial(self.objective, of_batch=of_batch)
        (value, norms), gradient = jax.value_and_grad(objective, has_aux=True)(
            params, step, example
        )
        with jax.numpy_dtype_promotion("standard"):  # optax relies on it
            updates: Any
            updates, state = self.optimizer.update(gradient, state, params)
            updates = schedule.with_held_scales(without_fixed_steps(updates), step)
            params = optax.apply_updates(params, updates)
        if of_batch:
            params = with_statistics(params, norms, momentum=schedule.momentum)
        if average:
            average = schedule.averaged(average, params, step)
        return (params, state, average), value


@dataclasses.dataclass(eq=False)
class _Looks:
    """The work of every so many steps: the history, scores, the user's own function."""

    every: int
    patience: int | None
    evaluate: Callable[[Params], float] | None
    on_state: Callable[[FitState], object] | None
    losses: list[jax.Array] = dataclasses.field(default_factory=list)  # since the last look
    history: list[FitRow] = dataclasses.field(default_factory=list)

    def look(self, run: _Run, state: FitState, step: int) -> FitState:
        """The state with the score of its parameters, after a row of the history."""
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
            result = run.result(state)
            score = float(self.evaluate(result))
            state = _with_score(state, result, score)
        self.history.append(FitRow(step, float(values.mean()), score))
        if self.on_state is not None:
            self.on_state(_copy(state))
        return state


def _with_score(state: FitState, params: Params, score: float) -> FitState:
    if not score > float(state.score):  # NaN is not a score
        return dataclasses.replace(state, waited=state.waited + 1)
    return dataclasses.replace(
        state, best=_copy(params), score=jnp.float32(score), waited=jnp.int32(0)
    )


def _float_outputs(model: QModel, params: Params, *inputs: Input) -> tuple[jax.Array, ...]:
    return model.apply(params, *inputs, mode="float")


def _default_optimizer(total: int | None) -> optax.GradientTransformation:
    optax = import_optax()
    if total is None:
        raise ValueError("batches have no length, expected steps or an optimizer")
    return relative(optax.adam(optax.cosine_decay_schedule(1e-3, max(total, 1))))


def _identity(params: Params) -> Params:
    return params


def _copy(tree: _T) -> _T:
    return jax.tree.map(jnp.copy, tree)


def _check(model: QModel, batches: Iterable[Any], schedule: Schedule, looks: _Looks) -> None:
    check_type("model", model, QModel, "a QModel, from `prepare` or `lift`")
    check_type("schedule", schedule, Schedule, "a Schedule")
    check_batches(batches)
    for name, steps in (("every", looks.every), ("patience", looks.patience)):
        if steps is not None and count(name, steps) < 1:
            raise ValueError(f"{name} is {steps}, expected at least 1")
    if looks.patience is not None and looks.evaluate is None:
        raise ValueError("patience without evaluate: there are no scores to wait for")
    schedule.check(model)
