"""Python integers for the rules on values, sharing no code with `tosajax`, and a check of flags."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from oracle.device import to_device
from tosajax import Builder, DType, validate
from tosajax.spec import OPERATORS

Rules = Mapping[str, bool]


def fits(value: int, bits: int) -> bool:
    """Whether an integer fits a signed type."""
    return -(1 << (bits - 1)) <= value < 1 << (bits - 1)


def wrap(value: int, bits: int) -> int:
    """The low bits, read as a signed integer."""
    return (value + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1))


def terms(total: int, a: int, b: int) -> tuple[np.ndarray, np.ndarray]:
    """Two rows of integers with a dot product of `total`, the first from 0 to a, the second to b.

    `a` is negative for a negative total, and `b` positive.
    """
    count, rest = divmod(abs(total), abs(a) * b)
    sign = 1 if a > 0 else -1
    first = [a] * count + [a, sign * (rest % abs(a))]
    second = [b] * count + [rest // abs(a), 1]
    return np.array(first), np.array(second)


def check(
    require: Callable[..., dict[str, jax.Array]],
    inputs: Sequence[np.ndarray],
    wanted: Sequence[Rules],
    *,
    shared: Sequence[int] = (),
    **attributes: Any,
) -> None:
    """Compares the flags of every example with those wanted: eager, jit and vmap.

    The same values as constants of a graph must be findings of the same rules.

    Args:
      require: the function under test.
      inputs: arrays with a leading axis for the examples; static tuples are not arrays.
      wanted: the flags of each example.
      shared: positions of inputs without that axis.
      attributes: keyword arguments.
    """
    rules = wanted[0].keys()

    def flags(*arrays: jax.Array) -> dict[str, jax.Array]:
        return require(*arrays, **attributes)

    def example(i: int) -> list[jax.Array]:
        return [to_device(x if n in shared else x[i]) for n, x in enumerate(inputs)]

    def compare(found: dict[str, jax.Array], at: int) -> None:
        assert found.keys() == rules
        for rule, flag in found.items():
            assert flag.shape == ()
            assert flag.dtype == np.bool_
            assert bool(flag) == wanted[at][rule], (rule, at, [np.asarray(x) for x in example(at)])

    jitted = jax.jit(flags)
    for i in {0, len(wanted) // 2, len(wanted) - 1}:
        compare(jitted(*example(i)), i)
    compare(flags(*example(0)), 0)
    axes = tuple(None if n in shared else 0 for n in range(len(inputs)))
    found = jax.vmap(jitted, axes)(*map(to_device, inputs))
    assert found.keys() == rules
    for rule, flag in found.items():
        values = np.asarray(flag)
        assert values.shape == (len(wanted),)
        for i, want in enumerate(wanted):
            assert values[i] == want[rule], (rule, i, [np.asarray(x) for x in example(i)])

    # Each outcome, and others evenly: a graph for each example would take most of the time.
    outcomes = {tuple(want.values()): i for i, want in enumerate(wanted)}
    for i in sorted({*outcomes.values(), *range(0, len(wanted), max(1, len(wanted) // 16))}):
        found = _constants(require.__name__, [np.asarray(x) for x in example(i)], attributes)
        if found is not None:
            assert found == {rule for rule, is_broken in wanted[i].items() if is_broken}, (i, found)


# Rules that validation does not apply to constants, as it would compute whole convolutions.
NOT_OF_CONSTANTS = {
    *("AVG_POOL2D", "CONV2D", "CONV3D", "DEPTHWISE_CONV2D", "TRANSPOSE_CONV2D"),
}


def _constants(name: str, arrays: Sequence[np.ndarray], attributes: Any) -> set[str] | None:
    """The rules on values that constants break in a graph; None where it cannot be legal."""
    op = name.removesuffix("_require").upper()
    if op not in OPERATORS or op in NOT_OF_CONSTANTS:
        return None
    dtypes = {dtype.storage: dtype for dtype in DType if dtype is not DType.SHAPE}
    attributes = {"dtype" if name == "out_type" else name: x for name, x in attributes.items()}
    b = Builder()
    graph = b.graph([b.op(op, *(b.const(x, dtypes[x.dtype]) for x in arrays), **attributes)])
    report = validate(graph)
    if report.errors:
        return None
    labels = (f.label.partition(".") for f in report.findings)
    return {rule for start, _, rule in labels if start == op.lower() and rule[0] == "r"}


def any_of(rows: Sequence[Rules]) -> Rules:
    """The flags of an example from those of its elements."""
    return {rule: any(row[rule] for row in rows) for rule in rows[0]}
