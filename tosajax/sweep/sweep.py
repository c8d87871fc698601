"""Sweep: evaluates settings on a data set; nothing is compiled or computed twice."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import time
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from tosajax.progress import Progress
from tosajax.report import FormatError
from tosajax.runtime.batching import Devices
from tosajax.sweep import digest, farm, given
from tosajax.sweep import metrics as measures
from tosajax.sweep.data import Data, Source
from tosajax.sweep.evaluate import Strategy, mesh_of
from tosajax.sweep.graphs import Scales
from tosajax.sweep.layers import COSTS
from tosajax.sweep.metrics import Metric
from tosajax.sweep.plan import Plan, Program
from tosajax.sweep.results import Results, Row
from tosajax.sweep.runner import Job, Runner, check_copied, error_text, row_of
from tosajax.sweep.space import Setting, Space, Trial
from tosajax.sweep.store import Store, fault_of
from tosajax.sweep.subject import Variant

_BATCH = 1024  # the most examples in a batch
_BATCH_BYTES = 2**28  # of live tensors on an accelerator, for all settings of a chunk
_CACHE_BYTES = 2**24  # of live tensors on a CPU
_CHUNK_BYTES = 2**28  # of the arrays of a chunk's settings
_DRAWS = 4  # the number of random settings that show which arrays the axes change
_SECONDS = 5.0  # about the most work that a crash may lose


class Sweep:
    """Evaluates settings of a model on a data set.

    Args:
      model: a Graph; a pair of a QModel and its parameters; a function (setting, *inputs) ->
        outputs; or a result of `of_graph`, `of_model` or `of_function`, for their options.
      data: see `Data`.
      metrics: names ("accuracy", "top_5", "agreement", "mcnemar", "sqnr", "cosine", "mean_lsb",
        "max_lsb") or `Metric`s; and costs of graphs and models: "weight_bytes", with each weight in
        its bits, and "macs" of an example. Costs are columns in which less is better.
      configs: the settings: a Space, or dictionaries.
      strategy: "loop", "map", "vmap", "sharded"; by default "sharded" for several devices, else
        "loop" on CPU and "vmap" on accelerators.
      store: the path of a file that keeps rows, so finished settings do not run again; or None.
      devices: the devices for "sharded", by default all devices of all processes; or a
        `jax.sharding.Mesh` of devices with the axes "settings" and "data".
      reference: outputs to compare with: "float" for the outputs of the model's float graph; a
        function of the data set's inputs; or arrays, with all examples on the first axis.
      batch: examples at a time.
      chunk: settings at a time.
      input_quant: the scales of a Graph's inputs; see `of_graph`.
      output_quant: the scales of a Graph's outputs; see `of_graph`.
      clip: whether real values for a Graph may be out of range; see `of_graph`.
      allow_nan: whether the data and arrays of `reference` may have NaN; see `Data`.

    Raises:
      FormatError: the store is damaged, or not a store.
      TypeError: the model is of another type, or labels of classes are not integers.
      ValueError: a metric or the strategy is unknown; a metric lacks labels or a reference; a name
        or value of a setting is not possible; or the data have NaN.

    Example:
      >>> import numpy as np
      >>> from tosajax import sweep
      >>> x, labels = np.eye(4, dtype=np.float32), np.arange(4)
      >>> def model(setting, x):
      ...     return x * setting["sign"]
      >>> run = sweep.Sweep(model, (x, labels), configs=sweep.grid(sign=[1.0, -1.0]))
      >>> results = run.run()
      >>> [(row["sign"], row["accuracy"]) for row in results]
      [(1.0, 1.0), (-1.0, 0.0)]
    """

    def __init__(
        self,
        model: given.Model,
        data: Source | Data,
        metrics: Sequence[str | Metric] = ("accuracy",),
        configs: Iterable[Setting] = ({},),
        strategy: str = "auto",
        *,
        store: str | os.PathLike[str] | None = None,
        devices: Devices | Mesh | None = None,
        reference: given.References | None = None,
        batch: int | None = None,
        chunk: int | None = None,
        input_quant: Scales | None = None,
        output_quant: Scales | None = None,
        clip: bool = False,
        allow_nan: bool = False,
    ):
        self.subject = given.subject_of(model, input_quant, output_quant, clip=clip)
        self.data = given.data_of(data, allow_nan)
        self.costs = tuple(name for name in COSTS if name in metrics)
        self.metrics = measures.named([m for m in metrics if m not in COSTS])
        self.configs = configs if isinstance(configs, Space) else Space(tuple(map(dict, configs)))
        self._mesh = devices if isinstance(devices, Mesh) else None
        listed = devices.devices.flat if isinstance(devices, Mesh) else devices
        self.devices = tuple(jax.devices() if listed is None else listed)
        self.strategy: Strategy = given.strategy_of(strategy, self.devices, devices is not None)
        given.check_settings(self.subject, self.configs)
        self._allow_nan = allow_nan
        self._reference = given.reference_of(self.subject, reference, allow_nan=allow_nan)
        self._check_needs()
        if self.costs and self.configs:
            self.subject.costs(self.configs[0])  # a function has none
        self.store = Store(store, fault_of)
        self._batch, self._chunk = batch, chunk
        self._names: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._digests: dict[int, tuple[weakref.ref[np.ndarray], str]] = {}
        self._prepared: list[Job] | None = None
        self._trials: dict[tuple[Variant, tuple[str, ...]], dict[str, str]] = {}

    def plan(self) -> Plan:
        """The work of `run`, found without compiling."""
        jobs = self._settings()
        finished = self.store.read()
        remaining = [job for job in jobs if job.key not in finished and job.error is None]
        groups = _groups(remaining)
        varying = [self._varying_bytes(group) for group in groups]
        arrays = max(varying, default=0)
        batch, chunk = self._batch_size(), self._chunk_size(arrays, len(remaining))
        at_a_time = chunk if self.strategy == "vmap" else 1
        activations = self.subject.bytes_per_example() * batch * at_a_time
        return Plan(
            settings=len(jobs),
            finished=sum(job.key in finished for job in jobs),
            failed={i: job.error for i, job in enumerate(jobs) if job.error},
            failing={i: job.setting for i, job in enumerate(jobs) if job.error},
            programs=tuple(Program.of(job.setting for job in group) for group in groups),
            strategy=self.strategy,
            batch=batch,
            chunk=chunk,
            arrays_bytes=arrays,
            memory_bytes=arrays * chunk + activations,
            devices=len(self.devices) if self.strategy == "sharded" else 1,
        )

    def run(
        self,
        *,
        progress: bool = False,
        retry_errors: bool = False,
        ray: bool | str = False,
        workers: int | None = None,
    ) -> Results:
        """Evaluates the settings that have no row in the store.

        Rows are stored every few seconds. A setting that fails becomes a row with an error. After a
        KeyboardInterrupt, whose note has the number of stored rows, the next run continues from the
        store.

        Args:
          progress: whether to show a progress bar, with the rate and the time left, on a terminal.
          retry_errors: whether settings that failed before run again.
          ray: distributes settings through Ray: True on this machine, or the address of a cluster.
            Workers get copies of the model and the data.
          workers: the number of Ray workers; by default one for each CPU.

        Raises:
          ImportError: Ray is not installed.
          ValueError: the data do not fit the model, or come from an iterator while the settings
            take several passes.
        """
        jobs = self._settings()
        shown = progress and jax.process_index() == 0
        rows: dict[str, Row] = {}
        with Progress(len(jobs), shown, unit="setting") as bar, self._note_on_interrupt(jobs, rows):
            rows.update(self._finished(jobs, retry_errors))
            bar.update(len({job.key for job in jobs if job.key in rows}))
            broken = [job for job in jobs if job.error is not None and job.key not in rows]
            self._keep(rows, [row_of(job, error=job.error) for job in broken], bar)
            remaining = {job.key: job for job in jobs if job.key not in rows}
            groups = _groups(remaining.values())
            parts = self._farmed(groups, ray, workers, bar) if ray else self._in_turn(groups)
            for new_rows in parts:
                self._keep(rows, new_rows, bar)
        return self._results(jobs, rows)

    def rows(self) -> Results:
        """The rows in the store so far."""
        jobs = self._settings()
        rows = self.store.read()
        return self._results([job for job in jobs if job.key in rows], rows)

    def evaluate(self, setting: Setting) -> Row:
        """The row of one setting, from the store if it is there.

        Settings that differ only in arrays share a program.

        Raises:
          ValueError: the setting fails.
        """
        job = self._job(setting)
        if job.error is not None:
            raise ValueError(job.error)
        rows = self.store.read()
        if job.key not in rows:
            fixed = self._fixed_for_trials(job)
            (new_row,) = self._runner.rows([job], fixed)
            self._keep(rows, [new_row])
        row = self._results([job], rows)[0]
        if row["error"]:
            raise ValueError(row["error"])
        return row

    def objective(self, trial: Trial) -> float | tuple[float, ...]:
        """The objective for Optuna: evaluates the setting that a trial chooses from `configs`.

            study.optimize(sweep.objective, n_trials=100)

        Returns:
          The metric; a tuple if there are several.

        Raises:
          ValueError: `configs` has no axes, or the setting fails.
        """
        if not self.configs.axes:
            raise ValueError("configs has no axes: make it by grid, zip_ or random")
        row = self.evaluate(self.configs.suggest(trial))
        values = tuple(row[m.name] for m in self.metrics)
        return values[0] if len(values) == 1 else values

    def __repr__(self) -> str:
        names = ", ".join(m.name for m in self.metrics)
        store = "" if self.store.path is None else f", store={str(self.store.path)!r}"
        return f"Sweep({len(self.configs)} settings, {names}, {self.strategy!r}{store})"

    @property
    def compilations(self) -> int:
        """The number of programs compiled so far."""
        return self._runner.compilations

    @functools.cached_property
    def _runner(self) -> Runner:
        return Runner(
            self.subject, self.data, self.metrics, self._reference, self.strategy,
            self._batch_size(), self.mesh,
        )  # fmt: skip

    # Before anything runs.

    def _settings(self) -> list[Job]:
        if self._prepared is None:
            self._prepared = [self._job(setting) for setting in self.configs]
        return self._prepared

    def _job(self, setting: Setting) -> Job:
        text = digest.canonical(setting)
        try:
            prepared = self.subject.prepare(setting)
        except Exception as error:  # the setting's own: its row has it
            return Job(setting, (), (), (), self._key(text, "", ""), error_text(error))
        names = tuple(sorted(prepared.arrays))
        names = self._names.setdefault(names, names)
        digests = tuple(self._digest(prepared.arrays[name]) for name in names)
        parts = digest.of_text(*names, *digests)
        key = self._key(text, repr(prepared.variant), parts)
        return Job(setting, prepared.variant, names, digests, key)

    def _digest(self, array: Any) -> str:
        """The digest of an array; cached for constants of the model, which settings share."""
        if not isinstance(array, np.ndarray) or array.flags.writeable:
            return sys.intern(digest.of_arrays(array))
        entry = self._digests.get(id(array))
        if entry is None or entry[0]() is not array:
            # Weak references: arrays do not outlive their setting, nor digests their array.
            gone = functools.partial(self._forget, id(array))
            entry = weakref.ref(array, gone), sys.intern(digest.of_arrays(array))
            self._digests[id(array)] = entry
        return entry[1]

    def _forget(self, place: int, _: Any) -> None:
        self._digests.pop(place, None)

    def _key(self, *parts: str) -> str:
        names = ",".join(m.name for m in self.metrics)
        return digest.of_text(
            self.subject.digest(), self.data.digest(), names, self._reference.digest, *parts
        )

    def _check_needs(self) -> None:
        needs = {need for m in self.metrics for need in m.needs}
        if "reference" in needs and not self._reference.digest:
            names = ", ".join(m.name for m in self.metrics if "reference" in m.needs)
            raise ValueError(f"{names}: no reference to compare with, give reference=...")
        if "labels" in needs:
            if (labels := self.data.first().labels) is None:
                names = ", ".join(m.name for m in self.metrics if "labels" in m.needs)
                raise ValueError(f"{names}: the data set has no labels")
            measures.check_kind_of_labels(self.metrics, labels)

    def _varying_bytes(self, group: Sequence[Job]) -> int:
        """The bytes of a setting's arrays that other settings do not share."""
        fixed, arrays = _shared_digests(group), self.subject.prepare(group[0].setting).arrays
        own = [array for name, array in arrays.items() if name not in fixed]
        return sum(np.asarray(leaf).nbytes for leaf in jax.tree.leaves(own))

    def _batch_size(self) -> int:
        limit = self._batch
        shards = 1 if self.mesh is None else self.mesh.shape["data"]
        if limit is None:
            each = max(1, self.subject.bytes_per_example())
            size = _BATCH_BYTES if jax.default_backend() != "cpu" else _CACHE_BYTES * shards
            limit = max(1, min(_BATCH, size // each))
            if self.data.count is not None:
                # Equal batches, with little filling.
                limit = -(-self.data.count // -(-self.data.count // limit))
        return -(-limit // shards) * shards

    @property
    def mesh(self) -> Mesh | None:
        """The mesh of the strategy "sharded"."""
        if self.strategy != "sharded":
            return None
        return self._mesh or mesh_of(self.devices, len(self.configs))

    def _chunk_size(self, arrays_bytes: int, count: int) -> int:
        limit = max(1, _CHUNK_BYTES // max(1, arrays_bytes))
        if self.strategy == "vmap":
            each = self.subject.bytes_per_example() * self._batch_size()
            limit = min(limit, max(1, _BATCH_BYTES // max(1, each)))
        size = min(limit, max(1, count)) if self._chunk is None else self._chunk
        rows = 1 if self.mesh is None else self.mesh.shape["settings"]
        return -(-size // rows) * rows

    # Evaluation.

    def _finished(self, jobs: Sequence[Job], retry_errors: bool) -> dict[str, Row]:
        """The rows of finished settings, the same in every process."""
        rows = self.store.read()
        if retry_errors:
            rows = {key: row for key, row in rows.items() if not row["error"]}
        if jax.process_count() == 1:
            return rows
        return _rows_of_first_process(jobs, rows)

    def _in_turn(self, groups: Sequence[Sequence[Job]]) -> Iterator[list[Row]]:
        for group in groups:
            yield from self._evaluated(group)

    def _farmed(
        self,
        groups: Sequence[Sequence[Job]],
        ray: bool | str,
        workers: int | None,
        bar: Progress,
    ) -> Iterator[list[Row]]:
        bar.step("Ray starts")
        connected = farm.connect(None if ray is True else str(ray))
        jobs = [
            (
                group,
                _shared_digests(group),
                self._chunk_size(self._varying_bytes(group), len(group)),
            )
            for group in groups
        ]
        if jobs:
            yield from farm.evaluated(connected, self._runner, jobs, workers, bar.step)

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy is made of the arguments, without devices and store."""
        check_copied(self.strategy, self.data)
        arguments = self.subject, self.data, self.metrics, self.configs, self.strategy
        options = {
            "reference": self._reference.given,
            "batch": self._batch,
            "chunk": self._chunk,
            "allow_nan": self._allow_nan,
        }
        return functools.partial(Sweep, **options), arguments

    def _evaluated(self, group: Sequence[Job]) -> Iterator[list[Row]]:
        """The rows of settings of one variant, chunk by chunk."""
        fixed = _shared_digests(group)
        most = self._chunk_size(self._varying_bytes(group), len(group))
        one_pass = most >= len(group) and (self.data.count is None or self.strategy != "loop")
        if self.data.is_read_once and not one_pass:
            raise ValueError(
                f"{len(group)} settings, {most} at a time, take several passes over the data, "
                "which come from an iterator: give a function that returns one"
            )
        start, size = 0, most if one_pass or self.strategy != "loop" else 1
        while start < len(group):
            began = time.monotonic()
            part = group[start : start + size]
            yield self._runner.rows(part, fixed, most)
            start += len(part)
            if self.strategy == "loop":
                # A crash loses one chunk.
                each = (time.monotonic() - began) / len(part)
                size = max(1, min(most, 4 * size, int(_SECONDS / max(each, 1e-9))))

    def _fixed_for_trials(self, job: Job) -> dict[str, str]:
        """The digests of arrays that no setting of the group has changed so far."""
        group = job.variant, job.names
        if group not in self._trials:
            rng = np.random.default_rng(0)
            drawn = [self._job(self.configs.draw(rng)) for _ in range(_DRAWS)]
            alike = [
                each for each in (*self._settings(), *drawn) if (each.variant, each.names) == group
            ]
            self._trials[group] = _shared_digests([job, *alike])
        digests = dict(zip(job.names, job.digests, strict=True))
        same = {n: d for n, d in self._trials[group].items() if digests[n] == d}
        self._trials[group] = same
        return same

    def _keep(
        self, rows: dict[str, Row], new_rows: Sequence[Row], bar: Progress | None = None
    ) -> None:
        rows.update({row["key"]: row for row in new_rows})
        if jax.process_index() == 0:
            self.store.append(new_rows)
        if bar is not None:
            bar.update(len(new_rows))

    @contextlib.contextmanager
    def _note_on_interrupt(self, jobs: Sequence[Job], rows: Mapping[str, Row]) -> Iterator[None]:
        """A context that adds to an interrupt which rows are kept."""
        try:
            yield
        except KeyboardInterrupt as interrupt:
            # The interrupt may have come before the newest rows were stored.
            kept = rows if self.store.path is None else self.store.read()
            finished = f"{sum(job.key in kept for job in jobs)} of {len(jobs)} rows are"
            interrupt.add_note(
                f"{finished} lost: a store (store=, --store) keeps them"
                if self.store.path is None
                else f"{finished} in {self.store.path}: run again to go on"
            )
            raise

    def _results(self, jobs: Sequence[Job], rows: Mapping[str, Row]) -> Results:
        names = tuple(m.name for m in self.metrics)
        columns = dict.fromkeys(c for job in jobs for c in rows[job.key]["columns"])
        keys = dict.fromkeys(key for job in jobs for key in job.setting)
        table = []
        for job in jobs:
            row, setting = rows[job.key], digest.plain(job.setting)
            if row["error"] is None and (missing := set(names) - set(row["metrics"])):
                raise FormatError(
                    f"{self.store.path}: the row of key {job.key} has no "
                    f"{', '.join(sorted(missing))}: delete its line, and the setting runs again"
                )
            table.append(
                {
                    **{key: setting.get(key) for key in keys},
                    **{c: row["columns"].get(c) for c in columns},
                    **self._costs(job),
                    **{name: row["metrics"].get(name) for name in names},
                    "error": row["error"],
                }
            )
        counts = (rows[job.key].get("examples") for job in jobs)
        count = next((n for n in counts if n is not None), self.data.count)
        return Results(tuple(table), names, count, self.costs)

    def _costs(self, job: Job) -> dict[str, float | None]:
        """The requested costs; None if the setting cannot run."""
        costs = self.subject.costs(job.setting) if self.costs and job.error is None else {}
        return {name: costs.get(name) for name in self.costs}


def _groups(jobs: Iterable[Job]) -> list[list[Job]]:
    """Groups settings with the same variant and the same names of arrays."""
    groups: dict[Any, list[Job]] = {}
    for job in jobs:
        groups.setdefault((job.variant, job.names), []).append(job)
    return list(groups.values())


def _shared_digests(group: Sequence[Job]) -> dict[str, str]:
    """The digests of arrays that all settings share, by name."""
    first = group[0]
    same = [all(d == ds[0] for d in ds) for ds in zip(*(job.digests for job in group), strict=True)]
    all_of = zip(first.names, first.digests, same, strict=True)
    return {name: value for name, value, is_same in all_of if is_same}


def _rows_of_first_process(jobs: Sequence[Job], rows: dict[str, Row]) -> dict[str, Row]:
    """The rows of the first process, so that all processes run the same settings."""
    from jax.experimental import multihost_utils

    mine = np.asarray([job.key in rows for job in jobs])
    agreed = multihost_utils.broadcast_one_to_all(mine)
    keys = {job.key for job, is_there in zip(jobs, agreed, strict=True) if is_there}
    missing = keys - set(rows)
    if missing:
        raise ValueError(
            f"the store lacks {len(missing)} rows that the first process has: let processes share "
            "one file, or give each a copy"
        )
    return {key: row for key, row in rows.items() if key in keys}
