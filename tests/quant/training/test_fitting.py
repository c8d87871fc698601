"""fit: the steps of a loop by hand, resumed anywhere, and its ends and errors."""

from __future__ import annotations

import pickle
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from tosajax import quant as tq


def equal(a: Any, b: Any) -> None:
    jax.tree.map(np.testing.assert_array_equal, a, b)


@pytest.mark.parametrize("mode", ["exact", "fake_quant", "float"])
def test_the_loss_falls(model, params, batches, loss, mode):
    before = jax.tree.map(np.array, params)
    optimizer = tq.relative(optax.adam(1e-2))
    found = tq.fit(model, params, batches, loss, steps=150, optimizer=optimizer, mode=mode, every=5)
    first, last = found.history[0], found.history[-1]
    assert last.loss < 0.5 * first.loss
    assert [row.step for row in found.history] == list(range(5, 151, 5))
    assert found.ended == "steps"
    equal(params, before)
    assert tq.check_bit_exact(model, found.params, batches[0][0], against=("frozen",))


def test_steps_are_those_of_a_loop_by_hand(model, params, batches, loss):
    optimizer = tq.relative(optax.adam(optax.cosine_decay_schedule(1e-3, 7)))

    @jax.jit
    def step(params: Any, state: Any, x: Any, y: Any) -> Any:
        value, gradient = jax.value_and_grad(lambda p: loss(model.apply(p, x), y))(params)
        with jax.numpy_dtype_promotion("standard"):
            updates: Any
            updates, state = optimizer.update(gradient, state, params)
        return optax.apply_updates(params, updates), state, value

    by_hand, losses = params, []
    with jax.numpy_dtype_promotion("standard"):
        state = optimizer.init(params)
    for n in range(7):
        by_hand, state, value = step(by_hand, state, *batches[n % 5])
        losses.append(float(value))
    found = tq.fit(model, params, batches, loss, steps=7, every=1)
    np.testing.assert_allclose([row.loss for row in found.history], losses, rtol=1e-5)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), found.params, by_hand)


def schedule() -> tq.Schedule:
    return tq.Schedule(
        observe=2,
        hold_scales=7,
        extra_bits=optax.linear_schedule(2, 0, 8),
        stochastic=optax.linear_schedule(1, 0, 8),
        average=0.9,
    )


@pytest.mark.slow
@pytest.mark.parametrize("at", [1, 3, 8])
def test_a_resumed_run_is_an_uninterrupted_one(model, params, batches, loss, at):
    def run(steps: int, state: Any = None) -> tq.Fit:
        return tq.fit(
            model,
            params,
            batches,
            loss,
            steps=steps,
            optimizer=tq.relative(optax.adam(1e-2)),
            schedule=schedule(),
            evaluate=lambda p: -float(loss(model.apply(p, batches[0][0]), batches[0][1])),
            every=4,
            state=state,
        )

    half = run(at)
    kept = pickle.loads(pickle.dumps(half.state))
    whole, resumed = run(9), run(9, half.state)
    assert int(resumed.state.step) == 9
    equal(resumed.state.params, whole.state.params)
    equal(resumed.state.average, whole.state.average)
    equal(half.state, kept)  # a run leaves the state that it starts from
    done = run(at, half.state)
    assert (done.ended, done.history) == ("steps", ())
    assert run(1, whole.state).ended == "steps"


def test_states_are_saved_by_orbax(model, params, batches, loss, tmp_path):
    orbax = pytest.importorskip("orbax.checkpoint")

    def run(steps: int, **options: Any) -> tq.Fit:
        return tq.fit(
            model, params, batches, loss, steps=steps, schedule=tq.Schedule(average=0.9), **options
        )

    optimizer = tq.relative(optax.adam(1e-2))
    with orbax.StandardCheckpointer() as checkpointer:

        def save(state: tq.FitState) -> None:
            checkpointer.save(tmp_path / str(int(state.step)), state)

        run(4, optimizer=optimizer, every=2, on_state=save)
        checkpointer.wait_until_finished()
        empty = run(0, optimizer=optimizer).state
        state = checkpointer.restore(tmp_path / "2", empty)
    equal(run(4, optimizer=optimizer, state=state).state, run(4, optimizer=optimizer).state)


