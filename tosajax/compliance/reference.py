"""References and bounds of dot products ("Dot product accuracy requirements", TOSA 1.0.1)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from tosajax.compliance import float64
from tosajax.compliance.data import check_shapes
from tosajax.compliance.formats import normal_min, widen
from tosajax.compliance.rules import DOT_PRODUCTS
from tosajax.compliance.terms import terms_of
from tosajax.compliance.types import float_type
from tosajax.spec import OPERATORS


class Expected(NamedTuple):
    """The arguments of `check` for one output of dot products.

    Args:
      reference: float64, the results.
      bounds: float64 of the same shape, the operator on absolute values.
      terms: KS, the length of the dot products.
      biased: whether the bias has a nonzero value.
    """

    reference: np.ndarray
    bounds: np.ndarray
    terms: int
    biased: bool = False


def dot_products(
    op: str,
    inputs: Mapping[str, np.ndarray],
    *,
    local_bound: bool | None = None,
    **attributes: Any,
) -> tuple[Expected, ...]:
    """Computes the float64 results of an operator, and the sums that bound their errors.

    The results equal those of Arm's model in precise mode, with two exceptions: the model treats
    the padding of CONV2D as data, which widens the bounds there; and if the bound of FFT2D is not
    local, it takes the largest value of the real and the imaginary part separately.

    Args:
      op: an operator whose float results are dot products, such as "CONV2D".
      inputs: float arrays in the storage of their types, by argument name, without zero points;
        see `test_data`.
      local_bound: the attribute local_bound, if the operator has it; by default its default in the
        specification.
      **attributes: the operator's other attributes except acc_type, by name.

    Returns:
      An Expected for each output: two for FFT2D and RFFT2D, one for all others.

    Raises:
      ValueError: the operator is not a dot product, a shape is wrong, or an argument is missing or
        unknown.
      TypeError: an input is not a float array.
    """
    if op not in DOT_PRODUCTS:
        raise ValueError(f"{op} is not a dot product, only {', '.join(DOT_PRODUCTS)} are")
    shapes = {name: values.shape for name, values in inputs.items()}
    check_shapes(op, shapes)
    defaults = {a.name: a.default for a in OPERATORS[op].attributes}
    wanted = defaults.keys() - {"acc_type", "local_bound"}
    if attributes.keys() != wanted:
        raise ValueError(f"{op}: attributes {sorted(attributes)}, expected {sorted(wanted)}")
    if local_bound is not None and "local_bound" not in defaults:
        raise ValueError(f"{op} has no attribute local_bound")
    local = bool(defaults.get("local_bound", True)) if local_bound is None else local_bound
    terms = terms_of(op, shapes, attributes.get("kernel"), attributes.get("axis"))
    function = getattr(float64, op.lower())
    magnitudes = _magnitudes(inputs, local)
    with np.errstate(all="ignore"):
        results = function(**{n: widen(v) for n, v in inputs.items()}, **attributes, bound=False)
        bounds = function(**magnitudes, **attributes, bound=True)
    biased = bool(np.any(widen(inputs["bias"]) != 0)) if "bias" in inputs else False
    if not isinstance(results, tuple):
        results, bounds = (results,), (bounds,)
    return tuple(Expected(r, b, terms, biased) for r, b in zip(results, bounds, strict=True))


def _magnitudes(inputs: Mapping[str, np.ndarray], local: bool) -> dict[str, np.ndarray]:
    """The magnitudes of the inputs, raised to at least the smallest normal value of their type.

    The bias uses its own type, as in Arm's model; the text uses the type of the data. Unless the
    bound is local, each data element is replaced by the largest one, for algorithms that mix
    elements, such as fast convolutions.
    """
    magnitudes = {
        name: np.maximum(np.abs(widen(values)), normal_min(float_type(values.dtype)))
        for name, values in inputs.items()
    }
    if not local:
        data = [name for name in magnitudes if name.startswith("input")]
        largest = np.max([magnitudes[name].max() for name in data])
        magnitudes.update({name: np.full(magnitudes[name].shape, largest) for name in data})
    return magnitudes
