"""check_bit_exact: compares a model, as it is trained, with its frozen graph."""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter
from collections.abc import Sequence

import jax
import numpy as np

from tosajax import html, reference_model, spec
from tosajax.arguments.types import check_type
from tosajax.grad.qtensor import QTensor, payload
from tosajax.graph import Graph
from tosajax.progress import Progress
from tosajax.quant.convert.open_batches import for_one_example
from tosajax.quant.freezing import freeze
from tosajax.quant.model.arguments import Examples, Input, check_finite
from tosajax.quant.model.batches import in_one_batch
from tosajax.quant.model.recipes import Params
from tosajax.quant.model.run import input_arrays
from tosajax.quant.qmodel import QModel
from tosajax.runtime.executable import compile

AGAINST = ("frozen", "reference_model")


@dataclasses.dataclass(frozen=True)
class Comparison:
    """One tensor of the model beside the same tensor of another program.

    Example:
      >>> from tosajax import quant
      >>> print(quant.Comparison("y", "frozen", elements=8, mismatches=1, largest=2, first=(0, 3)))
      frozen: y: 1 of 8 differ, by up to 2, first at (0, 3)
    """

    tensor: str
    against: str
    elements: int
    mismatches: int
    largest: float  # difference; of integers a whole number
    first: tuple[int, ...] | None  # index of the first mismatch, the example in front

    def __str__(self) -> str:
        text = f"{self.against}: {self.tensor}: {self.mismatches} of {self.elements} differ"
        return f"{text}, by up to {self.largest}, first at {self.first}" if self.first else text


@dataclasses.dataclass(frozen=True)
class Unpredictable:
    """A REQUIRE rule that a node of the frozen graph breaks for some examples.

    Its results are then open: other implementations may give something else.
    """

    node: str  # "CONV2D 'y/acc'"
    rule: str  # "conv2d.r1"
    examples: int  # that break it

    def __str__(self) -> str:
        return f"{self.node} breaks {self.rule} for {html.counted(self.examples, 'example')}"


@dataclasses.dataclass(frozen=True)
class BitExactReport:
    """Every tensor of the integer graph, in the order in which they are computed.

    Args:
      comparisons: a `Comparison` of each tensor with each program.
      unpredictable: the REQUIRE rules that the frozen graph breaks, with their node.

    Example:
      >>> from tosajax import quant
      >>> tensor = quant.Comparison("y", "frozen", 8, mismatches=1, largest=2, first=(0, 3))
      >>> report = quant.BitExactReport((tensor,))
      >>> print(report)
      1 mismatches in 8 elements; first: frozen: y: 1 of 8 differ, by up to 2, first at (0, 3)
    """

    comparisons: tuple[Comparison, ...]
    unpredictable: tuple[Unpredictable, ...] = ()

    @property
    def mismatches(self) -> int:
        return sum(c.mismatches for c in self.comparisons)

    @property
    def elements(self) -> int:
        return sum(c.elements for c in self.comparisons)

    @property
    def first_divergence(self) -> Comparison | None:
        """The earliest tensor that differs, in the first program with a difference."""
        return next((c for c in self.comparisons if c.mismatches), None)

    def __bool__(self) -> bool:
        """Whether all elements are equal, and no REQUIRE rule is broken."""
        return self.mismatches == 0 and not self.unpredictable

    def __repr__(self) -> str:
        tensors = html.counted(len(self.comparisons), "tensor")
        return f"BitExactReport({tensors}, {html.shortened(str(self), 200)})"

    def __str__(self) -> str:
        first = self.first_divergence
        text = f"{self.mismatches} mismatches in {self.elements} elements"
        parts = [text, *([f"first: {first}"] if first else [])]
        if self.unpredictable:
            parts.append(f"unpredictable: {', '.join(map(str, self.unpredictable))}")
        return "; ".join(parts)


