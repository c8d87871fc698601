"""Float graphs, the integers that stand for them, and how far apart the two may be."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from unittest import mock

import jax
import numpy as np

import tosajax
from tosajax import Builder, DType, Graph, Tensor
from tosajax.grad import QTensor
from tosajax.quant import (
    QModel,
    QSpec,
    Rule,
    bit_exact,
    calibrate,
    check_bit_exact,
    prepare,
    rule,
)

# A scale is some products and a quotient of float32, whose 24 bits a scale32 multiplier keeps.
SCALE32 = 2.0**-21
# A multiplier of INT48 is rounded to 15 bits: by half a unit, of at least 2**14.
SCALE16 = 2.0**-15
# The bits that operands in a common unit have below the largest of their steps.
_HEADROOM = {DType.INT8: 19, DType.INT16: 14}

VARIANTS: Mapping[str, tuple[Rule, ...]] = {
    "i8": (),
    "i8-symmetric": (rule(".*", act=QSpec("i8", symmetric=True)),),
    "i8-of-4-bits": (
        rule(".*", weight=QSpec(bits=4, per_channel=True), act=QSpec(bits=4, symmetric=False)),
    ),
    "i16": (rule(".*", act=QSpec("i16")),),
    # INT8 by INT16, and the other way round.
    "mixed": (
        rule("x", act=QSpec(bits=5)),
        rule("y|full", act=QSpec("i16", bits=12)),
    ),
}
BOTH = ("frozen", "reference_model")
_RUN_FROZEN = bit_exact._run_frozen


def against(variant: str) -> tuple[str, ...]:
    """The programs that a variant is compared with: Arm's model once for each operator."""
    return BOTH if variant == "i8" else ("frozen",)


