"""RESCALEs that a CLAMP alone reads leave saturation to it, and have the same gradients."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tosajax
from tosajax import Builder, DType, spec
from tosajax.grad import QTensor, kernels, ste, tie
from tosajax.grad.activation import clamp
from tosajax.grad.type_conversion import rescale, rescale_before_clamp

OPTIONS: dict[str, Any] = {
    "scale32": True,
    "rounding_mode": spec.RoundingMode.SINGLE_ROUND,
    "per_channel": False,
    "input_unsigned": False,
    "output_unsigned": False,
}
# Times 3/4 they leave int8 on either side, meet its ends, and lie between an end and its tie.
SUMS = np.array([*range(-200, 200), 10_000, -10_000], np.int32)


def operands(output_zp: int) -> tuple[QTensor, ...]:
    values = (
        (SUMS, np.int32),
        ([3 << 28], np.int32),
        ([30], np.int8),
        ([5], np.int32),
        ([output_zp], np.int8),
    )
    return tuple(QTensor.of(np.array(value, dtype)) for value, dtype in values)


@pytest.mark.parametrize("bounds", [(-128, 127), (-128, 100), (-7, 127), (3, 60)])
@pytest.mark.parametrize("output_zp", [0, -128, 127, 11])
def test_a_clamp_stops_what_saturation_would(bounds, output_zp):
    ends = [QTensor.of(np.array(bound, np.int8)) for bound in bounds]
    given = (*operands(output_zp), *ends)
    cotangents = np.random.default_rng(0).normal(size=SUMS.shape).astype(np.float32)

    def slopes(kernel: Any) -> list[jax.Array]:
        @jax.jit
        @jax.grad
        def by_shadows(shadows: list[jax.Array]) -> jax.Array:
            known = [QTensor(x.q, s) for x, s in zip(given, shadows, strict=True)]
            y = kernel(*known[:5], **OPTIONS)
            return (tie(clamp(y, min_val=known[5], max_val=known[6])) * cotangents).sum()

        return by_shadows([x.shadow for x in given])

    for found, wanted in zip(slopes(rescale_before_clamp), slopes(rescale), strict=True):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("unsigned", [False, True])
def test_unsigned_values_saturate(unsigned):
    """A CLAMP would take their bits for signed numbers; signed ones are left to it."""
    options = {**OPTIONS, "output_unsigned": unsigned}

    def passed(kernel: Any) -> jax.Array:
        def total(shadow: jax.Array) -> jax.Array:
            return kernel(
                QTensor(jnp.asarray(SUMS), shadow), *operands(0)[1:], **options
            ).shadow.sum()

        return jax.grad(total)(SUMS.astype(np.float32)) != 0

    found, saturated = passed(rescale_before_clamp), passed(rescale)
    assert 0 < saturated.sum() < SUMS.size
    np.testing.assert_array_equal(found, saturated if unsigned else np.ones(SUMS.size))


def graph(readers: str) -> tosajax.Graph:
    """A RESCALE that a CLAMP reads, and what else is named."""
    b = Builder("graph")
    x = b.input("x", DType.INT32, (4,))
    scale = b.const([3 << 28], DType.INT32), b.const([30], DType.INT8)
    zero_points = b.const([0], DType.INT32), b.const([0], DType.INT8)
    y = b.op("RESCALE", x, *scale, *zero_points, dtype=DType.INT8, name="y", **OPTIONS)
    outputs = [y] if readers == "an output" else []
    if readers == "a cast":
        outputs.append(b.op("CAST", y, dtype=DType.INT32))
    return b.graph([*outputs, b.op("CLAMP", y, min_val=np.int8(-9), max_val=np.int8(60))])


@pytest.mark.parametrize("readers", ["a clamp", "an output", "a cast"])
def test_only_where_a_clamp_alone_reads(readers, monkeypatch):
    assert counted(monkeypatch, readers) == (readers == "a clamp")


def test_other_estimators_stay(monkeypatch):
    assert counted(monkeypatch, "a clamp", overrides={"RESCALE": ste}) == 0
    assert counted(monkeypatch, "a clamp", overrides={"ARITHMETIC_RIGHT_SHIFT": ste}) == 1


def counted(monkeypatch: pytest.MonkeyPatch, readers: str, **options: Any) -> int:
    """RESCALEs of the graph that leave saturation to a CLAMP."""
    taken = []

    def spy(*args: Any, **attributes: Any) -> Any:
        taken.append(1)
        return rescale_before_clamp(*args, **attributes)

    monkeypatch.setattr(kernels, "rescale_before_clamp", spy)
    fn, params = tosajax.differentiable(graph(readers), **options)
    (plain, plain_params) = tosajax.lower(graph(readers))
    x = np.array([-(2**31), -100, 100, 2**31 - 1], np.int32)
    for found, wanted in zip(fn(params, x), plain(plain_params, x), strict=True):
        np.testing.assert_array_equal(found.q, wanted)
    return len(taken)
