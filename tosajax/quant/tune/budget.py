"""Budget: what `auto` may spend, of its own time and of the processor that will run the result."""

from __future__ import annotations

import dataclasses

from tosajax.arguments.types import check_type
from tosajax.spec.rates import Rates, rates_of


@dataclasses.dataclass(frozen=True)
class Budget:
    """What `auto` may spend.

    Args:
      seconds: of the search; it begins no remedy after them.
      wide_macs: the share of multiply-accumulates that may read INT16 where the rules ask for
        INT8, in [0, 1]; at 0 outputs stay INT8 as well.
      wide_outputs: whether outputs may be INT16 where the rules ask for INT8, which takes no
        multiply-accumulate: boxes, landmarks and logits, but no function of them such as softmax.
      target: the processor that will run the result: an NPU by name, "ethos-u85-256", whose
        operators then limit what may be INT16; or the rates of another.
      more_cycles: the share of the target's cycles by which INT16 may prolong the network.
      arena_bytes: the most bytes of activations that INT16 may need at once, those of one example;
        the least that a network needs is what it needs by the rules.

    Raises:
      TypeError: one of them is of another type.
      ValueError: one of them is out of range, or `more_cycles` has no target.

    Example:
      >>> from tosajax import quant
      >>> quant.Budget(seconds=60).wide_macs
      0.1
      >>> budget = quant.Budget(target="ethos-u55-128", more_cycles=0.05, arena_bytes=256 * 1024)
      >>> budget.rates.macs
      128
    """

    seconds: float = 600.0
    wide_macs: float = 0.1
    wide_outputs: bool = True
    target: str | Rates | None = None
    more_cycles: float | None = None
    arena_bytes: int | None = None

    def __post_init__(self) -> None:
        if not self.seconds >= 0:
            raise ValueError(f"seconds is {self.seconds}, expected a positive number")
        if not 0 <= self.wide_macs <= 1:
            raise ValueError(f"wide_macs is {self.wide_macs}, expected a number in [0, 1]")
        check_type("target", self.target, str | Rates | None, "the name of an NPU, or quant.Rates")
        if isinstance(self.target, str):
            rates_of(self.target)
        for name in ("more_cycles", "arena_bytes"):
            limit = getattr(self, name)
            if limit is not None and not limit >= 0:
                raise ValueError(f"{name} is {limit}, expected a number that is not negative")
        if self.more_cycles is not None and self.target is None:
            raise ValueError(f"more_cycles is {self.more_cycles}, but there is no target")

    @property
    def rates(self) -> Rates | None:
        """How fast the target computes; None without a target."""
        return rates_of(self.target) if isinstance(self.target, str) else self.target

    @property
    def npu(self) -> str | None:
        """The name of the target if it is an NPU."""
        return self.target if isinstance(self.target, str) else None
