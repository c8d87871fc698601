"""Contender: tosajax."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax

import tosajax
from benchmarks.work import DoesNotApply, Run, Work


class Setting(NamedTuple):
    """A way to call tosajax.compile.

    Args:
      options: gives the arguments beside graph and batch.
      least_batch: works of fewer examples skip this setting.
    """

    options: Callable[[], Mapping[str, Any]] = dict
    least_batch: int = 0


# Ratios are relative to the first.
SETTINGS = {
    "tosajax": Setting(),
    "tosajax, all cores": Setting(lambda: {"devices": jax.devices()}, least_batch=32),
    "tosajax, no native": Setting(lambda: {"native": False}, least_batch=32),
}
FIRST = next(iter(SETTINGS))


def prepare(work: Work, setting: Setting = SETTINGS[FIRST]) -> Run:
    """The work by `tosajax.compile`."""
    if (work.batch or 0) < setting.least_batch:
        raise DoesNotApply(f"a batch of {work.batch}")
    options = setting.options()
    if options and tosajax.compile(work.graph, batch=work.batch).examples is None:
        raise DoesNotApply("its examples are not known to be independent")
    compiled = tosajax.compile(work.graph, batch=work.batch, **options)
    inputs = [jax.device_put(x) for x in work.inputs]
    return lambda: jax.block_until_ready(compiled(*inputs))


def contenders() -> dict[str, Callable[[Work], Run]]:
    """One for each setting."""
    return {name: functools.partial(prepare, setting=s) for name, s in SETTINGS.items()}
