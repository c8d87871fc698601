"""Graphs of TOSA before 1.0, independent of the file format."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np


@dataclasses.dataclass(frozen=True)
class OldTensor:
    """A tensor.

    Args:
      name: the tensor's name.
      dtype: the type's name in files before 1.0, such as "INT8", "UINT8", "UINT16", "FP32", "BOOL",
        "SHAPE".
      shape: -1 for an unknown dimension; None if the rank is unknown.
      values: the values of a constant, a NumPy array of this shape; int48 in int64, unsigned
        integers in unsigned arrays, bfloat16 in the type of `ml_dtypes`.
    """

    name: str
    dtype: str
    shape: tuple[int, ...] | None
    values: np.ndarray | None = None


@dataclasses.dataclass(frozen=True)
class OldNode:
    """An operator of TOSA 0.80.

    Args:
      op: the name in 0.80, such as "FULLY_CONNECTED"; CONST has no inputs. Operators on shapes may
        have their names in 0.90, such as "ADD_SHAPE", or in 1.0.
      inputs: the inputs in files of 0.80, in their order. Arguments that are attributes in files
        but constant operands in some dialect (padding, perms, shift, table) are attributes here,
        or further inputs, in the order of 1.0. Such inputs must be constants, except for the shift
        of MUL, the table of TABLE, and the scale of RESCALE.
      outputs: the outputs.
      attributes: Python values by the names of the file's fields (`new_shape`, `input_zp`,
        `min_int`, `double_round`): element types and enumerants by name, the table of TABLE and the
        data of CUSTOM unchanged, `nan_mode` and `acc_type` if the source has them. Operators for
        variables, which files do not have, have `name` or the number `uid`; VARIABLE also has
        `var_shape`, `type` and `initial_value`, an array or None.
      location: the node's location as text, or None.
    """

    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    location: str | None = None

    @property
    def title(self) -> str:
        """The operator and first output, for messages."""
        return f"{self.op} {self.outputs[0]!r}" if self.outputs else self.op


@dataclasses.dataclass(frozen=True)
class OldGraph:
    """Operators and tensors, with the subgraphs that control flow names."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    tensors: Mapping[str, OldTensor]
    nodes: tuple[OldNode, ...]
    subgraphs: Mapping[str, OldGraph] = dataclasses.field(default_factory=dict)
    name: str = "main"
