"""Storage: the protocol of types that real values are rounded to."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

import jax
import numpy as np

from tosajax.dtypes import DType
from tosajax.grad.estimators import Estimator
from tosajax.grad.qtensor import QTensor

if TYPE_CHECKING:
    from tosajax.quant.convert.operands import Operand, Writer
    from tosajax.quant.qparams import QParams
    from tosajax.quant.spec import QSpec


class Grid(NamedTuple):
    """The ends of the stored values of a tensor, float32: of integers, all from qmin to qmax.

    Example:
      >>> import jax.numpy as jnp
      >>> from tosajax import quant
      >>> grid = quant.Grid(jnp.float32(-128), jnp.float32(127))
      >>> (grid.qmax - grid.qmin).item()
      255.0
    """

    qmin: jax.Array
    qmax: jax.Array


@runtime_checkable
class Storage(Protocol):
    """Rounds real values to one type. Hashable, as traced programs hold it as static data.

    A new type takes one class: `QSpec(MyStorage())` gives it to tensors. Values that are not
    integers are for the operands of products: they need an `OperandStorage`.

    Attributes:
      dtype: the element type of stored tensors.
      name: the name in messages and reports.
      is_integer: stored values are the integers of a range of bits. Only integers have zero points,
        bits to choose and to train, and scales in the file of a frozen graph.

    Example:
      >>> from tosajax import quant
      >>> storage = quant.QSpec("i8").storage
      >>> storage.name, storage.is_integer
      ('INT8', True)
    """

    @property
    def dtype(self) -> DType: ...

    @property
    def name(self) -> str: ...

    @property
    def is_integer(self) -> bool: ...

    def check(self, spec: QSpec) -> None:
        """Raises ValueError where a specification contradicts the type; `QSpec` checks the rest."""
        ...

    def grid(self, bits: jax.Array, *, narrow_range: bool) -> Grid:
        """The ends of the stored values, which scales are found for."""
        ...

    def quantize(self, x: jax.Array, qparams: QParams, estimator: Estimator) -> QTensor:
        """The stored values of real ones, with the gradient of the real ones."""
        ...

    def dequantize(self, x: QTensor, qparams: QParams) -> jax.Array:
        """The real values of stored ones, float32."""
        ...

    def levels(self, qparams: QParams) -> np.ndarray:
        """All values that can be stored, float64, in order."""
        ...


@runtime_checkable
class OperandStorage(Storage, Protocol):
    """A storage of floats: operands of products pass through it, in a graph of FP32.

    Attributes:
      label: the suffix of names of tensors: "x/float8" is x in that storage.

    Example:
      >>> from tosajax import quant
      >>> storage = quant.QSpec("fp8e4m3").storage
      >>> storage.name, storage.is_integer
      ('FP8E4M3', False)
    """

    @property
    def label(self) -> str: ...

    def store(self, writer: Writer, operand: Operand) -> str:
        """Writes nodes that round an FP32 activation; the name of the stored tensor."""
        ...

    def widen(self, writer: Writer, operand: Operand, stored: str) -> str:
        """Writes nodes that read a stored tensor; the name of its real values in FP32."""
        ...
