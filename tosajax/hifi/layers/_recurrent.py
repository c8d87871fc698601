"""What the recurrent layers share: their configuration, and the sums of their gates.

A gate multiplies the input and the state by a matrix each; here one product, of [x, h] with both
matrices side by side, gives the sum. It is in float64, which holds every sum exactly, whatever its
order: 4096 products of int16 are at most 2**42. Products of bytes, of which it takes four, are
slower on most CPUs, and so are the products with all inputs before the first step, which would go
through memory.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tosajax.fixedpoint import _x64
from tosajax.hifi.errors import ErrorCode, Fault
from tosajax.hifi.kernels._check import check_array, check_type, integer
from tosajax.hifi.kernels._precision import Array
from tosajax.hifi.kernels._sums import finish_fixed
from tosajax.hifi.layers._precision import Precision

# Activations read Q6.25, biases are Q15.
_ACTIVATION_FRACTION = 25
BIAS_FRACTION = 15
_WEIGHT_TYPES: dict[int, type] = {Precision.P16bx16b: np.int16, Precision.P8bx16b: np.int8}


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecurrentConfig:
    """The configuration that the recurrent layers have in common."""

    in_feats: int = 256
    out_feats: int = 256
    pad: int = 1
    mat_prec: int = 16
    vec_prec: int = 16
    precision: int = Precision.P16bx16b
    coeff_Qformat: int = 15
    io_Qformat: int = 12

    def __post_init__(self) -> None:
        keep_integers(self)

    @property
    def weight_type(self) -> type:
        """int16 or int8, by the precision."""
        return _WEIGHT_TYPES[self.precision]

    @property
    def acc_shift(self) -> int:
        """From a sum of products to Q6.25, bits to the left."""
        return _ACTIVATION_FRACTION - (self.coeff_Qformat + self.io_Qformat)

    @property
    def bias_shift(self) -> int:
        """From a bias in Q15 to a sum of products, bits to the left."""
        return self.io_Qformat + self.coeff_Qformat - BIAS_FRACTION


def keep_integers(config: Any) -> None:
    """Makes the fields of a frozen dataclass that are to be integers Python's, as it begins.

    Raises:
      TypeError: a field that is not an integer.
    """
    name = type(config).__name__
    for field in dataclasses.fields(config):
        if field.type == "int":
            value = integer(name, field.name, getattr(config, field.name))
            object.__setattr__(config, field.name, value)


def faults(layer: str, config: RecurrentConfig, **more: tuple[int, int]) -> Iterator[Fault]:
    """What the library rejects, in its order.

    Args:
      layer: as in the names of error codes.
      config: what to check.
      more: fields of this layer with their ranges, between those of coefficients and of input.
    """

    def code(name: str) -> ErrorCode:
        return ErrorCode[f"{layer}_CONFIG_FATAL_INVALID_{name.upper()}"]

    for name in ("in_feats", "out_feats"):
        count = getattr(config, name)
        if not 4 <= count <= 2048 or count % 4:
            yield Fault(code(name), name, count, "a multiple of 4 within [4, 2048]")
    if config.precision not in _WEIGHT_TYPES:
        yield Fault(code("precision"), "precision", config.precision, "16bx16b or 8bx16b")
    for name, (low, high) in {"coeff_Qformat": (0, 15), **more, "io_Qformat": (0, 15)}.items():
        bits = getattr(config, name)
        if not low <= bits <= high:
            yield Fault(code(name), name, bits, f"within [{low}, {high}]")
    if config.pad not in (0, 1):
        yield Fault(code("membank_padding"), "pad", config.pad, "0 or 1")


def check_weights(
    name: str,
    config: RecurrentConfig,
    kind: type,
    weights: Any,
    gates: Sequence[tuple[str, str, str]],
) -> None:
    """Checks the class of weights, and types and shapes of gates, named as `stack` takes them."""
    check_type(name, "weights", weights, kind)
    outputs = config.out_feats
    for of_x, of_h, bias in gates:
        for field, columns in ((of_x, config.in_feats), (of_h, outputs)):
            matrix = getattr(weights, field)
            check_array(name, field, matrix, config.weight_type, (outputs, columns))
        check_array(name, bias, getattr(weights, bias), np.int16, (outputs,))


class Gates(NamedTuple):
    """What [x, h] is multiplied by for some gates, one beside the other.

    Args:
      matrix: [in_feats + out_feats, gates * out_feats], float64 of integers or any float.
      bias: [gates * out_feats], int16 or any float.
    """

    matrix: jax.Array
    bias: jax.Array


def stack(gates: Sequence[tuple[Array, Array, Array]]) -> Gates:
    """Joins gates, each with a matrix for x, one for h and a bias."""
    rows = [jnp.concatenate([of_x, of_h], axis=1) for of_x, of_h, _ in gates]
    return Gates(jnp.concatenate(rows).T, jnp.concatenate([bias for *_, bias in gates]))


def stack_exact(gates: Sequence[tuple[Array, Array, Array]]) -> Gates:
    """`stack` of integers, for `pre_activation`."""
    matrix, bias = stack(gates)
    with _x64.scope():
        return Gates(lax.convert_element_type(matrix, np.float64), bias)


def pre_activation(config: RecurrentConfig, gates: Gates, x: Array, h: jax.Array) -> jax.Array:
    """The sums of gates for int16 x and h, as activations read them; int32 in Q6.25."""
    joined = jnp.concatenate([jnp.asarray(x), h])
    with _x64.scope():
        wide = lax.convert_element_type(joined, np.float64)
        products = lax.dot_general(wide, gates.matrix, (((0,), (0,)), ((), ())))
        acc = lax.convert_element_type(products, np.int64)
    return finish_fixed(acc, gates.bias, config.acc_shift, config.bias_shift, np.int32)


def scan_states(step: Callable[[Any, Any], Any], state: Any, xs: Any) -> tuple[Any, Any]:
    """The last state, and those after each step, of `step(state, x)`.

    What a step starts from is kept, not what it ends with: XLA would compute the step once for the
    next one, and once more for the result.
    """

    def body(state: Any, x: Any) -> tuple[Any, Any]:
        return step(state, x), state

    last, before = lax.scan(body, state, xs)

    def after(before: jax.Array, last: jax.Array) -> jax.Array:
        return jnp.concatenate([before, last[None]])[1:]

    return last, jax.tree.map(after, before, last)
