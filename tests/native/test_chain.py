"""A call of several native kernels equals calls of each of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import native_calls
import numpy as np
import pytest
from native_calls import Pool

from tosajax.ops._window import Window

pytest.importorskip("llvmlite")

from tosajax.native import call, tiling
from tosajax.native.calls import schedule
from tosajax.native.calls.schedule import KernelCall, Placeholder
from tosajax.native.codegen import isa
from tosajax.native.codegen.isa import InstructionSet

pytestmark = pytest.mark.usefixtures("quick")
S = isa.usable()[0]
ONE = ((1, 1), (1, 1))
NONE = ((0, 0), (0, 0))


class Network:
    """Kernels with weights that a seed draws.

    Args:
      x: int8, [N, H, W, C].
      s: the instruction set.
    """

    def __init__(self, x: np.ndarray, s: InstructionSet = S) -> None:
        self.rng, self.s = np.random.default_rng(0), s
        self.kernels: list[KernelCall] = []
        self.x = x

    def _kept(self, kernel: KernelCall) -> Placeholder:
        self.kernels.append(kernel)
        return kernel.placeholder(len(self.kernels) - 1)

    def _epilogue(self, channels: int, bits: int) -> call.Epilogue:
        multiplier = self.rng.integers(2**30, 2**31, channels).astype(np.int32)
        shift = np.full(channels, 30 + bits, np.int8)
        zero_point = np.int32(self.rng.integers(-9, 9))
        return call.Epilogue(multiplier, shift, zero_point, -120, 119, False)

    def _halves(self) -> tuple[tuple[call.Scaling, call.Scaling], call.Epilogue]:
        """Scales of an addition that keep about half of each operand."""

        def numbers(multiplier: int, shift: int) -> tuple[np.ndarray, np.ndarray]:
            return np.array([multiplier], np.int32), np.array([shift], np.int8)

        zero_points = self.rng.integers(-9, 9, (2, 1)).astype(np.int8)
        factors = numbers(2**30, 11), numbers(2**30 + 12345, 11)
        left, right = (
            call.Scaling(z, *f, double=False) for z, f in zip(zero_points, factors, strict=True)
        )
        return (left, right), call.Epilogue(*numbers(2**30 + 999, 50), np.int32(3), -99, 98, False)

    def convolved(
        self, x: Any, out: int, size: int, stride: int = 1, other: Any = None, *, deep: bool = True
    ) -> Placeholder:
        """A convolution; depthwise unless `deep`, with a fused addition if `other` is given."""
        ic = x.shape[3]
        shape = (out, size, size, ic) if deep else (size, size, ic, 1)
        weight = self.rng.integers(-127, 128, shape).astype(np.int8)
        bias = self.rng.integers(-1000, 1000, out).astype(np.int32)
        o = call.Operands(x, weight, bias, self.rng.integers(-9, 9, 1).astype(np.int8))
        window = Window((size, size), (stride, stride), (1, 1), ONE if size > 1 else NONE)
        terms = size * size * (ic if deep else 1)
        epilogue = self._epilogue(out, 6 + terms.bit_length() // 2)
        adding = ()
        if other is not None:
            adding = (call.Adding("SUB", other, True, *self._halves()),)
        make = call.convolve if deep else call.convolve_depthwise
        return self._kept(make(self.s, o, window, epilogue, *adding))

    def added(self, left: Any, right: Any) -> Placeholder:
        return self._kept(call.add(self.s, "ADD", (left, right), *self._halves()))

    def pooled(self, x: Any, op: str, size: int) -> Placeholder:
        window = Window((size, size), (size, size), (1, 1), NONE)
        zero = np.zeros(1, np.int8)
        return self._kept(call.combine(self.s, op, x, window, (zero, zero)))


def residual(images: int, s: InstructionSet = S) -> list[KernelCall]:
    """Kernels of all kinds; some results are read twice, or late."""
    rng = np.random.default_rng(1)
    n = Network(rng.integers(-128, 128, (images, 16, 16, 3)).astype(np.int8), s)
    first = n.convolved(n.x, 16, 3)
    second = n.convolved(first, 24, 3)
    third = n.convolved(second, 16, 3, other=first)
    window = n.convolved(third, 16, 3, 2, deep=False)
    left, right = n.convolved(window, 40, 1), n.convolved(window, 40, 1)
    top = n.pooled(n.added(left, right), "MAX_POOL2D", 2)
    mean = n.pooled(top, "AVG_POOL2D", 4)
    n.convolved(mean, 10, 1)
    return n.kernels


LAST = len(residual(1)) - 1


def test_all_results_differ():
    """Results vary between images, and few saturate: each kernel matters to the last one."""
    for result in one_by_one(residual(4)):
        assert result.astype(float).std(0).mean() > 5
        assert np.mean(np.abs(result.astype(int)) > 118) < 0.5


def one_by_one(kernels: Sequence[KernelCall]) -> list[np.ndarray]:
    """The result of each kernel, each from a call of its own."""
    made: list[Any] = []
    for kernel in kernels:
        operands = (made[o.number] if isinstance(o, Placeholder) else o for o in kernel.operands)
        made.append(call.run(kernel._replace(operands=tuple(operands))))
    return list(map(np.asarray, made))


def check(
    kernels: Sequence[KernelCall],
    outputs: Sequence[int],
    wanted: Sequence[np.ndarray] | None = None,
    **how: Any,
) -> None:
    wanted = wanted or one_by_one(kernels)
    with native_calls.Calls(*kernels, outputs=outputs, **how) as calls:
        calls.run()
        found = calls.results()
    for number, result in zip(outputs, found, strict=True):
        np.testing.assert_array_equal(result, wanted[number])


@pytest.mark.parametrize("at_end", [False, True])
@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("images", [1, 2, 3, 7, 22, 32])
def test_results(images: int, workers: int, at_end: bool, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tiling, "threads", lambda: workers)
    check(residual(images), [LAST], at_end=at_end, pool=Pool(workers))


@pytest.mark.parametrize("outputs", [[0], [2, LAST], [*range(LAST + 1)], [LAST, 3, 0]])
@pytest.mark.parametrize("images", [1, 12])
def test_any_results_may_be_outputs(images: int, outputs: list[int], monkeypatch):
    monkeypatch.setattr(tiling, "threads", lambda: 2)
    check(residual(images), outputs, pool=Pool(2))


@pytest.mark.parametrize("weights", [0, 2000, 5000, 2**19])
@pytest.mark.parametrize("image", [0, 7000, 2**20])
@pytest.mark.parametrize("images", [0, 20000, 2**17])
def test_rounds_of_all_lengths(weights: int, image: int, images: int, monkeypatch):
    """Rounds are right for caches of any size."""
    monkeypatch.setattr(tiling, "threads", lambda: 2)
    monkeypatch.setattr(schedule, "_MAX_WEIGHT_BYTES", weights)
    monkeypatch.setattr(schedule, "_MAX_IMAGE_BYTES", image)
    monkeypatch.setattr(schedule, "_MAX_GROUP_BYTES", images)
    check(residual(24), [LAST], pool=Pool(2))


def test_groups_do_not_overwrite_what_others_read(monkeypatch):
    """A round whose output is larger than its input spares the inputs of later groups."""
    monkeypatch.setattr(tiling, "threads", lambda: 2)
    rng = np.random.default_rng(0)
    n = Network(rng.integers(-128, 128, (16, 8, 8, 16)).astype(np.int8))
    made: Any = n.x
    for out in (8, 8, 16, 48, 16, 8):
        made = n.convolved(made, out, 3)
    wanted = one_by_one(n.kernels)
    rounds = [schedule._Round(range(begin, begin + 2), 16) for begin in (0, 2, 4)]
    monkeypatch.setattr(schedule._CallPlanner, "_rounds", lambda self, images: iter(rounds))
    check(n.kernels, [5], wanted, pool=Pool(2))


@pytest.mark.parametrize("when", ["now", "late", "never"])
@pytest.mark.parametrize("size", [0, 2, 7])
@pytest.mark.parametrize("images", [1, 32])
def test_threads(images: int, size: int, when: str, monkeypatch):
    monkeypatch.setattr(tiling, "threads", lambda: 4)
    check(residual(images), [LAST], pool=Pool(size, when))


@pytest.mark.parametrize("images", [2, 64])
def test_threads_have_memory_of_their_own(images: int, monkeypatch):
    """Kernels take long enough for threads to work at the same time."""
    monkeypatch.setattr(tiling, "threads", lambda: 3)
    rng = np.random.default_rng(0)
    size = 16 if images > 2 else 80
    n = Network(rng.integers(-128, 128, (images, size, size, 64)).astype(np.int8))
    made: Any = n.x
    for _ in range(6):
        made = n.convolved(made, 64, 3)
    wanted = one_by_one(n.kernels)
    for _ in range(5):
        check(n.kernels, [5], wanted, pool=Pool(3))


@pytest.mark.parametrize("images", [1, 32])
def test_nothing_stays_on_the_heap(images: int, monkeypatch):
    monkeypatch.setattr(tiling, "threads", lambda: 4)
    with native_calls.Calls(*residual(images), outputs=[LAST], pool=Pool(3)) as calls:
        native_calls.assert_nothing_stays(calls, 50)


def deep(images: int) -> list[KernelCall]:
    """Convolutions whose results all have one size."""
    n = Network(np.zeros((images, 64, 64, 16), np.int8))
    made: Any = n.x
    for _ in range(20):
        made = n.convolved(made, 16, 3)
    return n.kernels


def planned(kernels: Sequence[KernelCall], outputs: Sequence[int]) -> schedule._CallPlanner:
    links, arrays, _ = call.link_kernels(kernels)
    return schedule._CallPlanner(links, outputs, arrays[0].shape[0], len(arrays))


@pytest.mark.parametrize(
    ("images", "outputs", "least", "most"),
    [(1, [19], 2, 4), (1, [*range(20)], 0, 2), (32, [19], 4, 8)],
)
def test_tensors_share_memory(images: int, outputs: list[int], least: int, most: int, monkeypatch):
    """A result takes the memory of one that is dead; a thread has memory for one group."""
    monkeypatch.setattr(tiling, "threads", lambda: 2)
    size = planned(deep(images), outputs).call(waits=False).workspace
    assert least * 64 * 64 * 16 <= size < most * 64 * 64 * 16


def test_rounds(monkeypatch):
    """All threads share the kernels of few images; groups of many images have one thread each."""
    monkeypatch.setattr(tiling, "threads", lambda: 2)
    few = planned(deep(3), [19]).rounds
    assert [(len(r.numbers), r.groups) for r in few] == [(1, 0)] * 20
    assert [(len(r.numbers), r.groups) for r in planned(deep(4), [19]).rounds] == [(20, 4)]
    kernel = deep(1)[0]  # instruction sets pad weights to other sizes
    size = sum(np.asarray(operand).nbytes for operand in kernel.operands[kernel.inputs :])
    monkeypatch.setattr(schedule, "_MAX_WEIGHT_BYTES", 4 * size)
    parts = planned(deep(8), [19]).rounds
    assert [(len(r.numbers), r.groups) for r in parts] == [(4, 8)] * 5
    monkeypatch.setattr(schedule, "_MAX_IMAGE_BYTES", 0)
    assert {r.groups for r in planned(deep(8), [19]).rounds} == {0}


def test_examples_are_joined():
    images = residual(12)[0].operands[0].reshape(3, 4, 16, 16, 3)
    kernels = residual(4)

    def run(x: Any) -> jax.Array:
        first = kernels[0]._replace(operands=(x, *kernels[0].operands[1:]))
        return call.run_all([first, *kernels[1:]], [LAST])[0]

    found = jax.jit(jax.vmap(run))(images)
    for x, result in zip(images, found, strict=True):
        np.testing.assert_array_equal(result, run(x))


@pytest.mark.parametrize("number", [0, 4, LAST])
def test_weights_are_mapped(number: int):
    """`vmap` over the weights of one kernel."""
    kernels = residual(2)
    x, weight, *others = kernels[number].operands
    weights = np.stack([weight // divisor for divisor in (1, 2, 3)])  # padding remains 0

    def run(weight: Any) -> jax.Array:
        changed = [*kernels]
        changed[number] = kernels[number]._replace(operands=(x, weight, *others))
        return call.run_all(changed, [LAST])[0]

    found = jax.jit(jax.vmap(run))(weights)
    for weight, result in zip(weights, found, strict=True):
        np.testing.assert_array_equal(result, run(weight))
