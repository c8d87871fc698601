"""Runner: computes the rows of settings that share a program."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from jax.sharding import Mesh

from tosajax.sweep import digest
from tosajax.sweep.data import Data
from tosajax.sweep.evaluate import Evaluator, ReadError, Strategy
from tosajax.sweep.given import Reference, References, reference_of
from tosajax.sweep.metrics import Metric
from tosajax.sweep.results import Row
from tosajax.sweep.space import Setting
from tosajax.sweep.subject import Prepared, Subject, Variant


class Job(NamedTuple):
    """A setting without its arrays, as a sweep may have very many settings.

    Args:
      setting: the user's setting.
      variant: the variant that its program is compiled for.
      names: the names of its arrays; settings with equal names share the tuple.
      digests: the digests of its arrays.
      key: its key in the store.
      error: why it cannot run; None if it can.
    """

    setting: Setting
    variant: Variant
    names: tuple[str, ...]
    digests: tuple[str, ...]
    key: str
    error: str | None = None


class Runner:
    """Evaluates settings on a data set, and keeps the programs that it compiles.

    A copy, for a Ray worker, is constructed from the same arguments and compiles its own programs.

    Args:
      subject: the subject that runs.
      data: the examples.
      metrics: the metrics to measure.
      reference: outputs to compare with.
      strategy: the strategy of evaluation.
      batch: examples at a time.
      mesh: the mesh of the strategy "sharded".
    """

    # The context in which a program is compiled: workers of one machine take turns in it.
    compiling: Callable[[], AbstractContextManager[Any]] = contextlib.nullcontext

    def __init__(
        self,
        subject: Subject,
        data: Data,
        metrics: tuple[Metric, ...],
        reference: Reference,
        strategy: Strategy,
        batch: int,
        mesh: Mesh | None = None,
    ):
        self.subject, self.data, self.metrics, self.reference = subject, data, metrics, reference
        self.strategy: Strategy = strategy
        self.batch, self.mesh = batch, mesh
        self._evaluators: dict[Any, Evaluator] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        check_copied(self.strategy, self.data)
        arguments = self.subject, self.data, self.metrics, self.reference.given
        return _rebuilt, (*arguments, self.strategy, self.batch)

    @property
    def compilations(self) -> int:
        """The number of programs compiled so far."""
        return sum(e.compilations for e in self._evaluators.values())

    def rows(self, part: Sequence[Job], fixed: Mapping[str, str], chunk: int = 1) -> list[Row]:
        """The rows of settings that run together; if that fails, each setting runs by itself.

        Args:
          part: settings of one variant, whose arrays have the same names.
          fixed: the digests, by name, of arrays that the program holds as constants.
          chunk: settings at a time, at least the length of `part`.

        Raises:
          Exception: any error of reading the data.
        """
        began = time.monotonic()
        try:
            prepared = [self.subject.prepare(job.setting) for job in part]
            evaluator = self._evaluator(prepared[0], fixed, chunk)
            own = [{n: x for n, x in p.arrays.items() if n not in fixed} for p in prepared]
            metrics, count = evaluator.run(own, self.data, self.reference.stored)
        except ReadError as error:
            raise error.reason from None
        except Exception as error:  # of the data, which raises again here, or of a setting: a row
            self.subject.accept(self.data.first().inputs, 1)
            if len(part) == 1:
                return [row_of(part[0], error=error_text(error))]
            return [row for job in part for row in self.rows([job], fixed, chunk)]
        seconds = (time.monotonic() - began) / len(part)
        return [
            row_of(job, p.columns, values, examples=count, seconds=seconds)
            for job, p, values in zip(part, prepared, metrics, strict=True)
        ]

    def _evaluator(self, prepared: Prepared, fixed: Mapping[str, str], chunk: int) -> Evaluator:
        shape = 0 if self.strategy == "loop" else chunk
        key = prepared.variant, tuple(sorted(prepared.arrays)), tuple(sorted(fixed.items())), shape
        if key not in self._evaluators:
            self._evaluators[key] = Evaluator(
                subject=self.subject,
                variant=prepared.variant,
                fixed={name: prepared.arrays[name] for name in fixed},
                metrics=self.metrics,
                reference=self.reference.run,
                batch=self.batch,
                strategy=self.strategy,
                chunk=chunk,
                mesh=self.mesh,
                compiling=self.compiling,
            )
        return self._evaluators[key]


def check_copied(strategy: Strategy, data: Data) -> None:
    """Raises TypeError if a sweep cannot be copied to another process."""
    if strategy == "sharded" or data.is_read_once:
        raise TypeError("a sweep over several devices, or of an iterator, cannot be copied")


def _rebuilt(
    subject: Subject,
    data: Data,
    metrics: tuple[Metric, ...],
    reference: References | None,
    strategy: Strategy,
    batch: int,
) -> Runner:
    # The arrays of a reference were searched for NaN when the user passed them.
    copied = reference_of(subject, reference, allow_nan=True)
    return Runner(subject, data, metrics, copied, strategy, batch)


def row_of(
    job: Job,
    columns: Mapping[str, float] = {},
    values: Mapping[str, float] = {},
    *,
    error: str | None = None,
    examples: int | None = None,
    seconds: float = 0.0,
) -> Row:
    """Makes the row of a setting.

    Args:
      job: the setting.
      columns: further columns of numbers.
      values: its metrics.
      error: why it has no metrics.
      examples: the number of measured examples.
      seconds: the time that it took.
    """
    return {
        "key": job.key,
        "setting": digest.plain(job.setting),
        "columns": dict(columns),
        "metrics": dict(values),
        "error": error,
        "examples": examples,
        "seconds": round(seconds, 6),
    }


def error_text(error: Exception) -> str:
    """The type and message of an error, in one line."""
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__