class Trial:
    """The integer model of a float graph, on integers that include the ends of every range.

    Args:
      graph: of floats.
      examples: its inputs, to calibrate with; those that are not floats are also what it is run on.
      rules: for `prepare`.
      against: for `check_bit_exact`.
      settings: for `prepare`.
    """

    def __init__(
        self,
        graph: Graph,
        *examples: np.ndarray,
        rules: Sequence[Rule] = (),
        against: Sequence[str] = ("frozen",),
        **settings: Any,
    ) -> None:
        # Variants are for several graphs, of other names.
        rules = [r for r in rules if any(re.search(r.pattern, name) for name in graph.tensors)]
        # Fixtures of modules are made before those of functions, which set this.
        with jax.numpy_dtype_promotion("strict"), jax.numpy_rank_promotion("raise"):
            self.model = prepare(graph, rules, **settings)
            self.params = calibrate(self.model, [examples])
            self.frozen = self.model.freeze(self.params)
            rng = np.random.default_rng(0)
            pairs = zip(self.frozen.input_tensors, examples, strict=True)
            self.inputs = [self._drawn(rng, t) if self._is_own(t.name) else x for t, x in pairs]
            # To freeze and to run is to compile, and once is enough.
            with (
                mock.patch.object(QModel, "freeze", return_value=self.frozen),
                mock.patch.object(bit_exact, "_run_frozen", self._kept),
            ):
                self.report = check_bit_exact(
                    self.model, self.params, *self.inputs, against=against
                )

    def __getitem__(self, name: str) -> Any:
        """The values of a tensor: real numbers, float64, where it is quantized."""
        return self._values[name] if name in self._values else self._constant(name)

    def step(self, name: str) -> np.ndarray:
        """The scale of a tensor, float64; broadcasts with it."""
        return np.asarray(self._qparams(name).scale, np.float64)

    def zero_point(self, name: str) -> int:
        qparams = self._qparams(name)
        return 0 if qparams.symmetric else round(float(qparams.zero_point))

    def grid(self, name: str) -> tuple[int, int]:
        """The least and the greatest integer of a tensor."""
        bits, narrow = round(float(self._qparams(name).bits)), self._qparams(name).narrow_range
        return -(1 << (bits - 1)) + narrow, (1 << (bits - 1)) - 1

    def ends(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """The least and the greatest real number of a tensor."""
        low, high = self.grid(name)
        zero_point, step = self.zero_point(name), self.step(name)
        return (low - zero_point) * step, (high - zero_point) * step

    def dtype(self, name: str) -> DType:
        return self.frozen.tensors[name].dtype

    def exact(self, name: str) -> np.ndarray:
        """A constant of the float graph before it was quantized, float64."""
        values = self.model.float_graph.tensors[name].values
        assert values is not None
        return values.astype(np.float64)

    def _qparams(self, name: str) -> Any:
        return self.params["qparams"][self.model.owners[name]]

    def _is_own(self, name: str) -> bool:
        return name in self.model.specs

    def _drawn(self, rng: np.random.Generator, tensor: Tensor) -> np.ndarray:
        """Integers of the whole range, half of them its ends or next to 0; the last one is 0."""
        shape, (low, high) = tensor.shape or (), self.grid(tensor.name)
        zero = self.zero_point(tensor.name)
        edges = np.clip([low, low + 1, zero - 1, zero, zero + 1, high - 1, high], low, high)
        inside = rng.integers(low, high + 1, shape)
        drawn = np.where(rng.random(shape) < 0.5, rng.choice(edges, shape), inside)
        drawn.reshape(-1)[-1] = zero
        return drawn.astype(tensor.dtype.storage)

    def _kept(self, graph: Graph, *arguments: Any) -> Any:
        """Runs the frozen graph for `check_bit_exact`, and keeps its results."""
        found = _RUN_FROZEN(graph, *arguments)
        self._values = self._reals({name: y[0] for name, y in found[0].items()})
        return found

    def _reals(self, computed: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """Every tensor of floats, as an output of `apply`."""
        integers = dict(zip(self.frozen.inputs, self.inputs, strict=True)) | dict(computed)
        tensors = [t for t in self.model.float_graph.tensors.values() if t.values is None]
        known = {t.name: integers[t.name] for t in tensors if t.name in integers}

        @jax.jit
        def reals(known: dict[str, jax.Array]) -> dict[str, jax.Array]:
            values = {n: QTensor.of(y) if y.dtype != bool else y for n, y in known.items()}
            return {n: self.model.real(self.params, n, value) for n, value in values.items()}

        return {name: self._levels(name, np.asarray(y)) for name, y in reals(known).items()}

    def _levels(self, name: str, values: np.ndarray) -> np.ndarray:
        """float32 as the multiples of a step that they stand for, in float64."""
        if name not in self.model.owners:
            return values
        levels = np.rint(values / self.step(name))
        np.testing.assert_allclose(values, levels * self.step(name), rtol=2.0**-23)
        return levels * self.step(name)

    def _constant(self, name: str) -> np.ndarray:
        values = self.frozen.tensors[name].values
        assert values is not None
        if name not in self.model.owners:
            return values
        return (values.astype(np.int64) - self.zero_point(name)) * self.step(name)


def assert_rounded(
    trial: Trial, name: str, expected: Any, *, extra: Any = 0.0, relative: float = SCALE32
) -> None:
    """Asserts that a tensor is the expected one, saturated and rounded once.

    Args:
      trial: has the tensor.
      name: of the tensor.
      expected: float64, of the operator on the real values that its operands have.
      extra: what may be added to half a step.
      relative: how far the multiplier of the RESCALE may be from the scale.
    """
    wanted = np.clip(expected, *trial.ends(name))
    found = trial[name]
    assert found.shape == wanted.shape
    steps = np.abs(found - wanted) / trial.step(name)
    bound = 0.5 + (relative * np.abs(wanted) + extra) / trial.step(name)
    worst = np.unravel_index(np.argmax(steps - bound), steps.shape)
    assert (steps <= bound).all(), (
        f"{name}: {found[worst]} for {wanted[worst]}, {steps[worst]:.3f} steps"
    )


def assert_constant(trial: Trial, name: str) -> None:
    """Asserts that a constant is rounded to its nearest integers, and that its range is in use."""
    error = np.abs(trial[name] - trial.exact(name))
    assert (error <= (0.5 + SCALE32) * trial.step(name)).all()
    low, high = trial.ends(name)
    assert ((trial[name] >= low) & (trial[name] <= high)).all()


def in_common(trial: Trial, *names: str) -> Any:
    """How far the sum of operands may be from real numbers, after they got a unit in common."""
    headroom = min(_HEADROOM[trial.dtype(name)] for name in names)
    unit = max(trial.step(name).max() for name in names) * 2.0**-headroom
    # The sum of all of them, so that operands broadcast as they do in the operator.
    return sum(0.5 * unit + SCALE32 * np.abs(trial[name]) for name in names)


def operators(graph: Graph) -> list[str]:
    """Those that are not constants, in order."""
    return [n.op for n in graph.ordered_nodes() if not n.op.startswith("CONST")]


def producer(graph: Graph, name: str) -> str:
    """The operator that computes a tensor."""
    (node,) = (n for n in graph.nodes if name in n.outputs)
    return node.op


def uniform(seed: int, *shape: int, low: float = -3.0, high: float = 1.0) -> np.ndarray:
    """Float32 values of a range that is not symmetric, with its ends."""
    values = np.random.default_rng([seed, *shape]).uniform(low, high, shape).astype(np.float32)
    values.reshape(-1)[:2] = low, high
    return values


def floats(b: Builder, name: str, *shape: int) -> Tensor:
    return b.input(name, DType.FP32, shape)


def constant(b: Builder, values: Any, name: str | None = None) -> Tensor:
    return b.const(np.asarray(values, np.float32), DType.FP32, name=name)


def zeros(b: Builder) -> tuple[Tensor, Tensor]:
    """Two zero points of floats."""
    return constant(b, [0.0]), constant(b, [0.0])


def times(b: Builder, x: Tensor, y: Tensor, name: str | None = None) -> Tensor:
    return b.op("MUL", x, y, b.const([0], DType.INT8), name=name)


def clamp(b: Builder, x: Tensor, low: float, high: float, name: str | None = None) -> Tensor:
    return b.op("CLAMP", x, min_val=np.float32(low), max_val=np.float32(high), name=name)


def legal(graph: Graph) -> Graph:
    """The graph, after a check that its author wrote a legal one."""
    assert tosajax.validate(graph).findings == ()
    return graph


def assert_looked_up(
    trial: Trial, name: str, source: str, function: Callable[[np.ndarray], np.ndarray]
) -> None:
    """Asserts that a tensor is a function of another in a TABLE.

    Infinity is the end of the range, and NaN is 0.

    Args:
      trial: has the tensors.
      name: of the function.
      source: of its operand.
      function: of float64.
    """
    extra = 2.0**-20 * np.abs(trial.ends(name)).max()  # functions are sampled in float32
    if trial.dtype(source) is DType.INT8:
        assert_rounded(trial, name, _numbers(function, trial[source]), extra=extra)
        return
    # Lines between every 128th value, of entries that have 7 bits more than INT8, and saturate.
    entry = trial.step(name) * (1.0 if trial.dtype(name) is DType.INT16 else 2.0**-7)
    points = np.linspace(trial.grid(source)[0], trial.grid(source)[1] + 1, 513) * trial.step(source)
    entries = np.clip(_numbers(function, points), -(2**15) * entry, (2**15 - 1) * entry)
    expected = np.interp(trial[source], points, entries)
    assert_rounded(trial, name, expected, extra=extra + 0.5 * entry)


def _numbers(function: Callable[[np.ndarray], np.ndarray], x: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.nan_to_num(function(x), posinf=np.inf, neginf=-np.inf)
