"""Compares two programs tensor by tensor, to find the first layer that differs.

comparison = compare(graph, "reference_model", images)
print(comparison.first_divergent)
"""

from __future__ import annotations

from tosajax.compare.comparison import Comparison, Row
from tosajax.compare.etrecord_scales import scales_of_etrecord
from tosajax.compare.examples import random_inputs
from tosajax.compare.executorch_scales import scales_of_executorch
from tosajax.compare.litert import TFLite, tflite
from tosajax.compare.measure import Histogram, Measured, edges
from tosajax.compare.model_scales import scales_of_model
from tosajax.compare.rounding import RoundingTable, which_rounding
from tosajax.compare.run import compare
from tosajax.compare.scales import scales_of
from tosajax.compare.tflite_scales import scales_of_tflite
from tosajax.compare.tolerance import Tolerance
from tosajax.compare.torch_modules import torch_tensors

__all__ = [
    "Comparison",
    "Histogram",
    "Measured",
    "RoundingTable",
    "Row",
    "TFLite",
    "Tolerance",
    "compare",
    "edges",
    "random_inputs",
    "scales_of",
    "scales_of_etrecord",
    "scales_of_executorch",
    "scales_of_model",
    "scales_of_tflite",
    "tflite",
    "torch_tensors",
    "which_rounding",
]


def __dir__() -> list[str]:
    return __all__
