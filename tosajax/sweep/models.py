"""Quantized models as subjects of sweeps: settings change bits and ranges."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tosajax import quant
from tosajax.arguments.names import near
from tosajax.grad.qtensor import QTensor, payload
from tosajax.graph import Quantization, Tensor
from tosajax.graph.quantization import Clipping, quantize
from tosajax.graph.zero_points import unsigned_tensors
from tosajax.quant import Observed, QModel, mean_bits, sample_tables
from tosajax.quant.freezing import quantizations
from tosajax.quant.graphs.blocks import graph_keys
from tosajax.quant.model.recipes import Params
from tosajax.quant.ranges.observers import check_percentile
from tosajax.quant.tune.bits import check_bits, qparams_of_bits
from tosajax.report import UnsupportedError
from tosajax.runtime.batching import with_batch
from tosajax.runtime.cost import peak_bytes
from tosajax.spec.target import Target
from tosajax.sweep import digest, layers
from tosajax.sweep.graphs import digest_of
from tosajax.sweep.program import accepted, graph_program, is_constant
from tosajax.sweep.space import Setting
from tosajax.sweep.subject import Arrays, Prepared, Variant, check_name, reduce_by_fields


@dataclasses.dataclass(frozen=True, eq=False)
class ModelSubject:
    """A quantized model as a subject; see `of_model`."""

    model: QModel
    params: Params
    observed: Observed | None
    change: Callable[[QModel, Params, Setting], Params] | None
    # Inputs whose first batch was looked at.
    _seen: set[str] = dataclasses.field(default_factory=set, init=False, repr=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return reduce_by_fields(self)

    def digest(self) -> str:
        return self._digest

    @functools.cached_property
    def _digest(self) -> str:
        return digest.of_text(
            digest_of(self.model.graph),
            digest.of_arrays(self.params),
            digest.of_arrays(self.observed),
        )

    def check(self, setting: Setting) -> None:
        if (percentile := setting.get("percentile")) is not None:
            self._check_percentile(percentile)
        if self.change is None:
            rest = {key: value for key, value in setting.items() if key != "percentile"}
            check_bits(self.model, self.params, self._bits(rest))

    def _check_percentile(self, percentile: Any) -> None:
        if self.observed is None:
            raise ValueError("percentile: expected of_model(..., observed=quant.observe(...))")
        check_percentile(_number_of("percentile", percentile, "in (50, 100]"))

    def prepare(self, setting: Setting) -> Prepared:
        params = self.settle(setting)
        constants = jax.tree.map(
            payload, self._constants(params), is_leaf=lambda x: isinstance(x, QTensor)
        )
        columns = {"mean_bits": float(self._mean_bits(params))} if self.model.weights else {}
        qparams = {
            f"{kind} {name}": params["qparams"][owner]
            for kind, names in (
                ("input", self.model.graph.inputs),
                ("output", self.model.graph.outputs),
            )
            for name in names
            if (owner := self.model.owners.get(name)) is not None
        }
        fixed = {
            t.name: t.values
            for t in self.model.graph.tensors.values()
            if is_constant(t) and t.name not in constants
        }
        return Prepared((), {**fixed, **constants, **qparams}, columns)

    def settle(self, setting: Setting) -> Params:
        """The parameters of a setting.

        Raises:
          ValueError: the setting has an unknown key or a wrong value.
        """
        setting = dict(setting)
        params = self.params
        percentile = setting.pop("percentile", None)
        if percentile is not None:
            self._check_percentile(percentile)
            assert self.observed is not None
            params = quant.settle(self.model, self.observed, percentile=percentile)
        if self.change is not None:
            params = self.change(self.model, params, setting)
            return sample_tables(self.model, params)
        bits = self._bits(setting)
        check_bits(self.model, params, bits)
        if not bits:
            return params
        widths = {name: jnp.float32(count) for name, count in bits.items()}
        qparams = {**params["qparams"], **self._qparams_of_bits(params, widths)}
        return sample_tables(self.model, {**params, "qparams": qparams}, bits)

    def _bits(self, setting: Setting) -> dict[str, Any]:
        """The bits of tensors that a setting names."""
        chosen: dict[str, Any] = {}
        groups = {
            "weight_bits": self.model.weights,
            "act_bits": self.model.activations,
            "bits": tuple(self.model.specs),
        }
        for key, value in setting.items():
            check_name(key, (*groups, "percentile"))
            if value is None:
                continue
            for pattern, bits in (value if isinstance(value, Mapping) else {"": value}).items():
                names = _matching(key, pattern, groups[key])
                chosen.update(dict.fromkeys(names, _number_of(key, bits)))
        return chosen

    @functools.cached_property
    def _constants(self) -> Callable[..., Any]:
        return jax.jit(self.model.constants)

    @functools.cached_property
    def _mean_bits(self) -> Callable[..., Any]:
        return jax.jit(lambda params: mean_bits(self.model, params))

    @functools.cached_property
    def _qparams_of_bits(self) -> Callable[..., Any]:
        """A jitted function of new bits that returns scales; one program for the same tensors."""
        return jax.jit(functools.partial(qparams_of_bits, self.model))

    def program(self, variant: Variant, fixed: Arrays, batch: int) -> Callable[..., Any]:
        return graph_program(self.model.graph, self.model.plan.bound_keys, fixed, batch)

    def accept(self, inputs: Sequence[np.ndarray], batch: int) -> tuple[jax.Array, ...]:
        for tensor, x in zip(self.model.graph.input_tensors, inputs, strict=False):
            if tensor.name not in self._seen:
                self._warn_of_clipping(tensor, np.asarray(x))
                self._seen.add(tensor.name)
        return accepted(self.model.graph, self.model.owners, inputs, batch, lambda: self._unsigned)

    def _warn_of_clipping(self, tensor: Tensor, x: np.ndarray) -> None:
        """Warns where the model saturates so many real elements that a graph would refuse them.

        Uses the scales of the model before any setting. That is not an error, and fewer are not
        worth a warning: ranges are calibrated, and settings may choose narrower ones.
        """
        scale = self._scales.get(tensor.name)
        if scale is not None and x.dtype.kind == "f" and not np.isnan(x).any():
            clipping = Clipping(tensor, scale)
            quantize(x, tensor, scale, clipping=clipping)
            if clipping.is_large:
                clipping.warn()

    @functools.cached_property
    def _scales(self) -> Mapping[str, Quantization]:
        return quantizations(self.model.plan, self.params["qparams"], self.model.graph)

    @functools.cached_property
    def _unsigned(self) -> set[str]:
        return unsigned_tensors(self.model.graph)

    def bytes_per_example(self) -> int:
        return peak_bytes(with_batch(self.model.graph, Target.everything(), 1)[0])

    def costs(self, setting: Setting) -> dict[str, float]:
        params = self.settle({key: value for key, value in setting.items() if value is not None})
        bits = [
            params["values"][name].size * float(params["qparams"][name].bits)
            for name in self.model.weights
        ]
        return {"weight_bytes": sum(bits) / 8, "macs": layers.macs(self.model.graph)}


def _matching(key: str, pattern: Any, names: Sequence[str]) -> list[str]:
    try:
        matches = [name for name in names if re.search(pattern, name)]
    except (TypeError, re.error) as error:
        raise ValueError(f"{key}: {pattern!r} is not a regular expression: {error}") from None
    if not matches:
        raise ValueError(f"{key}: no tensor matches {pattern!r}{near(pattern, names)}")
    return matches


def _number_of(key: str, value: Any, unit: str = "of bits") -> int | float:
    number = value.item() if hasattr(value, "item") and np.ndim(value) == 0 else value
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise TypeError(f"{key} is {value!r}, expected a number {unit}")
    return number


def of_model(
    model: QModel,
    params: Params,
    *,
    observed: Observed | None = None,
    settle: Callable[[QModel, Params, Setting], Params] | None = None,
) -> ModelSubject:
    """Makes the subject of a quantized model, frozen. The keys of its settings are

    - "weight_bits", "act_bits", "bits" (for weights, activations, both): a number for all tensors,
      or {regular expression: number}, in which later entries override earlier ones; None changes
      nothing;
    - "percentile": the percentile of the activations' ranges.

    Args:
      model: the model, from `quant.prepare` or `quant.lift`.
      params: the model's parameters.
      observed: the states from `quant.observe`, for "percentile".
      settle: a function (model, params, setting) -> params that replaces all keys but "percentile".

    Raises:
      UnsupportedError: parameters of the model are inside a loop or a branch.

    Example:
      >>> import numpy as np
      >>> from tosajax import quant, sweep
      >>> x, labels = np.eye(4, dtype=np.float32), np.arange(4)
      >>> model = quant.prepare(lambda x: x @ np.eye(4, dtype=np.float32), example_args=[x[:1]])
      >>> params = quant.calibrate(model, [x])
      >>> subject = sweep.of_model(model, params)
      >>> configs = sweep.grid(weight_bits=[2, 8])
      >>> [row["accuracy"] for row in sweep.Sweep(subject, (x, labels), configs=configs).run()]
      [1.0, 1.0]
    """
    for node in model.graph.nodes:
        if graph_keys(node) and not model.plan.recipes.keys() <= model.graph.tensors.keys():
            raise UnsupportedError(
                f"{node.title} has parameters inside, which no sweep changes: sweep the graphs of "
                "`freeze`"
            )
    return ModelSubject(model, params, observed, settle)
