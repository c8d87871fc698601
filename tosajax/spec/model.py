"""The types of the operator table: operators, arguments and type rows."""

from __future__ import annotations

import dataclasses
import enum
from typing import NamedTuple

from tosajax.dtypes import DType
from tosajax.versions import V1_0, Version


class Kind(enum.Enum):
    """The category an argument belongs to."""

    INPUT = "input"
    ATTRIBUTE = "attribute"
    OUTPUT = "output"


class Form(enum.Enum):
    """The content of an argument."""

    TENSOR = "tensor"
    TENSOR_LIST = "tensor list"
    SHAPE = "shape"
    GRAPH = "graph"
    SCALAR = "scalar"
    LIST = "list of integers"
    VALUES = "constant values"


@dataclasses.dataclass(frozen=True)
class LevelBound:
    """A maximum set by the level, plus an offset: `MAX_RANK - 1`."""

    name: str
    offset: int = 0

    def __sub__(self, less: int) -> LevelBound:
        return LevelBound(self.name, self.offset - less)


MAX_RANK = LevelBound("MAX_RANK")
_BATCHES = ("N", "D")  # names of the dimension of examples; D is N, or 1 for all examples


class Rank(NamedTuple):
    """The ranks an argument may have, both ends included."""

    minimum: int
    maximum: int | LevelBound


class _Required:
    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED = _Required()


@dataclasses.dataclass(frozen=True)
class Argument:
    """One argument of an operator.

    `dtype` is a DType, a Python type or enumeration, or the name of a type variable of the
    operator's rows (`in_t`). `shape` is the specification's notation: `[N,IH,IW,C]` names each
    dimension, `shape1` names a whole shape, "" neither. `since` and `until` are the first and the
    last version that have an attribute, None for the newest; nodes of other versions lack it.
    """

    name: str
    kind: Kind
    form: Form
    dtype: str | DType | type
    shape: str = ""
    rank: Rank | None = None
    constant_in: tuple[str, ...] = ()  # profiles in which it must be known at compile time
    dynamic_with: str | None = None  # extension that lifts this
    default: object = REQUIRED
    prepared: bool = False  # kernels prepare it where it is constant
    since: Version = V1_0
    until: Version | None = None

    @property
    def is_data(self) -> bool:
        """Whether it has values for each example: not zero points, weights, tables and shapes."""
        dims = self.dims or _BATCHES
        return self.form in (Form.TENSOR, Form.TENSOR_LIST) and dims[0] in _BATCHES

    @property
    def broadcasts(self) -> bool:
        """Whether one of its first dimension may stand for all examples: that is N or 1."""
        return (self.dims or ("",))[0] == "D"

    @property
    def dims(self) -> tuple[str, ...] | None:
        """The names of the dimensions, or None where `shape` names a whole shape or nothing."""
        if not self.shape.startswith("["):
            return None
        return tuple(dim.strip() for dim in self.shape[1:-1].split(","))


class Accuracy(NamedTuple):
    """How float results are judged; integers are always exact.

    Args:
      name: ABS_ERROR, DOT_PRODUCT, EXACT, MAX_RELATIVE, REDUCE_PRODUCT or ULP.
      ulps: the bound of ULP, in units in the last place.
      suite_bf16: the looser bound that Arm's conformance suite 1.0.2 has for bf16, if it has one.
      special: a table of the operator gives the results of zeros and infinities.
    """

    name: str
    ulps: float = 0.0
    suite_bf16: float | None = None
    special: bool = False


EXACT = Accuracy("EXACT")


@dataclasses.dataclass(frozen=True)
class TypeRow:
    """One line of an operator's table of supported data types.

    `needs` lists alternatives; each is a set of profiles and extensions that are all needed.
    `types` gives a DType (or, for `TABLE_SIZE`, a number) to every type variable. `since` and
    `until` are the first and the last version that have the row, None for the newest.
    """

    needs: tuple[frozenset[str], ...]
    mode: str
    types: dict[str, DType | int]
    since: Version = V1_0
    until: Version | None = None

    def supported_by(self, names: frozenset[str]) -> bool:
        """Whether a target with these profiles and extensions has the row."""
        return any(need <= names for need in self.needs)

    def type_of(self, argument: Argument) -> DType | None:
        """The element type of an argument in this row; None where the row leaves it open."""
        if isinstance(argument.dtype, DType):
            return argument.dtype
        found = self.types.get(argument.dtype) if isinstance(argument.dtype, str) else None
        return found if isinstance(found, DType) else None


