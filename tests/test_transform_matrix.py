"""Families of integer operators x compositions of transforms, with the user's x64 off and on.

`transform_worker.py` computes the cells, in a process for each setting. These tests run one in 150
cases of each and all of int48 with x64 off, and one case of each with it on; the worker alone runs
all of them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import transform_families
import transform_worker
from jax.extend import core
from oracle.device import to_device
from oracle.legal_graphs import OPERATORS, legal_graph
from quick_programs import OLDER_LOOPS

from tosajax import DType, lower
from tosajax.fixedpoint import _x64

WORKER = Path(transform_worker.__file__)
CELLS = {
    (family, composition.__name__)
    for family in transform_families.FAMILIES
    for composition in transform_worker.COMPOSITIONS
}

# Operations on 64-bit types that `fixedpoint/_x64.py` allows.
ARITHMETIC = {
    *("convert_element_type", "add", "sub", "mul", "clamp", "reduce_sum"),
    *("shift_left", "shift_right_arithmetic", "and", "or", "xor", "not"),
    *("eq", "ne", "lt", "le", "gt", "ge", "select_n"),
}
SHAPING = {
    *("broadcast_in_dim", "reshape", "squeeze", "transpose", "slice", "split", "concatenate"),
    *("pad", "gather", "copy", "optimization_barrier"),
    "stop_gradient",  # JAX turns a cond with a batched condition into it
}
# Primitives that hold other programs, which are searched.
CALLS = {"jit", "scan", "while", "cond"}


def test_enough_of_them():
    assert len(transform_families.FAMILIES) >= 9
    assert len(transform_worker.COMPOSITIONS) >= 15


@pytest.fixture(scope="module")
def quick_compiler() -> dict[str, str]:
    """An environment in which XLA compiles quickly."""
    older_loops = " ".join(f"--{name}={str(on).lower()}" for name, on in OLDER_LOOPS.items())
    return {
        **os.environ,
        # Other tests run LLVM's optimizations; here XLA's own passes are enough.
        "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
        # XLA takes a space alone for the name of a file.
        "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {older_loops}".strip(),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }


@pytest.mark.parametrize(
    ("x64", "share"), [("off", 150), pytest.param("on", 1000, marks=pytest.mark.slow)]
)
def test_every_cell_is_exact(x64, share, quick_compiler, tmp_path):
    results = tmp_path / "matrix.json"
    command = [
        sys.executable,
        str(WORKER),
        "--x64",
        x64,
        "--share",
        str(share),
        "--json",
        str(results),
    ]
    done = subprocess.run(command, env=quick_compiler, capture_output=True, text=True, timeout=900)
    assert results.exists(), done.stderr
    cells = json.loads(results.read_text())
    failed = [c for c in cells if c["failures"]]
    assert not failed, "\n".join(
        f"{c['family']}, {c['composition']}: {failure}" for c in failed for failure in c["failures"]
    )
    assert {(c["family"], c["composition"]) for c in cells} == CELLS
    assert done.returncode == 0, done.stderr


# 64-bit types in programs.


def _steps(program: core.Jaxpr) -> Iterator[core.JaxprEqn]:
    """The steps of a program and of all programs in it."""
    for step in program.eqns:
        yield step
        for value in jax.tree.leaves(step.params, is_leaf=_is_program):
            if _is_program(value):
                yield from _steps(getattr(value, "jaxpr", value))


def _is_program(value: Any) -> bool:
    return isinstance(value, core.Jaxpr | core.ClosedJaxpr)


def _types(values: Any) -> set[str]:
    return {str(getattr(v.aval, "dtype", "")) for v in values}


def _check_64_bits(program: core.ClosedJaxpr) -> None:
    for step in _steps(program.jaxpr):
        types = _types([*step.invars, *step.outvars]) & {"int64", "uint64", "float64"}
        assert types <= {"int64"}, step
        if not types:
            continue
        assert step.primitive.name in ARITHMETIC | SHAPING | CALLS, step
        if step.primitive.name == "gather":
            assert _types(step.invars[1:]) == {"int32"}, step


INTEGER_ROWS = [
    pytest.param(op, row, id=f"{op.name}-{row.mode}")
    for op in OPERATORS
    for row in op.types
    if op.inputs and not any(isinstance(t, DType) and t.is_float for t in row.types.values())
]


@pytest.mark.parametrize(("operator", "row"), INTEGER_ROWS)
def test_64_bit_steps_of_every_integer_row(operator, row):
    graph = legal_graph(operator, row)
    fn, params = lower(graph)
    shapes = [(2, *(t.shape or ())) for t in graph.input_tensors]
    types = [t.dtype.storage for t in graph.input_tensors]
    inputs = [to_device(np.zeros(*each)) for each in zip(shapes, types, strict=True)]
    _check_64_bits(jax.make_jaxpr(lambda *x: fn(params, *x))(*(x[0] for x in inputs)))
    if inputs:
        _check_64_bits(jax.make_jaxpr(jax.vmap(lambda *x: fn(params, *x)))(*inputs))


@pytest.mark.parametrize("family", transform_families.FAMILIES)
def test_64_bit_steps_of_every_family(family):
    for case in transform_families.FAMILIES[family]():
        inputs = [to_device(x) for x in case.inputs]
        _check_64_bits(jax.make_jaxpr(case.function)(*(x[0] for x in inputs)))
        _check_64_bits(jax.make_jaxpr(jax.vmap(case.function))(*inputs))


MISTAKES = {
    "argmax": lambda x: jnp.argmax(x, axis=1),
    "sort": jnp.sort,
    "cumsum": jnp.cumsum,
    "dot": lambda x: x @ x.T,
    "index": lambda x: jnp.take(x, x[0], axis=1),
    "float": lambda x: x.astype(jnp.float64),
    "in a loop": lambda x: jax.lax.map(jnp.sort, x),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_noticed(mistake):
    wide = _x64.from_numpy(np.arange(6).reshape(2, 3))
    with _x64.scope():
        program = jax.make_jaxpr(MISTAKES[mistake])(wide)
    with pytest.raises(AssertionError):
        _check_64_bits(program)
