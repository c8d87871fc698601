"""Graphs as they were before TOSA 1.0, whatever form they are read from."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np


@dataclasses.dataclass(frozen=True)
class OldTensor:
    """A tensor.

    Args:
      dtype: its name in files before 1.0, as "INT8", "UINT8", "UINT16", "FP32", "BOOL", "SHAPE".
      shape: -1 for a dimension that is not known; None if the rank is not.
      values: of a constant, in a NumPy array of this shape: integers in their value (int48 in
        int64), unsigned ones in unsigned arrays, bfloat16 in that of `ml_dtypes`.
    """

    name: str
    dtype: str
    shape: tuple[int, ...] | None
    values: np.ndarray | None = None


@dataclasses.dataclass(frozen=True)
class OldNode:
    """An operator of TOSA 0.80.

    Args:
      op: its name in 0.80, as "FULLY_CONNECTED"; CONST has no inputs. Operators on shapes may have
        their names in 0.90, as "ADD_SHAPE", and those of 1.0 are taken, too.
      inputs: the tensors that are inputs in the files of 0.80, in their order. Arguments that some
        form has as constant operands and the files as attributes (padding, perms, shift, table)
        are attributes here. As inputs after the others, in the order of 1.0, they are taken, too:
        constants, or tensors for the shift of MUL, the TABLE, and the scale of RESCALE.
      attributes: Python values by the names of the file's fields (`new_shape`, `input_zp`,
        `min_int`, `double_round`); an element type by its name, an enumeration by its member's
        name; a TABLE and the data of CUSTOM as they are; `nan_mode` and `acc_type` where a form
        has them. Operators of variables, which no file has, have `name` or the number `uid`;
        VARIABLE also `var_shape`, `type`, and `initial_value`, an array or None, and no outputs.
    """

    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    location: str | None = None

    @property
    def title(self) -> str:
        """How messages name the node: operator and first output."""
        return f"{self.op} {self.outputs[0]!r}" if self.outputs else self.op


@dataclasses.dataclass(frozen=True)
class OldGraph:
    """Operators and tensors, with the subgraphs that control flow refers to by name."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    tensors: Mapping[str, OldTensor]
    nodes: tuple[OldNode, ...]
    subgraphs: Mapping[str, OldGraph] = dataclasses.field(default_factory=dict)
    name: str = "main"
