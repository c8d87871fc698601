"""Evaluates equations on constants with JAX."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.extend import core

from tosajax.from_jax.callees import callee


def evaluated(eqn: Any, arrays: Sequence[Any]) -> list[Any]:
    """The results of an equation on arrays."""
    with jax.ensure_compile_time_eval():
        results = eqn.primitive.bind(*arrays, **eqn.params)
    return list(results) if eqn.primitive.multiple_results else [results]


def literal(atom: Any) -> np.ndarray:
    """The value of a literal, in its dtype in the jaxpr."""
    return np.asarray(atom.val, atom.aval.dtype)


def known_results(jaxpr: core.ClosedJaxpr, arrays: Sequence[Any | None]) -> list[Any | None]:
    """The results of a jaxpr, as far as they follow from the known arguments.

    Args:
      jaxpr: the function.
      arrays: its arguments; None for unknown ones.

    Returns:
      The results; None for unknown ones.
    """
    env = dict(zip(jaxpr.jaxpr.invars, arrays, strict=True))
    env.update(zip(jaxpr.jaxpr.constvars, jaxpr.consts, strict=True))

    def read(atom: Any) -> Any | None:
        return literal(atom) if isinstance(atom, core.Literal) else env[atom]

    for eqn in jaxpr.jaxpr.eqns:
        inputs = [read(atom) for atom in eqn.invars]
        inner = callee(eqn.primitive.name, eqn.params)
        if inner is not None:
            results = known_results(inner, inputs)
        elif eqn.effects or any(array is None for array in inputs):
            results = [None] * len(eqn.outvars)
        else:
            results = evaluated(eqn, inputs)
        env.update(zip(eqn.outvars, results, strict=True))
    return [read(atom) for atom in jaxpr.jaxpr.outvars]