class ChannelAxes(NamedTuple):
    """Where channels lie in the weights of a convolution, or in the second operand of MATMUL."""

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Operator:
    """One operator: its arguments in the order of the specification, and its type rows.

    `since` and `until` are the first and the last version that have it, None for the newest.
    """

    name: str
    chapter: str  # the module in spec/, ops/, checks/ and grad/ that holds it
    section: str  # number of its section in the first version that has it
    number: int  # in interchange files
    arguments: tuple[Argument, ...]
    types: tuple[TypeRow, ...]
    instruction: int | None = None  # of SPIR-V, TOSA.001000.1; None where it has none
    since: Version = V1_0
    until: Version | None = None
    is_elementwise: bool = False  # each element of the result is of the elements at its place
    moves: bool = False  # elements of the result are elements of the inputs, elsewhere
    is_product: bool = False  # adds up products of its first input and its second
    is_homogeneous: bool = False  # positive factors of an image's channels come out as they went in
    is_function: bool = True  # results follow from the inputs, by the specification alone
    is_signless: bool = False  # the bits are the same for unsigned integers as for signed ones
    keeps_scale: bool = False  # integers of the result stand for the numbers of the first input's
    keeps_order: bool = False  # a result of the shape of the first input is equal to it
    is_singular: bool = False  # the derivative is infinite or NaN at some operands
    accuracy: Accuracy = EXACT  # of float results

    @property
    def inputs(self) -> tuple[Argument, ...]:
        return tuple(a for a in self.arguments if a.kind is Kind.INPUT)

    @property
    def attributes(self) -> tuple[Argument, ...]:
        return tuple(a for a in self.arguments if a.kind is Kind.ATTRIBUTE)

    @property
    def outputs(self) -> tuple[Argument, ...]:
        return tuple(a for a in self.arguments if a.kind is Kind.OUTPUT)

    @property
    def passes_on(self) -> tuple[Argument, ...]:
        """The inputs of whose elements the result consists; none where it computes others."""
        is_choice = self.is_signless and self.is_elementwise
        if not (self.moves or is_choice or (self.keeps_scale and not self.is_elementwise)):
            return ()
        (output,) = self.outputs
        return tuple(a for a in self.inputs if a.dtype == output.dtype)

    @property
    def channel_axes(self) -> ChannelAxes:
        """The axes of the channels in the second factor of a product.

        Raises:
          ValueError: the operator is not a product.
        """
        if not self.is_product:
            raise ValueError(f"{self.name} is not a product")
        x, weight, output = (list(a.dims or ()) for a in (*self.inputs[:2], self.outputs[0]))
        factors = output[-1].replace(" ", "").split("*")
        return ChannelAxes(
            tuple(axis for axis, name in enumerate(weight) if name == x[-1]),
            tuple(axis for axis, name in enumerate(weight) if name in factors),
        )

    @property
    def summed_axes(self) -> tuple[int, ...]:
        """Axes of the second factor along which products are added up: the output lacks them."""
        kept = self.outputs[0].shape.strip("[]").replace("*", ",").replace(" ", "").split(",")
        dims = (self.inputs[1].dims or ()) if self.is_product else ()
        return tuple(axis for axis, name in enumerate(dims) if name not in (*kept, *_BATCHES))

    @property
    def window_axes(self) -> tuple[int, ...]:
        """Axes of a convolution's weights that are a window over its input."""
        dims = (self.inputs[1].dims or ()) if self.is_product else ()
        return tuple(axis for axis, name in enumerate(dims) if name.startswith("K"))

    @property
    def has_batch(self) -> bool:
        """Whether it computes each [n, ...] of its data by itself."""
        return any((a.dims or ("",))[0] == "N" for a in self.outputs)

    @property
    def rearranges(self) -> bool:
        """Whether the result consists of the elements of one tensor, the first input."""
        data = [a for a in self.inputs if a.is_data]
        is_one = len(data) == 1 and data[0].form is Form.TENSOR
        return self.moves and is_one and len(self.passes_on) == 1

    @property
    def is_extreme(self) -> bool:
        """Whether the result is the largest or the smallest of some elements of the input."""
        return self.keeps_scale and self.chapter == "reduction"

    @property
    def needs_out_type(self) -> bool:
        """Whether the input types leave the output type open, so that kernels take it."""
        outs = {a.dtype for a in self.outputs if isinstance(a.dtype, str)}
        ins = {a.dtype for a in self.inputs if isinstance(a.dtype, str)}
        seen: dict[tuple, tuple] = {}
        for row in self.types:
            key = tuple(row.types[v] for v in sorted(ins) if v in row.types)
            out = tuple(row.types[v] for v in sorted(outs) if v in row.types)
            if seen.setdefault(key, out) != out:
                return True
        return False


