"""The configuration of recurrent layers, and the sums of their gates.

A gate multiplies the input by one matrix and the state by another. Here both matrices are
concatenated, and one product with [x, h] computes the sum. The product is in float64, which is
exact in any order of summation: 4096 products of int16 are at most 2**42. On most CPUs four
products of bytes would be slower. Multiplying all inputs before the first step would also be
slower, because the sums would go through memory.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tosajax.fixedpoint import _x64
from tosajax.hifi.errors import ErrorCode, Fault
from tosajax.hifi.kernels._check import check_array, check_type, integer
from tosajax.hifi.kernels._narrow import Wide
from tosajax.hifi.kernels._precision import Array
from tosajax.hifi.kernels._sums import dot, finish_fixed
from tosajax.hifi.layers._precision import Precision
from tosajax.ops.recording import is_recording

# Activations read Q6.25; biases are in Q15.
_ACTIVATION_FRACTION = 25
BIAS_FRACTION = 15
_WEIGHT_TYPES: dict[int, type] = {Precision.P16bx16b: np.int16, Precision.P8bx16b: np.int8}


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecurrentConfig:
    """The common fields of the configurations of recurrent layers; see `GRUConfig`."""

    # The name in error codes, and the largest number of fraction bits of each format.
    _layer: ClassVar[str]
    _formats: ClassVar[Mapping[str, int]] = {"coeff_Qformat": 15, "io_Qformat": 15}

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
        """The type of weights, int16 or int8, by the precision."""
        return _WEIGHT_TYPES[self.precision]

    @property
    def acc_shift(self) -> int:
        """The left shift from a sum of products to Q6.25, in bits."""
        return _ACTIVATION_FRACTION - (self.coeff_Qformat + self.io_Qformat)

    @property
    def bias_shift(self) -> int:
        """The left shift from a bias in Q15 to a sum of products, in bits."""
        return self.io_Qformat + self.coeff_Qformat - BIAS_FRACTION

    def fault(self) -> Fault | None:
        """The first fault that the library detects, or None."""
        return next(self._faults(), None)

    def _faults(self) -> Iterator[Fault]:
        """Yields all faults, in the library's order."""

        def fault(name: str, wanted: str, field: str | None = None) -> Fault:
            code = ErrorCode[f"{self._layer}_CONFIG_FATAL_INVALID_{name.upper()}"]
            return Fault(code, field or name, getattr(self, field or name), wanted)

        for name in ("in_feats", "out_feats"):
            count = getattr(self, name)
            if not 4 <= count <= 2048 or count % 4:
                yield fault(name, "a multiple of 4 within [4, 2048]")
        if self.precision not in _WEIGHT_TYPES:
            yield fault("precision", "16bx16b or 8bx16b")
        for name, high in self._formats.items():
            if not 0 <= getattr(self, name) <= high:
                yield fault(name, f"within [0, {high}]")
        if self.pad not in (0, 1):
            yield fault("membank_padding", "0 or 1", "pad")


def keep_integers(config: Any) -> None:
    """Converts the `int` fields of a frozen dataclass to Python integers, in __post_init__.

    Raises:
      TypeError: a value is not an integer.
    """
    name = type(config).__name__
    for field in dataclasses.fields(config):
        if field.type == "int":
            value = integer(name, field.name, getattr(config, field.name))
            object.__setattr__(config, field.name, value)


def check_weights(
    name: str,
    config: RecurrentConfig,
    kind: type,
    weights: Any,
    gates: Sequence[tuple[str, str, str]],
) -> None:
    """Checks the class of weights, and the types and shapes of gates, given their field names."""
    check_type(name, "weights", weights, kind)
    outputs = config.out_feats
    for of_x, of_h, bias in gates:
        for field, columns in ((of_x, config.in_feats), (of_h, outputs)):
            matrix = getattr(weights, field)
            check_array(name, field, matrix, config.weight_type, (outputs, columns))
        check_array(name, bias, getattr(weights, bias), np.int16, (outputs,))


class Gates(NamedTuple):
    """The concatenated matrices of several gates, for [x, h], and their biases.

    Args:
      matrix: [in_feats + out_feats, gates * out_feats], float64 with integer values or any float;
        while calls are recorded int16 or int8.
      bias: [gates * out_feats], int16 or any float.
    """

    matrix: jax.Array
    bias: jax.Array


def stack(gates: Sequence[tuple[Array, Array, Array]]) -> Gates:
    """Joins gates, each given as a matrix for x, a matrix for h and a bias."""
    rows = [jnp.concatenate([of_x, of_h], axis=1) for of_x, of_h, _ in gates]
    return Gates(jnp.concatenate(rows).T, jnp.concatenate([bias for *_, bias in gates]))


def stack_exact(gates: Sequence[tuple[Array, Array, Array]]) -> Gates:
    """Joins gates of integers, for `pre_activation`; see `stack`."""
    matrix, bias = stack(gates)
    if is_recording():
        return Gates(matrix, bias)
    with _x64.scope():
        return Gates(lax.convert_element_type(matrix, np.float64), bias)


def pre_activation(config: RecurrentConfig, gates: Gates, x: Array, h: jax.Array) -> jax.Array:
    """Computes the sums of gates for int16 x and h; int32 in Q6.25, the input of activations."""
    joined = jnp.concatenate([jnp.asarray(x), h])
    acc = _products(joined, gates.matrix)
    return finish_fixed(acc, gates.bias, config.acc_shift, config.bias_shift, np.int32)


def _products(joined: jax.Array, matrix: jax.Array) -> jax.Array | Wide:
    """Multiplies a vector by a matrix exactly; int64, or `Wide` while calls are recorded."""
    if is_recording():
        return Wide(*(part[0] for part in dot(matrix.T, joined[None])))
    with _x64.scope():
        wide = lax.convert_element_type(joined, np.float64)
        products = lax.dot_general(wide, matrix, (((0,), (0,)), ((), ())))
        return lax.convert_element_type(products, np.int64)


def scan_states(step: Callable[[Any, Any], Any], state: Any, xs: Any) -> tuple[Any, Any]:
    """Scans `step(state, x)`; returns the last state, and the states after each step.

    The loop outputs the state before each step: otherwise XLA would compute the result twice, for
    the next step and for the output.
    """

    def body(state: Any, x: Any) -> tuple[Any, Any]:
        return step(state, x), state

    last, before = lax.scan(body, state, xs)

    def after(before: jax.Array, last: jax.Array) -> jax.Array:
        return jnp.concatenate([before, last[None]])[1:]

    return last, jax.tree.map(after, before, last)
