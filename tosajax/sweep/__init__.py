"""Sweeps: thousands of settings of a network over whole data sets, in one compiled program.

configs = grid(weight_bits=[2, 3, 4, 8], act_bits=[4, 8])
sweep = Sweep((model, params), (images, labels), ["accuracy"], configs, store="run.jsonl")
print(sweep.plan())
results = sweep.run(progress=True)
print(results.pareto("mean_bits"))
"""

from tosajax.sweep.data import Data
from tosajax.sweep.graphs import of_graph
from tosajax.sweep.metrics import (
    Examples,
    Greatest,
    Metric,
    Total,
    accuracy,
    agreement,
    cosine,
    max_lsb,
    mcnemar,
    mean,
    mean_lsb,
    sqnr,
    top_k,
)
from tosajax.sweep.models import of_model
from tosajax.sweep.plan import Plan
from tosajax.sweep.results import Results
from tosajax.sweep.space import Space, grid, integers, one_at_a_time, random, uniform, zip_
from tosajax.sweep.subject import of_function
from tosajax.sweep.sweep import Sweep

__all__ = [
    "Data",
    "Examples",
    "Greatest",
    "Metric",
    "Plan",
    "Results",
    "Space",
    "Sweep",
    "Total",
    "accuracy",
    "agreement",
    "cosine",
    "grid",
    "integers",
    "max_lsb",
    "mcnemar",
    "mean",
    "mean_lsb",
    "of_function",
    "of_graph",
    "of_model",
    "one_at_a_time",
    "random",
    "sqnr",
    "top_k",
    "uniform",
    "zip_",
]


def __dir__() -> list[str]:
    return __all__
