"""How fast processors compute with integers.

Those of Ethos-U follow the cycles that Vela 5.2 estimates for single operators, memory left out:
`tests/test_vela.py` compares both.
"""

from __future__ import annotations

import dataclasses

from tosajax.arguments.types import check_type
from tosajax.spec.npu import FAMILIES, Npu
from tosajax.spec.target import Target


@dataclasses.dataclass(frozen=True)
class Rates:
    """How much a processor computes in a cycle, of INT8.

    Args:
      macs: multiply-accumulates.
      elements: elements of an operator with two inputs, such as ADD.
      moves: elements that TABLE, RESIZE, pools and data layout write, and that reductions read.
      wide: how many times as long products and moves of INT16 take.
      depth: the multiple that depths of kernels are filled up to, with zeros.
      taps: the multiple that the elements of a kernel are filled up to, where its depth is at most
        `depth`.

    Raises:
      TypeError: one of them is not a number.
      ValueError: one of them is not positive.

    Example:
      >>> from tosajax import quant
      >>> quant.Rates(macs=32, elements=8, moves=4).wide  # a DSP
      2
    """

    macs: float
    elements: float
    moves: float
    wide: float = 2
    depth: int = 1
    taps: int = 1

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            check_type(field.name, value, float | int, "a number")
            if not value > 0:
                raise ValueError(f"{field.name} is {value}, expected a positive number")


# Multiply-accumulates in the time of a move, and of an element of an operator with two inputs: on
# Ethos-U55 and Ethos-U65, ADD takes that of 192, MUL that of 96.
_OF_A_MOVE = 128
_OF_AN_ELEMENT = {"ethos-u55": 160, "ethos-u65": 160, "ethos-u85": 64}


def _rates(npu: Npu, macs: int) -> Rates:
    return Rates(macs, macs / _OF_AN_ELEMENT[npu.name], macs / _OF_A_MOVE, depth=8, taps=4)


RATES = {f"{npu.name}-{macs}": _rates(npu, macs) for npu in FAMILIES for macs in npu.macs}


def rates_of(npu: str) -> Rates:
    """The rates of an NPU, by its name; errors as of `Target.of_npu`."""
    Target.of_npu(npu)
    return RATES[npu]
