"""auto: from a float graph to integers that ship, in one call."""

from __future__ import annotations

import dataclasses
import functools
import math
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tosajax import html, vela
from tosajax.arguments.types import check_type
from tosajax.graph import Graph
from tosajax.progress import Progress
from tosajax.quant.calibration import calibrate, real_batches
from tosajax.quant.model.arguments import Batch, Input, real_examples
from tosajax.quant.model.batches import examples_at_once, joined_rows, rows
from tosajax.quant.model.parts import heads
from tosajax.quant.model.programs import jitted
from tosajax.quant.model.recipes import Params
from tosajax.quant.model.run import computed_constants, exact_of_constants, rounded_weights
from tosajax.quant.outliers import sizes_of, times_usual
from tosajax.quant.preparation import prepare
from tosajax.quant.qmodel import PreparedModel
from tosajax.quant.spec import Rule
from tosajax.quant.tune.bias_correction import bias_correct
from tosajax.quant.tune.budget import Budget
from tosajax.quant.tune.costs import Limits, cost_of
from tosajax.quant.tune.equalization import equalize, smooth
from tosajax.quant.tune.gptq import gptq
from tosajax.quant.tune.heap import trim
from tosajax.quant.tune.lifts import Examples, Lifts, lift_some, outputs_to_lift, refused
from tosajax.quant.tune.noise import GAIN, decibels, lowers_noise, relative_noise
from tosajax.quant.tune.range_choice import Kinds, RangeChoice
from tosajax.quant.tune.remedies import Auto, Remedy, Spent
from tosajax.quant.tune.rescuing import lift_candidates
from tosajax.report import UnsupportedError
from tosajax.validation import validate

_MOST_EXAMPLES = 32  # that one run measures
_FAR = 8  # times the largest outputs of most examples, those of an outlier
_SHARE = 0.6  # of the time, which constants of the same function may take
_REST = 1.2  # times the defaults take, what follows the choice of INT16: two more compilations
_LITTLE = 1e-5  # noise of a head, 50 dB: as good as none
_SEEN = "all examples seen"  # a step of the search, after which ranges are those of all examples

# Runs the integers on a batch of real inputs, and returns real outputs.
Predict = Callable[..., tuple[jax.Array, ...]]
# Of a `Predict`; the greater, the better.
Metric = Callable[[Predict], float]


def auto(
    graph: Graph | Callable[..., Any],
    batches: Iterable[Batch],
    rules: Sequence[Rule] = (),
    *,
    example_args: Sequence[Any] | None = None,
    params: Any | None = None,
    states: Mapping[str, str] | None = None,
    metric: Metric | None = None,
    budget: Budget | None = None,
    start: Auto | None = None,
    on_remedy: Callable[[Auto], object] | None = None,
    progress: bool = False,
) -> Auto:
    """Quantizes a graph with the remedies that help it, within a budget.

    First it leaves out examples whose outputs are far beyond those of others. It chooses ranges
    that leave out outliers, each judged on examples that it was not observed on, as ranges hold all
    that they have seen. With the ranges of all examples it goes on to GPTQ; activations that are
    smoothed, or channels that are equalized, before GPTQ, which makes weights of large channels
    round well, and by themselves where GPTQ has lost; INT16 for the tensors that are missed most,
    for their cost, where all others have it, as far as the budget goes; corrected biases. Outputs
    count alike, each by the share of its noise that is left. A remedy is kept if it raises the
    metric; or lowers the noise of the integers that ship, over all examples and by more than a few
    of them would by chance, is not worse on the other half, and does not lower the metric. GPTQ is
    kept as well where weights alone make less noise, and INT16, whose tensors have lowered it by as
    much in simulation, unless it grows.

    Args:
      graph: the float graph or function, as for `prepare`.
      batches: examples, as for `calibrate`; at least two, or the same ones choose and judge.
      rules: how nodes are quantized, as for `prepare`; INT8 by default.
      example_args: as for `prepare`.
      params: as for `prepare`.
      states: as for `prepare`; `rollout` makes examples of them.
      metric: a function of `predict`, which takes real inputs (a batch) and returns the real
        outputs of the integers; for example, it returns the accuracy on labelled data. The greater,
        the better.
      budget: what the search may spend; `Budget()` by default.
      start: the result of a search of the same graph, rules and examples to go on from, as when its
        time was over. What it tried is not tried again.
      on_remedy: a function of the result so far, which is called after each remedy; for example, it
        pickles it, to go on from.
      progress: show the remedy at work on a terminal.

    Returns:
      The model, its parameters, the graph to ship, and what was tried.

    Raises:
      TypeError, ValueError, UnsupportedError, TosaError: as `prepare` and `calibrate` raise them.
      ValueError: `start` is the result of another graph.

    Example:
      >>> import numpy as np
      >>> from tosajax import quant
      >>> rng = np.random.default_rng(0)
      >>> w = rng.normal(size=(8, 4)).astype(np.float32)
      >>> batches = [rng.normal(size=(1, 8)).astype(np.float32) for _ in range(8)]
      >>> result = quant.auto(lambda x: x @ w, batches, example_args=[batches[0]])
      >>> result.graph.input_tensors[0].dtype, result.graph.output_tensors[0].dtype
      (DType.INT8, DType.INT16)
      >>> [remedy.name for remedy in result.remedies][:2]
      ['defaults', 'percentile 99.999']
    """
    budget = Budget() if budget is None else budget
    check_type("budget", budget, Budget, "a quant.Budget")
    check_type("start", start, Auto | None, "the result of `auto`")
    batches = list(batches)
    with Progress(None, progress, unit="remedy") as bar:
        bar.step("defaults")
        begin = time.perf_counter()
        model = prepare(graph, rules, example_args=example_args, params=params, states=states)
        if start is not None:
            _check_same(start.model, model)
        search = _Search(model, calibrate(model, batches), batches, budget, metric, bar, begin)
        search.run(start, on_remedy)
        return _estimated(search.result())


