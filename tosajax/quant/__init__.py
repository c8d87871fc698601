"""Quantization: from float graphs, or integer ones, to integers that are trained as they ship.

>>> import numpy as np
>>> from tosajax import quant
>>> x = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)
>>> weight = np.eye(3, dtype=np.float32)
>>> model = quant.prepare(lambda w, x: x @ w, params=weight, example_args=(x,))
>>> model
PreparedModel('main', graph 15 nodes, float graph 8 nodes, weights 1, activations 2, ...)
>>> params = quant.calibrate(model, [x])
>>> model.apply(params, x)[0][0]  # integers, times their scale
Array([-0.99..., -0.81..., -0.63...], dtype=float32)
>>> graph = model.freeze(params)
>>> graph
Graph('main', (x: INT8[4,3]) -> (output: INT8[4,3]), 14 nodes)
>>> model.pytree(params)[0]  # the weight, as trained
array([1., 0., 0.], dtype=float32)
>>> quant.lift(graph)[0]
LiftedModel('main', graph 14 nodes, weights 1, bias 1, rescale 1)
"""

from tosajax.quant.bit_exact import BitExactReport, Comparison, check_bit_exact
from tosajax.quant.calibration import calibrate, initial_values, observe, settle
from tosajax.quant.error_report import QuantReport, Row, report
from tosajax.quant.lifting import lift
from tosajax.quant.model.norms import Norm, with_statistics
from tosajax.quant.model.run import Mode
from tosajax.quant.observing import Observed
from tosajax.quant.preparation import prepare
from tosajax.quant.qmodel import LiftedModel, PreparedModel, QModel
from tosajax.quant.qparams import (
    Grid,
    QParams,
    dequantize,
    fake_quant,
    multiplier_and_shift,
    quantize,
)
from tosajax.quant.ranges.observers import (
    Observer,
    entropy,
    fixed,
    min_max,
    moving_average,
    mse,
    percentile,
)
from tosajax.quant.sampling import sample_tables
from tosajax.quant.sequences import rollout, scan
from tosajax.quant.spec import QSpec, Rule, rule
from tosajax.quant.storages import OperandStorage, Storage
from tosajax.quant.training.fitting import fit
from tosajax.quant.training.losses import distillation, squared_difference
from tosajax.quant.training.schedule import Schedule
from tosajax.quant.training.state import Fit, FitRow, FitState
from tosajax.quant.training.steps import RelativeState, project, relative
from tosajax.quant.tune.automatic import auto
from tosajax.quant.tune.bias_correction import bias_correct
from tosajax.quant.tune.bits import allocate_bits, mean_bits, pareto, with_bits
from tosajax.quant.tune.budget import Budget
from tosajax.quant.tune.equalization import equalize, smooth
from tosajax.quant.tune.gptq import gptq
from tosajax.quant.tune.islands import with_rules
from tosajax.quant.tune.mixing import BitChoice, MixedPrecision, mixed_precision, storage_cost
from tosajax.quant.tune.reconstruction import reconstruct
from tosajax.quant.tune.remedies import Auto, Remedy, Spent
from tosajax.quant.tune.rescuing import Rescue, rescue
from tosajax.quant.tune.rounding import learned_rounding
from tosajax.quant.tune.sensitivities import sensitivity
from tosajax.quant.tune.statistics import estimate_norms
from tosajax.spec.rates import Rates

__all__ = [
    "Auto",
    "BitChoice",
    "BitExactReport",
    "Budget",
    "Comparison",
    "Fit",
    "FitRow",
    "FitState",
    "Grid",
    "LiftedModel",
    "MixedPrecision",
    "Mode",
    "Norm",
    "Observed",
    "Observer",
    "OperandStorage",
    "PreparedModel",
    "QModel",
    "QParams",
    "QSpec",
    "QuantReport",
    "Rates",
    "RelativeState",
    "Remedy",
    "Rescue",
    "Row",
    "Rule",
    "Schedule",
    "Spent",
    "Storage",
    "allocate_bits",
    "auto",
    "bias_correct",
    "calibrate",
    "check_bit_exact",
    "dequantize",
    "distillation",
    "entropy",
    "equalize",
    "estimate_norms",
    "fake_quant",
    "fit",
    "fixed",
    "gptq",
    "initial_values",
    "learned_rounding",
    "lift",
    "mean_bits",
    "min_max",
    "mixed_precision",
    "moving_average",
    "mse",
    "multiplier_and_shift",
    "observe",
    "pareto",
    "percentile",
    "prepare",
    "project",
    "quantize",
    "reconstruct",
    "relative",
    "report",
    "rescue",
    "rollout",
    "rule",
    "sample_tables",
    "scan",
    "sensitivity",
    "settle",
    "smooth",
    "squared_difference",
    "storage_cost",
    "with_bits",
    "with_rules",
    "with_statistics",
]


def __dir__() -> list[str]:
    return __all__
