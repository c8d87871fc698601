"""QTensor: the exact integers of a tensor, and float32 values that carry gradients."""

from __future__ import annotations

import dataclasses
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import export

from tosajax.ops._follow import follow


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class QTensor:
    """Integers, which have no gradients, and their float32 shadow, which has; or FP8 values.

    A shadow never affects integers: the computed integers are the integers that ship.

    Args:
      q: int8 (which also holds int4), int16, int32, int48 held in int64; or float8, which
        `tosajax.quant` casts to, because JAX computes gradients of float8 in float8.
      shadow: float32, the shape of `q`: the values before rounding and saturation to `q`, or `q`
        itself. The shadow of a RESCALE's multiplier is the scale, multiplier / 2**shift.

    Example:
      >>> import jax.numpy as jnp
      >>> from tosajax import grad
      >>> x = grad.QTensor.of(jnp.int8([1, 2]))
      >>> x, x.q.dtype.name, x.shadow.tolist()
      (QTensor(int8[2]), 'int8', [1.0, 2.0])
    """

    q: jax.Array
    shadow: jax.Array

    @classmethod
    def of(cls, q: jax.Array | np.ndarray) -> QTensor:
        """A QTensor whose shadow is its integers."""
        q = q if isinstance(q, jax.Array) else jnp.asarray(q)
        return cls(q, q.astype(jnp.float32))

    @classmethod
    def known(cls, q: np.ndarray) -> QTensor:
        """A QTensor of constants, as NumPy arrays: kernels skip zero points that are 0."""
        return cls(q, q.astype(np.float32))  # type: ignore[arg-type]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.q.shape

    @property
    def dtype(self) -> np.dtype:
        return self.q.dtype

    def __repr__(self) -> str:
        return f"QTensor({self.q.dtype}{list(self.q.shape)})"


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Multiplier(QTensor):
    """The multiplier of a RESCALE; its shadow is the scale, multiplier / 2**shift."""


# `jax.export` needs this for functions of QTensors.
export.register_pytree_node_serialization(
    QTensor,
    serialized_name="tosajax.grad.QTensor",
    serialize_auxdata=lambda _: b"",
    deserialize_auxdata=lambda _: (),
)


# A tensor of a graph: integers as QTensors, floats and bool as arrays.
Value = jax.Array | QTensor
_T = TypeVar("_T")


def payload(x: QTensor | _T) -> jax.Array | _T:
    """The integers of a QTensor; an array unchanged."""
    return x.q if isinstance(x, QTensor) else x


def shadow(x: Value) -> jax.Array:
    """The shadow of a QTensor; floats unchanged."""
    return x.shadow if isinstance(x, QTensor) else x


def tie(x: QTensor | _T) -> jax.Array | _T:
    """The integers of a QTensor as float32, with the gradient of its shadow; floats unchanged.

    Second derivatives need it: a rule is evaluated at the integers, and its result must still have
    a gradient.

    Example:
      >>> import jax
      >>> import jax.numpy as jnp
      >>> from tosajax import grad
      >>> q = jnp.int8([1, 2])
      >>> squares = lambda shadow: (grad.tie(grad.QTensor(q, shadow)) ** 2).sum()
      >>> jax.grad(squares)(jnp.float32([1, 2])).tolist()
      [2.0, 4.0]
    """
    return follow(x.q.astype(jnp.float32), x.shadow) if isinstance(x, QTensor) else x


def tie_scalar(x: Value) -> jax.Array:
    """`tie` of a zero point, an array of one element, as a scalar."""
    return tie(x).reshape(())