class _Candidate(NamedTuple):
    """A model and its parameters, with the noise of each example relative to the mean signal."""

    model: PreparedModel
    params: Params
    noise: np.ndarray = np.full(1, math.inf)  # of the examples that choose
    held_back: np.ndarray = np.full(1, math.inf)
    score: float | None = None
    note: str = ""
    kinds: Kinds = MappingProxyType({})
    lifts: Lifts = Lifts()


_Remedy = Callable[[_Candidate], _Candidate]


class _Search:
    """Tries remedies one after another, each on the best candidate so far."""

    def __init__(
        self,
        model: PreparedModel,
        params: Params,
        batches: Sequence[Batch],
        budget: Budget,
        metric: Metric | None,
        bar: Progress,
        begin: float,
    ) -> None:
        self.batches, self.budget, self.metric, self.bar = batches, budget, metric, bar
        self.deadline = begin + budget.seconds
        self.end_of_functions = begin + _SHARE * budget.seconds
        self.remedies: list[Remedy] = []
        self.tried: dict[str, bool] = {}  # by an earlier search: whether it kept a remedy
        self.on_remedy: Callable[[Auto], object] | None = None
        tensors = model.float_graph.input_tensors
        real = real_batches(model, batches, allow_nan=False)
        joined = joined_rows(tensors, real)
        half = min(_MOST_EXAMPLES, examples_at_once(model.float_graph))
        total = jax.tree.leaves(joined)[0].shape[0]
        count = min(total, 2 * half)
        places = [np.arange(at, count, 2) for at in (0, min(1, count - 1))]
        self.halves = [_examples_at(joined, each) for each in places]
        self.heads = heads(model)
        self.names = tuple(dict.fromkeys((*self.heads, *model.graph.outputs)))
        watched = model.with_outputs(*self.names)
        floats = [watched.apply(params, *half, mode="float") for half in self.halves]
        self.wanted = [
            {n: np.asarray(y, np.float64) for n, y in zip(self.names, values, strict=True)}
            for values in floats
        ]
        self.ranges = RangeChoice(model, batches, params)
        self.joined, self.places, self.total = joined, places, total
        self.counted = [np.ones(each.size, np.bool_) for each in places]  # in the noise
        self.size = jax.tree.leaves(rows(tensors, real[0]))[0].shape[0]  # its programs are compiled
        self.ranges_without = self._ranges_without_halves(np.arange(0))
        self.weights = self._weights(_Candidate(model, params))
        self.first = self.best = self._measured_unseen(_Candidate(model, params))
        self.first_sqnr = self._outputs_sqnr(self.first)
        self._add("defaults", begin, self.best, is_kept=True)
        self.end_of_choice = self.deadline - _REST * (time.perf_counter() - begin)

    def _ranges_without_halves(self, left_out: np.ndarray) -> list[RangeChoice]:
        """Ranges that have not seen a half, which is measured with them, nor some examples."""
        unseen = [np.union1d(each, left_out) for each in self.places]
        return [self._ranges_of(np.setdiff1d(np.arange(self.total), each)) for each in unseen]

    def _ranges_of(self, places: np.ndarray) -> RangeChoice:
        """The ranges of some examples."""
        if time.perf_counter() > self.deadline or not places.size:
            return self.ranges
        try:
            return self.ranges.on(_in_batches(_examples_at(self.joined, places), self.size))
        except ValueError:  # only other examples take a branch
            return self.ranges

    def run(
        self, start: Auto | None = None, on_remedy: Callable[[Auto], object] | None = None
    ) -> None:
        """All remedies, until the time is over; see `auto`."""
        unseen, self.on_remedy = self._measured_unseen, on_remedy
        self._leave_out_outliers()
        if start is not None:
            self._go_on_from(start)
        for name in self.ranges.observers:
            kinds = self.ranges.everywhere(name)
            self._try(name, lambda c, kinds=kinds: self._of_kinds(c, kinds), unseen)
        self._see_all()
        is_rounded = self._try("gptq", self._by_gptq, is_kept=self._rounds_better)
        for name, make in self._same_functions():
            both = functools.partial(self._with_values, make, then=self._by_gptq)
            is_rounded |= self._try(f"{name}, gptq", both)
        if not is_rounded:
            for name, make in self._same_functions():
                self._try(name, functools.partial(self._with_values, make))
        if self.budget.wide_macs > 0:
            is_lifted = self._try("INT16", self._lifted, is_kept=self._is_worth_lifting)
            if is_lifted:
                self.first.model.programs.clear()
            if is_lifted and not is_rounded:
                # The noise of activations may have hidden what it gained.
                self._try("gptq again", self._by_gptq)
        self.ranges.clear()
        # The last, as it takes up the mean of all errors: biases are wrong where others go later.
        self._try("bias_correct", self._bias_corrected)

    def result(self) -> Auto:
        best = self.best
        before, after = self.first_sqnr, self._outputs_sqnr(best)
        names, graph = best.model.graph.outputs, best.model.freeze(best.params)
        return Auto(
            best.model,
            best.params,
            graph,
            tuple(self.remedies),
            dict(zip(names, zip(before, after, strict=True), strict=True)),
            best.lifts.lifted,
            best.lifts.wide_macs,
            {name: decibels(noise) for name, noise in best.lifts.left.items()},
            dict(best.kinds),
            self._spent(graph),
        )

    def _spent(self, graph: Graph) -> Spent:
        """What the graph of the best candidate takes, beside that by defaults."""
        budget = self.budget
        pair = [cost_of(each, budget) for each in (self.first.model.graph, graph)]
        arena = pair[0].arena_bytes, pair[1].arena_bytes
        if budget.rates is None:
            return Spent(arena)
        cycles = round(pair[0].cycles), round(pair[1].cycles)
        if budget.npu is None:
            return Spent(arena, cycles)
        return Spent(arena, cycles, budget.npu, len(validate(graph, budget.npu).errors))

    def _go_on_from(self, start: Auto) -> None:
        """Takes what an earlier search has found, and what it has tried."""
        self.remedies = list(start.remedies)
        self.tried = {remedy.name: remedy.is_kept for remedy in start.remedies}
        left = {name: 10 ** (-sqnr / 10) for name, sqnr in start.left.items()}
        lifts = Lifts(start.lifted, start.wide_macs, left)
        found = _Candidate(start.model, start.params, kinds=start.observers, lifts=lifts)
        is_seen = _SEEN in self.tried
        self.best = (self._measured if is_seen else self._measured_unseen)(found)

    # One remedy.

    def _try(
        self,
        name: str,
        make: _Remedy,
        measured: _Remedy | None = None,
        is_kept: Callable[[_Candidate], bool] | None = None,
    ) -> bool:
        """Makes a candidate of the best one, measures it, and keeps it if it is better."""
        begin = time.perf_counter()
        if name in self.tried or begin > self.deadline:
            return self.tried.get(name, False)
        self.bar.step(name)
        try:
            made = make(self.best._replace(note=""))
        except (ValueError, UnsupportedError) as error:
            # A remedy that this network has no place for; the others go on.
            none = np.full(1, math.inf)
            candidate = self.best._replace(noise=none, held_back=none, note=str(error))
        else:
            candidate = (measured or self._measured)(made)
        keeps = (is_kept or self._is_better)(candidate)
        self._add(name, begin, candidate, is_kept=keeps)
        if keeps:
            self.best = candidate
        if self.on_remedy is not None:
            self.on_remedy(self.result())
        return keeps

    def _is_better(self, candidate: _Candidate) -> bool:
        best = self.best
        if np.isinf(candidate.noise).any():
            return False
        is_less = lowers_noise(*((c.noise, c.held_back) for c in (best, candidate)))
        if candidate.score is None or best.score is None:
            return is_less
        return candidate.score > best.score or (is_less and candidate.score == best.score)

    def _rounds_better(self, candidate: _Candidate) -> bool:
        """Whether weights of other integers are better, all in all or by themselves.

        The noise of activations may hide what weights gain, until INT16 lowers it. But where the
        whole gets worse, by more than chance, they are not.
        """
        best, score = self.best, candidate.score
        if self._is_better(candidate):
            return True
        if np.isinf(candidate.noise).any():
            return False
        if score is not None and best.score is not None and score < best.score:
            return False
        before, after = (self._noise_of_weights(each) for each in (best, candidate))
        whole = [(each.noise, each.held_back) for each in (candidate, best)]
        return lowers_noise(before, after) and not lowers_noise(*whole)

    def _is_worth_lifting(self, candidate: _Candidate) -> bool:
        """Whether tensors are lifted, and the noise has not grown.

        Outputs are wide for the sake of small elements, which hardly count as noise.
        """
        return bool(candidate.lifts.lifted) and self._is_no_worse(candidate, slack=GAIN)

    def _is_no_worse(self, candidate: _Candidate, slack: float = 0.0) -> bool:
        """Whether its score is higher than that of the best one, or its noise no larger.

        Args:
          candidate: what may become the best one.
          slack: the share of the noise by which it may be larger.
        """
        best, score = self.best, candidate.score
        if score is not None and best.score is not None and score != best.score:
            return score > best.score
        pair = best, candidate
        before, after = (np.concatenate([each.noise, each.held_back]).mean() for each in pair)
        return bool(after <= (1 + slack) * before)

    def _add(self, name: str, begin: float, candidate: _Candidate, *, is_kept: bool) -> None:
        seconds = time.perf_counter() - begin
        sqnr, held_back = (decibels(x.mean()) for x in (candidate.noise, candidate.held_back))
        self.remedies.append(
            Remedy(name, seconds, sqnr, held_back, candidate.score, is_kept, candidate.note)
        )
        self.bar.update()
        trim()

    def _leave_out_outliers(self) -> None:
        """Goes on without the examples whose outputs are far beyond those of others, if it helps.

        They count in this decision as all others do.
        """
        begin = time.perf_counter()
        outliers, ratio = self._outliers()
        if begin > self.deadline or not outliers.size:
            return
        self.bar.step("without outliers")
        before = self.batches, self.ranges, self.ranges_without
        rest = np.setdiff1d(np.arange(self.total), outliers)
        self.ranges_without = self._ranges_without_halves(outliers)
        self.ranges = self._ranges_of(rest)
        self.batches = self.ranges.batches
        candidate = self._measured_unseen(self.best._replace(params=self.ranges.own))
        # Ranges of `calibrate` may leave them out already: then nothing changes but what counts.
        is_kept = self._is_no_worse(candidate)
        if is_kept:
            self.counted = [~np.isin(each, outliers) for each in self.places]
            self.first_sqnr = self._outputs_sqnr(self.first)
            candidate = self._measured_unseen(candidate)
        counted = html.counted(outliers.size, "example")
        note = f"{counted} of {self.total}, with outputs {ratio:.0f} times as large as usual"
        self._add("without outliers", begin, candidate._replace(note=note), is_kept=is_kept)
        if is_kept:
            self.best = candidate
        else:
            self.batches, self.ranges, self.ranges_without = before

    def _outliers(self) -> tuple[np.ndarray, float]:
        """The places of examples with outliers, and the largest over the usual ones."""
        places = np.concatenate(self.places)
        outputs = [np.concatenate([half[name] for half in self.wanted]) for name in self.heads]
        ratios = times_usual(sizes_of([jnp.asarray(y, jnp.float32) for y in outputs], len(places)))
        return np.unique(places[ratios > _FAR]), ratios.max()

    def _see_all(self) -> None:
        """Goes on with the ranges of all examples, which the next remedies are compared with."""
        begin = time.perf_counter()
        if begin <= self.deadline and _SEEN not in self.tried:
            self.best = self._with_noise(self.best, [self.best.params] * 2)
            self._add(_SEEN, begin, self.best, is_kept=True)

    def _of_kinds(self, best: _Candidate, kinds: Kinds) -> _Candidate:
        return best._replace(params=self.ranges.params(kinds), kinds=kinds)

    def _with_values(
        self, make: Callable[[], Any], best: _Candidate, then: _Remedy | None = None
    ) -> _Candidate:
        """Other constants of the same function, with the observers chosen before.

        Raises:
          ValueError: they are what they were.
        """
        values = make()
        own = self.first.params["values"]
        if all(np.array_equal(own[name], value) for name, value in values.items()):
            raise ValueError("no channels to scale")
        made = best._replace(params=self.ranges.of_values(best.kinds, values))
        return made if then is None else then(made)

    def _same_functions(self) -> Iterator[tuple[str, Callable[[], Any]]]:
        """Yields what makes constants of the same function whose channels round better, in time."""
        model, batches = self.first.model, self.batches
        ways = {
            "smooth 1": lambda: smooth(model, batches, strength=1),
            "smooth 0.5": lambda: smooth(model, batches),
            "equalize": lambda: equalize(model),
        }
        for name, make in ways.items():
            if time.perf_counter() <= self.end_of_functions:
                yield name, make

    def _bias_corrected(self, best: _Candidate) -> _Candidate:
        return best._replace(params=bias_correct(best.model, best.params, self.batches))

    def _by_gptq(self, best: _Candidate) -> _Candidate:
        return best._replace(params=gptq(best.model, best.params, self.batches))

    def _lifted(self, best: _Candidate) -> _Candidate:
        # Nothing that INT16 has room for is left out.
        ranges = self.ranges.with_room(best.params["values"])
        self.ranges.clear()
        halves = [self._examples(number) for number in range(2) if self.counted[number].any()]
        outputs = outputs_to_lift(best.model) if self.budget.wide_outputs else []
        bars = set[str]()
        if self.budget.npu is not None:
            names = [*lift_candidates(best.model, None), *outputs]
            bars = refused(best.model, best.params, names, self.budget.npu)
        model, params, lifts = lift_some(
            best.model,
            best.params,
            self.heads,
            halves,
            self.weights.tolist(),
            Limits(best.model, self.budget, bars),
            self.end_of_choice,
            outputs=[name for name in outputs if name not in bars],
            ranges=ranges,
        )
        note = f"{html.counted(len(lifts.lifted), 'tensor')}, {lifts.wide_macs:.1%} of MACs"
        return _Candidate(model, params, note=note, lifts=lifts)

    # Measures.

    def _examples(self, half: int) -> Examples:
        """The examples of a half that count, and the heads of the float graph for them."""
        places, wanted = np.flatnonzero(self.counted[half]), self.wanted[half]
        heads = tuple(wanted[name][places] for name in self.heads)
        return Examples(_examples_at(self.halves[half], places), heads)

    def _measured_unseen(self, candidate: _Candidate) -> _Candidate:
        """Measured on each half with the ranges of all examples but that half.

        With ranges of all examples, nothing would show that narrow ones clip examples to come.
        """
        of_halves = [ranges.params(candidate.kinds) for ranges in self.ranges_without]
        return self._scored(self._with_noise(candidate, of_halves))

    def _measured(self, candidate: _Candidate) -> _Candidate:
        return self._scored(self._with_noise(candidate, [candidate.params] * 2))

    def _with_noise(self, candidate: _Candidate, of_halves: Sequence[Params]) -> _Candidate:
        """The candidate with the noise of its heads, by the parameters for each half."""
        noise, held_back = (
            self.weights @ self._noises(candidate._replace(params=params), number, self.heads)
            for number, params in enumerate(of_halves)
        )
        return candidate._replace(noise=noise, held_back=held_back)

    def _weights(self, candidate: _Candidate) -> np.ndarray:
        """Weights of the noise of heads with which each counts alike at first.

        The sum is then the geometric mean of theirs. Else the head with the most noise, which may
        be worth the least, would have all the say.
        """
        noises = [self._noises(candidate, number, self.heads) for number in range(2)]
        noise = np.concatenate(noises, axis=1).mean(1)
        logs = np.log(np.maximum(noise, _LITTLE))
        return np.exp(logs.mean() - logs) / len(noise)

    def _scored(self, candidate: _Candidate) -> _Candidate:
        score = None if self.metric is None else float(self.metric(self._predict(candidate)))
        return candidate._replace(score=score)

    def _outputs_sqnr(self, candidate: _Candidate) -> list[float]:
        noises = self._noises(candidate, 1, candidate.model.graph.outputs)
        return [decibels(noise.mean()) for noise in noises]

    def _noises(self, candidate: _Candidate, half: int, names: Sequence[str]) -> np.ndarray:
        """The noise of each tensor and each example that counts: (tensors, examples)."""
        return self._relative(self._run(candidate)(*self.halves[half]), half, names)

    def _relative(
        self, values: Mapping[str, jax.Array], half: int, names: Sequence[str]
    ) -> np.ndarray:
        """The noise of tensors, given by name for a half, of each example that counts."""
        counted, wanted = self.counted[half], self.wanted[half]
        noises = [
            relative_noise(np.asarray(values[name])[counted], wanted[name][counted])
            for name in names
        ]
        return np.stack(noises)

    def _noise_of_weights(self, candidate: _Candidate) -> tuple[np.ndarray, np.ndarray]:
        """The noise of each example that counts, of each half, without that of activations."""
        model = candidate.model
        watched = model.programs.once(self.names, lambda: model.with_outputs(*self.names))
        params = jitted(watched, rounded_weights)(candidate.params)
        halves = [watched.apply(params, *half, mode="float") for half in self.halves]
        first, second = (
            self.weights
            @ self._relative(dict(zip(self.names, values, strict=True)), half, self.heads)
            for half, values in enumerate(halves)
        )
        return first, second

    def _predict(self, candidate: _Candidate) -> Predict:
        run, outputs = self._run(candidate), candidate.model.graph.outputs

        def predict(*inputs: Input) -> tuple[jax.Array, ...]:
            tensors = candidate.model.float_graph.input_tensors
            values = run(*real_examples(tensors, inputs, allow_nan=True))
            return tuple(values[name] for name in outputs)

        return predict

    def _run(self, candidate: _Candidate) -> Callable[..., dict[str, jax.Array]]:
        """Runs the integers; the heads and the outputs by name."""
        model, params = candidate.model, candidate.params
        watched = model.programs.once(self.names, lambda: model.with_outputs(*self.names))
        computed, qparams = computed_constants(model, params), {"qparams": params["qparams"]}
        run = jitted(watched, exact_of_constants)
        return lambda *inputs: dict(zip(self.names, run(qparams, computed, *inputs), strict=True))