def rows(
    variables: str, *lines: tuple[str, str, str], since: Version = V1_0
) -> tuple[TypeRow, ...]:
    """Builds type rows of one version from `variables` and lines of (profiles, mode, types)."""
    names = variables.split()
    return tuple(
        TypeRow(
            needs=tuple(frozenset(n.split(" and ")) for n in needs.split(" or ")),
            mode=mode,
            types={
                name: int(value) if value.isdigit() else DType[value]
                for name, value in zip(names, types.split(), strict=True)
            },
            since=since,
        )
        for needs, mode, types in lines
    )


def tensor(
    name: str, dtype: str | DType, shape: str, rank: Rank | None = None, *, prepared: bool = False
) -> Argument:
    """A tensor input."""
    rank = rank or _rank_of(shape)
    return Argument(name, Kind.INPUT, Form.TENSOR, dtype, shape, rank, prepared=prepared)


def constant(
    name: str,
    dtype: str | DType,
    shape: str,
    profiles: str = "PRO-INT PRO-FP",
    *,
    prepared: bool = False,
) -> Argument:
    """A tensor input that is a compile-time constant unless EXT-DYNAMIC is there."""
    return dataclasses.replace(
        tensor(name, dtype, shape, prepared=prepared),
        constant_in=tuple(profiles.split()),
        dynamic_with="EXT-DYNAMIC",
    )


def shape(name: str, length: str) -> Argument:
    """A shape_t input, a compile-time constant unless EXT-DYNAMIC is there."""
    return Argument(
        name,
        Kind.INPUT,
        Form.SHAPE,
        DType.SHAPE,
        f"[{length}]",
        Rank(1, 1),
        ("PRO-INT", "PRO-FP"),
        "EXT-DYNAMIC",
    )


def tensors(name: str, dtype: str, shapes: str = "", rank: Rank | None = None) -> Argument:
    """A list of tensors as input."""
    return Argument(name, Kind.INPUT, Form.TENSOR_LIST, dtype, shapes, rank)


def scalar(name: str, dtype: str | type, default: object = REQUIRED) -> Argument:
    """An attribute of one value."""
    return Argument(name, Kind.ATTRIBUTE, Form.SCALAR, dtype, default=default)


def integers(name: str, length: str) -> Argument:
    """An attribute that is a list of integers."""
    return Argument(name, Kind.ATTRIBUTE, Form.LIST, int, f"[{length}]", Rank(1, 1))


def graph(name: str) -> Argument:
    """An attribute that is a graph."""
    return Argument(name, Kind.ATTRIBUTE, Form.GRAPH, "tosa_graph_t")


def values(
    name: str, dtype: str | DType, shape: str, rank: Rank | None, default: object = REQUIRED
) -> Argument:
    """An attribute that holds the elements of a tensor or shape."""
    return Argument(name, Kind.ATTRIBUTE, Form.VALUES, dtype, shape, rank, default=default)


def result(
    name: str,
    dtype: str | DType,
    shape: str,
    rank: Rank | None = None,
    *,
    constant_in: tuple[str, ...] = (),
) -> Argument:
    """A tensor output."""
    return Argument(
        name, Kind.OUTPUT, Form.TENSOR, dtype, shape, rank or _rank_of(shape), constant_in
    )


def results(name: str) -> Argument:
    """A list of tensors as output."""
    return Argument(name, Kind.OUTPUT, Form.TENSOR_LIST, "")


def _rank_of(shape: str) -> Rank:
    count = shape.count(",") + 1
    return Rank(count, count)
