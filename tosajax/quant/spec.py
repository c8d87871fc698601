"""QSpec: how a tensor is to be quantized; rules give tensors their specifications."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Sequence

from tosajax.arguments.names import near
from tosajax.arguments.types import check_type
from tosajax.dtypes import DType
from tosajax.grad.estimators import Estimator, clipped_ste
from tosajax.graph import Graph
from tosajax.quant.graphs.blocks import all_nodes, all_tensors
from tosajax.quant.ranges.observers import Observer, min_max, percentile
from tosajax.quant.storages import Float8, Integers, Storage, storage_of

_SHORT = {
    "i4": DType.INT4,
    "i8": DType.INT8,
    "i16": DType.INT16,
    "fp8e4m3": DType.FP8E4M3,
    "fp8e5m2": DType.FP8E5M2,
}


@dataclasses.dataclass(frozen=True)
class QSpec:
    """How a tensor is to be quantized: to integers, or to FP8 values times a scale.

    FP8 is symmetric, with the largest finite value (448 of E4M3, 57344 of E5M2) at the end of the
    range, and has all of its 8 bits; rounding passes gradients on, and saturation does not.

    Args:
      dtype: INT4 (weights only), INT8 or INT16 (activations only), which holds the integers; or
        FP8E4M3 or FP8E5M2; or "i4", "i8", "i16", "fp8e4m3", "fp8e5m2"; or a `Storage`.
      bits: the bits of the range in use, from 2 to all bits of dtype, the default.
      symmetric: the zero point is 0, as always for INT4, INT16 and FP8.
      per_channel: one scale for each output channel, of weights only; they are symmetric then.
      narrow_range: leaves out the lowest integer, as INT4 always does.
      observer: finds the scale and the zero point; `mse` and `entropy` weigh integers, not FP8.
        `min_max()`, the default, has a margin of a half for activations of 16 bits.
      estimator: the surrogate derivative of rounding and saturation, of weights and inputs.
      learned_bits: `bits` has a gradient.

    Raises:
      ValueError: the arguments contradict each other.

    Example:
      >>> import tosajax
      >>> from tosajax import quant
      >>> quant.QSpec("i8", bits=6, per_channel=True).storage.dtype
      DType.INT8
    """

    dtype: DType | str | Storage = DType.INT8
    bits: int | None = None
    symmetric: bool = True
    per_channel: bool = False
    narrow_range: bool = False
    observer: Observer = dataclasses.field(default_factory=min_max)
    estimator: Estimator = clipped_ste
    learned_bits: bool = False

    def __post_init__(self) -> None:
        dtype = _element_type(self.dtype)
        object.__setattr__(self, "dtype", dtype)
        if not self.storage.is_integer:
            _check_without_integers(self)
        self.storage.check(self)
        if self.bits is None:
            object.__setattr__(self, "bits", self.storage.dtype.bits)
        if dtype is DType.INT4:
            object.__setattr__(self, "narrow_range", True)

    @property
    def storage(self) -> Storage:
        """How real values are stored."""
        assert not isinstance(self.dtype, str)
        return storage_of(self.dtype)


def _element_type(name: object) -> DType | Storage:
    """The element type of a short name or of one of our own storages; other storages as they are.

    Raises:
      ValueError: it is none of these.
    """
    dtype = _SHORT.get(name, name) if isinstance(name, str) else name
    if isinstance(dtype, Integers | Float8):
        dtype = dtype.dtype
    if isinstance(dtype, DType) and dtype in _SHORT.values():
        return dtype
    if isinstance(dtype, Storage) and not isinstance(dtype, type | DType):
        return dtype
    raise ValueError(f"dtype {name!r}, expected one of {', '.join(_SHORT)}, or a Storage")


def _check_without_integers(spec: QSpec) -> None:
    """Raises ValueError where a specification asks for integers, and its storage has none."""
    name = spec.storage.name
    expected = {
        "bits": (None, spec.storage.dtype.bits),
        "symmetric": (True,),
        "narrow_range": (False,),
        "learned_bits": (False,),
    }
    for option, values in expected.items():
        if (value := getattr(spec, option)) not in values:
            raise ValueError(f"{option} {value!r} of {name}, expected {values[-1]!r}")
    if spec.observer.weighs_integers:
        raise ValueError(
            f"{name}: an observer that searches for the best integers, expected min_max, "
            "moving_average or percentile"
        )


# Defaults of rules.
DEFAULT_WEIGHT = QSpec(per_channel=True, narrow_range=True)
DEFAULT_ACT = QSpec(symmetric=False)
# Of inner activations. Pretrained networks lose less without the outermost values, by 0.9 dB on
# average than with 99.99 %; those of inputs and outputs are not for `calibrate` to leave out.
DEFAULT_INNER = QSpec(symmetric=False, observer=percentile(99.995))
# Of INT16 activations, relative to what examples have: 16 bits have room for more. Of pretrained
# networks one example that is beyond all others may have most of the noise. More room costs bits:
# of magika, four times the range took away what this gives.
ROOM = 0.5
WIDE_RANGE = min_max(margin=ROOM)  # in place of `min_max()`


@dataclasses.dataclass(frozen=True)
class Rule:
    """Specifications for the nodes that a pattern is found in; None leaves them open.

    Example:
      >>> from tosajax import quant
      >>> quant.rule("conv1", act=quant.QSpec("i16")).act.storage.dtype
      DType.INT16
    """

    pattern: str
    weight: QSpec | None = None
    act: QSpec | None = None


def rule(pattern: str, *, weight: QSpec | None = None, act: QSpec | None = None) -> Rule:
    """Specifies how nodes are quantized.

    Args:
      pattern: a regular expression, searched for in the names of a node's tensors and in its
        location; ".*" is all nodes.
      weight: the specification of their constants that convolutions and MATMUL multiply by.
      act: the specification of their outputs; or of a graph input itself.

    Raises:
      TypeError: an argument is of another type.
      ValueError: a specification that TOSA cannot express, or not a regular expression.

    Example:
      >>> from tosajax import quant
      >>> rules = [
      ...     quant.rule(".*", act=quant.QSpec("i16")),
      ...     quant.rule("conv1", weight=quant.QSpec("i4", per_channel=True)),
      ... ]
      >>> [each.pattern for each in rules]
      ['.*', 'conv1']
    """
    check_type("pattern", pattern, str, "a regular expression")
    for argument, own in (("weight", weight), ("act", act)):
        check_type(argument, own, QSpec | None, "a QSpec")
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"pattern {pattern!r} is not a regular expression: {error}") from None
    if weight is not None and weight.dtype is DType.INT16:
        raise ValueError(f"rule {pattern!r}: weights of INT16, expected INT4, INT8 or FP8")
    if act is not None and (act.dtype is DType.INT4 or act.per_channel):
        kind = "a scale per channel" if act.per_channel else "INT4"
        raise ValueError(f"rule {pattern!r}: activations of {kind}, expected INT8, INT16 or FP8")
    return Rule(pattern, weight, act)


def weight_spec(rules: Sequence[Rule], names: Iterable[str]) -> QSpec:
    """The specification of the latest rule for weights of a node of these names."""
    names = list(names)
    specs = [r.weight for r in rules if r.weight is not None and _matches(r, names)]
    return specs[-1] if specs else DEFAULT_WEIGHT


def act_spec(rules: Sequence[Rule], names: Iterable[str]) -> QSpec:
    """The specification of the latest rule for outputs of a node of these names."""
    names = list(names)
    specs = [r.act for r in rules if r.act is not None and _matches(r, names)]
    return specs[-1] if specs else DEFAULT_ACT


class Asked:
    """The specifications that rules give to tensors, by their names and locations in a graph."""

    def __init__(self, graph: Graph, rules: Sequence[Rule]) -> None:
        self._rules = rules
        nodes = [node for node in all_nodes(graph) if node.location]
        self._locations = {name: node.location for node in nodes for name in node.outputs}

    def act(self, *names: str) -> QSpec:
        """The specification of an activation with these names."""
        return act_spec(self._rules, self._titles(names))

    def weight(self, *names: str) -> QSpec:
        """The specification of a weight, by its name and the output of the node that reads it."""
        return weight_spec(self._rules, self._titles(names))

    def _titles(self, names: Sequence[str]) -> list[str]:
        locations = [self._locations.get(name) for name in names]
        return [*names, *(location for location in locations if location)]


def check_rules(rules: Sequence[Rule], *graphs: Graph) -> None:
    """Raises ValueError where the pattern of a rule is found in no name of the graphs.

    Args:
      rules: the rules to check.
      graphs: forms of one graph; names of tensors and locations of nodes count.
    """
    names = dict.fromkeys(name for graph in graphs for name in all_tensors(graph))
    places = [node.location for graph in graphs for node in all_nodes(graph) if node.location]
    for each in rules:
        if not _matches(each, [*names, *places]):
            raise ValueError(
                f"rule {each.pattern!r}: the pattern is found in no name of a tensor and in no "
                f"location of a node{near(each.pattern, names)}"
            )


def _matches(rule: Rule, names: Sequence[str]) -> bool:
    return any(re.search(rule.pattern, name) for name in names)
