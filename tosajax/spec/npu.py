"""Limits of Ethos-U NPUs, as Vela 5.2, their compiler, documents them for TOSA.

The source is `vela --supported-ops-report`. Each limit applies to a single node. Vela documents
more limits than it enforces, and enforces some that it does not document: the limits on BOOL
tensors, dynamic weights, and depths of Ethos-U85 were found by compiling.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from tosajax.dtypes import DType

_INTEGERS = frozenset({DType.INT8, DType.INT16, DType.INT32})
_NARROW = frozenset({DType.INT8, DType.INT16})
_INT8, _INT32 = frozenset({DType.INT8}), frozenset({DType.INT32})


@dataclasses.dataclass(frozen=True)
class NpuOperator:
    """The limits of an operator on an NPU; None if there is no limit.

    Args:
      types: the types of its first input.
      area: the most elements of a kernel, over all its dimensions.
      height: the greatest height of a kernel.
      stride: the greatest stride, except along depth.
      sizes: the greatest sizes, by argument and dimension: ("input", -1).
      batch: the greatest batch.
      constants: arguments that must be constant.
      weight_sum: the greatest sum of absolute weights of an output channel.
      bias: the greatest value of a bias b, and of -1 - b.
      sums: the output types of a RESCALE of INT48, which must be the only reader.
    """

    types: frozenset[DType] | None = None
    area: int | None = None
    height: int | None = None
    stride: int | None = None
    sizes: Mapping[tuple[str, int], int] = dataclasses.field(default_factory=dict)
    batch: int | None = None
    constants: tuple[str, ...] = ()
    weight_sum: int | None = None
    bias: int | None = None
    sums: frozenset[DType] | None = None


@dataclasses.dataclass(frozen=True)
class Npu:
    """A family of NPUs, whose members differ only in speed.

    Args:
      name: the name of the family.
      macs: the multiply-accumulates per cycle, for each member.
      extensions: the extensions of PRO-INT at level 8K.
      operators: limits by operator.
      is_complete: whether only `operators` run; if not, other operators run without limits.
      holds_bool: whether tensors of BOOL run.
    """

    name: str
    macs: tuple[int, ...]
    extensions: tuple[str, ...]
    operators: Mapping[str, NpuOperator]
    is_complete: bool
    holds_bool: bool

    def limits(self, op: str) -> NpuOperator | None:
        """The limits of an operator; None if it does not run."""
        return self.operators.get(op, None if self.is_complete else NpuOperator())


_CONVOLUTION = NpuOperator(
    area=4096,
    height=64,
    stride=3,
    sizes={("input", -1): 65536},
    constants=("weight", "bias"),
    weight_sum=127 * 65536,
    bias=2**39 - 1,
    sums=_INTEGERS,
)
_IMAGE = {("input", -1): 65536, ("input", -2): 65536, ("input", -3): 65536}
_POOL = NpuOperator(area=65536, height=256, stride=3, sizes=_IMAGE)
_ANY = NpuOperator()

_OF_U55 = {
    **dict.fromkeys(("ABS", "ADD", "CLAMP", "CLZ", "CONST", "CONST_SHAPE", "MAXIMUM"), _ANY),
    **dict.fromkeys(("MINIMUM", "MUL", "NEGATE", "REDUCE_SUM", "RESCALE", "RESIZE", "SUB"), _ANY),
    **dict.fromkeys(("CAST", "IDENTITY"), _ANY),
    **dict.fromkeys(("CONCAT", "PAD", "RESHAPE", "SLICE", "TILE"), NpuOperator(_INTEGERS)),
    **dict.fromkeys(("REDUCE_MAX", "REDUCE_MIN", "REVERSE"), NpuOperator(_NARROW)),
    **dict.fromkeys(("ARITHMETIC_RIGHT_SHIFT", "LOGICAL_LEFT_SHIFT"), NpuOperator(_INT32)),
    "ARGMAX": NpuOperator(),
    "AVG_POOL2D": dataclasses.replace(_POOL, batch=1),
    "CONV2D": _CONVOLUTION,
    "CONV3D": _CONVOLUTION,
    "DEPTHWISE_CONV2D": _CONVOLUTION,  # with the report of TFLite operators
    "MATMUL": NpuOperator(_INT8, sizes={("a", -1): 65536, ("b", -1): 65536}),
    "MAX_POOL2D": _POOL,
    "TABLE": NpuOperator(_INT8),
    "TRANSPOSE": NpuOperator(_INTEGERS),
    "TRANSPOSE_CONV2D": dataclasses.replace(_CONVOLUTION, stride=None, sizes=_IMAGE),
}
_DEEP = NpuOperator(sizes={("input", -1): 65536})
_CONSTANT = NpuOperator(constants=("weight", "bias"))

_INT = ("EXT-INT16", "EXT-INT4", "EXT-DOUBLEROUND")
FAMILIES = (
    Npu("ethos-u55", (32, 64, 128, 256), _INT, _OF_U55, is_complete=True, holds_bool=False),
    Npu("ethos-u65", (256, 512), _INT, _OF_U55, is_complete=True, holds_bool=False),
    Npu(
        "ethos-u85",
        (128, 256, 512, 1024, 2048),
        (*_INT, "EXT-CONTROLFLOW"),  # experimental
        {"CONV2D": _DEEP, "CONV3D": _CONSTANT, "TRANSPOSE_CONV2D": _CONSTANT},
        is_complete=False,
        holds_bool=True,
    ),
)
NPUS = {f"{npu.name}-{macs}": npu for npu in FAMILIES for macs in npu.macs}
