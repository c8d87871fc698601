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
    """A maximum of the level plus an offset, such as `MAX_RANK - 1`."""

    name: str
    offset: int = 0

    def __sub__(self, less: int) -> LevelBound:
        return LevelBound(self.name, self.offset - less)


MAX_RANK = LevelBound("MAX_RANK")
_BATCHES = ("N", "D")  # names of the dimension of examples; D is N, or 1 for all examples


class Rank(NamedTuple):
    """The ranks that an argument may have, both ends included."""

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
    operator's rows (`in_t`). `shape` is in the specification's notation: `[N,IH,IW,C]` names each
    dimension, `shape1` names a whole shape, "" names nothing. `since` and `until` are the first and
    the last version that have an attribute, None for the newest; nodes of other versions lack it.
    """

    name: str
    kind: Kind
    form: Form
    dtype: str | DType | type
    shape: str = ""
    rank: Rank | None = None
    constant_in: tuple[str, ...] = ()  # profiles in which it must be known at compile time
    dynamic_with: str | None = None  # extension that lifts this restriction
    default: object = REQUIRED
    prepared: bool = False  # kernels prepare it if it is constant
    since: Version = V1_0
    until: Version | None = None

    @property
    def is_data(self) -> bool:
        """Whether it has values for each example, unlike zero points, weights, tables, shapes."""
        dims = self.dims or _BATCHES
        return self.form in (Form.TENSOR, Form.TENSOR_LIST) and dims[0] in _BATCHES

    @property
    def broadcasts(self) -> bool:
        """Whether its first dimension is N, or 1 for a matrix that all examples share."""
        return (self.dims or ("",))[0] == "D"

    @property
    def dims(self) -> tuple[str, ...] | None:
        """The names of the dimensions; None if `shape` names a whole shape or nothing."""
        if not self.shape.startswith("["):
            return None
        return tuple(dim.strip() for dim in self.shape[1:-1].split(","))


class Accuracy(NamedTuple):
    """The accuracy that float results must have; integers are always exact.

    Args:
      name: ABS_ERROR, DOT_PRODUCT, EXACT, MAX_RELATIVE, REDUCE_PRODUCT or ULP.
      ulps: the bound of ULP, in units in the last place.
      suite_bf16: a looser bound for bf16, if Arm's conformance suite 1.0.2 has one.
      special: whether a table of the operator gives the results for zeros and infinities.
    """

    name: str
    ulps: float = 0.0
    suite_bf16: float | None = None
    special: bool = False


EXACT = Accuracy("EXACT")


@dataclasses.dataclass(frozen=True)
class TypeRow:
    """One line of an operator's table of supported data types.

    `needs` lists alternatives; each is a set of profiles and extensions, all of which are needed.
    `types` maps every type variable to a DType (`TABLE_SIZE`, to a number). `since` and `until` are
    the first and the last version that have the row, None for the newest.
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
        """The element type of an argument in this row; None if the row does not determine it."""
        if isinstance(argument.dtype, DType):
            return argument.dtype
        dtype = self.types.get(argument.dtype) if isinstance(argument.dtype, str) else None
        return dtype if isinstance(dtype, DType) else None


class ChannelAxes(NamedTuple):
    """The axes of channels in a convolution's weights, or in the second operand of MATMUL."""

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Operator:
    """One operator: its arguments in the order of the specification, and its type rows.

    `since` and `until` are the first and the last version that have the operator, None for the
    newest.
    """

    name: str
    chapter: str  # the module in spec/, ops/, checks/ and grad/ that holds it
    section: str  # the number of its section in the first version that has it
    number: int  # its number in interchange files
    arguments: tuple[Argument, ...]
    types: tuple[TypeRow, ...]
    instruction: int | None = None  # in SPIR-V, TOSA.001000.1; None if it has no instruction
    since: Version = V1_0
    until: Version | None = None
    is_elementwise: bool = False  # each result element depends on the elements at its index
    moves: bool = False  # elements of the result are elements of the inputs, at other indices
    is_product: bool = False  # sums products of its first and second input
    is_homogeneous: bool = False  # positive factors on channels of all inputs scale the result
    is_function: bool = True  # the specification determines the results from the inputs
    is_signless: bool = False  # the bits are the same for unsigned and signed integers
    keeps_scale: bool = False  # the result's integers have the scale of the first input
    keeps_order: bool = False  # a result with the shape of the first input equals that input
    is_singular: bool = False  # the derivative is infinite or NaN at some operands
    accuracy: Accuracy = EXACT  # the accuracy of float results

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
        """The inputs whose elements form the result; empty if the operator computes new values."""
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
        """The axes of the second factor over which products are summed."""
        kept = self.outputs[0].shape.strip("[]").replace("*", ",").replace(" ", "").split(",")
        dims = (self.inputs[1].dims or ()) if self.is_product else ()
        return tuple(axis for axis, name in enumerate(dims) if name not in (*kept, *_BATCHES))

    @property
    def window_axes(self) -> tuple[int, ...]:
        """The axes of a convolution's weights that slide over its input."""
        dims = (self.inputs[1].dims or ()) if self.is_product else ()
        return tuple(axis for axis, name in enumerate(dims) if name.startswith("K"))

    @property
    def has_batch(self) -> bool:
        """Whether it computes each element of the first axis, N, independently."""
        return any((a.dims or ("",))[0] == "N" for a in self.outputs)

    @property
    def rearranges(self) -> bool:
        """Whether the result consists of the elements of its only data tensor, the first input."""
        data = [a for a in self.inputs if a.is_data]
        is_one = len(data) == 1 and data[0].form is Form.TENSOR
        return self.moves and is_one and len(self.passes_on) == 1

    @property
    def is_extreme(self) -> bool:
        """Whether each result is the maximum or the minimum of some input elements."""
        return self.keeps_scale and self.chapter == "reduction"

    @property
    def needs_out_type(self) -> bool:
        """Whether kernels take the output type, because the input types do not determine it."""
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
    """Builds the type rows of one version from `variables` and lines of (profiles, mode, types)."""
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
    """A tensor input that is a compile-time constant unless the target has EXT-DYNAMIC."""
    return dataclasses.replace(
        tensor(name, dtype, shape, prepared=prepared),
        constant_in=tuple(profiles.split()),
        dynamic_with="EXT-DYNAMIC",
    )


def shape(name: str, length: str) -> Argument:
    """A shape_t input: a compile-time constant unless the target has EXT-DYNAMIC."""
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
    """An input that is a list of tensors."""
    return Argument(name, Kind.INPUT, Form.TENSOR_LIST, dtype, shapes, rank)


def scalar(name: str, dtype: str | type, default: object = REQUIRED) -> Argument:
    """An attribute that is a scalar."""
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
    """An output that is a list of tensors."""
    return Argument(name, Kind.OUTPUT, Form.TENSOR_LIST, "")


def _rank_of(shape: str) -> Rank:
    count = shape.count(",") + 1
    return Rank(count, count)