def check_bit_exact(
    model: QModel,
    params: Params,
    *inputs: Examples,
    against: str | Sequence[str] = AGAINST,
    allow_nan: bool = False,
    progress: bool = False,
) -> BitExactReport:
    """Compares every tensor of a model, as it is trained, with its frozen graph.

    Loops and branches are compared by their states and results. The frozen graph runs with
    `report_unpredictable`: where it breaks a REQUIRE rule of the specification, as by a sum beyond
    its accumulator, implementations may differ though the two are equal here.

    Sums of FP8 products are floats: programs may differ in their last bits, and then by a step of
    the next tensor that is rounded to FP8. These count as mismatches; judge FP8 models by their
    outputs within a tolerance as well.

    Args:
      model: the model; `params` are its parameters.
      inputs: examples, as for `QModel.apply`; or batches, as for `calibrate`.
      against: "frozen", the graph of `freeze` as `tosajax.compile` runs it; "reference_model",
        Arm's model running it (needs `pip install 'tosajax[reference]'`); or one of them.
      allow_nan: takes examples with NaN or infinities.
      progress: show a bar of programs (as trained, and each of `against`) on a terminal.

    Raises:
      ImportError: Arm's model is not installed.
      TypeError: an argument is of another type.
      ValueError: a program to compare with is unknown, or Arm's model refuses the graph; the
        parameters cannot be frozen; or an example is NaN or infinite.

    Example:
      >>> import numpy as np
      >>> from tosajax import quant
      >>> example = np.float32([[-1, 1]])
      >>> model = quant.prepare(lambda x: x + x, example_args=[example])
      >>> params = quant.calibrate(model, [example])
      >>> report = quant.check_bit_exact(model, params, example, against="frozen")
      >>> all(comparison.mismatches == 0 for comparison in report.comparisons)
      True
    """
    check_type("model", model, QModel, "a QModel, from `prepare` or `lift`")
    against = (against,) if isinstance(against, str) else against
    unknown = sorted(set(against) - set(AGAINST))
    if unknown or not against:
        raise ValueError(f"against {unknown}, expected some of {', '.join(AGAINST)}")
    if "reference_model" in against:
        reference_model.check_installed()
    frozen = for_one_example(freeze(model, params))  # its variables are inputs still
    names = _computed_tensors(frozen)
    watched = model.with_outputs(*names)
    checked = functools.partial(_checked_inputs, model, allow_nan=allow_nan)
    inputs = in_one_batch(model.graph.input_tensors, inputs, checked)
    with Progress(1 + len(against), progress, unit="program") as bar:
        bar.step("compiling the model")
        integers = jax.jit(watched.input_integers)(params, *inputs)
        trained = jax.jit(watched.integers)(params, *inputs)
        expected = {n: np.asarray(payload(y)) for n, y in zip(names, trained, strict=True)}
        rows = [
            np.asarray(payload(x)).reshape(-1, *(tensor.shape or ()))
            for x, tensor in zip(integers, frozen.input_tensors, strict=True)
        ]
        examples = list(zip(*rows, strict=True))
        comparisons, broken = [], ()
        for program in against:
            bar.update()
            bar.step(program.replace("_", " "))
            if program == "frozen":
                other, broken = _run_frozen(frozen, names, examples)
            else:
                other = _run_reference(frozen, names, examples)
            comparisons += [_compare(n, program, expected[n], other[n]) for n in names]
        bar.update()
    return BitExactReport(tuple(comparisons), broken)


def _computed_tensors(graph: Graph) -> list[str]:
    nodes = [n for n in graph.ordered_nodes() if n.op not in spec.CONSTANT_OPERATORS]
    return [name for node in nodes for name in node.outputs]


def _checked_inputs(
    model: QModel, inputs: Sequence[Input], *, allow_nan: bool, where: str
) -> tuple[jax.Array | QTensor, ...]:
    if not allow_nan:
        check_finite(model.graph.input_tensors, inputs, where=where)
    return input_arrays(model, inputs)


def _run_frozen(
    graph: Graph, names: Sequence[str], examples: Sequence[Sequence[np.ndarray]]
) -> tuple[dict[str, np.ndarray], tuple[Unpredictable, ...]]:
    watched = dataclasses.replace(graph, outputs=tuple(names))
    executable = compile(watched, report_unpredictable=True)
    rows, broken = [], Counter[tuple[str, str]]()
    for example in examples:
        outputs, flags = executable(*example)
        rows.append(map(np.asarray, outputs))
        broken.update(rule for rule, flag in flags.items() if flag)
    values = dict(zip(names, map(np.stack, zip(*rows, strict=True)), strict=True))
    return values, tuple(Unpredictable(*rule, count) for rule, count in broken.items())


def _run_reference(
    graph: Graph, names: Sequence[str], examples: Sequence[Sequence[np.ndarray]]
) -> dict[str, np.ndarray]:
    stacked = map(np.stack, zip(*examples, strict=True))
    return reference_model.run(graph, *stacked, tensors=names)


def _compare(name: str, against: str, ours: np.ndarray, theirs: np.ndarray) -> Comparison:
    wide = np.int64 if ours.dtype.kind in "iub" else np.float64
    ours, theirs = ours.astype(wide), theirs.reshape(ours.shape).astype(wide)
    # NaN is equal to NaN.
    differ = (ours != theirs) & ((ours == ours) | (theirs == theirs))
    count = int(np.count_nonzero(differ))
    first = tuple(int(i) for i in np.argwhere(differ)[0]) if count else None
    largest = np.abs(ours[differ] - theirs[differ]).max(initial=0).item()
    return Comparison(name, against, ours.size, count, largest, first)