def test_the_best_parameters_win(model, params, batches, loss):
    """The third score is the highest; two looks later patience ends the run."""
    scores = iter([1.0, 0.5, 3.0, 2.5, float("nan"), 9.0])
    seen = []
    found = tq.fit(
        model,
        params,
        batches,
        loss,
        steps=100,
        every=2,
        evaluate=lambda p: (seen.append(np.array(p["values"]["w0"])), next(scores))[1],
        patience=2,
    )
    assert found.ended == "patience"
    assert [row.score for row in found.history[:4]] == [1, 0.5, 3, 2.5]
    assert int(found.state.step) == 10
    assert float(found.state.score) == 3
    np.testing.assert_array_equal(found.params["values"]["w0"], seen[2])
    assert (seen[2] != seen[3]).any()
    assert "best score 3" in repr(found)
    assert str(found).splitlines()[3].split() == ["6", f"{found.history[2].loss:.6g}", "3"]


def test_states_outlive_the_steps_after_them(model, params, batches, loss):
    seen: list[tq.FitState] = []
    found = tq.fit(model, params, batches, loss, steps=5, every=2, on_state=seen.append)
    assert [int(state.step) for state in seen] == [2, 4, 5]
    equal(seen[-1], found.state)
    resumed = tq.fit(model, params, batches, loss, steps=5, state=seen[0])
    equal(resumed.state, found.state)


def test_iterators_end(model, params, batches, loss):
    optimizer = tq.relative(optax.sgd(1e-2))
    found = tq.fit(model, params, iter(batches), loss, optimizer=optimizer)
    assert (found.ended, int(found.state.step)) == ("batches", 5)
    assert [row.step for row in found.history] == [5]
    rest = iter(batches)
    tq.fit(model, params, rest, loss, steps=2)
    assert len(list(rest)) == 3
    with pytest.raises(ValueError, match="batches have no length, expected steps or an optimizer"):
        tq.fit(model, params, iter(batches), loss)
    assert int(tq.fit(model, params, batches, loss).state.step) == 5


def test_an_iterator_that_ends_before_the_steps_asked_for(model, params, batches, loss):
    """A generator is gone through once: not as many steps as asked for is an error."""
    seen: list[tq.FitState] = []
    for steps in (6, 100):
        given = (batch for batch in batches)
        with pytest.raises(ValueError, match=rf"batches ended after step 5 of {steps}: an iterat"):
            tq.fit(model, params, given, loss, steps=steps, on_state=seen.append)
    assert [int(state.step) for state in seen] == [5, 5]
    enough = (batch for batch in batches)
    found = tq.fit(model, params, enough, loss, steps=5)
    assert (found.ended, int(found.state.step)) == ("steps", 5)
    # With a state to go on from, the steps of both runs count.
    rest = (batch for batch in batches[:2])
    found = tq.fit(model, params, rest, loss, steps=7, state=seen[0])
    assert (found.ended, int(found.state.step)) == ("steps", 7)


@pytest.mark.slow
def test_batches_of_a_generator_serve_everything_that_takes_them_at_once(model, params, batches):
    """What goes through batches several times keeps them."""
    inputs = [x for x, _ in batches]
    for tune in (tq.gptq, tq.bias_correct):
        of_list, of_generator = (tune(model, params, each) for each in (inputs, iter(inputs)))
        equal(of_list, of_generator)
    equal(tq.calibrate(model, inputs), tq.calibrate(model, iter(inputs)))
    used = iter(inputs)
    tq.calibrate(model, used)
    with pytest.raises(ValueError, match="no examples"):
        tq.gptq(model, params, used)


def test_a_teacher(model, params, batches):
    """The float graph as it was; or any function of the inputs."""
    optimizer = tq.relative(optax.adam(2e-3))
    seen = []

    def loss(outputs: Any, targets: Any, taught: Any) -> jax.Array:
        assert targets is None
        return tq.squared_difference(outputs, targets, taught)

    alone = [(x, None) for x, _ in batches]
    found = tq.fit(
        model, params, alone, loss, steps=60, optimizer=optimizer, teacher="float", every=10
    )
    assert found.history[-1].loss < 0.9 * found.history[0].loss
    wanted = model.apply(params, batches[0][0], mode="float")
    before = float(tq.squared_difference(model.apply(params, batches[0][0]), None, wanted))
    once = tq.fit(model, params, alone, loss, steps=1, teacher="float")
    np.testing.assert_allclose(once.history[0].loss, before, rtol=1e-5)

    def teacher(x: Any) -> Any:
        seen.append(x)
        return (jnp.zeros((16, 1, 1, 3)),)

    zeros = tq.fit(model, params, alone, loss, steps=1, teacher=teacher)
    wanted = jnp.square(model.apply(params, batches[0][0])[0]).mean()
    np.testing.assert_allclose(zeros.history[0].loss, wanted, rtol=1e-5)
    np.testing.assert_array_equal(seen[0], batches[0][0])