def _estimated(result: Auto) -> Auto:
    """A result with Vela's estimate, where it is installed and the graph runs on the NPU."""
    spent = result.spent
    if spent.npu is None or spent.errors or not vela.is_installed():
        return result
    try:
        estimate = vela.estimate(result.graph, spent.npu)
    except UnsupportedError as error:
        warnings.warn(f"auto: {error}", stacklevel=3)
        return result
    return dataclasses.replace(result, spent=dataclasses.replace(spent, vela=estimate))


def _check_same(found: PreparedModel, model: PreparedModel) -> None:
    """Raises ValueError where an earlier search was of another graph."""
    ends = [
        {
            t.name: str(t)
            for t in (*each.float_graph.input_tensors, *each.float_graph.output_tensors)
        }
        for each in (found, model)
    ]
    if ends[0] != ends[1]:
        raise ValueError(f"start is of a graph of {ends[0]}, expected the result of {ends[1]}")


def _examples_at(joined: Sequence[Any], places: np.ndarray) -> tuple[Any, ...]:
    return tuple(jax.tree.map(lambda x: x[places], joined))


def _in_batches(examples: Sequence[Any], size: int) -> list[Any]:
    """Batches of one size: the last is filled with the first examples, which adds no range."""
    count = jax.tree.leaves(examples)[0].shape[0]
    places = np.arange(-(-count // size) * size) % count
    return [_examples_at(examples, each) for each in places.reshape(-1, size)]