def test_batches_without_a_length(model, params, batches, loss):
    """A collection is gone through again, and so needs an end."""

    class Loader:
        def __iter__(self) -> Any:
            return iter(batches)

    optimizer = tq.relative(optax.adam(1e-3))
    found, wanted = (
        tq.fit(model, params, given, loss, steps=7, optimizer=optimizer)
        for given in (Loader(), batches)
    )
    equal(found.params, wanted.params)
    with pytest.raises(ValueError, match="batches have no length and no end, expected steps"):
        tq.fit(model, params, Loader(), loss, optimizer=optimizer)


def test_parameters_of_another_structure(model, params, batches, loss):
    """`derive` makes those of the model, for the teacher and the result as well."""

    def derive(free: Any) -> Any:
        return {**params, "values": {**params["values"], "b1": free["bias"]}}

    start = {"bias": params["values"]["b1"]}
    found = tq.fit(
        model,
        start,
        batches,
        lambda outputs, targets, taught: tq.squared_difference(outputs, targets, taught),
        optimizer=optax.sgd(1e-2),
        teacher="float",
        derive=derive,
    )
    assert (found.state.params["bias"] != start["bias"]).any()
    equal(found.params, derive(found.state.params))
    with pytest.raises(ValueError, match="no 'values'"):
        tq.fit(model, start, batches, loss, derive=lambda free: free)


def test_derived_parameters_and_a_penalty(model, params, batches, loss):
    """Bits that are trained through `with_bits`, at a price."""
    start = {**params, "free": jnp.float32(6)}

    def derive(free: Any) -> Any:
        rest = {group: value for group, value in free.items() if group != "free"}
        return tq.with_bits(model, rest, {"conv1": free["free"]})

    found = tq.fit(
        model,
        start,
        batches,
        loss,
        steps=5,
        optimizer=optax.sgd(1e-3),
        derive=derive,
        penalty=lambda p: 1000 * p["qparams"]["conv1"].bits,
    )
    assert "free" not in found.params
    np.testing.assert_allclose(found.params["qparams"]["conv1"].bits, 6 - 5, atol=0.01)


def test_a_lifted_model_is_trained(model, params, batches, loss):
    lifted, own = tq.lift(model.freeze(params), ["weights", "bias"])
    ready = [(np.asarray(model.input_integers(params, x)[0].q), 20 * y) for x, y in batches]
    optimizer = optax.adam(0.3)
    found = tq.fit(lifted, own, ready, loss, steps=60, optimizer=optimizer, every=5)
    assert found.history[-1].loss < 0.7 * found.history[0].loss
    assert tq.check_bit_exact(lifted, found.params, ready[0][0], against=("frozen",))


def nan(outputs: Any, targets: Any) -> jax.Array:
    return outputs[0].mean() * jnp.nan


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"loss": nan}, FloatingPointError, "the loss is nan in step 0"),
        ({"loss": lambda y, t: y[0]}, ValueError, r"loss has shape \(16, 1, 1, 3\), expected a sc"),
        ({"batches": []}, ValueError, "no batches to train with"),
        ({"batches": [np.ones(3)]}, TypeError, "batch 0 is .*expected a pair of inputs and targ"),
        ({"batches": 3}, TypeError, "batches is 3"),
        ({"every": 0}, ValueError, "every is 0, expected at least 1"),
        ({"patience": 1}, ValueError, "patience without evaluate"),
        ({"patience": 0, "evaluate": len}, ValueError, "patience is 0"),
        ({"steps": -1}, ValueError, "steps is -1"),
        ({"steps": 1.5}, TypeError, "steps is 1.5 .*, expected an integer"),
        ({"model": 3}, TypeError, "model is 3 .*, expected a QModel"),
        ({"schedule": 3}, TypeError, "schedule is 3 .*, expected a Schedule"),
        ({"mode": "soft"}, ValueError, "mode 'soft'"),
        ({"params": {}}, ValueError, "no 'values'"),
    ],
)
def test_wrong_calls(model, params, batches, loss, options, error, message):
    known = {"model": model, "params": params, "batches": batches, "loss": loss}
    with pytest.raises(error, match=message):
        tq.fit(**{**known, **options})


def test_an_input_that_is_not_finite(model, params, batches, loss):
    x = batches[1][0].copy()
    x[2, 0, 0, 1] = np.inf
    with pytest.raises(ValueError, match=r"batch 1: .*inf"):
        tq.fit(model, params, [batches[0], (x, batches[1][1])], loss)
